"""What the core of the daemon needs of the world, as protocols with a real and a fake version each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from phalanx.frontends.host.messages import Refusal


class Refused(Exception):  # noqa: N818 - a refusal is an answer, not an accident
    """The core says no; the API turns it into an answer with a code."""

    def __init__(self, code: str, message: str, hint: str = "", **details: Any) -> None:
        """`code` is one of `messages.HTTP_STATUS`."""
        super().__init__(message)
        self.refusal = Refusal(code, message, hint, details)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who speaks, as the kernel or a token attests it."""

    uid: int
    user: str
    admin: bool = False  # root, the daemon's own user, or a member of the admin group
    scope: str = "admin"  # of a token: read, submit or admin

    def may_act_on(self, uid: int) -> bool:
        """The one rule, of this user's jobs: one's own, or an administrator's any."""
        return self.admin or self.uid == uid


class Clock(Protocol):
    """Time as the daemon reads it."""

    def now_us(self) -> int:
        """The cluster's clock: never goes back, runs on while the machine sleeps, goes on after a reboot."""
        ...

    def wall_s(self) -> float:
        """Seconds since the epoch, for people only."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


# ---------------------------------------------------------------------- launching


@dataclass(frozen=True, slots=True)
class MemberOrder:
    """One member to be started: everything the shim needs."""

    rank: int
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str


@dataclass(frozen=True, slots=True)
class Order:
    """An attempt to be prepared: all members at the gate, nobody through it."""

    job: int
    attempt: int
    generation: int
    uid: int
    gid: int
    user: str  # "" in user mode: nothing is dropped
    members: Sequence[MemberOrder]
    log_cap_bytes: int
    umask: int = 0o022
    pids_max: int = 0  # 0: no bound

    @property
    def run(self) -> str:
        """The name of the run, and of its directory."""
        return f"{self.job}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Ready:
    """Members stand at the gate."""

    generation: int
    pids: Mapping[int, tuple[int, int]]  # rank → pid and its start time
    contained: str  # cgroup2, cgroup1 or weak


class CannotStart(Exception):  # noqa: N818 - what happened, not a kind of mistake
    """A run could not be prepared; nothing of it is left. As a rule the machine is to blame, and it is tried again."""


class UserUnknown(CannotStart):
    """The machine does not know the job's user at the moment; nobody else need wait for that."""


class NotStartable(CannotStart):
    """The job itself is why, and would be tomorrow."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What a shim tells: exit, empty, stuck, job, lost (the shim itself is gone and nothing of the run is left)."""

    run: str
    kind: str
    rank: int | None = None
    generation: int = 0
    code: int | None = None
    signal: int | None = None
    tail: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run directory as it is found when the daemon starts."""

    run: str
    alive: bool  # its shim holds the lock and answers
    went: bool  # members were let through the gate
    done: bool  # nothing of it is left
    generation: int
    members: Mapping[int, tuple[int, int]]  # rank → pid, start time
    exits: Mapping[int, tuple[int | None, int | None]]  # rank → code, signal
    lost: bool = False  # the shim died without a word; what was left of the run has been killed
    same_boot: bool = True
    vanished: bool = False  # its directory is gone, and with it all that it could tell; what was left has been killed
    silent: bool = False  # nothing tells who is in it: its journal is lost, or it never went
    spoke: Sequence[tuple[int, Mapping[str, Any]]] = ()  # rank, and the last message of each kind it said
    contained: str = ""  # how well its processes were held together; empty if that is not known


class Launcher(Protocol):
    """The daemon's side of the shims. All methods are idempotent; a run that is gone is not an error."""

    async def prepare(self, order: Order) -> Ready:
        """Run directory, shim, members at the gate. Raises CannotStart, and then nothing is left."""
        ...

    async def go(self, run: str, generation: int) -> None:
        """Let the members of this generation through the gate."""
        ...

    async def abort(self, run: str) -> None:
        """Give up a run that was prepared and not let go."""
        ...

    async def add(self, run: str, generation: int, members: Sequence[MemberOrder]) -> Ready:
        """Further members of a living run, at a gate of their own."""
        ...

    async def stop(self, run: str, ranks: Sequence[int] | None, signal: str, grace_s: float) -> None:
        """Signal these members (None: all), and kill what is left of them after the grace."""
        ...

    async def signal(self, run: str, ranks: Sequence[int] | None, signal: str) -> None:
        """Only signal."""
        ...

    async def tell(self, run: str, ranks: Sequence[int] | None, message: Mapping[str, Any]) -> None:
        """A message of the job protocol."""
        ...

    async def forget(self, run: str) -> None:
        """The core has written down how it ended; the shim may go."""
        ...

    async def discard(self, run: str) -> bool:
        """Remove the directory of a run that was forgotten, logs and all; False if its shim is still there."""
        ...

    async def find(self, named: Collection[str] = ()) -> list[FoundRun]:
        """Look at every run directory: connect to living shims, kill what dead ones left.

        `named`: of these the directories are looked at too if they were written off.
        """
        ...

    async def detach(self) -> None:
        """The daemon stops; runs go on."""
        ...

    def on_event(self, listener: Callable[[RunEvent], Awaitable[None]]) -> None:
        """Who is told of events, in order for each run."""
        ...


# ---------------------------------------------------------------------- devices


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one slice of a GPU that was cut into several."""

    index: int
    uuid: str
    model: str
    memory_bytes: int
    island: str  # devices of one island talk fastest with each other


@dataclass(frozen=True, slots=True)
class Use:
    """A process on a device."""

    pid: int
    user: str
    memory_bytes: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """A device now."""

    uses: tuple[Use, ...] = ()
    utilization: float | None = None
    memory_used_bytes: int | None = None
    present: bool = True


class Devices(Protocol):
    """The GPUs of this machine."""

    @property
    def fake(self) -> bool:
        """Whether they are made up."""
        ...

    def list(self) -> Sequence[Device]:
        """All devices, islands together; the index is the engine's device number."""
        ...

    def read(self) -> Mapping[int, DeviceReading]:
        """Who uses what now, by index. Quick; called every few seconds."""
        ...
