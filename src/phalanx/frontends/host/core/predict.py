"""What is on disk of earlier runs, for whoever foresees the next one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx.control.forecasting.predictions import Predictions
from phalanx.control.spec.errors import BadText
from phalanx.control.spec.quantity import duration_us
from phalanx.frontends.host.core.jobs import recall_spent
from phalanx.frontends.host.store import JobRecord


def recall_runs(told: Predictions, records: Iterable[JobRecord]) -> None:
    """Ended jobs from disk, the newest first, as the store lists them."""
    for record in reversed(list(records)):
        if record.state != "completed" or record.start_us is None or record.end_us is None:
            continue
        spent = recall_spent(record)
        if spent.attempts <= 1:  # of several it is the last that ended well
            ran_us = spent.ran_us if spent.attempts else record.end_us - record.start_us
            told.note(record.user, record.name, ran_us / 1e6, _stated_s(record.gang))


def _stated_s(gang: bytes) -> float | None:
    """The walltime as somebody wrote it: "2h", or seconds; none of an elastic job, whose size it does not say."""
    try:
        tree: Any = msgspec.json.decode(gang)
        rigid = isinstance(tree, dict) and not isinstance(tree.get("members"), dict)
        told = tree.get("walltime") if rigid else None
        return None if told is None else duration_us(told) / 1e6
    except (msgspec.DecodeError, BadText, ValueError):  # a damaged row says nothing
        return None
