"""What attempts are told: by the plan, by their shims and by the clock.

Each of the three comes in here and nowhere else. What becomes of an attempt then is for `starting`, `resizing` and
`ending`; what people want of one comes through `verbs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from phalanx.control.instructions import Leave
from phalanx.frontends.host.core.attempt_phases import AttemptPhase
from phalanx.frontends.host.core.ending import Ending
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.jobs import TIME, Job, Live, remember
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.planner import Acts, Begin
from phalanx.frontends.host.core.resizing import Resizing
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.ports import RunEvent
from phalanx.frontends.host.store import UpdateJob
from phalanx.model.plan import DateVerdict


class Attempts:
    """All attempts of a daemon, as the plan, shims and the clock speak to them."""

    def __init__(self, means: Means, starting: Starting, resizing: Resizing, ending: Ending) -> None:
        """Shims may speak; nobody listens before `begin_listening`."""
        self.known, self.pen, self.errands, self.processes = means.known, means.pen, means.errands, means.processes
        self.starting, self.resizing, self.ending = starting, resizing, ending
        self._listening = asyncio.Event()
        self.processes.launcher.on_event(self._on_event)
        starting.on_started.append(self._set_timers)

    # ------------------------------------------------------------------ the plan

    async def on_plan(self, acts: Acts, doomed: Iterable[int]) -> None:
        """A pass has decided; `doomed` are gangs whose wait was in vain before the plan could see them."""
        register = self.known.register
        if acts.dates:
            # Before anything that follows from it: a promise that a crash forgets is none.
            await self._write_dates(acts.dates)
        for act in acts.done:
            job = register.by_number.get(act.gang)
            if job is None:
                log.error("the plan speaks of gang %d, whom nobody knows", act.gang)
            elif isinstance(act, Begin):
                (self.ending.move if act.again else self.starting.plan)(job, act)
            elif isinstance(act, Leave):
                self.ending.evict(job, act)
            else:
                self.resizing.plan(job, act)
        await self.ending.cancel_others([*acts.cancelled, *doomed])
        for number in acts.infeasible:
            job = register.by_number.get(number)
            if job is not None and not job.infeasible:
                job.infeasible = "can never run here"

    async def _write_dates(self, verdicts: Iterable[DateVerdict]) -> None:
        changes, facts = [], []
        for verdict in verdicts:
            job = self.known.register.by_number.get(verdict.gang)
            if job is None:
                continue
            changes.append(UpdateJob(job.id, memory=remember(job, verdict)))
            earliest = None if verdict.earliest_us is None else self.known.iso_at(verdict.earliest_us)
            facts.append((job.id, "date", {"promised": verdict.promised, "earliest": earliest}))
        await self.pen.commit(*changes, facts=facts)

    # ------------------------------------------------------------------ shims

    async def _on_event(self, event: RunEvent) -> None:
        """What shims tell waits until it is known whose shims they are; of a stray that is known."""
        stray = self.processes.strays.get(event.run)
        if stray is None:
            await self._listening.wait()
        await self.ending.on_event(event)
        if stray is not None and event.kind in ("empty", "lost"):
            stray.set()

    def begin_listening(self) -> None:
        """Recovery is over: every attempt that has a shim is known."""
        self._listening.set()

    # ------------------------------------------------------------------ the clock

    def _set_timers(self, job: Job, live: Live) -> None:
        """It runs, or was found running, and may only get so old."""
        limit_us, started_us = job.gang.kill_after_us, live.started_us
        if limit_us is None or started_us is None:
            return
        if job.warning is not None:
            warn_us = started_us + max(0, limit_us - round(job.warning[1] * 1e6))
            if live.adopted and warn_us <= self.known.now_us():
                warn_us = started_us + limit_us + 1  # it had its warning from the last daemon
            self.errands.agenda.at(warn_us, lambda: self._warn(job, live))
        self.errands.agenda.at(started_us + limit_us, lambda: self._end_for_age(job, live))

    def _warn(self, job: Job, live: Live) -> None:
        """It will be killed for its age soon: who understands is asked to save, and everybody gets the signal."""
        if job.live is not live or live.phase is not AttemptPhase.RUNNING or job.warning is None:
            return
        name, before_s = job.warning
        if self.resizing.all_speak(live, "checkpoint"):
            message = {"type": "checkpoint", "id": f"k{live.attempt}", "deadline_s": before_s}
            self.errands.spawn(self.processes.launcher.tell(live.run, None, message))
        self.errands.spawn(self.processes.launcher.signal(live.run, None, name))

    def _end_for_age(self, job: Job, live: Live) -> None:
        if job.live is live and live.purpose is None:
            self.ending.stop(job, live, TIME, by="its time limit")
