"""What pods ask about other pods, as values: at most k, not where, only where, evenly."""

import pytest
from kube_objects import pod, said

from phalanx.frontends.kube.neighbours import NotWhere, OnlyWhere, find_neighbours

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
HOST = "kubernetes.io/hostname"
LABELS = {"app": "a", "hash": "1"}


def neighbours(namespace_labels=None, **spec):
    remarks = []
    found = find_neighbours(pod(labels=LABELS, **spec), namespace_labels, remarks)
    assert remarks == []
    return found


def away(selector, key=HOST, **more):
    return {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": selector, **more}]}}}


def near(selector, key="zone", **more):
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": selector, **more}]}}}


def spread(**more):
    usual = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": of("a")}
    return {"topologySpreadConstraints": [{**usual, **more}]}


def of(app):
    return {"matchLabels": {"app": app}}


def test_one_pod_per_host_is_not_where_others_of_its_kind_are():
    (rule,) = neighbours(**away(of("a"))).must
    assert rule == NotWhere(HOST, rule.company)
    assert rule.company.includes("team", None, {"app": "a"})
    assert not rule.company.includes("other", None, {"app": "a"})
    assert not rule.company.includes("team", None, {"app": "b"})


def test_away_from_others_says_nothing_of_itself():
    (rule,) = neighbours(**away(of("db"), "zone")).must
    assert isinstance(rule, NotWhere)
    assert rule.key == "zone"


def test_near_others_and_near_its_own():
    (others,) = neighbours(**near(of("db"))).must
    (own,) = neighbours(**near(of("a"))).must
    assert isinstance(others, OnlyWhere)
    assert (others.itself, own.itself) == (False, True)


@pytest.mark.parametrize(
    ("more", "namespace", "labels", "included"),
    [
        ({}, "team", {}, True),
        ({}, "other", {}, False),
        ({"namespaces": ["other"]}, "other", {}, True),
        ({"namespaces": ["other"]}, "team", {}, False),
        ({"namespaceSelector": {}}, "anywhere", {}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "ml"}}}, "x", {"tier": "ml"}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "ml"}}}, "x", {}, False),
        ({"namespaceSelector": {"matchLabels": {"tier": "ml"}}, "namespaces": ["y"]}, "y", {}, True),
    ],
)
def test_namespaces(more, namespace, labels, included):
    rule = neighbours(**away(of("a"), **more)).must[-1]
    assert rule.company.includes(namespace, labels, {"app": "a"}) is included


def test_whether_it_is_one_of_them_is_asked_with_the_labels_of_its_namespace():
    spec = near(of("a"), namespaceSelector={"matchLabels": {"tier": "ml"}})
    assert [rule.itself for rule in neighbours({"tier": "ml"}, **spec).must] == [True]
    assert [rule.itself for rule in neighbours({"tier": "x"}, **spec).must] == [False]


def test_without_a_selector_nobody_is_meant_and_with_an_empty_one_everybody():
    nobody, everybody = neighbours(**away(None)).must, neighbours(**away({})).must
    assert not nobody[0].company.includes("team", None, LABELS)
    assert [type(rule) for rule in everybody] == [NotWhere]


def test_keys_narrow_the_selector_to_its_own_values():
    same = neighbours(**away(of("a"), matchLabelKeys=["hash", "absent"])).must[-1].company
    assert same.includes("team", None, {"app": "a", "hash": "1"})
    assert not same.includes("team", None, {"app": "a", "hash": "2"})
    other = neighbours(**away(of("a"), mismatchLabelKeys=["hash"])).must
    assert [type(rule) for rule in other] == [NotWhere]
    assert other[0].company.includes("team", None, {"app": "a", "hash": "2"})


def test_spread_has_the_defaults_of_the_api():
    (rule,) = neighbours(**spread()).must
    assert (rule.key, rule.max_skew, rule.itself, rule.min_domains) == ("zone", 1, True, 1)
    assert (rule.heeds_node_rules, rule.heeds_taints) == (True, False)
    (other,) = neighbours(**spread(minDomains=3, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor", maxSkew=2)).must
    assert (other.max_skew, other.min_domains, other.heeds_node_rules, other.heeds_taints) == (2, 3, False, True)


def test_wishes_stay_wishes():
    term = {"topologyKey": "zone", "labelSelector": of("a")}
    affinity = {"podAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": term}]},
                "podAntiAffinity": {PREFERRED: [{"weight": 9, "podAffinityTerm": term}]}}  # fmt: skip
    found = neighbours(affinity=affinity, **spread(whenUnsatisfiable="ScheduleAnyway"))
    assert found.must == ()
    assert [(wish.weight, type(wish.rule).__name__) for wish in found.rather] == [
        (7, "OnlyWhere"), (9, "NotWhere"), (1, "EvenSpread"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (away(of("a"), ""), "topologyKey"),
        (away({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}), "matchExpressions[0]"),
        (spread(maxSkew=0), "maxSkew"),
        (spread(minDomains=0), "minDomains"),
        (spread(whenUnsatisfiable="Never"), "whenUnsatisfiable"),
        (spread(nodeTaintsPolicy="Perhaps"), "nodeTaintsPolicy"),
        (spread(topologyKey=""), "topologyKey"),
        (
            {"affinity": {"podAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": {"topologyKey": "z"}}]}}},
            "weight",
        ),
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(spec, field):
    remarks = []
    find_neighbours(pod(**spec), None, remarks)
    ((kind, where),) = said(remarks)
    assert kind == "Invalid"
    assert where.endswith(field)
