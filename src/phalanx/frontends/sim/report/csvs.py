"""Every number of a report as CSV, with the digits that the JSON has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from phalanx.frontends.sim.report.facts import Pictures, ReportFacts
from phalanx.frontends.sim.report.gang_csv import write_rows


def make_tables(runs: Sequence[ReportFacts]) -> dict[str, str]:
    """All tables but that of the gangs, by file name."""
    drawn = [(facts, facts.pictures) for facts in runs if facts.pictures is not None]
    return {
        "metrics.csv": write_rows(_metric_rows(runs)),
        "over-time.csv": write_rows(_usage_rows(drawn)),
        "distributions.csv": write_rows(_curve_rows(drawn)),
        "queues.csv": write_rows(_queue_rows(drawn)),
        "queues-over-time.csv": write_rows(_queue_level_rows(drawn)),
        "users.csv": write_rows(_user_rows(drawn)),
        "longest-waits.csv": write_rows(_slow_rows(drawn)),
    }


_Drawn = Sequence[tuple[ReportFacts, Pictures]]


def _metric_rows(runs: Sequence[ReportFacts]) -> Iterable[Sequence[object]]:
    flat = [_flat(facts.metrics) for facts in runs]
    keys = list(dict.fromkeys(key for metrics in flat for key in metrics))
    yield ("policy", "seed", "gangs", "completed", *keys)
    for facts, metrics in zip(runs, flat, strict=True):
        yield (facts.policy, facts.seed, facts.gangs, facts.completed, *(metrics.get(key) for key in keys))


def _flat(metrics: Mapping[str, object]) -> dict[str, object]:
    """Parts of the ledger become columns of their own; a list is counted."""
    found: dict[str, object] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            found |= {f"{key}_{part}": number for part, number in value.items()}
        else:
            found[key] = len(value) if isinstance(value, list) else value
    return found


def _usage_rows(drawn: _Drawn) -> Iterable[Sequence[object]]:
    yield ("policy", "from_s", "to_s", "capacity", "busy", "productive")
    for facts, pictures in drawn:
        usage = pictures.usage
        bounds = zip(usage.at_s, usage.at_s[1:], strict=False)
        for (start, end), *levels in zip(bounds, usage.capacity, usage.busy, usage.productive, strict=True):
            yield (facts.policy, start, end, *levels)


def _curve_rows(drawn: _Drawn) -> Iterable[Sequence[object]]:
    yield ("policy", "what", "seconds", "share_of_gangs")
    for facts, pictures in drawn:
        for what, curve in (("wait", pictures.waits), ("completion", pictures.completions)):
            for x, y in zip(curve.x, curve.y, strict=True):
                yield (facts.policy, what, x, y)


_STANDING_COLUMNS: Final = ("gangs", "started", "completed", "device_s", "wait_s_mean", "bounded_slowdown_mean")


def _queue_rows(drawn: _Drawn) -> Iterable[Sequence[object]]:
    yield ("policy", "queue", *_STANDING_COLUMNS, "guarantee", "entitlement", "limit")
    for facts, pictures in drawn:
        for queue in pictures.queues:
            each = queue.standing
            yield (
                *(facts.policy, each.name, each.gangs, each.started, each.completed, each.device_s, each.wait_s_mean),
                *(each.slowdown_mean, queue.guarantee, queue.entitlement, queue.limit),
            )


def _queue_level_rows(drawn: _Drawn) -> Iterable[Sequence[object]]:
    yield ("policy", "queue", "from_s", "to_s", "held")
    for facts, pictures in drawn:
        bounds = list(zip(pictures.queue_at_s, pictures.queue_at_s[1:], strict=False))
        for queue in pictures.queues:
            for (start, end), level in zip(bounds, queue.levels, strict=True):
                yield (facts.policy, queue.standing.name, start, end, level)


def _user_rows(drawn: _Drawn) -> Iterable[Sequence[object]]:
    yield ("policy", "user", *_STANDING_COLUMNS)
    for facts, pictures in drawn:
        for each in pictures.users:
            yield (
                *(facts.policy, each.name, each.gangs, each.started, each.completed, each.device_s, each.wait_s_mean),
                each.slowdown_mean,
            )


def _slow_rows(drawn: _Drawn) -> Iterable[Sequence[object]]:
    yield ("policy", "gang", "user", "queue", "state", "submit_s", "wait_s", "started", "members", "needed", "unused",
           "code", "why")  # fmt: skip
    for facts, pictures in drawn:
        for slow in pictures.slowest:
            yield (facts.policy, slow.name, slow.user, slow.queue, slow.state, slow.submit_s, slow.wait_s,
                   str(slow.started).lower(), slow.members, slow.needed, slow.unused, slow.code, slow.why)  # fmt: skip
