"""Philly's 82,247 jobs on 64 nodes of 8 GPUs, believing people's usual run times: completion by policy, and CPU."""

from __future__ import annotations

import csv
import gzip
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Measured, Skipped, find_log

NAME = "philly"
WHAT = "82,247 Philly jobs on 64x8, --estimate rounded: CPU-s under goodput; completion must fall from fcfs to goodput"
CPU_S_MOST = 60.0
POLICIES = ("fcfs", "easy", "goodput")
QUICK_JOBS = 6_000


def run(*, quick: bool) -> Measured | Skipped:
    """Mean completion of each policy beside the CPU time of the whole command under goodput."""
    log = find_log("philly/philly.csv.gz")
    if isinstance(log, Skipped):
        return log
    with tempfile.TemporaryDirectory() as folder:
        shown = cut(log, Path(folder) / "philly.csv") if quick else log
        found = {policy: simulate(shown, policy) for policy in POLICIES}
    means = [found[policy][1] for policy in POLICIES]
    falls = means[0] > means[1] > means[2]
    note = ", ".join(f"{policy} {mean / 3600:.1f} h ({cpu_s:.0f} CPU-s)" for policy, (cpu_s, mean) in found.items())
    cpu_s = found["goodput"][0]
    return Measured(
        f"{cpu_s:.1f} CPU-s", f"≤ {CPU_S_MOST:.0f} CPU-s", falls and cpu_s <= CPU_S_MOST, f"mean completion: {note}"
    )


def cut(log: Path, to: Path) -> Path:
    """The first so many jobs by submit time."""
    with gzip.open(log, "rt", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    with to.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([rows[0], *sorted(rows[1:])[:QUICK_JOBS]])
    return to


def simulate(log: Path, policy: str) -> tuple[float, float]:
    """CPU-seconds of the whole command, and the mean time from submit to end."""
    phalanx = Path(sys.executable).with_name("phalanx")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [phalanx, "sim", log, "--cluster", "64x8", "--policy", policy, "--estimate", "rounded", "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, float(json.loads(done.stdout)[0]["metrics"]["completion_s_mean"])
