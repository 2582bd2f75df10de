"""Failures that a seed decides, asked for in a scenario file."""

from __future__ import annotations

import json

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, parse_scenario

BASE = {
    "cluster": {"nodes": [{"name": "n[0-3]", "resources": {"gpu": 1}}]},
    "gangs": [{"name": "A", "members": 4, "each": {"gpu": 1}, "duration": "20h",
               "snapshot": {"every": "10m", "stall": 0, "restore": 60}}],
}  # fmt: skip


def read(**more: object) -> Scenario:
    text = json.dumps({**BASE, **more})
    return parse_scenario(Spot(parse_text(text, "here.json", ".json"), "here.json"))


def losses(scenario: Scenario, seed: int) -> list[float]:
    gang = simulate(scenario, "goodput", seed=seed).gangs[0]
    return [entry.at_us / 1e6 for entry in gang.history if entry.event == "lose"]


def test_a_seed_decides_when_nodes_fail():
    scenario = read(failures={"mtbf": "10h", "mttr": "10m"}, until="5d")
    first = losses(scenario, 0)
    assert first
    assert losses(scenario, 0) == first
    assert losses(scenario, 1) != first


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"failures": {"mtbf": "10h", "mttr": "10m"}}, "until"),
        ({"failures": {"mtbf": 0, "mttr": "10m"}, "until": "1d"}, "mtbf"),
        ({"failures": {"mtbf": "10h"}, "until": "1d"}, "mttr"),
        ({"failures": {"mtbf": "10h", "mttr": "1h", "mtfb": 1}, "until": "1d"}, "mtfb"),
    ],
)
def test_bad_failures_are_refused(more: dict[str, object], why: str):
    with pytest.raises(BadInput, match=why):
        read(**more)
