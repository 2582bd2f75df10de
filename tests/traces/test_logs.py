"""The published logs in CSV, counted: what their `SOURCE.md` says of them is what is read."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.scenario import Scenario, read_cluster
from phalanx.frontends.sim.traces.making import make_workload
from phalanx.frontends.sim.traces.nodes import read_nodes
from phalanx.frontends.sim.traces.reading import Reading, read_any
from phalanx.frontends.sim.traces.summary import summarise
from phalanx.frontends.sim.traces.writing import write_any

SECOND_US = 1_000_000

#: GPUs of a Philly job, and how many jobs ask for so many.
SIZES = ((1, 76_627), (2, 1_818), (4, 1_870), (8, 1_643), (12, 7), (16, 199), (24, 7), (32, 67), (64, 6), (128, 3))


@pytest.fixture(scope="module")
def find(traces_dir):
    """A file of a log, or a skip if it is not there."""

    def found(name: str) -> Path:
        if not (traces_dir / name).is_file():
            pytest.skip(f"no {name} in the folder of traces")
        return traces_dir / name

    return found


@pytest.fixture(scope="module")
def philly(find) -> Scenario:
    return read_any(find("philly/philly.csv.gz"), "64x8")


def test_philly(philly):
    assert Counter(gang.members_max for gang in philly.gangs) == dict(SIZES)
    summary = summarise(philly)
    assert (summary.jobs, summary.dropped, summary.users) == (82_247, 0, 15)
    assert summary.place_hours == pytest.approx(978_078, abs=1)
    assert summary.load == pytest.approx(0.731, abs=0.001)
    submits = [gang.submit_us for gang in philly.gangs]
    assert (submits[0], submits[-1]) == (0, 9_408_690 * SECOND_US), "2017-09-04 10:30:41 to 2017-12-22 08:02:11"
    assert submits == sorted(submits)
    assert not any(gang.elastic or gang.preemptible for gang in philly.gangs)


def test_philly_believed(find, philly):
    rounded = read_any(find("philly/philly.csv.gz"), "64x8", Reading("rounded"))
    assert rounded.true_runs == philly.true_runs
    usual = {hours * 3600 * SECOND_US for hours in (1, 4, 12, 24, 48, 168)}
    for gang, truth in zip(rounded.gangs, rounded.true_runs, strict=True):
        assert gang.walltime_us in usual or gang.walltime_us == truth.duration_us > max(usual)


def test_philly_through_our_own_table(philly, tmp_path):
    write_any(tmp_path / "philly.csv.gz", philly)
    assert read_any(tmp_path / "philly.csv.gz", "64x8") == philly


@pytest.mark.parametrize(
    ("name", "dropped", "deadlines"),
    [("SLO", 205, 30_940 - 205), ("MIX1", 184, 21_724 - 124), ("MIX2", 194, 18_525 + 9_276 - 115 - 65)],
)
def test_philly_with_deadlines(find, name, dropped, deadlines):
    found = read_any(find(f"philly-slo/trace_job_Philly_{name}.csv.gz"), "75x8")
    assert (len(found.gangs) + found.dropped, found.dropped) == (30_940, dropped)
    assert sum(gang.deadline_us is not None for gang in found.gangs) == deadlines
    assert {gang.submit_us % (60 * SECOND_US) for gang in found.gangs} == {0}
    for gang, truth in zip(found.gangs, found.true_runs, strict=True):
        assert gang.deadline_us is None or gang.deadline_us >= truth.duration_us
        assert gang.user.startswith("vc_")


@pytest.mark.parametrize(
    ("name", "jobs"), [("elasticVpollux_e", 195), ("philly_103959", 876), ("resnet_cifar_trace", 5)]
)
def test_elasticflow(find, name, jobs):
    found = read_any(find(f"elasticflow/{name}.csv"), "16x8")
    assert len(found.gangs) == jobs
    assert all(gang.deadline_us is not None for gang in found.gangs)


def test_tiresias(find):
    found = read_any(find("tiresias/60_job.csv"), str(find("tiresias/n32g4.csv")))
    assert (len(found.gangs), len(found.nodes), found.levels) == (60, 32, ("switch",))
    assert len(read_nodes(find("tiresias/n160g8.csv")).nodes) == 160


def test_openb(find):
    nodes = find("openb/openb_node_list_all_node.csv.gz")
    found = read_any(find("openb/openb_pod_list_default.csv.gz"), str(nodes))
    assert (len(found.gangs), found.dropped, len(found.nodes)) == (8_152 - 897, 897, 1_523)
    assert sum(node.resources["gpu"] for node in found.nodes) == 6_212_000


def test_sia_and_gavel_need_rates(find, tmp_path):
    rates = tmp_path / "rates.csv"
    applications = ("cifar10", "imagenet", "yolov3", "deepspeech2", "bert", "ncf")
    rates.write_text("application,gpu_seconds\n" + "".join(f"{name},3600\n" for name in applications))
    for name, jobs in (("philly/workload-1", 160), ("saturn/workload-10", 160), ("newtrace/workload-3", 960)):
        found = read_any(find(f"sia-workloads/{name}.csv"), "16x4", Reading(rates=rates))
        assert len(found.gangs) == jobs
    with pytest.raises(BadInput, match=r"for 'Transformer \(batch size 128\)'"):
        read_any(find("gavel-msr/0e4a51.trace.gz"), "16x4")


def test_a_table_of_spot_nodes(find):
    assert len(read_nodes(find("alibaba-spot-nodes/node_info_df.csv.gz")).nodes) == 4_278


def test_lublin_is_like_its_authors_own_output(find):
    """10,000 jobs of the authors' program on 256 processors, with the numbers for all jobs, next to ours."""
    theirs = read_any(find("lublin-256/lublin_256.swf.gz"), "1x256")
    ours = make_workload("lublin-all", 10_000, 1, read_cluster("1x256", "gpu"))
    for describe, tolerance in (
        (lambda s: statistics.mean(gang.members_max for gang in s.gangs), 0.05),
        (lambda s: sum(gang.members_max == 1 for gang in s.gangs) / 10_000, 0.05),
        (lambda s: sum(_power_of_two(gang.members_max) for gang in s.gangs) / 10_000, 0.03),
        (lambda s: statistics.mean(_log_run(truth) for truth in s.true_runs), 0.03),
        (lambda s: statistics.pstdev(_log_run(truth) for truth in s.true_runs), 0.03),
        (lambda s: statistics.median(_gaps_s(s)), 0.1),
        (lambda s: sum(gang.submit_us // SECOND_US // 3600 % 24 in range(9, 18) for gang in s.gangs) / 10_000, 0.1),
    ):
        assert describe(ours) == pytest.approx(describe(theirs), rel=tolerance)


def _power_of_two(size: int) -> bool:
    return size > 1 and size & (size - 1) == 0


def _log_run(truth) -> float:
    return math.log(truth.duration_us / SECOND_US)


def _gaps_s(scenario: Scenario) -> list[float]:
    submits = [gang.submit_us / SECOND_US for gang in scenario.gangs]
    return [b - a for a, b in pairwise(submits)]
