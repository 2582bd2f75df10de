"""Bytes into objects: what cannot be read is told, and costs nobody else anything."""

import json

import pytest
from kube_objects import manifest, metadata

from phalanx.frontends.kube.objects.decode import (
    ObjectList,
    Unreadable,
    decode_line,
    decode_list,
    decode_object,
    decode_text,
)
from phalanx.frontends.kube.objects.groups import NativePodGroup, PluginsPodGroup
from phalanx.frontends.kube.objects.pod import Pod


def encode(found):
    return json.dumps(found).encode()


def test_a_list_with_its_version_and_the_token_of_the_next_page():
    page = {"metadata": {"resourceVersion": "42", "continue": "abc"}, "items": [manifest("a"), manifest("b")]}
    found = decode_list(encode(page), Pod)
    assert [pod.metadata.name for pod in found.items] == ["a", "b"]
    assert (found.resource_version, found.more, found.malformed) == ("42", "abc", ())


def test_one_malformed_object_does_not_hide_the_others():
    broken = {"metadata": metadata("broken"), "spec": {"minMember": "many"}}
    page = {
        "metadata": {"resourceVersion": "9"},
        "items": [{"metadata": metadata("good"), "spec": {"minMember": 2}}, broken],
    }
    found = decode_list(encode(page), PluginsPodGroup)
    assert [group.metadata.name for group in found.items] == ["good"]
    (bad,) = found.malformed
    assert bad.metadata.name == "broken"
    assert "$.spec.minMember" in bad.says
    assert found.resource_version == "9"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"items": 5}', b'{"items": [' + b"[" * 50_000, b'{"items": [3]}']
)
def test_what_is_no_list_is_told(data):
    found = decode_list(data, Pod)
    assert found.items == ()
    assert len(found.malformed) == 1
    assert found.malformed[0].says


def test_empty_lists_and_null():
    assert decode_list(b'{"metadata": {"resourceVersion": "1"}, "items": null}', Pod) == ObjectList((), (), "1")
    assert decode_list(b"{}", Pod) == ObjectList(())


def test_whose_a_malformed_object_is_can_still_be_read():
    found = decode_object(encode({"metadata": metadata("x"), "spec": {"schedulingPolicy": 5}}), NativePodGroup)
    assert isinstance(found, Unreadable)
    assert (found.metadata.name, found.metadata.namespace) == ("x", "team")


def test_lines_of_a_watch():
    added = decode_line(encode({"type": "ADDED", "object": manifest("a")}), Pod)
    assert (added.type, added.object.metadata.name, added.resource_version) == ("ADDED", "a", "7")
    bookmark = decode_line(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"77"}}}', Pod)
    assert (bookmark.type, bookmark.object, bookmark.resource_version) == ("BOOKMARK", None, "77")
    gone = decode_line(b'{"type":"ERROR","object":{"code":410,"message":"too old"}}', Pod)
    assert (gone.type, gone.code, gone.says) == ("ERROR", 410, "too old")
    assert decode_line(b"not json", Pod).type == ""
    broken = decode_line(b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"3"},"spec":[]}}', Pod)
    assert isinstance(broken.object, Unreadable)
    assert broken.resource_version == "3"


def test_both_versions_of_the_native_group_are_read():
    beta = decode_object(
        b'{"apiVersion":"scheduling.k8s.io/v1beta1","spec":{"disruptionMode":{"all":{}}}}', NativePodGroup
    )
    alpha = decode_object(
        b'{"apiVersion":"scheduling.k8s.io/v1alpha2","spec":{"disruptionMode":"PodGroup"}}', NativePodGroup
    )
    assert beta.spec.disruption_mode.all is not None
    assert alpha.spec.disruption_mode == "PodGroup"


@pytest.mark.parametrize("text", ["", "{", '"\\ud800"', "[" * 50_000, "5", "null", "\x00"])
def test_annotations_that_are_no_json(text):
    assert decode_text(text, list[str]) is None
