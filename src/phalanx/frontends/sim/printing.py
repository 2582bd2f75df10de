"""Results as tables for people. Values only: who prints them, and with what colours, is the caller's affair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import COMPLETED, GangResult, SimResult
from phalanx.frontends.sim.text_gantt import ROWS_MAX, span

_NODES_SHOWN_MAX: Final = 4
_REASONS_SHOWN_MAX: Final = 20
_MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of texts. Columns from `right_from` on are numbers and are set flush right."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right_from: int = 1


def gang_sheet(result: SimResult) -> Sheet | None:
    """One row per gang, or nothing if there are more than anybody reads."""
    if len(result.gangs) > ROWS_MAX:
        return None
    headers = ("gang", "state", "nodes", "members", "submit", "start", "end", "wait")
    return Sheet(f"policy {result.policy}", headers, tuple(_gang_row(gang) for gang in result.gangs), right_from=3)


def reason_lines(result: SimResult) -> list[str]:
    """Why gangs did not run, one line each; many alike are counted."""
    told = [gang for gang in result.gangs if gang.reason is not None and gang.state != COMPLETED]
    if len(told) > _REASONS_SHOWN_MAX:
        counts = Counter((gang.state, gang.reason[0]) for gang in told if gang.reason is not None)
        return [f"{count:,} gangs {state}: {code}" for (state, code), count in counts.most_common()]
    return [
        f"{gang.name} {gang.state}: {gang.reason[1]} ({gang.reason[0]})" for gang in told if gang.reason is not None
    ]


def comparison_sheet(results: Sequence[SimResult]) -> Sheet:
    """Metrics down, policies across."""
    rows = [("gangs completed", *(_completed(result) for result in results))]
    for label, key, show in _METRIC_ROWS:
        values = [result.metrics.get(key) for result in results]
        if any(value not in (None, 0, []) for value in values) or key in _ALWAYS:
            rows.append((label, *(show(value) for value in values)))
    ledgers = [result.metrics.get("ledger_gpu_s") for result in results]
    rows += _ledger_rows([ledger if isinstance(ledger, Mapping) else {} for ledger in ledgers])
    return Sheet("", ("", *(result.policy for result in results)), tuple(rows))


def _gang_row(gang: GangResult) -> tuple[str, ...]:
    return (
        gang.name,
        gang.state,
        _places(gang.placement),
        str(gang.members) if gang.members else "-",
        span(gang.submit_us),
        _moment(gang.start_us),
        _moment(gang.end_us),
        _moment(gang.wait_us),
    )


def _places(placement: Mapping[str, int]) -> str:
    shown = [f"{node}:{count}" for node, count in list(placement.items())[:_NODES_SHOWN_MAX]]
    more = len(placement) - len(shown)
    return " ".join([*shown, f"+{more} nodes"] if more else shown) or "-"


def _moment(us: int | None) -> str:
    return "-" if us is None else span(us)


def _completed(result: SimResult) -> str:
    done = sum(gang.state == COMPLETED for gang in result.gangs)
    return f"{done:,} of {len(result.gangs):,}"


def _seconds(value: object) -> str:
    """Rounded to what matters: hundredths below a minute, whole seconds above."""
    if not isinstance(value, (int, float)):
        return "-"
    return span(round(round(value * SECOND_US), -4 if value < _MINUTE_S else -6))


def _percent(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, (int, float)) else "-"


def _decimal(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, (int, float)) else "-"


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"


def _named(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else "-"


_METRIC_ROWS: Final[tuple[tuple[str, str, Callable[[object], str]], ...]] = (
    ("wait, mean", "wait_s_mean", _seconds),
    ("wait, 95th percentile", "wait_s_p95", _seconds),
    ("wait, longest", "wait_s_max", _seconds),
    ("bounded slowdown, mean", "bounded_slowdown_mean", _decimal),
    ("submit to end, mean", "completion_s_mean", _seconds),
    ("makespan", "makespan_s", _seconds),
    ("utilization", "utilization", _percent),
    ("goodput", "goodput", _percent),
    ("fairness (Jain)", "fairness_jain", _decimal),
    ("preemptions", "preemptions", _count),
    ("resizes", "resizes", _count),
    ("deadlines met", "deadlines_met", _count),
    ("deadlocked", "deadlocked", _named),
)
_ALWAYS: Final = frozenset({"wait_s_mean", "wait_s_max", "makespan_s", "utilization", "goodput"})

#: Parts of the ledger as people read them.
LEDGER_WORDS: Final[Mapping[str, str]] = {
    "productive": "productive",
    "startup": "starting up",
    "snapshot": "saving",
    "restore": "restoring",
    "resize": "resizing",
    "lost": "lost work",
    "idle_allocated": "held, not running",
    "reserved_idle": "idle, reserved",
    "fragmented": "idle, fragmented",
    "free": "idle, free",
    "down": "down",
}


def _ledger_rows(ledgers: Sequence[Mapping[str, object]]) -> list[tuple[str, ...]]:
    """Parts of the ledger that somebody spent time on, as shares of the capacity."""
    rows = []
    for part, words in LEDGER_WORDS.items():
        if part == "productive":
            continue  # the row above the ledger, goodput, is the same number
        shares = [_share(ledger.get(part), ledger.get("capacity")) for ledger in ledgers]
        if any(shares):
            rows.append((f"  {words}", *(_percent(share) for share in shares)))
    return rows


def _share(part: object, whole: object) -> float:
    if not isinstance(part, (int, float)) or not isinstance(whole, (int, float)) or not whole:
        return 0.0
    return part / whole
