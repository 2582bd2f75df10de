"""Why a job is where it is: what blocks it with numbers and names, who is ahead, when it starts, what would help."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from phalanx.control.amounts import least_devices, needs_text
from phalanx.control.explain import word_of_end
from phalanx.control.forecasting.outlook import ForecastInput
from phalanx.control.gates import GATE_RUNNING
from phalanx.control.queue_view import list_ahead
from phalanx.control.sentences import say_blocker, say_more
from phalanx.engine.explain import explain
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.gates_ahead import list_gates
from phalanx.frontends.host.core.happenings import seen_by
from phalanx.frontends.host.core.jobs import Job, Live
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.passers import Passers
from phalanx.frontends.host.core.rows import Rows, may_read, seated
from phalanx.frontends.host.core.sooner import Sooners
from phalanx.frontends.host.core.surpluses import Surpluses
from phalanx.frontends.host.messages import Ahead, Happening, Reason, Why
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.store import EventRecord
from phalanx.model import reason as blame
from phalanx.model.reason import Code
from phalanx.words import devices_text, listing, moment, span

#: Of those ahead so many are named.
NAMED_MOST: Final = 5
DECISIONS_MOST: Final = 20
_PAGE: Final = 1000
_NOBODY: Final = Ahead(0, 0.0, [])


class Whys:
    """Answers `why`."""

    def __init__(self, known: Knowledge, forecaster: Forecaster, rows: Rows) -> None:
        """Knows nothing of its own."""
        self.known = known
        self.forecaster, self.rows = forecaster, rows
        self.sooners = Sooners(self.known, forecaster, rows)
        self.passers, self.surpluses = Passers(self.known, rows), Surpluses(self.known, forecaster)

    async def why(self, job: Job, caller: Caller | None = None) -> Why:
        """Everything that explains where a job stands."""
        reads = may_read(caller, job.uid)
        if job.state == "pending" and job.live is None and job.next is None:
            return await self._why_waiting(job, reads=reads)
        if job.ended:
            reason = self._say_ended(job, reads=reads)
        elif job.live is not None and job.next is None and not (job.live.phase.at_gate and self.known.store.full):
            reason = Reason("Stopping" if job.live.purpose else "Running", self._say_running(job, job.live))
        else:
            reason = self.rows.reason(job, {}) or Reason("Starting", "is being started")
        return self._answer(job, reason, reads=reads, surplus=await self.surpluses.find(job))

    def _answer(self, job: Job, reason: Reason | None, *, reads: bool, **more: Any) -> Why:
        since = job.end_wall if job.ended else job.start_wall if job.state != "pending" else None
        parts: dict[str, Any] = {"blockers": [], "ahead": _NOBODY, "eta": None, "sooner_if": [], **more}
        return Why(
            id=job.id,
            name=job.name,
            state=job.state,  # type: ignore[arg-type]
            reason=reason,
            needs=needs_text(job.gang),
            queue=job.queue,
            since=self.known.iso(job.submit_wall if since is None else since),
            decisions=self.story(job.id, DECISIONS_MOST, reads=reads),
            **parts,
        )

    def story(self, job: int, most: int, *, reads: bool) -> list[Happening]:
        """The last things that happened to a job."""
        records: list[EventRecord] = []
        page = self.known.store.events(job=job, limit=_PAGE)
        records += page
        while len(page) == _PAGE:  # a job of many changes: its last words are further on
            page = self.known.store.events(job=job, since=page[-1].seq, limit=_PAGE)
            records = [*records, *page][-most:]
        told = []
        for record in records[-most:]:
            data: dict[str, Any] = msgspec.json.decode(record.data) if record.data else {}
            shown = seen_by(data, reads=reads)
            told.append(Happening(record.seq, self.known.iso(record.wall), job, record.event, shown))
        return told

    # ------------------------------------------------------------------ waiting

    async def _why_waiting(self, job: Job, *, reads: bool) -> Why:
        reason = self.reason(job)
        etas = await self.forecaster.forecasts([job.id])
        in_order = list_ahead(self.known.planner.state, self.known.planner.policy, job.number)
        ahead, rivals = self._find_ahead(job, self._list_bounded(job) if in_order is None else in_order)
        blockers: list[Reason] = []
        if job.gates:
            blockers = [each for each in self._list_gates(job) if each != reason]
        elif reason is not None and reason.code != Code.INFEASIBLE.word:
            # One that starts late is blocked by nobody else: the sentence of its dominant blocker says it all.
            ground = self.forecaster.ground({job.number})
            others = await asyncio.to_thread(self._look_around, ground, job.number)
            blockers = [self._blocker(job, other) for other in others if other.code.word != reason.code]
        sooner = await self.sooners.find(job, reason, rivals)
        eta = None if self.known.store.full else etas.get(job.id)
        more: dict[str, Any] = {"blockers": blockers, "ahead": ahead, "sooner_if": sooner}
        if in_order is not None:
            starts = await self.forecaster.starts_before(job)
            more["passed_by"], more["fills_after"] = self.passers.find(job, starts, in_order)
        return self._answer(job, reason, reads=reads, eta=None if eta is None else self.rows.eta(eta), **more)

    def reason(self, job: Job) -> Reason | None:
        """Why a job is where it is, with the numbers and names of this machine."""
        told = self.rows.explained([] if job.gates or job.number < 0 else [job.number])
        reason = self.rows.reason(job, told.reasons)
        if reason is None or job.gates or job.state != "pending" or job.live or job.next:
            return reason
        code = told.reasons[job.number][0] if job.number in told.reasons else None
        # Of a fault of the machine the sentence is about that.
        if code is None or reason.code != code.word or code is Code.INFEASIBLE:
            return reason
        return Reason(reason.code, self.say(job, code, reason), reason.needed, reason.available)

    def _list_gates(self, job: Job) -> list[Reason]:
        """All that it waits for before it has a turn: gates of the core, and jobs that it comes after."""
        after, gates = self._say_after(job), self.rows.gate_reasons(job)
        return [*gates, Reason(Code.DEPENDENCY_WAITING.word, after)] if after else gates

    def _look_around(self, ground: ForecastInput, number: int) -> tuple[blame.Reason, ...]:
        """In another thread, on a copy."""
        return explain(ground.state.borrow(), self.known.planner.policy, number)

    def _blocker(self, job: Job, found: blame.Reason) -> Reason:
        reason = Reason(found.code.word, say_blocker(found, job.gang), found.needed, found.available)
        return Reason(reason.code, self.say(job, found.code, reason), found.needed, found.available)

    def _list_bounded(self, job: Job) -> list[int] | None:
        """Who goes before one that only waits for a ceiling; None: something else keeps it from its turn."""
        if job.gates != {GATE_RUNNING}:
            return None
        state = self.known.planner.state
        return list_gates(self.known, state).list_ahead(state, job.number)

    def _find_ahead(self, job: Job, numbers: list[int] | None) -> tuple[Ahead, int]:
        """Who has its turn before a job, and the highest priority among them."""
        by_number = self.known.register.by_number
        if numbers is None:
            return _NOBODY, job.gang.priority
        found = [by_number[each] for each in numbers if each in by_number]
        named = [
            {"id": j.id, "name": j.name, "user": j.user, "gpus": least_devices(j.gang)} for j in found[:NAMED_MOST]
        ]
        highest = max((other.gang.priority for other in found if other.queue == job.queue), default=job.gang.priority)
        return Ahead(len(found), sum(least_devices(other.gang) for other in found), named), highest

    # ------------------------------------------------------------------ sentences

    def say(self, job: Job, code: Code, reason: Reason) -> str:
        """The sentence of a blocker with the numbers and names of this machine."""
        if code is Code.DEPENDENCY_WAITING:
            return self._say_after(job) or reason.message
        closed = [f"gpu {each} is not given away ({why})" for each, why in sorted(self.known.occupancy.closed.items())]
        told = say_more(self.rows.scene(), job.number, reason.message, code, closed)
        # What the last attempt left as its word is no part of what the state knows.
        last = job.reason[1] if code is Code.BACKOFF and job.reason is not None else ""
        return f"{told}; the last time: {last}" if last and told.startswith("failed") else told

    def _say_after(self, job: Job) -> str:
        others = (self.known.register.by_id.get(int(name)) for name in job.gang.after.names if name.isdecimal())
        words = [
            f"{other.id} ({other.name}, {other.state})" for other in others if other is not None and not other.ended
        ]
        return f"waits for the {word_of_end(job.gang)} of {listing(words)}" if words else ""

    # ------------------------------------------------------------------ running

    def _say_running(self, job: Job, live: Live) -> str:
        """Why here, why this size, until when."""
        present = seated(live)
        devices = sorted({device for member in present for device, _ in member.devices})
        where = devices_text(devices) or self.known.node
        islands = {self.known.devices[device].island for device in devices}
        near = ", all in one island" if len(devices) > 1 and len(islands) == 1 else ""
        parts = [f"runs on {where}{self._say_attempt(live)}{near}", self._say_size(job, live, len(present))]
        if live.purpose is not None:
            parts.append(f"it is being stopped ({live.by})" if live.by else "it is being stopped")
        else:
            parts.append(self._say_until(job))
        return "; ".join(part for part in parts if part)

    def _say_attempt(self, live: Live) -> str:
        since = "" if live.started_us is None else f" since {self._moment(live.started_us)}"
        return f"{since}, attempt {live.attempt}" if live.attempt > 1 else since

    def _say_size(self, job: Job, live: Live, size: int) -> str:
        gang = job.gang
        if not gang.elastic:
            return f"{size} member{'' if size == 1 else 's'} as asked" if size == gang.members_min else f"{size} left"
        text = f"{size} of {gang.members_min}:{gang.members_max} members"
        if job.pin is not None:
            return f"{text}, since somebody wants {job.pin} (phalanx resize {job.id} auto takes that back)"
        if size >= gang.members_max:
            return f"{text}, its largest"
        if any(member.speaks is None or "shrink" not in member.speaks for member in live.present()):
            return f"{text}: its members have not said that they can be resized"
        return f"{text}: it grows when GPUs are idle and shrinks when somebody needs them to start"

    def _say_until(self, job: Job) -> str:
        """By what is believed of it; never a promise."""
        state = self.known.planner.state
        if not 0 <= job.number < len(state.gangs) or not state.phase_of(job.number).seated:
            return ""
        end_us = state.end_of(job.number)
        told = job.progress or {}
        if told.get("total") and told.get("rate"):
            left_s = max(0.0, (float(told["total"]) - float(told["step"])) / float(told["rate"]))
            text = f"it says that it needs {span(left_s)} more"
        elif job.gang.walltime_us is None:
            text = "nobody said how long it runs"
        elif end_us <= self.known.now_us():
            text = f"it should have ended at {self._moment(end_us)}, by what was said of it"
        else:
            text = f"until about {self._moment(end_us)}, by {self._say_source(job, job.gang.walltime_us)}"
        if job.gang.kill_after_us is not None and job.live is not None and job.live.started_us is not None:
            text += f", killed at {self._moment(job.live.started_us + job.gang.kill_after_us)}"
        return text

    def _say_source(self, job: Job, walltime_us: int) -> str:
        """By what an end is believed; a stated time is that of the largest size."""
        if job.predicted:
            return "its earlier runs"
        most = job.gang.members_max
        if not job.gang.elastic or job.live is None or len(seated(job.live)) >= most:
            return "its --time"
        return f"its --time of {span(walltime_us / 1e6)} with {most} members, at the size that it has"

    def _moment(self, at_us: int) -> str:
        return moment(self.known.wall_at(at_us), self.known.clock.wall_s())

    # ------------------------------------------------------------------ ended

    def _say_ended(self, job: Job, *, reads: bool) -> Reason:
        """Why it ended, how often it was evicted and for whom, what was lost."""
        told = self.rows.reason(job, {}, reads=reads)
        parts = [told.message if told is not None else _ENDINGS.get(job.state, job.state)]
        evicted = [each for each in self.story(job.id, 1000, reads=False) if each.event == "evict"]
        if evicted:
            times = "once" if len(evicted) == 1 else f"{len(evicted)} times"
            whom = evicted[-1].data.get("for")
            last = f", {'last ' if len(evicted) > 1 else ''}for {whom}" if whom else ""
            parts.append(f"it was evicted {times}{last}")
        lost = job.ledger.get("lost", 0.0)
        if lost >= 1:
            parts.append(f"{span(lost)} of GPU time were lost")
        return Reason(told.code if told is not None else job.state.capitalize(), "; ".join(parts))


_ENDINGS: Final = {"completed": "all members exited with code 0", "cancelled": "it was cancelled"}
