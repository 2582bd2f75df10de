"""What elastic passes cost: generated logs of ever more jobs under `goodput`, half of them elastic."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Measured

NAME = "elastic-passes"
WHAT = "llm jobs on 32x8 at load 1.2, half elastic, 60 % preemptible: CPU-s of `phalanx sim --policy goodput` for 2,000"
JOBS, QUICK_JOBS = (500, 1_000, 2_000, 4_000, 8_000), (500, 1_000)
AIM_JOBS, CPU_S_MOST, EXPONENT_MOST = 2_000, 5.0, 1.2


def run(*, quick: bool) -> Measured:
    """CPU time of whole commands, and with which power of the number of jobs it grows."""
    with tempfile.TemporaryDirectory() as folder:
        found = {jobs: measure(Path(folder) / f"{jobs}.yaml", jobs) for jobs in (QUICK_JOBS if quick else JOBS)}
    last = max(found)
    first = AIM_JOBS if last > AIM_JOBS else min(found)
    exponent = math.log(found[last] / found[first]) / math.log(last / first)
    aim = min(AIM_JOBS, last)
    note = ", ".join(f"{jobs:,} {cpu_s:.1f}" for jobs, cpu_s in found.items())
    return Measured(
        f"{found[aim]:.1f} CPU-s",
        f"≤ {CPU_S_MOST:.0f} CPU-s",
        found[aim] <= CPU_S_MOST and exponent <= EXPONENT_MOST,
        f"by jobs: {note}; exponent {exponent:.2f} from {first:,} to {last:,} (≤ {EXPONENT_MOST})",
    )


def measure(log: Path, jobs: int) -> float:
    """CPU-seconds of the whole command."""
    phalanx = str(Path(sys.executable).with_name("phalanx"))
    kind = ["--model", "llm", "--cluster", "32x8", "--load", "1.2", "--elastic", "0.5", "--preemptible", "0.6"]
    subprocess.run([phalanx, "trace", "make", *kind, "--jobs", str(jobs), "-o", str(log)], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([phalanx, "sim", str(log), "--policy", "goodput", "--json"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
