"""The table of all fields of a pod's spec, gone through row by row: nothing is ignored silently.

Each honoured field changes the gang that comes out, each refused one is refused by name, each that waits holds back, and
the rest change nothing. The list of fields is that of Kubernetes 1.37 (`k8s.io/api` v0.37.1, `PodSpec`).
"""

import json
from dataclasses import replace

import msgspec
import pytest
from kube_objects import NATIVE, gang, manifest, metadata, read, view_all

from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.objects.pod import Container, PodSpec, PodVolume
from phalanx.frontends.kube.pod_fields import NESTED_FIELDS, POD_FIELDS, Treatment
from phalanx.frontends.kube.remarks import NotYet, Unsupported
from phalanx.frontends.kube.volume_rules import Storage

POD_SPEC_1_37 = [
    "volumes",
    "initContainers",
    "containers",
    "ephemeralContainers",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "activeDeadlineSeconds",
    "dnsPolicy",
    "nodeSelector",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "nodeName",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "securityContext",
    "imagePullSecrets",
    "hostname",
    "subdomain",
    "affinity",
    "schedulerName",
    "tolerations",
    "hostAliases",
    "priorityClassName",
    "priority",
    "dnsConfig",
    "readinessGates",
    "runtimeClassName",
    "enableServiceLinks",
    "preemptionPolicy",
    "overhead",
    "topologySpreadConstraints",
    "setHostnameAsFQDN",
    "os",
    "hostUsers",
    "schedulingGates",
    "resourceClaims",
    "resources",
    "hostnameOverride",
    "workloadRef",
    "schedulingGroup",
    "evictionResponders",
]

CONTAINER = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}

#: A value of each field that would be noticed.
EXAMPLES = {
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}],
    "containers": [CONTAINER, {"name": "more", "resources": {"requests": {"memory": "1Gi"}}}],
    "ephemeralContainers": [{"name": "debug"}],
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 5,
    "activeDeadlineSeconds": 3600,
    "dnsPolicy": "None",
    "nodeSelector": {"a": "b"},
    "serviceAccountName": "x",
    "serviceAccount": "x",
    "automountServiceAccountToken": False,
    "nodeName": "n7",
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "shareProcessNamespace": True,
    "securityContext": {"runAsUser": 5},
    "imagePullSecrets": [{"name": "x"}],
    "hostname": "x",
    "subdomain": "x",
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}},
    "schedulerName": "somebody-else",
    "tolerations": [{"operator": "Exists"}],
    "hostAliases": [{"ip": "1.1.1.1"}],
    "priorityClassName": "high",
    "priority": 7,
    "dnsConfig": {"nameservers": ["1.1.1.1"]},
    "readinessGates": [{"conditionType": "x"}],
    "runtimeClassName": "gvisor",
    "enableServiceLinks": False,
    "preemptionPolicy": "Never",
    "overhead": {"cpu": "1"},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
    "setHostnameAsFQDN": True,
    "os": {"name": "linux"},
    "hostUsers": False,
    "schedulingGates": [{"name": "example.com/gate"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}],
    "resources": {"requests": {"cpu": "9"}},
    "hostnameOverride": "x",
    "workloadRef": {"name": "w", "podGroup": "g"},
    "schedulingGroup": {"podGroupName": "g"},
    "evictionResponders": [{"name": "x"}],
}
NESTED = {
    "containers.resources": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]},
    "containers.ports": {"containers": [{**CONTAINER, "ports": [{"hostPort": 80}]}]},
    "containers.restartPolicy": {"initContainers": [{**CONTAINER, "restartPolicy": "Always"}]},
    "volumes.persistentVolumeClaim": {"volumes": EXAMPLES["volumes"]},
    "volumes.ephemeral": {"volumes": [{"name": "e", "ephemeral": {}}]},
    **{
        field: {"volumes": [{"name": "d", field.split(".")[1]: {}}]}
        for field, row in NESTED_FIELDS.items()
        if row.treatment is Treatment.REFUSED
    },
}

VOLUME = read(
    {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}}},
    }
)
CLAIM = read({"kind": "PersistentVolumeClaim", "metadata": metadata("data"), "spec": {"volumeName": "pv"}})
STORAGE = Storage({("team", "data"): CLAIM, ("team", "p0-e"): CLAIM}, {"pv": VOLUME})


def gang_of(spec):
    """What a pod with these fields comes out as; only its name is the same in all."""
    found = manifest("p0")
    found["spec"] = {"containers": [CONTAINER], "schedulerName": "phalanx", **spec}
    (view,) = view_all([read(found)], surrounding=Surrounding(STORAGE)).values()
    return view


PLAIN = gang_of({})


def held_by(view, kind):
    return [remark.field for remark in view.blockers if isinstance(remark, kind)]


def test_the_table_has_every_field_and_no_other():
    assert set(POD_FIELDS) == set(POD_SPEC_1_37) == set(EXAMPLES)
    assert set(NESTED_FIELDS) == set(NESTED)


def test_every_field_that_is_read_is_in_the_table():
    read_fields = {field.encode_name for field in msgspec.structs.fields(PodSpec)}
    assert read_fields <= set(POD_FIELDS)
    nested = [(Container, "containers"), (PodVolume, "volumes")]
    for kind, name in nested:
        fields = {f"{name}.{field.encode_name}" for field in msgspec.structs.fields(kind)}
        assert fields - {f"{name}.name"} == {field for field in NESTED_FIELDS if field.startswith(f"{name}.")}


@pytest.mark.parametrize("field", POD_SPEC_1_37)
def test_each_field_is_treated_as_the_table_says(field):
    check(field, POD_FIELDS[field].treatment, {field: EXAMPLES[field]})


@pytest.mark.parametrize("field", NESTED_FIELDS)
def test_each_nested_field_is_treated_as_the_table_says(field):
    base = {key: value for key, value in NESTED[field].items() if field == "containers.restartPolicy"}
    before = gang_of({"initContainers": [CONTAINER]}) if base else PLAIN
    check(field.split(".")[1], NESTED_FIELDS[field].treatment, NESTED[field], before)


def check(field, treatment, spec, before=PLAIN):
    view = gang_of(spec)
    if treatment is Treatment.HONOURED:
        assert view != before
        assert not held_by(view, Unsupported)
    elif treatment is Treatment.REFUSED:
        assert [each for each in held_by(view, Unsupported) if each.endswith(field)]
        assert not view.startable
    elif treatment is Treatment.WAITS:
        assert held_by(view, NotYet) == [f"spec.{field}"]
        assert not view.startable
    else:
        assert replace(view, members=PLAIN.members) == replace(before, members=PLAIN.members)
        assert view.members[0].shape == before.members[0].shape


def test_what_is_honoured_of_a_group_is_its_group():
    group = gang(NATIVE, 1)
    view = view_all([read({**manifest("p0"), "spec": {"schedulingGroup": {"podGroupName": "g"}}})], [group])
    assert [str(key) for key in view] == ["team/g"]


def test_a_field_of_a_later_version_does_no_harm():
    """It cannot be honoured, and nobody here can know it; the table is of one version, which it says."""
    spec = {"containers": [CONTAINER], "schedulerName": "phalanx", "fieldOfTomorrow": {"deep": [1, {"er": None}]}}
    assert gang_of(json.loads(json.dumps(spec))) == PLAIN
