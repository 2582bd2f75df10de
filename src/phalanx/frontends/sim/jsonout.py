"""Results as JSON, schema `phalanx.sim/1`: a list with one element per policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import Entry, GangResult, SimResult
from phalanx.model.plan import DateVerdict

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


# Fields are written in the order in which they stand. Structs of msgspec and no dicts: a log has a hundred thousand of
# them, they are made and written in two thirds of the time, and the collector of garbage need not look at them.


class _Entry(msgspec.Struct, gc=False):
    at_s: int | float | None
    event: str
    members: int
    placement: dict[str, int]
    held: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    cause: str | msgspec.UnsetType = msgspec.UNSET
    because: str | msgspec.UnsetType = msgspec.UNSET


class _Gang(msgspec.Struct, gc=False):
    name: str
    user: str
    state: str
    submit_s: int | float | None
    start_s: int | float | None
    end_s: int | float | None
    wait_s: int | float | None
    members: int
    placement: dict[str, int]
    reason: dict[str, str | int] | None
    history: list[_Entry]
    date: dict[str, bool | int | float | None] | msgspec.UnsetType = msgspec.UNSET


def _gang(gang: GangResult) -> _Gang:
    reason = gang.reason
    return _Gang(
        gang.name,
        gang.user,
        gang.state,
        _seconds(gang.submit_us),
        _seconds(gang.start_us),
        _seconds(gang.end_us),
        _seconds(gang.wait_us),
        gang.members,
        gang.placement,
        None if reason is None else dict(zip(_REASON_KEYS, reason, strict=True)),
        [_entry(entry) for entry in gang.history],
        msgspec.UNSET if gang.date is None else _date(gang.date),
    )


def _date(verdict: DateVerdict) -> dict[str, bool | int | float | None]:
    """Instants as everywhere: seconds on the clock of the run."""
    return {
        "promised": verdict.promised,
        "earliest_s": _seconds(verdict.earliest_us),
        "beside": verdict.beside,
    }


_REASON_KEYS: Final = ("code", "message", "needed", "available")


def _entry(entry: Entry) -> _Entry:
    held = msgspec.UNSET if entry.held is None else entry.held
    at_s = _seconds(entry.at_us)
    if entry.cause is None or entry.because is None:
        return _Entry(at_s, entry.event, entry.members, entry.placement, held)
    return _Entry(at_s, entry.event, entry.members, entry.placement, held, entry.cause, entry.because)


def _seconds(us: int | None) -> int | float | None:
    # As `metrics.seconds`; written out because a log has hundreds of thousands of times to print.
    if us is None:
        return None
    return us / SECOND_US if us % SECOND_US else us // SECOND_US
