"""Clusters, queues, windows, events and whole scenarios."""

import json
from pathlib import Path

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.graph import find_cycle
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import Scenario, TrueRun, parse_scenario, read_cluster, read_scenario
from phalanx.model.fleet import Node
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.window import Window
from phalanx.perfmodel.speedup import Amdahl, Linear, Table

SECOND = 1_000_000
HOUR = 3600 * SECOND
BASE = """
cluster:
  topology: [block, rack, node]
  nodes:
    - {name: "a[0-1]", resources: {gpu: 4, memory: 1Ti}, labels: {block: b0, rack: 01}, taints: [spot]}
    - {name: b0, resources: {gpu: 2}, islands: [[0], [1]]}
gangs:
  - {name: A, members: 4, each: {gpu: 1}, duration: 60}
"""


def scenario(more: str = "", base: str = BASE) -> Scenario:
    return parse_scenario(Spot(parse_text(base + more, "s.yaml", ".yaml"), "s.yaml"))


def test_a_cluster():
    found = scenario()
    labels = {"block": "b0", "rack": "01"}
    assert found.levels == ("block", "rack")
    assert found.nodes == (
        Node("a0", {"gpu": 4000, "memory": 1 << 40}, labels, ("spot",)),
        Node("a1", {"gpu": 4000, "memory": 1 << 40}, labels, ("spot",)),
        Node("b0", {"gpu": 2000}, {}, (), ((0,), (1,))),
    )


def test_what_is_not_said_has_its_default():
    found = scenario()
    assert found.queues == (Queue("default"),)
    assert (found.users, found.windows, found.events, found.until_us, found.dropped) == ((), (), (), None, 0)
    assert found.policies == (("goodput", {}),)
    assert found.true_runs == (TrueRun(60 * SECOND, Linear()),)


def test_queues_and_users():
    found = scenario("queues: [{name: r, weight: 2, guarantee: {gpu: 1.5}, limit: {gpu: 8}}, {name: s, parent: r}]\n"
                     "users: [{name: ada, limit: {gpu: 2}}]\n")  # fmt: skip
    assert found.queues == (Queue("r", "root", 2, {"gpu": 1500}, {"gpu": 8000}), Queue("s", "r"), Queue("default"))
    assert found.users == (UserLimit("ada", {"gpu": 2000}),)


def test_the_default_queue_is_made_only_for_those_who_name_none():
    text = BASE.replace("duration: 60", "duration: 60, queue: r")
    assert scenario("queues: [{name: r}]\n", text).queues == (Queue("r"),)
    described = scenario("queues: [{name: default, weight: 3}]\n")
    assert described.queues == (Queue("default", weight=3),)


def test_windows():
    found = scenario("maintenance: [{nodes: 'a[0-1]', at: 2h, for: 30m}, {name: open, nodes: [b0, a0], at: 0}]\n"
                     "reservations: [{name: course, nodes: b0, at: 1h, for: 1h, users: ada, queues: [default]}]\n")  # fmt: skip
    assert found.windows == (
        Window("maintenance-0", ("a0", "a1"), 2 * HOUR, 2 * HOUR + HOUR // 2),
        Window("open", ("b0", "a0"), 0, 24 * HOUR),  # nobody said when it ends
        Window("course", ("b0",), HOUR, 2 * HOUR, ("ada",), ("default",)),
    )


def test_events():
    found = scenario("""
events:
  - {at: 1, fail: "a[0-1]"}
  - {at: 2, repair: a0}
  - {at: 3, drain: b0, by: 10}
  - {at: 4, add: {name: "c[0-1]", resources: {gpu: 1}}}
  - {at: 5, cordon: c1}
  - {at: 6, resize: {A: 2}}
  - {at: 7, resize: {A: auto}}
  - {at: 8, cancel: A}
  - {at: 9, release: [A]}
  - {at: 10, remove: b0}
  - {at: 11, add: {name: b0, resources: {gpu: 4}}}
  - {at: 12, uncordon: c1}
""")
    c0, c1, b0 = Node("c0", {"gpu": 1000}), Node("c1", {"gpu": 1000}), Node("b0", {"gpu": 4000})
    assert found.events == (
        TimedEvent(1 * SECOND, "fail", node="a0"),
        TimedEvent(1 * SECOND, "fail", node="a1"),
        TimedEvent(2 * SECOND, "repair", node="a0"),
        TimedEvent(3 * SECOND, "drain", node="b0", by_us=10 * SECOND),
        TimedEvent(4 * SECOND, "add", node="c0", added=c0),
        TimedEvent(4 * SECOND, "add", node="c1", added=c1),
        TimedEvent(5 * SECOND, "cordon", node="c1"),
        TimedEvent(6 * SECOND, "resize", gang="A", members=2),
        TimedEvent(7 * SECOND, "resize", gang="A"),
        TimedEvent(8 * SECOND, "cancel", gang="A"),
        TimedEvent(9 * SECOND, "release", gang="A"),
        TimedEvent(10 * SECOND, "remove", node="b0"),
        TimedEvent(11 * SECOND, "add", node="b0", added=b0),
        TimedEvent(12 * SECOND, "uncordon", node="c1"),
    )


@pytest.mark.parametrize(
    ("written", "policies"),
    [
        ("easy", (("easy", {}),)),
        ("[easy, fair]", (("easy", {}), ("fair", {}))),
        ("{name: easy, reservations: 2}", (("easy", {"reservations": 2}),)),
        ("{half_life: 1d}", (("goodput", {"half_life": 86_400 * SECOND}),)),
    ],
)
def test_policies(written: str, policies):
    assert scenario(f"policy: {written}\n").policies == policies


@pytest.mark.parametrize(
    ("written", "curve"),
    [
        ("linear", Linear()),
        ("{linear: true}", Linear()),
        ("{linear: }", Linear()),
        ("{amdahl: 0.02}", Amdahl(0.02)),
        ("{amdahl: 0}", Amdahl(0.0)),
        ("{table: {8: 5, 1: 1}}", Table(((1, 1.0), (8, 5.0)))),
        ("{table: [[1, 1], [8, 5.5]]}", Table(((1, 1.0), (8, 5.5)))),
    ],
)
def test_curves(written: str, curve):
    assert (
        scenario(base=BASE.replace("duration: 60", f"duration: 60, speedup: {written}")).true_runs[0].speedup == curve
    )


def test_a_gang_that_asks_for_what_no_node_has_is_no_bad_input():
    assert scenario(base=BASE.replace("each: {gpu: 1}", "each: {tpu: 1}, select: {colour: red}")).gangs


def test_the_same_scenario_in_three_formats(tmp_path: Path):
    plain = {
        "cluster": {"nodes": [{"name": "a[0-1]", "resources": {"gpu": 4}}]},
        "gangs": [{"name": "A", "submit": 0.5, "members": {"min": 2, "max": 4}, "each": {"gpu": 1}, "duration": "1m"}],
        "until": 3600,
    }
    toml = (
        'until = 3600\n[cluster]\nnodes = [{name = "a[0-1]", resources = {gpu = 4}}]\n'
        '[[gangs]]\nname = "A"\nsubmit = 0.5\nmembers = {min = 2, max = 4}\neach = {gpu = 1}\nduration = "1m"\n'
    )
    (tmp_path / "s.yaml").write_text(json.dumps(plain))
    (tmp_path / "s.json").write_text("\ufeff" + json.dumps(plain), encoding="utf-8")
    (tmp_path / "s.toml").write_text(toml)
    read = [read_scenario(tmp_path / f"s.{extension}") for extension in ("yaml", "json", "toml")]
    assert read[0] == read[1] == read[2]
    assert read[0].gangs[0].submit_us == SECOND // 2


def test_a_cluster_from_the_command_line():
    assert read_cluster("2x8", "slot") == (Node("n0", {"slot": 8000}), Node("n1", {"slot": 8000}))
    found = parse_scenario(Spot(parse_text(BASE, "s.yaml", ".yaml"), "s.yaml"), read_cluster("2x4", "gpu"))
    assert [node.name for node in found.nodes] == ["n0", "n1"]
    assert found.levels == ()


@pytest.mark.parametrize("text", ["", "8", "x8", "8x", "0x1", "1x0", "-1x4", "1x4x2", "a.csv", "9999999x1", "1x99999"])
def test_what_is_no_cluster(text: str):
    with pytest.raises(BadInput, match="--cluster"):
        read_cluster(text, "gpu")


def test_a_small_file_cannot_grow_without_bound():
    # Each line names the one before nine times: 9**30 values if they were copied out.
    lines = ["x0: &x0 lol", *(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 31)), "gangs: *x30"]
    with pytest.raises(BadInput, match="unknown key x0"):
        scenario(base="\n".join(lines))


def test_circles():
    assert find_cycle({"a": ("b",), "b": ("c",), "c": ()}) == ()
    assert find_cycle({"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}) == ()
    assert find_cycle({"z": ("a",), "a": ("b",), "b": ("a",)}) == ("a", "b", "a")
    assert find_cycle({"a": ("a",)}) == ("a", "a")


def test_every_conformance_scenario_can_be_read(scenarios_dir: Path):
    files = sorted(scenarios_dir.glob("scenarios/*.yaml"))
    assert files
    for file in files:
        assert read_scenario(file).gangs


def test_every_example_can_be_read(repo_root: Path):
    files = sorted((repo_root / "examples").glob("*.yaml"))
    assert len(files) >= 5
    for file in files:
        assert read_scenario(file).gangs
