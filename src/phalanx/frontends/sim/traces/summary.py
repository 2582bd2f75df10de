"""What a file of jobs holds, in numbers that people compare logs by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.printing import Sheet
from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.text_gantt import span
from phalanx.model.gang import Gang
from phalanx.model.resources import DEVICE_KIND, MILLI, SLOT_KIND

_PERCENTS: Final = (10, 50, 90, 99, 100)
_SIZES_SHOWN: Final = 12
_HOUR_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything in seconds; places are GPUs, or slots where the jobs ask for slots."""

    jobs: int
    dropped: int
    users: int
    queues: int
    first_submit_s: float
    span_s: float  # from the first submit to the last
    kind: str
    place_hours: float
    capacity: int  # places of the cluster, 0 if it is not known
    load: float | None  # places asked for over those there are, during the span
    elastic: int
    preemptible: int
    deadlines: int
    nodes: int
    events: int
    jobs_by_size: dict[int, int]
    means: dict[str, float]  # of size, run_s, walltime_s and gap_s
    percentiles: dict[str, list[float]]  # of the same, at 10, 50, 90, 99 and 100 %


def summarise(scenario: Scenario) -> Summary:
    """The numbers of one scenario."""
    gangs = scenario.gangs
    kind = DEVICE_KIND if any(_places(gang, DEVICE_KIND) for gang in gangs) else SLOT_KIND
    sizes = [_places(gang, kind) / MILLI for gang in gangs]
    runs = [truth.duration_us / SECOND_US for truth in scenario.true_runs]
    submits = sorted(gang.submit_us for gang in gangs)
    span_s = (submits[-1] - submits[0]) / SECOND_US
    place_s = sum(size * run for size, run in zip(sizes, runs, strict=True))
    columns = {
        "size": sizes,
        "run_s": runs,
        "walltime_s": [gang.walltime_us / SECOND_US for gang in gangs if gang.walltime_us is not None],
        "gap_s": [(later - earlier) / SECOND_US for earlier, later in pairwise(submits)],
    }
    capacity = sum(node.resources.get(kind, 0) for node in scenario.nodes) // MILLI
    return Summary(
        jobs=len(gangs),
        dropped=scenario.dropped,
        users=len({gang.user for gang in gangs if gang.user}),
        queues=len({gang.queue for gang in gangs}),
        first_submit_s=submits[0] / SECOND_US,
        span_s=span_s,
        kind=kind,
        place_hours=place_s / _HOUR_S,
        capacity=capacity,
        load=place_s / capacity / span_s if capacity and span_s else None,
        elastic=sum(gang.elastic for gang in gangs),
        preemptible=sum(gang.preemptible for gang in gangs),
        deadlines=sum(gang.deadline_us is not None for gang in gangs),
        nodes=len(scenario.nodes),
        events=len(scenario.events),
        jobs_by_size=dict(sorted(Counter(gang.members_max for gang in gangs).items())),
        means={name: fmean(values) for name, values in columns.items() if values},
        percentiles={name: _percentiles(values) for name, values in columns.items() if values},
    )


def summary_sheets(summary: Summary) -> list[Sheet]:
    """The numbers as tables for people."""
    facts = [
        ("left out", f"{summary.dropped:,}" if summary.dropped else ""),
        ("users", f"{summary.users:,}" if summary.users else ""),
        ("queues", f"{summary.queues:,}" if summary.queues > 1 else ""),
        ("from the first submit to the last", _span(summary.span_s)),
        (f"{summary.kind}-hours", f"{summary.place_hours:,.0f}"),
        ("cluster", f"{summary.nodes:,} nodes, {summary.capacity:,} {summary.kind}s" if summary.nodes else ""),
        ("load offered", f"{summary.load:.1%}" if summary.load is not None else ""),
        ("elastic", _part(summary.elastic, summary.jobs)),
        ("preemptible", _part(summary.preemptible, summary.jobs)),
        ("with a deadline", _part(summary.deadlines, summary.jobs)),
        ("events", f"{summary.events:,}" if summary.events else ""),
    ]
    heads = ("", "mean", *(f"{percent} %" for percent in _PERCENTS[:-1]), "most")
    shown: dict[str, tuple[str, Callable[[float], str]]] = {
        "size": (f"{summary.kind}s", lambda value: f"{value:.4g}"),
        "run_s": ("run time", _span),
        "walltime_s": ("walltime", _span),
        "gap_s": ("between submits", _span),
    }
    rows = [
        (title, show(summary.means[name]), *map(show, summary.percentiles[name]))
        for name, (title, show) in shown.items()
        if name in summary.means
    ]
    return [
        Sheet("", ("jobs", f"{summary.jobs:,}"), tuple((name, value) for name, value in facts if value)),
        Sheet("", heads, tuple(rows)),
        Sheet("", ("members", "jobs", "share"), _size_rows(summary), right_from=0),
    ]


def _size_rows(summary: Summary) -> tuple[tuple[str, ...], ...]:
    """The commonest sizes by themselves, in order; all others in one row."""
    common = Counter(summary.jobs_by_size).most_common(_SIZES_SHOWN)
    rows = [(str(size), f"{count:,}", f"{count / summary.jobs:.1%}") for size, count in sorted(common)]
    rest = summary.jobs - sum(count for _, count in common)
    if rest:
        others = len(summary.jobs_by_size) - len(common)
        rows.append((f"{others} others", f"{rest:,}", f"{rest / summary.jobs:.1%}"))
    return tuple(rows)


def _places(gang: Gang, kind: str) -> int:
    return sum(role.sizes.most * role.shape.amount(kind) for role in gang.roles)


def _percentiles(values: Sequence[float]) -> list[float]:
    """By nearest rank."""
    ordered = sorted(values)
    return [ordered[-(-percent * len(ordered) // 100) - 1] for percent in _PERCENTS]


def _part(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if count else ""


def _span(seconds: float) -> str:
    return span(round(seconds) * SECOND_US if seconds >= 1 else round(seconds * SECOND_US))
