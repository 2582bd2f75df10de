"""Hands out what a plan says: the state folds it, gangs are told through the carrier, and the recorder writes it down.

Everybody who leaves stops before anybody begins, since seats pass from hand to hand; what the carrier will not do is
taken back before anybody hears of it. Which plan, and whether another follows, is for `control.loop`.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.control.folding import Folded
from phalanx.control.instructions import Carrier, Leave, Recorder, Remains, SeatChange, Shift, Start
from phalanx.control.state import State
from phalanx.model.plan import Bind, Cause, Decision, Evict, Move, Plan, Repair, Resize, Seats


class Delivery:
    """Between one state and those who carry things out and write them down."""

    def __init__(self, state: State, carrier: Carrier, recorder: Recorder, *, refusable: bool) -> None:
        """`refusable`: instructions may come back refused."""
        self.state, self.carrier, self.recorder = state, carrier, recorder
        self.refusable = refusable

    # ------------------------------------------------------------------ one gang

    def begin(self, bind: Bind) -> None:
        """Its seats are free: it starts."""
        self.recorder.on_bind(bind, self.state.now_us)
        self.carrier.carry_out(Start(bind))

    def foresee(self, number: int) -> None:
        """Elastic gangs tell how far they are before anybody plans with them."""
        # None: nothing is known beyond what was said before, and its row stays as it is.
        seen = self.carrier.foresee(number)
        if seen is not None:
            self.state.report(number, seen.end_us, seen.saved_us)

    def stop(self, number: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """A gang stops; what it still needs is remembered, if it tells."""
        remains = self.carrier.stop(number, saves=saves, holds=holds)
        # What it saved tells more of its next run than the walltime that was stated before its first.
        if remains.left_us is not None:
            self.state.note_left(number, remains.left_us)
        return remains

    def note_cancelled(self, numbers: Iterable[int]) -> None:
        """Whoever waited for them, or was one of their group, is cancelled with them."""
        for number in numbers:
            self.recorder.on_end(number, self.state.now_us, "cancel")

    # ------------------------------------------------------------------ a plan

    def carry_out(self, plan: Plan) -> tuple[set[int], Folded]:
        """Fold a plan and hand it out, but for what is refused at once; that is undone, and whose it is the answer."""
        state = self.state
        changes = [decision for decision in plan.decisions if not isinstance(decision, Bind)]
        if not (changes or self.refusable):
            # Most plans of a log start somebody or nobody and change nobody who runs: nobody has to be told first.
            folded = state.apply(plan)
            for bind in folded.begun:
                self.begin(bind)
            self.note_cancelled(folded.cancelled)
            return set(), folded
        # Asked before anything is folded, while the state is as the plan saw it.
        refused = self._list_refused(plan) if self.refusable else {}
        # As they sit now: once the plan is folded, nobody knows what a resize has taken or given.
        before = {d.gang: state.records[d.gang].seats for d in changes if isinstance(d, Resize)}
        folded = state.apply(plan, undoable=self.refusable)
        undone: set[int] = set()
        for number, words in refused.items():
            if number not in undone:
                undone.update(state.refuse(number, words).undone)
        self._tell_all(plan, folded, undone, before)
        self.note_cancelled(folded.cancelled)
        return undone, folded

    def _tell_all(self, plan: Plan, folded: Folded, undone: set[int], before: dict[int, tuple[Seats, ...]]) -> None:
        """Everybody is told what the plan says of them, in its order."""
        for decision in plan.decisions:  # all of them before anybody begins: seats pass from hand to hand
            if isinstance(decision, Evict) and decision.gang not in undone:
                self.stop(decision.gang, saves=decision.cause is Cause.TURN)
        begun = {bind.gang for bind in folded.begun}
        for decision in plan.decisions:
            if decision.gang in undone:
                continue
            if not isinstance(decision, Bind):
                self._tell(decision, before)
            elif decision.gang in begun:
                self.begin(decision)

    def _list_refused(self, plan: Plan) -> dict[int, str]:
        """What the carrier knows it will not do, and what it would not do a moment ago."""
        refused = {
            decision.gang: "it was refused a moment ago"
            for decision in plan.decisions
            if not isinstance(decision, Bind) and self.state.is_resting(decision.gang)
        }
        for number, words in self.carrier.list_refused(plan):
            refused.setdefault(number, words)
        return refused

    def _tell(self, decision: Decision, before: dict[int, tuple[Seats, ...]]) -> None:
        """Tell the gang, and whoever writes things down."""
        now, number = self.state.now_us, decision.gang
        if isinstance(decision, Evict):
            self.recorder.on_end(number, now, "yield" if decision.cause is Cause.TURN else "evict")
            self.carrier.carry_out(Leave(number, decision.cause, decision.beneficiary))
            return
        if isinstance(decision, Resize):
            # Carrier and recorder get one and the same value: what is written down of a resize is what the gang was
            # told.
            told = decision.cause, decision.beneficiary, decision.grounds
            change = SeatChange(number, before[number], decision.seats, *told)
            event = "grow" if change.gained > 0 else "shrink" if change.gained < 0 else "move"
            self.carrier.carry_out(change)
            self.recorder.on_change(number, now, event, change)
        else:
            event = "move" if isinstance(decision, Move) else "repair" if isinstance(decision, Repair) else "restart"
            self.carrier.carry_out(Shift(number, decision.seats, event))
            self.recorder.on_change(number, now, event)
        self.foresee(number)
