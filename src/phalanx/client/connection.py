"""Just enough HTTP/1.1 over a unix socket: keep-alive, bodies with a length or in chunks, server-sent events.

The library that ships with Python would bring `email` and `ssl` along, which cost more than all of `phalanx ps`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from phalanx.client.daemon_errors import LostError, UnreachableError

_HEAD_BYTES_MAX: Final = 64 * 1024
_BODY_BYTES_MAX: Final = 1 << 30
_PIECE_BYTES: Final = 256 * 1024
#: The kernel's bound for the address of a unix socket, less the closing zero.
_ADDRESS_BYTES_MAX: Final = 107

_ELSEWHERE: Final = "unset PHALANX_HOME and PHALANX_SOCKET_PATH, or set them to places of yours"

TIMEOUT_S: Final = 60.0
_KNOCKS: Final = 200
_KNOCK_S: Final = 0.05


class HttpReply(NamedTuple):
    """What came back; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection to one socket, opened when it is needed and again when the other side has closed it."""

    def __init__(self, path: str) -> None:
        """`path` is the daemon's socket."""
        self.path = path
        self._stream: _Stream | None = None

    def open(self) -> None:
        """Connect now, or say why that is not possible."""
        if self._stream is None:
            self._stream = _Stream(_connect(self.path), self.path)

    def close(self) -> None:
        """Let go of the socket; the next request opens another."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = TIMEOUT_S,
    ) -> HttpReply:
        """One exchange. What is safe to ask twice is asked again after a connection was lost, once."""
        safe = method == "GET" or "Idempotency-Key" in (headers or {})
        try:
            return self._exchange(method, target, body, headers or {}, timeout_s)
        except LostError:
            self.close()
            if not safe:
                raise
        try:
            return self._exchange(method, target, body, headers or {}, timeout_s)
        except LostError:
            self.close()
            raise

    def events(self, target: str, headers: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, str]]:
        """Server-sent events as (id, event, data), until the other side ends; on a connection of its own."""
        stream = _Stream(_connect(self.path), self.path)
        try:
            stream.send(_head("GET", target, None, {"Accept": "text/event-stream", **(headers or {})}), None)
            status, found = stream.read_head()
            if status != 200:
                body = b"".join(stream.read_body(found))
                raise BadStreamError(HttpReply(status, found, body))
            stream.wait_for_ever()
            yield from _parse_events(stream.read_body(found))
        finally:
            stream.close()

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float | None
    ) -> HttpReply:
        if self._stream is not None and self._stream.is_stale():
            self.close()  # the daemon closes what is idle; a request that must not be repeated would be lost there
        self.open()
        stream = self._stream
        assert stream is not None
        stream.set_timeout(timeout_s)
        try:
            stream.send(_head(method, target, body, headers), body)
            status, found = stream.read_head()
            whole = b"".join(stream.read_body(found))
        except UnreachableError:
            self.close()
            raise
        if found.get("connection", "").lower() == "close":
            self.close()
        return HttpReply(status, found, whole)


class BadStreamError(Exception):
    """A stream of events was refused; carries the answer for whoever knows how errors look."""

    def __init__(self, answer: HttpReply) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def _head(method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _connect(path: str) -> socket.socket:
    """A connected socket."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _reach(found, path)
    except UnreachableError:
        found.close()
        raise
    return found


def _reach(found: socket.socket, path: str) -> None:
    """Connect to root or to ourselves and to nobody else: a submit carries the whole environment."""
    found.settimeout(TIMEOUT_S)
    try:
        with _address(path) as address:
            _knock(found, address)
        uid = struct.unpack("3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    except (FileNotFoundError, NotADirectoryError):
        raise UnreachableError(f"there is no socket {path}", "phalanx up") from None
    except ConnectionRefusedError:
        raise UnreachableError(f"nobody listens on {path}: the daemon is not running", "phalanx up") from None
    except PermissionError:
        raise UnreachableError(f"you may not use the socket {path}: it belongs to somebody else", _ELSEWHERE) from None
    except OSError as bad:
        raise UnreachableError(f"cannot connect to {path}: {bad.strerror or bad}", "phalanx doctor") from None
    mine = os.geteuid()
    if mine != 0 and uid not in (0, mine):
        why = f"the socket {path} is answered by user {uid}, who is neither you nor root; nothing was sent"
        raise UnreachableError(why, _ELSEWHERE)


def _knock(found: socket.socket, address: str) -> None:
    """Connect; where very many do so at once, the kernel asks to come again."""
    for _ in range(_KNOCKS):
        try:
            found.connect(address)
        except BlockingIOError:
            time.sleep(_KNOCK_S)
        else:
            return
    found.connect(address)


@contextlib.contextmanager
def _address(path: str) -> Iterator[str]:
    """The path, or a short way to the same place where the path is longer than the kernel allows."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield path
        return
    folder, _, name = path.rpartition("/")
    handle = os.open(folder or "/", os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


class _Stream:
    """A socket with what was read of it and not used yet."""

    def __init__(self, source: socket.socket, path: str) -> None:
        self._socket, self._path = source, path
        self._rest = bytearray()

    def close(self) -> None:
        self._socket.close()

    def is_stale(self) -> bool:
        """Whether the other side has closed, or says something that nobody asked for."""
        self._socket.settimeout(0)  # with a time-out of its own a socket waits before it looks
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def set_timeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def wait_for_ever(self) -> None:
        """Events come when they come."""
        self._socket.settimeout(None)

    def send(self, head: bytes, body: bytes | None) -> None:
        try:
            self._socket.sendall(head)
            if body:
                self._socket.sendall(body)
        except TimeoutError:
            raise self._silent() from None
        except OSError:
            # A daemon that refuses a body closes while we still write; its answer may be there already.
            if not self._fill_if_any():
                raise self._lost() from None

    def read_head(self) -> tuple[int, dict[str, str]]:
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > _HEAD_BYTES_MAX:
                raise self._stranger()
            self._fill()
        first, *lines = bytes(self._rest[:end]).decode("latin-1").split("\r\n")
        del self._rest[: end + 4]
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdigit():
            raise self._stranger()
        pairs = (line.partition(":") for line in lines)
        return int(status[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    def read_body(self, headers: Mapping[str, str]) -> Iterator[bytes]:
        """The body in pieces as they come."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._read_chunks()
        elif (length := headers.get("content-length", "")).isdigit():
            yield from self._read_exactly(int(length))
        else:
            yield from self._read_to_end()

    def _read_chunks(self) -> Iterator[bytes]:
        while True:
            try:
                size = int(self._read_line().split(b";")[0], 16)
            except ValueError:
                raise self._stranger() from None
            if size == 0:
                while self._read_line():
                    pass
                return
            yield from self._read_exactly(size)
            self._read_line()

    def _read_line(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            self._fill()
        line = bytes(self._rest[:end])
        del self._rest[: end + 2]
        return line

    def _read_exactly(self, count: int) -> Iterator[bytes]:
        if count > _BODY_BYTES_MAX:
            raise self._stranger()
        while count:
            if not self._rest:
                self._fill()
            piece = bytes(self._rest[:count])
            del self._rest[: len(piece)]
            count -= len(piece)
            yield piece

    def _read_to_end(self) -> Iterator[bytes]:
        while self._rest or self._fill_if_any():
            piece = bytes(self._rest)
            self._rest.clear()
            yield piece

    def _fill(self) -> None:
        try:
            piece = self._socket.recv(_PIECE_BYTES)
        except TimeoutError:
            raise self._silent() from None
        except OSError:
            raise self._lost() from None
        if not piece:
            raise self._lost()
        self._rest += piece

    def _fill_if_any(self) -> bool:
        try:
            piece = self._socket.recv(_PIECE_BYTES)
        except OSError:
            return False
        self._rest += piece
        return bool(piece)

    def _lost(self) -> LostError:
        return LostError("the connection to the daemon was lost before it answered", "phalanx status")

    def _stranger(self) -> UnreachableError:
        return UnreachableError(f"what answers on {self._path} is not phalanx", "phalanx doctor")

    def _silent(self) -> UnreachableError:
        return UnreachableError(
            f"the daemon on {self._path} does not answer", "phalanx doctor, and read its daemon.log"
        )


def _parse_events(pieces: Iterator[bytes]) -> Iterator[tuple[str, str, str]]:
    """The stream's lines put together into events; comments keep the connection alive and say nothing."""
    fields: dict[str, str] = {}
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            text = line.rstrip(b"\r").decode("utf-8", "replace")
            if not text:
                if "data" in fields:
                    yield fields.get("id", ""), fields.get("event", "message"), fields["data"]
                fields = {}
            elif not text.startswith(":"):
                name, _, value = text.partition(":")
                value = value.removeprefix(" ")
                fields[name] = f"{fields['data']}\n{value}" if name == "data" and "data" in fields else value
