"""A fake API server behind a network: requests come in as bytes and in their time, answers and watches go out.

What becomes of each request (how long it takes, whether it arrives, whether its answer does) is decided by whoever
sets `fate`. A server that is down is one process that ended: whatever it had in hand is gone, what is in its store is
not.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from phalanx.testing.kube.api_kinds import ApiKind, find_place
from phalanx.testing.kube.fake_api import ApiAnswer, ApiCall, FakeApi, bookmark, expire
from phalanx.testing.kube.fake_etcd import CompactedError, StoredChange
from phalanx.testing.kube.virtual_network import SleepyLife, VirtualPipe

BOOKMARK_US: Final = 60_000_000
_HEAD_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class CallFate:
    """What becomes of one request."""

    there_us: int = 200
    back_us: int = 200
    #: In the place of the server's answer; nothing is done.
    instead: ApiAnswer | None = None
    #: After it was done.
    afterwards: ApiAnswer | None = None
    #: The connection breaks before it arrives, or before its answer does.
    breaks: str = ""  # there, back
    #: Nothing breaks and nothing comes: whoever asked has to lose patience.
    vanishes: str = ""  # there, back


@dataclass(slots=True, eq=False)
class OpenWatch:
    """Somebody who is told of every change of a kind."""

    pipe: VirtualPipe
    kind: ApiKind
    namespace: str
    user: str
    stalled: bool = False  # nothing is sent any more, and nobody says so
    ends: list[asyncio.TimerHandle] = field(default_factory=list)


class FakeServer:
    """One process of it."""

    def __init__(self, api: FakeApi, plain: Callable[..., asyncio.TimerHandle]) -> None:
        """`plain(delay_us, call, *args)` does something later, in nobody's name."""
        self.api, self._plain = api, plain
        self.is_up = True
        self.fate: Callable[[ApiCall], CallFate] = lambda call: CallFate()
        self.lag_us: Callable[[str], int] = lambda user: 200  # of one line of a watch
        self.is_cut: Callable[[str], bool] = lambda user: False  # whether somebody cannot be reached just now
        #: Told when a request arrives, when it was carried out, and when its answer is there, with the answer.
        self.on_step: Callable[[str, ApiCall, ApiAnswer | None], None] = lambda step, call, answer: None
        self.watches: list[OpenWatch] = []
        #: Up to which revision each user was told of each kind, and when.
        self.known: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        self._pipes: dict[VirtualPipe, None] = {}  # in the order in which they came
        self._halves: dict[VirtualPipe, bytes] = {}
        api.etcd.listeners.append(self._on_change)

    # ---- connections

    async def connect(self, pipe: VirtualPipe) -> None:
        """As long as it is up."""
        await asyncio.sleep(200 / 1e6)
        if not self.is_up:
            raise ConnectionRefusedError("connection refused")
        self._pipes[pipe] = None

    def receive(self, pipe: VirtualPipe, data: bytes) -> None:
        """Perhaps a request."""
        data = self._halves.pop(pipe, b"") + data
        end = data.find(_HEAD_END)
        if end < 0:
            self._halves[pipe] = data
            return
        call, length = _read_head(data[:end])
        body = data[end + len(_HEAD_END) :]
        if len(body) < length:
            self._halves[pipe] = data
            return
        call = ApiCall(call.method, call.path, call.query, body, call.kind, call.user)
        self.on_step("sent", call, None)
        fate = self.fate(call)
        if fate.breaks == "there":
            self._plain(fate.there_us, self._cut, pipe)
        elif fate.vanishes != "there" and not self.is_cut(call.user):
            self._plain(fate.there_us, self._carry_out, pipe, call, fate)

    def forget(self, pipe: VirtualPipe) -> None:
        """The client has closed it. What it asked for before may still be done."""
        self._pipes.pop(pipe, None)
        self._halves.pop(pipe, None)
        self._end_watches(lambda watch: watch.pipe is pipe)

    def drop(self, life: SleepyLife) -> None:
        """A client is dead: its connections end."""
        for pipe in [pipe for pipe in self._pipes if pipe.owner is life]:
            pipe.closed = True
            self.forget(pipe)

    def stop(self) -> None:
        """It is killed."""
        self.is_up = False
        self._end_watches(lambda watch: True)
        for pipe in list(self._pipes):
            self._cut(pipe)

    def start(self) -> None:
        """It is there again."""
        self.is_up = True

    def _cut(self, pipe: VirtualPipe) -> None:
        self._pipes.pop(pipe, None)
        pipe.cut()

    # ---- requests

    def _carry_out(self, pipe: VirtualPipe, call: ApiCall, fate: CallFate) -> None:
        # Whether the client still waits is not asked: what has been sent is done.
        if not self.is_up:
            return
        if fate.instead is not None:
            self._send_back(pipe, call, fate.instead, fate)
            return
        if call.query.get("watch"):
            self._open_watch(pipe, call)
            return
        answer = self.api.answer(call)
        self.on_step("done", call, answer)
        if fate.breaks == "back":
            self._cut(pipe)
        elif fate.vanishes != "back":
            self._send_back(pipe, call, fate.afterwards or answer, fate)

    def _send_back(self, pipe: VirtualPipe, call: ApiCall, answer: ApiAnswer, fate: CallFate) -> None:
        if pipe in self._pipes:
            revision = self.api.etcd.revision
            pipe.deliver(fate.back_us, _write_answer(answer), lambda: self._on_read(pipe, call, answer, revision))

    def _on_read(self, pipe: VirtualPipe, call: ApiCall, answer: ApiAnswer, revision: int) -> None:
        place = find_place(call.path)
        is_list = place is not None and call.method == "GET" and not place.name and answer.code == HTTPStatus.OK
        if place is not None and is_list and b'"continue":' not in answer.body:
            self._note_known(pipe, call.user, place.kind.id, revision)
        self.on_step("read", call, answer)

    def _note_known(self, pipe: VirtualPipe, user: str, kind: str, revision: int) -> None:
        self.known[user, kind].append((pipe.loop.now_us, revision))

    def find_known(self, user: str, kind: str, at_us: int) -> int:
        """Up to which revision somebody had been told of a kind at an instant."""
        told = self.known[user, kind]
        at = bisect_right(told, at_us, key=lambda each: each[0])
        return max((revision for _, revision in told[:at]), default=0)

    # ---- watches

    def _open_watch(self, pipe: VirtualPipe, call: ApiCall) -> None:
        place = find_place(call.path)
        if place is None or pipe not in self._pipes:
            if pipe in self._pipes:
                pipe.deliver(0, _write_answer(self.api.answer(call)))
            return
        pipe.deliver(0, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        revision = int(call.query.get("resourceVersion") or 0)
        watch = OpenWatch(pipe, place.kind, place.namespace, call.user)
        try:
            backlog = self.api.find_backlog(place.kind, revision)
        except CompactedError as bad:
            pipe.deliver(0, _chunk(expire(bad)) + _chunk(b""))
            return
        self.watches.append(watch)
        for change in backlog:
            self._tell(watch, change)
        for bookmark_at in range(BOOKMARK_US, int(call.query["timeoutSeconds"]) * 1_000_000, BOOKMARK_US):
            watch.ends.append(self._plain(bookmark_at, self._mark, watch))
        watch.ends.append(self._plain(int(call.query["timeoutSeconds"]) * 1_000_000, self._end, watch))

    def _on_change(self, change: StoredChange) -> None:
        for watch in self.watches:
            if watch.kind.id == change.key[0]:
                self._tell(watch, change)

    def _tell(self, watch: OpenWatch, change: StoredChange) -> None:
        # Whoever is cut off has missed this one: a watch that went on after it would have skipped something.
        watch.stalled = watch.stalled or self.is_cut(watch.user)
        if watch.stalled or (watch.namespace and watch.namespace != change.key[1]):
            return
        self._send_line(watch, change.line, change.revision)

    def _mark(self, watch: OpenWatch) -> None:
        watch.stalled = watch.stalled or self.is_cut(watch.user)
        if not watch.stalled:
            self._send_line(watch, bookmark(watch.kind, self.api.etcd.revision), self.api.etcd.revision)

    def _send_line(self, watch: OpenWatch, line: bytes, revision: int) -> None:
        def note() -> None:
            self._note_known(watch.pipe, watch.user, watch.kind.id, revision)

        watch.pipe.deliver(self.lag_us(watch.user), _chunk(line), note)

    def _end(self, watch: OpenWatch) -> None:
        """Its time is over, and it says so, unless it does not."""
        if not watch.stalled:
            watch.pipe.deliver(0, _chunk(b""))
        self._end_watches(lambda each: each is watch)

    def expire_watch(self, watch: OpenWatch) -> None:
        """It has lost the thread, as after a compaction."""
        watch.pipe.deliver(0, _chunk(expire(CompactedError("too old resource version"))) + _chunk(b""))
        self._end_watches(lambda each: each is watch)

    def break_watch(self, watch: OpenWatch) -> None:
        """Its connection is reset."""
        self._end_watches(lambda each: each is watch)
        self._cut(watch.pipe)

    def _end_watches(self, is_meant: Callable[[OpenWatch], bool]) -> None:
        for watch in [each for each in self.watches if is_meant(each)]:
            self.watches.remove(watch)
            for handle in watch.ends:
                handle.cancel()


def _read_head(head: bytes) -> tuple[ApiCall, int]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    user = headers.get("authorization", "").removeprefix("bearer ")
    call = ApiCall(method, path, dict(parse_qsl(query)), b"", headers.get("content-type", ""), user)
    return call, int(headers.get("content-length", 0))


def _write_answer(answer: ApiAnswer) -> bytes:
    more = "".join(f"{key}: {value}\r\n" for key, value in answer.headers.items())
    head = f"HTTP/1.1 {answer.code} -\r\ncontent-length: {len(answer.body)}\r\n{more}\r\n"
    return head.encode("latin-1") + answer.body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
