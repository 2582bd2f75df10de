"""The members' socket: what a job says goes up to the daemon, what the daemon says goes down to the job.

`phalanx.wire` checks every byte; here is only who is connected, what has not reached anybody yet, and
how much a member may say. A member that is broken or hostile loses its connection, not its shim. With no
daemon the last word of each kind is kept for the next one; with no member connected, so is the daemon's.
"""

from __future__ import annotations

import os
import socket

from phalanx.frontends.host.shim.control import listen, read_peer_uid, unlink
from phalanx.frontends.host.shim.event_loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from phalanx.frontends.host.shim.event_loop import EventLoop
    from phalanx.wire import SchedulerEnd

NAME = "job.sock"
_CONNECTIONS_MAX = 64
_BACKLOG_BYTES_MAX = 1 << 20
#: Who has not proved to have the key by then is sent away.
_OPEN_WITHIN_S = 10.0
#: Messages a second that one connection may go on saying, and how many at once.
_RATE = 20.0
_BURST = 100.0


class Told:
    """Something the daemon said to a rank, and when: a deadline is a duration and goes on running."""

    __slots__ = ("at_s", "message")

    def __init__(self, message: Mapping[str, Any], at_s: float) -> None:
        self.message, self.at_s = message, at_s

    def at(self, now_s: float) -> dict[str, Any] | None:
        """The message with what is left of its deadline, or None if that is over."""
        left_s = self.message.get("deadline_s")
        if not isinstance(left_s, int | float):
            return dict(self.message)
        left_s -= now_s - self.at_s
        return {**self.message, "deadline_s": left_s} if left_s > 0 else None


class SchedulerEnds:
    """Makes the protocol's end of a connection. The key is read when first needed: most jobs never speak."""

    def __init__(self, dir_fd: int, job: int, attempt: int, has: Callable[[int, int], bool]) -> None:
        """`has`: whether somebody of this rank and generation is there to be spoken to."""
        self._dir_fd, self._job, self._attempt, self._has = dir_fd, job, attempt, has
        self._key: bytes | None = None

    def make(self) -> SchedulerEnd:
        """For one connection; raises if the key is gone."""
        from phalanx.wire import SchedulerEnd
        from phalanx.wire.keys import parse_key

        if self._key is None:
            fd = os.open("key", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._dir_fd)
            try:
                self._key = parse_key(os.read(fd, 1024))
            finally:
                os.close(fd)
        return SchedulerEnd(self._key, self._job, self._attempt, self._has)


class Relay:
    """All connections of the members of one run."""

    def __init__(
        self,
        loop: EventLoop,
        dir_fd: int,
        make_end: Callable[[], SchedulerEnd],
        on_message: Callable[[int, dict[str, Any]], None],
        welcome: Callable[[], dict[str, Any]],
        note: Callable[[str], None],
    ) -> None:
        """`make_end` makes the protocol's end of a connection, `welcome` what a member hears first."""
        self._loop, self._dir_fd = loop, dir_fd
        self._make_end, self._on_message, self._welcome, self.note = make_end, on_message, welcome, note
        self._listener: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._by_rank: dict[int, _Connection] = {}
        self._told: dict[tuple[int, str], Told] = {}
        self._spoke: dict[tuple[int, str], dict[str, Any]] = {}
        self.members = 0  # how many there may be; each may connect twice, since the old end dies slowly

    def listen(self) -> None:
        """Let members connect."""
        self._listener = listen(self._dir_fd, NAME)
        self._loop.watch(self._listener.fileno(), READ, self._on_connect)

    def tell(self, ranks: Iterable[int], message: Mapping[str, Any]) -> None:
        """Say something to these ranks, now or when they connect."""
        told = Told(message, self._loop.now_s())
        for rank in ranks:
            self._told[rank, str(message.get("type"))] = told
            connection = self._by_rank.get(rank)
            if connection is not None:
                connection.send(dict(message))

    def list_spoken(self) -> list[dict[str, Any]]:
        """The last word of each kind of each rank."""
        return [{"rank": rank, "message": message} for (rank, _), message in self._spoke.items()]

    def renew(self, rank: int) -> None:
        """Another member has this rank now: what the last one said is history."""
        self.forget(rank)
        for key in [key for key in self._spoke if key[0] == rank]:
            del self._spoke[key]

    def forget(self, rank: int) -> None:
        """The member has ended: nothing that was said to it counts for the next of its rank."""
        connection = self._by_rank.pop(rank, None)
        if connection is not None:
            connection.close()
        for key in [key for key in self._told if key[0] == rank]:
            del self._told[key]

    def close(self) -> None:
        """No more of this."""
        for connection in list(self._connections):
            connection.close()
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None
            unlink(self._dir_fd, NAME)

    def _on_connect(self, _events: int) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        full = len(self._connections) >= max(_CONNECTIONS_MAX, 2 * self.members)
        if full or read_peer_uid(connection) not in (0, os.getuid()):
            connection.close()
            return
        try:
            end = self._make_end()
        except Exception as error:  # the job can take its own key file away
            self.note(f"nobody can connect: {error}")
            connection.close()
            return
        self._connections.add(_Connection(self._loop, connection, self, end))

    def on_open(self, connection: _Connection, rank: int) -> None:
        """A member has said hello: it hears where it is, and what was said to it while it was away."""
        old = self._by_rank.get(rank)
        self._by_rank[rank] = connection
        if old is not None and old is not connection:
            old.close()
        now_s = self._loop.now_s()
        waiting = {kind: told.at(now_s) for (to, kind), told in self._told.items() if to == rank}
        connection.send(waiting.pop("welcome", None) or self._welcome())
        for message in waiting.values():
            if message is not None:
                connection.send(message)

    def on_message(self, rank: int, message: dict[str, Any]) -> None:
        """A member has said something."""
        kind = str(message["type"])
        # The last word of a kind is the one that counts, so it also stands last in the list.
        self._spoke.pop((rank, kind), None)
        self._spoke[rank, kind] = message
        if message.get("id") is not None:
            answered = [k for k, told in self._told.items() if k[0] == rank and told.message.get("id") == message["id"]]
            for key in answered:
                del self._told[key]
        self._on_message(rank, message)

    def on_close(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        rank = connection.end.rank
        if rank is not None and self._by_rank.get(rank) is connection:
            del self._by_rank[rank]


class _Connection:
    """One member's connection."""

    def __init__(self, loop: EventLoop, connection: socket.socket, relay: Relay, end: SchedulerEnd) -> None:
        self._loop, self._socket, self._relay, self.end = loop, connection, relay, end
        self._to_send = bytearray()
        self._allowance, self._at_s = _BURST, loop.now_s()
        self._closed = self._opened = self._paused = False
        connection.settimeout(0.0)
        self._deadline = loop.after(_OPEN_WITHIN_S, self._on_late)
        # Watched for writing, so that the greeting goes out when everybody knows of this connection.
        self._to_send += end.greeting
        self._watch()

    def send(self, message: dict[str, Any]) -> None:
        """Say something; what the protocol does not know is noted and left out."""
        from phalanx.wire import WireError

        if self._closed:
            return
        try:
            frame = self.end.encode(message)
        except WireError as error:
            self._relay.note(f"a message for rank {self.end.rank} was not sent: {error}")
            return
        self._put(frame)

    def close(self) -> None:
        """No more of this."""
        if not self._closed:
            self._closed = True
            self._deadline.cancel()
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._relay.on_close(self)

    def _put(self, data: bytes) -> None:
        self._to_send += data
        if len(self._to_send) > _BACKLOG_BYTES_MAX:
            self.close()  # it does not read; it may connect again when it does
        else:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._to_send:
                del self._to_send[: self._socket.send(self._to_send)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._watch()

    def _watch(self) -> None:
        events = (0 if self._paused else READ) | (WRITE if self._to_send else 0)
        if events:
            self._loop.watch(self._socket.fileno(), events, self._on_ready)
        else:
            self._loop.unwatch(self._socket.fileno())

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and not self._closed:
            self._receive()

    def _receive(self) -> None:
        from phalanx.wire import WireError

        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            messages = self.end.feed(data)
        except WireError as error:
            self._relay.note(f"a connection of a member was closed: {error}")
            self.close()
            return
        for message in messages:
            self._hear(message)
        self._slow_down(len(messages))

    def _hear(self, message: dict[str, Any]) -> None:
        rank = self.end.rank
        if rank is None or self._closed:
            return
        if not self._opened:
            self._opened = True
            self._deadline.cancel()
            self._relay.on_open(self, rank)
        self._relay.on_message(rank, message)

    def _slow_down(self, messages: int) -> None:
        now_s = self._loop.now_s()
        self._allowance = min(_BURST, self._allowance + (now_s - self._at_s) * _RATE) - messages
        self._at_s = now_s
        if self._allowance < 0 and not self._closed:
            self._paused = True
            self._watch()
            self._loop.after(-self._allowance / _RATE, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._paused = False
            self._watch()

    def _on_late(self) -> None:
        self._relay.note("a connection was closed: whoever it was did not say hello in time")
        self.close()
