"""A whole one-machine daemon in virtual time: the real core on a made-up machine, disk and clock.

    with HostWorld(Setup(node)) as world:
        world.machine.scripts = ...
        world.boot()
        world.at(5_000_000, lambda: world.crash())
        world.run_until(60_000_000)

The daemon is one life on the loop and can be killed between any two of its steps; the machine, the disk
and the people who speak with it live on. People speak through `ask`, as clients do: they get an answer,
a refusal, or learn that the line was cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from phalanx.control.spec.writing import gang_tree
from phalanx.engine.policy import Policy
from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.core.intake import Intake
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.crashpoints import LABELS
from phalanx.frontends.host.messages import Submission
from phalanx.frontends.host.ports import Caller, Device, DeviceReading, Refused, Use
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.host.store import StoreBroken
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang
from phalanx.model.queue import DEFAULT_QUEUE, Queue, UserLimit
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.policy import named
from phalanx.testing.hosts.made_up_machine import Machine, MadeUpProcess
from phalanx.testing.hosts.virtual_launcher import FakeLauncher
from phalanx.testing.hosts.virtual_loop import (
    FIRST,
    LAST,
    Life,
    PatientEvent,
    VirtualClock,
    VirtualLoop,
    new_context,
)
from phalanx.testing.hosts.virtual_store import VirtualStore

_CORE: Final = "phalanx.frontends.host.core."
_PATCHED: Final = "crashpoint"


class Killed(BaseException):
    """The daemon ends here; nothing after this line happens."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One machine and its rules."""

    node: Node
    levels: tuple[str, ...] = ()
    policy: Policy = field(default_factory=lambda: named("goodput"))
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)
    users: tuple[UserLimit, ...] = ()
    settings: Settings = field(default_factory=Settings)
    #: Plan only when everything of an instant has happened, as the simulator does.
    patient: bool = False


def small_node(gpus: int, cpus: int = 64) -> Node:
    """A machine with so many devices."""
    return Node("host", {DEVICE_KIND: gpus * MILLI, "cpu": cpus * MILLI})


class WorldDevices:
    """The devices as a driver would show them."""

    fake = True

    def __init__(self, machine: Machine, count_: int) -> None:
        """Nobody but our own is on them."""
        self._machine = machine
        self._devices = tuple(
            Device(index, f"GPU-fake-{index}", "Fake GPU", 80 << 30, "fake0") for index in range(count_)
        )
        self.strangers: dict[int, Use] = {}
        self.gone: set[int] = set()

    def list(self) -> Sequence[Device]:
        """All of them."""
        return self._devices

    def read(self) -> Mapping[int, DeviceReading]:
        """Who uses what now."""
        uses = self._machine.uses()
        found = {}
        for device in self._devices:
            ours = [Use(process.pid, "ada", 1 << 30, "python") for process in uses.get(device.index, ())]
            other = [self.strangers[device.index]] if device.index in self.strangers else []
            found[device.index] = DeviceReading((*ours, *other), present=device.index not in self.gone)
        return found


@dataclass(slots=True, eq=False)
class _Asked:
    """A client that waits."""

    on_lost: Callable[[], None]


class _Listener(logging.Handler):
    """Whatever the core logs with an exception is a mistake of ours."""

    def __init__(self, errors: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._errors.append(record.exc_info[1])


class HostWorld:
    """The machine, its daemon, and whoever speaks with it."""

    def __init__(self, setup: Setup, delay_us: Callable[[str], int] = lambda what: 0) -> None:
        """Nothing runs yet. `delay_us(what)`: how long something takes."""
        self.setup = setup
        self.loop = VirtualLoop()
        self.context = copy_context()
        self.clock = VirtualClock(self.loop)
        self.machine = Machine(self.loop, self.context, delay_us)
        self.store = VirtualStore(self.loop, self.context, lambda: delay_us("commit"))
        self.devices = WorldDevices(self.machine, setup.node.resources.get(DEVICE_KIND, 0) // MILLI)
        self.core: Core | None = None  # once it has recovered
        self.life: Life | None = None
        self.errors: list[BaseException] = []
        self.hits: Counter[str] = Counter()  # crash points that were passed
        self.on_label: Callable[[str], bool] = lambda label: False  # whether the daemon ends there
        self.kept: Callable[[int], int] = lambda waiting: waiting  # of so many writes, how many a crash leaves
        self.on_boot: list[Callable[[Core], None]] = []
        self.on_exit: Callable[[], None] = lambda: None  # the daemon has ended by itself
        self._launcher: FakeLauncher | None = None
        self._daemon = self.context
        self._asking: list[_Asked] = []
        self._graves: set[asyncio.Task[Any]] = set()
        self._numbers = count(1)
        self._saved: list[tuple[Any, Any]] = []
        self._log = _Listener(self.errors)
        self._open = contextlib.ExitStack()
        self._runs = Path()  # stays empty: runs are made up
        self.loop.on_error = self._on_error

    def __enter__(self) -> Self:
        """Put ourselves where the core names its crash points."""
        for name, module in sorted(sys.modules.items()):
            if name.startswith(_CORE) and hasattr(module, _PATCHED):
                self._saved.append((module, getattr(module, _PATCHED)))
                setattr(module, _PATCHED, self._reached)
        logging.getLogger("phalanx").addHandler(self._log)
        self._runs = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-world-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back."""
        for module, original in self._saved:
            setattr(module, _PATCHED, original)
        logging.getLogger("phalanx").removeHandler(self._log)
        if self.life is not None:
            self.life.alive = False
        self._graves |= asyncio.all_tasks(self.loop)
        for task in self._graves:
            _bury(task)
        self.loop.close()
        self.store.close_now()
        self._open.close()

    def _on_error(self, error: BaseException) -> None:
        if not isinstance(error, Killed):
            self.errors.append(error)

    # ------------------------------------------------------------------ the daemon

    @property
    def now_us(self) -> int:
        """The time."""
        return self.loop.now_us

    def boot(self) -> None:
        """Start a daemon on what is on disk."""
        if self.life is not None and self.life.alive:
            return
        self.life = Life(f"daemon {next(self._numbers)}")
        self._daemon = new_context(self.life)
        self.loop.call_soon(self._start, context=self._daemon)

    def _start(self) -> None:
        task = self.loop.create_task(self._serve())
        task.add_done_callback(self._on_served)

    def _on_served(self, task: asyncio.Task[None]) -> None:
        """The process has ended by itself: it was told to, or its disk failed."""
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), StoreBroken):
            self._on_failed(task)
            return
        self.crash()
        self.loop.call_soon(self.on_exit, context=self.context)

    def _on_failed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_error(error)

    async def _serve(self) -> None:
        assert self.life is not None
        setup = self.setup
        fleet = Fleet([setup.node], setup.levels)
        walltime = setup.settings.default_walltime_us
        default = {} if walltime is None else {"default_walltime_us": walltime}
        self._launcher = FakeLauncher(self.machine, self._reached, self.life)
        known = Knowledge(
            clock=self.clock,
            store=self.store,
            devices=list(self.devices.list()),
            planner=Planner(fleet, setup.policy, setup.queues, setup.users, **default),
            intake=Intake(fleet, setup.queues, setup.users, setup.policy, setup.levels),
            runs=self._runs,
            settings=setup.settings,
            node=setup.node.name,
        )
        means = Means(known, self._launcher, self.machine.boot_id)
        if setup.patient:
            means.errands.wake = PatientEvent(self.loop)
        core = Core(means, self.devices, {"pid": 1, "socket": "", "version": "0", "containment": "weak"})
        core.house.recall()
        for tell in self.on_boot:
            tell(core)
        await core.recover()
        self.core = core
        await core.run()

    def _reached(self, label: str) -> None:
        assert label in LABELS, label
        self.hits[label] += 1
        if self.on_label(label):
            self.crash()
            raise Killed(label)

    def crash(self) -> None:
        """The daemon is killed, between two of its steps or at a crash point."""
        if self.life is None or not self.life.alive:
            return
        self.life.alive = False
        self.core = None
        # Kept until the end: what a coroutine does when it is thrown away would happen at any time.
        self._graves |= asyncio.all_tasks(self.loop)
        if self._launcher is not None:
            self.machine.lose_daemon(self._launcher)
        self.store.lose_daemon(self.kept)
        asking, self._asking = self._asking, []
        for asked in asking:
            asked.on_lost()

    def reboot(self) -> None:
        """The power fails, and comes back."""
        self.crash()
        self.machine.reboot()

    def kill_shim(self, run: str) -> None:
        """A shim is killed; the daemon notices at once."""
        found = self.machine.runs.get(run)
        if found is not None and found.shim:
            ear = found.daemon
            self.machine.kill_shim(found)
            if isinstance(ear, FakeLauncher):
                ear.lose_shim(found)

    # ------------------------------------------------------------------ time

    def at(self, at_us: int, call: Callable[[], None], rank: int = FIRST) -> None:
        """Do this then."""
        self.loop.call_ranked(at_us, rank, call, context=self.context)

    def run_until(self, at_us: int) -> None:
        """Let time pass, to the end of that instant."""
        done: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_ranked(at_us, LAST + 1, done.set_result, None, context=self.context)
        self.loop.run_until_complete(done)

    # ------------------------------------------------------------------ people

    def ask(
        self,
        question: Callable[[Core], Awaitable[Any]],
        on_reply: Callable[[Any], None] = lambda reply: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask the daemon something; `on_reply` gets the answer or a `Refused`, `on_lost` is called if none comes."""
        core = self.core
        if core is None or self.life is None:
            on_lost()
            return
        asked = _Asked(on_lost)
        self._asking.append(asked)
        self.loop.call_soon(self._put, core, question, asked, on_reply, context=self._daemon)

    def _put(
        self,
        core: Core,
        question: Callable[[Core], Awaitable[Any]],
        asked: _Asked,
        on_reply: Callable[[Any], None],
    ) -> None:
        task = self.loop.create_task(self._answer(core, question, asked, on_reply))
        task.add_done_callback(self._on_failed)

    async def _answer(
        self,
        core: Core,
        question: Callable[[Core], Awaitable[Any]],
        asked: _Asked,
        on_reply: Callable[[Any], None],
    ) -> None:
        reply: Any
        try:
            reply = await question(core)
        except (Refused, StoreBroken) as no:
            reply = no
        if asked in self._asking:
            self._asking.remove(asked)
            self.loop.call_soon(on_reply, reply, context=self.context)

    # ------------------------------------------------------------------ truth

    def processes(self) -> list[MadeUpProcess]:
        """Everybody who lives on the machine."""
        return list(self.machine.processes())


def _bury(task: asyncio.Task[Any]) -> None:
    """Throw away a task that stands still for ever, whatever its last wishes."""
    work = task.get_coro()
    if not task.done() and isinstance(work, Coroutine):
        with contextlib.suppress(BaseException):
            work.close()


def make_submission(
    gang: Gang, ids: Mapping[str, int], run: Mapping[str, Any] | None = None, **options: Any
) -> Submission:
    """A gang of a scenario as somebody would hand it in; `ids` are those of the jobs it may wait for."""
    tree = gang_tree(gang)
    for key in ("name", "submit", "user"):
        tree.pop(key, None)
    if gang.after.names:
        named_ids = [str(ids[name]) for name in gang.after.names]
        tree["after"] = {"any": named_ids} if gang.after.any_end else named_ids
    told = {"command": ["true"], **(run or {})}
    name = f"job-{gang.name}" if gang.name.isdecimal() else gang.name
    return Submission(
        gang=msgspec.Raw(msgspec.json.encode(tree)), run=msgspec.Raw(msgspec.json.encode(told)), name=name, **options
    )


def caller_of(user: str, known: Sequence[str] = ("", "ada", "bob")) -> Caller:
    """Somebody by name, with a number of their own."""
    return Caller(1000 + (known.index(user) if user in known else 100 + len(user)), user)
