"""Volumes: bound ones bind the pod to where they are, unbound ones hold it back or are refused."""

import pytest
from kube_objects import metadata, node, pod, read, said

from phalanx.frontends.kube.constraints import Surrounding, find_shape, find_taint_or_rule
from phalanx.frontends.kube.volume_rules import Storage

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def claim(name="data", volume="pv0", storage_class="ssd", **spec):
    spec = {"volumeName": volume, "storageClassName": storage_class, **spec}
    return read({"kind": "PersistentVolumeClaim", "metadata": metadata(name), "spec": spec})


def volume(name="pv0", labels=None, terms=None):
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}
    return read({"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels or {}}, "spec": affinity})


def on(key, *values):
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def storage(*claims, volumes=(), mode="Immediate"):
    ssd = read({"kind": "StorageClass", "metadata": {"name": "ssd"}, "volumeBindingMode": mode})
    return Storage(
        {("team", each.metadata.name): each for each in claims},
        {each.metadata.name: each for each in volumes},
        {"ssd": ssd},
    )


def shape(known, *volumes, name="p0"):
    volumes = volumes or ({"name": "v", "persistentVolumeClaim": {"claimName": "data"}},)
    return find_shape(pod(name, volumes=list(volumes)), Surrounding(known))


def goes_to(found, **labels):
    dotted = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return find_taint_or_rule(found[0].constraints, node("n1", labels=dotted)) is None


def test_a_local_volume_binds_to_its_node():
    known = storage(claim(), volumes=[volume(terms=[on("kubernetes.io/hostname", "n1")])])
    found = shape(known)
    assert found[1] == ()
    assert goes_to(found, kubernetes_io__hostname="n1")
    assert not goes_to(found, kubernetes_io__hostname="n2")


def test_all_volumes_must_be_in_reach():
    known = storage(
        claim("data", "pv0"),
        claim("logs", "pv1"),
        volumes=[volume("pv0", terms=[on("a", "1", "2")]), volume("pv1", terms=[on("a", "2", "3")])],
    )
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "logs")]
    found = shape(known, *volumes)
    assert [goes_to(found, a=value) for value in "123"] == [False, True, False]


def test_a_volume_that_says_its_zone_by_label():
    found = shape(storage(claim(), volumes=[volume(labels={ZONE: "a__b"})]))
    assert goes_to(found, topology_kubernetes_io__zone="a")
    assert goes_to(found, topology_kubernetes_io__zone="b")
    assert not goes_to(found, topology_kubernetes_io__zone="c")
    # A cluster in one zone often has no such labels at all; a node that has others of them is somewhere else.
    assert goes_to(found)
    assert not goes_to(found, topology_kubernetes_io__region="x")


def test_an_old_label_of_a_volume_meets_the_new_one_of_nodes():
    found = shape(storage(claim(), volumes=[volume(labels={OLD_ZONE: "a"})]))
    assert goes_to(found, topology_kubernetes_io__zone="a")
    assert goes_to(found, failure_domain_beta_kubernetes_io__zone="a")


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (storage(), "NotYet"),
        (storage(claim(volume="")), "NotYet"),
        (storage(claim(volume="", storage_class="unheard-of")), "NotYet"),
        (storage(claim(volume=""), mode="WaitForFirstConsumer"), "Unsupported"),
        (storage(claim(volume="gone")), "NotYet"),
        (storage(claim(accessModes=["ReadWriteOncePod"]), volumes=[volume()]), "Unsupported"),
    ],
)
def test_what_is_not_bound_holds_back_or_is_refused(known, kind):
    assert said(shape(known)[1]) == [(kind, "spec.volumes[0].persistentVolumeClaim.claimName")]


def test_an_ephemeral_volume_is_the_claim_that_is_made_for_it():
    ephemeral = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    assert said(shape(storage(), ephemeral, name="p7")[1]) == [
        ("NotYet", "spec.volumes[0].persistentVolumeClaim.claimName")
    ]
    assert shape(storage(claim("p7-scratch"), volumes=[volume()]), ephemeral, name="p7")[1] == ()


def test_a_disk_without_a_claim_is_refused_by_name():
    found = shape(storage(), {"name": "d", "awsElasticBlockStore": {"volumeID": "x"}}, {"name": "e", "emptyDir": {}})
    assert said(found[1]) == [("Unsupported", "spec.volumes[0].awsElasticBlockStore")]
