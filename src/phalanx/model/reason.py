"""Why a gang does not run, as data.

A closed set of codes with two numbers each. The plan carries a column of codes; sentences are
made in `control.explain`. The order of the members is the order of precedence: of several
blockers the earliest is the dominant one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


# IntEnum, so that a column of int8 can hold codes and compare with them.
class Code(IntEnum):
    """Reason codes in order of precedence."""

    # Plans carry these numbers in columns, and their order is the precedence of rule 15.
    NONE = 0
    INVALID_SPEC = 1
    INFEASIBLE = 2
    HELD = 3
    DEPENDENCY_WAITING = 4
    DEPENDENCY_FAILED = 5
    GANG_INCOMPLETE = 6
    QUEUE_LIMIT = 7
    USER_LIMIT = 8
    CAPACITY = 9
    FRAGMENTATION = 10
    TOPOLOGY = 11
    NODE_CONSTRAINT = 12
    BEHIND = 13
    RESERVED = 14
    MAINTENANCE = 15
    DEADLINE_UNREACHABLE = 16
    BACKOFF = 17
    SEARCH_BUDGET = 18
    NEIGHBOURS = 19

    @property
    def word(self) -> str:
        """The code as people read it: QueueLimit."""
        return "".join(part.capitalize() for part in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class Reason:
    """One blocker: what is needed, what there is, and of what."""

    code: Code  # members of a closed set: every front end can have a sentence for each
    needed: int = 0
    available: int = 0
    subject: str = ""  # the kind, level, queue, gang or window the numbers speak of
    eta_us: int | None = None  # expected start by the calendar, where there is one
