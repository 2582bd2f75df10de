"""Days in the life of a cluster on which the scheduler once did the wrong thing, found by trials and told by hand."""

from __future__ import annotations

import pytest

from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.kube.cluster_people import ClusterPeople, WantedGang
from phalanx.testing.kube.fake_server import CallFate
from phalanx.testing.kube.kube_world import NODES, PODS, KubeWorld
from phalanx.testing.kube.kubelets import Kubelets

S = 1_000_000
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/sched/leases/phalanx"


@pytest.fixture
def world():
    with KubeWorld(KubeSettings(bind_deadline_s=4.0, leader_election=False, namespace="sched")) as made:
        yield made
        assert made.errors == []


@pytest.fixture
def elected():
    with KubeWorld(KubeSettings(bind_deadline_s=4.0, namespace="sched")) as made:
        yield made
        assert made.errors == []


def add_gang(world, name, size, **spec):
    world.create(GROUPS, [make_native_gang(name, size)])
    world.create(PODS, make_pods(name, size, scheduler="phalanx", native_gang=name, **spec))


def bound(world, prefix=""):
    return {
        pod["metadata"]["name"]
        for pod in world.list("pods")
        if pod["spec"].get("nodeName") and pod["metadata"]["name"].startswith(prefix)
    }


def set_room(world, node, gpus):
    world.ask("PATCH", f"{NODES}/{node}/status", {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}})


def die_at(world, place, count):
    """A replica dies when so many pods of a gang are bound."""
    asked = []

    def find_fate(call):
        if call.path.endswith("/binding"):
            asked.append(call)
        return CallFate(vanishes="there" if call.path.endswith("/binding") and len(asked) > count else "")

    world.server.fate = find_fate
    world.boot(place)
    world.run_until(S)
    assert len(bound(world)) == count
    world.kill(world.replicas[place])
    world.server.fate = lambda call: CallFate()


def say(world, pod, phase):
    world.ask("PATCH", f"{PODS}/{pod}/status", {"status": {"phase": phase}})


def reasons(world, prefix):
    return {
        condition.get("reason")
        for pod in world.list("pods")
        if pod["metadata"]["name"].startswith(prefix)
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "PodScheduled"
    }


# ---- what is written down


def test_a_place_for_plans_that_somebody_deleted_is_made_anew(world):
    world.create(NODES, make_nodes("1x8"))
    world.boot("a")
    world.run_until(S)
    for tree in world.list("configmaps"):
        world.ask("DELETE", f"/api/v1/namespaces/sched/configmaps/{tree['metadata']['name']}")
    add_gang(world, "g", 4)
    world.run_until(3 * S)
    assert len(bound(world)) == 4


def test_the_count_of_epochs_goes_on_where_the_lease_was_deleted(elected):
    elected.boot("a")
    elected.run_until(S)
    elected.kill(elected.replicas["a"])
    elected.ask("DELETE", LEASE)
    elected.boot("a")
    elected.run_until(3 * S)
    assert elected.list("leases.coordination.k8s.io")[0]["spec"]["leaseTransitions"] == 1
    assert {tree["data"]["epoch"] for tree in elected.list("configmaps")} == {"2"}


def test_a_restart_without_an_election_keeps_out_the_last_words_of_the_one_before(world):
    for _ in range(2):
        world.boot("a")
        world.run_until(world.now_us + S)
        world.kill(world.replicas["a"])
    assert {tree["data"]["epoch"] for tree in world.list("configmaps")} == {"1"}


def test_nobody_leads_at_once_when_a_lease_disappears(elected):
    elected.boot("a")
    elected.run_until(S)
    elected.boot("bb")
    elected.run_until(3 * S)
    elected.replicas["a"].life.asleep = True
    elected.ask("DELETE", LEASE)
    elected.run_until(10 * S)
    assert [each.place for each in elected.find_leaders()] == ["a"], "it does not know yet, and may bind"
    elected.run_until(25 * S)
    assert "bb" in [each.place for each in elected.find_leaders()]


def test_room_is_looked_at_again_when_a_plan_took_long_to_write_down(world):
    world.create(NODES, make_nodes("1x4"))
    world.boot("a")
    world.run_until(S)
    asked = []

    def find_fate(call):
        asked.append(call.path)
        is_first = sum("-intent-" in path for path in asked) == 1 and "-intent-" in call.path
        return CallFate(vanishes="there" if is_first else "")

    world.server.fate = find_fate
    add_gang(world, "g", 4)
    world.later(2 * S, world.create, PODS, make_pods("other", 1, scheduler="somebody", nodeName="node-0"))
    world.run_until(9 * S)
    assert bound(world, "g") == set()
    assert not [path for path in asked if path.endswith("/binding")]


# ---- what is taken back


def test_what_was_evicted_is_no_part_of_a_gang_any_more(world):
    """The rest of it started by itself in the moment before the watch told of the evictions."""
    world.create(NODES, make_nodes("1x4"))
    add_gang(world, "g", 4)
    die_at(world, "a", 2)
    waiting = min({pod["metadata"]["name"] for pod in world.list("pods")} - bound(world))
    world.ask("DELETE", f"{PODS}/{waiting}")
    (another,) = [
        pod for pod in make_pods("g", 4, scheduler="phalanx", native_gang="g") if pod["metadata"]["name"] == waiting
    ]
    world.create(PODS, [another])
    world.server.lag_us = lambda user: 2 * S  # of what a watch tells
    world.boot("a")
    world.run_until(9 * S)
    left = [pod for pod in world.list("pods") if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["spec"].get("nodeName") for pod in left] == [None, None]


def test_what_has_ended_is_not_evicted_with_the_others(world):
    world.create(NODES, make_nodes("1x4"))
    add_gang(world, "g", 4)
    die_at(world, "a", 2)
    done, running = sorted(bound(world))
    say(world, done, "Succeeded")
    set_room(world, "node-0", 2)
    world.boot("a")
    world.run_until(3 * S)
    left = {pod["metadata"]["name"]: pod["metadata"].get("deletionTimestamp") for pod in world.list("pods")}
    assert left[done] is None
    assert left[running] is not None


def test_seats_of_those_who_ended_while_nobody_led_are_free(world):
    world.create(NODES, make_nodes("1x4"))
    add_gang(world, "g", 4)
    die_at(world, "a", 3)
    for name in bound(world):
        say(world, name, "Succeeded")
    world.boot("a")
    world.run_until(3 * S)
    for pod in world.list("pods"):
        say(world, pod["metadata"]["name"], "Succeeded")
    add_gang(world, "h", 4)
    world.run_until(6 * S)
    assert len(bound(world, "h")) == 4


# ---- what is seen


def test_who_begins_to_lead_looks_at_everything_again(elected):
    """A follower's watch had been silent, and it bound a gang where it had last seen room."""
    elected.create(NODES, make_nodes("1x4"))
    elected.ask("PATCH", f"{NODES}/node-0", {"spec": {"unschedulable": True}})
    add_gang(elected, "h", 4)
    elected.boot("a")
    elected.run_until(S)
    elected.boot("bb")
    elected.run_until(8 * S)
    for watch in elected.server.watches:
        watch.stalled = watch.user.startswith("bb") and watch.kind.id == "pods"
    elected.create(PODS, make_pods("other", 4, scheduler="somebody", nodeName="node-0"))
    elected.ask("PATCH", f"{NODES}/node-0", {"spec": {"unschedulable": None}})
    elected.kill(elected.replicas["a"])
    elected.run_until(40 * S)
    assert elected.replicas["bb"].is_leading
    assert bound(elected, "h") == set()


def test_room_that_a_node_lost_is_not_given_away_when_its_pods_end(world):
    world.create(NODES, make_nodes("1x4"))
    add_gang(world, "g", 4)
    world.boot("a")
    world.run_until(S)
    set_room(world, "node-0", 1)
    world.run_until(2 * S)
    for name in bound(world):
        say(world, name, "Succeeded")
    add_gang(world, "h", 2)
    world.run_until(5 * S)
    assert bound(world, "h") == set()
    set_room(world, "node-0", 2)
    world.run_until(8 * S)
    assert len(bound(world, "h")) == 2


# ---- gangs that start together


@pytest.fixture
def pair(world):
    people = ClusterPeople(world, world.dice)
    for name in ("x", "y"):
        people.submit(WantedGang(name, "koordinator", 2, 2, together=("x", "y")))
    return people


def test_a_lost_member_is_replaced_without_those_that_started_with_it(world, pair):
    world.create(NODES, make_nodes("1x4"))
    Kubelets(world, world.dice)
    world.boot("a")
    world.run_until(3 * S)
    assert len(bound(world)) == 4
    world.ask("DELETE", f"{PODS}/x-0")
    world.run_until(12 * S)
    assert len(bound(world)) == 4


def test_a_group_whose_gang_was_incomplete_for_a_while_is_a_group_again(world, pair):
    world.create(NODES, make_nodes("1x3"))
    world.boot("a")
    world.run_until(S)
    world.ask("DELETE", f"{PODS}/x-0")
    world.run_until(6 * S)
    assert bound(world) == set()
    set_room(world, "node-0", 4)
    world.run_until(9 * S)
    assert len(bound(world)) == 4


# ---- what is told


def test_whoever_waits_is_told_when_the_reason_becomes_another(world):
    """One that would have fitted, had somebody else not been before it, does not fit once that one has its seats."""
    world.create(NODES, make_nodes("1x4"))
    add_gang(world, "first", 2)
    world.boot("a")
    world.run_until(S)
    add_gang(world, "wide", 4)
    world.run_until(2 * S)
    add_gang(world, "small", 1)
    world.run_until(4 * S)
    assert reasons(world, "small") == set(), "there is room, and it is kept for another"
    world.create(PODS, make_pods("other", 1, gpus=2, scheduler="somebody", nodeName="node-0"))
    world.run_until(8 * S)
    assert reasons(world, "small") == {"Unschedulable"}


def test_what_was_told_to_nobody_is_told_later(world):
    world.create(NODES, make_nodes("1x1"))
    busy = world.answer("GET", f"{PODS}/nobody")
    refused = [CallFate(instead=type(busy)(429, busy.body, {"retry-after": "1"}))] * 3
    world.server.fate = lambda call: refused.pop() if refused and call.method == "PATCH" else CallFate()
    add_gang(world, "g", 2)
    world.boot("a")
    world.run_until(9 * S)
    assert refused == []
    assert reasons(world, "g") == {"Unschedulable"}


def test_a_server_that_is_down_is_not_asked_for_every_pod(world):
    world.create(NODES, make_nodes("1x1"))
    said = []
    world.on_word = lambda user, word, fields: said.append(word)
    add_gang(world, "g", 8)
    world.boot("a")
    world.later(900_000, world.server.stop)
    world.run_until(11 * S)
    assert said.count("status-silent") <= 10
    world.server.start()
    world.run_until(20 * S)
    assert reasons(world, "g") == {"Unschedulable"}
