"""The numbers over a run. Sums are integers until the last division, so they are the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import COMPLETED, DEADLOCKED, RUNNING, GangResult
from phalanx.model.resources import MILLI

#: Parts of the ledger in the order they are printed; all but the first sum to the first.
LEDGER_PARTS: Final = (
    *("capacity", "productive", "startup", "snapshot", "restore", "resize", "lost"),
    *("idle_allocated", "reserved_idle", "fragmented", "free", "down"),
)

#: Time in which a device does something for its gang, useful or not.
_BUSY_PARTS: Final = ("productive", "startup", "snapshot", "restore", "resize", "lost")

#: A job shorter than this counts as this long, or a second's wait of a one-second job would rule the mean.
_SHORT_US: Final = 10 * SECOND_US


def find_horizon(gangs: Sequence[GangResult], until_us: int | None) -> tuple[int, int]:
    """From the first submit to the last end; to `until`, if somebody still holds places then.

    An attempt that was lost or evicted has ended too, though its gang has not.
    """
    first = min((gang.submit_us for gang in gangs), default=0)
    last = max((at for gang in gangs if (at := _last_us(gang)) is not None), default=first)
    if until_us is None:
        return first, max(first, last)
    if any(gang.state in (RUNNING, DEADLOCKED) or _holds(gang) for gang in gangs):
        last = until_us
    return first, max(first, min(last, until_us))


def _last_us(gang: GangResult) -> int | None:
    """When it ended, or was last seen."""
    if gang.end_us is None and gang.history:
        return gang.history[-1].at_us
    return gang.end_us


def _holds(gang: GangResult) -> bool:
    """Whether a gang that was degraded still keeps seats."""
    return gang.end_us is None and bool(gang.history) and gang.history[-1].held is not None


def compute_metrics(
    gangs: Sequence[GangResult],
    ledger: Mapping[str, int],
    counts: Mapping[str, int],
    horizon: tuple[int, int] | None = None,
) -> dict[str, object]:
    """All metrics of one run. `ledger` is in µs × milli-GPU by part; `counts` has preemptions, resizes and the like."""
    first, last = find_horizon(gangs, None) if horizon is None else horizon
    capacity = ledger.get("capacity", 0)
    done = [gang for gang in gangs if gang.state == COMPLETED and gang.end_us is not None]
    slowdowns = [_bounded_slowdown(gang) for gang in done]
    found: dict[str, object] = {
        "makespan_s": seconds(last - first),
        "utilization": _ratio(sum(ledger.get(part, 0) for part in _BUSY_PARTS), capacity),
        "goodput": _ratio(ledger.get("productive", 0), capacity),
        **_waits(gangs),
        "bounded_slowdown_mean": _mean(slowdowns),
        "completion_s_mean": _ratio(sum(_span_us(gang) for gang in done), len(done) * SECOND_US),
        "preemptions": 0,
        "resizes": 0,
        "lost_gpu_s": _gpu_seconds(ledger.get("lost", 0)),
        "deadlines_met": sum(_met_deadline(gang) for gang in done),
        "fairness_jain": _jain(done, slowdowns),
        "deadlocked": [gang.name for gang in gangs if gang.state == DEADLOCKED],
    }
    verdicts = [gang.date for gang in gangs if gang.date is not None]
    if verdicts:
        # Only where dates are promised: everywhere else there is nothing to keep.
        kept = (gang for gang in done if gang.date is not None and gang.date.promised)
        found["dates_promised"] = sum(verdict.promised for verdict in verdicts)
        found["dates_kept"] = sum(_met_deadline(gang) for gang in kept)
    found.update(counts)
    found["ledger_gpu_s"] = {part: _gpu_seconds(ledger.get(part, 0)) for part in LEDGER_PARTS}
    return found


def seconds(us: int) -> int | float:
    """Microseconds as seconds: a whole number where it is one."""
    whole, rest = divmod(us, SECOND_US)
    return us / SECOND_US if rest else whole


def _waits(gangs: Sequence[GangResult]) -> dict[str, int | float]:
    """Mean, 95th percentile by nearest rank, and worst; of the gangs that started."""
    waits = sorted(wait for gang in gangs if (wait := gang.wait_us) is not None)
    if not waits:
        return {"wait_s_mean": 0, "wait_s_p95": 0, "wait_s_max": 0}
    rank = -(-95 * len(waits) // 100)
    return {
        "wait_s_mean": _ratio(sum(waits), len(waits) * SECOND_US),
        "wait_s_p95": seconds(waits[rank - 1]),
        "wait_s_max": seconds(waits[-1]),
    }


def _span_us(gang: GangResult) -> int:
    return (gang.end_us or 0) - gang.submit_us


def _bounded_slowdown(gang: GangResult) -> float:
    return max(1.0, _span_us(gang) / max(gang.duration_us, _SHORT_US))


def _met_deadline(gang: GangResult) -> bool:
    return gang.deadline_us is not None and _span_us(gang) <= gang.deadline_us


def _jain(done: Sequence[GangResult], slowdowns: Sequence[float]) -> float:
    """Jain's index over the users' mean slowdown: 1 when all are served alike, 1/n when one gets everything."""
    by_user: dict[str, list[float]] = {}
    for gang, slowdown in zip(done, slowdowns, strict=True):
        by_user.setdefault(gang.user, []).append(slowdown)
    means = [_mean(values) for values in by_user.values()]
    if not means:
        return 1.0
    return math.fsum(means) ** 2 / (len(means) * math.fsum(mean * mean for mean in means))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _ratio(part: int, whole: int) -> int | float:
    if not whole:
        return 0
    return part // whole if part % whole == 0 else part / whole


def _gpu_seconds(units: int) -> int | float:
    return _ratio(units, SECOND_US * MILLI)
