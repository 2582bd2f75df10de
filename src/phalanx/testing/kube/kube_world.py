"""A cluster in virtual time: an API server, replicas of the real scheduler, kubelets, and whoever else writes.

with KubeWorld(seed=1) as world:
    world.create(NODES, make_nodes("2x4"))
    world.boot("a")
    world.run_until(5_000_000)
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from datetime import UTC, datetime
from itertools import count
from random import Random
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from phalanx.frontends.kube.api.api_client import ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.api.kubeconfig import ApiAccess
from phalanx.frontends.kube.controller import Controller
from phalanx.frontends.kube.intents import FencedError
from phalanx.frontends.kube.kube_clock import KubeClock
from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.frontends.kube.running import make_replica
from phalanx.testing.hosts.virtual_loop import LAST, LIFE
from phalanx.testing.kube.fake_api import MERGE_PATCH, ApiAnswer, ApiCall, FakeApi
from phalanx.testing.kube.fake_etcd import FakeEtcd, StoredChange, Tree
from phalanx.testing.kube.fake_server import FakeServer
from phalanx.testing.kube.virtual_network import KubeLoop, SleepyLife

START_S: Final = 1_700_000_000
#: Where the scheduler has its own objects.
HOME: Final = "sched"
PODS: Final = "/api/v1/namespaces/default/pods"
NODES: Final = "/api/v1/nodes"


class ReplicaClock(KubeClock):
    """Of one machine: its wall clock may be wrong, its other one has begun when the machine has."""

    def __init__(self, loop: KubeLoop, ahead_s: float, booted_us: int) -> None:
        """How much it is ahead of the truth."""
        self._loop, self._ahead_s, self._booted_us = loop, ahead_s, booted_us

    def now_us(self) -> int:
        """For the engine."""
        return int(self.wall_s() * 1e6)

    def boot_us(self) -> int:
        """Since the machine was started."""
        return self._loop.now_us + self._booted_us

    def wall_s(self) -> float:
        """As it is set."""
        return START_S + self._ahead_s + self._loop.now_us / 1e6

    def stamp(self) -> str:
        """As Kubernetes writes it in conditions."""
        return datetime.fromtimestamp(int(self.wall_s()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def stamp_micro(self) -> str:
        """As leases and events have it."""
        return datetime.fromtimestamp(self.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Replica:
    """One process of the scheduler, from its start to its end."""

    def __init__(self, world: KubeWorld, place: str, user: str, ahead_s: float) -> None:
        """`place`: the machine; `user`: this process and no other."""
        self.world, self.place, self.user = world, place, user
        self.life = SleepyLife(user)
        self.clock = ReplicaClock(world.loop, ahead_s, 1_000_000 * len(place))
        self.controller: Controller | None = None
        self.stop: asyncio.Event | None = None

    @property
    def is_leading(self) -> bool:
        """Whether it believes so."""
        return self.life.alive and self.controller is not None and self.controller.is_leading

    async def serve(self) -> None:
        """As `phalanx kube run` does."""
        access = ApiAccess("fake", 1, None, find_token=lambda: self.user, namespace=HOME)
        self.stop = asyncio.Event()
        tell = self.world.tell_of(self.user)
        self.controller = make_replica(access, self.world.settings, self.clock, tell, self.user)
        for watcher in self.world.on_boot:
            watcher(self)
        await self.controller.run(self.stop)


class KubeWorld:
    """All of it."""

    def __init__(self, settings: KubeSettings | None = None, seed: object = 0) -> None:
        """Nothing runs yet."""
        self.settings = settings or KubeSettings(bind_deadline_s=10.0)
        self.dice = Random(f"world {seed}")
        self.loop = KubeLoop(lambda: self.server)
        self.context = copy_context()
        self.etcd = FakeEtcd()
        self.api = FakeApi(self.etcd, self.now_s)
        self.server = FakeServer(self.api, self.later)
        self.replicas: dict[str, Replica] = {}  # by place, the last that was there
        self.errors: list[BaseException] = []
        self.on_boot: list[Callable[[Replica], None]] = []
        self.on_exit: Callable[[Replica, str], None] = lambda replica, word: None
        self.on_word: Callable[[str, str, dict[str, Any]], None] = lambda user, word, fields: None
        self._numbers = count(1)
        self._graves: set[asyncio.Task[Any]] = set()
        self._collected = gc.isenabled()
        self.loop.on_error = self._note_error
        self.loop.on_death = self._die
        for name in (HOME, "default"):
            self.create("/api/v1/namespaces", [{"metadata": {"name": name}}])

    def __enter__(self) -> Self:
        """From here on time passes."""
        # What is collected in a cycle has its last wishes carried out at that moment, which is another one each time.
        gc.disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Everybody stands still."""
        for replica in self.replicas.values():
            self.kill(replica)
        self._graves |= asyncio.all_tasks(self.loop)
        self.loop.close()
        for task in self._graves:
            _bury(task)
        if self._collected:
            gc.enable()

    # ------------------------------------------------------------------ time

    @property
    def now_us(self) -> int:
        """The time."""
        return self.loop.now_us

    def now_s(self) -> float:
        """The server's clock, which is right."""
        return START_S + self.loop.now_us / 1e6

    def later(self, delay_us: int, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Do this then, in nobody's name."""
        return self.loop.call_at((self.loop.now_us + delay_us) / 1e6, call, *args, context=self.context)

    def run_until(self, at_us: int) -> None:
        """Let time pass, to the end of that instant."""
        done: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_ranked(at_us, LAST + 1, _finish, done, context=self.context)
        self.loop.run_until_complete(done)

    # ------------------------------------------------------------------ replicas

    def boot(self, place: str, ahead_s: float = 0.0) -> Replica:
        """Start a replica, if none lives there."""
        there = self.replicas.get(place)
        if there is not None and there.life.alive:
            return there
        replica = self.replicas[place] = Replica(self, place, f"{place}-{next(self._numbers)}", ahead_s)
        context = self.context.copy()
        context.run(LIFE.set, replica.life)
        self.loop.call_soon(self._start, replica, context=context)
        return replica

    def _start(self, replica: Replica) -> None:
        task = self.loop.create_task(replica.serve())
        task.add_done_callback(lambda done: self._on_served(replica, done))

    def _on_served(self, replica: Replica, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        word = "stopped"
        if isinstance(error, FencedError):
            word = f"fenced: {error}"
        elif isinstance(error, ApiRefusedError | ApiSilentError):
            word = f"failed: {error}"
        elif error is not None:
            self.errors.append(error)
        self.kill(replica)
        self.loop.call_soon(self.on_exit, replica, word, context=self.context)

    def _note_error(self, error: BaseException) -> None:
        # What ends a process in good order (`_on_served`) is heard by nobody where it is killed in the same moment.
        if not isinstance(error, FencedError | ApiRefusedError | ApiSilentError):
            self.errors.append(error)

    def kill(self, replica: Replica) -> None:
        """It is dead, between two of its steps."""
        if replica.life.alive:
            replica.life.alive = False
            # Kept until the end: what a coroutine does when it is thrown away would happen at any time.
            self._graves |= asyncio.all_tasks(self.loop)
            self.server.drop(replica.life)

    def _die(self, life: SleepyLife) -> None:
        for replica in self.replicas.values():
            if replica.life is life:
                self.kill(replica)
                self.loop.call_soon(self.on_exit, replica, "killed", context=self.context)

    def find_leaders(self) -> list[Replica]:
        """All who believe that they lead."""
        return [each for each in self.replicas.values() if each.is_leading]

    def tell_of(self, user: str) -> Callable[..., None]:
        """What a replica logs goes where this world is told of it."""
        return lambda word, **fields: self.on_word(user, word, fields)

    # ------------------------------------------------------------------ whoever else writes

    def ask(self, method: str, path: str, tree: object = None, *, kind: str = MERGE_PATCH, user: str = "people") -> Any:
        """A call that is carried out at once; the answer is a tree, None if it was refused."""
        answer = self.answer(method, path, tree, kind=kind, user=user)
        return msgspec.json.decode(answer.body) if answer.code < 400 else None

    def answer(
        self, method: str, path: str, tree: object = None, *, kind: str = MERGE_PATCH, user: str = "people"
    ) -> ApiAnswer:
        """The same, with its code."""
        path, _, asked = path.partition("?")
        query = dict(each.split("=", 1) for each in asked.split("&") if each)
        body = b"" if tree is None else msgspec.json.encode(tree)
        return self.api.answer(ApiCall(method, path, query, body, kind, user))

    def create(self, path: str, trees: Iterable[Tree]) -> None:
        """Objects, all of them."""
        for tree in trees:
            self.ask("POST", path, tree)

    def list(self, kind: str) -> list[Tree]:
        """All of a kind as they are."""
        return [stored.tree for _, stored in self.etcd.list_all(kind)]

    def listen(self, listener: Callable[[StoredChange], None]) -> None:
        """Be told of every change."""
        self.etcd.listeners.append(listener)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _bury(task: asyncio.Task[Any]) -> None:
    """Throw away a task that stands still for ever, whatever its last wishes."""
    work = task.get_coro()
    if not task.done() and isinstance(work, Coroutine):
        with contextlib.suppress(BaseException):
            work.close()
