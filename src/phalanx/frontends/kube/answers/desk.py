"""Which path is which answer. Pictures are taken in the event loop, everything else happens in another thread.

One answer at a time, and few that wait for their turn: questions cost processor time that bindings need. What was
found is told again for as long as it is good, so that a screen full of `watch kubectl phalanx ps` costs one look.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from phalanx.frontends.kube.answers.cluster_view import ClusterView
from phalanx.frontends.kube.answers.fitting import fit
from phalanx.frontends.kube.answers.gang_rows import list_rows, now_iso
from phalanx.frontends.kube.answers.gang_whys import find_gang, make_why
from phalanx.frontends.kube.answers.kube_dump import dump_picture
from phalanx.frontends.kube.answers.kube_gantt import draw_gantt
from phalanx.frontends.kube.answers.kube_replies import AnswerError, GangList
from phalanx.frontends.kube.answers.looking import Looked, look
from phalanx.frontends.kube.kube_door import DoorReply, DoorRequest
from phalanx.frontends.kube.remarks import quote

#: Questions that are worked on or wait; whoever comes then is asked to come again.
_WAITING_MOST: Final = 8
#: What was found is good for so many times as long as it took, within bounds.
_GOOD_FACTOR: Final = 10
_GOOD_LEAST_S: Final = 0.2
_GOOD_MOST_S: Final = 5.0
_DEFAULT_NAMESPACE: Final = "default"

Query = Mapping[str, str]


class AskedReplica(Protocol):
    """The replica that is asked."""

    def take_picture(self) -> ClusterView:
        """Everything, now; `AnswerError` if this replica does not lead."""


class Desk:
    """Answers everything under `/v1`."""

    def __init__(
        self, asked: AskedReplica, tell: Callable[..., None], meter: Callable[[], float] = time.monotonic
    ) -> None:
        self._asked, self._tell, self._meter = asked, tell, meter
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._found: Looked | None = None
        self._good_until = 0.0

    async def answer(self, request: DoorRequest) -> DoorReply:
        """One question; never raises."""
        try:
            return await self._answer_in_turn(request)
        except AnswerError as bad:
            return _refuse(bad)
        except RecursionError:
            return _refuse(AnswerError("usage", "what was sent is nested more deeply than any manifest", "send less"))
        except Exception as wrong:  # noqa: BLE001 - a question that we fail at must not end a scheduler; it is logged
            self._tell("answer-failed", path=request.path, says=repr(wrong)[:1_000])
            says = "the scheduler failed at this question; its log has more"
            return _refuse(AnswerError("internal", says, "ask something else, and report this"))
        finally:
            # A look ahead and the loop that it drives hold each other, and a copy of the cluster's state with them. Now
            # they are young, and a quarter of a millisecond finds them; by itself the collector comes seldom.
            gc.collect(0)

    async def _answer_in_turn(self, request: DoorRequest) -> DoorReply:
        if self._waiting >= _WAITING_MOST:
            raise AnswerError("too_many", f"{self._waiting} questions are being answered already", "ask again")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(request)
        finally:
            self._waiting -= 1

    async def _answer(self, request: DoorRequest) -> DoorReply:
        wanted = "POST" if request.path == "/v1/fit" else "GET"
        if request.method != wanted:
            raise AnswerError("usage", f"{quote(request.path)} is asked with {wanted}", "nothing can be changed here")
        query = request.query
        if request.path == "/v1/gangs":
            return await self._tell_looked(lambda found: _list(found, query))
        if request.path == "/v1/why":
            return await self._why(query)
        if request.path == "/v1/gantt":
            return await self._tell_looked(draw_gantt)
        if request.path == "/v1/state":
            return DoorReply(200, (await asyncio.to_thread(dump_picture, self._asked.take_picture())).encode())
        if request.path == "/v1/fit":
            picture = self._asked.take_picture()
            return await _encode(lambda: fit(picture, request.body, _namespace(query)))
        hint = "there are /v1/gangs, /v1/why, /v1/fit, /v1/gantt, /v1/state; and /metrics, /healthz, /readyz"
        raise AnswerError("not_found", f"there is nothing at {quote(request.path)}", hint)

    async def _why(self, query: Query) -> DoorReply:
        name = query.get("gang", "")
        if not name:
            raise AnswerError("usage", "/v1/why needs a gang", "/v1/why?namespace=default&gang=NAME")
        found = await self._look()
        try:
            key = find_gang(found.picture, _namespace(query), name)
        except AnswerError:
            # It may have come since that look.
            self._found = None
            found = await self._look()
            key = find_gang(found.picture, _namespace(query), name)
        number = found.picture.waiting.get(key)
        if number is not None and number not in found.starts:
            # Too far back for a look that is for everybody: one of its own.
            picture = self._asked.take_picture()
            key = find_gang(picture, _namespace(query), name)
            number = picture.waiting.get(key)
            found = await asyncio.to_thread(look, picture, () if number is None else (number,))
        return await _encode(lambda: make_why(found, key))

    async def _tell_looked(self, say: Callable[[Looked], object]) -> DoorReply:
        found = await self._look()
        return await _encode(lambda: say(found))

    async def _look(self) -> Looked:
        if self._found is None or self._meter() >= self._good_until:
            began = self._meter()
            self._found = await asyncio.to_thread(look, self._asked.take_picture())
            took_s = self._meter() - began
            self._good_until = self._meter() + min(_GOOD_MOST_S, max(_GOOD_LEAST_S, _GOOD_FACTOR * took_s))
        return self._found


async def _encode(make: Callable[[], object]) -> DoorReply:
    return DoorReply(200, await asyncio.to_thread(lambda: msgspec.json.encode(make())))


def _refuse(bad: AnswerError) -> DoorReply:
    return DoorReply(bad.status, msgspec.json.encode(bad.tell()))


def _list(found: Looked, query: Query) -> Any:
    rows = list_rows(found, query.get("namespace") or None, ended=query.get("ended") == "1")
    return GangList(now_iso(found), rows)


def _namespace(query: Query) -> str:
    return query.get("namespace") or _DEFAULT_NAMESPACE
