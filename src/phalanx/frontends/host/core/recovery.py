"""What a daemon does first: find out what became of everything while nobody looked.

The store says what was decided, the run directories say what was done. Where the two differ, the
table of docs/one-machine.md says who is right: an attempt that nobody let through the gate never was; one that
went through is adopted; one whose end was noted is ended; one whose shim died without a word has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.attempt_phases import RECALLED, Duty, OnDisk, Remnant
from phalanx.frontends.host.core.ending import Ending, ended_well
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.jobs import CANCEL, EVICT, FAIL, LINGER_US, MOVE, TIME, Job, Live, Member, recall_date
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.pen import Fact
from phalanx.frontends.host.core.reading_back import read_back, read_recent
from phalanx.frontends.host.core.seatmap import join_seats
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.launching.log_reading import read_log
from phalanx.frontends.host.launching.run_ends import tell_shim_loss
from phalanx.frontends.host.messages import ENDED
from phalanx.frontends.host.ports import FoundRun
from phalanx.frontends.host.store import DropRun, JobRecord, RunRecord, UpdateJob
from phalanx.frontends.host.store.run_mending import UNTOLD

#: What is killed and nobody's has so long to be gone before anything is given away.
_STRAY_S: Final = 5.0


class Recovery:
    """One pass over everything that is on disk."""

    def __init__(self, means: Means, admission: Admission, starting: Starting, ending: Ending) -> None:
        """Nothing was looked at yet."""
        self.known, self.pen, self.errands, self.processes = means.known, means.pen, means.errands, means.processes
        self.admission, self.starting, self.ending = admission, starting, ending
        self.adopted = self.requeued = self.ended = self.strays = 0

    async def run(self) -> None:
        """Bring every job back to where it really is."""
        rows = {record.run: record for record in self.known.store.runs()}
        records = self.known.store.jobs()
        named = {*rows, *_find_later(self.known.runs, records)}
        found = {each.run: each for each in await self.processes.launcher.find(named)}
        doomed: list[int] = []
        stopping = []
        recent = deque(read_recent(self.known, self.admission))
        for record in records:
            if record.state == "stopping":
                stopping.append(record)
            self._keep_before(record.id, recent)
            self.admission.newest = max(self.admission.newest, record.id)
            job = await read_back(self.known, self.pen, self.admission, record)
            if job is None:
                continue
            self._note_ended_dependencies(job)
            doomed += self.admission.enter(job)
            verdict = recall_date(record, job.number)
            if verdict is not None:
                self.known.planner.note_date(verdict)
            if job.pin is not None:
                self.known.planner.pin(self.known.now_us(), job.number, job.pin)
        self._keep_before(self.admission.newest + 1, recent)
        running = {run.job for run in rows.values()}
        known = self.known.register.by_id
        lost = [known[record.id] for record in stopping if record.id not in running and record.id in known]
        for name, run in rows.items():
            await self._settle(run, found.pop(name, None))
        for job in lost:  # it was being ended, and what was being ended is not there any more
            await self.ending.cancel(job, "the daemon, which stopped while it ended it")
        await asyncio.gather(*map(self._clear, found.values()))
        await self.ending.cancel_others(doomed)
        log.info(
            "recovered: %d jobs, %d adopted, %d to start again, %d ended meanwhile, %d strays",
            *(sum(not job.ended for job in self.known.register), self.adopted, self.requeued, self.ended, self.strays),
        )

    def _keep_before(self, number: int, recent: deque[Job]) -> None:
        """Those that ended a short while ago and came before: the register is in order of arrival."""
        while recent and recent[0].id < number:
            self._keep_for_now(recent.popleft())

    def _keep_for_now(self, job: Job) -> None:
        """It ended a short while ago: people look for it where it was before the restart."""
        self.known.register.add(job)
        # Whoever names it from now on finds it here, and the engine, which has never seen it, would wait for its end.
        self.known.planner.note_ended(job.gang.name, well=job.state == "completed")
        self.errands.agenda.at((job.end_us or job.submit_us) + LINGER_US, lambda: self.known.register.forget(job))

    def _note_ended_dependencies(self, job: Job) -> None:
        """What it waits for may have ended before: then it is not among those that come back."""
        for name in job.gang.after.names:
            stored = self.known.store.job(int(name)) if name.isdecimal() else None
            if stored is None or stored.state in ENDED:
                # One that is forgotten ended well: had it not, this job would have been cancelled with it.
                self.known.planner.note_ended(name, well=stored is None or stored.state == "completed")

    # ------------------------------------------------------------------ one attempt

    async def _settle(self, run: RunRecord, found: FoundRun | None) -> None:
        job = self.known.register.by_id.get(run.job)
        if job is None or job.ended or run.attempt != job.attempt:
            if found is not None:
                await self._clear(found)
            await self.pen.commit(DropRun(run.run))
            return
        live = self._live_of(run)
        intent: dict[str, Any] = msgspec.json.decode(run.intent) if run.intent else {}
        live.purpose, live.by = intent.get("purpose"), str(intent.get("by", ""))
        live.failure = intent.get("failure")
        on_disk, remnant = read_row(run, unwanted=live.purpose is not None), read_remnant(run, found)
        live.phase, duties = RECALLED[on_disk, remnant]
        if Duty.DROP in duties:
            await self._never(job, live, found)
            return
        if remnant in (Remnant.ENDED, Remnant.ALIVE):
            assert found is not None
            self._take_over(job, live, run, found)
        else:  # it ran, and nothing at all is left of it: the disk lost its directory, or the machine was reset
            lost = "its run directory is gone" if found is None else "its shim was killed, and its journal is lost"
            live.failure = {"rank": None, "why": f"nothing is left of it: {lost}"}
        if Duty.ADOPT in duties:
            assert found is not None
            await self._adopt(job, live, found, tell=Duty.TELL in duties)
        else:
            # Of one that is to end because its row was damaged nobody can have been told by an earlier daemon.
            told = on_disk in (OnDisk.REGRETTED, OnDisk.STOPPING) and not intent.get(UNTOLD)
            await self._over(job, live, run, found, told=told)

    def _live_of(self, run: RunRecord) -> Live:
        """The attempt as it was written down; devices that are not there any more are nobody's."""
        return _live_of(run, {device.uuid: device.index for device in self.known.devices})

    async def _never(self, job: Job, live: Live, found: FoundRun | None) -> None:
        """Nobody passed the gate: it waits again and nothing is charged."""
        self.requeued += 1
        if found is not None:  # beside: a shim that does not answer must not keep the others waiting
            self.errands.spawn(self._drop(live.run))
        if live.purpose == CANCEL:
            self.known.planner.cancel(self.known.now_us(), job.number)
            await self.ending.close(job, "cancelled", [(job.id, "cancel", {"by": live.by})], live)
            return
        facts: list[Fact] = [(job.id, "gone", {"why": "the daemon stopped before it began"})]
        await self.pen.commit(DropRun(live.run), UpdateJob(job.id, state="pending"), facts=facts)

    def _take_over(self, job: Job, live: Live, run: RunRecord, found: FoundRun) -> None:
        """It went through the gate: since when, with whom, and where the engine sees it."""
        job.start_us = job.start_us if job.start_us is not None else self.known.now_us()
        told = msgspec.json.decode(run.members) if run.members else {}
        live.started_us = live.saved_us = int(told.get("started_us", job.start_us))
        live.adopted = True
        live.generation = max(run.generation, found.generation)
        self._take_members(live, found)
        if found.lost and live.purpose is None:
            live.failure = {"rank": None, "why": _lost_why(found)}
        self._seat(job, live)

    async def _adopt(self, job: Job, live: Live, found: FoundRun, *, tell: bool) -> None:
        self.adopted += 1
        over = live.purpose in (CANCEL, TIME, FAIL) or found.lost
        job.live, job.state = live, "stopping" if over else "running"
        self.known.occupancy.take(live, [member for member in live.members.values() if not _left(member)])
        await self.pen.commit(self.pen.put_run(live), UpdateJob(job.id, state=job.state, start_us=job.start_us))
        for hear in self.starting.on_started:
            hear(job, live)
        for key, message in found.spoke:  # what a member's death means depends on what the others understand
            self.ending.resizing.on_message(job, live, key, message)
        if tell:
            await self.ending.tell_to_go(job, live)
        for key, (code, signal) in found.exits.items():
            self.ending.note_exit(job, live, key, code, signal, self._tail(live, key) if code != 0 else "")
        self.ending.resizing.resume(job, live)
        if live.purpose is None:  # how far it is was known to the last daemon only
            await self.processes.launcher.tell(live.run, None, {"type": "status", "id": f"s{live.attempt}"})

    def _take_members(self, live: Live, found: FoundRun) -> None:
        """Who is there; of a change of size that was under way, whoever came is in and whoever had to go will go."""
        if found.vanished or found.silent:  # nobody can tell; their devices are theirs until nothing is left
            return
        live.newest = max(found.members, default=0)
        for key, (pid, start) in found.members.items():
            member = live.members.get(key)
            if member is not None:
                member.pid, member.start = pid, start
        for key in [key for key in live.members if key not in found.members]:
            del live.members[key]  # planned, and never brought to a gate
        for key, (code, signal) in found.exits.items():
            member = live.members.get(key)
            if member is not None and member.leaving:
                member.exited, member.code, member.signal = True, code, signal

    def _seat(self, job: Job, live: Live) -> None:
        """The engine sees it where it sits, or sees it wait if it was on its way out for somebody."""
        roles = {role.name for role in job.gang.roles}  # one whose row was damaged may have members of none
        staying = [member for member in live.members.values() if not member.leaving and member.role in roles]
        if live.purpose in (EVICT, MOVE):
            return
        if staying:
            seats = join_seats(job.gang, staying, len(self.known.devices))
            self.known.planner.seat(self.known.now_us(), job.number, seats, live.started_us or 0)
        if live.purpose == CANCEL:
            self.known.planner.cancel(self.known.now_us(), job.number)

    async def _over(self, job: Job, live: Live, run: RunRecord, found: FoundRun | None, *, told: bool) -> None:
        """The attempt has ended while nobody looked."""
        self.ended += 1
        job.live = live
        if found is None:
            self._seat(job, live)
        for key, (code, signal) in (found.exits if found is not None else {}).items():
            member = live.members.get(key)
            if member is None or member.exited:
                continue
            member.exited, member.code, member.signal = True, code, signal
            if code != 0 and not member.leaving and live.failure is None and live.purpose is None:
                live.failure = _failure(member) | {"lines": self._tail(live, key).splitlines()[-20:]}
        rebooted = run.boot_id != self.processes.boot_id or (found is not None and not found.same_boot)
        if rebooted and not ended_well(live) and live.purpose is None:
            live.failure = {"rank": None, "why": "the machine restarted while it ran", "reboot": True}
            if job.gang.preemptible or job.on_preempt == "requeue":
                job.restarts_left += 1  # a reboot is nobody's failure
        await self.ending.close_attempt(job, live, told=told)

    async def _drop(self, run: str) -> None:
        await self.processes.launcher.abort(run)
        await self.processes.launcher.forget(run)

    def _tail(self, live: Live, key: int) -> str:
        """The last lines of a member that failed while nobody listened."""
        data, _, _ = read_log(self.known.runs / live.run, key, 0, 2048, 20)
        return data.decode("utf-8", "replace")

    async def _clear(self, stray: FoundRun) -> None:
        """A run that nobody knows of: it ends here."""
        await self._pass_over(stray)
        if stray.done:  # only its logs are left
            await self.processes.launcher.forget(stray.run)
            return
        self.strays += 1
        log.error("run %s is no attempt that is known any more; it is killed", stray.run)
        if not stray.alive:
            await self.processes.launcher.forget(stray.run)
            return
        gone = self.processes.strays[stray.run] = asyncio.Event()
        await self.processes.launcher.stop(stray.run, None, "KILL", 0.0)
        # Its devices are nobody's, and would be given to somebody else while it dies.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STRAY_S):
                await gone.wait()

    async def _pass_over(self, stray: FoundRun) -> None:
        """Of a job that waits, as far as a database tells that has lost its end: it begins anew, under a new number."""
        number, attempt = _split(stray.run)
        job = self.known.register.by_id.get(number)
        if job is None or job.ended or job.live is not None or attempt < job.attempt:
            return
        if attempt == job.attempt and stray.done:  # its end was written down, and only its logs are left
            return
        job.attempt = attempt
        how = "it is over" if stray.done else "it has been ended"
        why = f"what was written down of attempt {attempt} is lost; {how}, and the job runs again"
        log.error("job %d: %s", job.id, why)
        await self.pen.commit(UpdateJob(job.id, attempt=job.attempt), facts=[(job.id, "gone", {"why": why})])


def _find_later(runs: Path, records: Iterable[JobRecord]) -> Iterator[str]:
    """Directories of attempts that jobs do not know of: no attempt is begun twice, nor in the place of another."""
    attempts = {record.id: record.attempt for record in records}
    for path in runs.glob("*.*"):
        number, attempt = _split(path.name)
        if attempt > attempts.get(number, attempt):
            yield path.name


def _split(run: str) -> tuple[int, int]:
    """Job and attempt; nobody's where it is no such name."""
    words = run.split(".")
    fine = len(words) == 2 and all(word.isascii() and word.isdecimal() and len(word) < 16 for word in words)
    return (int(words[0]), int(words[1])) if fine else (-1, -1)


def read_row(run: RunRecord, *, unwanted: bool) -> OnDisk:
    """What was written down of an attempt."""
    if run.state == "starting":
        return OnDisk.REGRETTED if unwanted else OnDisk.STARTING
    return OnDisk.STOPPING if unwanted else OnDisk.RUNNING


def read_remnant(run: RunRecord, found: FoundRun | None) -> Remnant:
    """What was found of it. A shim is its user's: what it says counts less than what was written down here."""
    if found is None:
        return Remnant.NOTHING
    if not found.went and (run.state == "starting" or (found.done and not found.alive)):
        return Remnant.AT_GATE
    return Remnant.ENDED if found.done else Remnant.ALIVE


def _live_of(run: RunRecord, number_of: Mapping[str, int]) -> Live:
    members = {
        entry["key"]: Member(
            key=entry["key"],
            role=entry["role"],
            devices=tuple((number_of[uuid], int(milli)) for uuid, milli in entry["devices"] if uuid in number_of),
            rank=entry["rank"],
            pid=entry.get("pid"),
            start=entry.get("start"),
            leaving=bool(entry.get("leaving")),
            joined=int(entry.get("joined", 1)),
        )
        for entry in msgspec.json.decode(run.devices)
    }
    return Live(run.job, run.attempt, members, generation=run.generation)


def _left(member: Member) -> bool:
    return member.exited and member.leaving


def _failure(member: Member) -> dict[str, Any]:
    how = f"was killed by signal {member.signal}" if member.signal is not None else f"exited with code {member.code}"
    return {"rank": member.rank, "exit_code": member.code, "signal": member.signal, "why": f"rank {member.rank} {how}"}


def _lost_why(found: FoundRun) -> str:
    if found.vanished:
        return "its run directory is gone; what was left of it has been killed"
    if not found.same_boot:
        return "the machine restarted while it ran"
    return tell_shim_loss(found.contained)
