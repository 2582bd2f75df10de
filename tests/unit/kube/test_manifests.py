"""What is installed, and the image that it runs."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from click.testing import CliRunner

from phalanx.cli import main
from phalanx.frontends.kube.manifests import USER, KubeInstallation, list_manifests


def install(*words):
    found = CliRunner().invoke(main, ["kube", "install", *words])
    return found.exit_code, found.output


def by_kind(trees):
    return {tree["kind"]: tree for tree in trees}


def test_everything_is_printed_once_and_the_image_and_the_rest_can_be_chosen():
    code, text = install("--image", "registry.example/phalanx:7", "--namespace", "sched", "--replicas", "3")
    assert code == 0
    trees = list(yaml.safe_load_all(text))
    named = [(tree["kind"], tree["metadata"]["name"]) for tree in trees]
    assert len(set(named)) == len(named)
    kinds = "Namespace ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding Deployment Service PodDisruptionBudget"
    assert list(dict(named)) == kinds.split(), "each after what it stands on"
    spec = by_kind(trees)["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], container["image"]) == (3, "registry.example/phalanx:7")
    assert {tree["metadata"].get("namespace") for tree in trees} == {None, "sched"}


def test_no_right_is_to_everything():
    for tree in list_manifests(KubeInstallation()):
        for rule in tree.get("rules", ()):
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert "secrets" not in rule["resources"]


def test_settings_travel_along_and_other_settings_are_other_replicas(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("topology: [{name: rack, label: example.com/rack}]\n")
    trees = by_kind(yaml.safe_load_all(install("--config", str(path))[1]))
    assert trees["ConfigMap"]["data"]["settings.yaml"] == path.read_text()
    template = trees["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["args"][-2:] == ["--config", "/etc/phalanx/settings.yaml"]
    path.write_text("policy: fcfs\n")
    other = by_kind(yaml.safe_load_all(install("--config", str(path))[1]))["Deployment"]["spec"]["template"]
    assert template["metadata"]["annotations"] != other["metadata"]["annotations"]


def test_settings_that_cannot_be_used_are_refused_before_anybody_applies_them(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("bind_deadline_s: soon\n")
    code, text = install("--config", str(path))
    assert code != 0
    assert "bind_deadline_s" in text


# --- the image: there is nothing here to build it with, so what can be wrong in its file is looked at


@pytest.fixture
def dockerfile(repo_root):
    return (repo_root / "Dockerfile").read_text()


def test_what_the_image_copies_is_there_and_reaches_the_builder(dockerfile, repo_root):
    copied = {path for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", dockerfile) for path in line.split()[:-1]}
    sent = set(re.findall(r"(?m)^!(.+)$", (repo_root / ".dockerignore").read_text()))
    assert copied == sent
    assert all((repo_root / path).exists() for path in copied)


def test_the_image_runs_as_the_user_of_the_manifests(dockerfile):
    assert re.findall(r"(?m)^USER (.+)$", dockerfile) == [f"{USER}:{USER}"]


def test_what_the_image_throws_away_is_what_only_builds(dockerfile, repo_root):
    gone = re.search(r"uninstall --yes --quiet ([^#]*?)\n\n", dockerfile)[1].replace("\\\n", "").split()
    locked = (repo_root / "requirements" / "light.txt").read_text()
    needed = tomllib.loads((repo_root / "pyproject.toml").read_text())["project"]["dependencies"]
    for name in set(gone) - {"pip", "setuptools"}:
        (wanted_by,) = re.findall(rf"(?m)^{name}==.*\n(?: +--hash.*\n)+ +# via (.+)", locked)
        assert wanted_by.startswith("hatchling" if name != "hatchling" else "phalanx")
        assert not any(each.startswith(name) for each in needed)
