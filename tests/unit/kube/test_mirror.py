"""What we know of the cluster, and when: as told, and a moment before."""

from __future__ import annotations

import msgspec
import pytest
from kube_objects import NATIVE, gang, key_of, members, node, pod, read

from phalanx.frontends.kube.gang_view import Dialect, MemberPhase
from phalanx.frontends.kube.mirror import Mirror


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
