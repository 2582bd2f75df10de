"""Our own table of jobs: what it says, what comes back, what is refused."""

from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.scenario import Scenario, TrueRun, read_cluster
from phalanx.frontends.sim.traces.making import make_workload
from phalanx.frontends.sim.traces.plain import format_plain
from phalanx.frontends.sim.traces.reading import Reading, read_any
from phalanx.frontends.sim.traces.shares import TraitShares
from phalanx.model.gang import Gang, Role, Shape, Sizes, SnapshotHabit
from phalanx.model.queue import Queue
from phalanx.perfmodel.speedup import Amdahl

SECOND = 1_000_000


def read(tmp_path: Path, text: str, estimate=None) -> Scenario:
    file = tmp_path / "jobs.csv"
    file.write_text(text)
    return read_any(file, None, Reading(estimate), bare=True)


def test_the_least_that_a_table_says(tmp_path):
    found = read(tmp_path, "submit_s,duration_s,members_max\n0,60,4\n1.5,5m,1\n")
    first, second = found.gangs
    assert (first.name, second.name, second.submit_us) == ("1", "2", 1_500_000)
    assert first.roles == (Role("member", Sizes((4,)), Shape((("gpu", 1000),))),)
    assert found.true_runs[1].duration_us == 300 * SECOND
    assert first == Gang("1", first.roles), "everything else is as in a scenario file"
    assert found.queues == (Queue("default"),)


def test_everything_that_a_table_says(tmp_path):
    found = read(
        tmp_path,
        "name,submit_s,duration_s,walltime_s,members_min,members_max,sizes,gpu,cpu,memory,slot,user,queue,priority,"
        "deadline_s,preemptible,amdahl,snapshot_every_s,snapshot_stall_s,snapshot_restore_s,resize_pause_s,startup_s\n"
        "A,0,60,90,2,8,2 4 8,0.5,2,1Gi,,ada,research,-3,100,true,0.02,10,0.2,5,2,1\n",
    )
    assert found.gangs[0] == Gang(
        "A",
        (Role("member", Sizes((2, 4, 8)), Shape((("cpu", 2000), ("gpu", 500), ("memory", 1 << 30)))),),
        queue="research",
        user="ada",
        priority=-3,
        walltime_us=90 * SECOND,
        deadline_us=100 * SECOND,
        preemptible=True,
        snapshot=SnapshotHabit(10 * SECOND, 200_000, 5 * SECOND),
        resize_pause_us=2 * SECOND,
        startup_us=SECOND,
    )
    assert found.true_runs == (TrueRun(60 * SECOND, Amdahl(0.02)),)
    assert found.queues == (Queue("research"),)


@pytest.mark.parametrize(("estimate", "believed"), [(None, 90), ("requested", 90), ("actual", 60), ("rounded", 3600)])
def test_beliefs(tmp_path, estimate, believed):
    text = "submit_s,duration_s,members_max,walltime_s\n0,60,4,90\n"
    assert read(tmp_path, text, estimate).gangs[0].walltime_us == believed * SECOND


def test_an_empty_walltime_is_none(tmp_path):
    assert read(tmp_path, "submit_s,duration_s,members_max,walltime_s\n0,60,4,\n").gangs[0].walltime_us is None


def test_what_is_written_reads_the_same(tmp_path):
    made = make_workload("llm", 300, 3, read_cluster("16x8", "gpu"), shares=TraitShares(0.5, 0.5, 0.3))
    assert any(gang.elastic for gang in made.gangs)
    found = read(tmp_path, format_plain(made))
    assert found.gangs == made.gangs
    assert found.true_runs == made.true_runs
    assert format_plain(found) == format_plain(made)


def test_columns_that_nobody_needs_are_not_written():
    text = format_plain(make_workload("lublin", 3, 3, read_cluster("16x8", "gpu")))
    assert text.splitlines()[0] == (
        "name,submit_s,duration_s,walltime_s,members_min,members_max,gpu,user,queue,priority,deadline_s,preemptible"
    )


BAD = {
    "column": (
        "submit_s,duration_s,members_max,dedline_s\n",
        "line 1: has the unknown column 'dedline_s'; did you mean",
    ),
    "needed": ("submit_s,duration_s\n0,1\n", "line 1: looks like a table of ours, and has no column members_max"),
    "no-job": ("submit_s,duration_s,members_max\n", "line 1: holds no job below its header"),
    "submit": ("submit_s,duration_s,members_max\n,1,1\n", "line 2: submit_s is empty; write seconds"),
    "duration": ("submit_s,duration_s,members_max\n0,0,1\n", "line 2: duration_s must be more than 0 (got '0')"),
    "negative": ("submit_s,duration_s,members_max\n0,-1,1\n", "line 2: duration_s must not be negative (got '-1')"),
    "ages": ("submit_s,duration_s,members_max\n1e30,1,1\n", "line 2: submit_s is more than 100 years"),
    "members": (
        "submit_s,duration_s,members_max\n0,1,0\n",
        "line 2: members_max must be from 1 to 1,000,000 (got '0')",
    ),
    "members-word": ("submit_s,duration_s,members_max\n0,1,four\n", "line 2: members_max must be a whole number"),
    "range": (
        "submit_s,duration_s,members_max,members_min\n0,1,2,4\n",
        "line 2: members_min 4 is above members_max 2",
    ),
    "sizes": (
        "submit_s,duration_s,members_max,sizes\n0,1,8,4 2 8\n",
        "line 2: sizes must go up from members_min 4 to members_max 8 (got '4 2 8')",
    ),
    "gpu": ("submit_s,duration_s,members_max,gpu\n0,1,1,1.5\n", "line 2: gpu above 1 must be whole (got '1.5')"),
    "priority": ("submit_s,duration_s,members_max,priority\n0,1,1,high\n", "line 2: priority must be a number"),
    "priority-half": ("submit_s,duration_s,members_max,priority\n0,1,1,1.5\n", "line 2: priority must be a whole"),
    "preemptible": (
        "submit_s,duration_s,members_max,preemptible\n0,1,1,maybe\n",
        "line 2: preemptible must be true or false (got 'maybe')",
    ),
    "amdahl": ("submit_s,duration_s,members_max,amdahl\n0,1,1,2\n", "line 2: amdahl must be a fraction from 0 to 1"),
    "habit": (
        "submit_s,duration_s,members_max,snapshot_stall_s\n0,1,1,2\n",
        "line 2: has snapshot_stall_s or snapshot_restore_s without snapshot_every_s",
    ),
    "queue": ("submit_s,duration_s,members_max,queue\n0,1,1,root\n", "line 2: queue must be a queue below root"),
    "twice": ("name,submit_s,duration_s,members_max\nA,0,1,1\nA,0,1,1\n", "line 3: job 'A' stands twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(tmp_path, name):
    text, why = BAD[name]
    with pytest.raises(BadInput) as bad:
        read(tmp_path, text)
    assert str(bad.value).startswith(f"{tmp_path / 'jobs.csv'}: {why}"), str(bad.value)
