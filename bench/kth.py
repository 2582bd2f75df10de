"""The whole command `phalanx sim` on a real log under EASY, every start checked."""

from __future__ import annotations

import csv
import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path

from bench.measure import Disagreement, Measured, Skipped, find_log

NAME = "kth"
WHAT = "simulate KTH-SP2 (28,481 jobs) under EASY, whole command, exact starts"
#: Jobs per CPU-second wanted on one node with 100 places, and on 100 nodes with one.
TARGETS = {"1x100": 8_000, "100x1": 6_000}


def run(*, quick: bool) -> Measured | Skipped:
    """Jobs per CPU-second on both clusters; the one that is furthest from what is wanted stands for the row."""
    folder = find_log("kth-sp2")
    if isinstance(folder, Skipped):
        return folder
    rates = {cluster: simulate(folder, cluster) for cluster in (list(TARGETS)[:1] if quick else TARGETS)}
    worst = min(rates, key=lambda cluster: rates[cluster] / TARGETS[cluster])
    note = ", ".join(f"{cluster} {rate:,.0f} of {TARGETS[cluster]:,} /s" for cluster, rate in rates.items())
    return Measured(f"{rates[worst]:,.0f} /s", f"≥ {TARGETS[worst]:,} /s", rates[worst] >= TARGETS[worst], note)


def simulate(folder: Path, cluster: str) -> float:
    """Run the command once; the answer is jobs per CPU-second of the child."""
    phalanx = Path(sys.executable).with_name("phalanx")
    log = folder / "KTH-SP2-filtered.swf.gz"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [phalanx, "sim", log, "--cluster", cluster, "--policy", "easy", "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    gangs = json.loads(done.stdout)[0]["gangs"]
    check_starts(folder, {gang["name"]: gang["start_s"] for gang in gangs})
    return len(gangs) / cpu_s


def check_starts(folder: Path, found: dict[str, float]) -> None:
    """Every start as the reference has it."""
    with gzip.open(folder / "oracle-starts.csv.gz", "rt", encoding="utf-8") as file:
        expected = {row["job_id"]: int(row["easy_one_pass_per_timestamp"]) for row in csv.DictReader(file)}
    wrong = [name for name, start in expected.items() if found.get(name) != start]
    if wrong or len(found) != len(expected):
        raise Disagreement(f"{len(wrong)} of {len(expected)} starts differ, first: {wrong[:3]}")
