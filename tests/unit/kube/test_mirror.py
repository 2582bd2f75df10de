"""What we know of the cluster, and when: as told, and a moment before."""

from __future__ import annotations

import msgspec
import pytest
from kube_objects import NATIVE, gang, key_of, members, metadata, node, pod, read

from phalanx.frontends.kube.flights import RANK
from phalanx.frontends.kube.gang_view import Dialect, MemberPhase
from phalanx.frontends.kube.mirror import Mirror
from phalanx.frontends.kube.objects.metadata import Condition
from phalanx.frontends.kube.objects.pod import ContainerStatus
from phalanx.frontends.kube.pod_members import make_member


@pytest.fixture
def mirror():
    found = Mirror("phalanx", lambda: None)
    found.groups[Dialect.NATIVE].note(gang(NATIVE, 2), deleted=False)
    for each in members(NATIVE, 2):
        found.pods.note(each, deleted=False)
    found.hand_over()
    return found


def changed(each, version, **spec):
    metadata = msgspec.structs.replace(each.metadata, resource_version=version)
    return msgspec.structs.replace(each, metadata=metadata, spec=msgspec.structs.replace(each.spec, **spec))


def phases(mirror):
    return [member.phase for member in mirror.look_at(key_of(NATIVE)).members]


def test_what_we_bound_sits_before_we_are_told_and_an_older_word_changes_nothing(mirror):
    mirror.assume(("team", "g-0"), "uid-g-0", "n0")
    assert phases(mirror) == [MemberPhase.SEATED, MemberPhase.WAITING]
    assert set(mirror.find_tenants("n0")) == {"uid-g-0"}
    first = members(NATIVE, 1)[0]
    mirror.pods.note(changed(first, "8"), deleted=False)
    assert phases(mirror) == [MemberPhase.SEATED, MemberPhase.WAITING]
    mirror.pods.note(changed(first, "9", node_name="n0"), deleted=False)
    mirror.pods.note(first, deleted=True)
    assert mirror.find_tenants("n0") == {}
    assert "uid-g-0" in mirror.hand_over().gone


def test_another_pod_of_that_name_is_not_bound(mirror):
    mirror.assume(("team", "g-0"), "uid-of-the-last-one", "n0")
    assert phases(mirror) == [MemberPhase.WAITING] * 2


def test_what_is_not_in_a_list_any_more_is_gone(mirror):
    mirror.pods.replace_all(members(NATIVE, 1))
    assert mirror.hand_over().gone == ["uid-g-1"]
    assert phases(mirror) == [MemberPhase.WAITING]
    mirror.pods.replace_all(members(NATIVE, 1))
    assert not mirror.hand_over(), "the same again is no news"


def test_pods_of_others_only_take_room(mirror):
    mirror.pods.note(pod("other", node="n0", schedulerName="default-scheduler"), deleted=False)
    assert mirror.hand_over().gangs == set()
    assert mirror.sum_tenants("n0", lambda _: True) == {"cpu": 1000, "pods": 1000}
    assert mirror.sum_tenants("n0", lambda uid: uid != "uid-other") == {}


def test_signs_of_life_are_no_news(mirror):
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    first = node("n0", status=ready)
    mirror.nodes.note(first, deleted=False)
    assert mirror.hand_over().nodes == {"n0"}
    again = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, resource_version="8"))
    mirror.nodes.note(again, deleted=False)
    assert not mirror.hand_over()


def test_it_has_seen_everything_when_every_kind_was_listed_or_is_absent():
    woken = []
    mirror = Mirror("phalanx", lambda: woken.append(1))
    first, *others = mirror.sights.values()
    for sight in others:
        sight.note_absent()
    assert not mirror.is_synced
    woken.clear()
    first.replace_all([])
    assert mirror.is_synced
    assert woken, "also by lists in which there is nothing"


def namespace(name="team", *, labels=None, **more):
    own = {"kubernetes.io/metadata.name": name}
    found = {"kind": "Namespace", "metadata": {"name": name, "labels": {**own, **(labels or {})}, **more}}
    return read(found)


def test_a_namespace_that_is_being_deleted_holds_its_pods_and_no_others(mirror):
    mirror.pods.note(pod("other", meta={"namespace": "elsewhere"}), deleted=False)
    mirror.referred.namespaces.note(namespace(), deleted=False)
    mirror.hand_over()
    going = namespace(resourceVersion="8", deletionTimestamp="2026-01-01T00:00:00Z")
    mirror.referred.namespaces.note(going, deleted=False)
    assert mirror.hand_over().gangs == {key_of(NATIVE)}
    assert phases(mirror) == [MemberPhase.HELD] * 2
    (blocker, *_) = mirror.look_at(key_of(NATIVE)).blockers
    assert (type(blocker).__name__, blocker.field) == ("NotYet", "metadata.namespace")
    mirror.referred.namespaces.note(going, deleted=True)
    mirror.hand_over()
    assert phases(mirror) == [MemberPhase.WAITING] * 2, "another one of that name"


def test_labels_of_namespaces_are_known_and_whoever_selects_by_them_is_looked_at_again(mirror):
    term = {"labelSelector": {}, "topologyKey": "zone", "namespaceSelector": {"matchLabels": {"tier": "one"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    mirror.pods.note(pod("near", affinity=affinity), deleted=False)
    mirror.referred.namespaces.note(namespace("elsewhere"), deleted=False)
    mirror.hand_over()
    mirror.referred.namespaces.note(namespace("elsewhere", labels={"tier": "one"}, resourceVersion="8"), deleted=False)
    assert mirror.surrounding.namespace_labels["elsewhere"]["tier"] == "one"
    assert {key.name for key in mirror.hand_over().gangs} == {"near"}
    mirror.referred.namespaces.note(namespace("elsewhere", labels={"tier": "one"}, resourceVersion="9"), deleted=False)
    assert not mirror.hand_over(), "the same labels are no news"


def bound_as_assumed(mirror, **more):
    """The watch's word of a binding: a newer version, the node, our annotation, a condition."""
    first = members(NATIVE, 1)[0]
    there = changed(first, "9", node_name="n0")
    metadata = msgspec.structs.replace(there.metadata, annotations={**(first.metadata.annotations or {}), RANK: "0"})
    said = (*(there.status.conditions or ()), Condition(type="PodScheduled", status="True"))
    return msgspec.structs.replace(
        there, metadata=metadata, status=msgspec.structs.replace(there.status, conditions=said, **more)
    )


def test_a_binding_that_comes_true_is_no_news_and_what_happens_to_the_pod_is(mirror):
    mirror.look_at(key_of(NATIVE))
    mirror.assume(("team", "g-0"), "uid-g-0", "n0")
    mirror.hand_over()
    mirror.pods.note(bound_as_assumed(mirror), deleted=False)
    assert not mirror.hand_over()
    mirror.pods.note(changed(bound_as_assumed(mirror), "10", priority=7), deleted=False)
    assert mirror.hand_over().gangs == {key_of(NATIVE)}
    resized = (ContainerStatus(name="main", allocated_resources={"cpu": "3"}),)
    mirror.pods.note(changed(bound_as_assumed(mirror, container_statuses=resized), "11"), deleted=False)
    assert mirror.hand_over().tenants == {"n0"}
    assert mirror.sum_tenants("n0", lambda _: True)["cpu"] == 3000
    mirror.pods.note(changed(bound_as_assumed(mirror, phase="Succeeded"), "12"), deleted=False)
    assert mirror.hand_over().gone == ["uid-g-0"]


def test_of_a_pod_that_waits_every_version_counts_since_it_is_bound_by_it(mirror):
    before = mirror.look_at(key_of(NATIVE)).members[0]
    mirror.pods.note(changed(members(NATIVE, 1)[0], "8"), deleted=False)
    assert mirror.hand_over().gangs == {key_of(NATIVE)}
    after = mirror.look_at(key_of(NATIVE)).members[0]
    assert (before.resource_version, after.resource_version) == ("7", "8")


def test_what_is_assumed_of_a_pod_is_what_would_be_read_of_it(mirror):
    mirror.look_at(key_of(NATIVE))
    mirror.assume(("team", "g-0"), "uid-g-0", "n0")
    seen = mirror.look_at(key_of(NATIVE)).members[0]
    assert seen == make_member(mirror.find_pod(("team", "g-0")), mirror.surrounding)
    mirror.pods.note(bound_as_assumed(mirror), deleted=False)
    seen = mirror.look_at(key_of(NATIVE)).members[0]
    assert seen == make_member(mirror.find_pod(("team", "g-0")), mirror.surrounding)
    assert seen.resource_version == "9"


def test_other_labels_of_nodes_concern_whoever_asks_for_nodes_in_a_way_that_only_names_can_say(mirror):
    rule = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rule]}}}
    mirror.pods.note(pod("choosy", affinity=affinity), deleted=False)
    for name in ("n0", "n1"):
        mirror.nodes.note(node(name), deleted=False)
    mirror.hand_over()
    for name in ("n0", "n1"):
        labelled = node(name, labels={"zone": "a"})
        there = msgspec.structs.replace(labelled.metadata, resource_version="8")
        mirror.nodes.note(msgspec.structs.replace(labelled, metadata=there), deleted=False)
    changes = mirror.hand_over()
    assert changes.nodes == {"n0", "n1"}
    assert {key.name for key in changes.gangs} == {"choosy"}
    assert not mirror.hand_over()


def test_a_pod_that_was_held_and_is_bound_all_the_same_sits(mirror):
    mirror.pods.note(pod("gated", schedulingGates=[{"name": "somebody/wants-it"}]), deleted=False)
    (key,) = mirror.hand_over().gangs
    assert [member.phase for member in mirror.look_at(key).members] == [MemberPhase.HELD]
    mirror.assume(("team", "gated"), "uid-gated", "n0")
    assert [member.phase for member in mirror.look_at(key).members] == [MemberPhase.SEATED]


def claim(name):
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard"}
    return read({"kind": "PersistentVolumeClaim", "metadata": metadata(name), "spec": spec})


def test_other_storage_concerns_whoever_waits_with_volumes_and_is_read_anew(mirror):
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mirror.pods.note(pod("stores", volumes=volumes), deleted=False)
    (key,) = mirror.hand_over().gangs
    before = mirror.look_at(key).members[0]
    mirror.referred.claims.replace_all([claim("data"), claim("other")])
    assert mirror.hand_over().gangs == {key}
    after = mirror.look_at(key).members[0]
    assert before.remarks != after.remarks, "its claim is there now, and not bound"
    assert not mirror.hand_over()
