"""The simulator against logs whose schedules are known start by start.

KTH-SP2 is eleven months of a 100-processor machine. Under FCFS four unrelated programs agree on
every start; under EASY with true run times the published schedule does; with user estimates the
reference takes one pass per instant, as we do. `SOURCE.md` beside the log says where each is from.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from selection import rest_long

from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import read_cluster
from phalanx.frontends.sim.traces.believed import Estimate
from phalanx.frontends.sim.traces.swf import read_swf

SECOND_US = 1_000_000
JOBS = 28_481


@pytest.fixture(scope="module")
def kth(traces_dir) -> Path:
    folder = traces_dir / "kth-sp2"
    if not folder.is_dir():
        pytest.skip("no kth-sp2 log in the folder of traces")
    return folder


def play(folder: Path, cluster: str, policy: str, estimate: Estimate = "requested") -> SimResult:
    scenario = read_swf(folder / "KTH-SP2-filtered.swf.gz", estimate, read_cluster(cluster, "slot"))
    return simulate(scenario, policy)


def read_oracle(folder: Path, column: str) -> dict[str, int]:
    with gzip.open(folder / "oracle-starts.csv.gz", "rt", encoding="utf-8") as file:
        return {row["job_id"]: int(row[column]) for row in csv.DictReader(file)}


def read_published(path: Path) -> dict[str, int]:
    """Starts of a schedule in SWF: submit (field 2) plus the simulated wait (field 3)."""
    starts = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields and not fields[0].startswith(";"):
                starts[fields[0]] = int(fields[1]) + int(fields[2])
    return starts


def starts_of(result: SimResult) -> dict[str, int]:
    return {gang.name: gang.start_us // SECOND_US for gang in result.gangs if gang.start_us is not None}


def check_starts(result: SimResult, expected: dict[str, int]) -> None:
    found = starts_of(result)
    assert len(found) == len(expected) == JOBS
    wrong = {name: (found[name], start) for name, start in expected.items() if found[name] != start}
    assert not wrong, f"{len(wrong)} starts differ, first {dict(list(wrong.items())[:3])} (found, expected)"


def check_means(result: SimResult, wait_s: float, slowdown: float) -> None:
    assert result.metrics["wait_s_mean"] == pytest.approx(wait_s, abs=5e-5)
    assert result.metrics["bounded_slowdown_mean"] == pytest.approx(slowdown, abs=5e-5)


@pytest.mark.long
def test_fcfs_start_by_start(kth):
    result = play(kth, "1x100", "fcfs")
    check_starts(result, read_oracle(kth, "fcfs"))
    check_means(result, 353_776.4091, 6_814.9733)
    assert result.metrics["makespan_s"] == 29_379_608
    assert result.metrics["utilization"] == pytest.approx(0.68524, abs=5e-6)


@pytest.mark.parametrize("cluster", rest_long(["1x100", "100x1"], short=1))
def test_easy_start_by_start(kth, cluster):
    """One node of a hundred places and a hundred nodes of one give the same starts."""
    result = play(kth, cluster, "easy")
    check_starts(result, read_oracle(kth, "easy_one_pass_per_timestamp"))
    check_means(result, 6_834.5873, 92.6877)
    assert result.metrics["makespan_s"] == 29_363_626


@pytest.mark.long
def test_easy_with_true_run_times_equals_the_published_schedule(kth):
    result = play(kth, "1x100", "easy", "actual")
    check_starts(result, read_published(kth / "KTH-SP2-easy-clairvoyant-schedule.swf.gz"))
    check_means(result, 6_327.6816, 71.7224)


@pytest.mark.long
def test_conservative_is_near_the_reference(kth):
    """Programs differ in how they compress after early ends: their mean waits lie within 0.2 %."""
    result = play(kth, "1x100", "conservative")
    assert len(starts_of(result)) == JOBS
    assert result.metrics["wait_s_mean"] == pytest.approx(7_312, rel=0.01)


@pytest.mark.long
def test_shortest_job_backfill_with_true_run_times_has_the_published_slowdown(kth):
    scenario = read_swf(kth / "KTH-SP2-filtered.swf.gz", "actual", read_cluster("1x100", "slot"))
    found = simulate(scenario, "easy", {"fill": "shortest"})
    assert found.metrics["bounded_slowdown_mean"] == pytest.approx(49.85, abs=0.005)
