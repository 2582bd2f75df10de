"""How attempts end: by themselves, by a failed member, by a person, by the plan, by their age.

An end is written down before anything of it is given away, and seats are given away only when
nothing of the attempt is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from phalanx.control.instructions import Leave
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.host.core.attempt_phases import AttemptEvent, AttemptPhase, Duty, Meaning, judge_end
from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.jobs import CANCEL, EVICT, FAIL, MOVE, TIME, Job, Live, Member, remember
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.pen import Fact
from phalanx.frontends.host.core.planner import Begin
from phalanx.frontends.host.core.resizing import Resizing
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.crashpoints import crashpoint
from phalanx.frontends.host.launching.run_ends import tell_shim_loss
from phalanx.frontends.host.ports import RunEvent
from phalanx.frontends.host.store import Change, DropRun, UpdateJob

QUARANTINED = "quarantined"
#: What members left running is left alone for so long after the last of them.
LEFTOVERS_US = 2_000_000


#: How a job ended that others waited for.
_ENDED: Final = {"failed": "failed", "cancelled": "was cancelled", "infeasible": "can never run here"}


class Ending:
    """Everything that brings an attempt, or a job, to its end."""

    def __init__(self, means: Means, starting: Starting, resizing: Resizing, books: Books) -> None:
        """Listens to nobody yet: the core passes events on."""
        self.known, self.pen, self.errands, self.processes = means.known, means.pen, means.errands, means.processes
        self.starting, self.resizing, self.books = starting, resizing, books
        self.stuck: dict[str, set[int]] = {}  # runs whose processes survive SIGKILL, and their devices
        self.on_ended: Callable[[Job], None] = lambda job: None
        starting.on_gone = self._never_began
        starting.on_over = self.finish
        starting.on_regret = self.tell_to_go
        resizing.on_elsewhere = self.move

    # ------------------------------------------------------------------ what shims tell

    async def on_event(self, event: RunEvent) -> None:
        """A shim speaks."""
        job = self.known.register.by_id.get(int(event.run.partition(".")[0]))
        live = None if job is None else job.live
        if job is None or live is None or live.run != event.run:
            if event.kind in ("empty", "lost"):
                self._end_quarantine(event.run)
                self.errands.spawn(self.processes.launcher.forget(event.run))
            return
        if event.kind == "exit" and event.rank is not None:
            self.note_exit(job, live, event.rank, event.code, event.signal, event.tail)
        elif event.kind == "empty":
            await self.finish(job, live)
        elif event.kind == "lost":
            # Before the gate was opened nothing was lost: whoever opens it will see that nobody is there.
            if live.failure is None and live.purpose is None and not live.phase.at_gate:
                contained, blame = (str(event.message.get(word, "")) for word in ("contained", "blame"))
                live.failure = {"rank": None, "why": tell_shim_loss(contained, blame)}
            await self.finish(job, live)
        elif event.kind == "stuck":
            await self._quarantine(job, live)
        elif event.kind == "job" and event.rank is not None:
            self.resizing.on_message(job, live, event.rank, event.message)

    def note_exit(self, job: Job, live: Live, key: int, code: int | None, signal: int | None, tail: str) -> None:
        """A member is gone."""
        member = live.members.get(key)
        if member is None or member.exited:
            return
        member.exited, member.code, member.signal = True, code, signal
        if not live.present():
            self.errands.agenda.at(self.known.now_us() + LEFTOVERS_US, lambda: self._sweep(job, live))
        if live.purpose is not None:
            return
        if member.leaving:
            self.resizing.on_exit(job, live)
            return
        if code == 0:
            self.resizing.on_quit(job, live)
            return
        lines = tail.splitlines()[-20:]
        failure = {"rank": member.rank, "exit_code": code, "signal": signal, "lines": lines, "why": _how(member)}
        if self.resizing.close_ranks(job, live, member):
            facts: list[Fact] = [(job.id, "lose", {"rank": member.rank, "why": failure["why"]})]
            self.errands.spawn(self.pen.commit(facts=facts))
            return
        live.failure = failure
        self.stop(job, live, FAIL, by=f"rank {member.rank}")

    def _sweep(self, job: Job, live: Live) -> None:
        """All members are gone and something of theirs is not: it is told to go, and then made to."""
        if live.phase.begun and not live.present():
            self.errands.spawn(self.processes.launcher.stop(live.run, None, "TERM", job.grace_s))

    # ------------------------------------------------------------------ who wants an end

    def stop(self, job: Job, live: Live, purpose: str, by: str) -> None:
        """End an attempt; written down first, then told."""
        self.errands.spawn(self.stop_now(job, live, purpose, by))

    async def stop_now(self, job: Job, live: Live, purpose: str, by: str, facts: Iterable[Fact] = ()) -> None:
        """The same, on disk when it returns; from the first moment on nobody else ends it for another purpose."""
        if live.purpose == CANCEL:
            return
        duties = live.advance(AttemptEvent.CANCEL if purpose == CANCEL else AttemptEvent.UNWANT)
        if Duty.WRITE not in duties:
            return
        live.purpose, live.by = purpose, by
        if purpose in (CANCEL, TIME, FAIL):
            job.state = "stopping"
        changes: list[Change] = [self.pen.put_run(live)]
        if Duty.TELL in duties and not job.ended:
            changes.append(UpdateJob(job.id, state="stopping"))
        await self.pen.commit(*changes, facts=list(facts))
        if Duty.TELL in duties:
            crashpoint("cancel.before_signal" if purpose == CANCEL else "evict.after_commit")
            await self.tell_to_go(job, live)

    async def tell_to_go(self, job: Job, live: Live) -> None:
        """Ask those who understand to save and leave; signal the others, and kill whoever stays too long."""
        run = live.run
        polite = live.purpose in (EVICT, MOVE) and self.resizing.all_speak(live, "yield")
        duties = live.advance(AttemptEvent.ASK if polite else AttemptEvent.SIGNAL)
        if Duty.SAY_YIELD in duties:
            notice_s = self.known.settings.notice_s
            message = {"type": "yield", "id": f"y{live.attempt}", "deadline_s": notice_s, "why": live.by}
            await self.processes.launcher.tell(run, None, message)
            self.errands.agenda.at(self.known.now_us() + round(notice_s * 1e6), lambda: self._insist(job, live))
        elif Duty.SEND_TERM in duties:
            await self.processes.launcher.stop(run, None, "TERM", job.grace_s)

    def _insist(self, job: Job, live: Live) -> None:
        if live.phase is AttemptPhase.ASKED and Duty.SEND_TERM in live.advance(AttemptEvent.SIGNAL):
            self.errands.spawn(self.processes.launcher.stop(live.run, None, "TERM", job.grace_s))

    def evict(self, job: Job, leave: Leave) -> None:
        """The plan wants its seats; logically it waits already."""
        beneficiary = self.known.register.by_number.get(leave.beneficiary) if leave.beneficiary is not None else None
        by = f"{leave.cause.value} for {beneficiary.id}" if beneficiary is not None else leave.cause.value
        self.known.meters.count_eviction(leave.cause.value)
        fact: Fact = (job.id, "evict", {"cause": leave.cause.value, "for": beneficiary.id if beneficiary else None})
        if job.next is not None:
            self.starting.drop(job)
        if job.ended:
            return
        if job.live is None:
            job.state = "pending"
            self.errands.spawn(self.pen.commit(UpdateJob(job.id, state="pending"), facts=[fact]))
        elif job.live.purpose is None:
            self.errands.spawn(self.stop_now(job, job.live, EVICT, by, facts=[fact]))

    def move(self, job: Job, begin: Begin) -> None:
        """It goes on elsewhere: what runs of it saves and leaves, then it begins there."""
        if job.live is not None:
            self.stop(job, job.live, MOVE, by="the plan")
        self.starting.plan(job, begin)

    async def cancel(self, job: Job, by: str) -> None:
        """Nobody wants the job any more. When this returns nothing of it will ever start again."""
        if job.ended or (job.live is not None and job.live.purpose == CANCEL):
            return
        doomed = self.known.planner.cancel(self.known.now_us(), job.number)
        self.starting.drop(job)
        job.reason = ("Cancelled", f"cancelled by {by}")
        if job.live is None:
            await self.close(job, "cancelled", [(job.id, "cancel", {"by": by})])
        else:
            await self.stop_now(job, job.live, CANCEL, by, facts=[(job.id, "cancelling", {"by": by})])
        await self.cancel_others(doomed, f"{job.id} was cancelled")
        self.errands.stir()

    async def cancel_others(self, numbers: Iterable[int], cause: str = "") -> None:
        """Jobs that the engine gave up because what they waited for did not succeed."""
        for number in numbers:
            job = self.known.register.by_number.get(number)
            if job is None or job.ended:
                continue
            because = cause or self._say_dependency(job)
            job.reason = ("DependencyFailed", f"cancelled, since {because}")
            self.starting.drop(job)
            if job.live is None:
                await self.close(job, "cancelled", [(job.id, "cancel", {"by": because})])
            else:
                await self.stop_now(job, job.live, CANCEL, because)

    def _say_dependency(self, job: Job) -> str:
        """Which of those that it waited for did not succeed, and how it ended."""
        for name in job.gang.after.names if not job.gang.after.any_end else ():
            other = self.known.register.by_id.get(int(name)) if name.isdecimal() else None
            stored = self.known.store.job(int(name)) if other is None and name.isdecimal() else None
            known = other or stored
            if known is None or known.state in ("completed", "pending", "starting", "running", "stopping"):
                continue
            code = f" with exit code {known.exit_code}" if known.exit_code else ""
            return f"{known.id} ({known.name}), which it waited for, {_ENDED.get(known.state, known.state)}{code}"
        return "what it waited for did not succeed"

    # ------------------------------------------------------------------ the end

    def _never_began(self, job: Job, live: Live) -> None:
        """An attempt was given up before the gate."""
        self.starting.let_go(live)
        if live.purpose == CANCEL and not job.ended:
            self.errands.spawn(self.close(job, "cancelled", [(job.id, "cancel", {"by": live.by})], live))
        elif live.failure is not None and not job.ended:
            self.errands.spawn(self._fail(job, live, live.failure))

    async def _fail(self, job: Job, live: Live, failure: dict[str, Any]) -> None:
        job.failure, job.reason = failure, ("CannotStart", str(failure["why"]))
        doomed = self.known.planner.fail(self.known.now_us(), job.number)
        await self.close(job, "failed", [(job.id, "fail", failure)], live)
        await self.cancel_others(doomed, f"{job.id} failed")

    async def finish(self, job: Job, live: Live) -> None:
        """Nothing of an attempt is left."""
        told = live.phase.told
        if Duty.CLOSE in live.advance(AttemptEvent.EMPTY):
            await self.close_attempt(job, live, told=told)

    async def close_attempt(self, job: Job, live: Live, *, told: bool) -> None:
        """It is gone: what that means, written down and then acted on. `told`: it may have known that it was to go."""
        outcome = self._judge(job, live, told=told)
        self.books.close(job, live, outcome)
        job.live = None
        # Told before it is written down, so that no pass meanwhile counts on it; its devices are free only after.
        doomed = self._tell_planner(job, outcome)
        crashpoint("exit.before_commit")
        if outcome in (Meaning.AGAIN, Meaning.RESTART):
            job.state = "starting" if job.next is not None else "pending"
            fact: Fact = (job.id, "gone" if outcome is Meaning.AGAIN else "restart", live.failure or {"why": live.by})
            memory = remember(job, self.known.planner.state.date_of(job.number))
            again = UpdateJob(job.id, state="pending", ledger=msgspec.json.encode(job.ledger), memory=memory)
            await self.pen.commit(DropRun(live.run), again, facts=[fact])
        else:
            self._say_how(job, live, outcome)
            event = {"completed": "complete", "failed": "fail", "cancelled": "cancel"}[outcome]
            await self.close(job, outcome, [(job.id, event, self._story(job, live))], live)
        crashpoint("end.before_free")
        await self.processes.hand_over(live, list(live.members.values()))
        self.starting.let_go(live)
        if doomed:
            await self.cancel_others(doomed, f"{job.id} did not succeed")
        self.starting.try_all()
        self.errands.stir()
        if live.run not in self.stuck:
            # Beside, because whoever told us of the end is the one who is forgotten.
            self.errands.spawn(self.processes.launcher.forget(live.run))

    def _judge(self, job: Job, live: Live, *, told: bool) -> Meaning:
        """What the end of this attempt means for the job."""
        well, stuck = ended_well(live) and live.failure is None, live.run in self.stuck
        meaning = judge_end(live.purpose, told=told, well=well, stuck=stuck, restarts=job.restarts_left)
        if meaning is Meaning.RESTART:
            job.restarts_left -= 1
        if live.failure is None and not well and live.purpose in (None, FAIL):
            live.failure = {"rank": None, "why": "some members left no word of how they ended"}
        return meaning

    def _tell_planner(self, job: Job, outcome: Meaning) -> list[int]:
        """Bring the logical cluster up to date; cancels and evictions it knows of already."""
        planner, now_us = self.known.planner, self.known.now_us()
        phase = planner.state.phase_of(job.number)
        if phase.ended or outcome in (Meaning.AGAIN, Meaning.CANCELLED):
            return []
        if outcome is Meaning.COMPLETED:
            self.starting.drop(job)
            return planner.complete(now_us, job.number)
        if outcome is Meaning.RESTART:
            if phase is Phase.RUNNING and job.next is None:
                planner.requeue(now_us, job.number, failed=True, progressed=self.books.progressed(job))
            return []
        self.starting.drop(job)
        return planner.fail(now_us, job.number)

    def _say_how(self, job: Job, live: Live, outcome: str) -> None:
        failure = live.failure
        if live.purpose == TIME:
            job.exit_code, why = 124, "killed: it ran longer than its --kill-after"
            job.failure = {"rank": None, "exit_code": job.exit_code, "signal": None, "why": why}
            job.reason = ("TimeLimit", why)
        elif outcome == "failed" and failure is not None:
            job.failure, job.reason = failure, ("Failed", _sentence(failure))
            code, signal = failure.get("exit_code"), failure.get("signal")
            job.exit_code = code if code is not None else 128 + signal if signal is not None else 1
        elif outcome == "completed":
            job.exit_code = 0

    def _story(self, job: Job, live: Live) -> dict[str, Any]:
        told: dict[str, Any] = {"attempt": live.attempt, "exit_code": job.exit_code}
        if job.reason is not None:
            told["why"] = job.reason[1]
        return told

    async def close(self, job: Job, state: str, facts: list[Fact], live: Live | None = None) -> None:
        """The job has ended; this is the last that is written of it."""
        job.state, job.end_us, job.end_wall = state, self.known.now_us(), self.known.clock.wall_s()
        columns: dict[str, Any] = {
            "state": state,
            "end_us": job.end_us,
            "end_wall": job.end_wall,
            "exit_code": job.exit_code,
            "failure": None if job.failure is None else msgspec.json.encode(job.failure),
            "reason": None if job.reason is None else msgspec.json.encode(job.reason),
            "ledger": msgspec.json.encode(job.ledger) if job.ledger else None,
            "progress": None if job.progress is None else msgspec.json.encode(job.progress),
            "memory": remember(job, self.known.planner.state.date_of(job.number)),
        }
        dropped = [] if live is None else [DropRun(live.run)]
        await self.pen.commit(UpdateJob(job.id, **columns), *dropped, facts=facts)
        self.errands.tell_end(job)
        self.known.trouble.forget(job.id)
        self.on_ended(job)

    async def _quarantine(self, job: Job, live: Live) -> None:
        """Processes that SIGKILL does not end: the job has ended, and its devices are nobody's until they are gone."""
        log.error("job %d: processes survive SIGKILL; its devices are quarantined", job.id)
        devices = {device for member in live.members.values() for device, _ in member.devices}
        self.stuck[live.run] = devices
        self.known.occupancy.closed.update(dict.fromkeys(devices, f"{QUARANTINED} after job {job.id}"))
        if live.failure is None:
            live.failure = {"rank": None, "why": "its processes survive SIGKILL; see phalanx nodes"}
        job.restarts_left = 0
        await self.finish(job, live)

    def _end_quarantine(self, run: str) -> None:
        """They are gone after all."""
        for device in self.stuck.pop(run, ()):
            if self.known.occupancy.closed.get(device, "").startswith(QUARANTINED):
                del self.known.occupancy.closed[device]
        self.errands.spawn(self.processes.look_at_devices())


def ended_well(live: Live) -> bool:
    """Whether everybody who was to stay to the end exited with 0."""
    # Whoever was planned and never came to a gate has no end.
    staying = [member for member in live.members.values() if not member.leaving and member.pid is not None]
    return bool(staying) and all(member.code == 0 for member in staying)


def _how(member: Member) -> str:
    if member.signal is not None:
        return f"rank {member.rank} was killed by signal {member.signal}"
    return f"rank {member.rank} exited with code {member.code}"


def _sentence(failure: dict[str, Any]) -> str:
    lines = [line for line in failure.get("lines", ()) if line.strip()]
    return f"{failure['why']}: {lines[-1][:200]}" if lines else str(failure["why"])
