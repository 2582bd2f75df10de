"""The rules of Kubernetes, as its own helpers answer: `k8s.io/component-helpers` and `apimachinery` v0.37.1.

The cases were drawn and answered once (`recorded/draw.py`, `recorded/answers.go.txt`), so that nobody needs Go to be held to
them. A version with other rules is recorded anew and differs here.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from kube_objects import read

from phalanx.control.spec.errors import BadText
from phalanx.frontends.kube.node_rules import find_node_rules
from phalanx.frontends.kube.objects.metadata import LabelSelector
from phalanx.frontends.kube.objects.node import NodeObject
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.quantities import PODS, parse_quantity
from phalanx.frontends.kube.requests import find_demand
from phalanx.frontends.kube.selectors import find_selector
from phalanx.frontends.kube.taints import tolerates

CASES = [json.loads(line) for line in (Path(__file__).parent / "recorded" / "cases.jsonl").read_text().splitlines()]
INT64 = 1 << 63


def of_kind(kind):
    return [case for case in CASES if case["Kind"] == kind]


def round_up(exact):
    return -(-exact.numerator // exact.denominator)


@pytest.mark.parametrize("case", of_kind("q"), ids=lambda case: case["Text"])
def test_quantities(case):
    told = case["Answer"]
    try:
        exact = parse_quantity(case["Text"])
    except BadText:
        assert "err" in told
        return
    assert "err" not in told
    # There amounts are clamped to what 64 bits hold, and negative ones are rounded the other way.
    if exact >= 0 and exact * 1000 < INT64:
        assert (round_up(exact), round_up(exact * 1000)) == (told["value"], told["milli"])


@pytest.mark.parametrize("case", of_kind("r"), ids=range(len(of_kind("r"))))
def test_requests(case):
    found = {resource: units for resource, units in find_demand(read(case["Pod"], Pod)).amounts if resource != PODS}
    assert found == {resource: units for resource, units in case["Answer"]["r"].items() if units}


@pytest.mark.parametrize("case", of_kind("n"), ids=range(len(of_kind("n"))))
def test_node_affinity(case):
    remarks = []
    rules = find_node_rules(read(case["Pod"], Pod).spec, remarks)
    node, told = read(case["Node"], NodeObject), case["Answer"]
    assert (remarks, told["err"], "perr" in told) == ([], False, False)
    labels = node.metadata.labels or {}
    assert rules.admits(node.metadata.name, labels) is told["ok"]
    assert rules.score(node.metadata.name, labels) == told["score"]


@pytest.mark.parametrize("case", of_kind("t"), ids=range(len(of_kind("t"))))
def test_tolerations(case):
    tolerations = read(case["Pod"], Pod).spec.tolerations or ()
    taints = read(case["Node"], NodeObject).spec.taints
    assert [tolerates(tolerations, taint) for taint in taints] == case["Answer"]["t"]


@pytest.mark.parametrize("case", of_kind("l"), ids=range(len(of_kind("l"))))
def test_selectors(case):
    remarks = []
    written = case["Selector"]
    selector = find_selector(None if written is None else read(written, LabelSelector), "spec", remarks)
    assert remarks == []
    assert (selector is not None and selector.matches(case["Labels"])) is case["Answer"]["ok"]


def test_the_cases_are_worth_asking():
    """Both answers are common, or the tests above would pass by saying always the same."""
    for kind, key in (("n", "ok"), ("l", "ok")):
        answers = Counter(case["Answer"][key] for case in of_kind(kind))
        assert min(answers.values()) >= 20
    assert sum(any(case["Answer"]["t"]) for case in of_kind("t")) >= 15
