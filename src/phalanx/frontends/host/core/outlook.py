"""Looks ahead for the daemon: how long jobs are thought to run, low, middling and high, and how far a look goes.

What the engine believes of run times stays as it is; how long gangs really run is a guess and comes from the caller.
Runs beside the loop, on a copy that nobody else has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from phalanx.control.belief import RunTimes
from phalanx.control.forward import Happens
from phalanx.control.look_ahead import Budget, Outlook, Until, look_ahead
from phalanx.control.state import State
from phalanx.engine.policy import Policy

Triple = tuple[int, int, int]  # low, middle and high, in microseconds

LOW: Final = 0
MIDDLE: Final = 1
HIGH: Final = 2

#: Starts that are looked for: a list of more is read by nobody.
STARTS_MOST: Final = 400
HORIZON_US: Final = 60 * 86_400_000_000


@dataclass(slots=True)
class Lengths:
    """How long gangs run, by number, and how somebody came to think so."""

    whole: dict[int, Triple] = field(default_factory=dict)  # of waiting gangs, at their largest size
    left: dict[int, Triple] = field(default_factory=dict)  # of running gangs, from now, at their present size
    source: dict[int, str] = field(default_factory=dict)  # stated, progress, runs, person or nothing

    def same(self, which: int, other: int) -> bool:
        """Whether two of low, middle and high are the same for everybody."""
        tables = (self.whole, self.left)
        return all(triple[which] == triple[other] for table in tables for triple in table.values())

    def pick(self, which: int) -> RunTimes:
        """One of low, middle and high for everybody."""
        whole, left = ({number: triple[which] for number, triple in table.items()} for table in (self.whole, self.left))
        return RunTimes(whole, left)


def look(
    state: State,
    policy: Policy,
    runs: RunTimes,
    budget: Budget,
    *,
    wanted: Collection[int] | None = None,
    events: Sequence[Happens] = (),
) -> Outlook:
    """Play a copy forward until the wanted have started; None: as many as there is time for."""
    until = Until(at_us=state.now_us + HORIZON_US, started=wanted, starts=STARTS_MOST, spent=budget)
    return look_ahead(state, policy, runs, until, events=events)
