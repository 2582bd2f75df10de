"""Manifests as people write them, into groups and pods: YAML or JSON, lists and several documents, bounded.

What the API server would fill in is filled in here: a name, a namespace, a priority by its class. Objects that make
pods of a template are written out by `templates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from phalanx.control.spec.reader import BoundedLoader
from phalanx.frontends.kube.answers.kube_replies import AnswerError
from phalanx.frontends.kube.answers.templates import IGNORED, MEMBERS_MAX, MadePods, find_maker, list_kinds
from phalanx.frontends.kube.gang_view import Dialect, GangKey
from phalanx.frontends.kube.objects.decode import Unreadable, decode_object
from phalanx.frontends.kube.objects.groups import GroupObject, NativePodGroup, PluginsPodGroup, VolcanoPodGroup
from phalanx.frontends.kube.objects.pod import Pod, PodStatus
from phalanx.frontends.kube.remarks import Invalid, quote

#: Each pod may have something beside it.
_OBJECTS_MAX: Final = 2 * MEMBERS_MAX
_HINT: Final = "kubectl apply --dry-run=client -f FILE checks a file"
_GROUPS: Final[Mapping[str, tuple[type[Any], Dialect]]] = {
    "scheduling.k8s.io": (NativePodGroup, Dialect.NATIVE),
    "scheduling.x-k8s.io": (PluginsPodGroup, Dialect.SCHEDULER_PLUGINS),
    "scheduling.sigs.k8s.io": (PluginsPodGroup, Dialect.KOORDINATOR),
    "scheduling.volcano.sh": (VolcanoPodGroup, Dialect.VOLCANO),
}


@dataclass(slots=True)
class ReadManifests:
    """What a file would make."""

    pods: list[Pod] = field(default_factory=list)
    groups: dict[GangKey, GroupObject] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)  # of priority, which it brings itself
    refusals: dict[str, Invalid] = field(default_factory=dict)  # by uid: pods that the server would not take


def read_manifests(body: bytes, namespace: str, scheduler: str, priorities: Mapping[str, int]) -> ReadManifests:
    """Every pod and group of a file; `AnswerError` says what cannot be read."""
    found = ReadManifests()
    for at, tree in enumerate(_list_objects(_parse(body))):
        if at >= _OBJECTS_MAX:
            raise AnswerError("too_large", f"more than {_OBJECTS_MAX:,} objects", "ask about fewer at once")
        _take(tree, namespace, found)
    if not found.pods:
        about = "groups, and no pods that would be in them" if found.groups else "nothing that makes pods"
        raise AnswerError("usage", f"there is {about}", f"kinds that are read: {', '.join(list_kinds())}, PodGroup")
    priorities = {**priorities, **found.classes}
    found.pods = [_admit(pod, at, scheduler, priorities, found) for at, pod in enumerate(found.pods)]
    found.notices = list(dict.fromkeys(found.notices))
    return found


# ---- text


def _parse(body: bytes) -> list[Any]:
    try:
        text = body.decode("utf-8")
        if text.lstrip()[:1] == "{":
            return [msgspec.json.decode(text)]
        _refuse_aliases(text)
        return list(yaml.load_all(text, Loader=BoundedLoader))
    except UnicodeDecodeError:
        raise AnswerError("usage", "the file is no text in UTF-8", _HINT) from None
    except RecursionError:
        raise AnswerError("usage", "the file is nested more deeply than any manifest", _HINT) from None
    # What constructors make of dates and numbers that are none is a ValueError.
    except (yaml.YAMLError, msgspec.DecodeError, ValueError, TypeError, OverflowError) as bad:
        raise AnswerError("usage", f"the file cannot be read: {quote(' '.join(str(bad).split()))}", _HINT) from None


def _refuse_aliases(text: str) -> None:
    """A few lines of aliases to aliases are more objects than there is memory for, once they are written out."""
    if "*" not in text:
        return
    for token in yaml.scan(text, Loader=BoundedLoader):
        if isinstance(token, yaml.AliasToken):
            where = f"line {token.start_mark.line + 1}: the alias {quote(f'*{token.value}')}"
            raise AnswerError("usage", f"{where} is not followed here", "write out what it stands for")


def _list_objects(trees: list[Any]) -> Iterator[Mapping[str, Any]]:
    for tree in trees:
        if tree is None:
            continue  # nothing between two separators
        if not isinstance(tree, dict):
            raise AnswerError("usage", f"an object is expected, and there is {quote(tree)}", _HINT)
        items = tree.get("items")
        if str(tree.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from _list_objects(items)
        else:
            yield tree


# ---- objects


def _take(tree: Mapping[str, Any], namespace: str, found: ReadManifests) -> None:
    version, kind = str(tree.get("apiVersion", "")), str(tree.get("kind", ""))
    api = version.rpartition("/")[0]
    if not kind:
        raise AnswerError("usage", f"an object names no kind: {quote(tree)}", _HINT)
    if kind == "PodGroup" and api in _GROUPS:
        type_, dialect = _GROUPS[api]
        group = _decode(_placed(tree, namespace), type_)
        key = GangKey(dialect, group.metadata.namespace, group.metadata.name)
        found.groups[key] = msgspec.structs.replace(group, api_version=version)
    elif kind == "Pod" and not api:
        _take_made(MadePods([tree]), namespace, found)
    elif kind == "PriorityClass" and isinstance(value := tree.get("value"), int):
        found.classes[_placed(tree, "")["metadata"]["name"]] = value
    elif kind in IGNORED:
        found.notices.append(f"{kind}: not looked at, since it makes no pods")
    elif (maker := find_maker(api, kind)) is None:
        says = f"{quote(kind)} of {quote(version or 'no apiVersion')} is no kind that is read here"
        hint = f"kinds that are read: {', '.join(list_kinds())}, PodGroup; of others, ask with the pods that they make"
        raise AnswerError("usage", says, hint)
    else:
        _take_made(maker(_placed(tree, namespace)), namespace, found)


def _take_made(made: MadePods, namespace: str, found: ReadManifests) -> None:
    if len(found.pods) + len(made.pods) > MEMBERS_MAX:
        raise AnswerError("too_large", f"more than {MEMBERS_MAX:,} pods", "ask about fewer at once")
    found.pods += [_decode(_placed(pod, namespace), Pod) for pod in made.pods]
    found.notices += made.notices
    for group in made.groups:
        _take(group, namespace, found)


def _placed(tree: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """With a name and a namespace, as the server gives them."""
    metadata = tree.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise AnswerError("usage", f"metadata is no mapping: {quote(metadata)}", _HINT)
    metadata = dict(metadata or {})
    metadata["namespace"] = metadata.get("namespace") or namespace
    metadata["name"] = metadata.get("name") or f"{metadata.get('generateName') or 'unnamed-'}x"
    return {**tree, "metadata": metadata}


def _decode(tree: Mapping[str, Any], kind: type[Any]) -> Any:
    try:
        read = decode_object(msgspec.json.encode(tree), kind)
    except (TypeError, ValueError, RecursionError) as bad:  # values that YAML has and JSON has not
        raise AnswerError("usage", f"{_name(tree)} cannot be read: {quote(str(bad))}", _HINT) from None
    if isinstance(read, Unreadable):
        raise AnswerError("usage", f"{_name(tree)} cannot be read: {read.says}", "correct that field")
    return read


def _name(tree: Mapping[str, Any]) -> str:
    return f"{quote(tree.get('kind') or 'Pod')} {quote(tree['metadata']['name'])}"


def _admit(pod: Pod, at: int, scheduler: str, priorities: Mapping[str, int], found: ReadManifests) -> Pod:
    """As the server would store it: priorities are numbers there, and it has an identity."""
    spec, metadata = pod.spec, pod.metadata
    if not spec.containers:
        raise AnswerError("usage", f"Pod {quote(metadata.name)} has no containers", _HINT)
    uid, priority = f"fit-{at}", spec.priority
    if priority is None and spec.priority_class_name:
        priority = priorities.get(spec.priority_class_name)
        if priority is None:
            says = (
                f"names {quote(spec.priority_class_name)}, which does not exist, and the API server refuses such pods"
            )
            found.refusals[uid] = Invalid("spec.priorityClassName", says, "create it, or name another")
    if spec.scheduler_name != scheduler:
        named = f"name {quote(spec.scheduler_name)}" if spec.scheduler_name else "name no scheduler"
        says = f"pods {named}; judged as with spec.schedulerName: {scheduler}, without which they are not ours"
        found.notices.append(says)
    metadata = msgspec.structs.replace(metadata, uid=uid, resource_version="0")
    spec = msgspec.structs.replace(spec, scheduler_name=scheduler, node_name="", priority=priority or 0)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=PodStatus())
