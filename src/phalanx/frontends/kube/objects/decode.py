"""Bytes into narrow objects. What cannot be read is a value that says so; nothing is raised.

The API server checks its own kinds, but custom resources are only as good as their schema. A list is decoded in one go,
and object by object only if that fails: one malformed object must not cost the sight of ten thousand others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from phalanx.frontends.kube.objects.metadata import Metadata, Narrow

T = TypeVar("T", bound=Narrow)

#: What a decoder says no with: bad JSON or a wrong type (both of msgspec), text that is no UTF-8, too deep.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_STORY_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that is not what its kind promises. Whose it is, as far as that can be read."""

    metadata: Metadata
    says: str  # with the path of the field, as `$.spec.minMember`


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """A page of a list."""

    items: tuple[T, ...]
    malformed: tuple[Unreadable, ...] = ()
    resource_version: str = ""
    more: str = ""  # the token of the next page


@dataclass(frozen=True, slots=True)
class WatchLine(Generic[T]):
    """One line of a watch. Of a bookmark only the version is there, of an error only the code and its words."""

    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK, ERROR; empty if the line is not readable at all
    object: T | Unreadable | None = None
    resource_version: str = ""
    code: int = 0
    says: str = ""


class _ListMeta(Narrow, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawList(Narrow, frozen=True):
    api_version: str = ""
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class _RawLine(Narrow, frozen=True):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class _OnlyMetadata(Narrow, frozen=True):
    metadata: Metadata = Metadata()


class _ErrorStatus(Narrow, frozen=True):
    code: int = 0
    message: str = ""


def decode_object(data: bytes | msgspec.Raw, kind: type[T]) -> T | Unreadable:
    """One object of that kind, or what is wrong with it."""
    try:
        found: T = _decoder(kind)(data)
    except _UNREADABLE as bad:
        return Unreadable(_decode_or(_OnlyMetadata(), data).metadata, tell_unreadable(bad))
    return found


def decode_list(data: bytes, kind: type[T]) -> ObjectList[T]:
    """A page of objects of that kind; those that cannot be read are told apart."""
    try:
        page = _list_decoder(kind)(data)
    except _UNREADABLE as bad:
        return _decode_one_by_one(data, kind, tell_unreadable(bad))
    items = _of_version(page.items or (), page.api_version)
    return ObjectList(items, (), page.metadata.resource_version, page.metadata.continue_)


def decode_line(line: bytes, kind: type[T]) -> WatchLine[T]:
    """One line of a watch."""
    try:
        raw = _decoder(_RawLine)(line)
    except _UNREADABLE as bad:
        return WatchLine("", says=tell_unreadable(bad))
    if raw.type == "ERROR":
        status = _decode_or(_ErrorStatus(), raw.object)
        return WatchLine(raw.type, code=status.code, says=status.message[:_STORY_CHARS_MAX])
    if raw.type == "BOOKMARK":
        return WatchLine(raw.type, resource_version=_decode_or(_OnlyMetadata(), raw.object).metadata.resource_version)
    found = decode_object(raw.object, kind)
    metadata = found.metadata if isinstance(found, Unreadable) else getattr(found, "metadata", Metadata())
    return WatchLine(raw.type, found, metadata.resource_version)


def decode_text(text: str, kind: Any) -> Any:
    """JSON inside an annotation; None if it is none of that kind."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (*_UNREADABLE, UnicodeEncodeError):  # the last: half of a surrogate pair, which JSON escapes can spell
        return None


def tell_unreadable(bad: BaseException) -> str:
    """The decoder's words, short and in one line."""
    if isinstance(bad, RecursionError):
        return "it is nested too deeply"
    # A key of the object may stand in the path, and keys can be anything.
    return "".join(char if char.isprintable() else "?" for char in str(bad)[:_STORY_CHARS_MAX])


def _decode_one_by_one(data: bytes, kind: type[T], why: str) -> ObjectList[T]:
    page = _decode_or(None, data, _RawList)
    if page is None:
        return ObjectList((), (Unreadable(Metadata(), why),))
    found = [decode_object(item, kind) for item in page.items or ()]
    good = tuple(item for item in found if not isinstance(item, Unreadable))
    bad = tuple(item for item in found if isinstance(item, Unreadable))
    return ObjectList(_of_version(good, page.api_version), bad, page.metadata.resource_version, page.metadata.continue_)


def _of_version(items: tuple[T, ...], version: str) -> tuple[T, ...]:
    """Items of a list with the version of that list: those of Kubernetes' own kinds do not repeat it."""
    if not version or not items or getattr(items[0], "api_version", version) == version:
        return items
    return tuple(msgspec.structs.replace(item, api_version=version) for item in items)


def _decode_or(default: Any, data: bytes | msgspec.Raw, kind: type | None = None) -> Any:
    try:
        return _decoder(kind or type(default))(data)
    except _UNREADABLE:
        return default


@cache
def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(kind).decode


@cache
def _list_decoder(kind: Any) -> Callable[[bytes], Any]:
    # Made per kind, once: a list of pods is decoded straight into pods, without a detour over its items.
    made = msgspec.defstruct(
        f"{kind.__name__}List",
        [("api_version", str, ""), ("metadata", _ListMeta, _ListMeta()), ("items", tuple[kind, ...] | None, None)],
        rename="camel",
        frozen=True,
        gc=False,
    )
    return msgspec.json.Decoder(made).decode
