"""The control loop: events in, one pass of the engine, typed instructions out.

Whoever has a cluster drives this one, on whatever clock it has: the virtual clock of `forward`, the daemon of one
machine. The driver says what happens and in which order, since it has the clock; here is what becomes of each event,
and passes at the same instant for as long as a plan itself makes events. What differs from cluster to cluster stands
behind the two ports of `control.instructions`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from phalanx.control.delivery import Delivery
from phalanx.control.instructions import (
    Carrier,
    Leave,
    LetGo,
    Recorder,
    Shrunk,
    Silence,
)
from phalanx.control.records import PlanRefusal
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, DateVerdict, Evict, Plan, Repair, Restart

#: Passes at one instant. Every plan that evicts lowers a potential, so this is never reached; it bounds our mistakes.
PASSES_MOST = 200

#: Decisions after which somebody else may be served at the same instant.
_CALLS_FOR_ANOTHER = (Evict, Repair, Restart)

#: Whoever makes plans; the engine's `schedule`, or a watcher in front of it.
Engine = Callable[..., Plan]


@dataclass(slots=True)
class Passed:
    """What a call of `plan` came to, besides the instructions."""

    infeasible: list[int]
    cancelled: list[int]
    passes: int = 0
    wake_at_us: int | None = None  # the plan could change then without an event
    dates: list[DateVerdict] = field(default_factory=list)  # judged for the first time


class Loop:
    """One cluster under one policy."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        carrier: Carrier,
        recorder: Recorder | None = None,
        *,
        ledger: bool = False,
        refusable: bool = False,
    ) -> None:
        """`ledger`: ask every plan what idle room is kept for; `refusable`: instructions may come back refused."""
        self.state, self.policy, self.carrier = state, policy, carrier
        self.recorder: Recorder = Silence() if recorder is None else recorder
        self.engine: Engine | None = None  # in the place of the engine's `schedule`, for those who watch it
        self.passes = 0
        self._ledger = ledger
        self._delivery = Delivery(state, carrier, self.recorder, refusable=refusable)
        weighs = policy.standing or policy.shares_users or bool(policy.takes)
        tenants = state.tenants
        tenants.half_life_us = policy.half_life_us
        tenants.watched = tenants.watched or (weighs and (tenants.queue_columns.many or policy.shares_users))

    def over(self, state: State, carrier: Carrier) -> Loop:
        """The same loop over another state, for whoever tries something out on a copy."""
        twin = copy.copy(self)
        twin.state, twin.carrier = state, carrier
        # Of its own, or gangs of the copy would be told through the carrier of the original.
        twin._delivery = Delivery(state, carrier, self.recorder, refusable=self._delivery.refusable)  # noqa: SLF001 - its own
        return twin

    def at(self, now_us: int) -> State:
        """The state, brought up to this instant; time does not go back."""
        self.state.advance_to(now_us)
        return self.state

    # ------------------------------------------------------------------ gangs come and go

    def submit(
        self, gang: Gang, curve: tuple[tuple[int, float], ...] | None = None, *, held: bool = False
    ) -> tuple[int, list[int]]:
        """A gang arrives; the answer is its number, and who is cancelled because a dependency failed long ago."""
        state = self.state
        number = state.submit(gang, curve)
        if held:
            state.hold(number)
        self.recorder.on_submit(number, state.now_us)
        return number, [number, *self.cancel(number)] if state.records[number].doomed_by is not None else []

    def cancel(self, number: int, *, alone: bool = False) -> list[int]:
        """Nobody wants it any more; the answer is whoever else is cancelled with it, nobody of its group if `alone`."""
        if self.state.records[number].phase.ended:
            return []
        cancelled = self.state.cancel(number, alone=alone)
        self._delivery.note_cancelled([number, *cancelled])
        return cancelled

    def complete(self, number: int) -> list[int]:
        """It has ended well; nobody is cancelled by that."""
        return self._end(number, self.state.complete(number), "complete")

    def fail(self, number: int) -> list[int]:
        """It has ended badly; the answer is whoever is cancelled with it."""
        return self._end(number, self.state.fail(number), "fail")

    def _end(self, number: int, cancelled: list[int], how: str) -> list[int]:
        self.recorder.on_end(number, self.state.now_us, how)
        self._delivery.note_cancelled(cancelled)
        return cancelled

    def requeue(self, number: int, *, failed: bool = False, progressed: bool = False) -> None:
        """It gives everything back and waits again with its age; after failures not before it has rested."""
        if failed:
            self.state.note_failure(number, progressed=progressed)
            self.state.requeue_rested(number)
        else:
            self.state.requeue(number)

    def refuse(self, number: int, words: str) -> PlanRefusal:
        """What was decided of a gang was not carried out; all that hung on it is undone, if nobody has begun on it."""
        return self.state.refuse(number, words)

    # ------------------------------------------------------------------ nodes

    def add_node(self, node: Node) -> None:
        """A machine joins, or comes back after it was removed."""
        self.add_nodes((node,))

    def add_nodes(self, nodes: Sequence[Node]) -> None:
        """Machines join, or are described anew."""
        self.state.add_nodes(nodes)
        self.recorder.on_capacity(self.state.now_us)

    def fail_node(self, node: int) -> None:
        """A node goes from under gangs."""
        self._lose(node)
        self.state.set_up(node, up=False)
        self.recorder.on_capacity(self.state.now_us)

    def remove_nodes(self, nodes: Sequence[int]) -> None:
        """Nodes go from under gangs, for good: all tables are laid out once for all of them."""
        if not nodes:
            return
        for node in nodes:
            self._lose(node)
            self.state.set_up(node, up=False)
        self.state.remove_nodes(nodes)
        self.recorder.on_capacity(self.state.now_us)

    def repair_node(self, node: int) -> None:
        """A failed node is back."""
        self.state.set_up(node, up=True)
        self.recorder.on_capacity(self.state.now_us)

    def open_node(self, node: int, *, open_: bool, drain: bool = False) -> None:
        """A node takes gangs again, or no new ones; if it drains, whoever can leave should."""
        self.state.set_open(node, open_=open_, drain=drain)
        self.recorder.on_capacity(self.state.now_us)

    def empty_node(self, node: int) -> None:
        """The time of a drain is over: whoever is still there is evicted."""
        state = self.state
        for number in state.gangs_on(node):
            if state.records[number].phase is not Phase.STARTING:
                self._delivery.stop(number, saves=False)
                self.recorder.on_end(number, state.now_us, "evict")
            state.requeue(number)
            self.carrier.carry_out(Leave(number, Cause.DRAIN))

    def _lose(self, node: int) -> None:
        """Those that stay whole close their ranks, the others hold what is left."""
        state = self.state
        for loss in state.lose_node(node):
            seats = state.records[loss.gang].seats
            if loss.how == "whole":
                self.carrier.carry_out(Shrunk(loss.gang, seats))
                self.recorder.on_change(loss.gang, state.now_us, "lose")
            elif loss.how == "hurt":
                remains = self._delivery.stop(loss.gang, saves=False, holds=seats)
                self.recorder.on_change(loss.gang, state.now_us, "lose")
                if state.note_failure(loss.gang, progressed=remains.progressed):
                    cancelled = state.fail(loss.gang)
                    self.carrier.stop(loss.gang, saves=False)
                    self._end(loss.gang, cancelled, "fail")

    # ------------------------------------------------------------------ time

    def run_due(self) -> None:
        """What is due by time alone: seats are vacated, gangs begin there, holds and rests are over."""
        state = self.state
        due_us = state.next_due_us()
        if due_us is None or due_us > state.now_us:
            return
        due = state.tick()
        for bind in due.begun:
            self._delivery.begin(bind)
        for number in due.requeued:
            self.carrier.carry_out(LetGo(number, held=True))

    # ------------------------------------------------------------------ passes

    def plan(self) -> Passed:
        """Plan and apply; again at the same instant as long as the plan itself makes events."""
        # What people said at this instant may have brought something due forward: whoever waits for seats begins when
        # their last user is cancelled, and a plan must not resize a gang that has not begun.
        self.run_due()
        passed = Passed([], [])
        while passed.passes < PASSES_MOST and self._worth_a_pass() and self._plan_once(passed):
            pass
        return passed

    def _worth_a_pass(self) -> bool:
        state = self.state
        if len(state.pending) or state.degraded:
            return True
        return bool(len(state.running)) and (self.policy.touches_running or state.restless)

    def _plan_once(self, passed: Passed) -> bool:
        state = self.state
        self.passes += 1
        passed.passes += 1
        if state.hints.has_elastic:
            for number in state.list_elastic():
                self._delivery.foresee(number)
        # Looked up here and nowhere else, so that whoever watches the engine watches every front end.
        plan = (self.engine or schedule)(state.borrow(), self.policy, ledger=self._ledger)
        passed.wake_at_us = plan.wake_at_us
        # Gathered here, over all passes of the instant: folded, a verdict is one among many in the state, and whoever
        # has to tell a user of it would have to look for what is new.
        passed.dates += plan.dates
        if not (plan.decisions or plan.infeasible or state.degraded):  # every second plan of a long log
            state.apply(plan)
            self.recorder.on_plan(plan, state.now_us)
            return False
        undone, folded = self._delivery.carry_out(plan)
        passed.infeasible += plan.infeasible
        passed.cancelled += folded.cancelled
        self.recorder.on_plan(plan if not undone else _without(plan, undone), state.now_us)
        # Whoever was repaired could not lend or grow in the plan that repaired it. What was undone is no event:
        # whoever it concerns rests first, or the same plan would be made and refused for ever.
        moved = any(isinstance(d, _CALLS_FOR_ANOTHER) and d.gang not in undone for d in plan.decisions)
        # No end need come for that: without another pass it would wait for whatever happens next.
        # Who wants to be beside others, or as many as elsewhere, may have its place now that these have come.
        if state.nodes.presence is not None and state.nodes.presence.sought and not moved:
            moved = any(isinstance(d, Bind) and d.gang not in undone and _bears_words(state, d) for d in plan.decisions)
        # That a gang can never run is news to whoever waited for its end, and to nobody else.
        return bool(folded.heard or folded.cancelled or moved) | (bool(state.degraded) and self._let_go())

    def _let_go(self) -> bool:
        """A degraded gang that has no seat left to hold, and found no place, queues again at once."""
        state = self.state
        if not state.degraded:
            return False
        bare = [
            number
            for number in state.degraded
            if state.phase_of(number) is Phase.DEGRADED and not any(each.members for each in state.seats_of(number))
        ]
        for number in bare:
            state.requeue_rested(number)
            self.carrier.carry_out(LetGo(number, held=False))
        return bool(bare)


# By its words and not by who waits for them: that would be a look at everybody who waits, at each start.
def _bears_words(state: State, bind: Bind) -> bool:
    return any(role.shape.bears for role in state.gangs[bind.gang].roles)


def _without(plan: Plan, undone: set[int]) -> Plan:
    """What is left of a plan for the books: decisions that came about."""
    kept = tuple(decision for decision in plan.decisions if decision.gang not in undone)
    return replace(plan, decisions=kept)
