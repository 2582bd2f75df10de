"""Gates that a front end keeps: what holds a gang from its turn by a rule that the engine does not know.

How many jobs of one person run at once, how many elements of an array, one job of a name, a time to begin. The engine
sees a hold. Who is let in next is decided here (`let_in`, `move_up`), for the front end on its clock and for whoever
looks ahead on the virtual one: two accounts of one rule would tell a start that the other forbids. `Gates` is all of it
over a state, by name of gang, since a number passes when a gang is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.model.gang import Gang
from phalanx.model.reason import Code

GATE_HOLD: Final = "hold"
GATE_BEGIN: Final = "begin"
GATE_ARRAY: Final = "array"
GATE_SINGLETON: Final = "singleton"
GATE_RUNNING: Final = "running"  # as many jobs of its owner run as may
GATE_ASIDE: Final = "aside"  # it could not be started, and lets others try

#: Gates that open by themselves: by a time that is known, or when others end.
OPENS_BY_ITSELF: Final = frozenset({GATE_BEGIN, GATE_ARRAY, GATE_SINGLETON, GATE_RUNNING})
#: Those of them that others hold shut.
OPENED_BY_OTHERS: Final = OPENS_BY_ITSELF - {GATE_BEGIN}

#: What is said of a gang behind one of them, where nobody knows more of it than the gate.
WORDS: Final = {
    GATE_HOLD: "on hold; release it to give it its turn",
    GATE_ASIDE: "could not be started; it is tried again soon",
    GATE_BEGIN: "its time to begin has not come",
    GATE_ARRAY: "as many elements of its array run as may at once",
    GATE_SINGLETON: "waits for another of the same name",
    GATE_RUNNING: "as many jobs of its owner run as may at once",
}

Who = TypeVar("Who")


# ---- the rules


def let_in(waiting: Iterable[tuple[Who, int, Gang]], room: int | None) -> list[tuple[Who, bool]]:
    """Who of a person's waiting jobs may have a turn, each with its number; `room`: as many as may still start."""
    units: dict[str, list[Who]] = {}
    for who, number, gang in sorted(waiting, key=lambda each: _rank(each[2], each[1])):
        # A word cannot be taken for a number, which stands for a gang that starts alone.
        units.setdefault(f"#{number}" if gang.together is None else f"={gang.together.word}", []).append(who)
    told: list[tuple[Who, bool]] = []
    for unit in units.values():
        # Those who start together start together or not at all: half of them would hold places that nobody uses.
        fits = room is None or len(unit) <= room
        told += [(who, fits) for who in unit]
        if fits and room is not None:
            room -= len(unit)
    return told


def move_up(shut: Sequence[Who], open_: int, most: int) -> Sequence[Who]:
    """Who of those before the gate goes through it now, as it stands in line; whoever is through stays so."""
    return shut[: max(0, most - open_)]


# ---- over a state


@dataclass(slots=True)
class GateLine:
    """Gangs of which only so many may be through a gate at once: an array, or the jobs of a name."""

    gate: str
    most: int
    names: list[str]  # in the order in which they go through


@dataclass(slots=True)
class Gates:
    """Who is behind which gates, and what opens them."""

    shut: dict[str, set[str]] = field(default_factory=dict)  # by gang
    begins_us: dict[str, int] = field(default_factory=dict)
    lines: list[GateLine] = field(default_factory=list)
    running_max: int | None = None  # of everybody who has no number of their own
    running_max_of: dict[str, int] = field(default_factory=dict)  # by person
    _members: list[int] = field(default_factory=list)  # gangs that a ceiling may concern and that have not ended
    _seen: int = 0  # gangs of the state that were looked at

    @property
    def idle(self) -> bool:
        """Whether there is nothing to keep."""
        return not (self.shut or self.lines or self.running_max is not None or self.running_max_of)

    def clone(self) -> Gates:
        """For one look, which opens and shuts them."""
        # Deep where a look writes: the next one begins from the gates as they are now.
        shut = {name: set(gates) for name, gates in self.shut.items()}
        twin = replace(self, shut=shut, begins_us=dict(self.begins_us))
        twin.lines = [replace(line, names=list(line.names)) for line in self.lines]
        return twin

    def blame(self, name: str) -> tuple[Code, str] | None:
        """What keeps a gang from its turn; None: no gate does."""
        gate = next((gate for gate in WORDS if gate in self.shut.get(name, ())), None)
        if gate is None:
            return None
        return Code.USER_LIMIT if gate == GATE_RUNNING else Code.HELD, WORDS[gate]

    def keep(self, state: State) -> bool:
        """Open and shut what is due now; whether anything has changed."""
        if self.idle:
            return False
        changed = False
        # Times first, then lines, then ceilings: only whoever is through all others counts against a ceiling.
        for name, at_us in list(self.begins_us.items()):
            if at_us <= state.now_us:
                del self.begins_us[name]
                changed |= self.open(state, name, GATE_BEGIN)
        for line in self.lines:
            changed |= self._move_up(state, line)
        if self.running_max is not None or self.running_max_of:
            changed |= self._bound(state)
        return changed

    def find_before(self, state: State, number: int) -> list[int]:
        """Waiting gangs that go through a gate of this one before it."""
        gang = state.gangs[number]
        shut = self.shut.get(gang.name, ())
        names: set[str] = set()
        for line in self.lines:
            if line.gate in shut and gang.name in line.names:
                names.update(line.names[: line.names.index(gang.name)])
        found = {state.number_by_name[name] for name in names if name in state.number_by_name}
        if GATE_RUNNING in shut:
            mine = _rank(gang, number)
            others = (n for n in state.list_waiting() if state.gangs[n].user == gang.user)
            found |= {n for n in others if _rank(state.gangs[n], n) < mine}
        return sorted(n for n in found if state.phase_of(n) is Phase.PENDING and n != number)

    def list_bounded(self, state: State) -> dict[str, list[int]]:
        """By person, gangs that wait for a ceiling alone, in the order in which they go through."""
        found: dict[str, list[int]] = {}
        for name, gates in self.shut.items():
            number = state.number_by_name.get(name)
            # Whoever is kept back by more is in no line yet: it goes in by its rank once that is gone.
            if gates == {GATE_RUNNING} and number is not None and state.phase_of(number) is Phase.PENDING:
                found.setdefault(state.gangs[number].user, []).append(number)
        return {
            user: sorted(numbers, key=lambda number: _rank(state.gangs[number], number))
            for user, numbers in found.items()
        }

    def list_ahead(self, state: State, number: int) -> list[int]:
        """Waiting gangs of its owner that a ceiling lets in before this one, the first first."""
        gang = state.gangs[number]
        mine = _rank(gang, number)
        # Those who are through and wait for room among them: they hold the places that this one waits for.
        others = (n for n in state.list_waiting() if state.gangs[n].user == gang.user and self._counts(state, n))
        return sorted((n for n in others if _rank(state.gangs[n], n) < mine), key=lambda n: _rank(state.gangs[n], n))

    # ------------------------------------------------------------------ lines

    def _move_up(self, state: State, line: GateLine) -> bool:
        numbers = state.number_by_name
        # Dropped by whoever thinned the queue out is ended as well, and nobody's mate any more.
        alive = [name for name in line.names if name in numbers and not state.phase_of(numbers[name]).ended]
        line.names = alive
        # Whoever is through counts, whether it runs or waits for room, as the daemon counts it.
        shut = [name for name in alive if line.gate in self.shut.get(name, ())]
        return _any([self.open(state, name, line.gate) for name in move_up(shut, len(alive) - len(shut), line.most)])

    # ------------------------------------------------------------------ ceilings

    def _most_of(self, user: str) -> int | None:
        return self.running_max_of.get(user, self.running_max)

    def _bound(self, state: State) -> bool:
        """The rule of `max_running`: whoever would be one too many has no turn."""
        fresh = range(self._seen, len(state.gangs))
        self._seen = len(state.gangs)
        # Ended ones leave the list for good: a look goes through hundreds of instants.
        self._members = [n for n in (*self._members, *fresh) if not state.phase_of(n).ended]
        running: dict[str, int] = {}
        waiting: dict[str, list[tuple[int, int, Gang]]] = {}
        for number in self._members:
            gang = state.gangs[number]
            if state.phase_of(number).seated:
                running[gang.user] = running.get(gang.user, 0) + 1
            elif self._counts(state, number):
                waiting.setdefault(gang.user, []).append((number, number, gang))
        changed = []
        for user, gangs in waiting.items():
            most = self._most_of(user)
            for number, may in let_in(gangs, None if most is None else most - running.get(user, 0)):
                name = state.gangs[number].name
                changed.append((self.open if may else self._shut)(state, name, GATE_RUNNING))
        return _any(changed)

    def _counts(self, state: State, number: int) -> bool:
        """Whoever is kept back by something else takes nobody's place, be it a hold that came with the gang."""
        name = state.gangs[number].name
        return self.shut.get(name, set()) <= {GATE_RUNNING} and (name in self.shut or not state.records[number].held)

    # ------------------------------------------------------------------ one gate

    def open(self, state: State, name: str, gate: str) -> bool:
        """One thing less that keeps it back; whether it did."""
        gates = self.shut.get(name)
        number = state.number_by_name.get(name)
        if gates is None or gate not in gates or number is None:
            return False
        gates.discard(gate)
        if not gates:
            del self.shut[name]
            # Its last gate, and not before: the engine knows one hold, however many rules are behind it.
            if state.phase_of(number) is Phase.PENDING:
                state.release(number)
        return True

    def _shut(self, state: State, name: str, gate: str) -> bool:
        gates = self.shut.setdefault(name, set())
        if gate in gates:
            return False
        gates.add(gate)
        state.hold(state.number_by_name[name])
        return True


def _rank(gang: Gang, number: int) -> tuple[int, int, int]:
    return -gang.priority, gang.submit_us, number


def _any(each: Iterable[bool]) -> bool:
    """Whether any is true; all of them are done before."""
    return any(list(each))
