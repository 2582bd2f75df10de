"""Cases in which a promise was once broken, played with every promise checked on every plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from phalanx.frontends.sim.scenario import read_scenario
from phalanx.testing.checking import play

HERE = Path(__file__).resolve().parent
NAMES = list(yaml.safe_load((HERE / "expect_kinds.yaml").read_text(encoding="utf-8")))
POLICIES = ("fcfs", "easy", "conservative", "fair", "deadline", "rotate", "goodput")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_no_promise_is_broken_under_any_policy(name, policy):
    scenario = read_scenario(HERE / "cases" / f"{name}.yaml")
    play(scenario, policy, dict(scenario.policies).get(policy, {}))
