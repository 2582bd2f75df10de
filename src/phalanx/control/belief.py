"""How gangs would fare if everything that is believed of them were true.

The `Truth` of whoever looks ahead without knowing run times: a running gang ends at its expected end, one that has
outlived it as rule 7 expects, a waiting one runs for its walltime (or the default) at its largest size and longer at
a smaller one, by the curve it reports. Whoever knows better than gangs say brings `RunTimes`. A walltime covers a
whole attempt, so that starting up and saving are inside it; what comes on top is a resize pause, a restore, and the
start-up of a further attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from phalanx.control.forward import End
from phalanx.control.instructions import Foresight, Remains
from phalanx.control.state import State
from phalanx.engine.ends import expected_ends
from phalanx.engine.lifecycle import Phase
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Seats
from phalanx.perfmodel.speedup import Linear, Speedup, Table, scaled_us

#: A length that is scaled to find a ratio of speeds: long enough that rounding it loses nothing.
_REFERENCE_US = 1 << 50


@dataclass(frozen=True, slots=True)
class RunTimes:
    """How long gangs run, by number, for somebody who knows better than they say; the others as they say."""

    whole: Mapping[int, int] = field(default_factory=dict)  # of waiting gangs, at their largest size
    left: Mapping[int, int] = field(default_factory=dict)  # of running gangs, from now, at their present size
    default_us: int | None = None  # of gangs that say nothing and are in neither; None: as planning believes


AS_STATED: Final = RunTimes()


@dataclass(slots=True)
class _Course:
    """A gang that runs, at one size since an instant. Work is run time at its largest size."""

    attempt_us: int  # when the attempt began
    since_us: int  # work counts from here on; before it stands still
    left_us: int  # work to do at `since_us`
    members: int  # of its elastic roles
    end_us: int
    saved_us: int  # its newest snapshot, else where its work began
    cycle_us: int  # the time until the next snapshot counts from here; moves on while it stands still
    unsaved_left_us: int  # work to do if it had to go back there
    kept: bool  # whether there is a snapshot at all
    token: int = 0


class Belief:
    """What running gangs say of themselves, taken at its word."""

    def __init__(self, state: State, runs: RunTimes = AS_STATED) -> None:
        """Take everybody who runs now as the state has them; `runs` is what nobody needs to tell the engine."""
        self._state, self._runs = state, runs
        self._courses: dict[int, _Course] = {}
        self._left: dict[int, int] = {}  # work of gangs that stopped, as they saved it
        # One counter for all gangs: an end of an earlier course can never have the token of a later one.
        self._tokens = 0
        for number, record in enumerate(state.records):
            if record.phase is Phase.RUNNING:
                self._courses[number] = self._read(number)

    def ends_now(self) -> list[End]:
        """The ends of everybody who runs, for a clock that starts here."""
        return [end for number in self._courses for end in self._changed(number)]

    # ------------------------------------------------------------------ what happens to gangs

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """An attempt begins."""
        return self._begin(bind.gang, bind.seats, now_us)

    def ends_resized(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """It stands still for its resize pause and goes on at this size, no work lost."""
        return self._go_on(number, seats, now_us, self._state.gangs[number].resize_pause_us)

    def ends_moved(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """It saves its work, restores it and goes on elsewhere."""
        course, habit = self._courses[number], self._state.gangs[number].snapshot
        # Work up to now at the old size, before anything else is written: afterwards nobody knows what it was.
        self._advance(number, now_us)
        course.saved_us = course.cycle_us = now_us
        # It saves before it goes (rule 10), so that an eviction right after the move would lose nothing.
        course.unsaved_left_us, course.kept = course.left_us, True
        return self._go_on(number, seats, now_us, 0 if habit is None else habit.stall_us + habit.restore_us)

    def ends_repaired(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """A gang that lost members has as many as it needs again."""
        # Below its least it had stopped, and what it had saved is in `_left`.
        if number not in self._courses:
            return self._begin(number, seats, now_us)
        course = self._courses[number]
        paused = course.since_us > now_us  # the pause in which it closed its ranks is long enough
        return self._go_on(number, seats, now_us, course.since_us - now_us if paused else self._pause_us(number))

    def stop(self, number: int, now_us: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """It stops; what it saved is where it will go on."""
        del holds  # seats are the state's affair
        course = self._courses.get(number)
        if course is None:
            return Remains(progressed=False, left_us=None)
        self._advance(number, now_us)
        del self._courses[number]
        gang = self._state.gangs[number]
        # Who cannot save is not asked to: `saves` is what the plan wants, not what the gang can do.
        saves = saves and gang.snapshot is not None
        progressed = saves or (course.kept and course.saved_us > course.attempt_us)
        # Nothing was ever saved: the next attempt begins from scratch, with its walltime.
        if not course.kept and not saves:
            return Remains(progressed, left_us=None)
        left_us = self._left[number] = max(1, course.left_us if saves else course.unsaved_left_us)
        # Of a rigid gang the engine is shown nothing but its walltime (rule 6), even though this knows better.
        return Remains(progressed, left_us + _return_us(gang) if gang.elastic else None)

    # ------------------------------------------------------------------ what they tell

    def foresee(self, number: int, now_us: int) -> Foresight | None:
        """What a running gang reports; nothing before its first step."""
        course = self._courses.get(number)
        if course is None or now_us < course.since_us:
            return None
        # Without counting the work: that would be rounded every time somebody asks.
        return Foresight(course.end_us, self._saved_by(course, self._state.gangs[number], now_us))

    def stands(self, end: End) -> bool:
        """Whether nothing has happened to the gang since this end was foreseen."""
        course = self._courses.get(end.gang)
        return course is not None and course.token == end.token

    # ------------------------------------------------------------------ courses

    def _read(self, number: int) -> _Course:
        """The course of a gang that runs already."""
        state, record = self._state, self._state.records[number]
        gang, now_us, columns = record.gang, state.now_us, state.running.columns
        start_us = int(columns["start_us"][record.row])
        end_us = int(expected_ends(state.borrow().running, now_us)[record.row])
        members = _elastic_members(gang, record.seats)
        # From its expected end backwards: what it reports is an end at its present
        # size, and work is counted at its largest.
        left_us = self._work(gang, end_us - now_us, members)
        saved_us, whole_us = start_us, left_us + self._work(gang, now_us - start_us, members)
        if gang.elastic:
            saved_us = min(int(columns["saved_us"][record.row]), now_us)
            whole_us = self._whole_us(number)
        elif gang.snapshot is not None:
            # Only the habit of a rigid gang is known, so that it is taken to have kept it since its start.
            saved_us = now_us - (now_us - start_us) % gang.snapshot.every_us
        kept = gang.snapshot is not None and saved_us > start_us
        # Never more than all of it: an overrun has worked longer than it was believed to need.
        back_us = min(left_us + self._work(gang, now_us - saved_us, members), whole_us) if kept else whole_us
        guess_us = self._runs.left.get(number)
        if guess_us is not None:
            # Another end is more or less work to come: what was done since the last snapshot stays what it was.
            end_us = now_us + max(1, guess_us)
            believed_us, left_us = left_us, self._work(gang, end_us - now_us, members)
            back_us = max(1, back_us + left_us - believed_us)
        return _Course(start_us, now_us, left_us, members, end_us, saved_us, saved_us, back_us, kept)

    def _begin(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        gang = self._state.gangs[number]
        past = self._state.records[number].history
        # The start-up of a first attempt is inside its walltime; only a further one pays it on top.
        left_us, kept, wait_us = self._whole_us(number), False, 0
        if number in self._left:
            left_us, kept, wait_us = self._left[number], True, _return_us(gang)
        elif past is not None and past.left_us is not None:  # as it was reported, with the way back in it
            kept, wait_us = gang.snapshot is not None, _return_us(gang)
            left_us = max(1, past.left_us - wait_us)
        members, works_us = _elastic_members(gang, seats), now_us + wait_us
        end_us = works_us + self._span(gang, left_us, members)
        self._courses[number] = _Course(now_us, works_us, left_us, members, end_us, works_us, works_us, left_us, kept)
        return self._changed(number)

    def _go_on(self, number: int, seats: tuple[Seats, ...], now_us: int, wait_us: int) -> Iterable[End]:
        self._advance(number, now_us)
        course, gang = self._courses[number], self._state.gangs[number]
        course.members = _elastic_members(gang, seats)
        # The clock of its snapshots stands still while it does: by the difference,
        # as it may have been standing already.
        course.cycle_us += now_us + wait_us - max(course.since_us, now_us)
        course.since_us = now_us + wait_us
        course.end_us = course.since_us + self._span(gang, course.left_us, course.members)
        return self._changed(number)

    def _advance(self, number: int, now_us: int) -> None:
        """Count the work up to now, and the snapshots taken meanwhile."""
        course, gang = self._courses[number], self._state.gangs[number]
        # Inside a pause no work is done, and none may be counted off.
        if now_us <= course.since_us:
            return
        saved_us = self._saved_by(course, gang, now_us)
        # Counted before the work: what it would go back to is the work left at the snapshot, not now.
        if saved_us > course.saved_us:
            course.saved_us, course.cycle_us, course.kept = saved_us, saved_us, True
            course.unsaved_left_us = course.left_us - self._work(gang, saved_us - course.since_us, course.members)
        course.left_us -= self._work(gang, now_us - course.since_us, course.members)
        course.since_us = now_us

    def _saved_by(self, course: _Course, gang: Gang, now_us: int) -> int:
        """Its newest snapshot at an instant, if nothing has happened since its course was written down."""
        if gang.snapshot is None or now_us < course.cycle_us + gang.snapshot.every_us:
            return course.saved_us
        return now_us - (now_us - course.cycle_us) % gang.snapshot.every_us

    def _changed(self, number: int) -> tuple[End, ...]:
        """The end of a course as it is now; ends foreseen before no longer stand."""
        course, gang = self._courses[number], self._state.gangs[number]
        self._tokens += 1
        course.token = self._tokens
        killed_us = None if gang.kill_after_us is None else course.attempt_us + gang.kill_after_us
        # `kill_after` counts from the start of the attempt, and a kill in the past is due now: time does not go back.
        if killed_us is not None and killed_us < course.end_us:
            return (End(max(killed_us, self._state.now_us), number, ok=False, token=course.token),)
        return (End(course.end_us, number, ok=True, token=course.token),)

    # ------------------------------------------------------------------ sizes

    def _whole_us(self, number: int) -> int:
        """All the work of a gang."""
        guess_us = self._runs.whole.get(number)
        if guess_us is not None:
            return max(1, guess_us)
        walltime_us = self._state.gangs[number].walltime_us
        if walltime_us is None:
            return self._state.default_walltime_us if self._runs.default_us is None else self._runs.default_us
        return walltime_us

    def _pause_us(self, number: int) -> int:
        return self._state.gangs[number].resize_pause_us

    def _span(self, gang: Gang, work_us: int, members: int) -> int:
        """How long some work takes at a size."""
        return scaled_us(work_us, self._curve(gang), _most(gang), members) if gang.elastic else work_us

    def _work(self, gang: Gang, span_us: int, members: int) -> int:
        """How much work is done in a while at a size."""
        if not gang.elastic:
            return span_us
        # The inverse of `_span`, by one long length: dividing by a ratio of floats
        # would round differently at each size.
        return span_us * _REFERENCE_US // scaled_us(_REFERENCE_US, self._curve(gang), _most(gang), members)

    def _curve(self, gang: Gang) -> Speedup:
        # Linear where nothing was reported, as the engine assumes (rule 6).
        points = self._state.curves.get(self._state.number_by_name[gang.name])
        return Table(points) if points else Linear()


def _return_us(gang: Gang) -> int:
    """What a further attempt takes before it works on."""
    return gang.startup_us + (gang.snapshot.restore_us if gang.snapshot is not None else 0)


def _most(gang: Gang) -> int:
    return sum(role.sizes.most for role in gang.roles if role.sizes.elastic)


def _elastic_members(gang: Gang, seats: tuple[Seats, ...]) -> int:
    return sum(each.members for each in seats if gang.roles[each.role].sizes.elastic)
