"""The daemon's end of the line to one shim: JSON lines as an asyncio protocol, and connecting to a shim anew.

In system mode the other end runs as the job's user and may say anything: lines have a bound, what is no
JSON object closes the line, and nothing is read while what was said before is not dealt with.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import struct
from collections.abc import Callable
from typing import Any

VERSION = 1
_LINE_BYTES_MAX = 4 << 20


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None], on_end: Callable[[Line], None]) -> None:
        """`on_end` is called once, when the connection is gone for whatever cause."""
        self._on_message, self._on_end = on_message, on_end
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio tells that it is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Asyncio tells what came."""
        self._buffer += data
        if b"\n" in data:
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                if not self._take(line):
                    return
        if len(self._buffer) > _LINE_BYTES_MAX:
            self.abort()

    def _take(self, line: bytearray) -> bool:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.abort()
            return False
        self._on_message(message)
        return self._transport is not None and not self._transport.is_closing()  # or nobody wants the rest

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio tells that it is closed."""
        self._transport = None
        self._on_end(self)

    def send(self, verb: str, **fields: Any) -> None:
        """Tell the shim; nothing happens if it is gone."""
        if self._transport is not None:
            self._transport.write(json.dumps({"v": VERSION, "do": verb, **fields}).encode("ascii") + b"\n")

    def pause(self, *, paused: bool) -> None:
        """Read no further for now, or again."""
        if self._transport is None or self._transport.is_closing() or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close when everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def connect(dir_fd: int, uid: int) -> socket.socket:
    """Connect to the shim of a run directory; raises OSError.

    The socket is held by a descriptor before it is connected to, so that it is the one that was looked
    at: a plain socket of the run's user, at whose other end the same user is. That is all that is known: it may be
    the job, and the pid that the kernel names was that of whoever began to listen, and may be another's by now.
    """
    fd = os.open("control.sock", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        about = os.fstat(fd)
        _check(uid, about.st_uid if stat.S_ISSOCK(about.st_mode) else None)
        line.connect(f"/proc/self/fd/{fd}")
        _, peer, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        _check(uid, peer)
    except BaseException:
        line.close()
        raise
    finally:
        os.close(fd)
    return line


def _check(wanted: int, found: int | None) -> None:
    if found != wanted:
        raise PermissionError("whoever answers for the shim is somebody else")
