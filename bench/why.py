"""What one `why` costs the daemon while ten thousand wait."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.host import daemon, fill_mixed, why_s
from bench.measure import Measured, median

NAME = "why"
WHAT = "why of a waiting job, 10,000 of many sizes waiting: CPU time of the daemon"
JOBS, QUESTIONS = 10_000, 7


def run(*, quick: bool) -> Measured:
    """Of jobs all along the line; each is asked about once, so that no answer is one that was known."""
    jobs, questions = (1_500, 3) if quick else (JOBS, QUESTIONS)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder, daemon(Path(folder) / "s") as (pid, path):
        fill_mixed(path, jobs)
        took = [why_s(path, pid, 2 + at * (jobs - 2) // questions + 20) for at in range(questions)]
    value = f"{median(took):.2f} s, worst {max(took):.2f} s"
    return Measured(value, "< 0.5 s", median(took) < 0.5, f"{questions} jobs, evenly along the line")
