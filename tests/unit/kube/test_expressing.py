"""Gangs of pods in the engine's words, and what it has no word for."""

from __future__ import annotations

import pytest
from kube_objects import NATIVE, gang, members, node, pod, view_one

from phalanx.frontends.kube.expressing import Terrain, express_node, express_ventures, find_cluster_taints
from phalanx.frontends.kube.topology_wishes import LevelNames

LEVELS = LevelNames(("block", "rack"), {"ex/block": "block", "ex/rack": "rack"}, {})
NO_ROOM = {"key": "spot", "value": "", "effect": "NoSchedule"}


def make_terrain():
    nodes = [
        node(f"n{at}", labels={"ex/block": f"b{at // 4}", "ex/rack": f"r{at // 2}", "zone": "ab"[at % 2]})
        for at in range(8)
    ]
    nodes.append(node("spot", spec={"taints": [NO_ROOM]}))
    by_name = {each.metadata.name: each for each in nodes}
    return Terrain(by_name, find_cluster_taints(nodes), LEVELS)


def ventures_of(view):
    found, unsaid = express_ventures(view, make_terrain())
    assert unsaid == ()
    return found


def affinity(*expressions, preferred=()):
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms} if expressions else {}
    rather = {"preferredDuringSchedulingIgnoredDuringExecution": list(preferred)} if preferred else {}
    return {"affinity": {"nodeAffinity": {**required, **rather}}}


def test_as_many_as_make_it_whole_start_at_one_instant_and_the_others_then():
    (venture,) = ventures_of(view_one(members(NATIVE, 5), gang(NATIVE, 3)))
    assert [role.sizes.allowed for role in venture.gang.roles] == [(3,)]
    assert [member.name for member in venture.members[0]] == ["g-0", "g-1", "g-2"]
    view = view_one([*members(NATIVE, 3, node="n0"), *members(NATIVE, 2, start=3)], gang(NATIVE, 3))
    assert [each.gang.members_min for each in ventures_of(view)] == [1, 1]
    assert len({each.gang.name for each in ventures_of(view)}) == 2


def test_a_gang_that_lacks_members_is_not_asked_about():
    assert ventures_of(view_one(members(NATIVE, 2), gang(NATIVE, 3))) == ()


@pytest.mark.parametrize(
    ("spec", "select"),
    [
        ({"nodeSelector": {"zone": "a"}}, (("zone", ("a",)),)),
        (affinity({"key": "zone", "operator": "In", "values": ["b", "a"]}), (("zone", ("a", "b")),)),
        (
            affinity({"key": "zone", "operator": "NotIn", "values": ["a"]}),
            (("node", ("n1", "n3", "n5", "n7", "spot")),),
        ),
        (affinity({"key": "zone", "operator": "DoesNotExist"}), (("node", ("spot",)),)),
        (
            {"nodeSelector": {"zone": "a"}, **affinity({"key": "ex/rack", "operator": "Exists"})},
            (("node", tuple(f"n{at}" for at in range(8))), ("zone", ("a",))),
        ),
        (
            {"nodeSelector": {"zone": "a"}, **affinity({"key": "zone", "operator": "In", "values": ["b"]})},
            (("zone", ()),),
        ),
        ({"nodeSelector": {"node": "n1"}}, (("label:node", ("n1",)),)),
    ],
)
def test_rules_about_nodes_are_labels_or_names(spec, select):
    (venture,) = ventures_of(view_one([pod("p0", **spec)]))
    assert venture.gang.roles[0].shape.select == select


def test_tolerations_are_the_words_of_taints_that_are_there():
    (venture,) = ventures_of(view_one([pod("p0", tolerations=[{"operator": "Exists"}])]))
    assert venture.gang.roles[0].shape.tolerate == ("spot=:NoSchedule",)
    assert express_node(make_terrain().nodes["spot"], LEVELS).taints == ("spot=:NoSchedule",)


TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
PREFERRED = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
        ({"topologySpreadConstraints": [SPREAD]}, "spec.topologySpreadConstraints"),
        (affinity(preferred=[PREFERRED]), "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"),
        (
            {"containers": [{"name": "main", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
            "spec.containers[].ports[].hostPort",
        ),
    ],
)
def test_what_there_is_no_word_for_is_refused_by_name(spec, field):
    found, unsaid = express_ventures(view_one([pod("p0", **spec)]), make_terrain())
    assert found == ()
    assert [remark.field for remark in unsaid] == [field]


def test_a_replacement_belongs_into_the_domain_of_the_others():
    required = {"schedulingConstraints": {"topology": [{"key": "ex/rack"}]}}
    pods = [*members(NATIVE, 3, node="n5"), *members(NATIVE, 1, start=3)]
    (venture,) = ventures_of(view_one(pods, gang(NATIVE, 4, **required)))
    assert venture.gang.topology.require == "rack"
    assert venture.gang.roles[0].shape.select == (("block", ("b1",)), ("rack", ("r2",)))


def test_devices_come_first_among_the_kinds_of_a_node():
    status = {"allocatable": {"cpu": "8", "ex/gpu": "4", "memory": "1Ki", "pods": "10"}}
    found = express_node(node("n", status=status), LEVELS)
    assert list(found.resources.items()) == [("ex/gpu", 4000), ("cpu", 8000), ("memory", 1024), ("pods", 10_000)]
