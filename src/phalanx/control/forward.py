"""The engine on a virtual clock: fold events, plan, apply, until nothing happens any more.

Serves whoever looks ahead: the simulator, an expected start, a what-if. What is true (how long a
gang really runs) comes from a `Truth`; what happened goes to a `Recorder`. Neither knows the other.

All events of one instant are folded before one pass: ends, then node events, then words from
people, then submits, each in sequence. If the plan makes an event at the same instant, the
instant is walked once more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from phalanx.control.folding import Folded
from phalanx.control.losses import lose_node, note_failure, requeue_degraded, tick
from phalanx.control.seating import past_of
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Decision, Evict, Move, Plan, Repair, Resize, Restart, Seats

#: Passes at one instant. Every plan that evicts lowers a potential, so this is never reached; it bounds our mistakes.
PASSES_MOST = 200


@dataclass(frozen=True, slots=True)
class Happens:
    """An event that somebody foresaw: a node or a gang, and a verb."""

    at_us: int
    verb: str  # fail repair cordon drain uncordon add remove cancel release resize
    node: str | None = None
    gang: str | None = None
    added: Node | None = None
    by_us: int | None = None  # of a drain: who is still there then is evicted
    members: int | None = None  # of a resize; None: no wish any more


@dataclass(frozen=True, slots=True)
class Arrival:
    """A gang that will be submitted, with the speed-up curve it will report if it is elastic."""

    gang: Gang
    curve: tuple[tuple[int, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class End:
    """A running gang will end then, well or badly."""

    at_us: int
    gang: int
    ok: bool
    token: int = 0  # for whoever foresaw it, to know later whether it still stands


@dataclass(frozen=True, slots=True)
class Foresight:
    """What the in-job library of a running gang reports of it."""

    end_us: int  # when it will be done at its present size
    saved_us: int  # its newest snapshot, else the start of its work


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of an attempt that stopped before its end."""

    progressed: bool  # whether anything of it was saved
    left_us: int | None  # run time still needed at the largest size, if the gang reports progress


class Truth(Protocol):
    """How gangs really fare: how long they run, what they have saved, what a change costs them."""

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """An attempt begins; ends that this makes certain, of this gang or of others."""
        ...

    def ends_resized(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """It stands still for its resize pause and goes on at this size, no work lost."""
        ...

    def ends_moved(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """It saves its work, restores it and goes on elsewhere."""
        ...

    def ends_repaired(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """A gang that was stopped for lack of members goes on from what it saved."""
        ...

    def stop(self, number: int, now_us: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """It stops; `saves`: after a snapshot; `holds`: seats that it keeps without running."""
        ...

    def foresee(self, number: int, now_us: int) -> Foresight | None:
        """What a running gang reports; None if it reports nothing (yet)."""
        ...

    def stands(self, end: End) -> bool:
        """Whether an end foreseen earlier still comes."""
        ...


class Recorder(Protocol):
    """Who writes down what happened."""

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        ...

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        ...

    def on_change(self, number: int, at_us: int, event: str) -> None:
        """A gang that holds seats changed (grow, shrink, move, lose, repair, restart); the state knows how it sits."""
        ...

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang was completed, failed, cancelled, or gave all its seats back (evict, yield)."""
        ...

    def on_capacity(self, at_us: int) -> None:
        """Nodes joined, left, failed or came back."""
        ...

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle decided."""
        ...


class Forward:
    """One run over the virtual clock."""

    def __init__(self, state: State, policy: Policy, truth: Truth, recorder: Recorder, *, ledger: bool = False) -> None:
        """Nothing has happened yet. `ledger`: ask every plan what idle room is kept for."""
        self.state, self.policy, self.truth, self.recorder = state, policy, truth, recorder
        self.passes = 0
        self._sequence = 0
        self._ledger = ledger
        self._ends: list[tuple[int, int, int, End]] = []  # when, sequence, attempt
        self._wake_at_us: int | None = None
        self._draining: dict[str, int] = {}  # nodes with the instant at which everybody must be gone
        self.check: Callable[[State], None] | None = None  # invariants, after every instant
        state.tenants.half_life_us = policy.half_life_us
        weighs = policy.standing or policy.shares_users or bool(policy.takes)
        state.tenants.watched = state.tenants.watched or (weighs and (state.tenants.many or policy.shares_users))

    def run(
        self,
        arrivals: Sequence[Arrival],
        events: Sequence[Happens] = (),
        until_us: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Play everything, in order of time, up to and including `until_us`."""
        arrivals = sorted(arrivals, key=lambda arrival: arrival.gang.submit_us)  # stable: file order breaks ties
        events = sorted([*events, *_drain_ends(events)], key=lambda event: event.at_us)
        next_arrival = next_event = 0
        state = self.state
        while True:
            # 1. The next instant at which anything happens.
            ahead = self._ahead()
            if next_arrival < len(arrivals):
                ahead.append(arrivals[next_arrival].gang.submit_us)
            if next_event < len(events):
                ahead.append(events[next_event].at_us)
            if not ahead or (until_us is not None and min(ahead) > until_us):
                return
            now = min(ahead)
            state.tenants.decay(now)
            state.now_us = now
            # 2. Fold everything of that instant.
            while self._ends and self._ends[0][0] == now:
                self._on_end(heapq.heappop(self._ends))
            self._on_time()
            while next_event < len(events) and events[next_event].at_us == now:
                self._on_event(events[next_event])
                next_event += 1
            while next_arrival < len(arrivals) and arrivals[next_arrival].gang.submit_us == now:
                self._on_arrival(arrivals[next_arrival])
                next_arrival += 1
                if progress is not None and next_arrival % 500 == 0:
                    progress(next_arrival, len(arrivals))
            # 3. One pass.
            self._pass()

    def _ahead(self) -> list[int]:
        """Instants at which something happens by itself."""
        ahead = [self._ends[0][0]] if self._ends else []
        due_us = self.state.next_due_us()
        if due_us is not None:
            ahead.append(due_us)
        if self._wake_at_us is not None and (len(self.state.pending) or len(self.state.running)):
            ahead.append(self._wake_at_us)
        return ahead

    def _on_arrival(self, arrival: Arrival) -> None:
        number = self.state.submit(arrival.gang, arrival.curve)
        self.recorder.on_submit(number, self.state.now_us)
        if self.state.records[number].doomed_by is not None:
            self._note_cancelled([number, *self.state.cancel(number)])

    def _on_time(self) -> None:
        """What is due by time alone: seats are vacated, gangs begin there, holds and rests are over."""
        due_us = self.state.next_due_us()
        if due_us is None or due_us > self.state.now_us:
            return
        due = tick(self.state)
        for bind in due.begun:
            self._begin(bind)
        for number in due.requeued:
            self.truth.stop(number, self.state.now_us, saves=False)

    # ------------------------------------------------------------------ passes

    def _pass(self) -> None:
        """Plan and apply; again at the same instant as long as the plan itself makes events."""
        self._wake_at_us = None
        for _ in range(PASSES_MOST):
            if not self._worth_a_pass() or not self._plan_once():
                break
        if self.check is not None:
            self.check(self.state)

    def _worth_a_pass(self) -> bool:
        if len(self.state.pending) or self.state.degraded:
            return True
        return bool(len(self.state.running)) and (self.policy.touches_running or self.state.restless)

    def _plan_once(self) -> bool:
        state = self.state
        self.passes += 1
        if state.has_elastic:
            self._gather_reports()
        plan = schedule(state.borrow(), self.policy, ledger=self._ledger)
        self._wake_at_us = plan.wake_at_us
        # Most plans of a log start somebody or nobody and change nobody who runs: those need no second look.
        changes = [decision for decision in plan.decisions if not isinstance(decision, Bind)]
        before = self._before_changes(changes) if changes else {}
        folded = state.apply(plan)
        if changes:
            self._carry_out_all(plan, folded, before)
        else:
            for bind in folded.begun:
                self._begin(bind)
        self._note_cancelled(folded.cancelled)
        self.recorder.on_plan(plan, state.now_us)
        # Whoever was repaired could not lend or grow in the plan that repaired it.
        moved = any(isinstance(decision, Evict | Repair | Restart) for decision in changes) if changes else False
        return bool(plan.infeasible or folded.cancelled or moved) | (bool(state.degraded) and self._let_go())

    def _before_changes(self, changes: Sequence[Decision]) -> dict[int, tuple[Seats, ...]]:
        """Stop whoever is evicted, and remember how those sit that are resized."""
        for decision in changes:
            if isinstance(decision, Evict):
                self._stop(decision.gang, saves=decision.cause is Cause.TURN)
        return {d.gang: self.state.records[d.gang].seats for d in changes if isinstance(d, Resize)}

    def _carry_out_all(self, plan: Plan, folded: Folded, before: dict[int, tuple[Seats, ...]]) -> None:
        begun = {bind.gang for bind in folded.begun}
        for decision in plan.decisions:
            if not isinstance(decision, Bind):
                self._carry_out(decision, before)
            elif decision.gang in begun:
                self._begin(decision)

    def _gather_reports(self) -> None:
        """Elastic gangs tell how far they are before anybody plans with them."""
        running = self.state.running
        for row in (running.alive & running.columns["elastic"]).nonzero()[0].tolist():
            self._foresee(int(running.columns["gang"][row]))

    def _foresee(self, number: int) -> None:
        record = self.state.records[number]
        seen = self.truth.foresee(number, self.state.now_us)
        if seen is not None and record.phase is Phase.RUNNING:
            columns = self.state.running.columns
            columns["length_us"][record.row] = seen.end_us - columns["start_us"][record.row]
            columns["saved_us"][record.row] = seen.saved_us
            self.state.note_end(seen.end_us)

    def _begin(self, bind: Bind) -> None:
        self.recorder.on_bind(bind, self.state.now_us)
        for end in self.truth.ends_after(bind, self.state.now_us):
            self._expect(end)

    def _stop(self, number: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        remains = self.truth.stop(number, self.state.now_us, saves=saves, holds=holds)
        if remains.left_us is not None:
            past_of(self.state.records[number]).left_us = remains.left_us
        return remains

    def _carry_out(
        self, decision: Resize | Evict | Move | Repair | Restart, before: dict[int, tuple[Seats, ...]]
    ) -> None:
        """Tell the gang, and whoever writes things down."""
        now, number = self.state.now_us, decision.gang
        if isinstance(decision, Evict):
            self.recorder.on_end(number, now, "yield" if decision.cause is Cause.TURN else "evict")
            return
        if isinstance(decision, Resize):
            gained = decision.members - _members(before[number])
            event = "grow" if gained > 0 else "shrink" if gained < 0 else "move"
            expected = self.truth.ends_resized(number, decision.seats, now)
        elif isinstance(decision, Move):
            event, expected = "move", self.truth.ends_moved(number, decision.seats, now)
        else:
            event = "repair" if isinstance(decision, Repair) else "restart"
            expected = self.truth.ends_repaired(number, decision.seats, now)
        for end in expected:
            self._expect(end)
        self.recorder.on_change(number, now, event)
        self._foresee(number)

    def _let_go(self) -> bool:
        """A degraded gang that has no seat left to hold, and found no place, queues again at once."""
        state = self.state
        bare = [
            n
            for n in state.degraded
            if state.records[n].phase is Phase.DEGRADED and not _members(state.records[n].seats)
        ]
        for number in bare:
            requeue_degraded(state, number)
        return bool(bare)

    # ------------------------------------------------------------------ events

    def _expect(self, end: End) -> None:
        self._sequence += 1
        attempt = self.state.records[end.gang].attempts
        heapq.heappush(self._ends, (end.at_us, self._sequence, attempt, end))

    def _on_end(self, entry: tuple[int, int, int, End]) -> None:
        _, _, attempt, end = entry
        number, ok = end.gang, end.ok
        record = self.state.records[number]
        if record.phase is not Phase.RUNNING or record.attempts != attempt or not self.truth.stands(end):
            return  # an end of an attempt that was lost, changed or cancelled meanwhile
        cancelled = self.state.complete(number) if ok else self.state.fail(number)
        self.recorder.on_end(number, self.state.now_us, "complete" if ok else "fail")
        self._note_cancelled(cancelled)

    def _note_cancelled(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.recorder.on_end(number, self.state.now_us, "cancel")

    def _on_event(self, event: Happens) -> None:
        if event.gang is not None:
            self._on_word(event)
        elif event.added is not None:
            self.state.add_node(event.added)
            self.recorder.on_capacity(self.state.now_us)
        elif event.node is not None:
            if event.by_us is not None:
                self._draining[event.node] = event.by_us
            self._on_node(event.verb, event.node)

    def _on_word(self, event: Happens) -> None:
        """A person speaks of a gang; of one that has not arrived yet, they speak in vain."""
        assert event.gang is not None
        number = self.state.number_by_name.get(event.gang)
        if number is None or self.state.records[number].phase.ended:
            return
        if event.verb == "cancel":
            cancelled = self.state.cancel(number)
            self._note_cancelled([number, *cancelled])
        elif event.verb == "release":
            self.state.release(number)
        elif event.verb == "resize":
            self.state.pin(number, event.members)

    def _evict(self, name: str, node: int) -> None:
        """The time of a drain is over, unless the node was given back meanwhile."""
        if self._draining.pop(name, None) != self.state.now_us:
            return
        for number in self.state.gangs_on(node):
            if self.state.records[number].phase is not Phase.STARTING:
                self._stop(number, saves=False)
                self.recorder.on_end(number, self.state.now_us, "evict")
            self.state.requeue(number)

    def _lose(self, node: int) -> None:
        """A node goes from under gangs: those that stay whole close their ranks, the others hold what is left."""
        state = self.state
        for loss in lose_node(state, node):
            seats = state.records[loss.gang].seats
            if loss.how == "whole":
                for end in self.truth.ends_resized(loss.gang, seats, state.now_us):
                    self._expect(end)
                self.recorder.on_change(loss.gang, state.now_us, "lose")
            elif loss.how == "hurt":
                remains = self._stop(loss.gang, saves=False, holds=seats)
                self.recorder.on_change(loss.gang, state.now_us, "lose")
                if note_failure(state, loss.gang, progressed=remains.progressed):
                    self._note_cancelled(self._fail(loss.gang))

    def _fail(self, number: int) -> list[int]:
        cancelled = self.state.fail(number)
        self.truth.stop(number, self.state.now_us, saves=False)
        self.recorder.on_end(number, self.state.now_us, "fail")
        return cancelled

    def _on_node(self, verb: str, name: str) -> None:
        state, node = self.state, self.state.fleet.index_by_name.get(name)
        if node is None:
            return
        if verb in ("fail", "remove"):
            self._lose(node)
            state.set_up(node, up=False)
            if verb == "remove":
                state.remove_node(node)
        elif verb == "repair":
            state.set_up(node, up=True)
        elif verb in ("cordon", "drain"):
            state.set_open(node, open_=False, drain=verb == "drain")
        elif verb == "uncordon":
            self._draining.pop(name, None)
            state.set_open(node, open_=True)
        elif verb == "evict":
            self._evict(name, node)
        self.recorder.on_capacity(state.now_us)


def _members(seats: tuple[Seats, ...]) -> int:
    return sum(each.members for each in seats)


def _drain_ends(events: Sequence[Happens]) -> list[Happens]:
    """The instants at which drained nodes must be empty."""
    return [Happens(event.by_us, "evict", event.node) for event in events if event.by_us is not None]
