"""The promises, and what is said when one does not hold.

Findings are values and not exceptions: a test wants to see all of them, and a planted bug is recognised by its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Promise(StrEnum):
    """What was broken."""

    SUMS = "sums"  # incremental sums equal recomputed ones
    CAPACITY = "capacity"  # no node gives more than it has
    DEVICE = "device"  # no device is given twice; shares sit on one, whole requests on untouched ones
    WHOLE = "whole"  # a gang is whole or absent
    ONCE = "once"  # at most one live attempt; only what waits can start
    TOGETHER = "together"  # gangs of one word start together
    SERVICE = "service"  # nothing lands on a node that is down, cordoned or, except to be repaired, a spare
    ADMISSION = "admission"  # labels and taints admit every member
    WINDOW = "window"  # nothing overlaps an administrator's window, but for whoever was told that it has to leave
    REQUIRE = "require"  # every required domain holds
    SEGMENT = "segment"  # consecutive ranks stay together
    RANKS = "ranks"  # neighbours in rank are neighbours in the network
    LIMIT = "limit"  # no queue and nobody above a limit at admission
    GATED = "gated"  # held, waiting and incomplete gangs do not start
    INFEASIBLE = "infeasible"  # what can never run reserves nothing
    RESERVATION = "reservation"  # reservations are places that will be free, and not too many
    VACATED = "vacated"  # nobody sits down where somebody is still leaving; who starts there, starts when they are gone
    GUEST = "guest"  # who lives under a reservation can be made to leave, whole or with its surplus
    DEGRADED = "hurt"  # who lost members keeps its healthy seats, and is repaired whole or not at all
    SIZE = "size"  # sizes change only of elastic gangs, as people pinned them, and not again before the cool-down
    MOVE = "move"  # only preemptible gangs with snapshots move, at their size, for a reason
    EVICTION = "eviction"  # nobody is evicted who may not be, nor for somebody who does not start
    RIGHTS = "rights"  # who may take from whom: priorities, turns, what is on loan
    DATE = "date"  # a date is judged once, and then remembered
    NEIGHBOURS = "neighbours"  # whoever is seated keeps to the rules about others, its own and theirs
    REASON = "reason"  # whoever waits is told why, and nobody else
    GUARANTEE = "guarantee"  # taking leaves the victim's side its guarantee, and the taker within its own


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise and how it was broken."""

    code: Promise
    story: str


class InvariantError(Exception):
    """We are wrong: a promise does not hold."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        """Carry every finding; the message tells them all."""
        super().__init__("\n".join(f"{violation.code}: {violation.story}" for violation in violations))
        self.violations = tuple(violations)


def demand(violations: Sequence[Violation]) -> None:
    """Raise if anything was found."""
    if violations:
        raise InvariantError(violations)
