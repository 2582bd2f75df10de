"""Pods that the controllers of Kubernetes and of training operators would make of a template, as far as it matters.

How many, with which number and task. What an operator adds beside that (environment, volumes of its own) changes no
place. Groups are made where the operator makes them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from phalanx.frontends.kube.answers.kube_replies import AnswerError
from phalanx.frontends.kube.remarks import quote

Tree = Mapping[str, Any]

#: Of one question.
MEMBERS_MAX: Final = 5_000
#: Kinds that stand beside jobs in people's files and make no pods.
IGNORED: Final = frozenset(
    {
        *("ConfigMap", "Secret", "Service", "ServiceAccount", "Namespace", "Role", "RoleBinding", "ClusterRole"),
        *("ClusterRoleBinding", "PersistentVolumeClaim", "PersistentVolume", "NetworkPolicy", "PodDisruptionBudget"),
        *("PriorityClass", "Ingress", "HorizontalPodAutoscaler", "Workload"),
    }
)


@dataclass(frozen=True, slots=True)
class MadePods:
    """What a controller would make."""

    pods: list[Tree]
    groups: list[Tree] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


Maker = Callable[[Tree], MadePods]


def find_maker(api: str, kind: str) -> Maker | None:
    """What knows this kind."""
    if api == "kubeflow.org":
        return _make_training
    return _MAKERS.get((api, kind))


def list_kinds() -> list[str]:
    """All that are known, as people call them."""
    return [
        "Pod",
        "Job",
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "JobSet",
        "Volcano's Job",
        "Kubeflow's training jobs",
    ]


# ---- Kubernetes' own


def _make_job(tree: Tree) -> MadePods:
    spec = _map(tree, "spec")
    parallel = _count(spec, "parallelism", 1)
    # Not more than are still to be done at the same time.
    many = min(parallel, _count(spec, "completions", parallel))
    return MadePods(_stamp(tree, _map(spec, "template"), many, "batch.kubernetes.io/job-completion-index"))


def _make_replicas(tree: Tree) -> MadePods:
    spec = _map(tree, "spec")
    return MadePods(_stamp(tree, _map(spec, "template"), _count(spec, "replicas", 1), "apps.kubernetes.io/pod-index"))


# ---- of projects


def _make_job_set(tree: Tree) -> MadePods:
    pods: list[Tree] = []
    for job in _list(_map(tree, "spec"), "replicatedJobs"):
        inner = _map(_map(job, "template"), "spec")
        for at in range(_count(job, "replicas", 1)):
            name = f"{_name(tree)}-{job.get('name', 'job')}-{at}"
            made = _make_job({**tree, "metadata": {**tree["metadata"], "name": name}, "spec": inner}).pods
            labels = {
                "jobset.sigs.k8s.io/replicatedjob-name": str(job.get("name", "job")),
                "jobset.sigs.k8s.io/job-global-index": str(at),
            }
            pods += [_labelled(pod, labels) for pod in made]
            _check(len(pods))
    return MadePods(pods)


def _make_volcano_job(tree: Tree) -> MadePods:
    spec, pods = _map(tree, "spec"), list[Tree]()
    minimums = {}
    for task in _list(spec, "tasks"):
        many, name = _count(task, "replicas", 1), str(task.get("name", "task"))
        if "minAvailable" in task:
            minimums[name] = _count(task, "minAvailable", many)
        made = _stamp(tree, _map(task, "template"), many, "volcano.sh/task-index", f"{_name(tree)}-{name}")
        annotations = {"scheduling.k8s.io/group-name": _name(tree), "volcano.sh/task-spec": name}
        pods += [_annotated(pod, annotations) for pod in made]
        _check(len(pods))
    least = _count(spec, "minAvailable", len(pods))
    group_spec: dict[str, Any] = {"minMember": least, "queue": spec.get("queue") or "default"}
    if minimums:
        group_spec["minTaskMember"] = minimums
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    return MadePods(pods, [{**group, "metadata": {**tree["metadata"]}, "spec": group_spec}])


def _make_training(tree: Tree) -> MadePods:
    """Kinds of the training operator: their replicas stand under `tfReplicaSpecs`, `pytorchReplicaSpecs`, …"""
    spec = _map(tree, "spec")
    named = [key for key in spec if key.endswith("ReplicaSpecs")]
    if not named:
        raise AnswerError("usage", f"{quote(tree.get('kind'))} {quote(_name(tree))} has no replicas", "name some")
    pods: list[Tree] = []
    for role, each in _map(spec, named[0]).items():
        if not isinstance(each, dict):
            raise AnswerError("usage", f"{named[0]}.{quote(role)} is no mapping", "correct that field")
        name = f"{_name(tree)}-{str(role).lower()}"
        many = _count(each, "replicas", 1)
        made = _stamp(tree, _map(each, "template"), many, "training.kubeflow.org/replica-index", name)
        pods += [_labelled(pod, {"training.kubeflow.org/replica-type": str(role).lower()}) for pod in made]
        _check(len(pods))
    policy = _map(_map(spec, "runPolicy"), "schedulingPolicy")
    least = _count(policy, "minAvailable", len(pods))
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    label = {"scheduling.x-k8s.io/pod-group": _name(tree)}
    says = f"judged as one gang of {least}, which the training operator makes of it with --gang-scheduler-name"
    group = {**group, "metadata": {**tree["metadata"]}, "spec": {"minMember": least}}  # type: ignore[dict-item]
    return MadePods([_labelled(pod, label) for pod in pods], [group], [says])


_MAKERS: Final[Mapping[tuple[str, str], Maker]] = {
    ("batch", "Job"): _make_job,
    ("apps", "Deployment"): _make_replicas,
    ("apps", "ReplicaSet"): _make_replicas,
    ("apps", "StatefulSet"): _make_replicas,
    ("jobset.x-k8s.io", "JobSet"): _make_job_set,
    ("batch.volcano.sh", "Job"): _make_volcano_job,
}


# ---- behind


def _stamp(tree: Tree, template: Tree, many: int, index: str, prefix: str = "") -> list[Tree]:
    """So many pods of one template, numbered."""
    _check(many)
    metadata = _map(template, "metadata")
    labels, annotations = _map(metadata, "labels"), _map(metadata, "annotations")
    space = tree["metadata"].get("namespace")
    name = prefix or _name(tree)
    return [
        {
            "metadata": {
                "name": f"{name}-{at}",
                "namespace": space,
                "labels": {**labels, index: str(at)},
                "annotations": annotations,
            },
            "spec": _map(template, "spec"),
        }
        for at in range(many)
    ]


def _labelled(pod: Tree, labels: Mapping[str, str]) -> Tree:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}


def _annotated(pod: Tree, annotations: Mapping[str, str]) -> Tree:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**metadata["annotations"], **annotations}}}


def _check(many: int) -> None:
    if many > MEMBERS_MAX:
        raise AnswerError("too_large", f"more than {MEMBERS_MAX:,} pods", "ask about fewer at once")


def _name(tree: Tree) -> str:
    return str(tree["metadata"]["name"])


def _map(tree: Tree, key: str) -> Tree:
    found = tree.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise AnswerError("usage", f"{key} is no mapping: {quote(found)}", "correct that field")
    return found


def _list(tree: Tree, key: str) -> Sequence[Tree]:
    found = tree.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise AnswerError("usage", f"{key} is no list of mappings: {quote(found)}", "correct that field")
    return found


def _count(tree: Tree, key: str, default: int) -> int:
    found = tree.get(key)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= 1_000_000:
        raise AnswerError("usage", f"{key} is {quote(found)}", "write a whole number from 0 on")
    return found
