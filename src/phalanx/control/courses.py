"""What is said of gangs that run: when they really began, how far they are, where they really sit; and of others.

A plan is what shall be; this is what is. Front ends that watch real processes call in here, and the engine sees the
difference in the next snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.control import leaving, refusing
from phalanx.control.folding import fold
from phalanx.control.lookups import Queries
from phalanx.control.seating import add_running, past_of
from phalanx.control.strangers import crowd, leave_free, note_marks, occupy
from phalanx.control.waiting import note_length
from phalanx.engine.lifecycle import Happening, Phase, advance
from phalanx.model.plan import Bind, Cause, DateVerdict, Guest, Move, Plan, Resize, Seats
from phalanx.model.rules import Mark


class Courses(Queries):
    """Words about running gangs, folded into their rows."""

    def seat_running(self, number: int, seats: tuple[Seats, ...], start_us: int) -> None:
        """A gang that waits by what we know runs there already: found so when somebody looked."""
        self.thaw()
        record = self.records[number]
        # Nobody planned this run, so there is no better belief than what was stated.
        length_us = record.gang.walltime_us or self.default_walltime_us
        # As a start like any other, so that its seats are charged and its end is planned with.
        record.phase = advance(record.phase, Happening.BIND, record.gang.name)
        self.pending.remove(record.row)
        # Never in the future: that would make it a claim.
        add_running(self, number, Bind(number, seats, length_us), min(start_us, self.now_us))
        record.attempts += 1

    def note_started(self, number: int) -> None:
        """It began now, not when it was given its seats."""
        record = self.records[number]
        if record.phase is Phase.RUNNING:
            self.thaw()
            columns = self.running.columns
            # Time before it began is no work: nothing of it can be lost, and its walltime counts from here.
            columns["start_us"][record.row] = columns["saved_us"][record.row] = self.now_us
            self.hints.ends.note(self.now_us + int(columns["length_us"][record.row]))
            self.hints.unsettle()

    def set_elastic(self, number: int, *, elastic: bool) -> None:
        """Whether a gang that could be resized by its sizes can be so by what its members say."""
        record = self.records[number]
        if record.phase.seated and record.gang.elastic:
            self.thaw()
            self.running.columns["elastic"][record.row] = elastic
            if elastic:  # somebody may be let in now who was refused; nobody is by less
                self.hints.unsettle()

    def report(self, number: int, end_us: int | None, saved_us: int | None) -> None:
        """What a running gang says of itself: when it will be done, and what it has saved."""
        record = self.records[number]
        # Words of a gang arrive late: it may have been evicted since it spoke.
        if record.phase is not Phase.RUNNING:
            return
        self.thaw()
        columns = self.running.columns
        if end_us is not None:
            # Ends are kept as lengths from the start, so that a start that moves takes the end along.
            columns["length_us"][record.row] = end_us - columns["start_us"][record.row]
            self.hints.ends.note(end_us)
        if saved_us is not None:
            columns["saved_us"][record.row] = saved_us

    def note_date(self, verdict: DateVerdict) -> None:
        """What was said of its date before this state was made."""
        # Kept by who restarts us: judged anew beside others, a promise that a user was told could come out as none.
        self.dates = {**self.dates, verdict.gang: verdict}

    def note_left(self, number: int, left_us: int) -> None:
        """Run time that a gang still needs at its largest size, by what it has saved."""
        record = self.records[number]
        # Kept beside the row: the gang may stop and queue again, and its next row is made from this.
        past_of(record).left_us = left_us
        if record.phase is Phase.PENDING:  # it queues already; with a time that is proven
            self.thaw()
            note_length(self, number, record.row, left_us)
            self.pending.columns["proven"][record.row] = True

    def sit_on(self, number: int, seats: tuple[Seats, ...], cause: Cause) -> None:
        """It sits on these seats, whatever was planned: members were lost, or it would not change."""
        self.thaw()
        refusing.forget(self, number)
        # As a plan of one decision: there is one way to change seats, with one account of what is free.
        fold(self, Plan(decisions=(Resize(number, seats, cause, None, Guest.NO),)))

    def move_to(self, number: int, seats: tuple[Seats, ...]) -> None:
        """It sits there from now on, as many as before: nobody has begun on the seats that it had."""
        self.thaw()
        refusing.forget(self, number)
        fold(self, Plan(decisions=(Move(number, seats),)))

    # ------------------------------------------------------------------ others

    def occupy(self, node: int, device: int) -> None:
        """Somebody who never asked uses a device, or it cannot be used."""
        occupy(self, node, device)

    def leave_free(self, node: int, device: int) -> None:
        """The device can be used again."""
        leave_free(self, node, device)

    def note_marks(self, node: int, marks: Mapping[Mark, int]) -> None:
        """What others on a node are to rules about others by now, all of them together."""
        note_marks(self, node, marks)

    def crowd(self, node: int, amounts: Mapping[str, int]) -> bool:
        """Others hold so much of a node by now, all of them together; False if there was less left than that."""
        return crowd(self, node, amounts)

    def forget_ended(self, number: int) -> None:
        """Give back what is remembered of a gang that has ended; whoever says so will not ask for it again."""
        leaving.forget_ended(self, number)
