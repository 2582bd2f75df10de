"""Kubernetes objects for tests, written as manifests and read as the wire would be: by name and by what differs."""

import json

from phalanx.frontends.kube.gang_view import Dialect, GangKey
from phalanx.frontends.kube.objects.decode import Unreadable, decode_object
from phalanx.frontends.kube.objects.groups import NativePodGroup, PluginsPodGroup, VolcanoPodGroup
from phalanx.frontends.kube.objects.node import Namespace, NodeObject, StorageClass, Volume, VolumeClaim
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.translating import KubeObjects, group_key, translate_all

KIND_BY_NAME = {
    "Pod": Pod,
    "Node": NodeObject,
    "PersistentVolumeClaim": VolumeClaim,
    "PersistentVolume": Volume,
    "StorageClass": StorageClass,
    "Namespace": Namespace,
}
NATIVE, PLUGINS = "scheduling.k8s.io/v1beta1", "scheduling.x-k8s.io/v1alpha1"
KOORDINATOR, VOLCANO = "scheduling.sigs.k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
GROUPS = {
    NATIVE: (NativePodGroup, Dialect.NATIVE),
    "scheduling.k8s.io/v1alpha2": (NativePodGroup, Dialect.NATIVE),
    PLUGINS: (PluginsPodGroup, Dialect.SCHEDULER_PLUGINS),
    KOORDINATOR: (PluginsPodGroup, Dialect.KOORDINATOR),
    VOLCANO: (VolcanoPodGroup, Dialect.VOLCANO),
}


def read(manifest, kind=None):
    """An object as it comes over the wire."""
    found = decode_object(json.dumps(manifest).encode(), kind or KIND_BY_NAME[manifest["kind"]])
    assert not isinstance(found, Unreadable), found
    return found


def metadata(name, **more):
    return {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "7", **more}


def manifest(name="p0", *, cpu="1", node="", phase="", labels=None, annotations=None, status=None, meta=None, **spec):
    """A pod's manifest; everything not named here goes into its spec."""
    return {
        "kind": "Pod",
        "metadata": metadata(name, labels=labels or {}, annotations=annotations or {}, **(meta or {})),
        "spec": {
            "schedulerName": "phalanx",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": phase or ("Running" if node else "Pending"), **(status or {})},
    }


def pod(name="p0", **more):
    return read(manifest(name, **more))


def node(name="n0", *, labels=None, spec=None, status=None):
    return read(
        {"kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "spec": spec or {}, "status": status or {}}
    )


def group(api, name="g", *, meta=None, status=None, **spec):
    """A gang object of a dialect, by its API."""
    found = {"apiVersion": api, "metadata": metadata(name, **(meta or {})), "spec": spec, "status": status or {}}
    return read(found, GROUPS[api][0])


def key_of(api, name="g"):
    return GangKey(GROUPS[api][1], "team", name)


def view_all(pods, groups=(), **more):
    """All gangs by their names."""
    keyed = {group_key(GROUPS[each.api_version][1], each): each for each in groups}
    return {view.key: view for view in translate_all(KubeObjects(tuple(pods), keyed, **more))}


def view_one(pods, *groups, **more):
    """The only gang."""
    (view,) = view_all(pods, groups, **more).values()
    return view


#: How a pod names its group in each dialect.
NAMING = {
    NATIVE: lambda name: {"schedulingGroup": {"podGroupName": name}},
    PLUGINS: lambda name: {"labels": {"scheduling.x-k8s.io/pod-group": name}},
    KOORDINATOR: lambda name: {"labels": {"pod-group.scheduling.sigs.k8s.io": name}},
    VOLCANO: lambda name: {"annotations": {"scheduling.k8s.io/group-name": name}},
}
LEAST = {
    NATIVE: lambda least: {"schedulingPolicy": {"gang": {"minCount": least}}},
    PLUGINS: lambda least: {"minMember": least},
    KOORDINATOR: lambda least: {"minMember": least},
    VOLCANO: lambda least: {"minMember": least},
}


def members(api, count, name="g", *, start=0, **more):
    """Pods of one gang."""
    named = NAMING[api](name)
    return [pod(f"{name}-{i}", **{**named, **more}) for i in range(start, start + count)]


def gang(api, least, name="g", **more):
    """The object of a gang with a minimum."""
    spec = {key: value for key, value in more.items() if key not in ("meta", "status")}
    rest = {key: more[key] for key in ("meta", "status") if key in more}
    return group(api, name, **{**LEAST[api](least), **spec}, **rest)


def said(remarks):
    """Class and field of each remark."""
    return [(type(remark).__name__, remark.field) for remark in remarks]
