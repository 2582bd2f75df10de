"""A daemon that answers from a table: the command line is tested against the contract, not against the core."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from phalanx import __version__
from phalanx.cli import main

NOW = datetime(2026, 11, 16, 9, 0, 0, tzinfo=UTC)


@dataclass
class Request:
    """What was asked."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any


@dataclass
class Reply:
    """What is answered; a body that is no bytes is JSON."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Reply]


class FakeDaemon:
    """Serves one unix socket; connections are kept alive as by the real one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table: dict[tuple[str, str], Any] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.lose = 0  # so many requests are read and then nothing is answered
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def answer(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> None:
        """Always answer this so; a function is called with the request."""
        self.table[method, path] = body if callable(body) else Reply(body, status, headers)

    def sent(self, method: str, path: str) -> list[Request]:
        """Requests of this kind so far."""
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(30)  # afterwards nobody comes in any more
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        # A client that was killed may leave half a request, which is no value of anything.
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rwb") as stream:
            while request := _read(stream):
                self.requests.append(request)
                if self.lose:
                    self.lose -= 1
                    break
                stream.write(_encode(self._find(request)))
                stream.flush()
            # The other side sees the end now, and not when the last reference to the socket is gone.
            connection.shutdown(socket.SHUT_RDWR)

    def _find(self, request: Request) -> Reply:
        found = self.table.get((request.method, request.path))
        if found is None:
            error = {"code": "not_found", "message": f"there is no {request.path}", "hint": "phalanx ps -a"}
            return Reply({"error": error}, 404)
        return found(request) if callable(found) else found


def _read(stream: Any) -> Request | None:
    first = stream.readline().decode()
    if not first:
        return None
    method, target, _ = first.split(" ", 2)
    headers = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    body = stream.read(length) if length else b""
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, json.loads(body) if body else None)


def _encode(reply: Reply) -> bytes:
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    headers = {"Content-Length": str(len(body)), **reply.headers}
    if headers.get("Transfer-Encoding") == "chunked":
        del headers["Content-Length"]
    lines = [f"HTTP/1.1 {reply.status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _load_canned() -> ModuleType:
    found = importlib.util.spec_from_file_location("host_cli_canned", Path(__file__).with_name("canned.py"))
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def canned() -> ModuleType:
    """Answers as the contract has them."""
    return _load_canned()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory with a name short enough for a socket, and an environment without surprises."""
    folder = Path(tempfile.mkdtemp(prefix="phx-"))
    for name in list(os.environ):
        if name.startswith(("PHALANX_", "XDG_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PHALANX_HOME", str(folder / "state"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("NO_COLOR", "1")
    time.tzset()
    (folder / "state").mkdir(mode=0o700)
    yield folder / "state"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    """A daemon that answers for the state directory."""
    found = FakeDaemon(home / "phalanx.sock")
    tell_about(home)
    yield found
    found.close()


def tell_about(home: Path, version: str = __version__) -> None:
    about = {"pid": os.getpid(), "socket": str(home / "phalanx.sock"), "version": version}
    (home / "daemon.json").write_text(json.dumps(about))


@pytest.fixture
def telling(daemon: FakeDaemon, canned: ModuleType, at_nine: None) -> FakeDaemon:
    """A daemon with an answer to everything, at nine o'clock."""
    canned.serve(daemon)
    return daemon


@pytest.fixture
def at_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nine o'clock on 16 November 2026."""
    for module in ("text", "why", "events"):
        monkeypatch.setattr(f"phalanx.cli.host.{module}.now", lambda: NOW)


@pytest.fixture
def phalanx() -> Callable[..., Result]:
    """Run a command line."""

    def run(*words: object, text: str | None = None) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words], input=text, catch_exceptions=False)

    return run
