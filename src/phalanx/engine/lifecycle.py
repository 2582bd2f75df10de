"""What may happen to a gang, as a table of (phase, event) to the next phase.

An ended gang never comes back; whatever is not in the table is a bug of ours.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Phase(Enum):
    """Where a gang stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    __hash__ = object.__hash__  # members are singletons; the inherited one hashes the name each time

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self in ENDED


ENDED: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})


class Happening(Enum):
    """What can happen to a gang."""

    BIND = "bind"
    LOSE = "lose"  # a node went from under it: it queues again with its age
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"

    __hash__ = object.__hash__  # as above


NEXT: Final = {
    (Phase.PENDING, Happening.BIND): Phase.RUNNING,
    (Phase.PENDING, Happening.CANCEL): Phase.CANCELLED,
    (Phase.PENDING, Happening.FAIL): Phase.FAILED,
    (Phase.RUNNING, Happening.LOSE): Phase.PENDING,
    (Phase.RUNNING, Happening.COMPLETE): Phase.COMPLETED,
    (Phase.RUNNING, Happening.FAIL): Phase.FAILED,
    (Phase.RUNNING, Happening.CANCEL): Phase.CANCELLED,
}


class ImpossibleTransition(Exception):  # noqa: N818 - names what happened
    """A gang was told something that cannot happen to it where it stands."""


def advance(phase: Phase, happening: Happening, story: str) -> Phase:
    """The next phase; `story` names the gang in the error."""
    found = NEXT.get((phase, happening))
    if found is None:
        raise ImpossibleTransition(f"{story} is {phase.value} and cannot {happening.value}")
    return found
