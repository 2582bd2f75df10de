"""What a row of the table is, and how CPU time is taken."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: what came out, what was aimed at, and whether that was reached."""

    value: str
    target: str
    met: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be measured here, and what it would take: neither a number nor a failure."""

    why: str


class Disagreement(Exception):  # noqa: N818 - a finding, told by its own line
    """A fast path and its plain reference gave different answers."""


def cpu_times(work: Callable[[], object], repeat: int, warm_up: int = 1) -> list[float]:
    """CPU seconds of this process for each of `repeat` calls; wall time would count the neighbours' work."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeat):
        gc.collect()
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return times


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def nearest_rank(values: Sequence[float], percent: int) -> float:
    """The percentile that is one of the values: of few values the 99th is the worst."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def find_log(name: str) -> Path | Skipped:
    """A published log, or a folder of them, in PHALANX_TRACES, else in `shared/traces` beside the repository."""
    folder = Path(os.environ.get("PHALANX_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces")
    if (folder / name).exists():
        return folder / name
    return Skipped(f"needs the published log {name}: set PHALANX_TRACES to the folder that holds it")
