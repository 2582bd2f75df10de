"""The engine on a virtual clock: fold events, plan, apply, until nothing happens any more.

Serves whoever looks ahead: the simulator, an expected start, a what-if. What is true (how long a
gang really runs) comes from a `Truth`; what happened goes to a `Witness`. Neither knows the other.

All events of one instant are folded before one pass: ends, then node events, then words from
people, then submits, each in sequence. If the plan makes an event at the same instant, the
instant is walked once more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind


@dataclass(frozen=True, slots=True)
class Happens:
    """An event that somebody foresaw: a node or a gang, and a verb."""

    at_us: int
    verb: str  # fail repair cordon drain uncordon add remove cancel release
    node: str | None = None
    gang: str | None = None
    added: Node | None = None
    by_us: int | None = None  # of a drain: who is still there then is evicted


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


class Truth(Protocol):
    """How long gangs really run."""

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """Ends that this start makes certain; of this gang or of others."""
        ...

    def stands(self, end: End) -> bool:
        """Whether an end foreseen earlier still comes."""
        ...


class Witness(Protocol):
    """Who writes down what happened."""

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        ...

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        ...

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang was completed, failed, cancelled, evicted, or lost its seats (`lose`)."""
        ...

    def on_capacity(self, at_us: int) -> None:
        """Nodes joined, left, failed or came back."""
        ...


class Forward:
    """One run over the virtual clock."""

    def __init__(self, state: State, policy: Policy, truth: Truth, witness: Witness) -> None:
        """Nothing has happened yet."""
        self.state, self.policy, self.truth, self.witness = state, policy, truth, witness
        self.passes = 0
        self._sequence = 0
        self._ends: list[tuple[int, int, int, End]] = []  # when, sequence, attempt
        self._wake_at_us: int | None = None
        self._draining: dict[str, int] = {}  # nodes with the instant at which everybody must be gone
        self.check: Callable[[State], None] | None = None  # invariants, after every instant

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
            ahead = [self._ends[0][0]] if self._ends else []
            if next_arrival < len(arrivals):
                ahead.append(arrivals[next_arrival].gang.submit_us)
            if next_event < len(events):
                ahead.append(events[next_event].at_us)
            if self._wake_at_us is not None and len(state.pending):
                ahead.append(self._wake_at_us)
            if not ahead or (until_us is not None and min(ahead) > until_us):
                return
            now = state.now_us = min(ahead)
            # 2. Fold everything of that instant.
            while self._ends and self._ends[0][0] == now:
                self._on_end(heapq.heappop(self._ends))
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

    def _on_arrival(self, arrival: Arrival) -> None:
        number = self.state.submit(arrival.gang, arrival.curve)
        self.witness.on_submit(number, self.state.now_us)
        if self.state.records[number].doomed_by is not None:
            self._note_cancelled([number, *self.state.cancel(number)])

    def _pass(self) -> None:
        """Plan and apply; again at the same instant as long as the plan itself ends somebody's wait."""
        self._wake_at_us = None
        while len(self.state.pending) and self._plan_once():
            pass
        if self.check is not None:
            self.check(self.state)

    def _plan_once(self) -> bool:
        state = self.state
        self.passes += 1
        plan = schedule(state.borrow(), self.policy)
        self._wake_at_us = plan.wake_at_us
        cancelled = state.apply(plan)
        for decision in plan.decisions:
            if isinstance(decision, Bind):
                self.witness.on_bind(decision, state.now_us)
                for end in self.truth.ends_after(decision, state.now_us):
                    self._expect(end)
        self._note_cancelled(cancelled)
        return bool(plan.infeasible or cancelled)

    def _expect(self, end: End) -> None:
        self._sequence += 1
        attempt = self.state.records[end.gang].attempts
        heapq.heappush(self._ends, (end.at_us, self._sequence, attempt, end))

    def _on_end(self, entry: tuple[int, int, int, End]) -> None:
        _, _, attempt, end = entry
        number, ok = end.gang, end.ok
        record = self.state.records[number]
        if record.phase is not Phase.RUNNING or record.attempts != attempt or not self.truth.stands(end):
            return  # an end of an attempt that was lost or cancelled meanwhile
        cancelled = self.state.complete(number) if ok else self.state.fail(number)
        self.witness.on_end(number, self.state.now_us, "complete" if ok else "fail")
        self._note_cancelled(cancelled)

    def _note_cancelled(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.witness.on_end(number, self.state.now_us, "cancel")

    def _on_event(self, event: Happens) -> None:
        if event.gang is not None:
            self._on_word(event.verb, event.gang)
        elif event.added is not None:
            self.state.add_node(event.added)
            self.witness.on_capacity(self.state.now_us)
        elif event.node is not None:
            if event.by_us is not None:
                self._draining[event.node] = event.by_us
            self._on_node(event.verb, event.node)

    def _on_word(self, verb: str, name: str) -> None:
        """A person speaks of a gang; of one that has not arrived yet, they speak in vain."""
        number = self.state.number_by_name.get(name)
        if number is None:
            return
        if verb == "cancel":
            if self.state.records[number].phase.ended:
                return
            cancelled = self.state.cancel(number)
            self._note_cancelled([number, *cancelled])
        elif verb == "release":
            self.state.release(number)

    def _evict(self, name: str, node: int) -> None:
        """The time of a drain is over, unless the node was given back meanwhile."""
        if self._draining.pop(name, None) != self.state.now_us:
            return
        for number in self.state.gangs_on(node):
            self.state.lose(number)
            self.witness.on_end(number, self.state.now_us, "evict")

    def _on_node(self, verb: str, name: str) -> None:
        state, node = self.state, self.state.fleet.index_by_name.get(name)
        if node is None:
            return
        if verb in ("fail", "remove"):
            for number in state.gangs_on(node):
                state.lose(number)
                self.witness.on_end(number, state.now_us, "lose")
            state.set_up(node, up=False)
            if verb == "remove":
                state.remove_node(node)
        elif verb == "repair":
            state.set_up(node, up=True)
        elif verb in ("cordon", "drain"):
            state.set_open(node, open_=False)
        elif verb == "uncordon":
            self._draining.pop(name, None)
            state.set_open(node, open_=True)
        elif verb == "evict":
            self._evict(name, node)
        self.witness.on_capacity(state.now_us)


def _drain_ends(events: Sequence[Happens]) -> list[Happens]:
    """The instants at which drained nodes must be empty."""
    return [Happens(event.by_us, "evict", event.node) for event in events if event.by_us is not None]
