"""The truth about a made-up machine: which processes there are, what they do, and what shims remember.

What a shim does is modelled on `frontends.host.shim`: members stand at a gate, go through it together,
and are told of one by one when they end; before the gate, the end of the daemon is the end of the run.
Nothing here knows the core. It writes down every start of a program, so that a test can count them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from phalanx.frontends.host.ports import MemberOrder, Order, RunEvent
from phalanx.testing.hosts.virtual_loop import FIRST, VirtualLoop

KILL: Final = "KILL"
SIGNALS: Final = {"TERM": 15, "KILL": 9, "USR1": 10, "INT": 2}
STUCK_AFTER_US: Final = 30_000_000
KILL_AGAIN_US: Final = 500_000


@dataclass(slots=True, eq=False)
class MadeUpProcess:
    """A program that stands at the gate, runs, or has ended."""

    run: str
    job: int
    attempt: int
    key: int
    generation: int
    pid: int
    start: int
    role: str
    devices: tuple[int, ...]
    milli: int  # of each of them
    stray: bool = False  # left behind by a member
    alive: bool = True
    went: bool = False
    code: int | None = None
    signal: int | None = None
    unkillable_until_us: int = 0
    doomed: bool = False  # and was killed all the same
    ended_us: int | None = None
    noted: bool = False  # its shim saw it end and wrote down how


class Script(Protocol):
    """What the programs of a job do."""

    def refusal(self, order: Order) -> str | None:
        """Why it cannot be prepared; None if it can."""
        ...

    def share(self, role: str) -> int:
        """Thousandths of a device that a member of this role uses."""
        ...

    def begin(self, run: MadeUpRun, members: Sequence[MadeUpProcess]) -> None:
        """These were let through the gate."""
        ...

    def hear(self, run: MadeUpRun, member: MadeUpProcess, message: Mapping[str, Any]) -> None:
        """The scheduler says something."""
        ...

    def feel(self, run: MadeUpRun, member: MadeUpProcess, signal: str) -> None:
        """A signal that can be caught."""
        ...


@dataclass(slots=True, eq=False)
class MadeUpRun:
    """A run directory and its shim."""

    name: str
    script: Script
    boot_id: str
    members: dict[int, MadeUpProcess] = field(default_factory=dict)  # that went, the newest of each key
    waiting: tuple[int, list[MadeUpProcess]] | None = None
    strays: list[MadeUpProcess] = field(default_factory=list)
    generation: int = 0
    shim: bool = True  # it lives
    done: bool = False  # it has written down that nothing is left
    spoken: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    daemon: Ear | None = None  # who listens
    inbox_us: int = 0  # when the last order arrives
    outbox_us: int = 0
    told_stuck: bool = False
    forgotten: bool = False  # nobody wants to know of it any more

    @property
    def went(self) -> bool:
        """Whether anybody was let through the gate."""
        return bool(self.members)

    def living(self) -> list[MadeUpProcess]:
        """Everybody who is there, at the gate, beyond it, or left behind."""
        waiting = self.waiting[1] if self.waiting is not None else []
        return [each for each in (*self.members.values(), *waiting, *self.strays) if each.alive]


class Ear(Protocol):
    """A daemon that is connected to shims."""

    def deliver(self, event: RunEvent) -> None:
        """Something happened to a run."""
        ...


class Machine:
    """Processes, shims and run directories."""

    def __init__(self, loop: VirtualLoop, context: Context, delay_us: Callable[[str], int]) -> None:
        """`delay_us(what)`: how long a message is under way, or a thing takes."""
        self.loop, self.context, self.delay_us = loop, context, delay_us
        self.boot_id = "boot-1"
        self.runs: dict[str, MadeUpRun] = {}  # directories
        self.scripts: Callable[[Order], Script] = _no_script
        self.execs: list[tuple[int, MadeUpProcess]] = []
        self.on_exec: list[Callable[[MadeUpProcess], None]] = []
        self.on_end: list[Callable[[MadeUpProcess], None]] = []
        self.told_to_go: set[str] = set()  # runs of which somebody was there to be told
        self._pids = 1000

    # ------------------------------------------------------------------ time

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        """Do this then, whatever becomes of the daemon."""
        self.loop.call_ranked(self.loop.now_us + delay_us, FIRST, call, context=self.context)

    def order(self, run: str, obey: Callable[[MadeUpRun], None]) -> None:
        """A message to a shim: it comes after those before it, also if the daemon that sent it is gone."""
        found = self.runs.get(run)
        if found is None:
            return
        found.inbox_us = max(found.inbox_us, self.loop.now_us + self.delay_us("order"))
        self.loop.call_ranked(found.inbox_us, FIRST, self._obey, run, obey, context=self.context)

    def _obey(self, run: str, obey: Callable[[MadeUpRun], None]) -> None:
        found = self.runs.get(run)
        if found is not None and found.shim:
            obey(found)

    def tell(self, run: MadeUpRun, kind: str, **fields: Any) -> None:
        """The shim says something to whoever listens now."""
        ear = run.daemon
        if ear is None or not run.shim:
            return
        run.outbox_us = max(run.outbox_us, self.loop.now_us + self.delay_us("event"))
        event = RunEvent(run.name, kind, **fields)
        self.loop.call_ranked(run.outbox_us, FIRST, ear.deliver, event, context=self.context)

    # ------------------------------------------------------------------ the gate

    def prepare(self, order: Order, ear: Ear) -> MadeUpRun:
        """A shim, and members at the gate."""
        run = self.runs[order.run] = MadeUpRun(order.run, self.scripts(order), self.boot_id, daemon=ear)
        run.waiting = (order.generation, self._fork(run, order.generation, order.members))
        return run

    def add(self, run: MadeUpRun, generation: int, orders: Sequence[MemberOrder]) -> str | None:
        """More members at a gate of their own; why not, if not."""
        taken = {key for key, member in run.members.items() if member.alive} & {order.rank for order in orders}
        if taken or run.waiting is not None or run.done or generation <= run.generation:
            return f"ranks {sorted(taken)} are still there" if taken else f"generation {generation} cannot join now"
        run.waiting = (generation, self._fork(run, generation, orders))
        return None

    def _fork(self, run: MadeUpRun, generation: int, orders: Sequence[MemberOrder]) -> list[MadeUpProcess]:
        job, _, attempt = run.name.partition(".")
        made = []
        for order in orders:
            self._pids += 1
            role = order.env.get("PHALANX_ROLE", "")
            devices = tuple(int(uuid.rpartition("-")[2]) for uuid in _words(order.env.get("PHALANX_DEVICES", "")))
            who = (run.name, int(job), int(attempt), order.rank, generation, self._pids, self.loop.now_us)
            made.append(MadeUpProcess(*who, role, devices, run.script.share(role)))
        return made

    def go(self, run: MadeUpRun, generation: int) -> None:
        """One word lets all of them through, unless somebody died there: then nobody goes."""
        if run.waiting is None or run.waiting[0] != generation:
            return
        _, members = run.waiting
        if not all(member.alive for member in members):
            self.abort(run)
            return
        run.waiting, run.generation = None, generation
        for member in members:
            member.went = True
            run.members[member.key] = member
            self.execs.append((self.loop.now_us, member))
            for tell in self.on_exec:
                tell(member)
        run.script.begin(run, members)

    def drop_waiting(self, run: MadeUpRun) -> None:
        """Whoever waits at the gate goes home."""
        if run.waiting is not None:
            for member in run.waiting[1]:
                member.alive = False
            run.waiting = None
            self._look(run)

    def abort(self, run: MadeUpRun) -> None:
        """The members at the gate go home; without any beyond it, the run is over."""
        self.drop_waiting(run)
        if not run.went:
            run.shim, run.done = False, True

    # ------------------------------------------------------------------ ends

    def end(self, run: MadeUpRun, member: MadeUpProcess, code: int | None = None, signal: int | None = None) -> None:
        """A process is gone."""
        if not member.alive:
            return
        member.alive, member.code, member.signal, member.ended_us = False, code, signal, self.loop.now_us
        member.noted = run.shim
        for tell in self.on_end:
            tell(member)
        if not member.went:
            return  # nobody is told of who dies at the gate, until it is opened
        if not member.stray:
            self.tell(run, "exit", rank=member.key, generation=member.generation, code=code, signal=signal, tail="")
        self._look(run)

    def leave_behind(self, run: MadeUpRun, member: MadeUpProcess) -> MadeUpProcess:
        """A member starts something that outlives it."""
        self._pids += 1
        who = (run.name, member.job, member.attempt, member.key, member.generation, self._pids, self.loop.now_us)
        stray = MadeUpProcess(*who, member.role, member.devices, member.milli, stray=True, went=True)
        run.strays.append(stray)
        return stray

    def forget(self, run: str) -> None:
        """The directory goes as soon as nothing of the run is left."""
        found = self.runs.get(run)
        if found is not None:
            found.forgotten = True
            self._look(found)

    def _look(self, run: MadeUpRun) -> None:
        if run.forgotten and not run.living():
            self.runs.pop(run.name, None)
        if run.shim and run.went and not run.done and run.waiting is None and not run.living():
            run.done = True
            self.tell(run, "empty")

    def stop(self, run: MadeUpRun, keys: Sequence[int] | None, signal: str, grace_s: float) -> None:
        """Signal these members (None: all and everything), and kill what is left of them after the grace."""
        if keys is None:
            self.drop_waiting(run)
            if not run.went:
                self.abort(run)
                return
        chosen = [m for key, m in run.members.items() if keys is None or key in keys]
        if keys is None and any(member.alive for member in chosen):
            self.told_to_go.add(run.name)
        self.signal(run, [m.key for m in chosen], signal)
        grace_us = 0 if signal == KILL else round(grace_s * 1e6)
        self.after(grace_us, lambda: self._kill(run, chosen, whole=keys is None))

    def signal(self, run: MadeUpRun, keys: Sequence[int] | None, signal: str) -> None:
        """Only signal."""
        for key, member in list(run.members.items()):
            if member.alive and (keys is None or key in keys):
                if signal == KILL:
                    self._slay(run, member)
                else:
                    run.script.feel(run, member, signal)

    def _kill(self, run: MadeUpRun, members: Sequence[MadeUpProcess], *, whole: bool) -> None:
        """Again and again, until nothing is left of whom it means."""
        keys = {member.key for member in members}
        meant = [*members, *(stray for stray in run.strays if whole or stray.key in keys)]
        for process in meant:
            self._slay(run, process)
        if run.shim and any(process.alive for process in meant):
            self.after(KILL_AGAIN_US, lambda: self._kill(run, members, whole=whole))

    def _slay(self, run: MadeUpRun, process: MadeUpProcess) -> None:
        """As SIGKILL does it: at once, unless the kernel does not let go."""
        if not process.alive:
            return
        now_us = self.loop.now_us
        if process.unkillable_until_us <= now_us:
            self.end(run, process, signal=SIGNALS[KILL])
            return
        if process.doomed:
            return
        process.doomed = True
        self.after(process.unkillable_until_us - now_us, lambda: self.end(run, process, signal=SIGNALS[KILL]))
        if process.unkillable_until_us - now_us > STUCK_AFTER_US:
            self.after(STUCK_AFTER_US, lambda: self._tell_stuck(run))

    def _tell_stuck(self, run: MadeUpRun) -> None:
        if run.living() and not run.told_stuck:
            run.told_stuck = True
            self.tell(run, "stuck", message={"pids": [p.pid for p in run.living()]})

    # ------------------------------------------------------------------ words

    def say(self, run: MadeUpRun, member: MadeUpProcess, message: dict[str, Any]) -> None:
        """A member says something to the scheduler."""
        if member.alive:
            run.spoken[member.key, str(message.get("type"))] = message
            self.tell(run, "job", rank=member.key, message=message)

    def hear(self, run: MadeUpRun, keys: Sequence[int] | None, message: Mapping[str, Any]) -> None:
        """The scheduler says something to members."""
        for key, member in list(run.members.items()):
            if member.alive and (keys is None or key in keys):
                if message["type"] == "yield":
                    self.told_to_go.add(run.name)
                run.script.hear(run, member, message)

    # ------------------------------------------------------------------ faults

    def lose_daemon(self, ear: Ear) -> None:
        """The daemon is gone: whoever waits at a gate goes home, everybody else goes on."""
        for run in self.runs.values():
            if run.daemon is ear:
                run.daemon = None
                if run.shim:
                    self.abort(run)

    def kill_shim(self, run: MadeUpRun) -> None:
        """Its members go on, and nobody is there to say how they end."""
        run.shim = False
        for member in run.waiting[1] if run.waiting is not None else ():
            member.alive = False  # the gate is a pipe, and it broke
        run.waiting = None

    def clear(self, run: MadeUpRun) -> bool:
        """Kill what a dead shim left; False if something does not die."""
        for process in run.living():
            self._slay(run, process)
        return not run.living()

    def reboot(self) -> None:
        """Nothing survives but what shims wrote down."""
        for run in self.runs.values():
            run.shim, run.daemon, run.waiting = False, None, None
            for process in run.living():
                process.alive, process.ended_us = False, self.loop.now_us
                for tell in self.on_end:
                    tell(process)
        self.boot_id = f"boot-{int(self.boot_id.rpartition('-')[2]) + 1}"

    # ------------------------------------------------------------------ questions

    def processes(self) -> Iterator[MadeUpProcess]:
        """Everybody who lives."""
        for run in self.runs.values():
            yield from run.living()

    def uses(self) -> dict[int, list[MadeUpProcess]]:
        """Who is beyond the gate, by device."""
        found: dict[int, list[MadeUpProcess]] = {}
        for process in self.processes():
            if process.went:
                for device in process.devices:
                    found.setdefault(device, []).append(process)
        return found


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def name_of(order: Order) -> str:
    """What people call the job that is started."""
    return order.members[0].env["PHALANX_NAME"]


def _no_script(order: Order) -> Script:
    raise LookupError(f"nobody says what {name_of(order)} does")
