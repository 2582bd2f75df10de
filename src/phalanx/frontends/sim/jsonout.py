"""Results as JSON, schema `phalanx.sim/1`: a list with one element per policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import Entry, GangResult, SimResult

SCHEMA: Final = "phalanx.sim/1"


def encode_results(results: Sequence[SimResult]) -> bytes:
    """The whole output, one line."""
    return msgspec.json.encode([_result(result) for result in results]) + b"\n"


def _result(result: SimResult) -> dict[str, object]:
    found: dict[str, object] = {
        "schema": SCHEMA,
        "policy": result.policy,
        "seed": result.seed,
        "gangs": [_gang(gang) for gang in result.gangs],
        "metrics": result.metrics,
    }
    if result.dropped:
        found["dropped"] = result.dropped
    return found


def _gang(gang: GangResult) -> dict[str, object]:
    reason = gang.reason
    return {
        "name": gang.name,
        "user": gang.user,
        "state": gang.state,
        "submit_s": _seconds(gang.submit_us),
        "start_s": _seconds(gang.start_us),
        "end_s": _seconds(gang.end_us),
        "wait_s": _seconds(gang.wait_us),
        "members": gang.members,
        "placement": gang.placement,
        "reason": None if reason is None else dict(zip(_REASON_KEYS, reason, strict=True)),
        "history": [_entry(entry) for entry in gang.history],
    }


_REASON_KEYS: Final = ("code", "message", "needed", "available")


def _entry(entry: Entry) -> dict[str, object]:
    found: dict[str, object] = {
        "at_s": _seconds(entry.at_us),
        "event": entry.event,
        "members": entry.members,
        "placement": entry.placement,
    }
    if entry.held is not None:
        found["held"] = entry.held
    return found


def _seconds(us: int | None) -> int | float | None:
    # As `metrics.seconds`; written out because a log has hundreds of thousands of times to print.
    if us is None:
        return None
    return us / SECOND_US if us % SECOND_US else us // SECOND_US
