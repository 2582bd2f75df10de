"""The line to the daemon: JSON lines, over the socket the shim was born with or one that connects later.

The newest connection is the one that counts. Only one daemon can hold the state directory, so whoever
connects is its successor, and the old end is dead even if the kernel has not said so yet.
"""

from __future__ import annotations

import json
import os
import socket
import struct

from phalanx.frontends.host.shim.event_loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from phalanx.frontends.host.shim.event_loop import EventLoop, Timer

NAME = "control.sock"
VERSION = 1
#: An `add` carries whole environments; a daemon is trusted, and still not with all of the memory.
_LINE_BYTES_MAX = 64 << 20
#: When this much waits for the daemon, what a job says is left out; exits and the like never are.
_BACKLOG_BYTES_MAX = 1 << 20
#: While no daemon is there; the next one tries for longer than that before it gives a shim up.
_NAME_LOOK_S = 1.0


class Control:
    """The connection to the daemon, if there is one."""

    def __init__(
        self,
        loop: EventLoop,
        dir_fd: int,
        on_message: Callable[[dict[str, Any]], None],
        on_lost: Callable[[], None],
        allowed: frozenset[int],
    ) -> None:
        """`allowed`: the users who may connect later. `on_lost`: the daemon is gone, for now or for good."""
        self._loop, self._dir_fd = loop, dir_fd
        self._on_message, self._on_lost, self._allowed = on_message, on_lost, allowed
        self._socket: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._name_look: Timer | None = None
        self._read = bytearray()
        self._to_send = bytearray()

    @property
    def connected(self) -> bool:
        """Whether anybody listens."""
        return self._socket is not None

    def take(self, connection: socket.socket) -> None:
        """Talk to this one from now on."""
        self._drop()
        connection.settimeout(0.0)
        self._socket = connection
        self._loop.watch(connection.fileno(), READ, self._on_ready)

    def listen(self) -> None:
        """Make the socket at which a later daemon can knock; nobody is let in yet."""
        self._listener = listen(self._dir_fd, NAME)

    def let_in(self) -> None:
        """From now on the run goes on without its first daemon, and a later one may take it over."""
        assert self._listener is not None
        self._loop.watch(self._listener.fileno(), READ, self._on_connect)

    def _keep_name(self) -> None:
        """Nobody can knock at a socket whose name was removed; another's name in its place is left alone."""
        self._name_look = None
        if self._listener is None or self._socket is not None:
            return
        try:
            os.stat(NAME, dir_fd=self._dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            self._listen_anew(self._listener)
        except OSError:
            pass
        self._name_look = self._loop.after(_NAME_LOOK_S, self._keep_name)

    def _listen_anew(self, before: socket.socket) -> None:
        try:
            self._listener = listen(self._dir_fd, NAME)
        except OSError:
            return  # the directory is gone too, or the disk is full: perhaps next time
        self._loop.unwatch(before.fileno())
        before.close()
        self.let_in()

    def send(self, event: str, *, droppable: bool = False, **fields: Any) -> None:
        """Tell the daemon, if there is one; it hears the rest when it asks for the state."""
        if self._socket is None or (droppable and len(self._to_send) > _BACKLOG_BYTES_MAX):
            return
        line = json.dumps({"v": VERSION, "event": event, **fields}, separators=(",", ":"))
        self._to_send += line.encode("ascii") + b"\n"
        self._flush()

    def close(self) -> None:
        """Send what is left as far as it goes, and leave no name behind."""
        if self._socket is not None:
            self._send_rest(self._socket)
            self._drop()
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None
            unlink(self._dir_fd, NAME)

    def _send_rest(self, connection: socket.socket) -> None:
        connection.settimeout(1.0)
        try:
            connection.sendall(self._to_send)
        except OSError:
            return  # who does not read it here reads it in the journal

    def _on_connect(self, _events: int) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if read_peer_uid(connection) in self._allowed:
            self.take(connection)
        else:
            connection.close()

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and self._socket is not None:
            self._receive(self._socket)

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._read += data
        if b"\n" in data:
            *lines, self._read = self._read.split(b"\n")
            for message in filter(None, map(_parse, lines)):
                self._on_message(message)
                if self._socket is not connection:
                    return  # it was taken over, or we are done
        if not data or len(self._read) > _LINE_BYTES_MAX:
            self._drop()
            if self._name_look is None:
                self._name_look = self._loop.after(_NAME_LOOK_S, self._keep_name)
            self._on_lost()

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            while self._to_send:
                sent = self._socket.send(self._to_send[: 1 << 18])
                del self._to_send[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._to_send.clear()  # the reading side will say that it is gone
        self._loop.watch(self._socket.fileno(), READ | WRITE if self._to_send else READ, self._on_ready)

    def _drop(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._read.clear()
        self._to_send.clear()


def _parse(line: bytes | bytearray) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def listen(dir_fd: int, name: str) -> socket.socket:
    """A listening socket in the run directory, however long the path of that is."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    unlink(dir_fd, name)
    listener.bind(f"/proc/self/fd/{dir_fd}/{name}")
    listener.listen(64)
    listener.settimeout(0.0)
    return listener


def unlink(dir_fd: int, name: str) -> None:
    """Take a name away if it is there."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except OSError:
        return


def read_peer_uid(connection: socket.socket) -> int:
    """Who is at the other end, as the kernel attests it."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", data)[1]
    return uid
