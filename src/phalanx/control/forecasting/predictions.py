"""How long jobs run, from how long earlier ones ran.

Only runs that completed are remembered: what crashed at once or was cancelled says nothing of how long the next one
takes. Two questions. The planner asks for one walltime of a job that states none: rather too long than too short, since
others are promised what comes after it. The forecast asks for samples, and makes spreads of them (`lengths`).
Pure: nothing is read and no clock is asked.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from typing import Final, TypeVar

#: Runs of one name that are remembered; what ran before them was another program.
RUNS_MOST: Final = 10
#: Fewer runs of a name say nothing.
RUNS_LEAST: Final = 2
#: Fewer ended jobs say nothing of a person.
SAMPLES_LEAST: Final = 5
SAMPLES_MOST: Final = 40
#: Names and people that are remembered: whoever ended a job last stays.
NAMES_MOST: Final = 20_000
#: The planner believes so much more than the longest usual run.
MARGIN: Final = 1.2
#: Run time by stated time of somebody of whom nothing is known. It stays among what is learned, so that ten runs of one
#: length do not make the eleventh certain.
ANYBODY: Final = (0.1, 0.4, 0.8, 1.0, 1.02, 1.15)
#: Against slips such as --time 1s of a job that runs for days.
_RATIO_MOST: Final = 100.0

Key = TypeVar("Key", bound=Hashable)


class Predictions:
    """What is remembered of completed jobs."""

    def __init__(self) -> None:
        """Nobody has run anything."""
        self._runs: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._ratios: OrderedDict[str, deque[float]] = OrderedDict()
        self._spans: OrderedDict[str, deque[float]] = OrderedDict()
        self._all_ratios: deque[float] = deque(maxlen=SAMPLES_MOST)
        self._all_spans: deque[float] = deque(maxlen=SAMPLES_MOST)

    # ------------------------------------------------------------------ what happened

    def note(self, user: str, name: str, ran_s: float, walltime_s: float | None) -> None:
        """A job has completed."""
        # Of a clock that was set back between start and end: no length at all.
        if not math.isfinite(ran_s) or ran_s < 0:
            return
        _remember(self._runs, (user, name), ran_s, RUNS_MOST)
        _remember(self._spans, user, ran_s, SAMPLES_MOST)
        self._all_spans.append(ran_s)
        # Only where somebody stated a time does it say how people state times.
        if walltime_s is not None and walltime_s > 0:
            ratio = min(ran_s / walltime_s, _RATIO_MOST)
            _remember(self._ratios, user, ratio, SAMPLES_MOST)
            self._all_ratios.append(ratio)

    # ------------------------------------------------------------------ what to expect

    def walltime_us(self, user: str, name: str) -> int | None:
        """What the planner may believe of a job that states no time; None: nobody knows."""
        runs = self._runs.get((user, name))
        if runs is None or len(runs) < RUNS_LEAST:
            return None
        # Whole seconds upwards: a walltime shorter than the run promises too early a start to whoever comes after it.
        return max(1, math.ceil(_quantile(sorted(runs), 0.9) * MARGIN)) * 1_000_000

    def runs(self, user: str, name: str) -> tuple[float, ...]:
        """How many seconds runs of this name took; none if there were too few."""
        runs = self._runs.get((user, name), ())
        return tuple(runs) if len(runs) >= RUNS_LEAST else ()

    def ratios(self, user: str) -> tuple[float, ...]:
        """Run time by stated time, of this person, else of everybody; with those of anybody among them."""
        # Whoever has run too little states times as others here do, which says more than how people do in general.
        for samples in (self._ratios.get(user, ()), self._all_ratios):
            if len(samples) >= SAMPLES_LEAST:
                return *samples, *ANYBODY
        return ANYBODY

    def spans(self, user: str) -> tuple[float, ...]:
        """How many seconds jobs of this person take, whatever they are called; else of everybody; else none."""
        for samples in (self._spans.get(user, ()), self._all_spans):
            if len(samples) >= SAMPLES_LEAST:
                return tuple(samples)
        return ()


def _remember(table: OrderedDict[Key, deque[float]], key: Key, value: float, most: int) -> None:
    samples = table.get(key)
    if samples is None:
        samples = table[key] = deque(maxlen=most)
        if len(table) > NAMES_MOST:
            # The one that was touched longest ago: programs of last year are not run again.
            table.popitem(last=False)
    else:
        table.move_to_end(key)
    samples.append(value)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest sample that so large a share of them does not exceed. Of few samples: one of them, not between."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
