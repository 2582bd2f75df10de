"""Racks: all of a gang in one, in rank order, as each dialect says it; and what becomes of a lost member."""

from __future__ import annotations

import json

import pytest
from kube_schedulers import NATIVE, NODES, PODS, bound, clear, ensure_kinds, running, wait_bound

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]

RACK, BLOCK = "example.com/rack", "example.com/block"
LEVELS = f"topology: [{{name: block, label: {BLOCK}}}, {{name: rack, label: {RACK}, layer: rackLayer}}]"
NODE_INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def plane(installed):
    kubelet = FakeKubelet(installed.api)
    clear(installed, kubelet)  # what others left
    # Four racks of two nodes, eight devices each; two racks are a block.
    installed.api.create_all(NODES, make_nodes("8x4", levels={RACK: 2, BLOCK: 4}))
    yield installed
    clear(installed, kubelet)


@pytest.fixture
def scheduler(plane, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(LEVELS)
    with running(plane, tmp_path, "--config", str(path)) as found:
        yield found


def native(plane, name, level, count):
    wish = {"schedulingConstraints": {"topology": [{"key": level}]}}
    made = plane.api.create(NATIVE, make_native_gang(name, count, **wish))
    assert made["spec"]["schedulingConstraints"] == wish["schedulingConstraints"]
    return make_pods(name, count, scheduler="phalanx", native_gang=name)


def koordinator(plane, name, level, count, strategy="MustGather", multiple=None):
    layer = "rackLayer" if level == RACK else "block"
    rule = {"layer": layer, "strategy": strategy, **({"podCountMultiple": multiple} if multiple else {})}
    prefix = "gang.scheduling.koordinator.sh"
    said = {
        f"{prefix}/name": name,
        f"{prefix}/min-available": str(count),
        f"{prefix}/network-topology-spec": json.dumps({"gatherStrategy": [rule]}),
    }
    return make_pods(name, count, scheduler="phalanx", annotations=said)


def volcano(plane, name, level, count, mode="hard"):
    (kind,) = ensure_kinds(plane, "volcano")
    of = {"apiVersion": f"{kind.group}/{kind.version}", "kind": "PodGroup", "metadata": {"name": name}}
    network = {"mode": mode, "highestTierAllowed": 1 if level == RACK else 2}
    plane.api.create(kind.place(), {**of, "spec": {"minMember": count, "networkTopology": network}})
    return make_pods(name, count, scheduler="phalanx", annotations={"scheduling.k8s.io/group-name": name})


def ranks(plane, prefix):
    found = {}
    for pod in plane.api.get(PODS)["items"]:
        if pod["metadata"]["name"].startswith(prefix):
            found[pod["metadata"]["name"]] = int(pod["metadata"]["annotations"]["phalanx.dev/rank"])
    return found


def node_number(node):
    return int(node.rpartition("-")[2])


@pytest.mark.parametrize("dialect", [native, koordinator, volcano])
def test_all_of_it_in_one_rack_in_rank_order(plane, scheduler, dialect):
    """There is room for it in every two racks, and no rack but the last has eight."""
    plane.api.create_all(PODS, make_pods("other", 3, scheduler="phalanx", nodeName="node-0"))
    for rack, name in ((1, "x"), (2, "y")):
        plane.api.create_all(PODS, make_pods(name, 1, scheduler="somebody", nodeName=f"node-{2 * rack}"))
    pods = dialect(plane, "a", RACK, 8)
    # Made in any order; what their framework numbers them by counts, and not their names.
    for at, pod in enumerate(pods):
        pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], NODE_INDEX: str(7 - at)}
    plane.api.create_all(PODS, pods)
    there = wait_bound(plane, 8, "a")
    assert ranks(plane, "a") == {f"a-{at}": 7 - at for at in range(8)}
    assert set(there.values()) == {"node-6", "node-7"}
    by_rank = [there[f"a-{7 - rank}"] for rank in range(8)]
    assert by_rank in (["node-6"] * 4 + ["node-7"] * 4, ["node-7"] * 4 + ["node-6"] * 4), "neighbours sit together"


@pytest.mark.parametrize("dialect", [native, koordinator, volcano])
def test_one_that_no_rack_holds_waits_although_there_is_room(plane, scheduler, dialect):
    plane.api.create_all(
        PODS, [make_pods(f"x{at}", 1, scheduler="somebody", nodeName=f"node-{2 * at}")[0] for at in range(4)]
    )
    plane.api.create_all(PODS, dialect(plane, "a", RACK, 8))
    wait_until(lambda: plane.api.get(f"{PODS}/a-0")["status"].get("conditions"), "its condition")
    assert bound(plane, "a") == {}
    # And in a block there is room for one of twelve.
    plane.api.create_all(PODS, dialect(plane, "b", BLOCK, 12))
    there = wait_bound(plane, 12, "b")
    assert len({node_number(node) // 4 for node in there.values()}) == 1


@pytest.mark.parametrize(
    "dialect",
    [
        lambda *rest: koordinator(*rest, strategy="PreferGather"),
        lambda *rest: volcano(*rest, mode="soft"),
    ],
    ids=["koordinator", "volcano"],
)
def test_a_wish_is_followed_where_it_can_be_and_keeps_nobody_out(plane, scheduler, dialect):
    plane.api.create_all(PODS, dialect(plane, "a", RACK, 8))
    there = wait_bound(plane, 8, "a")
    assert len({node_number(node) // 2 for node in there.values()}) == 1
    plane.api.create_all(PODS, dialect(plane, "b", RACK, 20))
    wait_bound(plane, 20, "b")


def test_groups_of_neighbours_are_each_in_one_rack(plane, scheduler):
    """Eight in four racks of which none holds more than five: twos, each in one rack."""
    plane.api.create_all(
        PODS, [make_pods(f"x{at}", 1, gpus=3, scheduler="somebody", nodeName=f"node-{2 * at}")[0] for at in range(4)]
    )
    plane.api.create_all(PODS, koordinator(plane, "a", RACK, 16, "PreferGather", multiple=4))
    there = wait_bound(plane, 16, "a")
    for first in range(0, 16, 4):
        racks = {node_number(there[f"a-{at}"]) // 2 for at in range(first, first + 4)}
        assert len(racks) == 1, there


def test_a_replacement_stays_in_the_rack_and_has_the_rank_that_its_framework_gave_it(plane, scheduler):
    pods = native(plane, "a", RACK, 6)
    for at, pod in enumerate(pods):
        pod["metadata"]["labels"][NODE_INDEX] = str(at)
    plane.api.create_all(PODS, pods)
    there = wait_bound(plane, 6, "a")
    plane.api.delete(f"{PODS}/a-2")
    FakeKubelet(plane.api).end_deleted()
    again = pods[2]
    again["metadata"]["name"] = "a-again"
    plane.api.create(PODS, again)
    now = wait_bound(plane, 6, "a")
    assert {node_number(node) // 2 for node in now.values()} == {node_number(next(iter(there.values()))) // 2}
    assert ranks(plane, "a-again") == {"a-again": 2}
