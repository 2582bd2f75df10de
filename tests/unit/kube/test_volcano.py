"""Volcano's PodGroup."""

import pytest
from kube_objects import VOLCANO, gang, group, pod, said, view_one


def tasks(**counts):
    return [
        pod(f"{task}-{i}", annotations={"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": task})
        for task, count in counts.items()
        for i in range(count)
    ]


@pytest.mark.parametrize("annotation", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
def test_both_annotations_name_the_group(annotation):
    assert view_one([pod("p", annotations={annotation: "g"})], gang(VOLCANO, 1)).startable


def test_minimums_of_tasks_are_minimums_of_roles():
    view = view_one(tasks(master=1, worker=6), gang(VOLCANO, 5, minTaskMember={"master": 1, "worker": 3}))
    assert [(role.name, role.members_min, len(role.members)) for role in view.roles] == [
        ("master", 1, 1),
        ("worker", 4, 6),
    ]
    assert view.startable


def test_a_task_has_its_minimum_whatever_its_place_in_the_order():
    view = view_one(tasks(worker=6, zookeeper=2), gang(VOLCANO, 5, minTaskMember={"zookeeper": 2}))
    assert [(role.name, role.members_min) for role in view.roles] == [("worker", 3), ("zookeeper", 2)]


def test_a_task_with_too_few_members_is_waited_for_though_there_are_enough_in_all():
    view = view_one(tasks(worker=6), gang(VOLCANO, 4, minTaskMember={"master": 1, "worker": 3}))
    assert (view.missing, view.startable) == (1, False)


@pytest.mark.parametrize("minimum", [-1, 1_000_001, 2**40])
def test_an_absurd_minimum_of_a_task_is_told(minimum):
    view = view_one(tasks(worker=2), gang(VOLCANO, 2, minTaskMember={"worker": minimum}))
    assert said(view.blockers) == [("Invalid", "spec.minTaskMember['worker']")]


def test_without_a_minimum_any_of_its_pods_may_start():
    view = view_one(tasks(worker=2), group(VOLCANO))
    assert (view.outstanding, view.startable) == (1, True)


def test_queue_and_its_default():
    assert view_one([], gang(VOLCANO, 1)).said.queue == "default"
    assert view_one([], gang(VOLCANO, 1, queue="ml")).said.queue == "ml"


def test_the_class_of_the_group_decides_and_classes_of_tasks_are_told():
    pods = [pod(f"p{i}", annotations={"scheduling.k8s.io/group-name": "g"}, priority=i) for i in range(2)]
    view = view_one(pods, gang(VOLCANO, 2, priorityClassName="high"), priority_by_class={"high": 50})
    assert (view.priority, view.startable) == (50, True)
    assert said(view.remarks) == [("Notice", "spec.priority")]


@pytest.mark.parametrize(("name", "priority"), [("system-node-critical", 2_000_001_000), ("unheard-of", 3)])
def test_classes_that_are_no_objects(name, priority):
    pods = [pod("p", annotations={"scheduling.k8s.io/group-name": "g"}, priority=3)]
    assert view_one(pods, gang(VOLCANO, 1, priorityClassName=name)).priority == priority


@pytest.mark.parametrize(
    ("topology", "require", "prefer"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, [("tier", "2")], []),
        ({"mode": "soft", "highestTierAllowed": 1}, [], [("tier", "1")]),
        ({"highestTierAllowed": 3}, [("tier", "3")], []),
        ({"mode": "hard"}, [("tier", "1")], []),
        ({"mode": "hard", "highestTierName": "rack"}, [("tier name", "rack")], []),
    ],
)
def test_tiers_of_the_network(topology, require, prefer):
    found = view_one([], gang(VOLCANO, 1, networkTopology=topology)).said.topology
    assert [(level.by, level.name) for level in found.require] == require
    assert [(level.by, level.name) for level in found.prefer] == prefer


@pytest.mark.parametrize(
    ("spec", "kind", "field"),
    [
        ({"networkTopology": {"mode": "firm"}}, "Invalid", "spec.networkTopology.mode"),
        ({"networkTopology": {"highestTierAllowed": 0}}, "Invalid", "spec.networkTopology.highestTierAllowed"),
        ({"networkTopology": {"highestTierAllowed": 2**40}}, "Invalid", "spec.networkTopology.highestTierAllowed"),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 2}]}, "Unsupported", "spec.subGroupPolicy"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(spec, kind, field):
    assert said(view_one(tasks(worker=1), gang(VOLCANO, 1, **spec)).blockers) == [(kind, field)]
