"""The comparison as rows of words: several policies side by side, and means over seeds where there are several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from phalanx.frontends.sim.metrics import LEDGER_PARTS
from phalanx.frontends.sim.printing import LEDGER_WORDS, Sheet
from phalanx.frontends.sim.report.facts import ReportFacts

#: Parts of the ledger without their sum, in the order of the bars.
PARTS: Final = tuple(part for part in LEDGER_PARTS if part != "capacity")

_UNITS_S: Final = (("d", 86_400), ("h", 3_600), ("m", 60))
_HOUR_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Cell:
    """One number as it is read. `best` where no other in its row is better."""

    text: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class _Metric:
    label: str
    value: Callable[[ReportFacts], float | None]
    say: Callable[[float], str]
    better: int = 0  # 1: more is better, -1: less is, 0: it depends
    always: bool = True  # also where everybody has none


def say_s(seconds: float) -> str:
    """A length of time in its two largest units: 3d 4h, 12m 5s, 0.25s."""
    if seconds < 60:
        return f"{seconds:.3g}s" if seconds < 10 else f"{seconds:.1f}s".replace(".0s", "s")
    rest = round(seconds)
    if rest >= _UNITS_S[1][1]:
        rest = round(seconds / 60) * 60  # an hour and seconds would be two units with a hole between
    if rest >= _UNITS_S[0][1]:
        rest = round(seconds / 3_600) * 3_600
    parts = []
    for unit, size in (*_UNITS_S, ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def say_percent(share: float) -> str:
    """A share with one decimal."""
    return f"{100 * share:.1f} %"


def say_number(value: float) -> str:
    """Whole numbers with separators, others with what matters."""
    if abs(value - round(value)) < 1e-9:
        return f"{round(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def say_decimal(value: float) -> str:
    """Two decimals."""
    return f"{value:,.2f}"


def _metric(key: str, scale: float = 1.0) -> Callable[[ReportFacts], float | None]:
    def read(facts: ReportFacts) -> float | None:
        value = facts.metrics.get(key)
        return None if isinstance(value, bool) or not isinstance(value, (int, float)) else value / scale

    return read


def _metrics(unit: str) -> tuple[_Metric, ...]:
    """What is compared, in the order in which it is read."""
    return (
        _Metric("gangs completed", lambda facts: facts.completed, say_number, 1),
        _Metric("goodput", _metric("goodput"), say_percent, 1),
        _Metric("utilization", _metric("utilization"), say_percent, 1),
        _Metric("wait, mean", _metric("wait_s_mean"), say_s, -1),
        _Metric("wait, 95th percentile", _metric("wait_s_p95"), say_s, -1),
        _Metric("wait, longest", _metric("wait_s_max"), say_s, -1),
        _Metric("submit to end, mean", _metric("completion_s_mean"), say_s, -1),
        _Metric("bounded slowdown, mean", _metric("bounded_slowdown_mean"), say_decimal, -1),
        _Metric("makespan", _metric("makespan_s"), say_s, -1),
        _Metric("preemptions", _metric("preemptions"), say_number),
        _Metric("resizes", _metric("resizes"), say_number),
        _Metric(f"lost {unit}-hours", _metric("lost_gpu_s", _HOUR_S), say_number, -1),
        _Metric("deadlines met", _metric("deadlines_met"), say_number, 1, always=False),
        _Metric("fairness among users (Jain)", _metric("fairness_jain"), say_decimal, 1),
    )


#: Metrics that stand in the table, or are lists; others that a run may have are added as they are called.
_KNOWN: Final = frozenset(
    {"goodput", "utilization", "wait_s_mean", "wait_s_p95", "wait_s_max", "completion_s_mean", "makespan_s",
     "bounded_slowdown_mean", "preemptions", "resizes", "lost_gpu_s", "deadlines_met", "fairness_jain"}
)  # fmt: skip


def by_policy(runs: Sequence[ReportFacts]) -> dict[str, list[ReportFacts]]:
    """Runs of each policy, in the order in which they were asked for."""
    found: dict[str, list[ReportFacts]] = {}
    for facts in runs:
        found.setdefault(facts.policy, []).append(facts)
    return found


def compare(runs: Sequence[ReportFacts], unit: str) -> list[TableRow]:
    """Metrics down, policies across. With several seeds each is a mean with the standard deviation behind it."""
    groups = list(by_policy(runs).values())
    extra = [key for key in _other_keys(runs) if any(_metric(key)(facts) for facts in runs)]
    more = [_Metric(key.replace("_", " "), _metric(key), say_number) for key in extra]
    lines = []
    for metric in (*_metrics(unit), *more):
        values = [[metric.value(facts) for facts in group] for group in groups]
        if metric.always or any(value for each in values for value in each) or _has_deadlines(runs, metric):
            lines.append(_line(metric, values, runs))
    return lines


def _has_deadlines(runs: Sequence[ReportFacts], metric: _Metric) -> bool:
    return metric.label == "deadlines met" and any(facts.deadlines for facts in runs)


def _other_keys(runs: Sequence[ReportFacts]) -> list[str]:
    keys = dict.fromkeys(key for facts in runs for key in facts.metrics)
    return [key for key in keys if key not in _KNOWN]


def _line(metric: _Metric, values: Sequence[Sequence[float | None]], runs: Sequence[ReportFacts]) -> TableRow:
    means = [mean([value for value in each if value is not None]) for each in values]
    told = [None if value is None else metric.say(value) for value in means]
    goal = None
    known = [value for value in means if value is not None]
    if metric.better and len({text for text in told if text is not None}) > 1:
        goal = metric.say(max(known) if metric.better > 0 else min(known))
    cells = []
    for text, each in zip(told, values, strict=True):
        if text is None:
            cells.append(Cell("–"))
            continue
        wide = spread([value for value in each if value is not None])
        said = text + (f" ± {metric.say(wide)}" if wide else "")
        cells.append(Cell(_out_of(said, _total(metric, runs)), best=text == goal))
    return TableRow(metric.label, tuple(cells))


def _total(metric: _Metric, runs: Sequence[ReportFacts]) -> int:
    """How many there are in all, where that is part of the number."""
    if metric.label == "gangs completed":
        return runs[0].gangs
    return runs[0].deadlines if metric.label == "deadlines met" else 0


def _out_of(text: str, total: int) -> str:
    if not total:
        return text
    return f"all {text}" if text == f"{total:,}" else f"{text} of {total:,}"


def mean(values: Sequence[float]) -> float | None:
    """Nothing of nothing."""
    return math.fsum(values) / len(values) if values else None


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a sample; none of a single one."""
    if len(values) < 2:
        return 0.0
    middle = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def ledger_of(runs: Sequence[ReportFacts]) -> dict[str, float]:
    """Mean device-seconds by part over runs of one policy; parts that a later ledger adds are kept."""
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for facts in runs:
        ledger = facts.metrics.get("ledger_gpu_s")
        for part, value in (ledger if isinstance(ledger, Mapping) else {}).items():
            if part != "capacity":
                found.setdefault(part, []).append(float(value))
    return {part: mean(values) or 0.0 for part, values in found.items()}


def share_out(ledger: Mapping[str, float], of: int = 1000) -> dict[str, int]:
    """Parts in thousandths that sum to exactly a whole: the largest remainders are rounded up."""
    total = math.fsum(ledger.values())
    if not total:
        return dict.fromkeys(ledger, 0)
    exact = {part: of * value / total for part, value in ledger.items()}
    shares = {part: math.floor(value) for part, value in exact.items()}
    missing = of - sum(shares.values())
    for part in sorted(exact, key=lambda part: (shares[part] - exact[part], part))[:missing]:
        shares[part] += 1
    return shares


def ledger_lines(runs: Sequence[ReportFacts]) -> list[TableRow]:
    """Shares of the ledger, parts down, policies across; every column sums to 100.0 %."""
    ledgers = [ledger_of(group) for group in by_policy(runs).values()]
    shares = [share_out(ledger) for ledger in ledgers]
    parts = dict.fromkeys(part for ledger in ledgers for part in ledger)
    lines = []
    for part in parts:
        cells = [
            Cell(f"{share.get(part, 0) / 10:.1f} %" if ledger.get(part) else "–")
            for share, ledger in zip(shares, ledgers, strict=True)
        ]
        lines.append(TableRow(LEDGER_WORDS.get(part, part.replace("_", " ")), tuple(cells)))
    return lines


def seeds_sheet(runs: Sequence[ReportFacts], unit: str) -> Sheet:
    """The comparison for a terminal."""
    lines = [*compare(runs, unit), *(TableRow(f"  {line.label}", line.cells) for line in ledger_lines(runs))]
    rows = tuple((line.label, *(cell.text for cell in line.cells)) for line in lines)
    return Sheet("", ("", *by_policy(runs)), rows)
