"""The control loop on a virtual clock: the next instant, its events, a plan, until nothing happens any more.

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

from phalanx.control.instructions import (
    Foresight,
    Instruction,
    LetGo,
    Recorder,
    Remains,
    SeatChange,
    Shift,
    Shrunk,
    Start,
)
from phalanx.control.loop import Loop
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Plan, Seats
from phalanx.model.value import value


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


#: Times that gates are kept anew at one instant.
_KEPT_MOST = 20

# Later than anything that happens, and a number: lists that end in it need no question whether they are over.
_NEVER_US = 1 << 62


@value(frozen=True, slots=True)
class Arrival:
    """A gang that will be submitted, with the speed-up curve it will report if it is elastic."""

    gang: Gang
    curve: tuple[tuple[int, float], ...] | None = None


@value(frozen=True, slots=True)
class End:
    """A running gang will end then, well or badly."""

    at_us: int
    gang: int
    ok: bool
    token: int = 0  # for whoever foresaw it, to know later whether it still stands


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


class Refusals(Protocol):
    """Which decisions of a plan the world will not carry out, and in which words it says so."""

    def draw(self, plan: Plan) -> Iterable[tuple[int, str]]:
        """Gangs whose decisions are refused."""
        ...


class GateKeeper(Protocol):
    """What keeps gangs from their turn by rules that the engine does not know (`control.gates`)."""

    def keep(self, state: State) -> bool:
        """Open and shut what is due now; whether anything has changed."""
        ...


class Forward:
    """One run over the virtual clock. Carries instructions out by asking the truth what comes of them."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        truth: Truth,
        recorder: Recorder,
        *,
        ledger: bool = False,
        refusals: Refusals | None = None,
        gates: GateKeeper | None = None,
    ) -> None:
        """Nothing has happened yet. `ledger`: ask every plan what idle room is kept for."""
        self.state, self.truth, self.recorder = state, truth, recorder
        self.loop = Loop(state, policy, self, recorder, ledger=ledger, refusable=refusals is not None)
        self.check: Callable[[State], None] | None = None  # invariants, after every instant
        self._refusals, self._gates = refusals, gates
        self._sequence = 0
        # The sequence stands before the rest, so that two ends of one instant come in the order in which they became
        # certain (rule 1) and never compare an `End`.
        self._ends: list[tuple[int, int, int, End]] = []  # when, sequence, attempt
        self._wake_at_us: int | None = None
        self._draining: dict[str, int] = {}  # nodes with the instant at which everybody must be gone

    @property
    def passes(self) -> int:
        """Cycles of the engine so far."""
        return self.loop.passes

    def run(
        self,
        arrivals: Sequence[Arrival],
        events: Sequence[Happens] = (),
        until_us: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Play everything, in order of time, up to and including `until_us`."""
        # Numbers are given in this order, and ties everywhere break by number.
        arrivals = sorted(arrivals, key=lambda arrival: arrival.gang.submit_us)  # stable: file order breaks ties
        events = sorted([*events, *_drain_ends(events)], key=lambda event: event.at_us)
        submits, happens = [arrival.gang.submit_us for arrival in arrivals], [event.at_us for event in events]
        submits.append(_NEVER_US)
        happens.append(_NEVER_US)
        next_arrival = next_event = 0
        while True:
            # 1. The next instant at which anything happens.
            # Instants and not ticks: between two of them nothing can change, by the
            # promise that `Plan.wake_at_us` makes.
            now = min(self._ahead_us(), submits[next_arrival], happens[next_event])
            if now == _NEVER_US or (until_us is not None and now > until_us):
                return
            self.loop.at(now)
            # 2. Fold everything of that instant.
            while self._ends and self._ends[0][0] == now:
                # Ends first (rule 1): whoever is done at the instant at which its node fails is done.
                self._on_end(heapq.heappop(self._ends))
            # After the ends, since an end may begin a claim; before what people say, which
            # may be about one that has just begun.
            self.loop.run_due()
            while happens[next_event] == now:
                self._on_event(events[next_event])
                next_event += 1
            while submits[next_arrival] == now:
                self.loop.submit(arrivals[next_arrival].gang, arrivals[next_arrival].curve)
                next_arrival += 1
                if progress is not None and next_arrival % 500 == 0:
                    progress(next_arrival, len(arrivals))
            # 3. Plan.
            # Of the last plan alone: each works out anew when to look again, and an
            # older wish may be about somebody gone.
            self._wake_at_us = self._plan()
            if self.check is not None:
                # After the plan and not between its passes: only then everybody is where they were told to be.
                self.check(self.state)

    def _plan(self) -> int | None:
        """Plans at this instant; the answer is when the last of them wants to be looked at again."""
        if self._gates is None:
            return self.loop.plan().wake_at_us
        # Before the plan, as whoever has people to serve keeps them. Once more if the plan itself has moved one: whom
        # it evicted leaves a place. Bounded, since nothing says that a start and an eviction cannot chase each other.
        self._gates.keep(self.state)
        wake_at_us = self.loop.plan().wake_at_us
        for _ in range(_KEPT_MOST):
            if not self._gates.keep(self.state):
                break
            wake_at_us = self.loop.plan().wake_at_us
        return wake_at_us

    def _ahead_us(self) -> int:
        """The next instant at which something happens by itself."""
        while self._ends and self._is_void(self._ends[0]):
            # Or everything would be planned anew at an instant at which nothing happens: after a resize of every
            # second gang that were a fifth of all passes.
            heapq.heappop(self._ends)
        ahead_us = self._ends[0][0] if self._ends else _NEVER_US
        due_us = self.state.next_due_us()
        if due_us is not None:
            ahead_us = min(ahead_us, due_us)
        # In an empty cluster a window that opens changes nothing, and a run would go on to the last of them.
        if self._wake_at_us is not None and (len(self.state.pending) or len(self.state.running)):
            ahead_us = min(ahead_us, self._wake_at_us)
        return ahead_us

    # ------------------------------------------------------------------ what the loop wants done

    def list_refused(self, plan: Plan) -> Iterable[tuple[int, str]]:
        """Here the world says at once what it will not do."""
        return () if self._refusals is None else self._refusals.draw(plan)

    def stop(self, number: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """A gang stops; what is left of it is true."""
        return self.truth.stop(number, self.state.now_us, saves=saves, holds=holds)

    def foresee(self, number: int) -> Foresight | None:
        """What a running gang reports, true as well."""
        return self.truth.foresee(number, self.state.now_us)

    def carry_out(self, instruction: Instruction) -> None:
        """Done at once; what it makes certain is expected."""
        for end in self._ends_by(instruction):
            self.expect(end)
        # Where nobody can say no, no pictures are taken (decision 15), and there is nothing to confirm.
        if self._refusals is not None:
            self.state.confirm(instruction.gang)

    def _ends_by(self, instruction: Instruction) -> Iterable[End]:
        truth, now_us = self.truth, self.state.now_us
        if isinstance(instruction, Start):
            return truth.ends_after(instruction.bind, now_us)
        if isinstance(instruction, SeatChange | Shrunk):
            return truth.ends_resized(instruction.gang, instruction.seats, now_us)
        if isinstance(instruction, Shift):
            ends = truth.ends_moved if instruction.how == "move" else truth.ends_repaired
            return ends(instruction.gang, instruction.seats, now_us)
        # What it held without running was counted as idle until now; the truth keeps the books of that.
        if isinstance(instruction, LetGo) and instruction.held:
            truth.stop(instruction.gang, now_us, saves=False)
        return ()

    # ------------------------------------------------------------------ events

    def expect(self, end: End) -> None:
        """A running gang will end then, unless something happens to it before."""
        self._sequence += 1
        # An end belongs to an attempt. Heaps cannot be searched, so that a void one
        # stays in and is recognised when it comes.
        attempt = self.state.records[end.gang].attempts
        heapq.heappush(self._ends, (end.at_us, self._sequence, attempt, end))

    def _is_void(self, entry: tuple[int, int, int, End]) -> bool:
        """Whether it is the end of an attempt that was lost, changed or cancelled meanwhile."""
        _, _, attempt, end = entry
        # The attempt tells starts apart, `stands` resizes of one attempt: after one the gang ends at another instant.
        return self.state.records[end.gang].attempts != attempt or not self.truth.stands(end)

    def _on_end(self, entry: tuple[int, int, int, End]) -> None:
        end = entry[-1]
        if self.state.phase_of(end.gang) is not Phase.RUNNING or self._is_void(entry):
            return
        if end.ok:
            self.loop.complete(end.gang)
        else:
            self.loop.fail(end.gang)

    def _on_event(self, event: Happens) -> None:
        if event.gang is not None:
            self._on_word(event)
        elif event.added is not None:
            self.loop.add_node(event.added)
        elif event.node is not None:
            if event.by_us is not None:
                self._draining[event.node] = event.by_us
            self._on_node(event.verb, event.node)

    def _on_word(self, event: Happens) -> None:
        """A person speaks of a gang; of one that has not arrived yet, they speak in vain."""
        assert event.gang is not None
        number = self.state.number_by_name.get(event.gang)
        # A file may name a gang whose turn to arrive has not come. To refuse the file
        # would need to know how the run goes.
        if number is None or self.state.phase_of(number).ended:
            return
        if event.verb == "cancel":
            self.loop.cancel(number)
        elif event.verb == "release":
            self.state.release(number)
        elif event.verb == "resize":
            self.state.pin(number, event.members)

    def _on_node(self, verb: str, name: str) -> None:
        loop, node = self.loop, self.state.fleet.index_by_name.get(name)
        # Removed meanwhile: what is said of it later is said in vain.
        if node is None:
            return
        if verb == "fail":
            loop.fail_node(node)
        elif verb == "remove":
            loop.remove_nodes((node,))
        elif verb == "repair":
            loop.repair_node(node)
        elif verb in ("cordon", "drain"):
            loop.open_node(node, open_=False, drain=verb == "drain")
        elif verb == "uncordon":
            self._draining.pop(name, None)
            loop.open_node(node, open_=True)
        elif verb == "evict":
            # The time of a drain is over, unless the node was given back meanwhile.
            # A later drain moves the instant: what was said last holds, and this one is then somebody else's.
            if self._draining.get(name) == self.state.now_us:
                del self._draining[name]
                loop.empty_node(node)
            self.recorder.on_capacity(self.state.now_us)


def _drain_ends(events: Sequence[Happens]) -> list[Happens]:
    """The instants at which drained nodes must be empty."""
    # As events of their own, so that the loop has no timers of drains: who drives it knows what was asked, and when.
    return [Happens(event.by_us, "evict", event.node) for event in events if event.by_us is not None]
