"""A scenario written to a file and read again is the same scenario."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.control.spec.cluster import NODE_KEYS
from phalanx.control.spec.gangs import GANG_KEYS, ROLE_KEYS, SEGMENT_KEYS, SNAPSHOT_KEYS, TOPOLOGY_KEYS
from phalanx.control.spec.queues import QUEUE_KEYS
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.sizes import MEMBERS_KEYS
from phalanx.control.spec.spot import Spot
from phalanx.control.spec.windows import MAINTENANCE_KEYS, RESERVATION_KEYS
from phalanx.frontends.sim.events import EVENT_KEYS
from phalanx.frontends.sim.scenario import FAILURES_KEYS, TOP_KEYS, Scenario, parse_scenario, read_scenario
from phalanx.frontends.sim.traces.scenarios import format_json, format_yaml, tree_of
from phalanx.model.fleet import Node
from phalanx.testing.worlds import Taste, draw_world

EVERYTHING = """\
cluster:
  topology: [block, rack]
  nodes:
    - {name: "a[0-2]", resources: {gpu: 2, cpu: 8, memory: 1.5Gi}, labels: {block: b0, rack: "01", on: "yes"}, taints: [spot, "a b"]}
    - {name: a9, resources: {gpu: 2}, islands: [[0], [1]], spare: true}
    - {name: x, resources: {"odd kind": 0.5}}
maintenance: [{name: m, nodes: "a[0-1]", at: 2h, for: 30m}]
reservations: [{name: r, nodes: a9, at: 1h, for: 1h, users: [ada], queues: [research]}]
queues:
  - {name: all}
  - {name: research, parent: all, weight: 2, guarantee: {gpu: 1}, limit: {gpu: 4}}
users: [{name: ada, limit: {gpu: 3}}]
gangs:
  - {name: "01", submit: 0.000001, queue: research, user: "Ada: \\"L\\" #1", priority: -2, members: {min: 1, max: 7, step: 3}, each: {gpu: 0.25},
     topology: {require: block, prefer: rack, segment: {size: 2, level: node}}, select: {rack: ["01", r2]}, tolerate: [spot],
     walltime: 2h, kill_after: 3h, duration: 1h, speedup: {amdahl: 0.02}, deadline: 3h, preemptible: true,
     snapshot: {every: 60s, stall: 0.2s, restore: 5s}, resize_pause: 2s, startup: 1s, hold: true, max_restarts: 3}
  - {name: B, members: {sizes: [2, 3, 8]}, each: {gpu: 1}, duration: 60, together: p, speedup: {table: {1: 1, 8: 6.5}}}
  - {name: "null", duration: 1e3, together: p, after: ["01"], roles: [
      {name: worker, members: 2, each: {gpu: 1}, topology: {require: rack}}, {name: loader, members: 1, each: {cpu: 2}, select: {on: "yes"}, tolerate: [spot]}]}
  - {name: D, members: 1, each: {gpu: 1}, duration: 60, after: {any: [B, "null"]}}
  - {name: E, members: 2, each: {gpu: 1}, duration: 60, bears: ["01", "a b"], at_most: {node: 1}, apart: {"on": ["yes", "01"], node: x},
     beside: {rack: "no"}, spread: {block: {word: "01", skew: 2, domains: 3}},
     rather: [{weight: 7, select: {"on": ["yes"]}}, {weight: 7, apart: {rack: "01"}}, {spread: {node: {word: x}}}]}
events:
  - {at: 1, fail: a0}
  - {at: 2.5, repair: a0}
  - {at: 3, cordon: a1}
  - {at: 3, drain: a2, by: 9}
  - {at: 4, uncordon: a1}
  - {at: 5, remove: a0}
  - {at: 6, add: {name: z, resources: {gpu: 1}}}
  - {at: 6, release: "01"}
  - {at: 7, resize: {B: 3}}
  - {at: 8, resize: {B: auto}}
  - {at: 9, cancel: D}
policy: [fcfs, {name: easy, reservations: 2}, {name: rotate, quantum: 90s}, {name: goodput, rotate: true, min_runtime: 1m}]
failures: {mtbf: 30d, mttr: 4h}
until: 1d
"""


def parse(text: str, extension: str = ".yaml") -> Scenario:
    return parse_scenario(Spot(parse_text(text, "here", extension), "here"))


def check_same(scenario: Scenario) -> None:
    assert parse(format_yaml(scenario)) == scenario
    assert parse(format_json(scenario), ".json") == scenario


def test_everything_comes_back():
    check_same(parse(EVERYTHING))


def test_the_text_above_says_everything_that_can_be_said():
    """A key that is new to the schema must be written too: put it above, and see it lost or kept."""
    keys = {
        *(TOP_KEYS, GANG_KEYS, ROLE_KEYS, TOPOLOGY_KEYS, SEGMENT_KEYS, SNAPSHOT_KEYS, MEMBERS_KEYS),
        *(NODE_KEYS, QUEUE_KEYS, MAINTENANCE_KEYS, RESERVATION_KEYS, EVENT_KEYS, FAILURES_KEYS),
    }
    said = set(re.findall(r"(\w+):", EVERYTHING))
    assert {key for group in keys for key in group} - said == set()


@pytest.mark.parametrize("seed", range(60))
def test_random_worlds_come_back(seed: int):
    world = draw_world(random.Random(seed), Taste(elastic=seed % 2 == 0, windows=seed % 3 == 0))
    # Windows stand in the order of the file's parts: first those of nobody.
    world = replace(world, windows=tuple(sorted(world.windows, key=lambda window: not window.maintenance)))
    check_same(world)


def test_examples_come_back(repo_root: Path):
    files = sorted((repo_root / "examples").glob("*.yaml"))
    assert files
    for file in files:
        check_same(read_scenario(file))


def test_equal_nodes_in_a_row_are_one_host_list():
    alike = {"gpu": 8000}
    nodes = [
        *(Node(f"n{i}", alike) for i in range(12)),
        Node("n13", alike),
        Node("n14", {"gpu": 4000}),
        Node("x01", alike),
    ]
    scenario = replace(parse(EVERYTHING), nodes=tuple(nodes), levels=())
    names = [entry["name"] for entry in tree_of(scenario)["cluster"]["nodes"]]
    assert names == ["n[0-11]", "n13", "n14", "x01"]


def test_one_gang_is_one_line_that_people_would_write():
    text = "gangs:\n  - {name: A, members: 4, each: {gpu: 1}, duration: 60, walltime: 1h30m}\n"
    found = parse("cluster:\n  nodes:\n    - {name: n0, resources: {gpu: 4}}\n" + text)
    assert format_yaml(found) == (
        'cluster:\n  nodes:\n    - {name: "n0", resources: {gpu: 4}}\n'
        'gangs:\n  - {name: "A", submit: 0, members: 4, each: {gpu: 1}, duration: 60, walltime: 5400}\n'
    )
