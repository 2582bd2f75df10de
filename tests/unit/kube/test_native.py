"""Kubernetes' own PodGroup, v1beta1 and v1alpha2."""

import pytest
from kube_objects import NATIVE, gang, group, members, said, view_one

from phalanx.frontends.kube.gang_view import Disruption, MatchPolicy

ALPHA = "scheduling.k8s.io/v1alpha2"


def test_a_basic_group_starts_with_whoever_fits():
    view = view_one(members(NATIVE, 5), group(NATIVE, schedulingPolicy={"basic": {}}))
    assert (view.outstanding, view.startable) == (1, True)


@pytest.mark.parametrize("policy", [{}, {"basic": {}, "gang": {"minCount": 2}}])
def test_a_policy_must_be_one_of_two(policy):
    view = view_one(members(NATIVE, 2), group(NATIVE, schedulingPolicy=policy))
    assert said(view.blockers) == [("Invalid", "spec.schedulingPolicy")]


@pytest.mark.parametrize(
    ("mode", "disruption"),
    [
        (None, Disruption.SINGLE),
        ({"single": {}}, Disruption.SINGLE),
        ({"all": {}}, Disruption.ALL),
        ("Pod", Disruption.SINGLE),
        ("PodGroup", Disruption.ALL),
        ("Both", Disruption.SINGLE),
    ],
)
def test_how_it_may_be_disrupted_in_both_spellings(mode, disruption):
    view = view_one(members(NATIVE, 1), gang(NATIVE, 1, disruptionMode=mode))
    assert view.said.disruption is disruption
    assert view.startable


def test_the_version_before_is_read_alike():
    old = group(
        ALPHA,
        schedulingPolicy={"gang": {"minCount": 3}},
        disruptionMode="PodGroup",
        podGroupTemplateRef={"workload": {}},
    )
    new = gang(NATIVE, 3, disruptionMode={"all": {}}, workloadRef={"workloadName": "w", "templateName": "t"})
    assert view_one(members(NATIVE, 3), old) == view_one(members(NATIVE, 3), new)


def test_one_level_of_the_network_is_required_by_label():
    view = view_one(
        members(NATIVE, 1), gang(NATIVE, 1, schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    )
    (level,) = view.said.topology.require
    assert (level.by, level.name) == ("label", "example.com/rack")


@pytest.mark.parametrize("topology", [[{"key": "a"}, {"key": "b"}], [{"key": ""}], [{}]])
def test_another_number_of_levels_is_told(topology):
    view = view_one(members(NATIVE, 1), gang(NATIVE, 1, schedulingConstraints={"topology": topology}))
    assert said(view.blockers) == [("Invalid", "spec.schedulingConstraints.topology")]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}, "spec.resourceClaims"),
        ({"parentCompositePodGroupName": "parent"}, "spec.parentCompositePodGroupName"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(spec, field):
    view = view_one(members(NATIVE, 1), gang(NATIVE, 1, **spec))
    assert said(view.blockers) == [("Unsupported", field)]
    assert view.blockers[0].subject == "PodGroup (scheduling.k8s.io) g"


def test_the_priority_of_group_and_pods_must_agree():
    assert view_one(members(NATIVE, 2, priority=7), gang(NATIVE, 2, priority=7)).priority == 7
    view = view_one(members(NATIVE, 2, priority=7), gang(NATIVE, 2, priority=8))
    assert said(view.blockers) == [("Invalid", "spec.priority")]


def test_a_class_stands_for_its_priority_where_admission_has_not_been():
    view = view_one(
        members(NATIVE, 2, priority=9), gang(NATIVE, 2, priorityClassName="high"), priority_by_class={"high": 9}
    )
    assert (view.priority, view.startable) == (9, True)


def test_a_group_may_forbid_to_take_room_from_others():
    view = view_one(members(NATIVE, 2, preemptionPolicy="Never"), gang(NATIVE, 2, preemptionPolicy="Never"))
    assert not view.preempts
    clash = view_one(members(NATIVE, 2), gang(NATIVE, 2, preemptionPolicy="Never"))
    assert said(clash.blockers) == [("Invalid", "spec.preemptionPolicy")]


@pytest.mark.parametrize("condition", ["PodGroupInitiallyScheduled", "PodGroupScheduled"])
def test_that_it_was_whole_once_is_on_record(condition):
    status = {"conditions": [{"type": condition, "status": "True"}]}
    assert view_one(members(NATIVE, 1), gang(NATIVE, 4, status=status)).satisfied
    assert not view_one(members(NATIVE, 1), gang(NATIVE, 4)).satisfied


def test_a_replacement_must_see_the_minimum_again():
    assert view_one(members(NATIVE, 1), gang(NATIVE, 1)).said.match is MatchPolicy.WAITING_AND_RUNNING
