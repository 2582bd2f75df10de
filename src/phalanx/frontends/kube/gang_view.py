"""A gang as Kubernetes shows it now: the one model that all dialects are translated into.

Everything here is derived from objects, nothing is remembered: whoever deletes and makes anew a group, a pod or a
minimum gets the gang that is described now. Whether it is to start, and where, is for the engine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from phalanx.frontends.kube.constraints import PodShape
from phalanx.frontends.kube.remarks import Remark, blocks
from phalanx.frontends.kube.topology_wishes import TopologyWish


class Dialect(Enum):
    """In whose words a gang is described."""

    NATIVE = "native"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    VOLCANO = "volcano"
    KOORDINATOR = "koordinator"
    PLAIN = "plain"

    __hash__ = object.__hash__  # members are singletons


@dataclass(frozen=True, slots=True)
class GangKey:
    """Which gang. The dialect is part of it: a pod and a group, or groups of two dialects, may have one name."""

    dialect: Dialect
    namespace: str
    name: str

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.namespace}/{self.name}"

    @property
    def unique(self) -> str:
        """As the engine's name of it."""
        return f"{self.dialect.value}:{self.namespace}/{self.name}"


class MemberPhase(Enum):
    """How a pod counts."""

    WAITING = "waiting"  # wants a seat, and may have one
    HELD = "held"  # wants a seat and may not have one: gated, or something about it is refused
    SEATED = "seated"  # has a node
    LEAVING = "leaving"  # is being deleted, and keeps its seat until it is gone
    GONE = "gone"  # is being deleted and never had a seat
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    __hash__ = object.__hash__  # members are singletons


class MatchPolicy(Enum):
    """Which members count towards the minimum."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"

    __hash__ = object.__hash__  # members are singletons


class Disruption(Enum):
    """Whether members may be evicted one by one."""

    SINGLE = "single"
    ALL = "all"

    __hash__ = object.__hash__  # members are singletons


@dataclass(frozen=True, slots=True)
class PodMember:
    """One pod of a gang."""

    name: str
    uid: str
    resource_version: str
    phase: MemberPhase
    task: str = ""  # the word by which its dialect tells kinds of members apart
    node: str = ""
    index: int = -1  # its rank as somebody stated it
    created: str = ""
    running: bool = False
    shape: PodShape | None = None  # None: its amounts cannot be read
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class PodRole:
    """Waiting members of one task and one shape, in rank order."""

    name: str
    shape: PodShape
    members: tuple[PodMember, ...]
    members_min: int  # how many of them have to start for the gang to start


@dataclass(frozen=True, slots=True)
class Statement:
    """What is said of a gang as a whole, by its object or its pods; a dialect makes it."""

    members_min: int = 1
    task_minimums: tuple[tuple[str, int], ...] = ()  # by task, sorted; empty where they do not bind
    members_total: int = 0  # not judged until so many exist
    together: tuple[GangKey, ...] = ()  # sorted, itself among them; empty: alone
    strict: bool = True
    match: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING
    satisfied: bool = False  # it is on record that it was whole once
    priority: int | None = None  # None: that of its pods
    priority_decides: bool = False  # pods of another priority are no contradiction
    preemption_policy: str | None = None
    queue: str = ""
    topology: TopologyWish = field(default_factory=TopologyWish)
    disruption: Disruption = Disruption.SINGLE
    timeout_s: int | None = None  # told, not acted upon: nothing is held while it waits
    uid: str = ""  # of the group object: another one under the same name is another gang
    # Not compared: objects whose status is no subresource get another one from every word that is written back.
    generation: int = field(default=0, compare=False)
    created: str = ""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang, now."""

    key: GangKey
    said: Statement
    members: tuple[PodMember, ...]  # in rank order
    roles: tuple[PodRole, ...]  # of those that wait
    priority: int = 0
    preempts: bool = True  # whether it may take room from others
    scheduler: str = ""  # the one that its members name; empty without members
    kill_after_s: int | None = None  # no member runs longer
    remarks: tuple[Remark, ...] = ()  # about the gang as a whole

    def count(self, *phases: MemberPhase) -> int:
        """How many members are in one of these phases."""
        return sum(member.phase in phases for member in self.members)

    @property
    def satisfied(self) -> bool:
        """Whether it is known to have been whole once."""
        return self.said.satisfied or self.holding >= self.said.members_min

    @property
    def holding(self) -> int:
        """Members that count as being there: those with a seat, and those that are done."""
        return self.count(MemberPhase.SEATED, MemberPhase.SUCCEEDED)

    @property
    def outstanding(self) -> int:
        """How many of the waiting members have to start at one instant; 0: any of them may start by itself."""
        least = self.said.members_min
        if self.said.match is MatchPolicy.ONCE_SATISFIED and self.satisfied:
            return 0
        if self.said.match is MatchPolicy.ONLY_WAITING:
            # Members that are done will never wait again: without them the last ones could not be replaced.
            return max(0, least - self.count(MemberPhase.SUCCEEDED))
        return max(0, least - self.holding)

    @property
    def missing(self) -> int:
        """How many members have to come, or to be let go, before it can be judged."""
        short = self.outstanding - self.count(MemberPhase.WAITING)
        # Judged once all have come (strict), whatever the minimum; those that are done have come.
        absent = self.said.members_total - len(self.members) + self.count(MemberPhase.GONE)
        return max(0, short, self._task_shortage, absent if self.said.strict and not self.satisfied else 0)

    @property
    def _task_shortage(self) -> int:
        there = (MemberPhase.WAITING, MemberPhase.SEATED, MemberPhase.SUCCEEDED)
        counted = Counter(member.task for member in self.members if member.phase in there)
        return sum(max(0, minimum - counted[task]) for task, minimum in self.said.task_minimums)

    @property
    def regressed(self) -> bool:
        """Whether it was whole and is below its minimum now: it goes before equal newcomers."""
        return 0 < self.holding < self.said.members_min and self.said.satisfied

    @property
    def partial(self) -> bool:
        """Whether some members have seats although it never was whole: what a crash leaves behind."""
        return self.count(MemberPhase.SEATED) > 0 and self.holding < self.said.members_min and not self.said.satisfied

    @property
    def anchors(self) -> tuple[str, ...]:
        """Nodes of members that have seats: a replacement belongs into the same domain."""
        held = (MemberPhase.SEATED, MemberPhase.LEAVING)
        return tuple(dict.fromkeys(member.node for member in self.members if member.phase in held))

    @property
    def blockers(self) -> tuple[Remark, ...]:
        """What keeps it from starting, gravest first; of single members only if it cannot do without them."""
        found = self.remarks
        if self.missing:
            found += tuple(
                remark for member in self.members if member.phase is MemberPhase.HELD for remark in member.remarks
            )
        return tuple(dict.fromkeys(blocks(found)))

    @property
    def startable(self) -> bool:
        """Whether the engine may be asked about it."""
        return not self.blockers and not self.missing and bool(self.roles)
