"""Histories as stretches of time."""

import pytest

from phalanx.frontends.sim.report.stays import Meter, read_story
from phalanx.frontends.sim.result import Entry, GangResult

SECOND = 1_000_000
ONE = "cluster: {nodes: [{name: 'n[0-2]', resources: {gpu: 4}}]}\ngangs: [{name: A, members: 4, each: {gpu: 1}, duration: 60}]\n"
ROLES = """
cluster: {nodes: [{name: "g[0-1]", resources: {gpu: 4, cpu: 8}}, {name: c0, resources: {cpu: 8}}]}
gangs:
  - name: A
    roles:
      - {name: train, members: {min: 1, max: 4}, each: {gpu: 2}}
      - {name: load, members: 2, each: {cpu: 1}}
    duration: 60
"""


def gang(history, state="completed", end=None, submit=0):
    return GangResult(
        "A", "ada", state, submit, None, None, None if end is None else end * SECOND, 4, {}, None, history
    )


def entry(at, event, members=0, places=None, held=None, units=None):
    return Entry(at * SECOND, event, members, places or {}, held, units)


def told(meter, result, last=100):
    found = read_story(meter, 0, result, last * SECOND)
    return [
        (s.start_us // SECOND, s.end_us // SECOND, s.what, s.members, s.units // 1000, s.event, s.ended_by)
        for s in found
    ]


def test_a_whole_life(read_scenario):
    history = [
        entry(5, "bind", 4, {"n0": 4}), entry(10, "grow", 8, {"n0": 4, "n1": 4}), entry(20, "evict"),
        entry(30, "bind", 4, {"n1": 4}), entry(40, "lose", 0, {}, {"n1": 3}), entry(45, "repair", 4, {"n1": 3, "n2": 1}),
        entry(60, "complete"),
    ]  # fmt: skip
    assert told(Meter(read_scenario(ONE)), gang(history, end=60)) == [
        (0, 5, "wait", 0, 0, "submit", "bind"), (5, 10, "run", 4, 4, "bind", "grow"), (10, 20, "run", 8, 8, "grow", "evict"),
        (20, 30, "wait", 0, 0, "evict", "bind"), (30, 40, "run", 4, 4, "bind", "lose"), (40, 45, "hold", 0, 3, "lose", "repair"),
        (45, 60, "run", 4, 4, "repair", "complete"),
    ]  # fmt: skip


def test_what_still_runs_or_waits_lasts_to_the_end(read_scenario):
    meter = Meter(read_scenario(ONE))
    assert told(meter, gang([entry(5, "bind", 4, {"n0": 4})], "running"))[-1] == (5, 100, "run", 4, 4, "bind", "")
    assert told(meter, gang([], "pending", submit=40 * SECOND)) == [(40, 100, "wait", 0, 0, "submit", "")]


def test_the_refused_wait_for_nothing_and_the_deadlocked_run_never(read_scenario):
    meter = Meter(read_scenario(ONE))
    assert told(meter, gang([], "infeasible")) == []
    assert told(meter, gang([entry(0, "bind", 4, {"n0": 4})], "deadlocked")) == [(0, 100, "hold", 0, 4, "bind", "")]


def test_changes_of_one_instant_leave_no_empty_stretch(read_scenario):
    history = [entry(0, "bind", 4, {"n0": 4}), entry(9, "lose", 0, {}, {"n1": 1}), entry(9, "restart", 4, {"n1": 4})]
    found = list(read_story(Meter(read_scenario(ONE)), 0, gang(history, "running"), 20 * SECOND))
    assert [(s.event, s.ended_by, s.members_after) for s in found] == [("bind", "lose", 0), ("restart", "", 0)]


def test_roles_that_differ(read_scenario):
    meter = Meter(read_scenario(ROLES))
    assert meter.units_at_least(0) == 2000
    seats = {"g0": 2, "g1": 1, "c0": 2}
    exact = entry(0, "bind", 5, seats, units={"g0": 4000, "g1": 2000})
    assert meter.units_by_node(0, exact) == {"g0": 4000, "g1": 2000}
    guessed = meter.units_by_node(0, entry(0, "bind", 5, seats))
    assert sum(guessed.values()) == 6000, "three trainers and two loaders"
    assert "c0" not in guessed, "a node without any holds none"


@pytest.mark.parametrize(("kinds", "kind", "whole"), [("gpu: 4, cpu: 8", "gpu", 1000), ("cpu: 8", "cpu", 1000)])
def test_the_kind_is_that_of_the_ledger(read_scenario, kinds, kind, whole):
    text = f"cluster: {{nodes: [{{name: n0, resources: {{{kinds}}}}}]}}\ngangs: [{{name: A, members: 1, each: {{cpu: 1}}, duration: 60}}]\n"
    meter = Meter(read_scenario(text))
    assert (meter.kind, meter.whole) == (kind, whole)
