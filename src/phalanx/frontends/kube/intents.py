"""Where flights are written down: a fixed shelf of ConfigMaps of ours, each for one flight at a time.

Fixed, for two reasons. Whoever takes over writes its epoch on all of them, so that a leader who slept through that
cannot write down anything any more, and binds nothing. And writing the next flight over the last is one call a gang,
where making and deleting an object each time would be two. A flight that has landed stays on its place until the next
one, or until there is nothing else to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError, decode_any
from phalanx.frontends.kube.flights import Flight, read_intent, write_intent

T = TypeVar("T")

PLACES: Final = 16
_LABEL: Final = "phalanx.dev/intent"
_ATTEMPTS: Final = 5
_NAP_S: Final = 0.2


class FencedError(Exception):
    """Somebody else leads by now; the text says how that was seen."""


@dataclass(slots=True)
class ShelfPlace:
    """One of the objects."""

    name: str
    version: str = ""
    text: str = ""
    is_taken: bool = False


class IntentShelf:
    """All of them."""

    def __init__(self, api: ApiClient, namespace: str, scheduler: str) -> None:
        self._api = api
        self._scheduler = scheduler
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._places = {name: ShelfPlace(name) for name in (f"{scheduler}-intent-{at:02}" for at in range(PLACES))}
        self._free = asyncio.Semaphore(PLACES)
        self.epoch = 0

    async def take_over(self, epoch: int) -> list[tuple[ShelfPlace, Flight]]:
        """Put our epoch on all of them; the answer is flights that somebody before us may not have finished.

        Where a lease was deleted its count begins anew, and a restart without one has none: what lies here decides,
        since the same epoch over the same text would change nothing, and keep nobody out.
        """
        places = [*self._places.values()]
        seen = await _gather(map(self._look, places))
        self.epoch = max(epoch, *(each + 1 for each in seen))
        # All at a time: nobody is bound before the last of them is ours, and whoever waits in line waits for that.
        await _gather(map(self._claim, places))
        found = []
        for place in self._places.values():
            flight = read_intent(place.text)
            if flight is not None:
                place.is_taken = True
                await self._free.acquire()
                found.append((place, flight))
        return found

    async def write(self, flight: Flight) -> ShelfPlace:
        """Write a flight down; it is not raised before that has certainly happened, or certainly not."""
        await self._free.acquire()
        place = next(each for each in self._places.values() if not each.is_taken)
        place.is_taken = True
        try:
            await self._put(place, write_intent(flight, self.epoch))
        except BaseException:
            place.is_taken = False
            self._free.release()
            raise
        return place

    def leave(self, place: ShelfPlace) -> None:
        """Nothing is to be done for it any more; its text goes with the next one, or by `clear`."""
        place.is_taken = False
        self._free.release()

    async def clear(self) -> None:
        """Take away what lies there for nothing."""
        for place in self._places.values():
            if place.is_taken or not place.text or self._free.locked():
                continue
            # Like a flight: whoever comes meanwhile must find as many places as it was told that there are.
            await self._free.acquire()
            place.is_taken = True
            try:
                await self._put(place, "")
            finally:
                self.leave(place)

    @property
    def is_littered(self) -> bool:
        """Whether there is something to clear, and nobody who will write over it anyway."""
        places = self._places.values()
        return any(place.text for place in places) and not any(place.is_taken for place in places)

    # ---- behind

    async def _look(self, place: ShelfPlace) -> int:
        """What lies there now; the answer is in whose epoch."""
        try:
            tree = decode_any(await self._api.get(f"{self._path}/{place.name}"))
        except ApiRefusedError as refused:
            if refused.code != HTTPStatus.NOT_FOUND:
                raise
            place.version = place.text = ""
            return -1
        data = tree.get("data") or {}
        place.version, place.text = tree["metadata"]["resourceVersion"], str(data.get("flight", ""))
        return int(epoch) if (epoch := str(data.get("epoch", ""))).isdecimal() else -1

    async def _claim(self, place: ShelfPlace) -> None:
        for _ in range(_ATTEMPTS):
            if not place.version:
                if await self._create(place):
                    return
            else:
                try:
                    await self._put(place, place.text)
                except FencedError:
                    pass  # the one before us has just written: look again
                else:
                    return
            if await self._look(place) >= self.epoch:
                break
        raise FencedError(f"{place.name} is written by somebody else")

    async def _create(self, place: ShelfPlace) -> bool:
        tree = self._tree(place, "")
        tree["metadata"].pop("resourceVersion", None)
        try:
            answer = await self._api.call("POST", self._path, tree)
        except ApiRefusedError as refused:
            if refused.code == HTTPStatus.CONFLICT:
                return False
            raise
        place.version, place.text = decode_any(answer)["metadata"]["resourceVersion"], ""
        return True

    async def _put(self, place: ShelfPlace, text: str) -> None:
        tree = self._tree(place, text)
        path = f"{self._path}/{place.name}"
        while True:
            try:
                answer = await self._api.call("PUT", path, tree)
            except ApiRefusedError as refused:
                if refused.code == HTTPStatus.NOT_FOUND:
                    # Somebody has tidied up. Without it nobody can be kept from writing, so it is made anew, empty.
                    if not await self._create(place):
                        raise FencedError(f"{place.name} was made by somebody else") from refused
                    tree = self._tree(place, text)
                    continue
                if refused.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    await asyncio.sleep(_NAP_S)  # it may be written all the same
                    continue
                if refused.code != HTTPStatus.CONFLICT:
                    raise
                # Ours may be the write that it conflicts with, if its answer was lost.
                if not await self._is_written(place, tree):
                    raise FencedError(f"{place.name} was written by somebody else") from refused
                return
            except ApiSilentError:
                await asyncio.sleep(_NAP_S)
                continue
            place.version, place.text = msgspec.json.decode(answer)["metadata"]["resourceVersion"], text
            return

    async def _is_written(self, place: ShelfPlace, tree: dict[str, Any]) -> bool:
        while True:
            try:
                there = decode_any(await self._api.get(f"{self._path}/{place.name}"))
            except (ApiSilentError, ApiRefusedError) as bad:
                if isinstance(bad, ApiRefusedError) and not _is_for_now(bad):
                    raise
                # Without an answer nobody knows which version is there, and the next write would look like another's.
                await asyncio.sleep(_NAP_S)
                continue
            if there.get("data") != tree["data"]:
                return False
            place.version, place.text = there["metadata"]["resourceVersion"], tree["data"]["flight"]
            return True

    def _tree(self, place: ShelfPlace, text: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": place.name, "labels": {_LABEL: self._scheduler}}
        if place.version:
            metadata["resourceVersion"] = place.version
        data = {"epoch": str(self.epoch), "flight": text}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _is_for_now(refused: ApiRefusedError) -> bool:
    """Whether the same may be answered in a moment: nothing was said of what was asked."""
    return refused.code == HTTPStatus.TOO_MANY_REQUESTS or refused.code >= HTTPStatus.INTERNAL_SERVER_ERROR


async def _gather(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it is over when this is, whatever became of it; the first that failed is told."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if not isinstance(each, BaseException)]
