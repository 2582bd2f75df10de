"""The headline charts as one figure, described once and drawn by whoever can: `svg` by hand, `plot` by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from phalanx.frontends.sim.printing import LEDGER_WORDS
from phalanx.frontends.sim.report.cdf import Curve
from phalanx.frontends.sim.report.comparison import PARTS, by_policy, ledger_of, say_s
from phalanx.frontends.sim.report.facts import Pictures, ReportFacts
from phalanx.frontends.sim.report.page import Heading

#: As in page.css, for light paper.
SERIES: Final = ("#0072b2", "#d55e00", "#007f5f", "#b0508a", "#b07d00", "#3a9fd6", "#6b4fa0", "#444c55")
DASHES: Final = ((), (7, 3), (2, 3), (9, 3, 2, 3), (5, 2), (1, 2), (12, 4), (3, 1))
PART_COLOURS: Final = {
    "productive": "#0072b2",
    "startup": "#8fc3e8",
    "snapshot": "#f7d774",
    "restore": "#e69f00",
    "resize": "#b87700",
    "lost": "#c8401a",
    "idle_allocated": "#8a4f9e",
    "reserved_idle": "#cc79a7",
    "fragmented": "#e8bfd6",
    "free": "#e3e6ea",
    "down": "#4b535c",
}
OTHER_COLOUR: Final = "#9aa3ad"

_TIME_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800),
    *(432_000, 864_000, 1_728_000, 4_320_000, 8_640_000, 17_280_000, 43_200_000, 86_400_000, 432_000_000),
)
_TIME_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
_LOG_TICKS: Final = (
    *((1.0, "1s"), (10.0, "10s"), (60.0, "1m"), (600.0, "10m"), (3_600.0, "1h"), (36_000.0, "10h")),
    *((86_400.0, "1d"), (864_000.0, "10d"), (8_640_000.0, "100d")),
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One line of steps. `x` has one more than `y`: a level holds from one x to the next."""

    name: str
    x: list[float]
    y: list[float]
    colour: str
    dash: tuple[int, ...] = ()
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes; y is a share from 0 to 1."""

    title: str
    x_label: str
    y_label: str
    low: float
    high: float
    ticks: list[tuple[float, str]]
    traces: list[Trace]
    log: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One policy's ledger: (words, colour, share) from left to right."""

    label: str
    parts: list[tuple[str, str, float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """Bars on top, the curves over time below, distributions side by side at the foot."""

    title: str
    subtitle: str
    bars_title: str
    bars: list[Bar]
    parts: list[tuple[str, str]]  # words and colours of the parts that the bars have, in the order of the ledger
    over_time: list[Panel]
    shares: list[Panel] = field(default_factory=list)


def make_figure(heading: Heading, runs: Sequence[ReportFacts]) -> Figure:
    """What the figure shows."""
    drawn = [(facts, facts.pictures) for facts in runs if facts.pictures is not None]
    horizon = (min(facts.horizon_s[0] for facts in runs), max(facts.horizon_s[1] for facts in runs))
    bars = [_bar(policy, group) for policy, group in by_policy(runs).items()]
    seen = {(word, colour) for bar in bars for word, colour, _ in bar.parts}
    return Figure(
        title=heading.file,
        subtitle=f"{heading.cluster}; {heading.gangs} gangs; seed {heading.seeds}; phalanx {heading.version}",
        bars_title=f"Where {heading.unit} time went",
        bars=bars,
        parts=[part for part in _name_parts(runs) if part in seen],
        over_time=[_usage_panel(facts, pictures, horizon) for facts, pictures in drawn],
        shares=[
            _share_panel("Wait", drawn, lambda pictures: pictures.waits),
            _share_panel("Submit to end", drawn, lambda pictures: pictures.completions),
        ],
    )


def _name_parts(runs: Sequence[ReportFacts]) -> list[tuple[str, str]]:
    parts = dict.fromkeys((*PARTS, *ledger_of(runs)))
    return [(LEDGER_WORDS.get(part, part.replace("_", " ")), PART_COLOURS.get(part, OTHER_COLOUR)) for part in parts]


def _bar(policy: str, group: Sequence[ReportFacts]) -> Bar:
    ledger = ledger_of(group)
    total = math.fsum(ledger.values()) or 1.0
    named = zip(_name_parts(group), ledger.values(), strict=True)
    return Bar(policy, [(word, colour, value / total) for (word, colour), value in named if value > 0])


def _usage_panel(facts: ReportFacts, pictures: Pictures, horizon: tuple[float, float]) -> Panel:
    usage = pictures.usage
    busy, productive = (
        [level / most if most else 0.0 for level, most in zip(levels, usage.capacity, strict=True)]
        for levels in (usage.busy, usage.productive)
    )
    ticks, unit = find_time_ticks(*horizon, most=10)
    traces = [
        Trace("busy, not productive", usage.at_s, busy, PART_COLOURS["restore"], filled=True),
        Trace("productive (goodput)", usage.at_s, productive, PART_COLOURS["productive"], filled=True),
    ]
    return Panel(facts.policy, f"simulated time ({unit})", "of capacity", *horizon, ticks, traces)


def _share_panel(title: str, drawn: Sequence[tuple[ReportFacts, Pictures]], read: Callable[[Pictures], Curve]) -> Panel:
    curves = [(facts.policy, read(pictures)) for facts, pictures in drawn]
    values = [x for _, curve in curves for x in curve.x]
    high = max([10.0, *values])
    low = max(1.0, min([high / 10, *(x for x in values if x > 0)]))
    traces = []
    for index, (policy, curve) in enumerate(curves):
        x = [low, *(max(low, each) for each in curve.x), high]
        colour, dash = SERIES[index % len(SERIES)], DASHES[index % len(DASHES)]
        traces.append(Trace(policy, x, [0.0, *curve.y], colour, dash))
    ticks = [tick for tick in _LOG_TICKS if low <= tick[0] <= high]
    if any(x < low for x in values) and (not ticks or math.log10(ticks[0][0] / low) > math.log10(high / low) / 12):
        ticks.insert(0, (low, f"≤{say_s(low)}"))  # those at the very edge may be less, or nothing at all
    return Panel(title, "at most so long (log scale)", "share of gangs", low, high, ticks, traces, log=True)


def find_time_ticks(low: float, high: float, most: int) -> tuple[list[tuple[float, str]], str]:
    """Round instants with their words, and the unit in which these are plain numbers."""
    length = high - low
    if length <= 0:
        return [(low, f"{low:g}")], "seconds"
    if length < most:
        step: float = 10.0 ** math.floor(math.log10(length / most))
        while length / step > most:
            step *= 2
    else:
        step = next((each for each in _TIME_STEPS_S if length / each <= most), length)
    unit, size = next(((unit, size) for unit, size in _TIME_UNITS if step >= size), _TIME_UNITS[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(index * step, f"{index * step / size:,.12g}") for index in range(first, last + 1)], unit
