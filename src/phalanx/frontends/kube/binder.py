"""Carries flights out: binds in parallel, reads back what was not answered, and takes back what cannot be completed.

Of `flights` it has the words and the judgement; here is who is asked and in which order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

from phalanx.frontends.kube.api.api_client import MERGE_PATCH, ApiClient, ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.flights import (
    EPOCH,
    NAP_FIRST_S,
    NAP_LAST_S,
    RANK,
    Berth,
    BerthFate,
    Course,
    Flight,
    Judgement,
    Word,
    judge,
)
from phalanx.frontends.kube.intents import FencedError, IntentShelf, ShelfPlace
from phalanx.frontends.kube.mirror import has_ended
from phalanx.frontends.kube.objects.decode import Unreadable, decode_object
from phalanx.frontends.kube.objects.pod import Pod

_SILENT_NAP_S: Final = 0.2
_REFUSED_NAP_S: Final = 2.0
#: Causes of a refused eviction that last: a budget for disruptions, for as long as the gang is not whole; a namespace
#: that is being deleted, in which nothing is created any more, and an eviction is.
_LASTING: Final = frozenset({"DisruptionBudget", "NamespaceTerminating"})
#: Who waited for longer until its plan was written down looks at its room again before it binds anything.
_LONG_WRITE_S: Final = 0.5
#: What a write to a pod that is gone, or is another one of that name, is answered with.
_IS_ANOTHER: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


class Surveyor(Protocol):
    """Who knows what a binder is not told by its answers."""

    def find_short(self, open_: Sequence[Berth]) -> str:
        """What the rest of a flight has no room for any more, in words."""
        ...

    def note_bound(self, berth: Berth, node: str) -> None:
        """It is bound, for sure."""
        ...

    def note_evicted(self, berth: Berth) -> None:
        """It is on its way out, for sure."""
        ...

    def has_ended(self, berth: Berth) -> bool:
        """Whether it is done, and holds no seat any more."""
        ...

    def may_write(self) -> bool:
        """Whether we lead, for sure, for as long as a call takes."""
        ...

    def now_s(self) -> float:
        """By the wall clock."""
        ...


@dataclass(slots=True)
class BindCounts:
    """For the metrics."""

    bound: int = 0
    read_back: int = 0
    evicted: int = 0


class Binder:
    """One for all flights."""

    def __init__(self, api: ApiClient, shelf: IntentShelf, surveyor: Surveyor, tell: Callable[..., None]) -> None:
        """`tell` is called with a word and fields, when something happened."""
        self._api, self._shelf, self._surveyor, self._tell = api, shelf, surveyor, tell
        self.counts = BindCounts()

    # ---- flights

    async def fly(self, flight: Flight) -> Judgement:
        """From its first bind to its landing, or until nothing of it is left. `FencedError`: it is somebody else's."""
        place = None
        began_s = self._surveyor.now_s()
        if len(flight.berths) > 1:
            try:
                place = await self._shelf.write(flight)
            except (ApiRefusedError, ApiSilentError) as bad:
                return Judgement(Course.BACK, f"its plan could not be written down: {bad}")
        if place is not None and self._surveyor.now_s() - began_s > _LONG_WRITE_S:
            short = self._surveyor.find_short(flight.berths)
            if short:
                self._shelf.leave(place)
                return Judgement(Course.BACK, f"its room was taken while its plan was written down: {short}")
        return await self._fly_on(flight, place, {})

    async def take_up(self, flight: Flight, place: ShelfPlace, words: Mapping[str, Word]) -> Judgement:
        """One that somebody before us began; `words`: what is known of it."""
        return await self._fly_on(flight, place, dict(words))

    async def _fly_on(self, flight: Flight, place: ShelfPlace | None, words: dict[str, Word]) -> Judgement:
        nap_s = NAP_FIRST_S
        # What somebody else began is judged before anything of it is bound on: its room may be taken by now.
        judged = self._judge(flight, words) if words else Judgement(Course.ON)
        is_first = True
        while judged.course is Course.ON:
            if not is_first:
                await asyncio.sleep(max(nap_s, *(word.retry_after_s for word in words.values())))
                nap_s = min(nap_s * 2, NAP_LAST_S)
                # A second is time enough for somebody else to take its room.
                judged = self._judge(flight, words)
                if judged.course is not Course.ON:
                    break
            await self._bind_open(flight, words)
            is_first = False
            judged = self._judge(flight, words)
        if judged.course is Course.BACK:
            await self._take_back(flight, words)
        if place is not None:
            self._shelf.leave(place)
        return judged

    def _judge(self, flight: Flight, words: Mapping[str, Word]) -> Judgement:
        open_ = [berth for berth in flight.berths if words[berth.uid].fate is not BerthFate.BOUND]
        short = self._surveyor.find_short(open_) if open_ else ""
        return judge(flight, words, self._surveyor.now_s(), short)

    async def _bind_open(self, flight: Flight, words: dict[str, Word]) -> None:
        todo = [each for each in flight.berths if each.uid not in words or words[each.uid].fate is not BerthFate.BOUND]
        said = await asyncio.gather(*(self._bind(flight, each, words.get(each.uid)) for each in todo))
        words.update(zip((each.uid for each in todo), said, strict=True))

    async def _bind(self, flight: Flight, berth: Berth, before: Word | None) -> Word:
        if not self._surveyor.may_write():
            raise FencedError("the lease is over")
        if before is not None and before.fate is BerthFate.UNKNOWN:
            return await self._read_back(berth, before.says)
        version = (before.version if before is not None else "") or flight.versions.get(berth.uid, "")
        metadata: dict[str, object] = {"name": berth.name, "namespace": berth.namespace, "uid": berth.uid}
        if version:
            metadata["resourceVersion"] = version
        if berth.rank >= 0:
            metadata["annotations"] = {RANK: str(berth.rank)}
        tree = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": berth.node},
        }
        try:
            await self._api.call("POST", f"{berth.path}/binding", tree)
        except ApiRefusedError as refused:
            return await self._weigh(berth, refused)
        except ApiSilentError as silent:
            return await self._read_back(berth, str(silent))
        return self._note_bound(berth, berth.node)

    async def _weigh(self, berth: Berth, refused: ApiRefusedError) -> Word:
        if refused.code == HTTPStatus.CONFLICT:
            return await self._read_back(berth, refused.words)
        if refused.code == HTTPStatus.NOT_FOUND:
            return Word(BerthFate.LOST, "is gone")
        if refused.code == HTTPStatus.TOO_MANY_REQUESTS:
            return Word(BerthFate.FREE, "the API server is busy", retry_after_s=refused.retry_after_s or NAP_LAST_S)
        return Word(BerthFate.REFUSED, refused.words)

    def _note_bound(self, berth: Berth, node: str) -> Word:
        self.counts.bound += 1
        self._surveyor.note_bound(berth, node)
        return Word(BerthFate.BOUND)

    # ---- what is really so

    async def _read_back(self, berth: Berth, says: str, *, is_news: bool = True) -> Word:
        self.counts.read_back += 1
        try:
            body = await self._api.get(berth.path)
        except ApiRefusedError as refused:
            gone = refused.code == HTTPStatus.NOT_FOUND
            return Word(BerthFate.LOST, "is gone") if gone else Word(BerthFate.UNKNOWN, str(refused))
        except ApiSilentError as silent:
            return Word(BerthFate.UNKNOWN, str(silent))
        pod = decode_object(body, Pod)
        if isinstance(pod, Unreadable):
            return Word(BerthFate.UNKNOWN, pod.says)
        word = tell_pod(pod, berth, says)
        if word.fate is BerthFate.BOUND and is_news:
            self._note_bound(berth, berth.node)
        return word

    # ---- back

    async def _take_back(self, flight: Flight, words: dict[str, Word]) -> None:
        """Until nothing of it holds a seat; nothing else ends this but the loss of the lease."""
        await asyncio.gather(*(self._take_back_one(berth, words[berth.uid]) for berth in flight.berths))

    async def _take_back_one(self, berth: Berth, word: Word) -> None:
        if word.fate in (BerthFate.LOST, BerthFate.REFUSED):
            return
        if word.fate is not BerthFate.BOUND:
            word = await self.fence(berth)
        elif (there := await self._read_back(berth, word.says, is_news=False)).fate is not BerthFate.UNKNOWN:
            word = there  # bound for a while, and watches may be late
        if word.fate is not BerthFate.BOUND:
            return
        if word.has_ended or self._surveyor.has_ended(berth):
            return  # it counts as done, and its controller may not make another
        self.counts.evicted += 1
        self._tell("evict", pod=f"{berth.namespace}/{berth.name}", node=berth.node)
        tree = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": berth.name, "namespace": berth.namespace},
            "deleteOptions": {"preconditions": {"uid": berth.uid}},
        }
        await self._evict(berth, tree)
        if not self._surveyor.has_ended(berth):
            # Or the rest of its gang would be started beside it before the watch has told of this.
            self._surveyor.note_evicted(berth)

    async def _evict(self, berth: Berth, tree: dict[str, Any]) -> None:
        said = ""
        # What has ended meanwhile counts as done, and its controller may not make another.
        while not self._surveyor.has_ended(berth):
            self._check_lead()
            try:
                await self._api.call("POST", f"{berth.path}/eviction", tree)
            except ApiRefusedError as refused:
                if refused.code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    return  # it is gone, or is another one of that name
                if _LASTING.intersection(refused.causes) and await self._delete(berth):
                    return
                if said != (said := refused.words):
                    self._tell("eviction-refused", pod=f"{berth.namespace}/{berth.name}", says=said)
                await asyncio.sleep(refused.retry_after_s or NAP_LAST_S)
            except ApiSilentError:
                await asyncio.sleep(_SILENT_NAP_S)
            else:
                return

    async def _delete(self, berth: Berth) -> bool:
        """A budget protects what works; part of a gang does no work, and would hold room for ever."""
        tree = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": berth.uid}}
        try:
            await self._api.call("DELETE", berth.path, tree)
        except ApiRefusedError as refused:
            return refused.code in _IS_ANOTHER
        except ApiSilentError:
            return False
        return True

    async def fence(self, berth: Berth) -> Word:
        """Make every binding of a pod that may still be on its way too old, and look at what it is then."""
        said = ""
        while True:
            self._check_lead()
            # With the instant: a value that is there already would change nothing, and so not the version either.
            value = f"{self._shelf.epoch}/{self._surveyor.now_s():.6f}"
            tree = {"metadata": {"uid": berth.uid, "annotations": {EPOCH: value}}}
            try:
                body = await self._api.call("PATCH", berth.path, tree, kind=MERGE_PATCH)
            except ApiRefusedError as refused:
                # Another uid under its name is told as a field that cannot be changed (422).
                if refused.code in _IS_ANOTHER:
                    return Word(BerthFate.LOST, "is gone")
                # Too much to do, or a right that is missing: nothing is known of the pod before it is answered.
                if said != (said := refused.words):
                    self._tell("fence-refused", pod=f"{berth.namespace}/{berth.name}", says=said)
                await asyncio.sleep(refused.retry_after_s or _REFUSED_NAP_S)
                continue
            except ApiSilentError:
                await asyncio.sleep(_SILENT_NAP_S)
                continue
            pod = decode_object(body, Pod)
            return Word(BerthFate.LOST, pod.says) if isinstance(pod, Unreadable) else tell_pod(pod, berth)

    def _check_lead(self) -> None:
        if not self._surveyor.may_write():
            raise FencedError("the lease is over")


def tell_pod(pod: Pod, berth: Berth, says: str = "") -> Word:
    """The fate of a berth by what its pod is now."""
    if pod.metadata.uid != berth.uid:
        return Word(BerthFate.LOST, "is another one by now")
    if pod.spec.node_name == berth.node:
        return Word(BerthFate.BOUND, has_ended=has_ended(pod))
    if pod.spec.node_name:
        return Word(BerthFate.LOST, f"was bound to {pod.spec.node_name} by somebody else")
    if pod.metadata.deletion_timestamp is not None:
        return Word(BerthFate.LOST, "is being deleted")
    return Word(BerthFate.FREE, says, version=pod.metadata.resource_version)
