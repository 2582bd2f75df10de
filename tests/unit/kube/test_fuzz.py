"""Whatever stands in a label, an annotation or a field: no exception, an answer in bounded time, patches that can be sent."""

import json
import time

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kube_fuzz import CONTAINER, EVERYTHING, GROUP_OBJECTS, OBJECTS, POD_TERM, REQUIRED, TERM, changes, values, words
from kube_objects import (
    GROUPS,
    KIND_BY_NAME,
    KOORDINATOR,
    NATIVE,
    PLUGINS,
    VOLCANO,
    gang,
    manifest,
    members,
    metadata,
    pod,
    read,
)

from phalanx.frontends.kube.constraints import Surrounding, find_taint_or_rule
from phalanx.frontends.kube.objects.decode import Unreadable, decode_line, decode_list, decode_object
from phalanx.frontends.kube.objects.groups import NativePodGroup, PluginsPodGroup, VolcanoPodGroup
from phalanx.frontends.kube.objects.node import NodeObject
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.requests import find_offer
from phalanx.frontends.kube.statuses import make_event, patch_group, patch_pod, tell_gang
from phalanx.frontends.kube.topology_wishes import LevelNames, name_levels
from phalanx.frontends.kube.translating import KubeObjects, group_key, translate_all
from phalanx.frontends.kube.volume_rules import Storage
from phalanx.model.reason import Code

NOWHERE = Surrounding()
NOW = "2026-01-01T00:00:00Z"
KINDS = [*KIND_BY_NAME.values(), NativePodGroup, PluginsPodGroup, VolcanoPodGroup]
LEVELS = LevelNames(("block", "rack"), {"example.com/rack": "rack"})

#: Every key that anybody here reads.
KEYS = [
    "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available", "pod-group.scheduling.sigs.k8s.io/match-policy",
    "quota.scheduling.koordinator.sh/name", "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name",
    "volcano.sh/task-spec", "volcano.sh/task-index", "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index", "training.kubeflow.org/replica-type", "apps.kubernetes.io/pod-index",
    "jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/replicatedjob-name", "ray.io/group",
    "leaderworkerset.sigs.k8s.io/worker-index",
    *(f"gang.scheduling.koordinator.sh/{word}" for word in (
        "name", "min-available", "total-number", "waiting-time", "mode", "match-policy", "groups", "network-topology-spec",
        "network-topology-index")),
]  # fmt: skip


def go_through(pods, groups=(), nodes=(), surrounding=None):
    """All that is done with objects, to the end; every patch must be JSON."""
    keyed = {group_key(GROUPS[api][1], each): each for api, each in groups}
    surrounding = surrounding or Surrounding()
    for view in translate_all(KubeObjects(tuple(pods), keyed, {}, surrounding)):
        name_levels(view.said.topology, LEVELS)
        group = keyed.get(view.key)
        for code in (Code.NONE, Code.CAPACITY):
            tiding = tell_gang(view, code, "words")
            assert len(tiding.text) <= 900
            written = [patch_pod(each, make_member(each, NOWHERE), view, tiding, NOW) for each in pods]
            if group is not None and not isinstance(group, Unreadable):
                written.append(patch_group(group, view, tiding, NOW))
                make_event(view, group, tiding)
            make_event(view, None, tiding)
            for patch in written:
                assert patch is None or msgspec.json.encode(patch.body)
        for member in view.members:
            if member.shape is not None:
                member.shape.demand.need({"nvidia.com/gpu": "gpu"})
                hash(member.shape)
                for node in nodes:
                    find_taint_or_rule(member.shape.constraints, node)
                    member.shape.constraints.nodes.score(node.metadata.name, node.metadata.labels or {})
    for node in nodes:
        find_offer(node)


@given(st.binary(max_size=200), st.sampled_from(KINDS))
@example(b"\xff", Pod)
@example(b"[" * 100_000, Pod)
@example(b'{"metadata":{"labels":' + b'{"a":' * 5_000, NodeObject)
def test_any_bytes(data, kind):
    decode_object(data, kind)
    decode_list(data, kind)
    decode_line(data, kind)


@given(values, st.sampled_from(KINDS))
def test_any_json(value, kind):
    data = json.dumps(value).encode()
    decode_object(data, kind)
    decode_list(data, kind)
    decode_list(json.dumps({"items": [value, value]}).encode(), kind)
    decode_line(json.dumps({"type": "ADDED", "object": value}).encode(), kind)


@given(
    st.dictionaries(st.sampled_from(KEYS), words, max_size=5), st.dictionaries(st.sampled_from(KEYS), words, max_size=5)
)
def test_any_label_and_annotation_of_a_pod(labels, annotations):
    found = decode_object(json.dumps(manifest(labels=labels, annotations=annotations)).encode(), Pod)
    if not isinstance(found, Unreadable):
        go_through([found, *members(PLUGINS, 1)], [(PLUGINS, gang(PLUGINS, 1))])


@given(st.sampled_from(KEYS), st.text(max_size=50))
def test_any_text_in_each_key(key, text):
    found = decode_object(json.dumps(manifest(labels={key: text}, annotations={key: text})).encode(), Pod)
    if not isinstance(found, Unreadable):
        go_through([found])


@given(
    st.sampled_from([KOORDINATOR, PLUGINS, VOLCANO, NATIVE]), st.dictionaries(st.sampled_from(KEYS), words, max_size=5)
)
def test_any_annotation_of_a_group(api, annotations):
    found = {"apiVersion": api, "metadata": metadata("g", annotations=annotations), "spec": {"minMember": 2}}
    go_through(members(api, 2), [(api, decode_object(json.dumps(found).encode(), GROUPS[api][0]))])


# --- any value at any place of objects that say everything -----------------------------------------


@given(changes(EVERYTHING))
def test_any_value_at_any_place_of_a_pod(changed):
    found = decode_object(json.dumps(changed).encode(), Pod)
    if not isinstance(found, Unreadable):
        go_through([found], [(NATIVE, gang(NATIVE, 1))], [read({"kind": "Node", **OBJECTS["Node"]})])


@given(st.data())
def test_any_value_at_any_place_of_what_pods_refer_to(data):
    kind = data.draw(st.sampled_from(sorted(OBJECTS)))
    changed = data.draw(changes(OBJECTS[kind]))
    found = {
        each: decode_object(json.dumps(changed if each == kind else OBJECTS[each]).encode(), KIND_BY_NAME[each])
        for each in OBJECTS
    }
    if isinstance(found[kind], Unreadable):
        return
    storage = Storage({("team", "data"): found["PersistentVolumeClaim"]}, {"pv": found["PersistentVolume"]})
    go_through([read(EVERYTHING)], [], [found["Node"]], Surrounding(storage))


@given(st.data())
def test_any_value_at_any_place_of_a_group(data):
    api = data.draw(st.sampled_from(sorted(GROUP_OBJECTS)))
    whole = {"apiVersion": api, "metadata": metadata("g", generation=3), "spec": GROUP_OBJECTS[api],
             "status": {"phase": "Running", "conditions": [{"type": "Unschedulable", "status": "True", "transitionID": "x"}]}}  # fmt: skip
    changed = data.draw(changes(whole, spared=[("metadata", "name"), ("apiVersion",)]))
    go_through(members(api, 3), [(api, decode_object(json.dumps(changed).encode(), GROUPS[api][0]))])


# --- bounded time ------------------------------------------------------------------------------------

LARGE = 200_000  # characters; the API allows 256 KiB of annotations in all
HOSTILE = {
    "long name": {"gang.scheduling.koordinator.sh/name": "a" * LARGE},
    "long number": {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "9" * LARGE},
    "digits for a span": {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/waiting-time": "1" * LARGE},
    "spans in a row": {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/waiting-time": "1m" * (LARGE // 2) + "x"},
    "deep groups": {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/groups": "[" * LARGE},
    "many groups": {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/groups": json.dumps([f"team/{i}" for i in range(20_000)])},
    "many layers": {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "1",
                    "gang.scheduling.koordinator.sh/network-topology-spec": json.dumps({"gatherStrategy": [{"layer": "x", "strategy": "MustGather"}] * 4_000})},
}  # fmt: skip


@pytest.mark.parametrize("annotations", HOSTILE.values(), ids=HOSTILE)
def test_large_annotations_cost_little(annotations):
    found = pod(annotations=annotations)
    began = time.process_time()
    go_through([found])
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {f"k{i}": "v" for i in range(10_000)}},
        {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(10_000)]},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM] * 3_000}}}},
        {"affinity": {"podAntiAffinity": {REQUIRED: [POD_TERM] * 3_000}}},
        {"containers": [CONTAINER] * 3_000},
        {"initContainers": [CONTAINER] * 3_000},
        {"overhead": {"cpu": "9" * 1_000_000}},
        {"volumes": [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(5_000)]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_large_specs_cost_little(spec):
    found = pod(**spec)
    node = read({"kind": "Node", **OBJECTS["Node"]})
    began = time.process_time()
    go_through([found], nodes=[node])
    assert time.process_time() - began < 2
