"""The connection to the scheduler: opened, kept and opened again, without ever waiting for it."""

from __future__ import annotations

import math
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from phalanx.elastic.seat import Seat
from phalanx.wire import Malformed, MemberEnd, TooLarge, WireError, read_key

RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 10.0
READ_BYTES: Final = 65_536
#: Reads of one poll: a scheduler that floods holds up a step by this much and no more.
READS_MAX: Final = 16
OUTBOX_BYTES_MAX: Final = 1 << 20
#: What an address of a unix socket holds, less its closing zero.
PATH_BYTES_MAX: Final = 107


class Link:
    """One member's line to its scheduler. No method raises for what the scheduler does, and none blocks but `wait`."""

    def __init__(self, seat: Seat, hello: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self._seat, self._hello, self._warn = seat, hello, warn
        self._key: bytes | None = None
        self._socket: socket.socket | None = None
        self._end: MemberEnd | None = None
        self._outbox = bytearray()
        self._retry_s = RETRY_S_MIN
        self._retry_at = 0.0
        self.heard = False  # whether the scheduler has said something on the connection of now

    @property
    def is_open(self) -> bool:
        """Whether something said now goes out on this connection."""
        return self._end is not None and self._end.is_open

    @property
    def is_idle(self) -> bool:
        """Whether everything said has been handed to the kernel."""
        return not self._outbox

    def poll(self) -> list[dict[str, Any]]:
        """What has come since; connects again when that is due."""
        if self._socket is None and not self._connect():
            return []
        messages: list[dict[str, Any]] = []
        try:
            self._read(messages)
            self._write()
        except (OSError, WireError) as error:
            self._drop(error)
        return messages

    def send(self, message: Mapping[str, Any]) -> bool:
        """Say it if the connection is open; what is lost is asked for again by the scheduler."""
        if self._end is None or not self._end.is_open:
            return False
        try:
            self._outbox += self._end.encode(message)
            self._write()
        except (Malformed, TooLarge) as error:
            self._warn(f"not said: {error}")
            return False
        except OSError as error:
            self._drop(error)
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Until something comes, or can be written that waits, or the time is up."""
        if self._socket is None:
            time.sleep(min(seconds, max(0.0, self._retry_at - time.monotonic())))
            return
        # Not select(), which refuses descriptors above 1023, and a training may have opened that many.
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN | (select.POLLOUT if self._outbox else 0))
        waiting.poll(1000 * seconds)

    def close(self) -> None:
        """Hang up, for good."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._end = None
        self._outbox.clear()
        self.heard = False
        self._retry_at = math.inf

    def _connect(self) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            if self._key is None:
                self._key = read_key(self._seat.key_file)
            self._socket = open_socket(self._seat.socket)
        except (OSError, WireError) as error:
            self._drop(error)
            return False
        seat = self._seat
        self._end = MemberEnd(self._key, seat.job, seat.attempt, seat.generation, seat.name)
        return True

    def _read(self, messages: list[dict[str, Any]]) -> None:
        assert self._socket is not None
        assert self._end is not None
        for _ in range(READS_MAX):
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionResetError("the scheduler closed the connection")
            was_open = self._end.is_open
            heard = self._end.feed(data)
            messages += heard
            if heard and not self.heard:
                self.heard = True
                self._retry_s = RETRY_S_MIN  # it spoke, so the key fits: the next break is a new one
            if self._end.is_open and not was_open:
                self._outbox += self._end.opening + self._end.encode(self._hello)

    def _write(self) -> None:
        assert self._socket is not None
        while self._outbox:
            try:
                # No signal: a job may have given SIGPIPE back its deadly meaning.
                sent = self._socket.send(self._outbox, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if len(self._outbox) > OUTBOX_BYTES_MAX:
                    raise ConnectionAbortedError("the scheduler reads nothing") from None
                return
            del self._outbox[:sent]

    def _drop(self, error: Exception) -> None:
        self.close()
        self._retry_at = time.monotonic() + self._retry_s
        self._warn(f"no scheduler at {self._seat.socket}: {error}; trying again in {self._retry_s:g} s")
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)


def open_socket(path: str) -> socket.socket:
    """A connected socket that does not block, also where the path is longer than an address."""
    folder = -1
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(0)
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{folder}/{Path(path).name}"
        line.connect(path)
    except BaseException:
        line.close()
        raise
    finally:
        if folder >= 0:
            os.close(folder)
    return line
