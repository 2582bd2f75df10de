"""Gangs of pods in the engine's words, and what it has no word for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kube_objects import NATIVE, gang, members, node, pod, view_one
from msgspec import structs

from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.expressing import (
    Terrain,
    are_hosts_nodes,
    express_marks,
    express_node,
    express_ventures,
    find_cluster_taints,
)
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.topology_wishes import LevelNames
from phalanx.model.rules import Apart, Beside, Evenly, Rather

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
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NAMESPACES = {**TERM, "namespaceSelector": {"matchLabels": {"tier": "ml"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def about(whose, *terms):
    return {"affinity": {whose: {REQUIRED: list(terms)}}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (about("podAntiAffinity", NAMESPACES), f"spec.affinity.podAntiAffinity.{REQUIRED}"),
        (about("podAffinity", NAMESPACES), f"spec.affinity.podAffinity.{REQUIRED}"),
        (
            {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": NAMESPACES}]}}},
            f"spec.affinity.podAntiAffinity.{PREFERRED}",
        ),
    ],
)
def test_what_there_is_no_word_for_is_refused_by_name(spec, field):
    found, unsaid = express_ventures(view_one([pod("p0", **spec)]), make_terrain())
    assert found == ()
    assert [remark.field for remark in unsaid] == [field]


def test_wishes_come_by_weight_and_are_no_conditions():
    def prefer(weight, **expression):
        return {"weight": weight, "preference": {"matchExpressions": [expression]}}

    wishes = [prefer(1, key="zone", operator="In", values=["a"]), prefer(9, key="zone", operator="DoesNotExist")]
    spec = affinity(preferred=wishes)
    spec["affinity"]["podAntiAffinity"] = {PREFERRED: [{"weight": 5, "podAffinityTerm": TERM}]}
    ((venture,), unsaid) = express_ventures(
        view_one([pod("p0", **spec, topologySpreadConstraints=[SPREAD])]), make_terrain()
    )
    assert unsaid == ()
    shape = venture.gang.roles[0].shape
    assert (shape.select, shape.rules) == ((), ())
    assert shape.rather == (
        Rather(9, (("node", ("spot",)),)),
        Rather(5, Apart("zone", "team: app=x")),
        Rather(1, (("zone", ("a",)),)),
        Rather(1, Evenly("zone", "team: all pods", 1)),
    )


def known(terrain, *pods):
    """The terrain, with what its rules say of these pods."""
    for each in pods:
        rules = make_member(each, Surrounding()).shape.constraints.neighbours.must
        name = each.metadata.namespace, each.metadata.name
        terrain.companies.note(name, each.metadata.labels, [rule.company for rule in rules], ())
    return terrain


def relabel(each, **labels):
    return structs.replace(
        each, metadata=structs.replace(each.metadata, labels={**(each.metadata.labels or {}), **labels})
    )


def rules_of(*pods, terrain=None):
    ((venture,), unsaid) = express_ventures(view_one(pods), known(terrain or make_terrain(), *pods))
    assert unsaid == ()
    return [(role.shape.bears, role.shape.rules) for role in venture.gang.roles]


def test_one_per_zone_is_to_be_apart_from_a_word_that_it_bears_itself():
    spec = about("podAntiAffinity", TERM)
    assert rules_of(pod("p0", labels={"app": "x"}, **spec)) == [(("team: app=x",), (Apart("zone", "team: app=x"),))]
    assert rules_of(pod("p0", labels={"app": "y"}, **spec)) == [((), (Apart("zone", "team: app=x"),))]


def test_somebody_elses_rule_makes_a_word_of_what_it_selects():
    terrain = known(make_terrain(), pod("other", **about("podAffinity", TERM)))
    assert rules_of(pod("p0", labels={"app": "x"}), terrain=terrain) == [(("team: app=x",), ())]
    terrain.companies.forget(("team", "other"))
    assert rules_of(pod("p0", labels={"app": "x"}), terrain=terrain) == [((), ())]


def test_beside_and_evenly():
    even = {**SPREAD, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, "nodeTaintsPolicy": "Honor"}
    spec = {**about("podAffinity", TERM), "topologySpreadConstraints": [even]}
    ((_, rules),) = rules_of(pod("p0", **spec))
    assert rules == (Beside("zone", "team: app=x"), Evenly("zone", "team: all pods", 1, 2, True, True))


@pytest.mark.parametrize(("hosts_are_nodes", "by"), [(True, "node"), (False, "kubernetes.io/hostname")])
def test_one_per_host_is_one_per_node_where_each_node_is_a_host(hosts_are_nodes, by):
    terrain = replace(make_terrain(), hosts_are_nodes=hosts_are_nodes)
    spec = about("podAntiAffinity", {**TERM, "topologyKey": "kubernetes.io/hostname"})
    ((_, (rule,)),) = rules_of(pod("p0", **spec), terrain=terrain)
    assert rule == Apart(by, "team: app=x")


def test_hosts_are_nodes_if_each_has_a_name_of_its_own():
    host = "kubernetes.io/hostname"
    assert are_hosts_nodes([node("a", labels={host: "x"}), node("b", labels={host: "y"})])
    assert not are_hosts_nodes([node("a", labels={host: "x"}), node("b", labels={host: "x"})])
    assert not are_hosts_nodes([node("a", labels={host: "x"}), node("b")])


def ported(*ports):
    return {"containers": [{"name": "main", "ports": [{"containerPort": 1, **port} for port in ports]}]}


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, True),
        ({"hostPort": 80}, {"hostPort": 81}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.1"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
    ],
)
def test_ports_of_a_host_meet_as_the_api_says(one, other, meet):
    ((_, rules),), ((bears, theirs),) = rules_of(pod("p0", **ported(one))), rules_of(pod("p1", **ported(other)))
    assert bool({rule.word for rule in rules} & set(bears)) is meet
    assert {rule.by for rule in (*rules, *theirs)} == {"node"}


def test_members_of_one_role_that_rules_tell_apart_are_roles_of_their_own():
    term = {**TERM, "labelSelector": {"matchLabels": {"app": "a"}}}
    terrain = known(make_terrain(), pod("x", **about("podAffinity", term)))
    pods = [relabel(each, app="ab"[at % 2]) for at, each in enumerate(members(NATIVE, 4))]
    ((venture,), _) = express_ventures(view_one(pods, gang(NATIVE, 4)), known(terrain, *pods))
    assert [(role.name, role.sizes.least, role.shape.bears) for role in venture.gang.roles] == [
        ("member", 2, ("team: app=a",)), ("member.1", 2, ()),
    ]  # fmt: skip


def test_one_in_each_of_two_kinds_of_domains_is_refused_by_name():
    both = about("podAntiAffinity", TERM, {**TERM, "topologyKey": "ex/rack"})
    one = pod("p0", labels={"app": "x"}, **both)
    found, unsaid = express_ventures(view_one([one]), known(make_terrain(), one))
    assert found == ()
    assert [remark.field for remark in unsaid] == ["spec.affinity.podAntiAffinity"]


def test_what_a_pod_that_sits_is_to_others():
    one = pod("p0", labels={"app": "x"}, **about("podAntiAffinity", TERM), **ported({"hostPort": 80}))
    terrain = known(make_terrain(), one)
    shape = make_member(one, Surrounding()).shape
    assert express_marks(shape, terrain, ("team", "p0")) == (
        "team: app=x", "host port TCP/80", "host port TCP/80 on all addresses",
        ("host port TCP/80", "node"), ("team: app=x", "zone"),
    )  # fmt: skip
    assert express_marks(None, terrain, ("team", "p0")) == ("team: app=x",)


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
