"""Where the API server is: files as people have them, and what is wrong with others."""

from __future__ import annotations

import json

import pytest

from phalanx.frontends.kube.api.kubeconfig import KubeconfigError, find_access, read_kubeconfig


def write(path, cluster=None, user=None, context=None):
    tree = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8001/behind/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(tree))
    return path


def test_a_proxy_without_encryption(tmp_path):
    access = read_kubeconfig(write(tmp_path / "config", user={"token": "t"}, context={"namespace": "team"}))
    assert (access.host, access.port, access.tls, access.prefix) == ("127.0.0.1", 8001, None, "/behind")
    assert (access.find_token(), access.namespace) == ("t", "team")


def test_a_token_file_is_read_each_time(tmp_path):
    (tmp_path / "token").write_text("one\n")
    access = read_kubeconfig(write(tmp_path / "config", user={"tokenFile": "token"}))
    assert access.find_token() == "one"
    (tmp_path / "token").write_text("two")
    assert access.find_token() == "two"


def test_insecure_means_that_nothing_is_checked(tmp_path):
    cluster = {"server": "https://10.0.0.1", "insecure-skip-tls-verify": True}
    access = read_kubeconfig(write(tmp_path / "config", cluster))
    assert (access.port, access.tls.check_hostname) == (443, False)


@pytest.mark.parametrize(
    ("user", "cluster", "says"),
    [
        ({"exec": {"command": "aws"}}, {}, "the way in 'exec', which is not supported; use a token"),
        ({}, {"server": "nowhere"}, "names no server"),
        ({}, {"server": "https://a", "certificate-authority": "none.pem"}, "cannot be used"),
        ({}, {"server": "https://a", "certificate-authority-data": "bm8="}, "cannot be used"),
        ({}, {"server": "https://a", "certificate-authority-data": "!"}, "is no kubeconfig file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, user, cluster, says):
    with pytest.raises(KubeconfigError, match=says):
        read_kubeconfig(write(tmp_path / "config", cluster, user))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "current-context: x\n", "\x00"])
def test_files_that_are_something_else(tmp_path, text):
    (tmp_path / "config").write_text(text)
    with pytest.raises(KubeconfigError, match="is no kubeconfig file"):
        read_kubeconfig(tmp_path / "config")


def test_no_file_says_what_to_do(tmp_path):
    with pytest.raises(KubeconfigError, match="name one with --kubeconfig"):
        find_access(str(tmp_path / "none"), {})
