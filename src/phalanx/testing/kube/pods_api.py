"""What an API server does with pods alone: it makes them Pending, binds them once, and lets them end gracefully."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from phalanx.testing.kube.api_kinds import ApiKind, ApiPlace
from phalanx.testing.kube.fake_etcd import StoredObject, Tree

_ENDED: Final = ("Succeeded", "Failed")
_GRACE_S: Final = 30


@dataclass(slots=True)
class NoError(Exception):
    """An answer that is no, as the API spells it."""

    code: int
    reason: str
    says: str
    retry_after_s: int | None = None


def refuse_conflict(kind: ApiKind, name: str, says: str) -> NoError:
    """It is not what it was."""
    return NoError(HTTPStatus.CONFLICT, "Conflict", f'Operation cannot be fulfilled on {kind.id} "{name}": {says}')


def refuse_invalid(kind: ApiKind, name: str, says: str) -> NoError:
    """It must not become that."""
    return NoError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", f'{kind.kind} "{name}" is invalid: {says}')


def make_pending(tree: Tree) -> Tree:
    """A new pod, with what every pod has."""
    usual = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _GRACE_S,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
    }
    return {**tree, "spec": {**usual, **tree.get("spec", {})}, "status": {"phase": "Pending"}}


def bind_pod(place: ApiPlace, binding: Tree, find: Callable[[], StoredObject], now: str) -> Tree:
    """The pod with its node, if it is the one that is meant, waits, and has none."""
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name") != place.name:
        raise NoError(HTTPStatus.BAD_REQUEST, "BadRequest", "name in URL does not match name in Binding object")
    if not target.get("name"):
        raise NoError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "target.name: Required value")
    old = find()
    tree, pod = old.tree, old.tree["metadata"]
    for word, name in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if metadata.get(word) and metadata[word] != pod[word]:
            says = f"Precondition failed: {name} in precondition: {metadata[word]}, in object meta: {pod[word]}"
            raise refuse_conflict(place.kind, place.name, says)
    says = ""
    if pod.get("deletionTimestamp"):
        says = f"pod {place.name} is being deleted, cannot be assigned to a host"
    elif tree["spec"].get("nodeName"):
        says = f'pod {place.name} is already assigned to node "{tree["spec"]["nodeName"]}"'
    elif tree["spec"].get("schedulingGates"):
        says = f"pod {place.name} has non-empty .spec.schedulingGates"
    if says:
        raise NoError(
            HTTPStatus.CONFLICT,
            "Conflict",
            f'Operation cannot be fulfilled on pods/binding "{place.name}": {says}',
        )
    if metadata.get("annotations"):
        pod = {**pod, "annotations": {**(pod.get("annotations") or {}), **metadata["annotations"]}}
    others = [each for each in tree["status"].get("conditions", ()) if each["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    return {
        **tree,
        "metadata": pod,
        "spec": {**tree["spec"], "nodeName": target["name"]},
        "status": {**tree["status"], "conditions": [*others, scheduled]},
    }


def check_pod_update(place: ApiPlace, old: Tree, new: Tree) -> None:
    """Of the spec next to nothing may change, and a node only by binding."""
    if new["spec"] != old["spec"] and _frozen(new["spec"]) != _frozen(old["spec"]):
        raise refuse_invalid(place.kind, place.name, "spec: Forbidden: pod updates may not change fields other than")


def _frozen(spec: Tree) -> Tree:
    loose = ("schedulingGates", "tolerations", "terminationGracePeriodSeconds", "activeDeadlineSeconds")
    return {key: value for key, value in spec.items() if key not in loose}


def find_grace_s(pod: Tree, asked_s: int | None) -> int:
    """How long it has to end: no time at all if nothing of it runs."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in _ENDED:
        return 0
    grace: int = pod["spec"].get("terminationGracePeriodSeconds", _GRACE_S)
    return grace if asked_s is None else asked_s
