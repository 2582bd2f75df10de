"""The daemon's core: its parts, their life, and one method for every verb of the API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from phalanx.control.clone import clone_state
from phalanx.control.dump import dump_state, format_state
from phalanx.control.forecasting.lengths import UNSAID_US
from phalanx.control.forecasting.predictions import Predictions
from phalanx.frontends.host.core import happenings
from phalanx.frontends.host.core.access import Access
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.attempts import Attempts
from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.ending import Ending
from phalanx.frontends.host.core.errands import Errands
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.gates_ahead import list_gates
from phalanx.frontends.host.core.housekeeping import Housekeeping
from phalanx.frontends.host.core.jobs import LINGER_US, Job
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.pacing import Pacing
from phalanx.frontends.host.core.predict import recall_runs
from phalanx.frontends.host.core.progress_reading import ProgressReader
from phalanx.frontends.host.core.recovery import Recovery
from phalanx.frontends.host.core.resizing import Resizing
from phalanx.frontends.host.core.retries import Retries
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.core.telling import Telling
from phalanx.frontends.host.core.verbs import Verbs
from phalanx.frontends.host.core.watching import Watching
from phalanx.frontends.host.launching.log_reading import read_log
from phalanx.frontends.host.messages import (
    STATUS_SCHEMA,
    Accepted,
    ActedOn,
    Detail,
    Happening,
    NodeRow,
    QueueRow,
    Row,
    Submission,
    Why,
)
from phalanx.frontends.host.ports import Caller, Devices, Refused
from phalanx.frontends.host.service import Figures, Listing, LogChunk
from phalanx.frontends.host.store import JobRecord
from phalanx.frontends.host.stranger_watch import Rules

VERBS: Final = ("cancel", "hold", "release", "retry", "resize", "preempt", "edit")


class Core:
    """Everything behind the API."""

    def __init__(self, means: Means, devices: Devices, about: Mapping[str, Any]) -> None:
        """`about`: what `status` says of the process: pid, socket, version, containment."""
        self.known, self.pen, self.errands, self.processes = means.known, means.pen, means.errands, means.processes
        self.about = about
        self.predictions = Predictions()
        self.admission = Admission(means, self.predictions)
        self.starting = Starting(means)
        self.books = Books(self.known)
        self.resizing = Resizing(means, self.starting, self.books)
        self.ending = Ending(means, self.starting, self.resizing, self.books)
        rules = Rules(self.known.settings.display_processes, self.known.settings.small_use_bytes)
        self.watching = Watching(means, devices, self.starting, rules)
        self.forecaster = Forecaster(self.known, self.predictions)
        self.forecaster.on_estimates = lambda changes: self.errands.spawn(self.pen.commit(*changes))
        self.attempts = Attempts(means, self.starting, self.resizing, self.ending)
        self.pacing = Pacing(self.known, self.errands, self.admission, self.attempts)
        self.teller = Telling(self.known, self.processes, self.forecaster)
        self.access = Access(self.known, self.admission)
        self.verbs = Verbs(means, self.admission, self.ending)
        self.retries = Retries(self.known, self.admission)
        self.house = Housekeeping(means)
        self._recovery = Recovery(means, self.admission, self.starting, self.ending)
        self.stopping = asyncio.Event()
        self.starting.on_started.append(self.forecaster.note_start)
        self.ending.on_ended = self._note_end
        self._started_us = self.known.now_us()
        self._fake = devices.fake

    # ------------------------------------------------------------------ life

    async def recover(self) -> None:
        """Everything that is on disk, before anybody asks."""
        self.admission.newest = self.known.store.newest()
        recall_runs(self.predictions, self.known.store.ended(limit=2000))
        self.forecaster.recall(self.known.store.estimates())
        await self._recovery.run()
        self.attempts.begin_listening()
        self.processes.look_at_devices = self.watching.look  # only now is it known which processes are our own
        await self.watching.look()
        self.house.begin()
        self.errands.stir()

    async def run(self) -> None:
        """Plan whenever something happened, until told to stop."""
        loop = asyncio.get_running_loop()
        beside = [loop.create_task(self.watching.run()), loop.create_task(ProgressReader(self.known, self.books).run())]
        try:
            while not self.stopping.is_set() and not self.errands.broken.is_set():
                await self.pacing.turn()
        finally:
            for task in beside:
                task.cancel()
            await self.processes.launcher.detach()

    def _note_end(self, job: Job) -> None:
        """Whoever it held up may go on; how long it took is remembered for the next of its name."""
        self.admission.on_ended(job)
        if job.state == "completed" and job.spent.attempts == 1:  # of several it is the last that ended well
            # Of an elastic job it is the time of its largest size, which may not be the one that it had.
            stated = job.gang.walltime_us if not job.predicted and not job.gang.elastic else None
            stated_s = None if stated is None else stated / 1e6
            self.predictions.note(job.user, job.name, job.spent.ran_us / 1e6, stated_s)
        self.errands.agenda.at(self.known.now_us() + LINGER_US, lambda: self.known.register.forget(job))

    # ------------------------------------------------------------------ the service

    async def status(self, caller: Caller) -> dict[str, Any]:
        """The daemon itself."""
        self.admission.drain()
        counts: dict[str, int] = {}
        for job in self.known.register:
            counts[job.state] = counts.get(job.state, 0) + 1
        busy = sum(bool(self.known.occupancy.users(device.index)) for device in self.known.devices)
        closed = len(self.known.occupancy.closed)
        return {
            "schema": STATUS_SCHEMA,
            **self.about,
            "uptime_s": (self.known.now_us() - self._started_us) / 1e6,
            "mode": "system" if self.known.system else "user",
            "policy": self.known.planner.policy.name,
            "store": {"ok": self.known.store.problem is None, "problem": self.known.store.problem},
            "jobs": counts,
            "gpus": {
                "total": len(self.known.devices),
                "busy": busy,
                "closed": closed,
                "free": max(0, len(self.known.devices) - busy - closed),
            },
            "fake": self._fake,
        }

    async def submit(
        self, caller: Caller, jobs: Sequence[Submission], key: str | None, *, dry_run: bool
    ) -> list[Accepted]:
        """Take jobs in, all or none; on disk when it returns."""
        _check_store(self.errands)
        if not dry_run:
            return await self.admission.submit(caller, jobs, key)
        answers = []
        for submission in jobs:  # what would be accepted, and when it would start; nothing is written
            taken = self.known.intake.take(submission, caller.user, self.known.now_us(), self.known.clock.wall_s())
            answers.append(await self.teller.try_out(caller, taken))
        return answers

    async def rows(self, caller: Caller, listing: Listing) -> list[Row]:
        """Jobs as a list."""
        await self.pacing.settle()
        wanted = [job for job in self.known.register if _listed(job, caller, listing)]
        rows = await self.teller.rows(wanted, with_eta=True, caller=caller)
        if listing.finished:
            known = {job.id for job in wanted}
            user = listing.user or ("" if listing.everybody else caller.user)
            stored = self.known.store.ended(user=user or None, limit=listing.limit or 10_000)
            old = [record for record in stored if record.id not in known and _stored_listed(record, listing)]
            rows = [*(self.teller.row_of_record(record, caller) for record in old), *rows]
        rows.sort(key=lambda row: row.id)
        return rows[-listing.limit :] if listing.limit else rows

    async def detail(self, caller: Caller, ref: str) -> Detail:
        """Everything about one job that the caller may see."""
        await self.pacing.settle()
        return await self.teller.detail(self.access.find(caller, ref), caller)

    async def why(self, caller: Caller, ref: str) -> Why:
        """Why it is where it is."""
        await self.pacing.settle()
        return await self.teller.why(self.access.find(caller, ref), caller)

    async def logs(
        self, caller: Caller, ref: str, *, rank: int, attempt: int | None, offset: int, limit: int, tail: int | None
    ) -> LogChunk:
        """A piece of one rank's log."""
        job = self.access.find_own(caller, ref)
        chosen = attempt if attempt is not None else job.attempt
        if chosen > job.attempt and attempt is not None:
            many = (
                f"its attempts are 1 to {job.attempt}" if job.attempt > 1 else f"it had {job.attempt or 'no'} attempt"
            )
            raise Refused("not_found", f"job {job.id} has no attempt {attempt}: {many}", f"phalanx logs {job.id}")
        live = job.live
        current = live is not None and live.attempt == chosen
        members = len(live.members) if live is not None and current else job.gang.members_max
        path = self.known.runs / f"{job.id}.{chosen}"
        data, following, exists = await asyncio.to_thread(read_log, path, rank, offset, limit, tail)
        over = job.ended or chosen < job.attempt
        if not exists and over and attempt is None and job.attempt:
            raise Refused("not_found", f"job {job.id} has no log of rank {rank}", f"its ranks: phalanx show {job.id}")
        return LogChunk(data, following, over, members)

    async def wait(self, caller: Caller, ref: str, timeout_s: float) -> dict[str, Any]:
        """Until it has ended, or the time is over."""
        job = self.access.find(caller, ref)
        if not job.ended:
            event = self.errands.ends.setdefault(job.id, asyncio.Event())
            try:
                async with asyncio.timeout(timeout_s):
                    await event.wait()
            except TimeoutError:
                pass
        return {"id": job.id, "state": job.state, "exit_code": job.exit_code, "ended": job.ended}

    async def act(self, caller: Caller, ref: str, verb: str, body: Mapping[str, Any]) -> Row | Accepted:
        """Do something to a job."""
        assert verb in VERBS, verb
        _check_store(self.errands)
        job = self.access.find_own(caller, ref)
        if verb == "retry":
            return await self.retries.retry(caller, job, body.get("key"))
        if job.id not in self.known.register.by_id:
            raise Refused("conflict", f"job {job.id} has ended: {job.state}", f"run it again: phalanx retry {job.id}")
        await getattr(self.verbs, verb)(caller, job, body)
        warnings = self.verbs.warn_preempted(job) if verb == "preempt" else []
        await _settle_after(self, verb, [job])
        (row,) = await self.teller.rows([job], with_eta=False)
        return msgspec.structs.replace(row, warnings=warnings) if warnings else row

    async def act_on_all(self, caller: Caller, refs: Sequence[str], verb: str) -> ActedOn:
        """Cancel, hold or release all that these words mean, in one step."""
        assert verb in ("cancel", "hold", "release"), verb
        _check_store(self.errands)
        found, refused = self.access.find_each(caller, refs)
        jobs, more = await self.verbs.do_to_all(verb, caller, found)
        await _settle_after(self, verb, jobs)
        return ActedOn(await self.teller.rows(jobs, with_eta=False, caller=caller), refused + more)

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
        await self.pacing.settle()
        return await self.teller.gantt(past_s)

    async def config(self, caller: Caller) -> dict[str, Any]:
        """Settings with where each came from."""
        return {"values": self.known.settings.table()}

    async def dump(self, caller: Caller) -> str:
        """The cluster as it stands, schema `phalanx.state/1`: what everybody sees in `ps -a`, in the engine's words."""
        await self.pacing.settle()
        twin = self.known.planner.over(clone_state(self.known.planner.state))
        twin.at(self.known.now_us())
        told = self.known.settings
        policy = (told.policy, told.policy_options) if told.policy == twin.policy.name else (twin.policy.name, {})
        # What `why` goes by goes with it, or a what-if would tell another start.
        lengths = self.forecaster.measure(twin.state, twin.state.list_waiting())
        gates, runs = list_gates(self.known, twin.state), replace(lengths.middle(), default_us=UNSAID_US)
        return format_state(dump_state(twin.state, policy, gates=gates, runs=runs))

    def events(self, caller: Caller, since: int) -> AsyncIterator[Happening]:
        """Everything that happens, from a sequence number on."""
        return happenings.follow(self.known, self.pen, caller, since)

    async def down(self, caller: Caller) -> None:
        """Stop the daemon; runs go on."""
        if not caller.admin:
            raise Refused("forbidden", "only an administrator stops a daemon that others use", "ask one")
        if self.known.system and os.environ.get("INVOCATION_ID"):
            raise Refused("conflict", "systemd would start this daemon again", "stop it there: systemctl stop phalanx")
        asyncio.get_running_loop().call_later(0.1, self.stop)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self.stopping.set()
        self.errands.wake.set()

    def figures(self) -> Figures:
        """For /metrics."""
        return self.teller.figures()


def _check_store(errands: Errands) -> None:
    """What cannot be written down is not acknowledged, not even from memory."""
    if errands.broken.is_set():
        raise Refused(
            "unavailable",
            "the store has failed, and the daemon is about to stop",
            "ask again in a moment; phalanx doctor",
        )


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


async def _settle_after(core: Core, verb: str, jobs: Sequence[Job]) -> None:
    """The answer is to tell what came of it."""
    for job in jobs if verb == "hold" else ():
        core.forecaster.forget(job)
    if verb != "cancel":  # whoever is cancelled is that whatever is planned next, and thousands may be
        await core.pacing.settle()
