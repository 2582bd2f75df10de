"""Files come out whole, in the format of their name, and what is lost is said."""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.scenario import Scenario, parse_scenario, read_cluster
from phalanx.frontends.sim.traces.files import write_whole
from phalanx.frontends.sim.traces.making import make_workload
from phalanx.frontends.sim.traces.reading import read_any
from phalanx.frontends.sim.traces.shares import TraitShares
from phalanx.frontends.sim.traces.swfout import format_swf
from phalanx.frontends.sim.traces.writing import check_name, write_any

NODES = read_cluster("4x8", "gpu")


@pytest.fixture
def made() -> Scenario:
    return make_workload("lublin", 200, 5, NODES)


def parse(text: str) -> Scenario:
    whole = "cluster: {nodes: [{name: n0, resources: {gpu: 8}}]}\ngangs:\n" + text
    return parse_scenario(Spot(parse_text(whole, "here", ".yaml"), "here"))


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json", "A.CSV", "a.csv.gz", "a.swf", "a.swf.gz"])
def test_every_format_can_be_read_again(tmp_path, made, name):
    write_any(tmp_path / name, made)
    found = read_any(tmp_path / name, "4x8")
    swf = ".swf" in name
    assert [gang.submit_us for gang in found.gangs] == [gang.submit_us for gang in made.gangs]
    assert [gang.walltime_us for gang in found.gangs] == [gang.walltime_us for gang in made.gangs]
    assert [gang.members_max for gang in found.gangs] == [gang.members_max for gang in made.gangs]
    assert [(gang.name, gang.user) for gang in found.gangs] == [(gang.name, gang.user) for gang in made.gangs]
    assert found.true_runs == made.true_runs
    assert found.gangs[0].roles[0].shape.need == ((("slot" if swf else "gpu"), 1000),)
    if not swf:
        assert found == made


def test_a_second_trip_changes_nothing(tmp_path, made):
    for first, second in (("a.swf", "b.swf"), ("a.csv", "b.csv"), ("a.yaml", "b.yaml")):
        write_any(tmp_path / first, made)
        write_any(tmp_path / second, read_any(tmp_path / first, None, bare=True) if first == "a.swf" else made)
        assert (tmp_path / first).read_bytes() == (tmp_path / second).read_bytes()


def test_packed_files_are_the_same_bytes_every_time(tmp_path, made):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_any(tmp_path / name, made)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).startswith(b"name,")


def test_what_swf_cannot_hold_is_counted(made):
    rich = make_workload("llm", 300, 1, NODES, shares=TraitShares(0.5, 0.5, 0.2))
    _, losses = format_swf(rich)
    elastic = sum(gang.elastic for gang in rich.gangs)
    deadlines = sum(gang.deadline_us is not None for gang in rich.gangs)
    assert "the cluster (4 nodes)" in losses
    assert f"{elastic} elastic ranges" in losses
    assert f"{deadlines} deadlines" in losses
    assert format_swf(replace(made, nodes=()))[1] == []


def test_swf_numbers_names_and_users_where_they_are_words():
    text, losses = format_swf(
        parse(
            "  - {name: B, user: bob, members: 2, each: {gpu: 4}, duration: 60, walltime: 30}\n"
            "  - {name: A, user: ada, members: 3, each: {gpu: 0.5}, duration: 60}\n"
            "  - {name: C, members: 3, each: {gpu: 1}, duration: 1.5}\n"
        )
    )
    assert text.splitlines() == [
        *("; Version: 2", "; MaxJobs: 3", "; User 1: bob", "; User 2: ada"),
        "1 0 -1 60 8 -1 -1 8 30 -1 1 1 -1 -1 -1 -1 -1 -1",
        "2 0 -1 60 3 -1 -1 3 -1 -1 1 2 -1 -1 -1 -1 -1 -1",
        "3 0 -1 1.5 3 -1 -1 3 -1 -1 1 -1 -1 -1 -1 -1 -1 -1",
    ]
    assert losses == [
        *("the cluster (1 nodes)", "1 shares of a GPU", "names of gangs (numbered)", "names of users (numbered)"),
        "1 run times beyond the walltime (cut there by whoever reads it)",
    ]


def test_a_table_says_what_it_leaves_out(tmp_path):
    rich = parse(
        "  - {name: A, duration: 5, roles: [{name: w, members: 1, each: {gpu: 1}}, {name: l, members: 1, each: {gpu: 1}}]}\n"
        "  - {name: B, duration: 5, members: 1, each: {gpu: 1}, hold: true, after: [A], kill_after: 9}\n"
        "queues: [{name: q, weight: 2}]\nusers: [{name: u, limit: {gpu: 1}}]\nuntil: 9\npolicy: fcfs\n"
        "maintenance: [{nodes: n0, at: 5}]\nevents: [{at: 1, fail: n0}]\n"
    )
    losses = write_any(tmp_path / "a.csv", rich)
    assert losses == [
        *("the cluster (1 nodes)", "1 gangs of several roles (left out)", "1 kill times", "1 dependencies", "1 holds"),
        *("1 shares of queues", "1 limits of users", "1 maintenance windows and reservations", "1 events"),
        *("the policy", "the end of the simulation"),
    ]
    assert [gang.name for gang in read_any(tmp_path / "a.csv", None, bare=True).gangs] == ["B"]


def test_a_name_that_says_no_format():
    with pytest.raises(BadInput, match=r"jobs\.xlsx: its name must end in \.yaml"):
        check_name(Path("jobs.xlsx"))


def test_nothing_is_half_written(tmp_path, monkeypatch):
    target = tmp_path / "a.csv"
    target.write_text("old")

    def fail(self, data):
        os.close(os.open(self, os.O_CREAT | os.O_WRONLY))  # the disk is full after the first byte
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_a_device_is_written_to_and_not_replaced():
    write_whole(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
