"""Changes of size while a gang runs, and what members say of themselves.

A shrink names who leaves and waits until they are gone; a growth brings new members to a gate of
their own, asks the old ones to make ready, and lets the new ones through. Ranks afterwards: whoever
stays, in the order of the old ranks, then whoever came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.control.instructions import SeatChange
from phalanx.control.resizes import say_resize
from phalanx.frontends.host.core.attempt_phases import AttemptPhase
from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.intake import read_run
from phalanx.frontends.host.core.jobs import Job, Live, Member, ResizeUnderWay
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.pen import Fact
from phalanx.frontends.host.core.planner import Begin
from phalanx.frontends.host.core.resize_phases import ResizeEvent, ResizePhase
from phalanx.frontends.host.core.seatmap import join_seats, match
from phalanx.frontends.host.core.starting import Starting, note_ready
from phalanx.frontends.host.crashpoints import crashpoint
from phalanx.frontends.host.launching.shortages import explain_shortage
from phalanx.frontends.host.ports import CannotStart
from phalanx.model.plan import Cause
from phalanx.wire import WireError
from phalanx.wire.vocabulary import FROM_JOB, check


class Resizing:
    """Carries resizes out."""

    def __init__(self, means: Means, starting: Starting, books: Books) -> None:
        """Nothing is under way."""
        self.known, self.pen, self.errands, self.processes = means.known, means.pen, means.errands, means.processes
        self.starting, self.books = starting, books
        self._lost: dict[str, list[Member]] = {}  # members that died while their gang was changing, by run
        self._later: dict[int, SeatChange] = {}  # the newest wish for a job that is changing already
        self.on_elsewhere: Callable[[Job, Begin], None] = lambda job, begin: None  # nobody can stay where they are
        starting.on_started.append(self._started)

    # ------------------------------------------------------------------ words of members

    def on_message(self, job: Job, live: Live, key: int, message: Mapping[str, Any]) -> None:
        """A member says something of its own. The shim may be its user's, so nothing is believed unread."""
        member = live.members.get(key)
        try:
            message = check(FROM_JOB, message)
        except WireError as bad:
            log.info("job %d says something that makes no sense: %s", job.id, bad)
            return
        kind = message["type"]
        if member is None:
            return
        if kind == "hello":
            member.speaks = frozenset(str(word) for word in message.get("speaks", ()))
            self._note_manners(job, live)
        elif kind == "status":
            self.books.note_status(job, live, message)
        elif kind == "answer":
            self._on_answer(job, live, member, message)

    def all_speak(self, live: Live, word: str) -> bool:
        """Whether every present member understands this."""
        present = live.present()
        return bool(present) and all(member.speaks is not None and word in member.speaks for member in present)

    def _note_manners(self, job: Job, live: Live) -> None:
        if job.gang.elastic and live.purpose is None and self.all_speak(live, "shrink"):
            self.known.planner.set_manners(self.known.now_us(), job.number, elastic=True)
            self.errands.stir()

    def _on_answer(self, job: Job, live: Live, member: Member, message: Mapping[str, Any]) -> None:
        under, refused = live.resizing, message.get("verdict") == "refuse"
        if under is None or message.get("id") != under.id:
            return
        if refused:
            log.info("job %d refuses to change: %s", job.id, message.get("why"))
            if under.joining:
                self.errands.spawn(self._revert(job, live, under, str(message.get("why") or "the job refused")))
            else:
                self._insist(job, live, under)
            return
        if message.get("verdict") == "done":
            under.done.add(member.key)
        if under.joining and _everybody_ready(live, under):
            self.errands.spawn(self._let_in(job, live, under))

    # ------------------------------------------------------------------ changes

    def plan(self, job: Job, change: SeatChange) -> None:
        """The plan gives it other seats."""
        live = job.live
        if live is None or job.next is not None:
            self.starting.plan(job, Begin(job.number, change.seats))
            return
        if live.purpose is not None:
            return
        if live.resizing is not None or live.phase is not AttemptPhase.RUNNING:
            self._later[job.id] = change
            return
        self._begin(job, live, change)

    def _started(self, job: Job, live: Live) -> None:
        change = self._later.pop(job.id, None)
        if change is not None and live.purpose is None:
            self._begin(job, live, change)

    def _begin(self, job: Job, live: Live, change: SeatChange) -> None:
        leaving, places = match(job.gang, change.seats, live.present())
        if not leaving and not places:
            return
        if leaving and len(leaving) == len(live.present()):
            # Of several changes that came while it could not change, only the last is left; each kept somebody, and
            # together they keep nobody. Newcomers cannot go first: whoever sits there may wait for seats of ours.
            self.on_elsewhere(job, Begin(job.number, change.seats, again=True))
            return
        fresh = max(live.newest, *live.members) + 1
        live.newest = fresh + len(places) - 1 if places else live.newest
        joining = [
            Member(fresh + at, role, devices, rank=-1, joined=live.generation + 1)
            for at, (role, devices) in enumerate(places)
        ]
        self._go(job, live, leaving, joining, _say_why(self.known, change))

    def _go(
        self, job: Job, live: Live, leaving: list[Member], joining: list[Member], why: Mapping[str, Any] | None = None
    ) -> None:
        live.generation += 1
        under = ResizeUnderWay(
            id=f"r{live.attempt}.{live.generation}",
            generation=live.generation,
            leaving=frozenset(member.key for member in leaving),
            joining=frozenset(member.key for member in joining),
            since_us=self.known.now_us(),
            why=why or {},
        )
        live.resizing = under
        for member in leaving:
            member.leaving = True
        self.errands.spawn(self._carry_out(job, live, under, joining))

    async def _carry_out(self, job: Job, live: Live, under: ResizeUnderWay, joining: list[Member]) -> None:
        staying = [member for member in live.present() if not member.leaving]
        for member in joining:
            live.members[member.key] = member
        if not self._goes_on(job, live):  # its row may be gone already, and must not come back
            return
        intent = {"generation": under.generation, "leaving": sorted(under.leaving), "joining": sorted(under.joining)}
        await self.pen.commit(self.pen.put_run(live, resize=intent))
        crashpoint("resize.after_commit")
        if not self._goes_on(job, live):
            return
        if under.leaving:
            await self._ask_to_leave(job, live, under, staying)
        if not joining:
            self.on_exit(job, live)
            return
        self._await_seats(job, live, under, joining)

    async def _ask_to_leave(self, job: Job, live: Live, under: ResizeUnderWay, staying: list[Member]) -> None:
        message = {
            "type": "shrink",
            "id": under.id,
            "generation": under.generation,
            "members": max(1, len(staying)),
            "leaving": sorted(under.leaving),
            "ranks": sorted(member.key for member in staying),
            "deadline_s": self.known.settings.resize_s,
        }
        await self.processes.launcher.tell(live.run, None, message)
        self.errands.agenda.at(
            self.known.now_us() + round(self.known.settings.resize_s * 1e6), lambda: self._insist(job, live, under)
        )

    def _insist(self, job: Job, live: Live, under: ResizeUnderWay) -> None:
        """Their time is over: whoever had to leave and is still there is made to."""
        if live.resizing is under and live.purpose is None:
            late = [key for key in under.leaving if not live.members[key].exited]
            if late:
                self.errands.spawn(self.processes.launcher.stop(live.run, late, "TERM", job.grace_s))

    def on_exit(self, job: Job, live: Live) -> None:
        """Somebody who had to leave is gone; when all are, the change is done."""
        under = live.resizing
        if under is None or any(not live.members[key].exited for key in under.leaving):
            return
        if not under.joining:
            self.errands.spawn(self._finish(job, live, under))
        else:
            self._await_seats(job, live, under, [live.members[key] for key in sorted(under.joining)])

    def on_quit(self, job: Job, live: Live) -> None:
        """A member is done while others come: nobody waits for its answer any more."""
        under = live.resizing
        if under is None or not under.joining or under.phase is ResizePhase.CLEARING:
            return
        if not any(member.key not in under.joining for member in live.present()):
            self.errands.spawn(self._revert(job, live, under, "the job was done before the new members came"))
        elif _everybody_ready(live, under):
            self.errands.spawn(self._let_in(job, live, under))

    @staticmethod
    def _goes_on(job: Job, live: Live) -> bool:
        """Whether it is still running and wanted; asked after every wait."""
        return job.live is live and live.phase is AttemptPhase.RUNNING and live.purpose is None and bool(live.present())

    # ------------------------------------------------------------------ growing

    def _await_seats(self, job: Job, live: Live, under: ResizeUnderWay, joining: list[Member]) -> None:
        """New members come when their seats are really free; until then somebody looks again now and then."""
        if live.resizing is not under or live.purpose is not None or under.phase is not ResizePhase.CLEARING:
            return
        waits = any(not live.members[key].exited for key in under.leaving)
        if waits or self.known.occupancy.blockers(joining):
            later = None if waits else self._later.pop(job.id, None)
            if later is not None:
                self.errands.spawn(self._supersede(job, live, under, later))
                return
            self.errands.agenda.at(self.known.now_us() + 200_000, lambda: self._await_seats(job, live, under, joining))
            return
        under.advance(ResizeEvent.SEATS_FREE)
        self.known.occupancy.take(live, joining)
        self.errands.spawn(self._bring(job, live, under, joining))

    async def _supersede(self, job: Job, live: Live, under: ResizeUnderWay, change: SeatChange) -> None:
        """Seats that it waits for are not wanted any more: it goes on from where it is to what is wanted now.

        Else two gangs of whom each was told to grow and then to give something back could wait for each other's seats
        for ever, each with the newer word behind the older one.
        """
        if live.resizing is not under or under.phase is not ResizePhase.CLEARING:
            return
        for key in sorted(under.joining):
            live.members.pop(key)
        if under.leaving:  # those who left are a change of their own, which is done
            under.joining = frozenset()
            self._later[job.id] = change
            await self._finish(job, live, under)
            return
        under.advance(ResizeEvent.REPLACED)
        await self.pen.commit(self.pen.put_run(live))
        if live.resizing is under:
            live.resizing = None
            # A newer word may have come meanwhile.
            change = self._later.pop(job.id, change)
            if self._goes_on(job, live) and not self._close_ranks(job, live):
                self._begin(job, live, change)
            self.errands.stir()

    async def _bring(self, job: Job, live: Live, under: ResizeUnderWay, joining: list[Member]) -> None:
        if under.leaving:  # those who left are a change of their own, which is done now
            live.generation += 1
            under.generation, under.id = live.generation, f"r{live.attempt}.{live.generation}"
            under.done.clear()
            for member in joining:
                member.joined = live.generation
        self._number_ranks(live, under)
        try:
            orders = self.starting.orders(job, live, read_run(self.known.store.load_run(job.id)), joining)
            note_ready(live, await self.processes.launcher.add(live.run, under.generation, orders))
            if not self._goes_on(job, live):
                return
            if under.phase is not ResizePhase.BRINGING:  # called off meanwhile: whoever came goes home
                await self.processes.launcher.abort(live.run)
                return
            intent = {"generation": under.generation, "leaving": [], "joining": sorted(under.joining)}
            await self.pen.commit(self.pen.put_run(live, resize=intent))
            if not under.advance(ResizeEvent.AT_GATE):
                return
        except CannotStart as bad:
            await self._revert(job, live, under, str(bad))
            return
        except OSError as bad:
            await self._revert(job, live, under, explain_shortage(bad))
            return
        old = [member.key for member in live.present() if member.key not in under.joining and not member.leaving]
        message = {
            "type": "prepare",
            "id": under.id,
            "generation": under.generation,
            "members": len(old) + len(joining),
            "joining": sorted(under.joining),
            "ranks": sorted([*old, *under.joining]),
            "deadline_s": self.known.settings.resize_s,
        }
        await self.processes.launcher.tell(live.run, old, message)
        self.errands.agenda.at(
            self.known.now_us() + round(self.known.settings.resize_s * 1e6), lambda: self._give_up(job, live, under)
        )
        if _everybody_ready(live, under):
            await self._let_in(job, live, under)

    def _give_up(self, job: Job, live: Live, under: ResizeUnderWay) -> None:
        if live.resizing is under and live.purpose is None and under.joining:
            self.errands.spawn(self._revert(job, live, under, "the old members were not ready in time"))

    async def _let_in(self, job: Job, live: Live, under: ResizeUnderWay) -> None:
        if live.resizing is not under or not self._goes_on(job, live) or not under.advance(ResizeEvent.READY):
            return
        try:
            await self.processes.launcher.go(live.run, under.generation)
        except CannotStart as bad:
            await self._revert(job, live, under, str(bad), ResizeEvent.CANNOT)
            return
        await self._finish(job, live, under, ResizeEvent.WENT)

    async def _revert(
        self, job: Job, live: Live, under: ResizeUnderWay, why: str, event: ResizeEvent = ResizeEvent.GIVE_UP
    ) -> None:
        """It goes on as it was; nobody counts on its size for the rest of this attempt."""
        waited = under.phase is ResizePhase.CLEARING
        if live.resizing is not under or not under.advance(event):
            return
        live.resizing = None
        joined = [live.members.pop(key) for key in sorted(under.joining)]
        if not waited:
            await self.processes.launcher.abort(live.run)  # those at the gate; whoever went through it stays
            await self._call_off(live, under)
        self.known.occupancy.give(live, joined)
        if not self._goes_on(job, live):
            return
        gone = [live.members[key] for key in under.leaving if live.members[key].exited]
        self.known.occupancy.give(live, gone)
        for key in under.leaving:
            live.members[key].leaving = live.members[key].exited
        now_us = self.known.now_us()
        seats = join_seats(job.gang, live.present(), len(self.known.devices))
        self.known.planner.resize_to(now_us, job.number, seats, Cause.PIN)
        self.known.planner.set_manners(now_us, job.number, elastic=False)
        await self.pen.commit(self.pen.put_run(live), facts=[(job.id, "refuse", {"why": why})])
        self._settle_claims()
        self._close_ranks(job, live)
        self.errands.stir()

    async def _tell_world(self, live: Live) -> None:
        """For whoever connects anew: the world as it is now."""
        names = sorted(member.key for member in live.present())
        message = {"type": "welcome", "generation": live.generation, "members": max(1, len(names)), "ranks": names}
        await self.processes.launcher.tell(live.run, None, message)

    async def _call_off(self, live: Live, under: ResizeUnderWay) -> None:
        """Whoever made ready for more learns that they do not come: a shrink of those, in the next generation."""
        live.generation += 1
        staying = sorted(member.key for member in live.present())
        message = {
            "type": "shrink",
            "id": f"r{live.attempt}.{live.generation}",
            "generation": live.generation,
            "members": max(1, len(staying)),
            "leaving": sorted(under.joining),
            "ranks": staying,
            "deadline_s": self.known.settings.resize_s,
            "why": "the growth was called off",
        }
        await self.processes.launcher.tell(live.run, staying, message)

    def _settle_claims(self) -> None:
        """Whoever was given seats that are not coming free waits again."""
        for number in list(self.starting.waiting):
            job = self.known.register.by_id[number]
            live = job.next
            if live is None or job.live is not None:
                continue
            busy = {run for run in self.known.occupancy.blockers(live.members.values()) if "." in run}
            stays = [run for run in busy if self._stays(run)]
            if stays:
                self.starting.drop(job)
                self.known.planner.requeue(self.known.now_us(), job.number)
                job.state = "pending"

    def _stays(self, run: str) -> bool:
        holder = self.known.register.by_id.get(int(run.partition(".")[0]))
        live = None if holder is None else holder.live
        return live is not None and live.run == run and live.purpose is None and live.resizing is None

    # ------------------------------------------------------------------ done

    def _number_ranks(self, live: Live, under: ResizeUnderWay) -> None:
        staying = [m for m in live.present() if not m.leaving and m.key not in under.joining]
        for rank, member in enumerate(staying):
            member.rank = rank
        for at, key in enumerate(sorted(under.joining)):
            live.members[key].rank = len(staying) + at

    async def _finish(
        self, job: Job, live: Live, under: ResizeUnderWay, how: ResizeEvent = ResizeEvent.CLEARED
    ) -> None:
        if live.resizing is not under or not self._goes_on(job, live) or not under.advance(how):
            return
        live.resizing = None
        gone = [live.members[key] for key in under.leaving]
        seconds = (self.known.now_us() - under.since_us) / 1e6
        self.books.note_left(job, live, gone)
        self.books.note_resize(job, live, seconds)
        self._number_ranks(live, under)
        size = len(live.present())
        event = "grow" if len(under.joining) > len(under.leaving) else "shrink" if under.leaving else "grow"
        data = {"members": size, "generation": under.generation, "took_s": round(seconds, 3), **under.why}
        fact: Fact = (job.id, event, data)
        crashpoint("resize.before_done")
        await self.pen.commit(self.pen.put_run(live), facts=[fact])
        self.known.meters.count_resize(event, seconds)
        if gone:  # whatever they left behind goes too
            await self.processes.launcher.stop(live.run, [member.key for member in gone], "KILL", 0.0)
            await self.processes.hand_over(live, gone)
        await self._tell_world(live)
        self._note_manners(job, live)
        if not self._close_ranks(job, live):
            later = self._later.pop(job.id, None)
            if later is not None and self._goes_on(job, live):
                self._begin(job, live, later)
        self.starting.try_all()
        self.errands.stir()

    # ------------------------------------------------------------------ after a restart of the daemon

    def resume(self, job: Job, live: Live) -> None:
        """A shrink was under way when the last daemon stopped: ask again, by the same id."""
        late = [member for member in live.present() if member.leaving]
        if live.purpose is not None or not late:
            return
        under = ResizeUnderWay(
            id=f"r{live.attempt}.{live.generation}",
            generation=live.generation,
            leaving=frozenset(member.key for member in late),
            joining=frozenset(),
            since_us=self.known.now_us(),
        )
        live.resizing = under
        staying = [member for member in live.present() if not member.leaving]
        self.errands.spawn(self._ask_to_leave(job, live, under, staying))

    # ------------------------------------------------------------------ losses

    def close_ranks(self, job: Job, live: Live, lost: Member) -> bool:
        """A member died: go on with fewer, if the others understand that and enough are left."""
        if live.phase is not AttemptPhase.RUNNING or not job.gang.elastic or len(job.gang.roles) != 1:
            return False
        coming = live.resizing.joining if live.resizing is not None else frozenset()
        left = [member for member in live.present() if not member.leaving and member.key not in coming]
        understand = all(member.speaks is not None and "shrink" in member.speaks for member in left)
        if len(left) < job.gang.roles[0].sizes.least or not understand:
            return False
        lost.leaving = True
        self._lost.setdefault(live.run, []).append(lost)
        if live.resizing is None:
            self._close_ranks(job, live)
        else:  # one change after the other; in the present one nobody waits for the dead
            self.on_exit(job, live)
            self.on_quit(job, live)
        return True

    def _close_ranks(self, job: Job, live: Live) -> bool:
        """Go on without whoever was lost meanwhile. False if nobody was."""
        lost = self._lost.pop(live.run, [])
        if not lost or not self._goes_on(job, live):
            return False
        left = [member for member in live.present() if not member.leaving]
        allowed = [size for size in job.gang.roles[0].sizes.allowed if size <= len(left)]
        staying, extra = left[: allowed[-1]], left[allowed[-1] :]
        seats = join_seats(job.gang, staying, len(self.known.devices))
        self.known.planner.resize_to(self.known.now_us(), job.number, seats, Cause.LOAN)
        self._later.pop(job.id, None)  # it was planned for a gang that is no more
        self._go(job, live, [*lost, *extra], [])
        return True


def _everybody_ready(live: Live, under: ResizeUnderWay) -> bool:
    """Whether all who stay have answered."""
    old = {member.key for member in live.present() if member.key not in under.joining and not member.leaving}
    return old <= under.done


def _say_why(known: Knowledge, change: SeatChange) -> dict[str, Any]:
    """Said when it is decided: when it is done, whoever it was done for may be gone."""
    by_number = known.register.by_number

    def name_of(number: int) -> str:
        return f"job {by_number[number].id}" if number in by_number else "another"

    other = None if change.beneficiary is None else by_number.get(change.beneficiary)
    whom = {} if other is None else {"for": other.id}
    return {"cause": change.cause.value, **whom, "because": say_resize(change, name_of)}
