"""What people do to jobs that have not ended: cancel, hold, release, resize, edit, preempt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from phalanx.control.gates import GATE_HOLD
from phalanx.control.spec.errors import show
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.attempt_phases import AttemptPhase
from phalanx.frontends.host.core.ending import Ending
from phalanx.frontends.host.core.intake import check_name
from phalanx.frontends.host.core.jobs import EVICT, Job, Live
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.messages import RefusedRef
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import VOID_US, CloseEstimate, UpdateJob
from phalanx.words import span

#: What `edit` may change, and the key of the gang schema behind it.
EDITABLE: Final = {
    "priority": "priority",
    "time": "walltime",
    "walltime": "walltime",
    "kill_after": "kill_after",
    "deadline": "deadline",
    "queue": "queue",
    "topology": "topology",
    "preemptible": "preemptible",
    "members": "members",
    "select": "select",
}


class Verbs:
    """Each takes a job that the caller may act on."""

    def __init__(self, means: Means, admission: Admission, ending: Ending) -> None:
        """Works on the parts of one core."""
        self.known, self.pen, self.errands = means.known, means.pen, means.errands
        self.admission, self.ending = admission, ending

    async def cancel(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        """Nobody wants it any more; of one that has ended this is true already."""
        await self.ending.cancel(job, caller.user)

    async def do_to_all(
        self, verb: str, caller: Caller, found: Sequence[tuple[str, Job]]
    ) -> tuple[list[Job], list[RefusedRef]]:
        """Cancel, hold or release several in one step: nothing is planned between the first and the last.

        Each is told to the engine before anything is waited for, and what they write goes to the disk together.
        """
        answers = await asyncio.gather(
            *(self._do(verb, caller, job) for _, job in found), return_exceptions=True
        )  # all of them end before anything is raised, or half would be left in the air
        refused = []
        for (ref, _), answer in zip(found, answers, strict=True):
            if isinstance(answer, Refused):
                refused.append(RefusedRef(ref, answer.refusal))
            elif isinstance(answer, BaseException):
                raise answer
        return [job for (_, job), answer in zip(found, answers, strict=True) if answer is None], refused

    async def _do(self, verb: str, caller: Caller, job: Job) -> None:
        if job.id not in self.known.register.by_id:
            raise Refused("conflict", f"job {job.id} has ended: {job.state}", f"run it again: phalanx retry {job.id}")
        await getattr(self, verb)(caller, job, {})

    async def hold(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        """A waiting job is passed over until it is released."""
        self._must_wait(job, "held", f"phalanx cancel {job.id}, or rehearse a stop: phalanx preempt --drill {job.id}")
        self.admission.close_gate(job, GATE_HOLD)
        fact = (job.id, "hold", {"by": caller.user})
        # Its start is up to a person now: what was foreseen of it is neither hit nor missed.
        await self.pen.commit(UpdateJob(job.id, held=True), CloseEstimate(job.id, VOID_US), facts=[fact])
        self.errands.stir()

    async def release(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        """A held job may have its turn."""
        if job.ended:
            raise Refused("conflict", f"job {job.id} has ended: {job.state}", f"run it again: phalanx retry {job.id}")
        if GATE_HOLD not in job.gates:
            raise Refused("conflict", f"job {job.id} is not on hold", f"see what it waits for: phalanx why {job.id}")
        await self.pen.commit(UpdateJob(job.id, held=False), facts=[(job.id, "release", {"by": caller.user})])
        self.admission.open_gate(job, GATE_HOLD)

    async def preempt(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        """Let a running job give everything back as if somebody needed its seats, and wait again."""
        live = job.live
        if live is None or live.phase is not AttemptPhase.RUNNING or live.purpose is not None:
            raise Refused("conflict", f"job {job.id} is {job.state}, not running", f"phalanx show {job.id}")
        if not job.gang.preemptible and not self.ending.resizing.all_speak(live, "yield"):
            raise Refused(
                "conflict",
                f"job {job.id} is not preemptible and its members have not said that they can leave: nobody evicts it, "
                f"and it would begin again from zero{self._say_risk(live, ', {} of work lost')}",
                "submit it with --preemptible or --requeue, or let its script call phalanx.elastic.join(); "
                "see docs/protocol.md",
            )
        if self.known.planner.state.phase_of(job.number) is Phase.PENDING:
            # By a plan of this very moment, whose word has not reached it yet.
            raise Refused("conflict", f"job {job.id} is making way already", f"phalanx why {job.id}")
        by = "a drill" if body.get("drill") else caller.user
        self.known.planner.requeue(self.known.now_us(), job.number)
        fact = (job.id, "evict", {"cause": "drill" if body.get("drill") else "person"})
        await self.ending.stop_now(job, live, EVICT, by, [fact])
        self.errands.stir()

    def warn_preempted(self, job: Job) -> list[str]:
        """What somebody should know who has just had a job leave its seats."""
        live = job.live
        if live is None or self.ending.resizing.all_speak(live, "yield"):
            return []
        risk = self._say_risk(live, ", of up to {} of work")
        return [f"it has no snapshots that anybody knows of: what it does not save on SIGTERM is lost{risk}"]

    def _say_risk(self, live: Live, words: str) -> str:
        since_us = live.saved_us if live.saved_us is not None else live.started_us
        if since_us is None:
            return ""
        return words.format(span(max(0, self.known.now_us() - since_us) / 1e6))

    # ------------------------------------------------------------------ sizes

    async def resize(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        """Pin an elastic job to a size, take the pin away, or change the range of one that waits."""
        if job.ended:
            raise Refused("conflict", f"job {job.id} has ended", f"run it again: phalanx retry {job.id}")
        if "min" in body or "max" in body:
            await self._change_range(caller, job, body)
            return
        wanted = body.get("members")
        members = None if wanted in (None, "auto") else _whole(wanted, "members")
        if members is not None and not job.gang.elastic:
            raise Refused(
                "conflict",
                f"job {job.id} has one size, {job.gang.members_min}",
                f"phalanx edit {job.id} --members {members}"
                if _waits(job)
                else f"submit it anew with a range, as -g 2:8; as it runs: phalanx show {job.id}",
            )
        live = job.live
        if live is not None and live.purpose is not None:
            raise Refused("conflict", f"job {job.id} is being ended", f"phalanx show {job.id}")
        if members is not None and live is not None and not self.ending.resizing.all_speak(live, "shrink"):
            raise Refused(
                "conflict",
                f"job {job.id} runs and has not said that it can change its size",
                "its script must call phalanx.elastic.join(); see docs/protocol.md",
            )
        if not self.known.planner.pin(self.known.now_us(), job.number, members):
            allowed = job.gang.roles[0].sizes.allowed
            sizes = f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 8 else ", ".join(map(str, allowed))
            raise Refused("usage", f"job {job.id} cannot have {members} members", f"it may have {sizes}")
        job.pin = members
        fact = (job.id, "pin", {"members": members, "by": caller.user})
        await self.pen.commit(UpdateJob(job.id, pin=members), facts=[fact])
        self.errands.stir()

    async def _change_range(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        sizes = job.gang.roles[0].sizes
        least = _whole(body.get("min", sizes.least), "min")
        most = _whole(body.get("max", max(sizes.most, least)), "max")
        members: object = least if least == most else {"min": least, "max": most}
        await self.edit(caller, job, {"members": members})

    # ------------------------------------------------------------------ edits

    async def edit(self, caller: Caller, job: Job, body: Mapping[str, Any]) -> None:
        """Change what a waiting job asks for; it keeps its place in time. A name may change any time."""
        wanted = dict(body)
        name = wanted.pop("name", None)
        wrong = next((key for key in wanted if key not in EDITABLE), None)
        if wrong is not None or (name is None and not wanted):
            what = f"{show(wrong)} cannot be edited" if wrong else "nothing to edit"
            raise Refused("usage", what, f"one of: name, {', '.join(EDITABLE)}")
        columns: dict[str, Any] = {}
        if wanted:
            self._must_wait(job, "edited", f"phalanx cancel {job.id}, then submit it anew")
            if job.gang.together is not None:
                raise Refused(
                    "conflict",
                    f"job {job.id} starts together with others, who count on it as it is",
                    f"cancel them and submit them anew: phalanx cancel {job.id}",
                )
            columns |= self._edit_gang(caller, job, wanted)
        if name is not None:
            check_name(str(name))
            self.known.register.rename(job, str(name))
            columns["name"] = str(name)
        fact = (job.id, "edit", {"by": caller.user, "what": dict(body)})
        await self.pen.commit(UpdateJob(job.id, **columns), facts=[fact])
        self.errands.stir()

    def _edit_gang(self, caller: Caller, job: Job, wanted: Mapping[str, Any]) -> dict[str, Any]:
        stored = self.known.store.job(job.id)
        assert stored is not None
        tree: dict[str, Any] = msgspec.json.decode(stored.gang)
        for key, value in wanted.items():
            if value is None:
                tree.pop(EDITABLE[key], None)
            else:
                tree[EDITABLE[key]] = value
        text = msgspec.json.encode(tree)
        self.known.intake.judge(text, job.user)
        if not caller.admin:
            self.admission.check_priority(caller, self.known.intake.read_gang(text))
        stored.gang = text
        edited = self.admission.make(stored, self.known.intake.read_gang(text))
        gang = edited.gang
        job.gang, job.predicted = replace(gang, name=str(job.id)), edited.predicted
        number = self.known.planner.replace(self.known.now_us(), job.number, job.gang, held=bool(job.gates))
        self.known.register.number(job, number)
        return {"gang": text, "queue": gang.queue}

    @staticmethod
    def _must_wait(job: Job, done: str, instead: str) -> None:
        if job.ended:
            raise Refused("conflict", f"job {job.id} has ended: {job.state}", f"run it again: phalanx retry {job.id}")
        if not _waits(job):
            raise Refused("conflict", f"job {job.id} is {job.state}; only a waiting job can be {done}", instead)


def _waits(job: Job) -> bool:
    return job.state == "pending" and job.live is None and job.next is None


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise Refused("usage", f"{what} must be a whole number from 1 (got {show(value)})", "phalanx resize 12 --to 4")
    return value
