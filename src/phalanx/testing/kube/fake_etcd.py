"""Objects of a fake API server and every change of them, by one revision for all kinds, as etcd has it.

It knows nothing of what objects mean. Trees are never changed in place: whoever changes one makes another, so that
what a watch, a page or a rule has in hand stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

Tree = dict[str, Any]
#: Kind (as `pods`), namespace (empty for those of the cluster) and name.
Key = tuple[str, str, str]


class CompactedError(Exception):
    """So old that it is not kept any more."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of one object."""

    tree: Tree
    revision: int
    text: bytes  # the tree as JSON: encoded once, sent many times


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One step from a revision to the next."""

    revision: int
    type: str
    key: Key
    old: StoredObject | None
    new: StoredObject | None
    text: bytes  # of the object, or of what it was last

    @property
    def line(self) -> bytes:
        """As a watch tells it."""
        return b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.text)


class FakeEtcd:
    """All of it."""

    def __init__(self) -> None:
        """Nothing is there."""
        self.revision = 1
        self.compacted = 0  # changes up to this revision are forgotten
        self.kinds: dict[str, dict[tuple[str, str], StoredObject]] = {}
        #: Told of every change, in order, before the answer goes out.
        self.listeners: list[Callable[[StoredChange], None]] = []
        self._changes: list[StoredChange] = []

    def get(self, key: Key) -> StoredObject | None:
        """What is there now."""
        return self.kinds.get(key[0], {}).get(key[1:])

    def list_all(self, kind: str, namespace: str = "") -> list[tuple[tuple[str, str], StoredObject]]:
        """All of a kind, of one namespace or of all, in the order of their keys."""
        found = sorted(self.kinds.get(kind, {}).items())
        return [each for each in found if not namespace or each[0][0] == namespace]

    def put(self, key: Key, tree: Tree) -> StoredObject:
        """An object, new or changed. The same as it was is no change."""
        old = self.get(key)
        if old is not None and _same(old.tree, tree):
            return old
        self.revision += 1
        tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(self.revision)}}
        new = StoredObject(tree, self.revision, msgspec.json.encode(tree))
        self.kinds.setdefault(key[0], {})[key[1:]] = new
        self._note(StoredChange(self.revision, ADDED if old is None else MODIFIED, key, old, new, new.text))
        return new

    def remove(self, key: Key) -> StoredObject:
        """It is gone. Its last words have the revision of its end."""
        old = self.kinds[key[0]].pop(key[1:])
        self.revision += 1
        tree = {**old.tree, "metadata": {**old.tree["metadata"], "resourceVersion": str(self.revision)}}
        last = StoredObject(tree, self.revision, msgspec.json.encode(tree))
        self._note(StoredChange(self.revision, DELETED, key, old, None, last.text))
        return last

    def changes_since(self, kind: str, revision: int) -> list[StoredChange]:
        """What happened to a kind after a revision."""
        if revision < self.compacted:
            raise CompactedError(f"too old resource version: {revision} ({self.compacted})")
        return [each for each in self._changes if each.revision > revision and each.key[0] == kind]

    def compact(self) -> None:
        """Forget everything but what is there now."""
        self.compacted = self.revision
        self._changes.clear()

    def _note(self, change: StoredChange) -> None:
        self._changes.append(change)
        for listener in self.listeners:
            listener(change)


def _same(old: Tree, new: Tree) -> bool:
    if old.keys() != new.keys() or any(old[key] != new[key] for key in old if key != "metadata"):
        return False
    mine, theirs = old["metadata"], new["metadata"]
    return {**mine, "resourceVersion": ""} == {**theirs, "resourceVersion": ""}
