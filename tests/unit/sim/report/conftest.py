"""Small worlds for reports: a scenario from text, and the facts of its runs."""

import pytest

from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.report.facts import collect_facts
from phalanx.frontends.sim.report.heading import make_heading
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import parse_scenario

#: Two queues, four users, a failure, a window, elastic and preemptible gangs, one that never fits.
MIXED = """
cluster: {nodes: [{name: "n[0-3]", resources: {gpu: 4}}]}
queues:
  - {name: research, weight: 2, guarantee: {gpu: 8}}
  - {name: product, limit: {gpu: 12}}
maintenance: [{nodes: n3, at: 40m, for: 10m}]
events: [{at: 15m, fail: n1}, {at: 30m, repair: n1}]
gangs:
  - {name: A, submit: 0, queue: research, user: ada, members: {min: 2, max: 8}, each: {gpu: 1}, duration: 20m,
     walltime: 30m, resize_pause: 2s}
  - {name: B, submit: 1m, queue: product, user: bob, members: 8, each: {gpu: 1}, duration: 20m, walltime: 40m,
     preemptible: true, snapshot: {every: 2m, stall: 1s, restore: 5s}, startup: 10s}
  - {name: C, submit: 2m, queue: research, user: chen, members: 12, each: {gpu: 1}, duration: 10m, walltime: 15m}
  - {name: D, submit: 3m, queue: product, user: dora, members: 2, each: {gpu: 2}, duration: 90s, walltime: 2m}
  - {name: E, submit: 4m, queue: product, user: bob, members: 1, each: {gpu: 0.5}, duration: 90s, walltime: 2m,
     deadline: 2m}
  - {name: F, submit: 5m, queue: product, user: bob, members: 99, each: {gpu: 1}, duration: 90s}
"""


@pytest.fixture(scope="session")
def read_scenario():
    return lambda text: parse_scenario(Spot(parse_text(text, "test", ".yaml"), "test"))


@pytest.fixture(scope="session")
def mixed(read_scenario):
    return read_scenario(MIXED)


@pytest.fixture(scope="session")
def results(mixed):
    """The mixed world under three policies."""
    return [simulate(mixed, policy) for policy in ("fcfs", "easy", "goodput")]


@pytest.fixture(scope="session")
def runs(mixed, results):
    return [collect_facts(mixed, result, result.policy, 1000) for result in results]


@pytest.fixture(scope="session")
def heading(mixed):
    return make_heading(mixed, "mixed.yaml", "phalanx sim mixed.yaml", [0])
