"""How long a gang runs: values that are equally likely and one that is told, from what is said and from earlier runs.

The one that is told never beats a stated time by a guess: whoever says 4h is expected to need 4h, unless it says itself
how far it is. That people are usually done earlier only spreads the values. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from phalanx.control.belief import RunTimes
from phalanx.control.forecasting.predictions import Predictions
from phalanx.engine.ends import OVERRUN_LEAST_US

#: The next run by the last: programs are changed between runs.
_AGAIN: Final = (0.75, 0.95, 1.0, 1.05, 1.35)
#: Of a run that says how far it is.
_BY_PROGRESS: Final = (0.85, 0.95, 1.0, 1.05, 1.2)
#: Of a run that has outlived what was said of it, by what is believed then: a minute, or a tenth of its age (rule 7).
_OVERDUE: Final = (0.1, 0.4, 1.0, 1.7, 3.5)
#: Of a run of which nobody said anything, by its age: it will last about as long again as it has lasted.
_BY_AGE: Final = (1 / 15, 1 / 4, 1.0, 4.0, 15.0)
_AGE_LEAST_US: Final = 30_000_000
#: Of a waiting job of which nobody said anything; the largest is the default walltime.
_NOTHING_US: Final = (60e6, 600e6, 3600e6)
#: And what is told of one.
UNSAID_US: Final = 3_600_000_000
#: A walltime that was predicted from runs that are forgotten by now.
_BY_GUESS: Final = (0.3, 0.6, 0.8, 1.0, 1.2)

#: So often in the time that one which is late is given, its neighbours are looked at again.
_LATE_LOOKS: Final = 10

#: As many values of each of two spreads are mixed.
_MIXED: Final = 10

#: Sources of a run time that are earlier runs of that name, not words. Other runs of a person say too little.
PREDICTED: Final = frozenset({"runs"})
#: Sources where nobody said anything of this very job.
UNSAID: Final = frozenset({"person", "nothing"})


@dataclass(frozen=True, slots=True)
class Spread:
    """A length of time in microseconds: the one that is told, and equally likely ones around it, ascending."""

    middle_us: int
    values_us: tuple[int, ...]

    def at(self, share: float) -> int:
        """The length that such a share of the values does not exceed; between two of them in a straight line."""
        # Each value stands for the middle of its share, so that the smallest is not certain to be exceeded.
        place = share * len(self.values_us) - 0.5
        low = min(max(int(place), 0), len(self.values_us) - 1)
        high = min(low + 1, len(self.values_us) - 1)
        part = min(max(place - low, 0.0), 1.0)
        return round(self.values_us[low] + (self.values_us[high] - self.values_us[low]) * part)


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of one gang."""

    user: str
    name: str
    stated_us: int | None  # by a person
    guess_us: int | None = None  # by the planner, from runs that may be forgotten by now
    progress_us: float | None = None  # of one that runs: what is left by its own word


@dataclass(slots=True)
class Lengths:
    """How long gangs run, by number, and how somebody came to think so."""

    whole: dict[int, Spread] = field(default_factory=dict)  # of waiting gangs, at their largest size
    left: dict[int, Spread] = field(default_factory=dict)  # of running gangs, from now, at their present size
    source: dict[int, str] = field(default_factory=dict)  # stated, overdue, progress, runs, person or nothing

    def good_for_us(self) -> int:
        """Until the first of those who run should have ended; of one that is late each moment says something new."""
        left = (
            each.middle_us // (_LATE_LOOKS if self.source.get(number) == "overdue" else 1)
            for number, each in self.left.items()
        )
        return min(left, default=1 << 61)

    def middle(self) -> RunTimes:
        """Everybody as they are told."""
        whole, left = (
            {number: spread.middle_us for number, spread in table.items()} for table in (self.whole, self.left)
        )
        return RunTimes(whole, left)


def measure_whole(told: Predictions, said: Said, default_us: int) -> tuple[str, Spread]:
    """How long a waiting gang runs, and how somebody came to think so."""
    runs = told.runs(said.user, said.name) if said.stated_us is None else None
    if runs:
        return "runs", _spread(_repeat(runs))
    if said.stated_us is not None:
        ratios = told.ratios(said.user)
        # What is told is never below what was stated, whatever this person's runs usually take.
        return "stated", _spread([said.stated_us * each for each in ratios], said.stated_us * max(1.0, median(ratios)))
    if said.guess_us is not None:
        # The runs are forgotten; what the planner made of them was meant to be long rather than short.
        return "runs", _spread([said.guess_us * each for each in _BY_GUESS])
    nothing = _spread([*_NOTHING_US, default_us], UNSAID_US)
    if spans := told.spans(said.user):
        # What somebody runs under other names is weak evidence: five jobs of a second say little of the sixth.
        return "person", _mix(_spread(_repeat(spans)), nothing)
    return "nothing", nothing


def measure_left(told: Predictions, said: Said, age_us: int, left_us: int) -> tuple[str, Spread]:
    """How long a running gang goes on; `left_us` is what the planner believes, at the size that it has."""
    if said.progress_us is not None:
        # Its own word goes before everything else: it alone has seen how far it is.
        return "progress", _spread([said.progress_us * each for each in _BY_PROGRESS])
    if said.stated_us is None and said.guess_us is None and not told.runs(said.user, said.name):
        by_age = _spread([max(age_us, _AGE_LEAST_US) * each for each in _BY_AGE])
        longer = [each - age_us for each in _repeat(told.spans(said.user)) if each > age_us]
        # The older it is the less others say of it; beside the last of them its age says more.
        return ("person", _mix(_spread(longer), by_age)) if longer else ("nothing", by_age)
    # What was stated is for its largest size; what the planner made of it is for the one that it has.
    here_us = age_us + left_us
    if said.stated_us is not None and here_us > said.stated_us > age_us:
        said = Said(said.user, said.name, here_us)
    source, whole = measure_whole(told, said, 0)
    return source, _left_of(whole, age_us)


def _left_of(whole: Spread, age_us: int) -> Spread:
    """What is left of a run, given that it has lasted so long; one that is older than anybody thought is overdue."""
    rest = [each - age_us for each in whole.values_us if each > age_us]
    if whole.middle_us > age_us and len(rest) > 1:
        return _spread(rest, whole.middle_us - age_us)
    # The few that were ever so late do not make its end certain: told at each look that it ends in a second, whoever
    # waits is told so for a minute.
    late_us = max(OVERRUN_LEAST_US, age_us // 10)
    late = _spread([late_us * each for each in _OVERDUE], late_us)
    return _spread(_mix(_spread(rest), late).values_us, late_us) if rest else late


def _mix(one: Spread, other: Spread) -> Spread:
    """As likely the one as the other."""
    # As many of each, however many values either has: else the one with more samples would count for more.
    shares = [(part + 0.5) / _MIXED for part in range(_MIXED)]
    return _spread([spread.at(share) for spread in (one, other) for share in shares])


def _repeat(runs_s: Iterable[float]) -> list[float]:
    """Lengths of the next run, from those of earlier ones in seconds."""
    return [each * 1e6 * factor for each in runs_s for factor in _AGAIN]


def _spread(values: Sequence[float], middle: float | None = None) -> Spread:
    # At least a microsecond: a run of no length would end before it has begun.
    ordered = tuple(max(1, round(each)) for each in sorted(values))
    return Spread(max(1, round(median(ordered) if middle is None else middle)), ordered)
