"""Cancels one after the other, as a loop in a shell makes them, beside ten thousand that wait."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.host import cancels_s, cpu_s, daemon, fill_mixed
from bench.measure import Measured

NAME = "cancels"
WHAT = "500 jobs cancelled one after the other, 10,000 of many sizes waiting"
JOBS, CANCELS = 10_000, 500


def run(*, quick: bool) -> Measured:
    """Wall time: whoever cancels waits for the disk, and should wait for nothing else."""
    jobs, count = (1_000, 50) if quick else (JOBS, CANCELS)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder, daemon(Path(folder) / "s") as (pid, path):
        fill_mixed(path, jobs)
        before = cpu_s(pid)
        took = cancels_s(path, jobs // 2, count)
        cpu = cpu_s(pid) - before
    note = f"{1000 * took / count:.1f} ms and {1000 * cpu / count:.1f} CPU-ms of the daemon each"
    return Measured(f"{took:.2f} s for {count}", "< 5 s for 500", took < 5 * count / CANCELS, note)
