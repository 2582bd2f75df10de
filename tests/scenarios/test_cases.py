"""Our own scenarios, one file each under `cases/`, and what must be true of them by `expect*.yaml`.

They extend the published contract in its own format, so a case can move from one to the other. Here
they run in-process; `test_shared_contract.py` runs the published ones through the command.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest
import yaml

from phalanx.frontends.sim.jsonout import encode_results
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import read_scenario

HERE = Path(__file__).resolve().parent
CASES = {path.stem: path for path in sorted((HERE / "cases").glob("*.yaml"))}
EXPECT = {
    name: entry
    for path in sorted(HERE.glob("expect*.yaml"))
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()
}


def _load_checks():
    """The module beside this one; import-mode=importlib puts no folder on the path."""
    found = importlib.util.spec_from_file_location("scenario_checks", HERE / "checks.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


checks = _load_checks()


def run_case(name: str, policy: str) -> dict:
    """The JSON of one case under one policy; options of the file hold for the policy it names."""
    scenario = read_scenario(CASES[name])
    result = simulate(scenario, policy, dict(scenario.policies).get(policy, {}))
    (out,) = msgspec.json.decode(encode_results([result]))
    return out


def find_misses(name: str, wanted: list[dict]) -> list[str]:
    scenario = yaml.safe_load(CASES[name].read_text(encoding="utf-8"))
    return checks.find_misses(run_case(name, EXPECT[name]["policy"]), scenario, wanted)


@pytest.mark.parametrize("name", EXPECT)
def test_case_holds(name):
    misses = find_misses(name, EXPECT[name]["checks"])
    assert not misses, "\n".join([f"{name} under {EXPECT[name]['policy']} ({EXPECT[name]['origin']})", *misses])


def test_every_case_has_an_expectation_and_the_other_way_round():
    assert set(CASES) == set(EXPECT)


# Each is wrong about this case, in which x and y start at 100 on two nodes each after `run`.
WRONG = [
    {"gang": "x", "start_s": 99},
    {"gang": "x", "start_s": None},
    {"gang": "x", "end_s": ">150"},
    {"gang": "x", "wait_s": "0..98"},
    {"gang": "x", "state": "pending|running"},
    {"gang": "x", "members_at": {"t": 120, "n": 1}},
    {"gang": "x", "members_in": [1]},
    {"gang": "x", "same_domain": "node"},
    {"gang": "x", "only_on": ["n0"]},
    {"gang": "run", "never_on": ["n[0-3]"]},
    {"gang": "run", "never_on": {"nodes": ["n[0-3]"], "from": 99}},
    {"gang": "x", "nodes_max": 1},
    {"gang": "x", "placed": {}},
    {"gang": "x", "evicted": True},
    {"gang": "x", "has_reason": True},
    {"gang": "x", "starts_after_end_of": "y"},
    {"gang": "x", "history": ["complete", "bind"]},
    {"gang": "x", "never": ["evict", "complete"]},
    {"gang": "x", "held_at": {"t": 120, "n": 1}},
    {"gang": "x", "promised": True},
    {"gang": "x", "earliest_s": 100},
    {"metric": "makespan_s", "value": "!=150"},
    {"metric": "no_such_metric", "value": 0},
    {"sum_members_at": {"gangs": ["x", "y"], "t": 99, "min": 1}},
    {"sum_members_at": {"gangs": ["x", "y"], "t": 100, "n": 2}},
    {"order": ["x", "y"]},
    {"same_start": ["run", "x"]},
    {"starts_sorted": {"gangs": ["run", "x"], "values": [0, 99]}},
    {"started_by": {"t": 99, "n": 3}},
    {"evicted_of": {"gangs": ["run"], "n": 1}},
    {"all_state": "running"},
    {"reason": {"gang": "x", "code_in": ["capacity"]}},
    {"ledger": {"free": 0.5}},
    {"events_of": {"gangs": ["x", "y"], "event": "bind", "n": 1}},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_expectation_is_noticed(wrong):
    assert find_misses("gang-none-holds-while-short", [wrong])


def test_a_node_that_gives_more_than_it_has_is_noticed():
    name = "gang-none-holds-while-short"
    scenario = yaml.safe_load(CASES[name].read_text(encoding="utf-8"))
    scenario["cluster"]["nodes"][0]["resources"]["gpu"] = 0.5
    assert checks.find_misses(run_case(name, "easy"), scenario, [{"within_capacity": True}])


def test_held_seats_are_read_from_the_newest_entry():
    hurt = [
        {"at_s": 0, "event": "bind", "members": 2, "placement": {"n0": 1, "n1": 1}},
        {"at_s": 50, "event": "lose", "members": 0, "placement": {}, "held": {"n0": 1}},
        {"at_s": 80, "event": "repair", "members": 2, "placement": {"n0": 1, "n2": 1}},
    ]
    result = {"gangs": [{"name": "x", "state": "running", "end_s": None, "history": hurt}], "metrics": {}}
    scenario = {"cluster": {"nodes": []}, "gangs": [{"name": "x"}]}
    right = [{"gang": "x", "held_at": {"t": at, "n": held}} for at, held in [(49, 0), (50, 1), (79, 1), (80, 0)]]
    assert checks.find_misses(result, scenario, right) == []
    assert checks.find_misses(result, scenario, [{"gang": "x", "held_at": {"t": 60, "n": 0}}])


def test_a_ledger_whose_parts_do_not_sum_is_noticed():
    name = "gang-none-holds-while-short"
    scenario = yaml.safe_load(CASES[name].read_text(encoding="utf-8"))
    result = run_case(name, "easy")
    assert checks.find_misses(result, scenario, [{"ledger": {}}]) == []
    result["metrics"]["ledger_gpu_s"]["free"] += 0.001
    assert checks.find_misses(result, scenario, [{"ledger": {}}])


def test_every_kind_of_check_is_seen_to_fail():
    kinds = {kind for wrong in WRONG for kind in wrong if kind not in ("gang", "value")} | {"within_capacity"}
    assert kinds == {*checks.GANG, *checks.WHOLE}
