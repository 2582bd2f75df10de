"""`phalanx trace` as people type it."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,60,8,1,a\n2017-10-09 07:00:10,30,2,1,b\n"
MAKE = ("trace", "make", "--model", "llm", "--jobs", 40, "--seed", 3, "--cluster", "4x8")


def invoke(*arguments: object):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run(*arguments: object):
    done = invoke(*arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    file = tmp_path / "philly.csv"
    file.write_text(PHILLY)
    return file


def test_make_prints_yaml_or_writes_a_file(tmp_path):
    shown = run(*MAKE).stdout
    assert shown.startswith('cluster:\n  nodes:\n    - {name: "n[0-3]", resources: {gpu: 8}}\ngangs:\n')
    assert shown == run(*MAKE).stdout
    done = run(*MAKE, "-o", tmp_path / "a.yaml")
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "a.yaml").read_text() == shown


def test_make_with_everything(tmp_path):
    file = tmp_path / "a.json"
    run(*MAKE, "--elastic", 0.5, "--preemptible", 0.5, "--deadlines", 0.2, "--mtbf", "2h", "--mttr", "5m", "-o", file)
    found = json.loads(file.read_text())
    assert {verb for event in found["events"] for verb in event} == {"at", "fail", "repair"}
    assert any("deadline" in gang for gang in found["gangs"])
    assert any(gang.get("preemptible") for gang in found["gangs"])
    assert any(isinstance(gang["members"], dict) for gang in found["gangs"])


def test_make_on_a_table_of_nodes_keeps_its_levels(tmp_path):
    nodes = tmp_path / "nodes.csv"
    nodes.write_text('name,gpu,level:rack\n"a[0-1]",8,r0\n')
    arguments = [nodes if word == "4x8" else word for word in MAKE]
    assert 'topology: ["rack"]' in run(*arguments).stdout


def test_convert_says_what_is_lost_in_one_line(tmp_path):
    made, log = tmp_path / "a.yaml", tmp_path / "a.swf"
    run(*MAKE, "--deadlines", 1, "-o", made)
    done = run("trace", "convert", made, log)
    assert done.stdout == ""
    assert done.stderr.startswith(f"phalanx: {log}: does not hold the cluster (4 nodes), 40 deadlines")
    assert done.stderr.count("\n") == 1


def test_convert_a_log_with_and_without_a_cluster(philly, tmp_path):
    done = run("trace", "convert", philly, tmp_path / "a.yaml")
    assert "holds no cluster, since the log has none; run it with --cluster" in done.stderr
    done = run("trace", "convert", philly, tmp_path / "b.yaml", "--cluster", "2x8", "--estimate", "rounded")
    assert done.stderr == ""
    assert "walltime: 3600" in (tmp_path / "b.yaml").read_text()
    assert run("trace", "show", tmp_path / "a.yaml", "--json").stdout == run("trace", "show", philly, "--json").stdout


def test_show(philly):
    text = run("trace", "show", philly, "--cluster", "2x8").stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in ("jobs 2", "users 2", "cluster 2 nodes, 16 gpus", "load offered 337.5%", "8 1 50.0%"):
        assert line in lines, text
    found = json.loads(run("trace", "show", philly, "--cluster", "2x8", "--json").stdout)
    assert (found["jobs"], found["span_s"], found["load"]) == (2, 10, 540 / 160)
    assert found["percentiles"]["run_s"] == [30, 30, 60, 60, 60]
    assert found["means"] == {"size": 5, "run_s": 45, "walltime_s": 45, "gap_s": 10}
    assert found["jobs_by_size"] == {"2": 1, "8": 1}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["make", "--model", "llm", "--jobs", "0", "--cluster", "4x8"], "--jobs must be from 1"),
        (["make", "--model", "llm", "--jobs", "5", "--cluster", "4by8"], "--cluster: '4by8' is no cluster"),
        (["make", "--model", "llm", "--jobs", "5", "--cluster", "4x8", "--load", "0"], "--load must be from 0.01"),
        (["make", "--model", "llm", "--jobs", "5", "--cluster", "4x8", "--mtbf", "soon"], "--mtbf is no time"),
        (["make", "--model", "llm", "--jobs", "5", "--cluster", "4x8", "--mtbf", "0"], "--mtbf must be more than 0"),
        (["make", "--model", "llm", "--jobs", "5", "--cluster", "4x8", "-o", "a.txt"], "a.txt: its name must end in"),
        (["convert", "nowhere.csv", "a.yaml"], "nowhere.csv: cannot be read: No such file"),
        (["convert", "nowhere.csv", "a.txt"], "a.txt: its name must end in"),
        (["show", "nowhere.swf"], "nowhere.swf: cannot be read: No such file"),
    ],
)
def test_mistakes_are_one_line(arguments, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("trace", *arguments)
    assert done.exit_code == 2, (done.output, done.exception)
    assert why in done.stderr
    assert done.stderr.startswith("phalanx: error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(philly, tmp_path):
    done = invoke("trace", "convert", philly, tmp_path / "nowhere" / "a.csv")
    assert done.exit_code == 1
    assert "cannot be written: No such file or directory" in done.stderr


def test_options_about_logs_do_not_go_with_scenarios(tmp_path):
    run(*MAKE, "-o", tmp_path / "a.yaml")
    for option in (["--elastic", "0.5"], ["--estimate", "actual"], ["--rates", "r.csv"]):
        done = invoke("trace", "convert", tmp_path / "a.yaml", tmp_path / "b.yaml", *option)
        assert done.exit_code == 2
        assert "about logs" in done.stderr


def test_a_log_in_the_simulator(philly, tmp_path):
    found = json.loads(run("sim", philly, "--cluster", "2x8", "--policy", "easy", "--json").stdout)
    assert [(gang["name"], gang["start_s"], gang["end_s"]) for gang in found[0]["gangs"]] == [
        ("1", 0, 60),
        ("2", 10, 40),
    ]
    run("trace", "convert", philly, tmp_path / "a.csv")
    again = json.loads(run("sim", tmp_path / "a.csv", "--cluster", "2x8", "--policy", "easy", "--json").stdout)
    assert again[0]["gangs"] == found[0]["gangs"]


def test_the_commands_of_the_document_run_one_after_the_other(repo_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (repo_root / "docs" / "traces.md").read_text(encoding="utf-8")
    commands = re.findall(r"^phalanx (.+)$", page, re.MULTILINE)
    assert len(commands) >= 7
    for command in commands:
        run(*shlex.split(command))


def test_the_document_shows_what_the_command_prints(repo_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (repo_root / "docs" / "traces.md").read_text(encoding="utf-8")
    command = re.search(r"`(--model llm --jobs 20000 [^`]+)`", page)
    assert command is not None
    run("trace", "make", *shlex.split(command[1]), "-o", "kalos.csv")
    found = json.loads(run("trace", "show", "kalos.csv", "--json").stdout)
    size, run_s = found["percentiles"]["size"], found["percentiles"]["run_s"]
    assert f"| {size[1]:g}, {found['means']['size']:.1f} |" in page
    assert f"| {run_s[1]:g} s, {found['means']['run_s']:,.0f} s |" in page
    assert f"| {size[-1]:,g} GPUs, {run_s[-1] / 86_400:g} d |" in page
