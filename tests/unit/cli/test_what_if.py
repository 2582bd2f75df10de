"""`phalanx what-if` as people and programs meet it."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli import main

ROOT = Path(__file__).resolve().parents[3]
TENANTS = ROOT / "examples" / "tenants.yaml"

SMALL = """
cluster: {topology: [rack], nodes: [{name: "n[0-1]", resources: {gpu: 4, cpu: 32}, labels: {rack: r0, gpu-model: h200}}]}
gangs:
  - {name: first, members: 8, each: {gpu: 1}, duration: 50, walltime: 100}
  - {name: second, submit: 1, members: 8, each: {gpu: 1}, duration: 50, walltime: 200}
  - {name: third, submit: 2, members: 4, each: {gpu: 1, cpu: 1}, duration: 50, walltime: 300}
policy: easy
"""

SOFT = """
cluster: {nodes: [{name: "n[0-3]", resources: {gpu: 2}}]}
gangs:
  - {name: wide, members: {min: 2, max: 8}, each: {gpu: 1}, duration: 1000, walltime: 1000, resize_pause: 5}
  - {name: low, submit: 5, members: 2, each: {gpu: 1}, duration: 500, walltime: 500, preemptible: true}
policy: goodput
"""


def invoke(*words: object):
    return CliRunner().invoke(main, ["what-if", *map(str, words)])


def ask(*words: object) -> dict:
    done = invoke(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def show(*words: object) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refusal(*words: object) -> str:
    done = invoke(*words)
    assert done.exit_code == 2, (done.exit_code, done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def write(folder: Path, text: str, at: str, name: str = "state.json") -> Path:
    scenario = folder / "scenario.yaml"
    scenario.write_text(text)
    show("--from", scenario, "--at", at, "-o", folder / name)
    return folder / name


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """At 10 s `first` runs on everything, `second` and `third` wait."""
    return write(tmp_path, SMALL, "10s")


@pytest.fixture
def soft(tmp_path: Path) -> Path:
    """At 400 s `wide` runs with six members and `low` with its two."""
    return write(tmp_path, SOFT, "400s", "soft.json")


def side(answer: dict, which: str, key: str = "start_s") -> dict:
    return {gang["name"]: gang[which] and gang[which][key] for gang in answer["gangs"]}


# ---- answers


def test_without_a_change_both_sides_are_the_same(state):
    found = ask(state)
    assert found["schema"] == "phalanx.what-if/1"
    assert found["now_s"] == 10
    assert side(found, "before") == side(found, "after") == {"first": 0, "second": 100, "third": 300}
    assert side(found, "after", "end_s") == {"first": 100, "second": 300, "third": 600}
    assert found["totals"]["before"] == found["totals"]["after"]
    assert all(gang["start_change_s"] == gang["end_change_s"] == 0 for gang in found["gangs"])


def test_walltimes_are_believed_and_durations_are_not_known(state):
    """`first` really runs for 50 s; a state knows its walltime only."""
    assert "duration" not in state.read_text()
    assert side(ask(state), "before", "end_s")["first"] == 100


def test_more_nodes(state):
    found = ask(state, "--add-nodes", "1x4")
    assert found["changes"] == {"add_nodes": "1x4"}
    assert side(found, "after") == {"first": 0, "second": 100, "third": 10}
    assert found["starts_now"] == {"before": [], "after": ["third"]}
    third = found["gangs"][2]
    assert (third["state"], third["start_change_s"], third["end_change_s"]) == ("pending", -290, -290)
    assert third["after"]["events"][0] == {"at_s": 10, "event": "bind", "members": 4}
    assert found["totals"]["after"]["start_now"] == 1


def test_new_nodes_are_like_those_with_as_many_devices_but_stand_nowhere(state, tmp_path):
    """`third` needs cpu, so bare GPUs would not do; a gang that must be in one rack cannot span old and new."""
    gang = tmp_path / "racked.yaml"
    gang.write_text("{name: racked, members: 12, each: {gpu: 1}, walltime: 60, topology: {require: rack}}\n")
    found = ask(state, "--add-nodes", "1x4", "--add-gang", gang)
    assert found["gangs"][3]["after"]["state"] == "infeasible"
    bare = ask(state, "--add-nodes", "1x6")
    assert "6 gpu and nothing else" in bare["notes"][0]
    assert side(bare, "after")["third"] != 10


def test_nodes_of_a_file(state, tmp_path):
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text('cluster: {nodes: [{name: "m[0-1]", resources: {gpu: 2, cpu: 8}, labels: {rack: r0}}]}\n')
    assert side(ask(state, "--add-nodes", nodes), "after")["third"] == 10
    nodes.write_text("{name: n1, resources: {gpu: 2}}\n")
    assert "there is already a node 'n1'" in refusal(state, "--add-nodes", nodes)


def test_fewer_nodes(state):
    found = ask(state, "--remove-nodes", "n1")
    gangs = {gang["name"]: gang["after"] for gang in found["gangs"]}
    assert [change["event"] for change in gangs["first"]["events"]] == ["lose"]
    assert {name: gang["state"] for name, gang in gangs.items()} == {
        "first": "infeasible",
        "second": "infeasible",
        "third": "completed",
    }
    assert gangs["second"]["reason"]["code"] == "Infeasible"
    assert gangs["third"]["start_s"] == 610  # when `first` lets go of the seats it has left


def test_cancel(state):
    found = ask(state, "--cancel", "first", "--cancel", "third")
    assert side(found, "after", "state") == {"first": "cancelled", "second": "completed", "third": "cancelled"}
    assert side(found, "after") == {"first": 0, "second": 10, "third": None}


def test_another_policy(tmp_path):
    text = SMALL.replace("members: 4, each: {gpu: 1, cpu: 1}", "members: 2, each: {gpu: 1}").replace(
        "members: 8, each: {gpu: 1}, duration: 50, walltime: 100",
        "members: 6, each: {gpu: 1}, duration: 50, walltime: 400",
    )
    state = write(tmp_path, text.replace("policy: easy", "policy: fcfs"), "10s")
    found = ask(state, "--policy", "easy")
    assert found["policy"] == {"before": "fcfs", "after": "easy"}
    assert side(found, "before")["third"] == 600
    assert side(found, "after")["third"] == 10


def test_a_users_own_policy(state):
    own = ROOT / "examples" / "policies" / "smallest_first.py"
    found = ask(state, "--policy", f"{own}:SMALLEST")
    assert found["policy"]["after"] == "smallest-first"
    assert side(found, "after") == {"first": 0, "second": 400, "third": 100}


def test_the_state_remembers_the_policy_and_its_options(tmp_path):
    state = write(tmp_path, SMALL.replace("policy: easy", "policy: {name: rotate, quantum: 20m}"), "10s")
    assert json.loads(state.read_text())["policy"] == {"name": "rotate", "quantum": 1200}
    assert ask(state)["policy"]["before"] == "rotate"


def test_new_gangs_count_from_now_and_may_evict_and_shrink(soft, tmp_path):
    gang = tmp_path / "gangs.yaml"
    gang.write_text(
        "gangs:\n"
        "  - {name: urgent, members: 6, each: {gpu: 1}, priority: 9, walltime: 60}\n"
        "  - {name: later, submit: 1000, members: 8, each: {gpu: 1}, walltime: 60}\n"
    )
    found = ask(soft, "--add-gang", gang)
    assert found["shrunk_now"] == {"before": [], "after": ["wide"]}
    assert found["evicted_now"] == {"before": [], "after": ["low"]}
    urgent, later = found["gangs"][2:]
    assert (urgent["state"], urgent["before"]) == ("new", None)
    assert urgent["after"]["start_s"] == 405  # when `wide` has paused and left
    assert later["after"]["start_s"] >= 1400
    assert found["totals"]["after"]["evictions"] == 1


def test_until_bounds_the_look(state):
    found = ask(state, "--until", "200s")
    assert found["until_s"] == 210
    assert side(found, "after") == {"first": 0, "second": 100, "third": None}
    assert side(found, "after", "state") == {"first": "completed", "second": "running", "third": "pending"}
    assert found["gangs"][2]["after"]["reason"]["code"] == "Capacity"


def test_a_gang_without_a_walltime_is_noted(tmp_path):
    state = write(tmp_path, SMALL.replace(", walltime: 200", ""), "10s")
    found = ask(state)
    assert found["notes"] == ["second: no walltime stated, so 1d is believed"]
    assert side(found, "before", "end_s")["second"] == 100 + 86_400


def test_a_scenario_can_be_asked_without_a_file_in_between(state, tmp_path):
    direct = ask("--from", tmp_path / "scenario.yaml", "--at", "10s", "--add-nodes", "1x4")
    assert direct == ask(state, "--add-nodes", "1x4")


# ---- for people


def test_the_table_says_what_changes(state):
    lines = show(state, "--add-nodes", "1x4").splitlines()
    assert lines[0] == "at 10s, policy easy: add nodes 1x4"
    third = next(line for line in lines if line.startswith("third"))
    assert third.split() == [
        "third",
        "pending",
        "+4m50s",
        "now",
        "+9m50s",
        "+5m",
        *["starts", "4m50s", "earlier,", "ends", "4m50s", "earlier"],
    ]
    assert next(line for line in lines if line.startswith("first")).split() == [
        "first",
        "running",
        "runs",
        "runs",
        "+1m30s",
        "+1m30s",
    ]
    assert "now: third starts with 4 members" in lines
    assert any(line.split()[:2] == ["start", "now"] for line in lines)


def test_reasons_and_an_empty_cluster(state, tmp_path):
    assert "second infeasible: can never run here" in show(state, "--remove-nodes", "n1")
    assert "nobody is there" in show("--from", tmp_path / "scenario.yaml", "--at", "1d")


def test_many_gangs_are_not_all_shown(tmp_path):
    gangs = "".join(f"  - {{name: g{i}, members: 8, each: {{gpu: 1}}, duration: 5, walltime: 10}}\n" for i in range(60))
    state = write(tmp_path, SMALL.split("gangs:", maxsplit=1)[0] + "gangs:\n" + gangs, "1s")
    text = show(state, "--cancel", "g50")
    assert "more gangs" in text
    assert "g50 " in text
    assert "g5 " not in text


def test_the_session_in_the_document_is_what_is_printed(tmp_path, monkeypatch):
    """Every command of docs/what-if.md, in order, with what stands below it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs" / "what-if.md").read_text()
    session = re.search(r"```\n(\$ phalanx .*?)```", page, re.DOTALL)[1]
    commands = re.findall(r"\$ phalanx (.*)\n((?:(?!\$ ).*\n)*)", session)
    assert len(commands) == 2
    for command, printed in commands:
        assert show(*shlex.split(command)[1:]) == printed
    state = json.loads((tmp_path / "state.json").read_text())
    for key in state:
        assert f"`{key}`" in page, f"{key} is not documented"
    state["gangs"][0]["seats"][0]["at"][0]["members"] = 7
    state["gangs"][0]["seats"][0]["at"][0]["devices"] = {"0-6": 1000}
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert refusal("state.json") in page


def test_every_key_of_the_answer_is_documented(state):
    page = (ROOT / "docs" / "what-if.md").read_text()
    found = ask(state)
    for key in [*found, *found["gangs"][0], *found["gangs"][0]["after"], *found["totals"]["after"]]:
        assert f"`{key}`" in page, f"{key} is not documented"


# ---- mistakes

MISTAKES = {
    ("--at", "1h"): "--at belongs to --from SCENARIO, which makes a state; the daemon has one already",
    ("{state}", "--at", "1h"): "--at belongs to --from SCENARIO",
    ("{state}", "--from", "{scenario}"): "keep one of them",
    ("--from", "{scenario}"): "--from needs --at",
    ("--from", "{scenario}", "--at", "noon"): "--at is no time (got 'noon')",
    ("--from", "{scenario}", "--at", "1s", "-o", "{folder}"): "is a folder",
    ("--from", "{scenario}", "--at", "1s", "-o", "x", "--cancel", "first"): "-o writes the state as it is",
    ("--from", "{scenario}", "--at", "1s", "--policy", "pod-fifo"): "pod-fifo leaves gangs with some of their members",
    ("{scenario}",): "is a scenario, not a dumped state",
    ("{folder}/absent.json",): "cannot be read",
    ("{state}", "--add-nodes", "two"): "--add-nodes: 'two' is neither nodes x devices",
    ("{state}", "--add-nodes", "0x8"): "--add-nodes: '0x8' is out of bounds",
    ("{state}", "--remove-nodes", "n9"): "--remove-nodes: there is no node 'n9'",
    ("{state}", "--remove-nodes", "n[0-"): "--remove-nodes is no host list",
    ("{state}", "--cancel", "frist"): "--cancel: there is no gang 'frist'; did you mean first?",
    ("{state}", "--policy", "eazy"): "there is no policy 'eazy'; did you mean easy?",
    ("{state}", "--policy", "pod-fifo"): "pod-fifo gives out single members",
    ("{state}", "--until", "soon"): "--until is no time",
    ("{state}", "--add-gang", "{scenario}"): "there is already a gang 'first'",
}


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(state, tmp_path, words):
    places = {"state": state, "scenario": tmp_path / "scenario.yaml", "folder": tmp_path}
    assert MISTAKES[words] in refusal(*(word.format(**places) for word in words))


def test_a_finished_gang_cannot_be_cancelled(tmp_path):
    state = write(tmp_path, SMALL, "60s")
    assert "--cancel: 'first' has completed already" in refusal(state, "--cancel", "first")


def test_a_gang_that_waits_for_nobody_known_is_refused(state, tmp_path):
    gang = tmp_path / "gang.yaml"
    gang.write_text("{name: new, members: 1, each: {gpu: 1}, after: [frist]}\n")
    assert "after names no gang: 'frist'; did you mean first?" in refusal(state, "--add-gang", gang)


def test_a_place_that_cannot_be_written_is_a_failure_and_leaves_nothing(tmp_path):
    done = invoke("--from", TENANTS, "--at", "1h", "--policy", "fair", "-o", tmp_path / "no" / "state.json")
    assert done.exit_code == 1
    assert "cannot write" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_of_several_policies_one_must_be_named(tmp_path):
    scenario = tmp_path / "two.yaml"
    scenario.write_text(SMALL.replace("policy: easy", "policy: [easy, fcfs]"))
    assert "names 2 policies; say which with --policy" in refusal("--from", scenario, "--at", "1s")
    assert ask("--from", scenario, "--at", "1s", "--policy", "fcfs")["policy"]["before"] == "fcfs"
