"""Logs without run times: Sia and Gavel, with a table of rates beside them."""

from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.traces.reading import Reading, read_any
from phalanx.frontends.sim.traces.shares import TraitShares

SECOND = 1_000_000
SIA = "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\nbert-1,90.5,bert,4,320\n"
GAVEL = (
    "ResNet-18 (batch size 32)\tcd %s && python3 main.py\t--num_steps\t1\t1000\t6.000000\t2\n"
    "LM (batch size 10)\tpython3 main.py\t--steps\t1\t300\t0.000000\t1\n"
)


@pytest.fixture
def sia(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv"
    file.write_text(SIA)
    return file


@pytest.fixture
def gavel(tmp_path: Path) -> Path:
    file = tmp_path / "a.trace"
    file.write_text(GAVEL)
    return file


def rates(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "rates.csv"
    file.write_text(text)
    return file


def runs(scenario) -> dict[str, float]:
    pairs = zip(scenario.gangs, scenario.true_runs, strict=True)
    return {gang.name: truth.duration_us / SECOND for gang, truth in pairs}


def test_sia_with_seconds(sia, tmp_path):
    beside = rates(tmp_path, "application,seconds\ncifar10,600\nbert,1200.5\n")
    found = read_any(sia, "4x4", Reading(rates=beside))
    assert runs(found) == {"bert-1": 1200.5, "cifar10-0": 600}
    assert [gang.submit_us for gang in found.gangs] == [90_500_000, 107_000_000]
    assert [gang.roles[0].sizes.allowed for gang in found.gangs] == [(4,), (6,)]


def test_sia_with_work_to_be_shared_by_the_replicas(sia, tmp_path):
    beside = rates(tmp_path, "application,gpu_seconds\ncifar10,600\nbert,1200\n")
    assert runs(read_any(sia, "4x4", Reading(rates=beside))) == {"bert-1": 300, "cifar10-0": 100}


def test_a_row_for_a_number_of_members_comes_before_the_one_for_any(sia, tmp_path):
    beside = rates(tmp_path, "application,members,seconds\ncifar10,,600\ncifar10,6,500\nbert,,9\n")
    assert runs(read_any(sia, "4x4", Reading(rates=beside)))["cifar10-0"] == 500


def test_sia_jobs_that_are_elastic_go_down_to_one(sia, tmp_path):
    beside = rates(tmp_path, "application,seconds\ncifar10,600\nbert,1200\n")
    found = read_any(sia, "4x4", Reading(rates=beside, shares=TraitShares(elastic=1.0)))
    assert [gang.roles[0].sizes.allowed for gang in found.gangs] == [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6)]


def test_gavel_divides_steps_by_a_rate(gavel, tmp_path):
    beside = rates(tmp_path, "application,steps_per_s\nResNet-18 (batch size 32),4\nLM (batch size 10),3\n")
    found = read_any(gavel, "1x4", Reading(rates=beside))
    assert runs(found) == {"2": 100, "1": 250}
    assert [(gang.name, gang.members_max) for gang in found.gangs] == [("2", 1), ("1", 2)]


def test_without_rates_the_message_says_what_the_table_must_hold(sia, gavel):
    with pytest.raises(BadInput) as bad:
        read_any(sia, "1x4")
    assert "add --rates FILE, a table with the columns application and seconds or gpu_seconds" in str(bad.value)
    assert "'cifar10', 'bert'" in str(bad.value)
    with pytest.raises(BadInput, match=r"application and steps_per_s .* for 'ResNet-18"):
        read_any(gavel, "1x4")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("app,seconds\n", "rates.csv: line 1: has no column application"),
        ("application\n", "rates.csv: line 1: needs exactly one of the columns seconds, gpu_seconds, steps_per_s"),
        ("application,seconds,gpu_seconds\n", "needs exactly one of the columns"),
        ("application,seconds\ncifar10,soon\n", "rates.csv: line 2: seconds must be a number"),
        ("application,seconds\ncifar10,0\n", "rates.csv: line 2: seconds must be more than 0"),
        ("application,seconds\ncifar10,-3\n", "rates.csv: line 2: seconds must be more than 0"),
        ("application,seconds\ncifar10,1\ncifar10,2\n", "rates.csv: line 3: there is already a row for 'cifar10'"),
        ("application,seconds\ncifar10,1\n", "jobs.csv: line 3: is a job of 'bert' with 4 members, and .* has no row"),
        ("application,seconds\ncifar10,1e30\nbert,1\n", "jobs.csv: line 2: would run for 1e[+]30 s"),
        ("application,steps_per_s\ncifar10,1\nbert,1\n", "jobs.csv: line 2: says no number of steps"),
    ],
)
def test_bad_rates(sia, tmp_path, text, why):
    with pytest.raises(BadInput, match=why):
        read_any(sia, "1x4", Reading(rates=rates(tmp_path, text)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (GAVEL + "a\tb\n", "line 3: has 2 fields, and a job of a Gavel trace has 7"),
        (GAVEL.replace("0.000000\t1", "-1\t1"), "line 2: arrival_time must not be negative"),
        (GAVEL.replace("0.000000\t1", "0\tone"), "line 2: scale_factor must be a whole number"),
    ],
)
def test_bad_gavel_traces(gavel, text, why):
    gavel.write_text(text)
    with pytest.raises(BadInput, match=why):
        read_any(gavel, "1x4")


def test_rates_beside_a_log_that_has_times(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_time,duration,num_gpu\n1,0,5,1\n")
    with pytest.raises(BadInput, match="says itself how long its jobs run; leave --rates away"):
        read_any(log, "1x4", Reading(rates=tmp_path / "rates.csv"))
