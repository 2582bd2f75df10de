"""The simulator and the daemon make the same plans: every decision, with its instant, its seats and its cause.

The scenarios are those of tests/scenarios and of the published contract, put on one machine (`squeeze`), and
days that are drawn. What one machine cannot be told is left out there and said in `why_not_here`. Where the two
differ on purpose, `test_exceptions.py` says how.

PHALANX_DAYS  how many days are drawn (200)
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
import yaml
from selection import rest_long

from phalanx.frontends.sim.scenario import read_scenario
from phalanx.policy import named
from phalanx.testing.hosts.busy_days import draw_day
from phalanx.testing.hosts.conformance import compare, play_in_sim, squeeze, why_not_here
from phalanx.testing.worlds import draw_policy

HERE = Path(__file__).resolve().parent
CASES = HERE.parents[1] / "scenarios"
DAYS = int(os.environ.get("PHALANX_DAYS", "200"))
AT_ONCE = 20
#: Gangs of hundreds of members say nothing here that smaller ones do not.
GPUS_MAX = 128
#: About several nodes: on one machine they only repeat the others.
ELSEWHERE = ("topology", "segment", "fragmentation", "window", "maintenance", "cordon", "repair", "ledger", "move")
#: Its members have no gang, so no daemon runs it.
NO_GANGS = "pod-fifo"


def read_policies(folder: Path) -> dict[str, str]:
    """By scenario, the policy that its expectation speaks of."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("expect*.yaml")):
        found |= {name: entry["policy"] for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()}
    return found


def differences(path: Path, policy: str) -> list[str]:
    scenario = read_scenario(path)
    options = dict(scenario.policies).get(policy, {})
    if why_not_here(scenario) is not None:
        scenario = squeeze(scenario)
    if policy == NO_GANGS or scenario.nodes[0].resources.get("gpu", 0) > GPUS_MAX * 1000:
        return []
    assert why_not_here(scenario) is None
    return [f"{path.stem} under {policy}: {each}" for each in compare(scenario, policy, options)]


OURS = read_policies(CASES)
GROUPS = sorted({name.partition("-")[0] for name in OURS}.difference(ELSEWHERE))


@pytest.mark.parametrize("group", GROUPS)
def test_our_cases_are_played_alike(group):
    found = []
    for name, policy in OURS.items():
        if name.partition("-")[0] == group:
            found += differences(CASES / "cases" / f"{name}.yaml", policy)
    assert found == []


def test_the_published_scenarios_are_played_alike(scenarios_dir):
    found = []
    for name, policy in read_policies(scenarios_dir).items():
        if not name.startswith(ELSEWHERE):
            found += differences(scenarios_dir / "scenarios" / f"{name}.yaml", policy)
    assert found == []


def draw(seed: int):
    rng = Random(seed)
    policy, options = draw_policy(rng) if seed % 4 else (rng.choice(["fcfs", "easy", "conservative"]), {})
    return draw_day(rng), policy, options


@pytest.mark.parametrize("first", rest_long(range(0, DAYS, AT_ONCE), short=3))
def test_drawn_days_are_played_alike(first):
    found = []
    for seed in range(first, min(first + AT_ONCE, DAYS)):
        scenario, policy, options = draw(seed)
        found += [f"seed {seed}: {each}" for each in compare(scenario, policy, options)]
    assert found == []


def test_the_drawn_days_have_everything_in_them():
    words = set()
    for seed in range(60):
        scenario, policy, options = draw(seed)
        story = play_in_sim(scenario, named(policy, options))
        words |= {line[1] for line in story.lines} | set(story.states.values())
    wanted = {"bind", "evict", "resizegrow", "resizeloan", "resizepin", "completed", "failed", "cancelled"}
    assert words >= wanted, wanted - words
