"""Which nodes a pod may use: every operator, terms as alternatives, expressions as conjunctions."""

import pytest
from kube_objects import pod, said

from phalanx.frontends.kube.node_rules import find_node_rules

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def rules_of(**spec):
    remarks = []
    found = find_node_rules(pod(**spec).spec, remarks)
    assert remarks == []
    return found


def affinity(*terms, preferred=()):
    node = {**({REQUIRED: {"nodeSelectorTerms": list(terms)}} if terms else {}), PREFERRED: list(preferred)}
    return {"affinity": {"nodeAffinity": node}}


def term(*lines):
    return {"matchExpressions": [expression(*line) for line in lines]}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("line", "labels", "holds"),
    [
        (("gpu", "In", "h200", "h100"), {"gpu": "h100"}, True),
        (("gpu", "In", "h200"), {"gpu": "a100"}, False),
        (("gpu", "In", "h200"), {}, False),
        (("gpu", "NotIn", "a100"), {"gpu": "h100"}, True),
        (("gpu", "NotIn", "a100"), {"gpu": "a100"}, False),
        (("gpu", "NotIn", "a100"), {}, True),
        (("gpu", "Exists"), {"gpu": ""}, True),
        (("gpu", "Exists"), {}, False),
        (("gpu", "DoesNotExist"), {}, True),
        (("gpu", "DoesNotExist"), {"gpu": ""}, False),
        (("driver", "Gt", "500"), {"driver": "550"}, True),
        (("driver", "Gt", "500"), {"driver": "500"}, False),
        (("driver", "Gt", "500"), {"driver": "new"}, False),
        (("driver", "Gt", "500"), {}, False),
        (("driver", "Lt", "500"), {"driver": "-3"}, True),
        (("driver", "Lt", "500"), {"driver": "9" * 40}, False),
        (("driver", "Lt", "500"), {"driver": "1.5"}, False),
    ],
)
def test_operators(line, labels, holds):
    assert rules_of(**affinity(term(line))).admits("n0", labels) is holds


def test_terms_are_alternatives_and_expressions_are_not():
    rules = rules_of(**affinity(term(("a", "Exists"), ("b", "Exists")), term(("c", "Exists"))))
    assert rules.admits("n0", {"a": "", "b": ""})
    assert rules.admits("n0", {"c": ""})
    assert not rules.admits("n0", {"a": ""})


def test_selector_and_affinity_must_both_hold():
    rules = rules_of(nodeSelector={"zone": "a"}, **affinity(term(("gpu", "Exists"))))
    assert rules.admits("n0", {"zone": "a", "gpu": ""})
    assert not rules.admits("n0", {"zone": "a"})
    assert not rules.admits("n0", {"gpu": ""})


def test_no_rule_admits_every_node():
    assert rules_of().admits("n0", {})
    assert rules_of(affinity={}).admits("n0", {})


def test_an_empty_term_matches_no_node_and_neither_does_a_list_of_none():
    assert not rules_of(**affinity({})).admits("n0", {"a": ""})
    assert rules_of(**affinity({}, term(("a", "Exists")))).admits("n0", {"a": ""})
    assert not rules_of(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}).admits("n0", {})


def test_a_node_by_name():
    only = {"matchFields": [expression("metadata.name", "In", "n1")]}
    assert rules_of(**affinity(only)).admits("n1", {})
    assert not rules_of(**affinity(only)).admits("n2", {"metadata.name": "n1", "metadata name": "n1"})
    other = {"matchFields": [expression("metadata.name", "NotIn", "n1")]}
    assert rules_of(**affinity(other)).admits("n2", {})


def test_wishes_are_weighed():
    preferred = [
        {"weight": 10, "preference": term(("a", "Exists"))},
        {"weight": 3, "preference": term(("b", "NotIn", "x"))},
    ]
    rules = rules_of(**affinity(preferred=preferred))
    assert rules.admits("n0", {})
    assert (rules.score("n0", {"a": ""}), rules.score("n0", {})) == (13, 3)


def test_a_wish_that_says_nothing_is_worth_nothing():
    assert rules_of(**affinity(preferred=[{"weight": 50, "preference": {}}])).score("n0", {"a": ""}) == 0


def test_equal_wishes_are_equal_however_they_are_written():
    one = rules_of(**affinity(term(("a", "In", "x", "y", "x"), ("b", "Exists"))))
    other = rules_of(**affinity(term(("b", "Exists"), ("a", "In", "y", "x"))))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (affinity(term(("a", "Like", "x"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("", "Exists"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "In"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "Exists", "x"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "In", "x", "-3"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "In", "x" * 64))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "Gt", "+7"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "Gt", "x"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity(term(("a", "Gt", "1", "2"))), "nodeSelectorTerms[0].matchExpressions[0]"),
        (affinity({"matchFields": [expression("metadata.uid", "In", "x")]}), "nodeSelectorTerms[0].matchFields[0]"),
        (
            affinity({"matchFields": [expression("metadata.name", "In", "x", "y")]}),
            "nodeSelectorTerms[0].matchFields[0]",
        ),
        (affinity(preferred=[{"weight": 0, "preference": {}}]), "[0].weight"),
        (affinity(preferred=[{"weight": 101, "preference": {}}]), "[0].weight"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(spec, field):
    remarks = []
    find_node_rules(pod(**spec).spec, remarks)
    ((kind, where),) = said(remarks)
    assert kind == "Invalid"
    assert where.endswith(field)
