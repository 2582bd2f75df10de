"""What must be true of a machine and its daemon at every instant, checked on the machine and the disk themselves.

The names are those of the reliability notes: I1 no device is given twice, I3 nobody is started twice, I4 one
attempt of a job at a time, I5 no gang goes on broken, I6 nothing runs that was not written down, I7 what was
acknowledged is kept, I8 states move along their edges, I9 ends are true and told once, I10 a device that counts
as free is free, I11 what was cancelled does not start, I12 whoever was told to go has not completed. Where the
notes say the scheduler's cache, that is the only thing asked of the core; everything else is read off the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.messages import ENDED
from phalanx.frontends.host.store import AddEvents, Change, JobRecord, PutRun, UpdateJob
from phalanx.model.resources import MILLI
from phalanx.testing.hosts.host_world import HostWorld
from phalanx.testing.hosts.made_up_machine import MadeUpProcess

#: From where to where a job's state may move on disk.
EDGES: Final = {
    "pending": {"starting", "cancelled", "failed", "infeasible"},
    "starting": {"running", "pending", "stopping", "cancelled", "failed", "completed"},
    "running": {"stopping", "pending", "cancelled", "failed", "completed"},
    # One that was on its way out for somebody else when the daemon died is told so anew by the next.
    "stopping": {"running", "pending", "cancelled", "failed", "completed"},
}
LAST_WORDS: Final = ("complete", "fail", "cancel")
#: Members that are to go have their grace, and then some.
SLACK_US: Final = 45_000_000


class BrokenRule(AssertionError):  # noqa: N818 - what happened
    """Something that must be true is not."""

    def __init__(self, rule: str, story: str, at_us: int) -> None:
        """`rule` is its name in the notes."""
        super().__init__(f"{rule} at {at_us / 1e6:.3f} s: {story}")
        self.rule = rule


@dataclass(slots=True)
class Acknowledged:
    """What is known of a job from outside: what was asked and what was acknowledged."""

    uid: int
    name: str
    array: tuple[int, str, int] | None = None  # of whom, word, at most
    single: tuple[int, str] | None = None  # of whom, name
    after: tuple[int, ...] = ()
    after_any: bool = False
    begin_us: int = 0
    elastic_least: int | None = None
    cancelled: bool = False  # that was acknowledged
    in_time: bool = False  # and it had not ended by then
    held: bool = False
    wants: set[str] = field(default_factory=set)


class Checks:
    """Watches one world."""

    def __init__(self, world: HostWorld) -> None:
        """Put ourselves where things happen."""
        self.world = world
        self.trace: list[str] = []
        self.broken: BrokenRule | None = None
        self.promises: dict[int, Acknowledged] = {}
        self.keys: dict[tuple[int, str], list[int]] = {}
        self.strangers_us: dict[int, int] = {}  # since when one is on a device
        self.gone_us: dict[int, int] = {}  # since when a device is gone
        self._states: dict[int, tuple[str, int]] = {}
        self._generations: dict[str, int] = {}
        self._ended: dict[int, str] = {}
        self._execs: set[tuple[int, int, int]] = set()
        self._up_us = 0
        world.machine.on_exec.append(self._on_exec)
        world.machine.on_end.append(self._on_end)
        world.store.watchers.append(self._on_commit)
        world.loop.on_still = self._on_still
        world.on_boot.append(lambda core: self._note_boot())

    def note(self, line: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.world.now_us} {line}")

    def fail(self, rule: str, story: str) -> None:
        """The first thing that is not as it must be."""
        if self.broken is None:
            self.broken = BrokenRule(rule, story, self.world.now_us)
            self.note(str(self.broken))

    def _note_boot(self) -> None:
        self._up_us = self.world.now_us
        self.note("boot")

    # ------------------------------------------------------------------ starts

    def _on_exec(self, process: MadeUpProcess) -> None:
        self.note(f"exec {process.run} rank {process.key} on {process.devices}")
        who = (process.job, process.attempt, process.key)
        if who in self._execs:
            self.fail("I3", f"rank {process.key} of run {process.run} was started twice")
        self._execs.add(who)
        others = {p.attempt for p in self.world.processes() if p.job == process.job and p.went}
        if others != {process.attempt}:
            self.fail("I4", f"job {process.job} has attempts {sorted(others)} at a time")
        self._check_devices(process)
        self._check_written(process)
        self._check_allowed(process)

    def _check_devices(self, process: MadeUpProcess) -> None:
        uses = self.world.machine.uses()
        for device in process.devices:
            users = uses.get(device, [])
            load = sum({(p.run, p.key): p.milli for p in users}.values())
            if load > MILLI:
                self.fail("I1", f"device {device} is used by {sorted({p.run for p in users})}")
            for what, since_us in (("a stranger on it", self.strangers_us), ("gone", self.gone_us)):
                at_us = since_us.get(device)
                if at_us is not None and self.world.now_us - at_us > SLACK_US and self._up_us < at_us:
                    self.fail("I1", f"run {process.run} starts on device {device}, which has been {what} for long")

    def _check_written(self, process: MadeUpProcess) -> None:
        row = self.world.store.run(process.run)
        job = self.world.store.job(process.job)
        members = {} if row is None else {m["key"]: m for m in msgspec.json.decode(row.devices)}
        member = members.get(process.key)
        if job is None or member is None or job.attempt != process.attempt:
            self.fail("I6", f"rank {process.key} of run {process.run} starts and is not on disk")
        elif tuple(int(name.rpartition("-")[2]) for name, _ in member["devices"]) != process.devices:
            self.fail("I6", f"rank {process.key} of run {process.run} starts elsewhere than the disk says")

    def _check_allowed(self, process: MadeUpProcess) -> None:
        promise = self.promises.get(process.job)
        if promise is None:
            return
        if promise.cancelled:
            self.fail("I11", f"job {process.job} was cancelled and starts")
        if promise.held and process.generation == 1:
            self.fail("I11", f"job {process.job} is on hold and starts")
        if self.world.now_us < promise.begin_us:
            self.fail("begin", f"job {process.job} starts before its time")
        self._check_mates(promise)
        for number in promise.after:
            record = self.world.store.job(number)
            if record is None or record.state not in (ENDED if promise.after_any else ("completed",)):
                self.fail("after", f"job {process.job} starts, and {number} is {record and record.state}")

    def _check_mates(self, promise: Acknowledged) -> None:
        """Not too many of an array at a time, and nobody beside somebody who wants to be alone."""
        # One that does not die of SIGKILL has ended its job all the same.
        live = {p.job for p in self.world.processes() if p.went and not p.doomed}
        beside = [self.promises[job] for job in live & set(self.promises)]
        if promise.array is not None:
            mates = sum(other.array == promise.array for other in beside)
            if mates > promise.array[2]:
                self.fail("array", f"{mates} of {promise.array[1]} run at a time, at most {promise.array[2]} may")
        if promise.single is not None and sum(other.single == promise.single for other in beside) > 1:
            self.fail("singleton", f"jobs named {promise.name} run beside each other")

    # ------------------------------------------------------------------ ends of processes

    def _on_end(self, process: MadeUpProcess) -> None:
        self.note(f"end {process.run} rank {process.key} code {process.code} signal {process.signal}")
        run = self.world.machine.runs.get(process.run)
        bad = process.signal is not None or process.code not in (0, None)
        if bad and run is not None and not process.stray:
            self._look_later(process)

    def _look_later(self, lost: MadeUpProcess, *, sure: bool = False) -> None:
        up_us = self._up_us
        self.world.at(self.world.now_us + SLACK_US, lambda: self._look_for_halves(lost, up_us, sure=sure))

    def _look_for_halves(self, lost: MadeUpProcess, up_us: int, *, sure: bool) -> None:
        """A gang that lost a member goes on with as many as it may, or not at all."""
        if self.world.core is None or self._up_us != up_us or self.world.now_us - self._up_us < SLACK_US:
            self._look_later(lost)
            return
        run = self.world.machine.runs.get(lost.run)
        promise = self.promises.get(lost.job)
        if run is None or promise is None:
            return
        left = [p for p in run.living() if p.went and p.unkillable_until_us <= self.world.now_us]
        if promise.elastic_least is not None:
            whole = [p for p in run.members.values() if p.alive or p.code == 0]
            left = left if len(whole) < promise.elastic_least else []
            if left and not sure:  # it went on with enough, and lost another just now
                self._look_later(lost, sure=True)
                return
        if left:
            keys = sorted({p.key for p in left})
            self.fail("I5", f"run {lost.run} lost rank {lost.key} long ago, and ranks {keys} go on")

    # ------------------------------------------------------------------ what is written

    def _on_commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, UpdateJob):
                self._check_edge(change)
            elif isinstance(change, PutRun):
                known = self._generations.get(change.record.run, 0)
                if change.record.generation < known:
                    self.fail("I8", f"run {change.record.run} goes back to generation {change.record.generation}")
                self._generations[change.record.run] = change.record.generation
            elif isinstance(change, AddEvents):
                for event in change.events:
                    self._check_last_word(event.job, event.event)

    def _check_edge(self, change: UpdateJob) -> None:
        state, attempt = self._states.get(change.id, ("pending", 0))
        fresh = str(change.columns.get("state", state))
        tried = int(change.columns.get("attempt", attempt))
        self._states[change.id] = (fresh, max(attempt, tried))
        if fresh != state:
            self.note(f"job {change.id} {state} -> {fresh}")
            if fresh not in EDGES.get(state, ()):
                self.fail("I8", f"job {change.id} goes from {state} to {fresh}")
        if tried < attempt:
            self.fail("I8", f"job {change.id} goes back to attempt {tried}")

    def _check_last_word(self, job: int | None, event: str) -> None:
        if job is None or event not in LAST_WORDS:
            return
        if job in self._ended:
            self.fail("I9", f"job {job} ended twice: {self._ended[job]}, then {event}")
        self._ended[job] = event

    # ------------------------------------------------------------------ what is acknowledged

    def on_accepted(self, uid: int, key: str, ids: Sequence[int], promises: Sequence[Acknowledged]) -> None:
        """A client was told that its jobs are on disk."""
        known = self.keys.setdefault((uid, key), list(ids))
        self.note(f"accepted {key} as {list(ids)}")
        if known != list(ids):
            self.fail("I7", f"key {key} stood for {known} and stands for {list(ids)} now")
        for number, promise in zip(ids, promises, strict=True):
            self.promises.setdefault(number, promise)
            record = self.world.store.job(number)
            if record is None or record.name != promise.name:
                self.fail("I7", f"job {number} was acknowledged and is not on disk")

    # ------------------------------------------------------------------ the scheduler's cache

    def _on_still(self) -> None:
        core = self.world.core
        if core is None or self.broken is not None:
            return
        occupancy, register = core.known.occupancy, core.known.register
        for process in self.world.machine.processes():
            if not process.went:
                continue
            free = [
                device
                for device in process.devices
                if device not in occupancy.closed and (process.run, process.key) not in occupancy.users(device)
            ]
            if _is_current(register.by_id.get(process.job), process) or not self._is_settling(process):
                for device in free:
                    self.fail("I10", f"device {device} counts as free and run {process.run} uses it")

    def _is_settling(self, process: MadeUpProcess) -> bool:
        """Of what the last daemon left, some is still being killed for a short while after a start."""
        return self.world.now_us - self._up_us <= SLACK_US or process.unkillable_until_us > self.world.now_us

    # ------------------------------------------------------------------ at the end

    def close(self) -> None:
        """Faults are over and time has passed: everything has ended, and nothing is left of it."""
        self._check_kept()
        world, core = self.world, self.world.core
        if core is None:
            self.fail("L1", "the daemon does not come back")
            return
        left = sorted({process.run for process in world.processes()})
        if left or world.machine.runs:
            self.fail("L3", f"processes {left} and directories {sorted(world.machine.runs)} are left")
        if world.store.runs():
            self.fail("L3", f"rows {[row.run for row in world.store.runs()]} are left")
        if core.known.occupancy.runs() or core.starting.waiting:
            self.fail("L3", f"{core.known.occupancy.runs()} hold devices, {list(core.starting.waiting)} wait for them")
        state = core.known.planner.state
        if not (state.nodes.free == state.fleet.capacity).all():
            self.fail("L3", f"the planner has {state.nodes.free.tolist()} of {state.fleet.capacity.tolist()} free")

    def _check_kept(self) -> None:
        for number, promise in sorted(self.promises.items()):
            record = self.world.store.job(number)
            if record is None:
                self.fail("I7", f"job {number} ({promise.name}) is gone from the disk")
            elif record.state not in ENDED and not self._is_hopeless(number):
                self.fail("L1", f"job {number} ({promise.name}) is {record.state} in the end")
            else:
                self._check_end(record)
            if record is not None and promise.in_time and record.state != "cancelled":
                self.fail("I11", f"job {number} was cancelled and is {record.state} in the end")

    def _is_hopeless(self, number: int) -> bool:
        core = self.world.core
        job = None if core is None else core.known.register.by_id.get(number)
        return job is not None and bool(job.infeasible)

    def _check_end(self, record: JobRecord) -> None:
        """I9: what is told of an end is what happened."""
        runs = {process.run for _, process in self.world.machine.execs if process.job == record.id}
        last = [p for _, p in self.world.machine.execs if p.run == f"{record.id}.{record.attempt}"]
        if record.state == "completed":
            stayed = [p for p in last if p.code == 0 and p.signal is None]
            if not stayed:
                self.fail("I9", f"job {record.id} counts as completed; runs {sorted(runs)}")
            if f"{record.id}.{record.attempt}" in self.world.machine.told_to_go:
                self.fail("I12", f"job {record.id} was told to go in attempt {record.attempt}, and counts as completed")
        if record.state == "failed" and record.exit_code is not None:
            codes: set[Any] = {p.code for p in last} | {128 + p.signal for p in last if p.signal} | {124, 1}
            if record.exit_code not in codes:
                saw = sorted(map(str, codes))
                self.fail("I9", f"job {record.id} shows exit code {record.exit_code}, and saw {saw}")


def _is_current(job: Job | None, process: MadeUpProcess) -> bool:
    return job is not None and job.live is not None and job.live.run == process.run
