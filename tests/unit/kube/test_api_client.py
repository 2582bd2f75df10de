"""How calls are counted."""

from __future__ import annotations

import pytest

from phalanx.frontends.kube.api.api_client import find_target


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces/team/pods/a-0/binding", "binding"),
        ("/api/v1/namespaces/team/pods/a-0", "pods"),
        ("/api/v1/namespaces/team/configmaps", "configmaps"),
        ("/api/v1/namespaces/team/configmaps/phalanx-intent-00", "configmaps"),
        ("/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g/status", "status"),
        ("/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/g", "podgroups"),
        ("/api/v1/namespaces/team", "namespaces"),
        ("/api/v1/nodes/n0", "nodes"),
    ],
)
def test_writes_are_counted_by_kind_and_never_by_name(path, target):
    assert find_target(path) == target
