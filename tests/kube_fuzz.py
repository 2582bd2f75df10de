"""Anything at all, for any place of objects that say everything."""

import copy

from hypothesis import strategies as st
from kube_objects import KOORDINATOR, NATIVE, PLUGINS, VOLCANO, manifest, metadata

numbers = st.one_of(st.integers(), st.floats(), st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30]))
words = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "In",
            "Gt",
            "Exists",
            "1Gi",
            "100m",
            "team/g",
            "g",
            "Strict",
            "10m",
            "[]",
            "{}",
            '["team/a"]',
            "null",
            "1e9",
            "\ud800",
        ]
    ),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=12,
)

TERM = {
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
}
POD_TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "namespaces": ["x"], "namespaceSelector": {"matchLabels": {"c": "d"}}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["b"]}  # fmt: skip
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}, "ports": [{"hostPort": 80, "hostIP": "1.1.1.1"}],
             "restartPolicy": "Always"}  # fmt: skip
EVERYTHING = manifest(
    labels={"a": "b"},
    containers=[CONTAINER],
    initContainers=[CONTAINER],
    overhead={"cpu": "1"},
    resources={"requests": {"cpu": "2"}},
    nodeSelector={"a": "b"},
    affinity={
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}, PREFERRED: [{"weight": 5, "preference": TERM}]},
        "podAffinity": {REQUIRED: [POD_TERM], PREFERRED: [{"weight": 5, "podAffinityTerm": POD_TERM}]},
        "podAntiAffinity": {REQUIRED: [POD_TERM], PREFERRED: [{"weight": 5, "podAffinityTerm": POD_TERM}]},
    },
    tolerations=[{"key": "a", "operator": "Gt", "value": "5", "effect": "NoSchedule"}],
    topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, "minDomains": 2}],
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}],
    schedulingGates=[{"name": "g"}],
    schedulingGroup={"podGroupName": "g"},
    resourceClaims=[{"name": "r"}],
    priority=5,
    activeDeadlineSeconds=60,
    preemptionPolicy="Never",
    status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}]},
)  # fmt: skip
#: A pod of which everything is honoured, so that it comes as far as the engine.
HONOURED = manifest(
    labels={"batch.kubernetes.io/job-completion-index": "3"},
    containers=[{"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}}],
    initContainers=[{"name": "i", "resources": {"requests": {"cpu": "2"}}, "restartPolicy": "Always"}],
    overhead={"cpu": "1"},
    nodeSelector={"disk": "ssd"},
    affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}, {"key": "size", "operator": "Gt", "values": ["5"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["roomy"]}]},
    ]}}},
    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    priority=5,
    activeDeadlineSeconds=60,
    preemptionPolicy="Never",
)  # fmt: skip
OBJECTS = {
    "Node": {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"unschedulable": True, "taints": [{"key": "a", "value": "5", "effect": "NoSchedule"}]},
             "status": {"allocatable": {"cpu": "5"}, "conditions": [{"type": "Ready", "status": "False"}]}},
    "PersistentVolumeClaim": {"metadata": metadata("data"), "spec": {"volumeName": "pv", "storageClassName": "ssd", "accessModes": ["ReadWriteOnce"]}},
    "PersistentVolume": {"metadata": {"name": "pv", "labels": {"topology.kubernetes.io/zone": "a__b"}}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}}}},
}  # fmt: skip
GROUP_OBJECTS = {
    NATIVE: {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": "z"}]}, "disruptionMode": {"all": {}},
             "priority": 3, "preemptionPolicy": "Never", "resourceClaims": [{"name": "r"}], "parentCompositePodGroupName": "p"},
    PLUGINS: {"minMember": 2, "scheduleTimeoutSeconds": 5},
    KOORDINATOR: {"minMember": 2, "scheduleTimeoutSeconds": 5},
    VOLCANO: {"minMember": 2, "minTaskMember": {"w": 1}, "queue": "q", "priorityClassName": "p", "subGroupPolicy": [{"name": "s"}],
              "networkTopology": {"mode": "hard", "highestTierAllowed": 2, "highestTierName": ""}},
}  # fmt: skip


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(whole, path, value):
    """The same with another value at one place."""
    if not path:
        return value
    changed = copy.deepcopy(whole)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def get(whole, path):
    for key in path:
        whole = whole[key]
    return whole


@st.composite
def changes(draw, whole, spared=()):
    """Another value at one place: any at all, or one of the same type, which gets past the decoder."""
    path = draw(st.sampled_from([path for path in places(whole) if path not in spared]))
    old = get(whole, path)
    alike = {
        str: words,
        int: st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-1, 101)),
        bool: st.booleans(),
        list: st.lists(st.sampled_from(old), max_size=3) if isinstance(old, list) and old else st.just([]),
        dict: st.one_of(st.just({}), st.dictionaries(words, words, max_size=3)),
    }
    return put(whole, path, draw(st.one_of(values, alike[type(old)], alike[type(old)])))
