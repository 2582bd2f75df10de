"""Jobs come in: checked, written down, and only then acknowledged and shown to the engine."""

from __future__ import annotations

import pwd
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from phalanx.control.gates import GATE_ARRAY, GATE_BEGIN, GATE_HOLD, GATE_SINGLETON, move_up
from phalanx.frontends.host.core.intake import CheckedSubmission
from phalanx.frontends.host.core.jobs import (
    ArrayPlace,
    Job,
    recall_spent,
)
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.crashpoints import crashpoint
from phalanx.frontends.host.messages import Accepted, ArrayPart, Happening, Reason, Submission
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import InsertJobs, JobRecord, StoreBroken, StoreFull
from phalanx.model.gang import After, Gang


class RunTimeGuess(Protocol):
    """How long a job will run that states no time."""

    def walltime_us(self, user: str, name: str) -> int | None:
        """From earlier runs of that name; None: nobody knows."""
        ...


class Admission:
    """The door."""

    def __init__(self, means: Means, guess: RunTimeGuess) -> None:
        """Nobody waits for a gate."""
        self.known, self.pen, self.errands = means.known, means.pen, means.errands
        self.guess = guess
        self.newest = 0  # the highest id that was ever given
        self._arriving: deque[tuple[JobRecord, Gang, Mapping[str, Any]]] = (
            deque()
        )  # on disk, not yet known to the engine
        self.doomed: list[int] = []  # gangs that arrived after what they wait for had failed
        self._queued: dict[int, int] = {}  # jobs that have not ended, by uid
        self._arrays: dict[str, list[Job]] = {}  # by key
        self._single: dict[tuple[int, str], list[Job]] = {}

    # ------------------------------------------------------------------ submits

    async def submit(self, caller: Caller, jobs: Sequence[Submission], key: str | None) -> list[Accepted]:
        """All of them or none; on disk when this returns."""
        earlier = None if key is None else self.known.store.find_key(caller.uid, key)
        if earlier is not None:  # whatever is full or forbidden now, it was accepted then
            return [self._known(number) for number in earlier]
        self._check_identity(caller)
        self._check_room(caller, len(jobs))
        now_us, wall = self.known.now_us(), self.known.clock.wall_s()
        taken = [self._take(caller, submission, now_us, wall) for submission in jobs]
        options = [self._options(caller, *each) for each in zip(jobs, taken, strict=True)]
        records = [
            self._record(caller, *each, now_us=now_us, wall=wall) for each in zip(jobs, taken, options, strict=True)
        ]
        crashpoint("submit.before_commit")
        try:
            (ids,) = await self.known.store.write(InsertJobs(caller.uid, key, records))
        except StoreFull:
            raise Refused(
                "unavailable",
                "the disk of the state directory is full, so nothing new is accepted; running jobs go on",
                "make room there, then submit again: phalanx doctor",
            ) from None
        except StoreBroken as broken:
            self.errands.stop_broken(broken)
            raise Refused(
                "unavailable",
                f"{broken.message} The daemon stops, so that the next one looks at the disk; running jobs go on",
                "submit again in a moment; if it is refused again, look at the disk: dmesg, phalanx doctor",
            ) from None
        assert isinstance(ids, list)
        accepted = []
        for number, each, record, said in zip(ids, taken, records, options, strict=True):
            record.id = number
            known = number <= self.newest
            if not known:  # else an earlier submit with this key made it
                self.newest = number
                self._arriving.append((record, each.gang, said))
                self._queued[caller.uid] = self._queued.get(caller.uid, 0) + 1
            accepted.append(self._answer(number, record, each, known=known))
        crashpoint("submit.before_reply")
        self.known.meters.count_submits(len(ids))
        self.errands.stir()
        return accepted

    def _answer(self, number: int, record: JobRecord, taken: CheckedSubmission, *, known: bool) -> Accepted:
        state = self._state_of(number) if known else record.state
        reason = Reason("Infeasible", taken.infeasible) if taken.infeasible else None
        return Accepted(number, record.name, state, None, reason)  # type: ignore[arg-type]

    def _known(self, number: int) -> Accepted:
        """What an earlier submit made."""
        stored = self.known.store.job(number)
        name = stored.name if stored is not None else str(number)
        return Accepted(number, name, self._state_of(number))  # type: ignore[arg-type]

    def _check_identity(self, caller: Caller) -> None:
        """Jobs run as who submitted them, so that must be somebody, and not everybody's master."""
        if not self.known.system:
            return
        if caller.uid == 0:
            raise Refused("forbidden", "jobs do not run as root here", "submit as the user whose job it is")
        try:
            pwd.getpwuid(caller.uid)
        except KeyError:
            raise Refused(
                "forbidden", f"this machine knows no user with uid {caller.uid}", "ask an administrator"
            ) from None

    def _state_of(self, number: int) -> str:
        self.drain()
        job = self.known.register.by_id.get(number)
        stored = None if job is not None else self.known.store.job(number)
        return job.state if job is not None else stored.state if stored is not None else "pending"

    def _take(self, caller: Caller, submission: Submission, now_us: int, wall: float) -> CheckedSubmission:
        taken = self.known.intake.take(submission, caller.user, now_us, wall)
        self.check_priority(caller, taken.gang)
        if taken.gang.after.names:
            taken = replace(taken, gang=replace(taken.gang, after=self._resolve_after(caller, taken.gang.after)))
        return taken

    def check_priority(self, caller: Caller, gang: Gang) -> None:
        """Refuse a priority above what this user may ask for in this queue."""
        settings = self.known.settings
        most = settings.priority_max(caller.user, gang.queue)
        if most is not None and gang.priority > most and not (caller.admin and self.known.system):
            raise Refused(
                "forbidden",
                f"{caller.user} may ask for a priority of at most {most} in queue {gang.queue} (got {gang.priority})",
                f"use --priority {most}"
                + (
                    "; an administrator may raise it: priority_ceiling in the settings file"
                    if self.known.system
                    else ""
                ),
            )

    def _resolve_after(self, caller: Caller, after: After) -> After:
        """Names of other jobs as ids, each of a job that exists."""
        self.drain()
        ids = []
        for ref in after.names:
            found = self.known.register.find_all(ref, caller)
            ids += [str(job.id) for job in found]
            if found:
                continue
            stored = self.known.store.job(int(ref)) if ref.isdecimal() and len(ref) < 19 else None
            if stored is None:
                raise Refused("not_found", f"there is no job {ref!r} to wait for", "look at them: phalanx ps -a")
            self.known.planner.note_ended(ref, well=stored.state == "completed")
            ids.append(ref)
        return After(tuple(ids), after.any_end)

    def _check_room(self, caller: Caller, more: int) -> None:
        if not more:
            raise Refused("usage", "no job was submitted", "name at least one")
        most, queued = self.known.settings.queued_max(caller.user), self._queued.get(caller.uid, 0)
        if queued + more > most and not (caller.admin and self.known.system):
            raise Refused(
                "too_many",
                f"{caller.user} would have {queued + more} jobs that have not ended, the most is {most}",
                "wait for some to end, or cancel some: phalanx ps",
            )

    def _options(self, caller: Caller, submission: Submission, taken: CheckedSubmission) -> dict[str, Any]:
        """What is remembered beside gang and run."""
        gang = taken.gang
        warning = taken.run.kill_after_warning
        options = {
            "begin_us": taken.begin_us,
            "array": None if submission.array is None else _array_of(submission.array, self.known.now_us()),
            "singleton": submission.singleton,
            "allow_infeasible": submission.allow_infeasible,
            "after": list(gang.after.names),
            "restarts": taken.run.restarts,
            "grace_s": taken.run.grace_s,
            "on_preempt": taken.run.on_preempt,
            "warning": None if warning is None else [warning.signal, warning.before_s],
            "regex": taken.run.progress_regex,
            "infeasible": taken.infeasible,
        }
        if gang.walltime_us is None:
            options["predicted_us"] = self.guess.walltime_us(caller.user, taken.name)
        return {key: value for key, value in options.items() if value not in (None, False, "", [])}

    def _record(
        self,
        caller: Caller,
        submission: Submission,
        taken: CheckedSubmission,
        options: Mapping[str, Any],
        *,
        now_us: int,
        wall: float,
    ) -> JobRecord:
        gang = taken.gang
        return JobRecord(
            id=0,
            uid=caller.uid,
            gid=0,
            user=caller.user,
            name=taken.name,
            queue=gang.queue,
            state="pending",
            gang=bytes(submission.gang),
            run=bytes(submission.run),
            options=msgspec.json.encode(options),
            submit_us=now_us,
            submit_wall=wall,
            held=submission.hold or gang.hold,
        )

    # ------------------------------------------------------------------ arriving

    def drain(self) -> None:
        """Show the engine whoever was acknowledged since; before every pass, and before anybody is told anything.

        An answer to a submit must wait for the disk and for nothing else.
        """
        while self._arriving:
            self._arrive(*self._arriving.popleft())

    def _arrive(self, record: JobRecord, gang: Gang, options: Mapping[str, Any]) -> None:
        job = self.make(record, gang, options)
        self.doomed += self.enter(job, counted=True)
        if not self.pen.listeners:
            return
        told = Happening(0, self.known.iso(job.submit_wall), job.id, "submit", {"name": job.name})
        for listener in list(self.pen.listeners):
            listener(told)

    def make(self, record: JobRecord, gang: Gang, said: Mapping[str, Any] | None = None) -> Job:
        """A job in memory from its row; `gang` as it was read from there, `said` its options if they are known."""
        options = said if said is not None else msgspec.json.decode(record.options) if record.options else {}
        believed = self.known.intake.believe(gang, options.get("predicted_us"))
        changes: dict[str, Any] = {"walltime_us": believed.walltime_us}
        if options.get("after"):
            changes["after"] = After(tuple(options["after"]), gang.after.any_end)
        if options.get("on_preempt") == "requeue":
            changes["preemptible"] = True
        if gang.together is not None:  # whose word it is: others may use the same
            changes["together"] = replace(gang.together, word=f"{record.user}/{gang.together.word}")
        part = options.get("array")
        job = Job(
            id=record.id,
            uid=record.uid,
            gid=record.gid,
            user=record.user,
            name=record.name,
            gang=replace(
                gang, name=str(record.id), user=record.user, submit_us=record.submit_us, hold=False, **changes
            ),
            state=record.state,
            submit_us=record.submit_us,
            submit_wall=record.submit_wall,
            attempt=record.attempt,
            restarts_left=_restarts_left(record, options),
            grace_s=float(options.get("grace_s", 10.0)),
            on_preempt=str(options.get("on_preempt", "kill")),
            begin_us=options.get("begin_us"),
            array=None if part is None else place_of(part, record.uid),
            singleton=bool(options.get("singleton")),
            allow_infeasible=bool(options.get("allow_infeasible")),
            predicted=believed is not gang,
            infeasible=str(options.get("infeasible", "")),
            pin=record.pin,
        )
        job.start_us, job.start_wall = record.start_us, record.start_wall
        job.spent = recall_spent(record)
        job.warning = _warning(options)
        job.regex = str(options.get("regex", ""))
        if record.held:
            job.gates.add(GATE_HOLD)
        return job

    def enter(self, job: Job, *, counted: bool = False) -> list[int]:
        """Show a job to the engine; the answer is who is cancelled because of what it waits for."""
        now_us = self.known.now_us()
        if not counted:
            self._queued[job.uid] = self._queued.get(job.uid, 0) + 1
        self.known.register.add(job)
        self._gate(job, now_us)
        number, doomed = self.known.planner.submit(now_us, job.gang, held=bool(job.gates))
        self.known.register.number(job, number)
        if job.begin_us is not None and GATE_BEGIN in job.gates:
            self.errands.agenda.at(job.begin_us, lambda: self.open_gate(job, GATE_BEGIN))
        return doomed

    # ------------------------------------------------------------------ gates

    def _gate(self, job: Job, now_us: int) -> None:
        """What keeps it from its turn for now, that only the core knows."""
        if job.begin_us is not None and job.begin_us > now_us:
            job.gates.add(GATE_BEGIN)
        if job.array is not None and job.array[2]:
            mates = self._arrays.setdefault(job.array.key, [])
            mates.append(job)
            others = [mate for mate in mates if mate is not job and not mate.ended]
            if sum(GATE_ARRAY not in mate.gates for mate in others) >= job.array[2]:
                job.gates.add(GATE_ARRAY)
        if job.singleton:
            mates = self._single.setdefault(self._key(job), [])
            if any(not mate.ended for mate in mates):
                job.gates.add(GATE_SINGLETON)
            mates.append(job)

    @staticmethod
    def _key(job: Job) -> tuple[int, str]:
        """Whose mates it is among; the name it came with, whatever it is called later."""
        job.born = job.born or job.name
        return job.uid, job.born

    def open_gate(self, job: Job, gate: str) -> None:
        """One thing less that keeps it back."""
        if job.ended or gate not in job.gates:
            return
        job.gates.discard(gate)
        if not job.gates:
            self.known.planner.release(self.known.now_us(), job.number)
            self.errands.stir()

    def close_gate(self, job: Job, gate: str) -> None:
        """It may not have its turn for now."""
        job.gates.add(gate)
        self.known.planner.hold(self.known.now_us(), job.number)

    def on_ended(self, job: Job) -> None:
        """A job has ended: its mates may have their turn."""
        self._queued[job.uid] = max(0, self._queued.get(job.uid, 1) - 1)
        if job.array is not None and job.array[2]:
            mates = self._arrays.get(job.array.key, [])
            mates[:] = [mate for mate in mates if not mate.ended]
            self._move_up(mates, GATE_ARRAY, job.array[2])
            if not mates:
                self._arrays.pop(job.array.key, None)
        if job.singleton:
            mates = self._single.get(self._key(job), [])
            mates[:] = [mate for mate in mates if not mate.ended]
            self._move_up(mates, GATE_SINGLETON, 1)

    def _move_up(self, mates: Sequence[Job], gate: str, most: int) -> None:
        """Whoever is next in a line goes through its gate."""
        shut = [mate for mate in mates if gate in mate.gates]
        for mate in move_up(shut, len(mates) - len(shut), most):
            self.open_gate(mate, gate)


def _array_of(part: ArrayPart, now_us: int) -> dict[str, Any]:
    """An element as it is remembered; whoever gave no key means that what is submitted together is one array."""
    return {**msgspec.to_builtins(part), "key": part.key or f"{now_us:x}"}


def place_of(part: Mapping[str, Any], uid: int) -> ArrayPlace:
    """The same as a job has it; arrays of two users may have one key."""
    key = f"{uid}/{part.get('key') or part['of']}"
    return ArrayPlace(str(part["of"]), int(part["index"]), int(part.get("at_most", 0)), key)


def _restarts_left(record: JobRecord, options: Mapping[str, Any]) -> int:
    told = msgspec.json.decode(record.memory) if record.memory else {}
    return int(told.get("restarts_left", options.get("restarts", 0)))


def _warning(options: Mapping[str, Any]) -> tuple[str, float] | None:
    told = options.get("warning")
    return None if told is None else (str(told[0]), float(told[1]))
