"""The kinds of other gang schedulers, as far as their manifests need them: names and any fields.

Written here and not copied from the projects: a scheduler that reads them has to bear whatever is in them, so a
schema that lets everything through is the harder test.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from phalanx.testing.controlplane.rest import KubeRefusedError, KubeRest, wait_until

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class ForeignKind:
    """A kind that a project brings along."""

    project: str
    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def path(self) -> str:
        """Where all of them are listed."""
        return f"/apis/{self.group}/{self.version}/{self.plural}"

    def place(self, namespace: str = "default") -> str:
        """Where those of a namespace are."""
        return f"/apis/{self.group}/{self.version}/namespaces/{namespace}/{self.plural}"


KINDS: Final = (
    ForeignKind("scheduler-plugins", "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
    ForeignKind("koordinator", "scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups"),
    ForeignKind("koordinator", "scheduling.sigs.k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas"),
    ForeignKind("volcano", "scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    ForeignKind("volcano", "scheduling.volcano.sh", "v1beta1", "Queue", "queues", is_namespaced=False),
)
PROJECTS: Final = tuple(dict.fromkeys(each.project for each in KINDS))


def find_kind(project: str, kind: str) -> ForeignKind:
    """One of the table."""
    return next(each for each in KINDS if (each.project, each.kind) == (project, kind))


def make_crd(kind: ForeignKind) -> dict[str, Any]:
    """Its definition: any fields, and a status that is written apart from the rest."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    annotations = {}
    if kind.group.endswith(".k8s.io"):
        # The server refuses such a group without a word about who allowed it; the projects name their request there.
        annotations["api-approved.kubernetes.io"] = "unapproved, for tests"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}", "annotations": annotations},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [version],
        },
    }


def install_kinds(api: KubeRest, projects: Iterable[str] = PROJECTS) -> list[ForeignKind]:
    """Create the kinds of these projects; they can be listed and watched when this returns."""
    wanted = set(projects)
    if unknown := wanted - set(PROJECTS):
        raise ValueError(f"no project {', '.join(sorted(unknown))}; there are {', '.join(PROJECTS)}")
    kinds = [each for each in KINDS if each.project in wanted]
    api.create_all(CRDS, map(make_crd, kinds))
    for kind in kinds:
        wait_until(partial(_is_served, api, kind), f"{kind.plural}.{kind.group} to be served")
    return kinds


def _is_served(api: KubeRest, kind: ForeignKind) -> bool:
    """A list alone would do too soon: for a second or two a watch is told to come again (429)."""
    try:
        version = api.get(kind.path)["metadata"]["resourceVersion"]
        for _ in api.watch(
            kind.path,
            version,
            1.0,
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
        ):
            return True
    except KubeRefusedError:
        return False
    return True
