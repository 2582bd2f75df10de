"""What all dialects have in common, each shown in each: who is a member, what a minimum is, what is missing."""

import json

import pytest
from kube_objects import (
    GROUPS,
    KOORDINATOR,
    NAMING,
    NATIVE,
    PLUGINS,
    VOLCANO,
    gang,
    key_of,
    members,
    metadata,
    pod,
    said,
    view_all,
    view_one,
)

from phalanx.control.spec import sizes
from phalanx.frontends.kube import label_words
from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.gang_view import Dialect, GangKey
from phalanx.frontends.kube.objects.decode import decode_object
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.translating import choose_membership, translate_gang

NOWHERE = Surrounding()
DIALECTS = [NATIVE, PLUGINS, KOORDINATOR, VOLCANO]


@pytest.mark.parametrize("api", DIALECTS)
def test_pods_and_their_group_are_one_gang(api):
    view = view_one(members(api, 4), gang(api, 4))
    assert view.key == key_of(api)
    assert view.startable
    assert (view.outstanding, view.missing, view.priority) == (4, 0, 0)
    (role,) = view.roles
    assert (role.members_min, [member.name for member in role.members]) == (4, ["g-0", "g-1", "g-2", "g-3"])


@pytest.mark.parametrize("api", DIALECTS)
def test_too_few_pods_wait_for_the_others(api):
    view = view_one(members(api, 3), gang(api, 4))
    assert (view.missing, view.startable) == (1, False)


@pytest.mark.parametrize("api", DIALECTS)
def test_pods_without_their_group_wait_and_are_no_singles(api):
    view = view_one(members(api, 2))
    assert [kind for kind, _ in said(view.blockers)] == ["NotYet"]
    assert not view.startable


@pytest.mark.parametrize("api", DIALECTS)
def test_a_group_without_pods_is_a_gang_without_members(api):
    view = view_one([], gang(api, 4))
    assert (view.members, view.roles, view.missing, view.startable) == ((), (), 4, False)


@pytest.mark.parametrize("api", DIALECTS)
@pytest.mark.parametrize("least", [-1, 1_000_001, 2**31 - 1, 2**62])
def test_an_absurd_minimum_is_told(api, least):
    view = view_one(members(api, 2), gang(api, least))
    assert [kind for kind, _ in said(view.blockers)] == ["Invalid"]
    assert not view.startable


def test_the_most_members_are_those_of_gang_files():
    assert label_words.MEMBERS_MAX == sizes.MEMBERS_MAX


@pytest.mark.parametrize("api", DIALECTS)
def test_a_malformed_group_is_told_with_the_field(api):
    broken = {"apiVersion": api, "metadata": metadata("g"), "spec": {"minMember": [], "schedulingPolicy": 3}}
    found = decode_object(json.dumps(broken).encode(), GROUPS[api][0])
    pods = members(api, 2)
    view = translate_gang(key_of(api), found, pods, [make_member(each, NOWHERE) for each in pods], {})
    ((kind, _),) = said(view.blockers)
    assert kind == "Invalid"
    assert "$.spec" in view.blockers[0].sentence


@pytest.mark.parametrize("api", DIALECTS)
def test_members_of_several_shapes_are_several_roles(api):
    view = view_one([*members(api, 2, cpu="8"), *members(api, 2, start=2)], gang(api, 3))
    assert [(role.name, len(role.members), role.members_min) for role in view.roles] == [
        ("member", 2, 2),
        ("member-2", 2, 1),
    ]


@pytest.mark.parametrize("api", DIALECTS)
def test_the_same_objects_in_another_order_are_the_same_gang(api):
    pods = members(api, 12)
    assert view_one(pods, gang(api, 3)) == view_one(pods[::-1], gang(api, 3))


def test_a_pod_that_names_nothing_is_one_by_itself():
    view = view_one([pod("solo", priority=5)])
    assert (view.key, view.priority, view.startable) == (GangKey(Dialect.PLAIN, "team", "solo"), 5, True)
    assert [role.members_min for role in view.roles] == [1]


def test_a_pod_and_a_group_of_one_name_are_two_gangs():
    views = view_all([pod("g"), *members(PLUGINS, 1)], [gang(PLUGINS, 1)])
    assert sorted(key.unique for key in views) == ["plain:team/g", "scheduler-plugins:team/g"]


# --- several dialects at once ----------------------------------------------------------------------


@pytest.mark.parametrize("first", range(4))
def test_a_pod_that_names_several_dialects_is_in_one_gang_and_told_so(first):
    naming = {}
    for api in DIALECTS[first:]:
        for key, value in NAMING[api](f"of-{GROUPS[api][1].value}").items():
            naming[key] = {**naming.get(key, {}), **value}
    membership = choose_membership(pod("p", **naming))
    order = [NATIVE, PLUGINS, VOLCANO, KOORDINATOR]
    chosen = min(DIALECTS[first:], key=order.index)
    assert membership.key.dialect is GROUPS[chosen][1]
    assert [kind for kind, _ in said(membership.remarks)] == ["Notice"] * (3 - first)


def test_never_two_gangs_from_one_pod():
    naming = {"labels": {"scheduling.x-k8s.io/pod-group": "a"}, "annotations": {"scheduling.k8s.io/group-name": "b"}}
    views = view_all([pod("p", **naming)], [gang(PLUGINS, 1, "a"), gang(VOLCANO, 1, "b")])
    assert {str(key): len(view.members) for key, view in views.items()} == {"team/a": 1, "team/b": 0}


@pytest.mark.parametrize(
    ("api", "field"),
    [
        (PLUGINS, "metadata.labels[scheduling.x-k8s.io/pod-group]"),
        (KOORDINATOR, "metadata.labels[pod-group.scheduling.sigs.k8s.io]"),
        (VOLCANO, "metadata.annotations[scheduling.k8s.io/group-name]"),
        (NATIVE, "spec.schedulingGroup.podGroupName"),
    ],
)
@pytest.mark.parametrize("name", ["other/g", "UPPER", "a" * 300, "\u2603", "g\n"])
def test_a_name_that_no_group_can_have_is_told(api, field, name):
    """Above all one of another namespace: whoever could join gangs there could hold them up."""
    (remark,) = choose_membership(pod("p", **NAMING[api](name))).remarks
    assert (type(remark).__name__, remark.field, remark.subject) == ("Invalid", field, "Pod p")
    assert ("with a namespace" in remark.says) == ("/" in name)
    view = view_one([pod("p", **NAMING[api](name))])
    assert not view.startable
    assert len(view.blockers[0].sentence) < 400


def test_an_empty_name_names_nothing():
    naming = {"labels": {"scheduling.x-k8s.io/pod-group": ""}, "annotations": {"scheduling.k8s.io/group-name": ""}}
    assert choose_membership(pod("p", **naming)).key.dialect is Dialect.PLAIN


# --- what members must agree on --------------------------------------------------------------------


@pytest.mark.parametrize("api", DIALECTS)
@pytest.mark.parametrize(
    ("field", "value"), [("schedulerName", "default-scheduler"), ("priority", 100), ("preemptionPolicy", "Never")]
)
def test_members_that_contradict_each_other_are_told(api, field, value):
    view = view_one([*members(api, 1), *members(api, 1, start=1, **{field: value})], gang(api, 2))
    assert said(view.blockers) == [("Invalid", f"spec.{field}")]
    assert not view.startable


@pytest.mark.parametrize("api", DIALECTS)
def test_members_that_have_ended_contradict_nobody(api):
    ended = members(api, 1, start=1, priority=100, phase="Succeeded")
    assert view_one([*members(api, 1), *ended], gang(api, 2)).startable


def test_thousand_members_need_one_sentence():
    naming = {"labels": {"scheduling.x-k8s.io/pod-group": "a"}, "annotations": {"scheduling.k8s.io/group-name": "b"}}
    view = view_one([pod(f"p{i}", **naming) for i in range(1000)], gang(PLUGINS, 1, "a"))
    assert [kind for kind, _ in said(view.remarks)] == ["Notice"]


@pytest.mark.parametrize(
    ("lengths", "kill_after"), [([60, 600], 600), ([60, None], None), ([None, None], None), ([-5, -5], None)]
)
def test_how_long_members_may_run_is_known_if_all_have_a_limit(lengths, kill_after):
    pods = [
        each
        for i, s in enumerate(lengths)
        for each in members(PLUGINS, 1, start=i, **({"activeDeadlineSeconds": s} if s else {}))
    ]
    assert view_one(pods, gang(PLUGINS, 2)).kill_after_s == kill_after
