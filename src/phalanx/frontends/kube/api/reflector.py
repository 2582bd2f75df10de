"""Keeps sight of all objects of one kind: a list in pages, then a watch, and the list again when the watch is too old.

Whoever listens is told of whole lists and of single changes, in order. What goes wrong is told once; waiting is only
for errors: a watch that ended, as they do every few minutes, is opened again at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, Protocol, TypeVar

from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.objects.decode import Unreadable, decode_line, decode_list
from phalanx.frontends.kube.objects.metadata import Narrow

T = TypeVar("T", bound=Narrow)

_PAGE: Final = 500
#: The server ends a watch after so long, and sends a bookmark every minute; two without one are no pause of its own.
_WATCH_S: Final = 300
_STALL_S: Final = 130.0
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_LAST_S: Final = 5.0
#: How often a kind that is not served is looked for again.
ABSENT_S: Final = 10.0


class TooOldError(Exception):
    """The watch cannot go on from where it was; everything must be listed again."""


@dataclass(frozen=True, slots=True)
class WatchedKind(Generic[T]):
    """A kind, and where all of its objects are."""

    name: str
    path: str
    decoded_as: type[T]
    older: tuple[str, ...] = ()  # paths of earlier versions, for servers that do not serve this one


class Sight(Protocol[T]):
    """Who is told."""

    def replace_all(self, objects: list[T | Unreadable]) -> None:
        """These are all there are."""
        ...

    def note(self, object_: T | Unreadable, *, deleted: bool) -> None:
        """One was made, changed or deleted."""
        ...

    def note_absent(self) -> None:
        """The API server does not serve this kind."""
        ...


class Reflector(Generic[T]):
    """Of one kind."""

    def __init__(
        self,
        api: ApiClient,
        kind: WatchedKind[T],
        sight: Sight[T],
        tell: Callable[[str, str, str], None],
        *,
        absent_s: float = ABSENT_S,
    ) -> None:
        """`tell` is called with the kind, a word and a sentence when something went wrong that has not before."""
        self._absent_s = absent_s
        self._api, self._kind, self._sight, self._tell = api, kind, sight, tell
        self._path = kind.path
        self._version = ""
        self._said = ""
        # Its own: many of them are thrown out by one restart and must not come back at one instant.
        self._random = random.Random(kind.path)
        self.lists = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                failures = 0
                continue
            except TooOldError:
                self._version = ""
                continue
            except ApiRefusedError as refused:
                nap_s = self._weigh(refused, failures)
            except ApiSilentError as silent:
                self._say("silent", str(silent))
                nap_s = min(_BACKOFF_FIRST_S * 2 ** min(failures, 10), _BACKOFF_LAST_S)
            failures += 1
            await asyncio.sleep(nap_s * (0.5 + self._random.random() / 2))

    def _weigh(self, refused: ApiRefusedError, failures: int) -> float:
        if refused.code == HTTPStatus.GONE:
            self._version = ""
            return 0.0
        if refused.code == HTTPStatus.NOT_FOUND:
            self._version = ""
            self._sight.note_absent()
            self._say("absent", f"{self._kind.name} is not served here")
            return self._absent_s
        if refused.code == HTTPStatus.FORBIDDEN:
            self._say("forbidden", refused.words)
            return _BACKOFF_LAST_S
        self._say("refused", str(refused))
        return refused.retry_after_s or min(_BACKOFF_FIRST_S * 2 ** min(failures, 10), _BACKOFF_LAST_S)

    async def _list(self) -> None:
        """Of the newest version that is served: asked each time, for a server may have been replaced by a newer one."""
        *newer, oldest = self._kind.path, *self._kind.older
        for path in newer:
            try:
                return await self._list_at(path)
            except ApiRefusedError as refused:
                if refused.code != HTTPStatus.NOT_FOUND:
                    raise
        return await self._list_at(oldest)

    async def _list_at(self, path: str) -> None:
        found: list[T | Unreadable] = []
        more: dict[str, object] = {}
        while True:
            body = await self._api.get(path, limit=_PAGE, **more)
            page = decode_list(body, self._kind.decoded_as)
            if not page.resource_version:
                raise ApiSilentError(f"list {path}: {page.malformed[0].says if page.malformed else 'empty'}")
            found += page.items
            found += page.malformed
            if not page.more:
                break
            more = {"continue": page.more}
        self.lists += 1
        self._path, self._version = path, page.resource_version
        self._sight.replace_all(found)
        self._say("", "")

    async def _watch(self) -> None:
        query: dict[str, Any] = {
            "watch": 1,
            "resourceVersion": self._version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": int(_WATCH_S * (0.75 + self._random.random() / 4)),
        }
        async with self._api.stream(self._path, _STALL_S, **query) as lines:
            async for line in lines:
                self._take(line)
        self._say("", "")

    def _take(self, line: bytes) -> None:
        seen = decode_line(line, self._kind.decoded_as)
        if seen.type == "ERROR":
            if seen.code in (HTTPStatus.GONE, HTTPStatus.INTERNAL_SERVER_ERROR):
                # 500 is what some versions say when they have lost the thread.
                raise TooOldError
            raise ApiSilentError(f"watch {self._path}: {seen.code} {seen.says}")
        if not seen.type:
            raise ApiSilentError(f"watch {self._path}: a line that cannot be read: {seen.says}")
        if seen.object is not None:
            self._sight.note(seen.object, deleted=seen.type == "DELETED")
        # Opaque, and only ever handed back; after the object was taken, so that nothing is skipped.
        self._version = seen.resource_version or self._version

    def _say(self, word: str, sentence: str) -> None:
        """Once for each trouble, and once when it is over."""
        if word != self._said:
            self._tell(self._kind.name, word or "well", sentence)
            self._said = word
