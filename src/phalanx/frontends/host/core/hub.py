"""What the parts of the core share: the ports, what is known, and the one way to write something down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from phalanx.frontends.host.core.agenda import Agenda
from phalanx.frontends.host.core.attempt_phases import OnDisk, written_as
from phalanx.frontends.host.core.intake import Intake
from phalanx.frontends.host.core.jobs import Job, Live, Member, Register
from phalanx.frontends.host.core.machine_trouble import MachineTrouble
from phalanx.frontends.host.core.occupancy import Occupancy
from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.messages import Happening
from phalanx.frontends.host.ports import Clock, Device, Launcher
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.host.store import (
    AddEvents,
    Change,
    EventRecord,
    PutRun,
    RunRecord,
    Store,
    StoreBroken,
    StoreFull,
)
from phalanx.words import stamp

log = logging.getLogger("phalanx")

#: An ended job stays in memory for so long.
LINGER_US: Final = 600_000_000

#: Why a device is closed whose last user is gone: somebody looks whether nobody else is on it.
CHECKED: Final = "being checked"

#: What the row of an attempt says of it; whether it is unwanted stands beside.
ROW_STATES: Final = {
    OnDisk.STARTING: "starting",
    OnDisk.REGRETTED: "starting",
    OnDisk.RUNNING: "running",
    OnDisk.STOPPING: "stopping",
}

Fact = tuple[int, str, dict[str, Any]]  # job, event, data


async def _look_nowhere() -> None:
    """There is nothing to be seen."""


class Meters(Protocol):
    """What is counted for people who watch many machines; `api.prometheus_meters` has the one that is scraped."""

    def count_submits(self, jobs: int = 1) -> None: ...  # noqa: D102

    def count_admission(self, waited_s: float) -> None: ...  # noqa: D102

    def count_eviction(self, reason: str) -> None: ...  # noqa: D102

    def count_resize(self, direction: str, took_s: float) -> None: ...  # noqa: D102

    def count_cycle(self, took_s: float, exit_reason: str) -> None: ...  # noqa: D102

    def count_lost(self, cause: str, gpu_s: float) -> None: ...  # noqa: D102

    def count_eta_error(self, error_s: float) -> None: ...  # noqa: D102


class NoMeters:
    """Counts nothing."""

    def count_submits(self, jobs: int = 1) -> None:
        """Jobs are on disk."""

    def count_admission(self, waited_s: float) -> None:
        """A gang got its places."""

    def count_eviction(self, reason: str) -> None:
        """A gang lost everything."""

    def count_resize(self, direction: str, took_s: float) -> None:
        """A gang has another size."""

    def count_cycle(self, took_s: float, exit_reason: str) -> None:
        """The engine ran."""

    def count_lost(self, cause: str, gpu_s: float) -> None:
        """Work is gone."""

    def count_eta_error(self, error_s: float) -> None:
        """A start was expected at another time."""


@dataclass(slots=True)
class Hub:
    """One daemon."""

    clock: Clock
    store: Store
    launcher: Launcher
    devices: Sequence[Device]
    planner: Planner
    intake: Intake
    boot_id: str
    runs: Path
    settings: Settings = field(default_factory=Settings)
    system: bool = False  # jobs run as whoever submitted them
    node: str = "host"
    register: Register = field(default_factory=Register)
    occupancy: Occupancy = field(default_factory=Occupancy)
    agenda: Agenda = field(default_factory=Agenda)
    trouble: MachineTrouble = field(default_factory=MachineTrouble)
    meters: Meters = field(default_factory=NoMeters)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    listeners: list[Callable[[Happening], None]] = field(default_factory=list)
    ends: dict[int, asyncio.Event] = field(default_factory=dict)  # jobs that somebody waits for
    dirty: bool = True  # something happened that could change the plan
    look_at_devices: Callable[[], Coroutine[Any, Any, None]] = _look_nowhere
    broken: asyncio.Event = field(default_factory=asyncio.Event)  # the store failed: stop, and let the next one look
    _queue: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while somebody waits for room on the disk
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def in_trouble(self) -> bool:
        """Whether something keeps everybody from being started: a fault of the machine, or a full disk."""
        return bool(self.trouble.why) or self.store.full

    def now_us(self) -> int:
        """The cluster's clock."""
        return self.clock.now_us()

    def stir(self) -> None:
        """Plan again soon."""
        self.dirty = True
        self.wake.set()

    # ------------------------------------------------------------------ writing down

    async def commit(self, *changes: Change, facts: Sequence[Fact] = ()) -> None:
        """Write changes and what happened in one transaction; durable when this returns."""
        if not facts:
            await self._write(*changes)
            return
        now_us, wall = self.now_us(), self.clock.wall_s()
        records = [EventRecord(job, event, now_us, wall, msgspec.json.encode(data)) for job, event, data in facts]
        results = await self._write(*changes, AddEvents(records))
        seqs = results[-1]
        assert isinstance(seqs, list)
        for seq, (job, event, data) in zip(seqs, facts, strict=True):
            self._publish(Happening(seq, self.iso(wall), job, event, data))

    async def _write(self, *changes: Change) -> list[object]:
        """A full disk is waited for: what happened to processes has happened, and must be written down."""
        if not self._queue.locked():
            try:
                return await self._write_once(*changes)
            except StoreFull:
                log.warning("the disk is full: what happened cannot be written down yet; make room")
        async with self._queue:  # one after the other, or what happened first would be written over what happened last
            while True:
                try:
                    return await self._write_once(*changes)
                except StoreFull:
                    await self.clock.sleep(1.0)

    async def _write_once(self, *changes: Change) -> list[object]:
        try:
            return await self.store.write(*changes)
        except StoreBroken as broken:
            self.stop_broken(broken)
            raise

    def stop_broken(self, why: StoreBroken) -> None:
        """After a failed write nobody knows what is on the disk: say so once, and let the next daemon look."""
        if not self.broken.is_set():
            log.critical("the store can be trusted no more, and the daemon stops; running jobs go on: %s", why)
        self.broken.set()
        self.wake.set()

    def _publish(self, happening: Happening) -> None:
        for listener in list(self.listeners):
            listener(happening)

    def put_run(self, live: Live, **intent: Any) -> PutRun:
        """The row of an attempt as it stands now."""
        members = [
            {
                "key": m.key,
                "role": m.role,
                "rank": m.rank,
                # By name: numbers shift when a device is missing, or cut anew, at the next start.
                "devices": [(self.devices[device].uuid, milli) for device, milli in m.devices],
                "pid": m.pid,
                "start": m.start,
                "leaving": m.leaving,
                "joined": m.joined,
            }
            for m in live.members.values()
            if not (m.exited and m.leaving)
        ]
        kept = {key: value for key, value in intent.items() if value is not None}
        if live.purpose is not None:
            kept |= {"purpose": live.purpose, "by": live.by, "failure": live.failure}
        return PutRun(
            RunRecord(
                run=live.run,
                job=live.job,
                attempt=live.attempt,
                generation=live.generation,
                state=ROW_STATES[written_as(live.phase)],
                boot_id=self.boot_id,
                devices=msgspec.json.encode(members),
                members=None if live.started_us is None else msgspec.json.encode({"started_us": live.started_us}),
                intent=msgspec.json.encode(kept) if kept else None,
            )
        )

    # ------------------------------------------------------------------ devices

    async def hand_over(self, live: Live, members: Sequence[Member]) -> None:
        """Nothing of these members is left, as far as is known: look at their devices, then let others have them."""
        devices = {device for member in members for device, _ in member.devices}
        fresh = [device for device in devices if device not in self.occupancy.closed]
        self.occupancy.closed.update(dict.fromkeys(fresh, CHECKED))
        self.occupancy.give(live, members)
        await self.look_at_devices()
        for device in fresh:
            if self.occupancy.closed.get(device) == CHECKED:
                del self.occupancy.closed[device]

    # ------------------------------------------------------------------ tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside everything else; what goes wrong in it is written to the log and nowhere swallowed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, StoreBroken):
            self.stop_broken(failure)
        elif failure is not None:
            log.error("a task of the core failed", exc_info=failure)

    # ------------------------------------------------------------------ people's time

    def iso(self, wall: float | None) -> str:
        """A wall-clock time with the machine's offset."""
        if wall is None:
            return ""
        return stamp(wall)

    def wall_at(self, at_us: int) -> float:
        """The wall clock at an instant of the cluster's."""
        return self.clock.wall_s() + (at_us - self.now_us()) / 1e6

    def tell_end(self, job: Job) -> None:
        """Wake whoever waits for this end."""
        event = self.ends.pop(job.id, None)
        if event is not None:
            event.set()
