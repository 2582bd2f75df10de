"""Looking ahead by what is believed: where beliefs are true, it foretells what the simulator then plays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from phalanx.cli.what_if import list_drains, run_to
from phalanx.control.forward import Arrival
from phalanx.control.policies import find_policy
from phalanx.control.restore import Restored
from phalanx.control.spec.spot import spot_of
from phalanx.control.what_if import Changes, play
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, parse_scenario, read_scenario

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
POLICIES = {
    name: entry["policy"]
    for path in sorted(SCENARIOS.glob("expect*.yaml"))
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()
}
#: Two ways of counting work in integers differ by this much at the most.
ROUNDING_US = 5


def believes_the_truth(scenario: Scenario) -> bool:
    """Whether every walltime is the run time, with nothing on top of it that only the truth knows."""
    return all(
        gang.walltime_us == truth.duration_us
        and not gang.startup_us
        and (gang.snapshot is None or not gang.snapshot.stall_us)
        for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True)
    )


def forgotten(restored: Restored) -> bool:
    """Whether a rigid gang has saved work that nobody is told of: it reports no progress."""
    return any(
        record.gang.snapshot is not None
        and not record.gang.elastic
        and (
            (record.history is not None and record.history.failures)
            or (record.attempts and record.phase is Phase.PENDING)
        )
        for record in restored.state.records
        if not record.phase.ended
    )


def events_of(changes, after_us: int) -> list[tuple[int, str, int]]:
    """What happens later; seats that a degraded gang lets go of are told by the simulator only."""
    found = [(change.at_us, change.event, change.members) for change in changes if change.at_us > after_us]
    return [each for each in found if each[1] != "lose" or each[2]]


def test_what_is_believed_comes_true():
    """From the last submit or event on, every case in which it can."""
    looked = 0
    for path in sorted((SCENARIOS / "cases").glob("*.yaml")):
        scenario, name = read_scenario(path), POLICIES.get(path.stem, "goodput")
        now_us = max(entry.at_us for entry in scenario.events) if scenario.events else 0
        now_us = max(now_us, *(gang.submit_us for gang in scenario.gangs))
        late = scenario.until_us is not None and now_us >= scenario.until_us
        if name == "pod-fifo" or late or not believes_the_truth(scenario):
            continue
        policy = find_policy(name, dict(scenario.policies).get(name, {}))
        state = run_to(scenario, policy, now_us)
        restored = Restored(state, None, list_drains(scenario, state, now_us))
        if forgotten(restored):
            continue
        found = play(restored, policy, until_us=scenario.until_us)
        played = {gang.name: gang.history for gang in simulate(scenario, policy).gangs}
        looked += bool(found.fates)
        for fate in found.fates.values():
            ours, theirs = events_of(fate.events, now_us), events_of(played[fate.name], now_us)
            assert [each[1:] for each in ours] == [each[1:] for each in theirs], (path.stem, fate.name)
            apart = [abs(one[0] - other[0]) for one, other in zip(ours, theirs, strict=True)]
            assert max(apart, default=0) <= ROUNDING_US, (path.stem, fate.name, ours, theirs)
    assert looked > 250


def look(text: str, at_s: float, policy: str = "goodput"):
    scenario = parse_scenario(spot_of(yaml.safe_load(text)))
    state = run_to(scenario, find_policy(policy), round(at_s * 10**6))
    found = play(Restored(state), find_policy(policy))
    return {name: fate.end_us / 10**6 for name, fate in found.fates.items()}


ONE = (
    "cluster: {{nodes: [{{name: n0, resources: {{gpu: 4}}}}]}}\ngangs: [{{name: A, members: 4, each: {{gpu: 1}}, {}}}]"
)


@pytest.mark.parametrize(
    ("what", "at_s", "end_s"),
    [
        ("duration: 50, walltime: 100", 10, 100),  # as it says
        ("duration: 500, walltime: 100", 150, 150 + 60),  # it has outlived its walltime: a minute more
        ("duration: 5000, walltime: 100", 2000, 2000 + 200),  # or a tenth of its age
        ("duration: 50", 10, 86_400),  # it says nothing: a day
        ("duration: 50, walltime: 100, kill_after: 80", 10, 80),  # what kills it comes before
    ],
)
def test_the_end_of_one_that_runs(what, at_s, end_s):
    assert look(ONE.format(what), at_s) == {"A": end_s}


def test_an_elastic_one_goes_by_its_progress_and_its_curve():
    """A hundred seconds with all four; it has two until 90 s, when half of 90 is done, and four from then on."""
    text = """
cluster: {nodes: [{name: n0, resources: {gpu: 4}}]}
gangs:
  - {name: brief, members: 2, each: {gpu: 1}, duration: 90, walltime: 90}
  - {name: flex, members: {min: 2, max: 4}, each: {gpu: 1}, duration: 100}
"""
    assert look(text, 50) == {"brief": 90, "flex": 90 + 55}


def test_those_who_come_later_meet_what_was_saved_meanwhile():
    """A gang that paused saves later by as much: what an eviction costs it is what the simulator says."""
    text = """
cluster: {nodes: [{name: n0, resources: {gpu: 4}}]}
gangs:
  - {name: wide, members: {min: 2, max: 4}, each: {gpu: 1}, duration: 1000, walltime: 1000, resize_pause: 30,
     preemptible: true, snapshot: {every: 100, restore: 5}}
  - {name: beside, submit: 50, members: 2, each: {gpu: 1}, duration: 40, walltime: 40, priority: 1}
  - {name: over, submit: 190, members: 4, each: {gpu: 1}, duration: 60, walltime: 60, priority: 2}
"""
    scenario, policy = parse_scenario(spot_of(yaml.safe_load(text))), find_policy("fair")
    first = replace(scenario, gangs=scenario.gangs[:1], true_runs=scenario.true_runs[:1])
    later = Changes(add_gangs=tuple(map(Arrival, scenario.gangs[1:])))
    found = play(Restored(run_to(first, policy, 0)), policy, later).fates["wide"]
    played = next(gang for gang in simulate(scenario, policy).gangs if gang.name == "wide")
    assert [change.event for change in found.events] == ["shrink", "evict", "bind", "complete"]
    assert events_of(found.events, 0) == events_of(played.history, 0)
