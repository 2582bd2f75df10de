"""How gangs really fare in a simulation: the progress of each, told what happens to it, and the ledger of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from phalanx.control.forward import End
from phalanx.control.instructions import Foresight, Remains
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.ledger import Ledger
from phalanx.frontends.sim.progress import GangProgress
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Plan, Resize, Seats
from phalanx.perfmodel.speedup import scaled_us


class World:
    """The truth about a run of gangs.

    Most gangs of a log are rigid, save nothing, and end as they began. Of such a gang only the start is
    noted; its progress is written out when something happens to it.
    """

    def __init__(self, state: State, true_runs: Mapping[str, TrueRun]) -> None:
        """`true_runs` by gang name."""
        self.ledger = Ledger(state)
        self.on_let_go: Callable[[int, int], None] | None = None  # a degraded gang gives back what it held
        self._state, self._truths = state, true_runs
        self._plain: dict[int, tuple[int, int, int]] = {}  # start, units and token of gangs without a progress yet
        self._progress: dict[int, GangProgress] = {}  # of gangs that hold seats
        self._resting: dict[int, GangProgress] = {}  # of gangs that wait for their next attempt
        self._before: dict[int, tuple[Seats, ...]] = {}  # seats before the resizes of this instant
        self._seats: dict[int, tuple[Seats, ...]] = {}  # of elastic gangs
        self._tokens = 0

    # ------------------------------------------------------------------ what happens to gangs

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """An attempt begins."""
        number, gang, ledger = bind.gang, self._state.gangs[bind.gang], self.ledger
        units = ledger.units_of(gang, bind.seats)
        self._tokens += 1
        if _is_plain(gang) and number not in self._resting and number not in self._progress:
            self._plain[number] = (now_us, units, self._tokens)
            ledger.used += units
            ledger.note()
            done_us = now_us + gang.startup_us + self._truths[gang.name].duration_us
            return (End(done_us, number, ok=True, token=self._tokens),)
        progress = self._progress.get(number) or self._resting.pop(number, None) or GangProgress(gang, ledger.books)
        self._progress[number] = progress
        ledger.used += units - progress.units
        progress.begin(now_us, units, self._pace_us(gang, bind.seats))
        if gang.elastic:
            self._seats[number] = bind.seats
        return self._changed(number, progress, now_us)

    def ends_resized(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """It stands still for its resize pause and goes on at this size, no work lost."""
        self._before[number] = self._seats.get(number, seats)
        progress, units, pace_us = self._reseat(number, seats)
        progress.resize(now_us, units, pace_us)
        return self._changed(number, progress, now_us)

    def ends_moved(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """It saves its work, restores it and goes on elsewhere."""
        progress, units, pace_us = self._reseat(number, seats)
        progress.move(now_us, units, pace_us)
        return self._changed(number, progress, now_us)

    def ends_repaired(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """A gang that lost members has as many as it needs again."""
        progress, units, pace_us = self._reseat(number, seats)
        progress.repair(now_us, units, pace_us, anew=self._state.attempts_of(number) != progress.attempt)
        return self._changed(number, progress, now_us)

    def stop(self, number: int, now_us: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """It stops; what it saved is where it will go on."""
        progress = self._progress_of(number)
        if progress is None:
            return Remains(progressed=False, left_us=None)
        gang, held = self._state.gangs[number], progress.holding
        self.ledger.used -= progress.units
        progressed = progress.stop(now_us, saves=saves)
        if holds:
            progress.hold(now_us, self.ledger.units_of(gang, holds))
            self.ledger.used += progress.units
        else:
            self._resting[number] = self._progress.pop(number)
            self.ledger.handover.note_left(number)
            # Of a hold that is over nobody else hears: the state lets go by time alone.
            if held and self.on_let_go is not None and self._state.phase_of(number) is Phase.PENDING:
                self.on_let_go(number, now_us)
        self.ledger.note()
        return Remains(progressed, progress.need_us(self._truths[gang.name].duration_us) if gang.elastic else None)

    def close(self, number: int, now_us: int) -> None:
        """It has ended, or has no seats any more."""
        plain = self._plain.pop(number, None)
        if plain is not None:
            start_us, units, _ = plain
            startup_us = min(self._state.gangs[number].startup_us, now_us - start_us)
            self.ledger.used -= units
            self.ledger.books["startup"] += startup_us * units
            self.ledger.books["productive"] += (now_us - start_us - startup_us) * units
        else:
            progress = self._progress.pop(number, None)
            if progress is not None:
                self.ledger.used -= progress.units
                progress.finish(now_us)
                self.ledger.handover.note_left(number)
        self.ledger.note()

    def close_all(self, now_us: int) -> None:
        """The run is over: whatever was under way counts as it stands."""
        for number in list(self._plain):
            self._progress_of(number)
        for progress in self._progress.values():
            progress.advance(now_us)

    # ------------------------------------------------------------------ what they tell

    def foresee(self, number: int, now_us: int) -> Foresight | None:
        """What an elastic gang reports; None of a rigid one, or before its first step."""
        progress = self._progress.get(number)
        if progress is None or progress.holding or not progress.gang.elastic:
            return None
        return progress.foresee(now_us)

    def stands(self, end: End) -> bool:
        """Whether nothing has happened to the gang since this end was foreseen."""
        plain = self._plain.get(end.gang)
        if plain is not None:
            return plain[2] == end.token
        progress = self._progress.get(end.gang)
        return progress is not None and progress.token == end.token

    def note_plan(self, plan: Plan) -> None:
        """What the cluster's idle room is kept for, and who claims seats that others still use."""
        if plan.idle is None and not self._before:
            return
        if plan.idle is not None:
            self.ledger.note_idle(plan.idle)
        # Whoever was resized has left its seats of before here.
        if self._before and any(isinstance(decision, Resize) for decision in plan.decisions):
            self.ledger.handover.note_plan(plan, self._before)
        self._before = {}
        self.ledger.note()

    # ------------------------------------------------------------------ sizes

    def _progress_of(self, number: int) -> GangProgress | None:
        """The progress of a gang that holds seats, written out if it has been plain so far."""
        plain = self._plain.pop(number, None)
        if plain is None:
            return self._progress.get(number)
        gang = self._state.gangs[number]
        start_us, units, token = plain
        progress = self._progress[number] = GangProgress(gang, self.ledger.books)
        progress.begin(start_us, units, self._truths[gang.name].duration_us)
        progress.token, progress.attempt = token, self._state.attempts_of(number)
        return progress

    def _reseat(self, number: int, seats: tuple[Seats, ...]) -> tuple[GangProgress, int, int]:
        progress, gang = self._progress_of(number), self._state.gangs[number]
        assert progress is not None
        if gang.elastic:
            self._seats[number] = seats
        units = self.ledger.units_of(gang, seats)
        self.ledger.used += units - progress.units
        return progress, units, self._pace_us(gang, seats)

    def _changed(self, number: int, progress: GangProgress, now_us: int) -> Iterable[End]:
        """The end of a progress as it is now; ends foreseen before no longer stand."""
        self.ledger.note()
        self._tokens += 1
        progress.token, progress.attempt = self._tokens, self._state.attempts_of(number)
        if progress.killed_us is not None and progress.killed_us < progress.done_us:
            return (End(max(progress.killed_us, now_us), number, ok=False, token=self._tokens),)
        return (End(progress.done_us, number, ok=True, token=self._tokens),)

    def _pace_us(self, gang: Gang, seats: tuple[Seats, ...]) -> int:
        """The run time of the whole job on these seats."""
        truth = self._truths[gang.name]
        if not gang.elastic:
            return truth.duration_us
        most = sum(role.sizes.most for role in gang.roles if role.sizes.elastic)
        members = sum(each.members for each in seats if gang.roles[each.role].sizes.elastic)
        return scaled_us(truth.duration_us, truth.speedup, most, members)


def _is_plain(gang: Gang) -> bool:
    """Whether an attempt of this gang runs its start-up and its length, and nothing else."""
    return gang.snapshot is None and gang.kill_after_us is None and not gang.elastic
