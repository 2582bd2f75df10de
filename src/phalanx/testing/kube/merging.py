"""Patches as an API server applies them, and the selectors that its lists take. Nothing is changed in place."""

from __future__ import annotations

from typing import Any, Final

from phalanx.testing.kube.fake_etcd import Tree

#: By which field elements of a list are one and the same; lists that are not here are replaced.
_MERGE_KEYS: Final = {"conditions": "type", "taints": "key", "containers": "name"}
#: Where a strategic patch merges a list of plain values.
_MERGED_SETS: Final = frozenset({"finalizers"})


def merge(old: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null takes away, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), value)
    return found


def merge_strategic(old: Any, patch: Any, name: str = "") -> Any:
    """As `merge`, but lists whose elements have a key are merged by it."""
    if isinstance(patch, list) and isinstance(old, list):
        return _merge_lists(old, patch, name)
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge_strategic(found.get(key), value, key)
    return found


def _merge_lists(old: list[Any], patch: list[Any], name: str) -> list[Any]:
    if name in _MERGED_SETS:
        return [*old, *(each for each in patch if each not in old)]
    by = _MERGE_KEYS.get(name)
    if by is None:
        return patch
    found = {each[by]: each for each in old}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(each[by], None)
        else:
            found[each[by]] = merge_strategic(found.get(each[by]), each)
    return list(found.values())


def matches_labels(tree: Tree, selector: str) -> bool:
    """`a=b,c!=d,e`: what is used of label selectors."""
    labels = tree["metadata"].get("labels") or {}
    return all(_matches(labels.get, each) for each in selector.split(",") if each)


def matches_fields(tree: Tree, selector: str) -> bool:
    """The same of fields, by their path; one that is absent is empty."""

    def find(path: str) -> str:
        found: Any = tree
        for step in path.split("."):
            found = (found or {}).get(step)
        return str(found or "")

    return all(_matches(find, each) for each in selector.split(",") if each)


def _matches(find: Any, term: str) -> bool:
    if "!=" in term:
        key, _, value = term.partition("!=")
        return bool(find(key) != value)
    key, equals, value = term.partition("=")
    return bool(find(key) == value.removeprefix("=")) if equals else find(key) is not None
