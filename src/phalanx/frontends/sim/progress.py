"""One gang's time on the cluster, to the microsecond: where it went, and when the gang will be done.

An attempt begins with waits (a stall that is owed, restore, start-up), then works at the pace of its
size and stands still after every interval for a snapshot. Work is a fraction of the whole job in
integers fine enough that nothing but the rounding of an instant to the microsecond is ever lost.
Nothing here loops over snapshots: a stretch between two changes is one division, however long.

Pure bookkeeping: `world` says what happens to a gang, and how fast it is at a size.
"""

from __future__ import annotations

from typing import Final

from phalanx.control.instructions import Foresight
from phalanx.model.gang import Gang

#: All the work of a job. So fine that a stretch rounded down is off by less than 2**-36 µs of run time.
WHOLE: Final = 1 << 96

Waits = tuple[tuple[str, int], ...]  # part of the ledger, how long


class GangProgress:
    """What a gang has done, has saved, and is about to do; `books` gets its µs × units by part of the ledger."""

    __slots__ = (
        *("at_us", "attempt", "books", "count", "done_us", "due_us", "gang", "holding", "kept", "killed_us"),
        *("left", "owed_us", "pace_us", "progressed", "saved", "saved_us", "span_us", "token", "units", "unsaved"),
        *("waits", "works_us"),
    )

    def __init__(self, gang: Gang, books: dict[str, int]) -> None:
        """A gang that has done nothing yet and holds nothing."""
        self.gang, self.books = gang, books
        self.at_us = 0  # everything before is booked
        self.holding, self.units = True, 0  # whether it only holds seats, and how much of the counted kind
        self.left = self.saved = WHOLE  # work to do, now and as the newest snapshot has it
        self.kept = self.progressed = False  # whether there is a snapshot; whether the attempt made one
        self.owed_us = 0  # the stall of a snapshot that was taken on leaving
        self.unsaved = 0  # booked as productive since the newest snapshot
        self.waits: Waits = ()  # what comes before it works on
        self.pace_us = 0  # run time of the whole job at its size
        self.token = self.attempt = 0  # marks of whoever keeps this life
        self.due_us = 0  # working time until the next snapshot
        self.killed_us: int | None = None
        # What lies ahead if nothing changes: work begins, lasts so long with so many snapshots, is done.
        self.works_us = self.span_us = self.count = self.done_us = self.saved_us = 0

    # ------------------------------------------------------------------ what happens to it

    def begin(self, now_us: int, units: int, pace_us: int, *, anew: bool = True) -> None:
        """Work from what is saved; `anew`: as an attempt of its own, with a new time to be killed at."""
        self.advance(now_us)
        gang, habit = self.gang, self.gang.snapshot
        if anew and gang.kill_after_us is not None:
            self.killed_us = now_us + gang.kill_after_us
        self.holding, self.progressed, self.units, self.pace_us = False, False, units, pace_us
        waits: Waits = (("startup", gang.startup_us),) if gang.startup_us else ()
        if self.kept and habit is not None:
            waits = (*_lasting(("snapshot", self.owed_us), ("restore", habit.restore_us)), *waits)
        self.waits, self.owed_us = waits, 0
        self.due_us = 0 if habit is None else habit.every_us
        self.saved_us = now_us
        self._look_ahead()

    def resize(self, now_us: int, units: int, pace_us: int) -> None:
        """Stand still for the pause, then go on at another size with whatever came before the work."""
        self.advance(now_us)
        # What is left of an earlier pause is over: the members agree once, on the newest size.
        rest = tuple(wait for wait in self.waits if wait[0] != "resize")
        self.waits = (*_lasting(("resize", self.gang.resize_pause_us)), *rest)
        self.units, self.pace_us = units, pace_us
        self._look_ahead()

    def move(self, now_us: int, units: int, pace_us: int) -> None:
        """Save everything and restore it elsewhere; a start-up that was not over goes on after that."""
        self.advance(now_us)
        self._save(now_us)
        habit = self.gang.snapshot
        costs = () if habit is None else _lasting(("snapshot", habit.stall_us), ("restore", habit.restore_us))
        self.waits = (*costs, *(wait for wait in self.waits if wait[0] == "startup"))
        self.units, self.pace_us = units, pace_us
        self._look_ahead()

    def repair(self, now_us: int, units: int, pace_us: int, *, anew: bool) -> None:
        """Go on with the members it was given for those it lost."""
        if self.holding:
            self.begin(now_us, units, pace_us, anew=anew)
        elif self.at_us == now_us and any(part == "resize" for part, _ in self.waits):
            # It never stopped: the pause in which it closed its ranks is just beginning, and is long enough.
            self.units, self.pace_us = units, pace_us
            self._look_ahead()
        else:
            self.resize(now_us, units, pace_us)

    def stop(self, now_us: int, *, saves: bool) -> bool:
        """The attempt is over and holds nothing. Without saving, what came after the newest snapshot is lost.

        The answer is whether it saved anything that was not saved before.
        """
        self.advance(now_us)
        if not self.holding:
            if saves:
                self._save(now_us)
                self.owed_us = 0 if self.gang.snapshot is None else self.gang.snapshot.stall_us
            else:
                self.books["productive"] -= self.unsaved
                self.books["lost"] += self.unsaved
            self.left, self.unsaved, self.waits = self.saved, 0, ()
        progressed = self.progressed
        self.holding, self.progressed, self.units = True, False, 0
        return progressed

    def hold(self, now_us: int, units: int) -> None:
        """Keep seats without running."""
        self.advance(now_us)
        self.units = units

    def finish(self, now_us: int) -> None:
        """It ends, well or badly, with everything it has done so far counted as productive."""
        self.advance(now_us)
        self.holding, self.units, self.waits, self.unsaved = True, 0, (), 0

    # ------------------------------------------------------------------ what it can tell

    def foresee(self, now_us: int) -> Foresight | None:
        """When it will be done at this size, and its newest snapshot; None before its first step."""
        if self.left == WHOLE and now_us <= self.works_us:
            return None
        saved_us, at_us = self.saved_us, self.at_us
        for part, length in self.waits:
            at_us += length
            if part == "snapshot" and at_us <= now_us:
                saved_us = at_us
        habit = self.gang.snapshot
        if self.count and habit is not None:
            past = now_us - self.works_us - self.due_us - habit.stall_us  # since the first snapshot was complete
            if past >= 0:
                saved_us = now_us - past % (habit.every_us + habit.stall_us)
        return Foresight(self.done_us, min(saved_us, now_us))

    def need_us(self, pace_us: int) -> int | None:
        """The run time of another attempt at some pace, from what is saved; None if nothing is done yet."""
        if self.saved == WHOLE:
            return None
        habit, work_us = self.gang.snapshot, _time_for(self.saved, pace_us)
        if habit is None:
            return work_us + self.gang.startup_us
        stalls_us = _count_snapshots(work_us, habit.every_us, habit.every_us) * habit.stall_us
        return self.owed_us + habit.restore_us + self.gang.startup_us + work_us + stalls_us

    # ------------------------------------------------------------------ time passes

    def advance(self, now_us: int) -> None:
        """Book everything up to now."""
        span = now_us - self.at_us
        self.at_us = now_us
        if self.holding:
            if self.units:
                self.books["idle_allocated"] += span * self.units
            return
        if self.waits:
            span = self._wait(span)
        if span:
            self._work(span)

    def _wait(self, span: int) -> int:
        """Spend time on what comes before the work; the answer is how much is left for it."""
        while self.waits and span:
            part, length = self.waits[0]
            spent = min(span, length)
            self.books[part] += spent * self.units
            span -= spent
            if spent < length:
                self.waits = ((part, length - spent), *self.waits[1:])
            else:
                self.waits = self.waits[1:]
                if part == "snapshot":
                    self._save(self.at_us - span)
        return span

    def _work(self, span: int) -> None:
        """Spend time on work and snapshots, all of one size."""
        books, units, due, habit = self.books, self.units, self.due_us, self.gang.snapshot
        worked, complete, rest = span, 0, 0
        if self.count and span >= due and habit is not None:
            every, stall = habit.every_us, habit.stall_us
            complete, into = divmod(span - due, every + stall)  # so many whole intervals, and this far into the next
            worked = due + complete * every
            if into >= stall:
                worked += into - stall
                complete += 1
            else:
                rest = stall - into
            books["snapshot"] += (span - worked) * units
        books["productive"] += worked * units
        if complete and habit is not None:
            at_save = due + (complete - 1) * habit.every_us
            self.saved, self.kept, self.progressed = self.left - at_save * WHOLE // self.pace_us, True, True
            self.saved_us = self.works_us + at_save + complete * habit.stall_us
            self.unsaved, self.due_us = (worked - at_save) * units, habit.every_us - (worked - at_save)
        else:
            self.unsaved += worked * units
            self.due_us = due - worked
        self.left -= worked * WHOLE // self.pace_us
        if rest and habit is not None:
            self.waits, self.due_us = (("snapshot", rest),), habit.every_us

    def _save(self, at_us: int) -> None:
        """A snapshot of everything up to now is complete."""
        self.progressed = self.progressed or self.left < self.saved
        self.saved, self.kept, self.unsaved, self.saved_us = self.left, True, 0, at_us
        self.due_us = 0 if self.gang.snapshot is None else self.gang.snapshot.every_us

    def _look_ahead(self) -> None:
        """Work out what happens if nothing changes any more."""
        works_us = self.at_us
        for _, length in self.waits:
            works_us += length
        if self.saved_us >= self.at_us:
            self.saved_us = works_us  # nothing can be lost before the next step of work
        self.works_us = works_us
        self.span_us = span = self.pace_us if self.left == WHOLE else _time_for(self.left, self.pace_us)
        self.count, stalls, habit = 0, 0, self.gang.snapshot
        if habit is not None:
            self.count = _count_snapshots(span, self.due_us, habit.every_us)
            stalls = self.count * habit.stall_us
        self.done_us = works_us + span + stalls


def _time_for(left: int, pace_us: int) -> int:
    """Run time of some work, rounded half up as run times at other sizes are."""
    return (2 * left * pace_us + WHOLE) // (2 * WHOLE)


def _count_snapshots(span: int, due: int, every: int) -> int:
    """Snapshots within so much work; one that is due when the work is done is not taken."""
    return max(0, 1 + (span - due - 1) // every)


def _lasting(*waits: tuple[str, int]) -> Waits:
    return tuple(wait for wait in waits if wait[1])
