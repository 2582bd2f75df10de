"""Taints and tolerations, and what a node's condition means without a taint."""

import pytest
from kube_objects import node, pod, said

from phalanx.frontends.kube.objects.node import Taint
from phalanx.frontends.kube.taints import (
    check_tolerations,
    count_unwelcome,
    find_repelling,
    find_taints,
    taint_word,
    tolerated_words,
    tolerates,
)

SPOT = Taint("spot", "yes", "NoSchedule")


def tolerations(*written):
    return pod(tolerations=list(written)).spec.tolerations


@pytest.mark.parametrize(
    ("toleration", "taint", "does"),
    [
        ({"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, SPOT, True),
        ({"key": "spot", "value": "yes"}, SPOT, True),
        ({"key": "spot", "value": "no"}, SPOT, False),
        ({"key": "other", "value": "yes"}, SPOT, False),
        ({"key": "spot", "operator": "Exists"}, SPOT, True),
        ({"operator": "Exists"}, SPOT, True),
        ({"operator": "Exists", "effect": "NoExecute"}, SPOT, False),
        ({"key": "spot", "operator": "Exists", "effect": "NoExecute"}, Taint("spot", "", "NoExecute"), True),
        ({"key": "spot", "operator": "Maybe", "value": "yes"}, SPOT, False),
        ({"key": "sla", "operator": "Gt", "value": "950"}, Taint("sla", "999", "NoSchedule"), True),
        ({"key": "sla", "operator": "Gt", "value": "950"}, Taint("sla", "950", "NoSchedule"), False),
        ({"key": "sla", "operator": "Lt", "value": "5"}, Taint("sla", "3", "NoSchedule"), True),
        ({"key": "sla", "operator": "Lt", "value": "5"}, Taint("sla", "x", "NoSchedule"), False),
        ({"key": "sla", "operator": "Lt", "value": "5"}, Taint("sla", "-3", "NoSchedule"), True),
        ({"key": "sla", "operator": "Lt", "value": "5"}, Taint("sla", "03", "NoSchedule"), False),
        ({"key": "sla", "operator": "Lt", "value": "+5"}, Taint("sla", "3", "NoSchedule"), False),
    ],
)
def test_what_tolerates_what(toleration, taint, does):
    assert tolerates(tolerations(toleration), taint) is does


def test_no_schedule_and_no_execute_keep_away_and_prefer_does_not():
    for effect in ("NoSchedule", "NoExecute"):
        assert find_repelling((), [Taint("a", "", effect)]) == Taint("a", "", effect)
    wish = Taint("a", "", "PreferNoSchedule")
    assert find_repelling((), [wish]) is None
    assert count_unwelcome((), [wish, SPOT]) == 1
    assert count_unwelcome(tolerations({"operator": "Exists"}), [wish]) == 0


@pytest.mark.parametrize(
    ("spec", "status", "keys"),
    [
        ({}, {}, []),
        ({"unschedulable": True}, {}, ["node.kubernetes.io/unschedulable"]),
        ({}, {"conditions": [{"type": "Ready", "status": "True"}]}, []),
        ({}, {"conditions": [{"type": "Ready", "status": "False"}]}, ["node.kubernetes.io/not-ready"]),
        ({}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}, ["node.kubernetes.io/unreachable"]),
        (
            {},
            {"conditions": [{"type": "NetworkUnavailable", "status": "True"}]},
            ["node.kubernetes.io/network-unavailable"],
        ),
        ({}, {"conditions": [{"type": "DiskPressure", "status": "True"}]}, []),  # its controller taints it
        (
            {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
            {},
            ["node.kubernetes.io/unschedulable"],
        ),
    ],
)
def test_conditions_count_like_the_taints_that_stand_for_them(spec, status, keys):
    assert [taint.key for taint in find_taints(node(spec=spec, status=status))] == keys


def test_the_engine_gets_words():
    taints = [SPOT, Taint("dedicated", "ml", "NoExecute"), Taint("slow", "", "PreferNoSchedule")]
    assert [taint_word(taint) for taint in taints[:2]] == ["spot=yes:NoSchedule", "dedicated=ml:NoExecute"]
    assert tolerated_words(tolerations({"key": "spot", "operator": "Exists"}), taints) == ("spot=yes:NoSchedule",)
    assert tolerated_words(tolerations({"operator": "Exists"}), taints) == (
        "dedicated=ml:NoExecute",
        "spot=yes:NoSchedule",
    )
    assert tolerated_words((), taints) == ()


def test_a_toleration_that_nobody_understands_is_told():
    remarks = []
    check_tolerations(
        tolerations({"key": "a", "operator": "Maybe"}, {"operator": "Equal"}, {"operator": "Exists"}), remarks
    )
    assert said(remarks) == [("Invalid", "spec.tolerations[0].operator"), ("Invalid", "spec.tolerations[1].key")]
