"""Ten thousand waiting jobs on one machine: `ps`, the daemon's memory, and its restart."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.host import batch_s, daemon, ps_s, restart_s, rss_mb
from bench.measure import Measured

NAME = "waiting"
WHAT = "10,000 waiting jobs: phalanx ps -a / memory of the daemon / restart"
JOBS = 10_000


def run(*, quick: bool) -> Measured:
    """The daemon is given a moment after the batch: what is measured is a queue that stands, not one that fills."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        state = Path(folder) / "s"
        with daemon(state) as (pid, path):
            batch_s(path, JOBS)
            time.sleep(3)
            cpu, wall, rows = ps_s(state)
            rss = rss_mb(pid)
        again = restart_s(state)
    value = f"{wall:.2f} s / {rss:.0f} MB / {again:.1f} s"
    met = wall < 1 and rss < 200 and again < 5
    return Measured(value, "< 1 s / < 200 MB / < 5 s", met, f"{rows:,} lines, {cpu:.2f} CPU-s of ps itself")
