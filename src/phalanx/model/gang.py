"""What a user asks for: a gang of one or several roles.

A `Gang` is what was submitted, unchanged for life. What happens to it (attempts, places,
eligibility) lives in `control.state`; what planning may believe about it is in the columns
of a `Snapshot`. The true run time is not here: only the simulator knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.model.rules import Apart, AtMost, Beside, Evenly, Mark, Rather, Rule
from phalanx.model.topology import Topology
from phalanx.model.value import value


@dataclass(frozen=True, slots=True)
class Sizes:
    """The allowed sizes of a role, ascending. One size: the role is rigid."""

    allowed: tuple[int, ...]

    @property
    def least(self) -> int:
        """Below this the gang does not exist."""
        return self.allowed[0]

    @property
    def most(self) -> int:
        """Above this it gains nothing; times are stated at this size."""
        return self.allowed[-1]

    @property
    def elastic(self) -> bool:
        """Whether there is anything to choose."""
        return len(self.allowed) > 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What one member needs of one node. Equal shapes are one question to the engine."""

    need: tuple[tuple[str, int], ...]  # (kind, engine units), sorted by kind, never zero
    select: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (label, any of these values), sorted
    tolerate: tuple[str, ...] = ()  # taints it accepts, sorted
    bears: tuple[str, ...] = ()  # words that rules may speak of it by, sorted
    rules: tuple[Rule, ...] = ()  # what it asks about others
    rather: tuple[Rather, ...] = ()  # what it would like, the heaviest first
    _hash: int = field(init=False, compare=False, repr=False)  # shapes are looked up on every decision

    def __post_init__(self) -> None:
        """Work the hash out once."""
        parts = (self.need, self.select, self.tolerate, self.bears, self.rules, self.rather)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        """Of everything it is."""
        return self._hash

    @property
    def social(self) -> bool:
        """Whether where others are bears on where it may go, or the other way round."""
        return bool(self.bears or self.rules)

    @property
    def plain(self) -> bool:
        """Whether room, labels and taints say all there is to say of where it goes."""
        return not (self.bears or self.rules or self.rather)

    @property
    def names_others(self) -> bool:
        """Whether it bears words or asks about others than its own, so that somebody has to know who is where."""
        return bool(self.bears) or any(not isinstance(rule, AtMost) for rule in self.rules)

    @property
    def seeks_others(self) -> bool:
        """Whether others who come may let it in: it is to be where they are, or where they are fewest."""
        return any(isinstance(rule, Beside | Evenly) for rule in self.rules)

    @property
    def wishes_for_others(self) -> bool:
        """Whether any of its wishes is about others, so that somebody has to know who is where."""
        return any(not isinstance(rather.wish, tuple) for rather in self.rather)

    def list_marks(self) -> tuple[Mark, ...]:
        """What others have to know of it wherever it sits."""
        return (*self.bears, *((rule.word, rule.by) for rule in self.rules if isinstance(rule, Apart)))

    def amount(self, kind: str) -> int:
        """Engine units of one kind, 0 if not asked for."""
        return next((units for name, units in self.need if name == kind), 0)


@dataclass(frozen=True, slots=True)
class Role:
    """Members of one shape."""

    name: str
    sizes: Sizes
    shape: Shape
    topology: Topology = Topology()


@dataclass(frozen=True, slots=True)
class Together:
    """Gangs with the same word start together or not at all."""

    word: str
    gangs: int  # how many belong to it; it is incomplete until all have arrived


@dataclass(frozen=True, slots=True)
class After:
    """Dependencies by name: all of them, by success or by any end."""

    names: tuple[str, ...] = ()
    any_end: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotHabit:
    """How often the job saves its work and what that costs, as it declares it."""

    every_us: int
    stall_us: int
    restore_us: int


@value(frozen=True, slots=True)
class Gang:
    """Members that start together or not at all, as submitted."""

    name: str
    roles: tuple[Role, ...]
    submit_us: int = 0
    queue: str = "default"
    user: str = ""
    priority: int = 0
    topology: Topology = Topology()  # holds for all roles together
    together: Together | None = None
    walltime_us: int | None = None  # what planning believes, at the largest size; never kills
    kill_after_us: int | None = None  # this does
    deadline_us: int | None = None  # from submit
    preemptible: bool = False  # about the minimum; surplus is always on loan
    snapshot: SnapshotHabit | None = None
    resize_pause_us: int = 0
    startup_us: int = 0  # before the first useful step
    after: After = After()
    hold: bool = False
    max_restarts: int = 10

    @property
    def members_min(self) -> int:
        """Members of all roles at their least."""
        return sum(role.sizes.least for role in self.roles)

    @property
    def members_max(self) -> int:
        """Members of all roles at their most."""
        return sum(role.sizes.most for role in self.roles)

    @property
    def elastic(self) -> bool:
        """Whether any role has more than one size."""
        # A loop: asked six times in a gang's life, and a generator is slower.
        for role in self.roles:  # noqa: SIM110
            if len(role.sizes.allowed) > 1:
                return True
        return False
