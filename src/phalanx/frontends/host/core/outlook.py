"""Plays a copy of the logical cluster forward: who would start when, and what lets them.

The same engine and policy as the daemon's. What it believes of run times stays as it is; how long gangs really run
is a guess, low, middle or high, and comes from the caller. Pure but for a meter of processor time that ends a look
which takes too long; runs beside the loop, on a copy that nobody else has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from phalanx.control.belief import Belief, _Course
from phalanx.control.forward import Forward, Happens
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Bind, Plan, Seats

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


@dataclass(frozen=True, slots=True)
class StartCause:
    """What let somebody start: `end`, `shrink` or `leave` of a gang, or `time` alone."""

    what: str
    gang: int = -1


@dataclass(slots=True)
class Stay:
    """A gang on some devices for a while."""

    gang: int
    devices: tuple[int, ...]
    start_us: int
    end_us: int | None = None  # None: beyond what was looked at
    fresh: bool = False  # it does not run yet


@dataclass(slots=True)
class Seen:
    """What a look showed."""

    now_us: int
    starts: dict[int, tuple[int, StartCause]] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)
    whole: bool = True  # nothing was left out for lack of time


class Enough(Exception):  # noqa: N818 - no failure: the look has seen what it was asked for
    """Stop looking."""


class GuessedRuns(Belief):
    """How gangs would fare if they ran as long as guessed."""

    def __init__(self, state: State, lengths: Lengths, which: int) -> None:
        """`which`: LOW, MIDDLE or HIGH."""
        self._lengths, self._which = lengths, which
        super().__init__(state)

    def _read(self, number: int) -> _Course:
        course = super()._read(number)
        left = self._lengths.left.get(number)
        if left is None:
            return course
        gang = self._state.gangs[number]
        course.end_us = self._state.now_us + max(1, left[self._which])
        left_us = self._work(gang, course.end_us - self._state.now_us, course.members)
        course.unsaved_left_us = max(1, course.unsaved_left_us + left_us - course.left_us)
        course.left_us = left_us
        return course

    def _whole_us(self, number: int) -> int:
        whole = self._lengths.whole.get(number)
        return super()._whole_us(number) if whole is None else max(1, whole[self._which])


class Watcher:
    """Writes down who starts and what let them, until it has seen enough."""

    def __init__(
        self, state: State, wanted: Collection[int] | None, meter: Callable[[], float], budget_s: float
    ) -> None:
        """`wanted`: whoever must have started; None: as many as there is time for."""
        self.seen = Seen(state.now_us)
        self._state, self._wanted = state, None if wanted is None else set(wanted)
        self._meter, self._until_s = meter, meter() + budget_s
        self._freed: list[tuple[StartCause, IntArray]] = []  # at this instant, with the devices that it gave back
        self._at_us = -1
        self._open: dict[int, Stay] = {}
        self._held: dict[int, IntArray] = {}
        for number, record in enumerate(state.records):
            if record.phase.seated:
                self._sit(number, state.start_of(number), fresh=record.phase is not Phase.RUNNING)

    def on_submit(self, number: int, at_us: int) -> None:
        """Nobody comes: what is asked is what becomes of those who are here."""

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        number = bind.gang
        self._sit(number, at_us, fresh=True)
        if number not in self.seen.starts:
            self.seen.starts[number] = at_us, self._find_cause(number, at_us)
            if self._wanted is not None:
                self._wanted.discard(number)

    def on_change(self, number: int, at_us: int, event: str) -> None:
        """A gang has other seats."""
        before = self._held.get(number)
        self._leave(number, at_us)
        self._sit(number, at_us, fresh=False)
        if before is not None:
            given = np.maximum(before - self._held[number], 0)
            self._note_freed(StartCause("shrink", number), given, at_us)

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang ended, or gave everything back."""
        given = self._held.get(number)
        self._leave(number, at_us)
        if given is not None:
            self._note_freed(StartCause("leave" if how in ("evict", "yield") else "end", number), given, at_us)

    def on_capacity(self, at_us: int) -> None:
        """Machines do not come and go in a look ahead."""

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle is over: go on, or stop here."""
        if self._wanted is not None and not self._wanted:
            raise Enough
        if len(self.seen.starts) >= STARTS_MOST or self._meter() >= self._until_s:
            self.seen.whole = False
            raise Enough

    def _find_cause(self, number: int, at_us: int) -> StartCause:
        """Of all who gave something back just now, the one that gave most of what it sits on."""
        freed = self._freed if self._at_us == at_us else []
        if not freed:
            return StartCause("time")
        mine = self._held[number]
        return max(freed, key=lambda entry: int(np.minimum(entry[1], mine).sum()))[0]

    def _note_freed(self, cause: StartCause, given: IntArray, at_us: int) -> None:
        if at_us != self._at_us:
            self._freed, self._at_us = [], at_us
        self._freed.append((cause, given))

    def _sit(self, number: int, at_us: int, *, fresh: bool) -> None:
        held = sum_devices(self._state.records[number].seats, self._state.device_free.shape[1])
        stay = Stay(number, tuple(np.flatnonzero(held).tolist()), at_us, fresh=fresh)
        self._held[number], self._open[number] = held, stay
        self.seen.stays.append(stay)

    def _leave(self, number: int, at_us: int) -> None:
        stay = self._open.pop(number, None)
        self._held.pop(number, None)
        if stay is not None:
            stay.end_us = at_us


def sum_devices(seats: Sequence[Seats], slots: int) -> IntArray:
    """Thousandths of each device that some seats take, on all nodes together."""
    total = np.zeros(slots, dtype=np.int64)
    for each in seats:
        if len(each.nodes):
            total += each.devices.sum(axis=0)
    return total


@dataclass(frozen=True, slots=True)
class Bound:
    """When to stop looking."""

    meter: Callable[[], float]
    budget_s: float


def look(
    state: State,
    policy: Policy,
    lengths: Lengths,
    which: int,
    bound: Bound,
    *,
    wanted: Collection[int] | None = None,
    events: Sequence[Happens] = (),
) -> Seen:
    """Play a state forward that nobody else uses, until the wanted have started or a bound is reached."""
    guess = GuessedRuns(state, lengths, which)
    watcher = Watcher(state, wanted, bound.meter, bound.budget_s)
    forward = Forward(state, policy, guess, watcher)
    for end in guess.ends_now():
        forward.expect(end)
    # A word that nobody understands makes an instant of now: one pass, whatever else happens.
    first = Happens(state.now_us, "look")
    with suppress(Enough):
        forward.run((), [first, *events], state.now_us + HORIZON_US)
    return watcher.seen
