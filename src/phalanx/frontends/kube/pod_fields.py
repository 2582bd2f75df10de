"""One table of all fields of a pod's spec, as of Kubernetes 1.37, and what is done with each.

It is the promise that nothing is ignored silently, in a form that a test can go through: each field that is honoured
must change something, each that is refused must be refused by name. Fields of containers and volumes that bear on
placement have rows of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Treatment(Enum):
    """What is done with a field."""

    HONOURED = "honoured"
    REFUSED = "refused"  # `Unsupported`, with the field's name
    WAITS = "waits"  # `NotYet`, until somebody else has acted
    ELSEWHERE = "elsewhere"  # the API server has put what it means for placement into other fields already
    NO_BEARING = "no bearing"  # on where the pod runs; the kubelet or a controller reads it


@dataclass(frozen=True, slots=True)
class PodField:
    """One field: what is done with it, where or why."""

    treatment: Treatment
    where: str


def _honoured(where: str) -> PodField:
    return PodField(Treatment.HONOURED, where)


def _refused(where: str) -> PodField:
    return PodField(Treatment.REFUSED, where)


def _elsewhere(where: str) -> PodField:
    return PodField(Treatment.ELSEWHERE, where)


def _no_bearing(why: str) -> PodField:
    return PodField(Treatment.NO_BEARING, why)


POD_FIELDS: Final[dict[str, PodField]] = {
    # what it asks for
    "containers": _honoured("requests: amounts and host ports"),
    "initContainers": _honoured("requests: amounts, sidecars with their host ports"),
    "overhead": _honoured("requests"),
    "resources": _honoured("requests: instead of the sum over containers"),
    "ephemeralContainers": _no_bearing("they may not ask for anything"),
    "resourceClaims": _refused("constraints: devices by claim (DRA)"),
    # where it may go
    "nodeSelector": _honoured("node_rules"),
    "affinity": _honoured("node_rules, neighbours"),
    "tolerations": _honoured("taints"),
    "topologySpreadConstraints": _honoured("neighbours"),
    "volumes": _honoured("volume_rules: bound claims; the rest waits or is refused there"),
    "nodeName": _honoured("gang_view: it is bound"),
    "hostNetwork": _elsewhere("the API server makes its ports host ports"),
    "runtimeClassName": _elsewhere("admission writes the class's overhead, node selector and tolerations into the pod"),
    "os": _no_bearing("the kubelet refuses a pod for another system; kubernetes.io/os is the label to select by"),
    # whose turn it is, and with whom
    "schedulerName": _honoured("gang_view: members of a gang must agree"),
    "schedulingGroup": _honoured("dialects.native"),
    "schedulingGates": PodField(Treatment.WAITS, "constraints"),
    "priority": _honoured("gang_view: members of a gang must agree"),
    "priorityClassName": _elsewhere("admission looks it up and writes the priority"),
    "preemptionPolicy": _honoured("gang_view: members of a gang must agree"),
    "activeDeadlineSeconds": _honoured("gang_view: nobody runs longer, which planning may rely on"),
    "workloadRef": _refused("constraints: of 1.35 only"),
    # read by others
    "restartPolicy": _no_bearing("what the kubelet does about ends; a controller makes new pods"),
    "terminationGracePeriodSeconds": _no_bearing("how long it may take to end"),
    "dnsPolicy": _no_bearing("inside the pod"),
    "dnsConfig": _no_bearing("inside the pod"),
    "serviceAccountName": _no_bearing("identity"),
    "serviceAccount": _no_bearing("identity"),
    "automountServiceAccountToken": _no_bearing("identity"),
    "hostPID": _no_bearing("inside the pod"),
    "hostIPC": _no_bearing("inside the pod"),
    "hostUsers": _no_bearing("inside the pod"),
    "shareProcessNamespace": _no_bearing("inside the pod"),
    "securityContext": _no_bearing("inside the pod"),
    "imagePullSecrets": _no_bearing("how images come; which nodes have them is no wish of the pod"),
    "hostname": _no_bearing("its name in the network"),
    "subdomain": _no_bearing("its name in the network"),
    "setHostnameAsFQDN": _no_bearing("its name in the network"),
    "hostnameOverride": _no_bearing("its name in the network"),
    "hostAliases": _no_bearing("inside the pod"),
    "enableServiceLinks": _no_bearing("inside the pod"),
    "readinessGates": _no_bearing("when it counts as ready, once it runs"),
    "evictionResponders": _no_bearing("who is asked before it is evicted"),
}

#: Parts of `containers`, `initContainers` and `volumes` that have a treatment of their own.
NESTED_FIELDS: Final[dict[str, PodField]] = {
    "containers.resources": _honoured("requests"),
    "containers.ports": _honoured("requests: host ports"),
    "containers.restartPolicy": _honoured("requests: Always makes an init container a sidecar"),
    "volumes.persistentVolumeClaim": _honoured("volume_rules: where its volume is"),
    "volumes.ephemeral": _honoured("volume_rules: the claim that is made for it"),
    "volumes.gcePersistentDisk": _refused("volume_rules: a disk without a claim"),
    "volumes.awsElasticBlockStore": _refused("volume_rules: a disk without a claim"),
    "volumes.iscsi": _refused("volume_rules: a disk without a claim"),
    "volumes.rbd": _refused("volume_rules: a disk without a claim"),
    "volumes.azureDisk": _refused("volume_rules: a disk without a claim"),
    "volumes.cinder": _refused("volume_rules: a disk without a claim"),
    "volumes.vsphereVolume": _refused("volume_rules: a disk without a claim"),
    "volumes.portworxVolume": _refused("volume_rules: a disk without a claim"),
}
