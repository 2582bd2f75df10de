"""A scheduler's end in the test: a real socket, no thread, and everything it heard written down."""

from __future__ import annotations

import os
import select
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from phalanx.elastic import Job, client
from phalanx.elastic.seat import Seat
from phalanx.wire import SchedulerEnd, WireError

KEY = bytes(range(32))
LIMIT_S = 30.0


@dataclass
class Connection:
    """One connection of a member."""

    line: socket.socket
    end: SchedulerEnd
    heard: list[dict[str, Any]] = field(default_factory=list)
    refusal: WireError | None = None


class FakeShim:
    """Listens as a shim does; `pump` moves whatever is there to move, and never waits."""

    def __init__(self, folder: Path, members: dict[int, int], generation: int = 1, world: int = 4) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.key_file = folder / "job.sock", folder / "key"
        self.key_file.write_text(KEY.hex() + "\n")
        self.members, self.generation, self.world = members, generation, world
        self.connections: list[Connection] = []
        self.welcomes = True
        self.listener = self._listen()

    def _listen(self) -> socket.socket:
        # By its folder: the folders of tests may have names longer than an address.
        folder = os.open(self.path.parent, os.O_PATH | os.O_DIRECTORY)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{self.path.name}")
        finally:
            os.close(folder)
        listener.listen(8)
        listener.setblocking(False)
        return listener

    def seat(self, rank: int = 1, generation: int = 1, **more: Any) -> Seat:
        """The seat of a member of this run."""
        said = {"rank": rank, "name": rank, "world": self.world, "generation": generation, "job": "12", "attempt": 1}
        return Seat(**(said | {"socket": str(self.path), "key_file": str(self.key_file)} | more))

    def environment(self, rank: int = 1, generation: int = 1) -> dict[str, str]:
        """The same as a member finds it."""
        return {
            "PHALANX_SOCKET": str(self.path),
            "PHALANX_KEY_FILE": str(self.key_file),
            "PHALANX_JOB": "12",
            "PHALANX_ATTEMPT": "1",
            "PHALANX_GENERATION": str(generation),
            "RANK": str(rank),
            "WORLD_SIZE": str(self.world),
        }

    def pump(self) -> None:
        """Accept, read, welcome."""
        while select.select([self.listener], [], [], 0)[0]:
            line, _ = self.listener.accept()
            line.setblocking(False)
            connection = Connection(line, SchedulerEnd(KEY, 12, 1, lambda r, g: self.members.get(r) == g))
            line.sendall(connection.end.greeting)
            self.connections.append(connection)
        for connection in self.connections:
            if connection.line.fileno() >= 0 and connection.refusal is None:
                self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.line.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        try:
            messages = connection.end.feed(data)
        except WireError as refusal:
            connection.refusal = refusal
            connection.line.close()
            return
        connection.heard += messages
        if any(m["type"] == "hello" for m in messages) and self.welcomes:
            welcome = {"type": "welcome", "generation": self.generation, "members": self.world}
            connection.line.sendall(connection.end.encode(welcome))
        if not data:
            connection.line.close()

    def say(self, message: dict[str, Any], rank: int = 1) -> None:
        """To the newest connection of that rank."""
        connection = [c for c in self.connections if c.end.rank == rank][-1]
        connection.line.sendall(connection.end.encode(message))

    def heard(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        """Everything of that type, on whatever connection."""
        return [m for c in self.connections for m in c.heard if m["type"] == kind and rank in (None, c.end.rank)]

    def drop(self) -> None:
        """Break every connection, as a shim that is gone would."""
        self.pump()
        for connection in self.connections:
            connection.line.close()

    def close(self) -> None:
        """Stop listening."""
        for connection in self.connections:
            connection.line.close()
        self.listener.close()
        self.path.unlink(missing_ok=True)


def wait_until(condition, what, limit_s=LIMIT_S):
    """Poll until the condition holds; what it returns is returned."""
    until = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < until, f"waited {limit_s} s for {what}"
        time.sleep(0.005)  # noqa: TID251 - polling
    return result


@pytest.fixture
def until():
    return wait_until


@pytest.fixture
def make_shim(tmp_path):
    """Scheduler's ends, by the name of their folder."""
    made: list[FakeShim] = []

    def make(folder="run", **options):
        made.append(FakeShim(tmp_path / folder, **({"members": dict.fromkeys(range(4), 1)} | options)))
        return made[-1]

    yield make
    for fake in made:
        fake.close()


@pytest.fixture
def shim(make_shim):
    return make_shim()


@pytest.fixture
def talk(shim):
    """Join and be welcomed: the job, and a function that moves both ends until something holds."""
    jobs: list[Job] = []

    def settle(condition, what="something to be said"):
        def step():
            for job in jobs:
                job._poll()
            shim.pump()
            return condition()

        return wait_until(step, what)

    def start(seat=None, **options):
        job = Job(seat or shim.seat(), **options)
        jobs.append(job)
        settle(lambda: job.connected, "a welcome")
        return job, settle

    yield start
    for job in jobs:
        job.close()


@pytest.fixture
def outside(monkeypatch):
    """A process that has not joined, in an environment without Phalanx; as it was, afterwards."""
    for name in [n for n in os.environ if n.startswith(("PHALANX_", "TORCHELASTIC_"))]:
        monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "_joined", None)
    monkeypatch.setattr(client.atexit, "register", lambda function: None)
    # So that the mark which `join` leaves in the environment is taken away again.
    monkeypatch.setenv("PHALANX_JOINED", "")
    yield monkeypatch
    if client._joined is not None:
        client._joined.close()
