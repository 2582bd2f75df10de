"""What may happen to a gang, as a table of (phase, event) to the next phase.

An ended gang never comes back; whatever is not in the table is a bug of ours. `control` advances gangs by it.
The way of a gang, less its bad ends (fail and cancel are possible from everywhere before the end):

    pending ──claim──► starting ──bind──► running ──complete──► completed
       ▲  └──────────────bind──────────────►│  ▲
       │                          be hurt ──┤  └── be repaired ──┐
       └──────────── lose ──────────────────┴───► degraded ──────┘
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Phase(Enum):
    """Where a gang stands."""

    PENDING = "pending"
    STARTING = "starting"  # has its seats, some of which are still being vacated
    RUNNING = "running"
    DEGRADED = "hurt"  # lost members, runs nothing, and holds what is left of its seats for a while
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    __hash__ = object.__hash__  # members are singletons; the inherited one hashes the name each time

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self in ENDED

    @property
    def seated(self) -> bool:
        """Whether it holds seats."""
        return self in _HOLDS_SEATS


ENDED: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})


class Happening(Enum):
    """What can happen to a gang."""

    CLAIM = "claim"  # it is given seats that others are about to leave
    BIND = "bind"
    LOSE = "lose"  # it gives everything back and queues again with its age
    DEGRADED = "be hurt"
    REPAIR = "be repaired"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"

    __hash__ = object.__hash__  # as above


_HOLDS_SEATS: Final = (Phase.STARTING, Phase.RUNNING, Phase.DEGRADED)

NEXT: Final = {
    (Phase.PENDING, Happening.CLAIM): Phase.STARTING,
    (Phase.PENDING, Happening.BIND): Phase.RUNNING,
    (Phase.STARTING, Happening.BIND): Phase.RUNNING,
    (Phase.RUNNING, Happening.DEGRADED): Phase.DEGRADED,
    (Phase.DEGRADED, Happening.DEGRADED): Phase.DEGRADED,
    (Phase.DEGRADED, Happening.REPAIR): Phase.RUNNING,
    **{(phase, Happening.LOSE): Phase.PENDING for phase in _HOLDS_SEATS},
    **{(phase, Happening.CANCEL): Phase.CANCELLED for phase in (Phase.PENDING, *_HOLDS_SEATS)},
    **{(phase, Happening.FAIL): Phase.FAILED for phase in (Phase.PENDING, *_HOLDS_SEATS)},
    # One that was evicted may turn out to have been done already when it was told to leave.
    **{(phase, Happening.COMPLETE): Phase.COMPLETED for phase in (Phase.PENDING, Phase.RUNNING)},
}


class ImpossibleTransition(Exception):  # noqa: N818 - names what happened
    """A gang was told something that cannot happen to it where it stands."""


def advance(phase: Phase, happening: Happening, story: str) -> Phase:
    """The next phase; `story` names the gang in the error."""
    found = NEXT.get((phase, happening))
    if found is None:
        raise ImpossibleTransition(f"{story} is {phase.value} and cannot {happening.value}")
    return found
