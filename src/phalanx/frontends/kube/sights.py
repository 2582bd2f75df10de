"""All objects of one kind, as a reflector tells of them; what follows from a change is for whoever keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from phalanx.frontends.kube.companies import Name
from phalanx.frontends.kube.objects.decode import Unreadable
from phalanx.frontends.kube.objects.metadata import Metadata, Narrow

T = TypeVar("T", bound=Narrow)


class KindSight(Generic[T]):
    """All objects of one kind, for a reflector to tell of."""

    def __init__(
        self, take: Callable[[Name, T | Unreadable | None, T | Unreadable | None], None], on_sync: Callable[[], None]
    ) -> None:
        """`take` is called with the name, what was there and what is there now."""
        self.objects: dict[Name, T | Unreadable] = {}
        self.is_synced = self.is_absent = False
        self._take, self._on_sync = take, on_sync

    def replace_all(self, objects: list[T | Unreadable]) -> None:
        """What is not among them is gone: nobody will tell of that again."""
        there = {name_of(each): each for each in objects}
        for name in [name for name in self.objects if name not in there]:
            self._take(name, self.objects.pop(name), None)
        for name, each in there.items():
            self._put(name, each)
        self.is_synced, self.is_absent = True, False
        self._on_sync()  # also of an empty list, which makes no change

    def note(self, object_: T | Unreadable, *, deleted: bool) -> None:
        """One change. The same may be told twice."""
        name = name_of(object_)
        if deleted:
            self._take(name, self.objects.pop(name, None), None)
        else:
            self._put(name, object_)

    def note_absent(self) -> None:
        """Its kind is not served; if it was, all of them are gone."""
        self.replace_all([])
        self.is_absent = True

    def _put(self, name: Name, object_: T | Unreadable) -> None:
        old = self.objects.get(name)
        self.objects[name] = object_
        if old is None or _metadata_of(old).resource_version != _metadata_of(object_).resource_version:
            self._take(name, old, object_)


def name_of(object_: Narrow | Unreadable) -> Name:
    """By what objects are known here."""
    metadata = _metadata_of(object_)
    return metadata.namespace, metadata.name


def _metadata_of(object_: Any) -> Metadata:
    found: Metadata = object_.metadata  # every kind that is watched has it
    return found
