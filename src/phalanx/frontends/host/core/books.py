"""Where the device time of real runs went, in the words of the simulator's ledger.

Productive is what nobody can call anything else: after the first step that a job reports (or from
its start, if it reports none), outside changes of size, and not lost. Lost is the time since the
last word of saved work when an attempt ends before its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.frontends.host.core.attempt_phases import AttemptPhase
from phalanx.frontends.host.core.jobs import EVICT, MOVE, Job, Live, Member
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.model.resources import MILLI

#: Slower than this is no progress, and longer than this nobody plans.
RATE_LEAST = 1e-9
RATE_MOST = 1e12
LEFT_MOST_S = 10 * 365 * 86_400.0


class Books:
    """Keeps the ledger of every job."""

    def __init__(self, known: Knowledge) -> None:
        """Nothing was spent yet."""
        self.known = known
        self._resize_s: dict[str, float] = {}

    def note_status(self, job: Job, live: Live, message: Mapping[str, Any]) -> None:
        """A member says how far it is."""
        now_us = self.known.now_us()
        step = message.get("step")
        if step is not None:
            if live.first_step_us is None:
                live.first_step_us = now_us
            old = job.progress or {}
            rate = message.get("rate")
            if rate is not None and not RATE_LEAST < rate < RATE_MOST:
                rate = None
            size, before = _count_working(live), old.get("members")
            if rate is None and before and before != size and old.get("rate"):
                # Measured at another size: by its curve until it is measured at this one. Taken as it was, a gang that
                # has just shrunk would seem to be done as early as before, and its date to need less.
                rate = float(old["rate"]) * self.known.planner.state.compare_speeds(job.number, size, before)
            elif rate is None and old.get("step") is not None and now_us > old.get("at_us", 0):
                gained = float(step) - float(old["step"])
                seconds = (now_us - int(old["at_us"])) / 1e6
                rate = gained / seconds if gained > 0 else old.get("rate")
            total = message.get("total", old.get("total"))
            job.progress = {"step": step, "total": total, "rate": rate, "at_us": now_us, "members": size}
        if message.get("saved_step") is not None:
            age_s = float(message.get("saved_age_s") or 0.0)
            live.saved_us = max(live.saved_us or 0, now_us - round(age_s * 1e6))
        self._report(job, live, now_us)

    def _report(self, job: Job, live: Live, now_us: int) -> None:
        """Tell the planner when a job that knows its total will be done."""
        progress = job.progress or {}
        step, total, rate = progress.get("step"), progress.get("total"), progress.get("rate")
        end_us = None
        if step is not None and total and rate and rate > RATE_LEAST and job.gang.elastic:
            left_s = max(0.0, float(total) - float(step)) / float(rate)
            # To the planner a gang has its new size from the plan on; what it says meanwhile is of the old one.
            planned = sum(seats.members for seats in self.known.planner.state.seats_of(job.number))
            if planned and progress.get("members"):
                left_s *= self.known.planner.state.compare_speeds(job.number, int(progress["members"]), planned)
            end_us = now_us + round(min(left_s, LEFT_MOST_S) * 1e6)
        if live.purpose is None and live.phase is AttemptPhase.RUNNING:
            self.known.planner.report(now_us, job.number, end_us, live.saved_us)

    def note_resize(self, job: Job, live: Live, seconds: float) -> None:
        """A change of size took so long, for everybody in it."""
        self._resize_s[live.run] = self._resize_s.get(live.run, 0.0) + seconds * self._gpus(live.present())

    def note_left(self, job: Job, live: Live, members: list[Member]) -> None:
        """Members left a running attempt: their part of the books is closed."""
        self._book(job, live, members, lost=False)

    def close(self, job: Job, live: Live, outcome: str) -> None:
        """An attempt is over."""
        lost = outcome in ("again", "restart", "failed")
        staying = [member for member in live.members.values() if not member.leaving]
        self._book(job, live, staying, lost=lost)
        if live.started_us is not None:
            job.spent.ran_us += max(0, self.known.now_us() - live.started_us)
            job.spent.attempts += 1
            job.spent.gpus = self._gpus(staying)
        resized = self._resize_s.pop(live.run, 0.0)
        if resized:
            moved = min(resized, job.ledger.get("productive", 0.0))
            job.ledger["productive"] = job.ledger.get("productive", 0.0) - moved
            job.ledger["resize"] = job.ledger.get("resize", 0.0) + moved
        if lost:
            cause = "preempt" if live.purpose in (EVICT, MOVE) else "failure"
            self.known.meters.count_lost(cause, job.ledger.get("lost", 0.0))

    def _book(self, job: Job, live: Live, members: list[Member], *, lost: bool) -> None:
        if live.started_us is None:
            return
        now_us, gpus = self.known.now_us(), self._gpus(members)
        start_us = live.started_us
        works_us = min(now_us, max(start_us, live.first_step_us or start_us))
        kept_us = now_us
        if lost:
            kept_us = min(now_us, max(works_us, live.saved_us or works_us))
        for part, span_us in (
            ("startup", works_us - start_us),
            ("productive", kept_us - works_us),
            ("lost", now_us - kept_us),
        ):
            if span_us > 0:
                job.ledger[part] = job.ledger.get(part, 0.0) + gpus * span_us / 1e6

    def progressed(self, job: Job) -> bool:
        """Whether the last attempt saved anything."""
        return bool(job.progress) and job.ledger.get("productive", 0.0) > 0

    @staticmethod
    def _gpus(members: list[Member]) -> float:
        return sum(milli for member in members for _, milli in member.devices) / MILLI


def _count_working(live: Live) -> int:
    """Members whose work a rate is of: those who leave work until they are gone, those who come not before."""
    coming = live.resizing.joining if live.resizing is not None else frozenset()
    return sum(member.key not in coming for member in live.present())
