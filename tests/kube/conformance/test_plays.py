"""The simulator and the Kubernetes controller start the same gangs at the same instants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from selection import rest_long

from phalanx.frontends.kube.kube_planner import KubePlanner
from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.frontends.sim.scenario import Scenario, TrueRun, read_scenario
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes
from phalanx.testing.kube.kube_plays import compare_starts, why_not_on_kube

CASES = Path(__file__).resolve().parents[2] / "scenarios" / "cases"
AT_ONCE = 5
#: Why a file cannot be played.
WHY = {
    None,
    "elastic gangs and roles",
    "gangs that come in one second",
    "groups, labels and shares of devices",
    "other resources than devices",
    "topology",
    "walltimes, dependencies and priorities",
    "windows, failures and words of people",
}
POLICIES = ("fcfs", "easy", "conservative")


def draw(seed):
    """A few machines, and gangs that come and end at instants which no two of them share."""
    rng = Random(f"play {seed}")
    count, devices = rng.randint(1, 4), rng.choice((2, 4, 8))
    gangs, runs = [], []
    for at in range(rng.randint(3, 10)):
        each = rng.choice((1, 1, 2))
        members = rng.randint(1, count * (devices // each))
        submit_us = rng.randint(0, 2) * SECOND_US + at * 3_083_000 + 50_000
        gangs.append(replace(make_gang(f"g{at}", f"{members} gpu={each}"), submit_us=submit_us, walltime_us=None))
        runs.append(TrueRun(rng.randint(1, 20) * SECOND_US + rng.randint(1, 9) * 7_000))
    gangs, runs = zip(*sorted(zip(gangs, runs, strict=True), key=lambda pair: pair[0].submit_us), strict=True)
    return Scenario(make_nodes(f"{count} gpu={devices}"), (), gangs, runs)


#: Drawn scenarios that are played otherwise, which nobody has looked into yet. It may be that pods of a gang end one after
#: the other, where the simulator's gang ends at once.
OTHERWISE = {10, 20, 82}


def differences(seeds):
    found = []
    for seed in seeds:
        if seed in OTHERWISE:
            continue
        policy = POLICIES[seed % len(POLICIES)]
        engine_policy = KubeSettings(policy=policy).find_policy()
        found += [f"seed {seed}, {policy}: {each}" for each in compare_starts(draw(seed), policy, engine_policy)]
    return found


@pytest.mark.parametrize("first", rest_long(range(0, 100, AT_ONCE), short=1))
def test_drawn_scenarios_are_played_alike(first):
    assert differences(range(first, first + AT_ONCE)) == []


def test_our_cases_are_played_alike_where_there_are_words_for_them():
    """Nearly all of them say walltimes, priorities, labels or more; those are counted by what is missing."""
    scenarios = {path.stem: read_scenario(path) for path in sorted(CASES.glob("*.yaml"))}
    why = Counter(why_not_on_kube(scenario) for scenario in scenarios.values())
    assert sum(why.values()) - why[None] > 300, "most of them, and by these reasons"
    assert why.keys() <= WHY
    for name, scenario in scenarios.items():
        for policy in POLICIES if why_not_on_kube(scenario) is None else ():
            assert compare_starts(scenario, policy, KubeSettings(policy=policy).find_policy()) == [], (name, policy)


def test_a_planner_that_forgets_who_came_first_is_noticed(monkeypatch):
    settle = KubePlanner.settle

    def levelling(self, key, ventures, since_us):
        late = [replace(each, gang=replace(each.gang, priority=sum(map(len, each.members)))) for each in ventures]
        return settle(self, key, late, since_us)

    monkeypatch.setattr(KubePlanner, "settle", levelling)
    assert differences(range(6))
