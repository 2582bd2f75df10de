"""Everything that has to be in a cluster for the scheduler to run there, as values: rights, deployment, service.

Rights are no more than what is called: each line says for what. Where a kind of another project is not installed, a
right to it does nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from phalanx.frontends.kube.intents import PLACES

_LOOK: Final = ("get", "list", "watch")
_GROUP_KINDS: Final = (
    "scheduling.k8s.io",
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
)
_PORT: Final = 8080
_SETTINGS_FOLDER: Final = "/etc/phalanx"
_SETTINGS_FILE: Final = "settings.yaml"
#: Whom the image runs as, too (Dockerfile).
USER: Final = 65_532
#: By which `kubectl phalanx` asks.
PORT_NAME: Final = "metrics"


@dataclass(frozen=True, slots=True)
class KubeInstallation:
    """What can be chosen."""

    namespace: str = "phalanx-system"
    scheduler: str = "phalanx"
    image: str = "phalanx:latest"
    replicas: int = 2
    settings: str = ""  # the text of a settings file, if there is one


def list_manifests(chosen: KubeInstallation) -> list[dict[str, Any]]:
    """In the order in which they can be applied."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen.namespace}},
        _object("v1", "ServiceAccount", chosen),
        *list_rights(chosen),
        *([_settings(chosen)] if chosen.settings else []),
        _deployment(chosen),
        _object(
            "v1",
            "Service",
            chosen,
            spec={"selector": _labels(chosen), "ports": [{"name": PORT_NAME, "port": _PORT, "targetPort": _PORT}]},
        ),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            chosen,
            spec={"minAvailable": 1, "selector": {"matchLabels": _labels(chosen)}},
        ),
    ]


def list_rights(chosen: KubeInstallation) -> list[dict[str, Any]]:
    """What the account may do: in the cluster, and in its own namespace."""
    subject = {"kind": "ServiceAccount", "name": chosen.scheduler, "namespace": chosen.namespace}
    cluster_rules = [
        # Sight.
        _rule("", ("pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes"), _LOOK),
        _rule("storage.k8s.io", ("storageclasses",), _LOOK),
        _rule("scheduling.k8s.io", ("priorityclasses",), _LOOK),
        *(_rule(group, ("podgroups",), _LOOK) for group in _GROUP_KINDS),
        # Binding, and undoing what cannot be completed.
        _rule("", ("pods/binding", "pods/eviction"), ("create",)),
        # The same where a budget for disruptions would keep a part of a gang for ever.
        _rule("", ("pods",), ("delete",)),
        # An annotation that makes a binding of somebody who led before us too old.
        _rule("", ("pods",), ("patch",)),
        # Conditions and events.
        _rule("", ("pods/status",), ("patch",)),
        *(_rule(group, ("podgroups", "podgroups/status"), ("patch",)) for group in _GROUP_KINDS),
        _rule("events.k8s.io", ("events",), ("create",)),
    ]
    places = [f"{chosen.scheduler}-intent-{at:02}" for at in range(PLACES)]
    own_rules = [
        # To create there is no right by name.
        _rule("", ("configmaps",), ("create",)),
        {**_rule("", ("configmaps",), ("get", "update")), "resourceNames": places},
        _rule("coordination.k8s.io", ("leases",), ("create",)),
        {**_rule("coordination.k8s.io", ("leases",), ("get", "update")), "resourceNames": [chosen.scheduler]},
    ]
    of = "rbac.authorization.k8s.io"
    name = {"name": chosen.scheduler}
    return [
        {"apiVersion": f"{of}/v1", "kind": "ClusterRole", "metadata": name, "rules": cluster_rules},
        {
            "apiVersion": f"{of}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": of, "kind": "ClusterRole", **name},
            "subjects": [subject],
        },
        _object(f"{of}/v1", "Role", chosen, rules=own_rules),
        # Bound to nobody: an administrator says who may ask. What is asked about is sent, which is `create`.
        {
            **_object(f"{of}/v1", "Role", chosen, rules=[_reader_rule(chosen)]),
            "metadata": {
                "name": f"{chosen.scheduler}-reader",
                "namespace": chosen.namespace,
                "labels": _labels(chosen),
            },
        },
        _object(
            f"{of}/v1",
            "RoleBinding",
            chosen,
            roleRef={"apiGroup": of, "kind": "Role", **name},
            subjects=[subject],
        ),
    ]


def _settings(chosen: KubeInstallation) -> dict[str, Any]:
    return _object("v1", "ConfigMap", chosen, data={_SETTINGS_FILE: chosen.settings})


def _reader_rule(chosen: KubeInstallation) -> dict[str, Any]:
    """To ask through the proxy of the Service, by the name of its port and in no other way."""
    named = [f"{chosen.scheduler}:{PORT_NAME}", f"http:{chosen.scheduler}:{PORT_NAME}"]
    return {**_rule("", ("services/proxy",), ("get", "create")), "resourceNames": named}


def _deployment(chosen: KubeInstallation) -> dict[str, Any]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - inside the container
    # Certificates of a client are read by way of a file.
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    args = ["kube", "run", "--scheduler-name", chosen.scheduler, "--listen", f"0.0.0.0:{_PORT}"]
    annotations = {}
    if chosen.settings:
        args += ["--config", f"{_SETTINGS_FOLDER}/{_SETTINGS_FILE}"]
        mounts.append({"name": "settings", "mountPath": _SETTINGS_FOLDER})
        volumes.append({"name": "settings", "configMap": {"name": chosen.scheduler}})
        # Settings are read once: where they differ, whoever applies the manifests again gets new replicas.
        annotations = {"phalanx.dev/settings": hashlib.sha256(chosen.settings.encode()).hexdigest()[:16]}
    probe = {"path": "/healthz", "port": _PORT}
    container = {
        "name": "scheduler",
        "image": chosen.image,
        "args": args,
        "env": [{"name": "PHALANX_REPLICA", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "ports": [{"name": PORT_NAME, "containerPort": _PORT}],
        "livenessProbe": {"httpGet": probe, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }
    pod = {
        "serviceAccountName": chosen.scheduler,
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": volumes,
    }
    return _object(
        "apps/v1",
        "Deployment",
        chosen,
        spec={
            "replicas": chosen.replicas,
            "selector": {"matchLabels": _labels(chosen)},
            "template": {"metadata": {"labels": _labels(chosen), "annotations": annotations}, "spec": pod},
        },
    )


def _object(version: str, kind: str, chosen: KubeInstallation, **rest: object) -> dict[str, Any]:
    metadata = {"name": chosen.scheduler, "namespace": chosen.namespace, "labels": _labels(chosen)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _labels(chosen: KubeInstallation) -> Mapping[str, str]:
    return {"app.kubernetes.io/name": "phalanx", "app.kubernetes.io/instance": chosen.scheduler}


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


# ---- a cluster to try it out


def make_fake_nodes(count: int, devices: int, prefix: str = "fake") -> list[dict[str, Any]]:
    """Machines that are objects only: pods can be bound to them, and nothing runs."""
    room = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(devices)}
    width = len(str(max(0, count - 1)))
    names = [f"{prefix}-{at:0{width}d}" for at in range(count)]
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "phalanx.dev/fake": "true"}},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": "an object only"}],
            },
        }
        for name in names
    ]
