"""From seats to running members: the two-phase start.

Seats are given by the plan; the attempt is written down; the shim brings every member to the gate;
that is written down too; then one word lets all of them through. At every point between, a daemon
that dies leaves something that the next one knows how to go on from (docs/one-machine.md).
"""

from __future__ import annotations

import contextlib
import pwd
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from phalanx.control.gates import GATE_ASIDE
from phalanx.frontends.host.core.attempt_phases import AttemptEvent, AttemptPhase, Duty
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.intake import read_run
from phalanx.frontends.host.core.jobs import CANCEL, Job, Live, Member
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.member_environment import SharedEnvironment, environment
from phalanx.frontends.host.core.planner import Begin
from phalanx.frontends.host.core.seatmap import split_seats
from phalanx.frontends.host.crashpoints import crashpoint
from phalanx.frontends.host.launching.shortages import explain_shortage
from phalanx.frontends.host.messages import Run
from phalanx.frontends.host.ports import CannotStart, MemberOrder, NotStartable, Order, Ready, UserUnknown
from phalanx.frontends.host.store import Change, CloseEstimate, DropRun, StoreFull, UpdateJob

#: Attempts that could not be prepared through a job's own fault, in a row, before it is given up.
UNPREPARED_MOST = 4
#: A full disk is asked again so often while somebody waits to begin.
ROOM_EVERY_US: Final = 2_000_000


async def _nobody(job: Job, live: Live) -> None:
    """Is to be told."""


class Starting:
    """Brings planned attempts to life."""

    def __init__(self, means: Means) -> None:
        """Nobody waits."""
        self.known, self.pen, self.errands, self.processes = means.known, means.pen, means.errands, means.processes
        self.waiting: dict[int, None] = {}  # jobs whose next attempt waits for seats or for the last one to go
        self.on_gone: Callable[[Job, Live], None] = lambda job, live: None  # an attempt that never began is over
        self.on_started: list[Callable[[Job, Live], None]] = []
        self.on_over: Callable[[Job, Live], Awaitable[None]] = _nobody  # it was over before we knew it had begun
        self.on_regret: Callable[[Job, Live], Awaitable[None]] = _nobody  # it began, and is to go again
        self._ports: dict[str, int] = {}
        self._unprepared: dict[int, int] = {}
        self._trying: dict[str, None] = {}  # runs that are on their way to the gate
        self._asks_for_room = False

    def plan(self, job: Job, begin: Begin) -> None:
        """It has its seats; it begins as soon as they are really free."""
        places = split_seats(job.gang, begin.seats)
        members = {rank: Member(rank, role, devices, rank=rank) for rank, (role, devices) in enumerate(places)}
        job.next = Live(job.id, job.attempt + 1, members, since_us=self.known.now_us())
        if job.live is None:
            job.state = "pending" if self.known.in_trouble else "starting"
        self.waiting[job.id] = None
        self.try_all()

    def reseat(self) -> None:
        """Whoever waits until others have left its seats is better off on free ones, if there are as many by now."""
        for number in list(self.waiting):
            job = self.known.register.by_id[number]
            if job.next is None or job.live is not None or job.ended:
                continue
            begin = self.known.planner.seat_elsewhere(self.known.now_us(), job.number)
            if begin is not None:
                self.plan(job, begin)

    def drop(self, job: Job) -> None:
        """The plan took its seats back before it began."""
        job.next = None
        self.waiting.pop(job.id, None)

    def try_all(self) -> None:
        """Begin everybody whose seats are free, in the order in which they were given."""
        if self.known.store.full:  # what cannot be written down must not begin
            self._put_back(self.waiting)
            if not self._asks_for_room:
                self._asks_for_room = True
                self.errands.agenda.at(
                    self.known.now_us() + ROOM_EVERY_US, lambda: self.errands.spawn(self._ask_for_room())
                )
            return
        if self.known.trouble.why and (self._trying or self.known.now_us() < self.known.trouble.until_us):
            return
        for number in list(self.waiting):
            job = self.known.register.by_id[number]
            live = job.next
            if live is None or job.ended:
                self.drop(job)
            elif job.live is None and not self.known.occupancy.blockers(live.members.values()):
                del self.waiting[number]
                self._take(job, live)
                if self.known.trouble.why:  # one is enough to see whether the machine is well again
                    return

    async def _ask_for_room(self) -> None:
        self._asks_for_room = False
        # Of nothing: the writer takes its reserve back first, if the disk has it. Nobody else need write for that.
        with contextlib.suppress(StoreFull):
            await self.known.store.write()
        self.try_all()

    def _take(self, job: Job, live: Live) -> None:
        job.next, job.live = None, live
        live.attempt = job.attempt = job.attempt + 1
        live.advance(AttemptEvent.BEGIN)
        job.state = "starting"
        self.known.occupancy.take(live, live.members.values())
        self._trying[live.run] = None
        self.errands.spawn(self._try(job, live))

    async def _try(self, job: Job, live: Live) -> None:
        try:
            await self._start(job, live)
        finally:
            self._trying.pop(live.run, None)
            if self.waiting:
                self.try_all()

    async def _start(self, job: Job, live: Live) -> None:
        crashpoint("start.before_commit")
        placed = {"attempt": live.attempt, "members": len(live.members), "devices": self._device_list(live)}
        await self.pen.commit(
            UpdateJob(job.id, state="starting", attempt=live.attempt),
            self.pen.put_run(live),
            facts=[(job.id, "bind", placed)],
        )
        crashpoint("start.after_commit")
        if live.phase is AttemptPhase.UNWANTED:  # there is nobody at the gate to be sent home
            live.advance(AttemptEvent.CANNOT)
            await self._never(job, live)
            return
        try:
            order = self._order(job, live, read_run(self.known.store.load_run(job.id)))
            ready = await self.processes.launcher.prepare(order)
        except CannotStart as bad:
            await self._cannot(job, live, bad)
            return
        except OSError as bad:  # no more processes, descriptors or inodes
            await self.processes.launcher.abort(live.run)
            await self._cannot(job, live, CannotStart(explain_shortage(bad)))
            return
        note_ready(live, ready)
        await self.pen.commit(self.pen.put_run(live))
        crashpoint("start.before_go")
        if Duty.ABORT in live.advance(AttemptEvent.AT_GATE):
            await self.processes.launcher.abort(live.run)
            await self._never(job, live)
            return
        try:
            await self.processes.launcher.go(live.run, live.generation)
        except CannotStart as bad:  # somebody died at the gate: nobody ran a line
            await self._cannot(job, live, bad)
            return
        crashpoint("start.after_go")
        await self.went(job, live)

    async def went(self, job: Job, live: Live) -> None:
        """Its members are through the gate."""
        now_us, wall = self.known.now_us(), self.known.clock.wall_s()
        duties, live.started_us = live.advance(AttemptEvent.WENT), now_us
        self._unprepared.pop(job.id, None)
        self._trying.pop(live.run, None)
        job.reason = None
        if self.known.trouble.why:
            log.info("the machine is well again: job %d could be started", job.id)
        for number in self.known.trouble.note_start(job.id):
            self._come_back(number)
        self.try_all()
        if live.purpose is None:
            job.state = "running"
            self.known.planner.started(now_us, job.number)
        changes: list[Change] = [self.pen.put_run(live)]
        if job.start_us is None:
            job.start_us, job.start_wall = now_us, wall
            self.known.meters.count_admission((now_us - job.submit_us) / 1e6)
            changes.append(CloseEstimate(job.id, now_us))
        for tell in self.on_started:
            tell(job, live)
        await self.pen.commit(
            UpdateJob(job.id, state=job.state, start_us=job.start_us, start_wall=job.start_wall),
            *changes,
            facts=[(job.id, "start", {"attempt": live.attempt, "members": len(live.members)})],
        )
        if Duty.CLOSE in duties:
            await self.on_over(job, live)
        elif Duty.TELL in duties:
            await self.on_regret(job, live)

    async def _never(self, job: Job, live: Live) -> None:
        """An attempt that nobody let through the gate is over, and costs nothing."""
        self.known.occupancy.give(live, live.members.values())
        job.live = None
        over = (live.purpose == CANCEL or live.failure is not None) and not job.ended
        if not over:  # else whoever closes the job drops the row in the same breath
            if not job.ended:
                job.state = "starting" if job.next is not None else "pending"
            await self.pen.commit(DropRun(live.run), UpdateJob(job.id, state=job.state))
        await self.processes.launcher.forget(live.run)
        self._trying.pop(live.run, None)
        self.on_gone(job, live)
        self.try_all()
        self.errands.stir()

    async def _cannot(self, job: Job, live: Live, bad: CannotStart) -> None:
        """It waits again, however often: a fault of the machine is nobody's failure. Its own fault is, in the end."""
        why = str(bad)
        log.warning("job %d cannot be started: %s", job.id, why)
        job.reason = ("CannotStart", why)
        live.advance(AttemptEvent.CANNOT)
        if live.purpose is None:
            if isinstance(bad, NotStartable):
                self._count_own(job, live, why)
            else:
                self._step_aside(job, why, everybody=not isinstance(bad, UserUnknown))
        await self._never(job, live)

    def _count_own(self, job: Job, live: Live, why: str) -> None:
        failures = self._unprepared[job.id] = self._unprepared.get(job.id, 0) + 1
        if failures >= UNPREPARED_MOST:
            job.failure = {"why": why}
            live.failure = {"rank": None, "why": f"cannot be started: {why}"}
        else:
            self.known.planner.requeue(self.known.now_us(), job.number, failed=True)

    def _step_aside(self, job: Job, why: str, *, everybody: bool) -> None:
        """Nobody is started for a moment; this one waits again, behind others if it was not the first time."""
        now_us = self.known.now_us()
        aside_us = self.known.trouble.note_fault(job.id, why if everybody else "", now_us)
        self.errands.agenda.at(self.known.trouble.until_us, self.try_all)
        self.known.planner.requeue(now_us, job.number)
        if aside_us:
            job.gates.add(GATE_ASIDE)
            self.known.planner.hold(now_us, job.number)
            self.errands.agenda.at(now_us + aside_us, lambda: self._come_back(job.id))
        if everybody:
            self._put_back(self.waiting)

    def _put_back(self, numbers: Iterable[int]) -> None:
        """They have their seats, and do not begin for now."""
        for number in numbers:
            other = self.known.register.by_id[number]
            if other.live is None and not other.ended:
                other.state = "pending"

    def _come_back(self, number: int) -> None:
        """It may have its turn again."""
        job = self.known.register.by_id.get(number)
        if job is None or job.ended or GATE_ASIDE not in job.gates:
            return
        job.gates.discard(GATE_ASIDE)
        if not job.gates:
            self.known.planner.release(self.known.now_us(), job.number)
            self.errands.stir()

    # ------------------------------------------------------------------ orders

    def _order(self, job: Job, live: Live, run: Run) -> Order:
        uid, gid, user = self._identity(job)
        members = self.orders(job, live, run, list(live.members.values()))
        cap = run.log_cap_bytes or self.known.settings.log_cap_bytes
        return Order(
            job=job.id,
            attempt=live.attempt,
            generation=live.generation,
            uid=uid,
            gid=gid,
            user=user,
            members=members,
            log_cap_bytes=max(1, min(cap, self.known.settings.log_cap_bytes)),
            umask=run.umask & 0o777,
            pids_max=self.known.settings.pids_max,
        )

    def orders(self, job: Job, live: Live, run: Run, members: list[Member]) -> list[MemberOrder]:
        """What the shim is told of these members."""
        uuids = [device.uuid for device in self.known.devices]
        setting = SharedEnvironment(uuids, self._port(live), str(self.known.runs / live.run))
        cwd = run.cwd or "/"
        return [
            MemberOrder(
                member.key,
                run.commands.get(member.role, run.command),
                environment(run.env, job, live, member, setting),
                cwd,
            )
            for member in members
        ]

    def _identity(self, job: Job) -> tuple[int, int, str]:
        """Whom the members run as. A uid that now belongs to somebody else starts nothing."""
        if not self.known.system:
            return job.uid, job.gid, ""
        try:
            entry = pwd.getpwuid(job.uid)
        except KeyError:
            raise UserUnknown(f"user {job.user} (uid {job.uid}) does not exist any more") from None
        if entry.pw_name != job.user:
            raise NotStartable(f"uid {job.uid} was {job.user} at submit and is {entry.pw_name} now")
        return entry.pw_uid, entry.pw_gid, entry.pw_name

    def _port(self, live: Live) -> int:
        """A port of loopback for the members' rendezvous, for the life of the attempt."""
        port = self._ports.get(live.run)
        if port is None:
            taken = set(self._ports.values())
            for _ in range(64):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = int(probe.getsockname()[1])
                if port not in taken:
                    break
            assert port is not None
            self._ports[live.run] = port
        return port

    def let_go(self, live: Live) -> None:
        """The attempt is over."""
        self._ports.pop(live.run, None)

    def _device_list(self, live: Live) -> list[str]:
        used = sorted({device for member in live.members.values() for device, _ in member.devices})
        return [self.known.devices[device].uuid for device in used]


def note_ready(live: Live, ready: Ready) -> None:
    """Remember who stands at the gate."""
    live.contained = ready.contained
    for key, (pid, start) in ready.pids.items():
        member = live.members.get(key)
        if member is not None:
            member.pid, member.start = pid, start
