"""What becomes of everybody: a state played forward by what is believed, up to a bound.

The one look-ahead. `what_if` plays two states and compares, a front end asks when a gang starts and what lets it, and
tries out what would help. Whoever asks brings a state that nobody else uses (a clone or a restored one): it is used up.
The same engine and policy decide as in the cluster; nobody fails, and nobody comes but whom the question names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from phalanx.control.belief import AS_STATED, Belief, RunTimes
from phalanx.control.forward import Arrival, Forward, Happens
from phalanx.control.gates import Gates
from phalanx.control.instructions import SeatChange
from phalanx.control.resizes import say_resize
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Bind, Plan, Seats

#: More devices than a node has. A number of our own and not the fleet's: that one grows when a larger node comes.
_DEVICES_MOST: Final = 1 << 20


# ---- the answer


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a gang, with its members afterwards."""

    at_us: int
    event: str  # bind grow shrink move lose repair restart evict yield complete fail cancel
    members: int
    # Of a gang whose size a plan changed, and not compared: two futures in which it goes to one size are alike in that.
    cause: str = field(default="", compare=False)
    because: str = field(default="", compare=False)


@dataclass(slots=True)
class Fate:
    """What becomes of one gang."""

    name: str
    was: str  # where it stood at first; "new" if it came with the change
    state: str = ""  # where it stands at last
    start_us: int | None = None  # of a gang that runs at first, the start of that attempt
    end_us: int | None = None
    members: int = 0  # the last that ran
    events: list[Change] = field(default_factory=list)
    reason: tuple[str, str] | None = None  # code and sentence, if it does not run and somebody asked why

    def count(self, *events: str) -> int:
        """How often one of these happened to it."""
        return sum(change.event in events for change in self.events)


@dataclass(frozen=True, slots=True)
class StartCause:
    """What let somebody start: `end`, `shrink` or `leave` of a gang, or `time` alone."""

    what: str
    gang: int = -1


@dataclass(slots=True, eq=False)
class Stay:
    """A gang on some devices for a while."""

    gang: int
    seats: tuple[Seats, ...]
    start_us: int
    end_us: int | None = None  # None: beyond what was looked at
    fresh: bool = False  # it does not run yet

    def list_devices(self) -> list[tuple[int, int]]:
        """Nodes, each with one of its devices."""
        return [divmod(place, _DEVICES_MOST) for place in _hold(self.seats).places.tolist()]


@dataclass(slots=True)
class Outlook:
    """What a look showed, under one policy, from now on."""

    policy: str
    now_us: int
    fates: dict[str, Fate] = field(default_factory=dict)  # in order of arrival
    starts: dict[int, tuple[int, StartCause]] = field(default_factory=dict)  # the first of each gang, in order of time
    stays: list[Stay] = field(default_factory=list)
    whole: bool = True  # nothing was left out for lack of time

    def happens_now(self) -> list[tuple[str, Change]]:
        """What is decided at once."""
        return [
            (fate.name, change) for fate in self.fates.values() for change in fate.events if change.at_us == self.now_us
        ]


# ---- the question


@dataclass(frozen=True, slots=True)
class Budget:
    """What a look may cost, by a meter of the caller's: nothing here reads a clock."""

    meter: Callable[[], float]
    most: float


@dataclass(frozen=True, slots=True)
class Until:
    """When to stop looking, whatever comes first; by itself a look ends when nothing happens any more."""

    at_us: int | None = None  # this instant is the last
    started: Collection[int] | None = None  # all of these gangs have started
    starts: int | None = None  # so many gangs have started
    spent: Budget | None = None


FOREVER: Final = Until()


def look_ahead(
    state: State,
    policy: Policy,
    runs: RunTimes = AS_STATED,
    until: Until = FOREVER,
    *,
    arrivals: Sequence[Arrival] = (),
    events: Sequence[Happens] = (),
    gates: Gates | None = None,
) -> Outlook:
    """Play a state forward that nobody else uses, `gates` among it."""
    # What is believed takes the place of the truth; the loop, the engine and the policy are those of the cluster, so
    # that an expected start can only be wrong by what was believed.
    belief = Belief(state, runs)
    chronicle = Chronicle(state, policy.name, until)
    forward = Forward(state, policy, belief, chronicle, gates=None if gates is None or gates.idle else gates)
    # A time to begin is an instant at which nothing else may happen.
    begins_us = () if gates is None else gates.begins_us.values()
    begins = [Happens(max(state.now_us, at_us), "begin") for at_us in begins_us]
    for end in belief.ends_now():
        # Ends of those who run are nobody's news: no instruction will bring them about.
        forward.expect(end)
    # A word that nobody understands makes an instant of now: one pass, whatever else happens.
    first = Happens(state.now_us, "look")
    with suppress(_SeenEnough):
        forward.run(arrivals, [first, *begins, *events], until.at_us)
    return chronicle.close()


# ---- writing it down


class _SeenEnough(Exception):  # noqa: N818 - no failure: the look has seen what it was asked for
    """Stop looking."""


class Chronicle:
    """Writes down what becomes of everybody, until it has seen enough."""

    def __init__(self, state: State, policy: str, until: Until) -> None:
        """Everybody as they stand now."""
        self._state, self._until = state, until
        self._outlook = Outlook(policy, state.now_us)
        self._wanted = None if until.started is None else set(until.started)
        # Read once at the beginning: what was spent before the look is not charged to it.
        self._spent_at = 0.0 if until.spent is None else until.spent.meter() + until.spent.most
        self._fates: dict[int, Fate] = {}  # by number: a name may pass to another version of a gang
        self._places = _Places(state, self._outlook.stays)
        for number, record in enumerate(state.records):
            # Known to dumps only because something points to them; nothing can become of them.
            if record.phase.ended:
                continue
            fate = self._fates[number] = Fate(record.gang.name, record.phase.value)
            if record.phase is Phase.RUNNING:
                fate.start_us = int(state.running.columns["start_us"][record.row])
                fate.members = int(state.running.columns["members"][record.row])
            if record.phase.seated:
                # A claim sits already, on seats that others are leaving: to whoever draws a picture it is yet to come.
                self._places.sit(number, state.start_of(number), fresh=record.phase is not Phase.RUNNING)

    def close(self) -> Outlook:
        """Where everybody stands at last."""
        for number, fate in self._fates.items():
            fate.state = self._state.records[number].phase.value
        # By name, the last version of a gang; numbers mean nothing outside this state.
        self._outlook.fates = {fate.name: fate for fate in self._fates.values()}
        return self._outlook

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        self._fates[number] = Fate(self._state.gangs[number].name, "new")

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        number, fate, starts = bind.gang, self._fates[bind.gang], self._outlook.starts
        # The first start, through evictions and restarts: that is what somebody waits for.
        fate.start_us = at_us if fate.start_us is None else fate.start_us
        self._note(fate, at_us, "bind", bind.members)
        self._places.sit(number, at_us, fresh=True)
        # What let it start the second time is a question nobody has asked.
        if number not in starts:
            starts[number] = at_us, self._places.find_cause(number, at_us)
            if self._wanted is not None:
                self._wanted.discard(number)

    def on_change(self, number: int, at_us: int, event: str, change: SeatChange | None = None) -> None:
        """A gang that holds seats changed."""
        fate, record = self._fates[number], self._state.records[number]
        if event in ("repair", "restart") and fate.start_us is None:
            fate.start_us = at_us  # it was degraded at first
        self._note(fate, at_us, event, int(self._state.running.columns["members"][record.row]), change)
        self._places.change(number, at_us)

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang ended, or gave all its seats back."""
        # Evicted or yielded is no end: it waits again.
        fate, over = self._fates[number], how in ("complete", "fail", "cancel")
        if over:
            fate.end_us = at_us
        self._note(fate, at_us, how, 0)
        self._places.leave(number, at_us, StartCause("end" if over else "leave", number))

    def on_capacity(self, at_us: int) -> None:
        """Nodes come and go; that is the question, not the answer."""

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle is over, and all that it started is known: go on, or stop here."""
        # `whole` stays true: everything that was asked for has been seen.
        if self._wanted is not None and not self._wanted:
            raise _SeenEnough
        most, spent = self._until.starts, self._until.spent
        enough = most is not None and len(self._outlook.starts) >= most
        # Asked at every plan and not at every event: a plan is what costs, and a plan half
        # noted would tell a start without its victims.
        if enough or (spent is not None and spent.meter() >= self._spent_at):
            self._outlook.whole = False
            raise _SeenEnough

    def _note(self, fate: Fate, at_us: int, event: str, members: int, change: SeatChange | None = None) -> None:
        why = ("", "") if change is None else (change.cause.value, say_resize(change, self._name_of))
        fate.events.append(Change(at_us, event, members, *why))
        # The last that ran: an end has none, and is not what people ask for.
        fate.members = members or fate.members

    def _name_of(self, number: int) -> str:
        return self._state.gangs[number].name


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Devices that somebody has, in columns: a gang may have thousands."""

    places: IntArray  # node and device of that node in one number, ascending
    milli: IntArray  # thousandths of each

    def at(self, places: IntArray) -> IntArray:
        """Thousandths at some places, nothing where nobody sits."""
        if not len(self.places):
            return np.zeros(len(places), dtype=np.int64)
        # Clipped, since one beyond the last place would be looked up outside; the comparison then finds it is another.
        index = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        return np.where(self.places[index] == places, self.milli[index], 0)


def _hold(seats: Sequence[Seats]) -> _Held:
    places, milli = [_NONE], [_NONE]
    for each in seats:
        rows, devices = np.nonzero(each.devices)
        # One number per device, so that two gangs are compared by a sorted search and not by a set of pairs.
        places.append(each.nodes[rows] * _DEVICES_MOST + devices)
        milli.append(each.devices[rows, devices].astype(np.int64))
    found, which = np.unique(np.concatenate(places), return_inverse=True)
    total = np.zeros(len(found), dtype=np.int64)
    np.add.at(total, which, np.concatenate(milli))  # roles may share a device
    return _Held(found, total)


_NONE: Final[IntArray] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Vacated:
    """What somebody gave back. Seats are values: which devices that were is counted when it matters, and once."""

    cause: StartCause
    before: tuple[Seats, ...]
    after: tuple[Seats, ...]

    @cached_property
    def given(self) -> _Held:
        """Devices that it had and has no more."""
        held = _hold(self.before)
        return _Held(held.places, np.maximum(held.milli - _hold(self.after).at(held.places), 0))

    def shares(self, held: _Held) -> int:
        """How much of it another one has now."""
        return int(np.minimum(self.given.milli, held.at(self.given.places)).sum())


class _Places:
    """Who sits where, and what was given back at this instant."""

    def __init__(self, state: State, stays: list[Stay]) -> None:
        """Nobody sits yet; `stays` is where they are written down."""
        self._state, self._stays = state, stays
        self._open: dict[int, Stay] = {}
        self._vacated: list[_Vacated] = []  # at `_vacated_us`
        self._vacated_us = -1

    def sit(self, number: int, at_us: int, *, fresh: bool) -> None:
        """A gang has the seats that the state says."""
        stay = self._open[number] = Stay(number, self._state.records[number].seats, at_us, fresh=fresh)
        self._stays.append(stay)

    def change(self, number: int, at_us: int) -> None:
        """A gang has other seats than before."""
        # Sat down anew before the old stay is closed: what it gave back is the difference of the two.
        before = self._open.get(number)
        self.sit(number, at_us, fresh=False)
        if before is not None:
            self._close(before, at_us, StartCause("shrink", number), self._open[number].seats)

    def leave(self, number: int, at_us: int, cause: StartCause) -> None:
        """A gang gives everything back, if it had anything."""
        stay = self._open.pop(number, None)
        if stay is not None:
            self._close(stay, at_us, cause, ())

    def find_cause(self, number: int, at_us: int) -> StartCause:
        """Of all who gave something back just now, the one that gave most of what this gang sits on."""
        # Nobody gave anything back at this instant: a window closed, a rest was over, or a claim's time came.
        if at_us != self._vacated_us:
            return StartCause("time")
        # Also where they share no device: a ceiling, or a node beside it, may be what came free.
        if len(self._vacated) == 1:
            return self._vacated[0].cause
        mine = _hold(self._open[number].seats)
        # Of equals the first that gave, as it happened.
        return max(self._vacated, key=lambda each: each.shares(mine)).cause

    def _close(self, stay: Stay, at_us: int, cause: StartCause, after: tuple[Seats, ...]) -> None:
        stay.end_us = at_us
        if at_us != self._vacated_us:
            self._vacated, self._vacated_us = [], at_us
        self._vacated.append(_Vacated(cause, stay.seats, after))
