"""The daemon's core: one loop that plans, and one method for every verb of the API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from phalanx.control.instructions import Leave
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.ending import Ending
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.housekeeping import Housekeeping
from phalanx.frontends.host.core.hub import LINGER_US, Hub, log
from phalanx.frontends.host.core.jobs import TIME, Job, Live
from phalanx.frontends.host.core.planner import Begin
from phalanx.frontends.host.core.predict import Predictions
from phalanx.frontends.host.core.progress_reading import ProgressReader
from phalanx.frontends.host.core.recovery import Recovery
from phalanx.frontends.host.core.resizing import Resizing
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.core.telling import Telling
from phalanx.frontends.host.core.verbs import Verbs
from phalanx.frontends.host.core.watching import Watching
from phalanx.frontends.host.launching.log_reading import read_log
from phalanx.frontends.host.messages import (
    STATUS_SCHEMA,
    Accepted,
    Detail,
    Happening,
    NodeRow,
    QueueRow,
    Row,
    Submission,
    Why,
)
from phalanx.frontends.host.ports import Caller, Devices, Refused, RunEvent
from phalanx.frontends.host.service import Figures, Listing, LogChunk
from phalanx.frontends.host.store import JobRecord
from phalanx.frontends.host.stranger_watch import Rules

VERBS: Final = ("cancel", "hold", "release", "retry", "resize", "preempt", "edit")
#: The loop looks at the clock at least so often: a machine that slept has timers that are due.
NAP_S: Final = 5.0
#: The longest rest between two passes.
REST_MOST_S: Final = 0.25
#: Whoever asks waits so long for a pass that sees what they did.
SETTLE_S: Final = 0.5
#: A stream of events that nobody reads is cut when so many wait.
EVENTS_BEHIND_MOST: Final = 10_000
#: What everybody may know of what happened to anybody's job.
_PUBLIC: Final = ("members", "attempt", "cause")


class Core:
    """Everything behind the API."""

    def __init__(self, hub: Hub, devices: Devices, about: Mapping[str, Any]) -> None:
        """`about`: what `status` says of the process: pid, socket, version, containment."""
        self.hub, self.about = hub, about
        self.predictions = Predictions()
        self.admission = Admission(hub, self.predictions)
        self.starting = Starting(hub)
        self.books = Books(hub)
        self.resizing = Resizing(hub, self.starting, self.books)
        self.ending = Ending(hub, self.starting, self.resizing, self.books)
        rules = Rules(hub.settings.display_processes, hub.settings.small_use_bytes)
        self.watching = Watching(hub, devices, self.starting, rules)
        self.forecaster = Forecaster(hub, self.predictions)
        self.forecaster.on_estimates = lambda changes: hub.spawn(hub.commit(*changes))
        self.teller = Telling(hub, self.forecaster)
        self.verbs = Verbs(hub, self.admission, self.ending)
        self.house = Housekeeping(hub)
        self.stopping = asyncio.Event()
        self._planned = asyncio.Condition()
        self._started_us = hub.now_us()
        self._wake_at_us: int | None = None
        self._passes = 0
        self._rest_until_s = 0.0
        self._fake = devices.fake
        self.starting.on_started.append(self._note_start)
        self.ending.on_ended = self._note_end
        self._recovered = asyncio.Event()
        hub.launcher.on_event(self._on_event)
        hub.agenda.on_sooner = hub.wake.set  # the nap was measured by what was due before

    # ------------------------------------------------------------------ life

    async def recover(self) -> None:
        """Everything that is on disk, before anybody asks."""
        hub = self.hub
        self.admission.newest = hub.store.newest()
        self.predictions.load(hub.store.ended(limit=2000))
        await Recovery(hub, self.admission, self.starting, self.ending).run()
        self._recovered.set()
        hub.look_at_devices = self.watching.look  # only now is it known which processes are our own
        await self.watching.look()
        self.house.begin()
        hub.stir()

    async def _on_event(self, event: RunEvent) -> None:
        """What shims tell waits until it is known whose shims they are."""
        await self._recovered.wait()
        await self.ending.on_event(event)

    async def run(self) -> None:
        """Plan whenever something happened, until told to stop."""
        loop = asyncio.get_running_loop()
        beside = [loop.create_task(self.watching.run()), loop.create_task(ProgressReader(self.hub, self.books).run())]
        try:
            while not self.stopping.is_set() and not self.hub.broken.is_set():
                await self._turn()
        finally:
            for task in beside:
                task.cancel()
            await self.hub.launcher.detach()

    async def _turn(self) -> None:
        hub = self.hub
        due = [at for at in (hub.agenda.next_us(), self._wake_at_us) if at is not None]
        nap_s = NAP_S if not due else min(NAP_S, max(0.0, (min(due) - hub.now_us()) / 1e6))
        if not hub.wake.is_set():
            try:
                async with asyncio.timeout(nap_s):
                    await hub.wake.wait()
            except TimeoutError:
                pass
        hub.wake.clear()
        hub.agenda.run_due(hub.now_us())
        woken = self._wake_at_us is not None and self._wake_at_us <= hub.now_us()
        self.admission.drain()
        if hub.dirty or woken:
            rest_s = self._rest_until_s - asyncio.get_running_loop().time()
            if rest_s > 0:
                await hub.clock.sleep(rest_s)
                self.admission.drain()
            await self._plan()

    async def _plan(self) -> None:
        """One planning pass, and everything that follows from it."""
        hub, loop = self.hub, asyncio.get_running_loop()
        hub.dirty = False
        began = loop.time()
        acts = hub.planner.plan(hub.now_us())
        self._wake_at_us = acts.wake_at_us
        took_s = loop.time() - began
        hub.meters.count_cycle(took_s, "decided" if acts.done else "settled")
        for act in acts.done:
            job = hub.register.by_number.get(act.gang)
            if job is None:
                log.error("the plan speaks of gang %d, whom nobody knows", act.gang)
            elif isinstance(act, Begin):
                if act.again and job.live is not None:
                    self.ending.stop(job, job.live, "move", by="the plan")
                self.starting.plan(job, act)
            elif isinstance(act, Leave):
                self.ending.evict(job, act)
            else:
                self.resizing.plan(job, act)
        doomed, self.admission.doomed = self.admission.doomed, []
        await self.ending.cancel_others([*acts.cancelled, *doomed], "what it waited for did not succeed")
        for number in acts.infeasible:
            job = hub.register.by_number.get(number)
            if job is not None and not job.infeasible:
                job.infeasible = "can never run here"
        self._passes += 1
        async with self._planned:
            self._planned.notify_all()
        # Planning may take a fifth of the time, and no more while others want to speak.
        self._rest_until_s = loop.time() + min(REST_MOST_S, 4 * took_s)

    async def settle(self) -> None:
        """Until a pass has seen everything that happened before now."""
        self.admission.drain()
        if not self.hub.dirty:
            return
        target = self._passes + 1
        try:
            async with asyncio.timeout(SETTLE_S), self._planned:
                await self._planned.wait_for(lambda: self._passes >= target)
        except TimeoutError:
            pass

    def _note_start(self, job: Job, live: Live) -> None:
        """Timers of a running attempt, and how good the forecast was."""
        expected = self.forecaster.last(job.id) if live.attempt == 1 else None
        if expected is not None and live.started_us is not None:
            self.hub.meters.count_eta_error((live.started_us - expected.at_us) / 1e6)
        limit_us, started_us = job.gang.kill_after_us, live.started_us
        if limit_us is None or started_us is None:
            return
        if job.warning is not None:
            warn_us = started_us + max(0, limit_us - round(job.warning[1] * 1e6))
            if live.adopted and warn_us <= self.hub.now_us():
                warn_us = started_us + limit_us + 1  # it had its warning from the last daemon
            self.hub.agenda.at(warn_us, lambda: self._warn(job, live))
        self.hub.agenda.at(started_us + limit_us, lambda: self._too_old(job, live))

    def _warn(self, job: Job, live: Live) -> None:
        """It will be killed for its age soon: who understands is asked to save, and everybody gets the signal."""
        if job.live is not live or live.phase != "running" or job.warning is None:
            return
        name, before_s = job.warning
        if self.resizing.all_speak(live, "checkpoint"):
            message = {"type": "checkpoint", "id": f"k{live.attempt}", "deadline_s": before_s}
            self.hub.spawn(self.hub.launcher.tell(live.run, None, message))
        self.hub.spawn(self.hub.launcher.signal(live.run, None, name))

    def _too_old(self, job: Job, live: Live) -> None:
        if job.live is live and live.purpose is None:
            self.ending.stop(job, live, TIME, by="its time limit")

    def _note_end(self, job: Job) -> None:
        self.admission.on_ended(job)
        if job.start_us is not None and job.end_us is not None:
            stated = job.gang.walltime_us if not job.predicted else None
            stated_s = None if stated is None else stated / 1e6
            ran_s = (job.end_us - job.start_us) / 1e6
            self.predictions.note(job.user, job.name, ran_s, stated_s, completed=job.state == "completed")
        self.hub.agenda.at(self.hub.now_us() + LINGER_US, lambda: self.hub.register.forget(job))

    # ------------------------------------------------------------------ who may what

    def _find(self, caller: Caller, ref: str) -> Job:
        self.admission.drain()
        job = self.hub.register.find(ref, caller)
        if job is None:
            record = self._stored(ref)
            if record is not None:
                return self._from_disk(record)
            raise Refused(
                "not_found",
                f"there is no job {ref!r}",
                "look at them: phalanx ps -a, or with those that ended: --finished",
            )
        return job

    def _stored(self, ref: str) -> JobRecord | None:
        return self.hub.store.job(int(ref)) if ref.isdecimal() and len(ref) < 19 else None

    def _from_disk(self, record: JobRecord) -> Job:
        """A job that ended long ago, as it was."""
        job = self.admission.make(record, self.hub.intake.read_gang(record.gang))
        job.end_us, job.end_wall, job.exit_code = record.end_us, record.end_wall, record.exit_code
        job.failure = msgspec.json.decode(record.failure) if record.failure else None
        told = msgspec.json.decode(record.reason) if record.reason else None
        job.reason = None if told is None else (told[0], told[1])
        job.progress = msgspec.json.decode(record.progress) if record.progress else None
        job.ledger = msgspec.json.decode(record.ledger) if record.ledger else {}
        return job

    def _owned(self, caller: Caller, ref: str) -> Job:
        """A job that the caller may act on, or read all of."""
        job = self._find(caller, ref)
        if not caller.may_act_on(job.uid):
            raise Refused(
                "forbidden", f"job {job.id} belongs to {job.user}", "ask them, or an administrator of this machine"
            )
        return job

    # ------------------------------------------------------------------ the service

    async def status(self, caller: Caller) -> dict[str, Any]:
        """The daemon itself."""
        hub = self.hub
        self.admission.drain()
        counts: dict[str, int] = {}
        for job in hub.register:
            counts[job.state] = counts.get(job.state, 0) + 1
        busy = sum(bool(hub.occupancy.users(device.index)) for device in hub.devices)
        closed = len(hub.occupancy.closed)
        return {
            "schema": STATUS_SCHEMA,
            **self.about,
            "uptime_s": (hub.now_us() - self._started_us) / 1e6,
            "mode": "system" if hub.system else "user",
            "policy": hub.planner.policy.name,
            "store": {"ok": hub.store.problem is None, "problem": hub.store.problem},
            "jobs": counts,
            "gpus": {
                "total": len(hub.devices),
                "busy": busy,
                "closed": closed,
                "free": max(0, len(hub.devices) - busy - closed),
            },
            "fake": self._fake,
        }

    async def submit(
        self, caller: Caller, jobs: Sequence[Submission], key: str | None, *, dry_run: bool
    ) -> list[Accepted]:
        """Take jobs in, all or none; on disk when it returns."""
        self._check_store()
        if dry_run:
            return await self._dry_run(caller, jobs)
        return await self.admission.submit(caller, jobs, key)

    def _check_store(self) -> None:
        """What cannot be written down is not acknowledged, not even from memory."""
        if self.hub.broken.is_set():
            raise Refused(
                "unavailable",
                "the store has failed, and the daemon is about to stop",
                "ask again in a moment; phalanx doctor",
            )

    async def _dry_run(self, caller: Caller, jobs: Sequence[Submission]) -> list[Accepted]:
        """What would be accepted, and when it would start; nothing is written."""
        hub = self.hub
        answers = []
        for submission in jobs:
            taken = hub.intake.take(submission, caller.user, hub.now_us(), hub.clock.wall_s())
            answers.append(await self.teller.try_out(caller, taken))
        return answers

    async def rows(self, caller: Caller, listing: Listing) -> list[Row]:
        """Jobs as a list."""
        await self.settle()
        wanted = [job for job in self.hub.register if _listed(job, caller, listing)]
        rows = await self.teller.rows(wanted, with_eta=True, caller=caller)
        if listing.finished:
            known = {job.id for job in wanted}
            user = listing.user or ("" if listing.everybody else caller.user)
            stored = self.hub.store.ended(user=user or None, limit=listing.limit or 10_000)
            old = [record for record in stored if record.id not in known and _stored_listed(record, listing)]
            rows = [*(self.teller.row_of_record(record, caller) for record in old), *rows]
        rows.sort(key=lambda row: row.id)
        return rows[-listing.limit :] if listing.limit else rows

    async def detail(self, caller: Caller, ref: str) -> Detail:
        """Everything about one job that the caller may see."""
        await self.settle()
        return await self.teller.detail(self._find(caller, ref), caller)

    async def why(self, caller: Caller, ref: str) -> Why:
        """Why it is where it is."""
        await self.settle()
        return await self.teller.why(self._find(caller, ref), caller)

    async def logs(
        self, caller: Caller, ref: str, *, rank: int, attempt: int | None, offset: int, limit: int, tail: int | None
    ) -> LogChunk:
        """A piece of one rank's log."""
        job = self._owned(caller, ref)
        chosen = attempt if attempt is not None else job.attempt
        live = job.live
        current = live is not None and live.attempt == chosen
        members = len(live.members) if live is not None and current else job.gang.members_max
        path = self.hub.runs / f"{job.id}.{chosen}"
        data, following, exists = await asyncio.to_thread(read_log, path, rank, offset, limit, tail)
        over = job.ended or chosen < job.attempt
        if not exists and over and attempt is None and job.attempt:
            raise Refused("not_found", f"job {job.id} has no log of rank {rank}", f"its ranks: phalanx show {job.id}")
        return LogChunk(data, following, over, members)

    async def wait(self, caller: Caller, ref: str, timeout_s: float) -> dict[str, Any]:
        """Until it has ended, or the time is over."""
        job = self._find(caller, ref)
        if not job.ended:
            event = self.hub.ends.setdefault(job.id, asyncio.Event())
            try:
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            except TimeoutError:
                pass
        return {"id": job.id, "state": job.state, "exit_code": job.exit_code, "ended": job.ended}

    async def act(self, caller: Caller, ref: str, verb: str, body: Mapping[str, Any]) -> Row | Accepted:
        """Do something to a job."""
        assert verb in VERBS, verb
        self._check_store()
        job = self._owned(caller, ref)
        if verb == "retry":
            return await self.verbs.retry(caller, job.id)
        if job.id not in self.hub.register.by_id:
            raise Refused("conflict", f"job {job.id} has ended: {job.state}", f"run it again: phalanx retry {job.id}")
        await getattr(self.verbs, verb)(caller, job, body)
        await self.settle()
        (row,) = await self.teller.rows([job], with_eta=False)
        return row

    async def queues(self, caller: Caller) -> list[QueueRow]:
        """Rights and usage of every queue."""
        return self.teller.queues()

    async def nodes(self, caller: Caller) -> list[NodeRow]:
        """The machine and its devices."""
        await self.watching.look()
        return self.teller.nodes(self.watching)

    async def share(self, caller: Caller) -> dict[str, Any]:
        """How the caller stands."""
        return self.teller.share(caller)

    async def report(self, caller: Caller, by: Sequence[str], since_s: float | None) -> dict[str, Any]:
        """Where the device time went."""
        return self.teller.report(caller, by, since_s)

    async def report_eta(self, caller: Caller) -> dict[str, Any]:
        """How good our estimates were."""
        return self.teller.report_eta()

    async def gantt(self, caller: Caller, past_s: float) -> dict[str, Any]:
        """Past, present and forecast."""
        await self.settle()
        return await self.teller.gantt(past_s)

    async def config(self, caller: Caller) -> dict[str, Any]:
        """Settings with where each came from."""
        return {"values": self.hub.settings.table()}

    async def events(self, caller: Caller, since: int) -> AsyncIterator[Happening]:
        """Everything that happens, from a sequence number on."""
        waiting: asyncio.Queue[Happening] = asyncio.Queue()
        listener = waiting.put_nowait
        self.hub.listeners.append(listener)
        try:
            last = since
            for record in self.hub.store.events(since=since, limit=100_000) if since >= 0 else ():
                last = max(last, record.seq)
                data = msgspec.json.decode(record.data) if record.data else {}
                told = Happening(record.seq, self.hub.iso(record.wall), record.job or 0, record.event, data)
                yield self._seen_by(caller, told)
            while waiting.qsize() < EVENTS_BEHIND_MOST:
                happening = await waiting.get()
                if happening.seq == 0 or happening.seq > last:
                    yield self._seen_by(caller, happening)
        finally:
            self.hub.listeners.remove(listener)

    def _seen_by(self, caller: Caller, happening: Happening) -> Happening:
        """Of others' jobs one sees that something happened, not what their logs say."""
        job = self.hub.register.by_id.get(happening.job)
        if caller.admin or (job is not None and caller.may_act_on(job.uid)):
            return happening
        kept: dict[str, Any] = {key: value for key, value in happening.data.items() if key in _PUBLIC}
        return Happening(happening.seq, happening.at, happening.job, happening.event, kept)

    async def down(self, caller: Caller) -> None:
        """Stop the daemon; runs go on."""
        if not caller.admin:
            raise Refused("forbidden", "only an administrator stops a daemon that others use", "ask one")
        if self.hub.system and os.environ.get("INVOCATION_ID"):
            raise Refused("conflict", "systemd would start this daemon again", "stop it there: systemctl stop phalanx")
        asyncio.get_running_loop().call_later(0.1, self.stop)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self.stopping.set()
        self.hub.wake.set()

    def figures(self) -> Figures:
        """For /metrics."""
        return self.teller.figures()


def _listed(job: Job, caller: Caller, listing: Listing) -> bool:
    if not listing.everybody and not listing.user and job.uid != caller.uid:
        return False
    checks = (
        not listing.user or job.user == listing.user,
        not listing.states or job.state in listing.states,
        not listing.queue or job.queue == listing.queue,
        not listing.name or job.name.startswith(listing.name),
    )
    return all(checks)


def _stored_listed(record: JobRecord, listing: Listing) -> bool:
    checks = (
        not listing.states or record.state in listing.states,
        not listing.queue or record.queue == listing.queue,
        not listing.name or record.name.startswith(listing.name),
    )
    return all(checks)
