"""Whole runs: what is told of gangs that are neither running nor over, counts, and members one by one."""

import pytest

from phalanx.control.spec.quantity import SECOND_US
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.metrics import LEDGER_PARTS, find_horizon
from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.run import happenings, simulate
from phalanx.frontends.sim.scenario import Scenario, parse_scenario
from phalanx.policy import named


def read(text: str) -> Scenario:
    return parse_scenario(Spot(parse_text(text, "test.yaml", ".yaml"), "test.yaml"))


def run(text: str, policy: str = "goodput") -> SimResult:
    return simulate(read(text), policy)


def ledger(result: SimResult) -> dict[str, float]:
    parts = result.metrics["ledger_gpu_s"]
    assert isinstance(parts, dict)
    assert sum(parts[part] for part in LEDGER_PARTS[1:]) == pytest.approx(parts["capacity"])
    return {part: amount for part, amount in parts.items() if amount}


DEGRADED = """
cluster: {nodes: [{name: "n[0-1]", resources: {gpu: 4}}]}
gangs: [{name: A, members: 8, each: {gpu: 1}, duration: 100}]
events: [{at: 10, fail: n1}]
until: 60
"""


def test_a_degraded_gang_at_the_end_is_pending_and_holds_what_it_has():
    result = run(DEGRADED)
    (gang,) = result.gangs
    assert (gang.state, gang.end_us, gang.members, gang.placement) == ("pending", None, 8, {"n0": 4, "n1": 4})
    assert gang.reason is not None
    assert (gang.reason[0], *gang.reason[2:]) == ("Capacity", 8, 4)
    assert "holds 4 places" in gang.reason[1]
    assert (gang.history[-1].event, gang.history[-1].members, gang.history[-1].held) == ("lose", 0, {"n0": 4})
    assert find_horizon(result.gangs, 60 * SECOND_US) == (0, 60 * SECOND_US)
    assert ledger(result) == {"capacity": 480, "lost": 80, "idle_allocated": 200, "down": 200}
    assert result.metrics["lost_gpu_s"] == 80
    assert result.outages == [("n1", 10 * SECOND_US, None)]


def test_an_attempt_that_was_lost_has_ended_as_far_as_the_horizon_goes():
    text = DEGRADED.replace("members: 8, each: {gpu: 1}", "members: 1, each: {gpu: 4}").replace("fail: n1", "fail: n0")
    result = run(text.replace('"n[0-1]"', "n0"))
    assert result.gangs[0].state == "pending"
    assert ledger(result) == {"capacity": 40, "lost": 40}


STARTING = """
cluster: {nodes: [{name: "n[0-1]", resources: {gpu: 4}}]}
gangs:
  - {name: E, members: {min: 4, max: 8}, each: {gpu: 1}, duration: 1000, resize_pause: 60}
  - {name: R, submit: 100, members: 4, each: {gpu: 1}, duration: 100, walltime: 100}
"""


def test_a_gang_that_waits_for_others_to_leave_is_pending():
    result = run(STARTING + "until: 130\n")
    elastic, rigid = result.gangs
    assert (elastic.state, elastic.members) == ("running", 4)
    assert (rigid.state, rigid.start_us, rigid.history) == ("pending", None, [])
    assert rigid.reason is not None
    assert rigid.reason[0] == "Capacity"
    assert "starts at 160 s" in rigid.reason[1]
    assert ledger(result) == {"capacity": 1040, "productive": 800, "resize": 240}


def test_resizes_are_counted_and_queues_told():
    result = run(STARTING)
    assert [gang.state for gang in result.gangs] == ["completed"] * 2
    assert result.gangs[1].start_us == 160 * SECOND_US
    events = [entry.event for gang in result.gangs for entry in gang.history]
    assert result.metrics["resizes"] == events.count("grow") + events.count("shrink") >= 1
    assert (result.metrics["preemptions"], result.metrics["evictions_in_vain"]) == (0, 0)
    assert {gang.queue for gang in result.gangs} == {"default"}


def test_a_wanted_size_reaches_the_engine():
    text = STARTING + "events: [{at: 50, resize: {E: 4}}, {at: 500, resize: {E: auto}}]\n"
    assert [(happens.verb, happens.gang, happens.members) for happens in happenings(read(text))] == [
        ("resize", "E", 4), ("resize", "E", None),
    ]  # fmt: skip
    result = run(text)
    assert (result.gangs[0].history[1].event, result.gangs[0].history[1].at_us) == ("shrink", 50 * SECOND_US)
    assert result.gangs[0].history[1].members == 4


def test_a_policy_may_be_given_itself():
    scenario = read(STARTING)
    assert simulate(scenario, named("easy")).metrics == simulate(scenario, "easy").metrics


def test_roles_that_differ_tell_what_they_hold_by_node():
    result = run("""
cluster: {nodes: [{name: "n[0-1]", resources: {gpu: 4, cpu: 8}}]}
gangs:
  - name: A
    roles: [{name: t, members: 2, each: {gpu: 4, cpu: 1}}, {name: s, members: 1, each: {cpu: 2}}]
    duration: 10
  - {name: B, submit: 20, members: 1, each: {gpu: 1}, duration: 10}
""")
    assert result.gangs[0].history[0].units == {"n0": 4000, "n1": 4000}
    assert sum(result.gangs[0].history[0].placement.values()) == 3
    assert result.gangs[1].history[0].units is None


# ---- members one by one


PODS = """
cluster: {nodes: [{name: "n[0-1]", resources: {gpu: 2}}]}
gangs:
  - {name: A, members: 4, each: {gpu: 1}, duration: 50, startup: 10, snapshot: {every: 20, stall: 2, restore: 5}}
  - {name: B, submit: 1, members: 1, each: {gpu: 1}, duration: 30}
"""


def test_members_one_by_one_work_once_all_sit():
    result = run(PODS, "pod-fifo")
    first, second = result.gangs
    assert (first.start_us, first.end_us) == (0, 64 * SECOND_US)
    assert (second.start_us, second.end_us) == (64 * SECOND_US, 94 * SECOND_US)
    assert ledger(result) == {"capacity": 376, "productive": 230, "startup": 40, "snapshot": 16, "free": 90}


def test_members_one_by_one_hold_their_seats_while_one_is_missing():
    """A loses two members at 40 with 20 of its work saved; they come back at 60."""
    result = run(PODS + "events: [{at: 40, fail: n1}, {at: 60, repair: n1}]\n", "pod-fifo")
    first, second = result.gangs
    # 60 + restore 5 + startup 10 + 30 of work with one snapshot
    assert (first.end_us, second.state) == (107 * SECOND_US, "completed")
    parts = ledger(result)
    assert parts["idle_allocated"] == 2 * 20
    assert parts["lost"] == 4 * 8, "since the snapshot that was complete at 32"
    assert (parts["restore"], parts["startup"], parts["down"]) == (20, 80, 40)
    assert parts["productive"] == 200 + 30


def test_members_one_by_one_that_lock_each_other_out_hold_for_ever():
    result = run(
        """
cluster: {nodes: [{name: n0, resources: {gpu: 2}}]}
gangs:
  - {name: A, members: 2, each: {gpu: 1}, duration: 50}
  - {name: B, members: 2, each: {gpu: 1}, duration: 50}
until: 100
""",
        "pod-fifo",
    )
    assert [gang.state for gang in result.gangs] == ["deadlocked"] * 2
    assert ledger(result) == {"capacity": 200, "idle_allocated": 200}
