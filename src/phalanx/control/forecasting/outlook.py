"""When waiting gangs start, as far as can be foreseen: a time and a range around it that holds in four cases of five.

A state is played forward (`control.look_ahead`): once with everybody as they are told, which gives the time, and then
again and again with run times drawn from what is likely of each (`lengths`), which gives the range. Each gang is drawn
for itself: with everybody early at once, or late at once, a range says little of a start that waits for several.
What the engine believes of run times stays as it is. Runs beside the loop, on copies that nobody else has, and
knows nothing of a daemon, so that logs of the simulator are foreseen by the same code.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from phalanx.control.belief import RunTimes
from phalanx.control.clone import clone_state
from phalanx.control.forecasting.calibration import Calibration
from phalanx.control.forecasting.lengths import PREDICTED, Lengths, Spread
from phalanx.control.gates import Gates
from phalanx.control.look_ahead import Budget, Outlook, StartCause, Until, look_ahead
from phalanx.control.state import State
from phalanx.engine.policy import Policy

#: Starts that are looked for: a list of more is read by nobody.
STARTS_MOST: Final = 400
HORIZON_US: Final = 60 * 86_400_000_000
#: How often lengths are drawn, as far as there is time.
DRAWS: Final = 8
#: Fewer say nothing of a range.
DRAWS_LEAST: Final = 4
#: The part of all starts that a range is to hold.
HELD: Final = 0.8
#: A range is at least this part of the wait on either side.
SLACK: Final = 20

Meter = Callable[[], float]


@dataclass(slots=True)
class ForecastInput:
    """A copy of the cluster with everything that a look needs."""

    state: State
    lengths: Lengths
    gates: Gates = field(default_factory=Gates)
    kept: list[int] = field(default_factory=list)
    version: int = -1  # of the planner when it was copied
    keep: frozenset[int] = frozenset()
    seen: Outlook | None = None  # the middle look from here, if there was one


@dataclass(slots=True)
class Looks:
    """What was seen: with everybody as they are told, and with lengths as they were drawn."""

    middle: Outlook
    begins: Mapping[int, int] = field(default_factory=dict)  # those who asked not to start before an instant
    drawn: list[Outlook] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """An expected start with what lets it."""

    at_us: int
    low_us: int
    high_us: int
    cause: StartCause
    predicted: bool  # from earlier runs, since somebody stated no time


def look(
    state: State,
    policy: Policy,
    runs: RunTimes,
    budget: Budget,
    *,
    wanted: Collection[int] | None = None,
    gates: Gates | None = None,
    until_us: int | None = None,
) -> Outlook:
    """Play a copy forward, its gates too, until the wanted have started; None: as many as there is time for."""
    at_us = state.now_us + HORIZON_US if until_us is None else until_us
    until = Until(at_us=at_us, started=wanted, starts=STARTS_MOST, spent=budget)
    return look_ahead(state, policy, runs, until, gates=gates)


def look_often(
    ground: ForecastInput, policy: Policy, wanted: Collection[int] | None, meter: Meter, budget_s: float
) -> Looks:
    """Look from this ground, which stays as it is: half of the time for what is told, the rest for the range."""
    budget, runs = Budget(meter, budget_s / 2), ground.lengths.middle()
    middle = look(clone_state(ground.state), policy, runs, budget, wanted=wanted, gates=ground.gates.clone())
    names = ground.state.number_by_name
    begins = {names[name]: at_us for name, at_us in ground.gates.begins_us.items()}
    looks, until_s = Looks(middle, begins), meter() + budget_s / 2
    if not middle.starts or all(at_us <= middle.now_us for at_us, _ in middle.starts.values()):
        return looks  # nobody has to wait for anybody: there is nothing to draw
    for runs in draw(ground.lengths, DRAWS):
        # As many as there is time for: fewer make a coarser range, and none leaves the wide one.
        left_s = until_s - meter()
        if left_s <= 0:
            break
        # A copy for each: a look uses up the state that it plays forward.
        state, budget = clone_state(ground.state), Budget(meter, left_s)
        gates = ground.gates.clone()
        looks.drawn.append(look(state, policy, runs, budget, wanted=middle.starts, gates=gates))
    return looks


def draw(lengths: Lengths, times: int) -> list[RunTimes]:
    """So many worlds: in each of them every gang has another part of what is likely of it."""
    # One table per world and not one draw per gang: what is drawn together is played together.
    whole: list[dict[int, int]] = [{} for _ in range(times)]
    left: list[dict[int, int]] = [{} for _ in range(times)]
    for tables, spreads in ((whole, lengths.whole), (left, lengths.left)):
        for number, spread in spreads.items():
            for table, us in zip(tables, _deal(number, spread, times), strict=True):
                table[number] = us
    return [RunTimes(*each) for each in zip(whole, left, strict=True)]


def _deal(number: int, spread: Spread, times: int) -> list[int]:
    """A length for each world, every part of the spread once; by number, so that a look can be repeated."""
    # In an order of its own: in that of all others, everybody would be early in the same worlds.
    places = list(range(times))
    Random(number).shuffle(places)
    return [spread.at((place + 0.5) / times) for place in places]


def tell(lengths: Lengths, looks: Looks, calibration: Calibration) -> dict[int, Foreseen]:
    """What the looks come to, by gang number."""
    found: dict[int, Foreseen] = {}
    for number, (at_us, cause) in looks.middle.starts.items():  # in order of time: whoever one waits for came before
        # A start that hangs on one which was itself only predicted is no surer than that one.
        before = found.get(cause.gang)
        predicted = lengths.source.get(cause.gang) in PREDICTED or (before is not None and before.predicted)
        drawn = sorted(seen.starts[number][0] for seen in looks.drawn if number in seen.starts)
        # What is unknown begins where it may start: of one that asked for half past six, half past six is known.
        from_us = max(looks.middle.now_us, min(at_us, looks.begins.get(number, 0)))
        low_us, high_us = hold(at_us, drawn) if len(drawn) >= DRAWS_LEAST else _wide(at_us, from_us)
        # No length is known to the second: a range of no width would be a promise.
        slack_us = (at_us - from_us) // SLACK
        low_us, high_us = min(low_us, at_us - slack_us), max(high_us, at_us + slack_us)
        found[number] = Foreseen(at_us, *calibration.stretch(from_us, at_us, low_us, high_us), cause, predicted)
    return found


def _wide(at_us: int, now_us: int) -> tuple[int, int]:
    """Where there was no time for a range."""
    # Half to twice the wait: nothing was drawn, so that the wait itself is the only measure there is.
    return now_us + (at_us - now_us) // 2, now_us + (at_us - now_us) * 2


def hold(at_us: int, drawn: Sequence[int]) -> tuple[int, int]:
    """A range of four in five of the starts that were drawn, with the one that is told inside.

    What is told may be at the edge of what is likely: people who say 4h are told as 4h, and are done in one. Then the
    range gives at its other end what it had to take at this one.
    """
    below, above = bisect_left(drawn, at_us) / len(drawn), bisect_right(drawn, at_us) / len(drawn)
    low = min((1 - HELD) / 2, below)
    high = max(1 - (1 - HELD) / 2, above)
    if low < (1 - HELD) / 2:
        high = min(high, max(low + HELD, above))
    elif high > 1 - (1 - HELD) / 2:
        low = max(low, min(high - HELD, below))
    spread = Spread(at_us, tuple(drawn))
    return min(at_us, spread.at(low)), max(at_us, spread.at(high))
