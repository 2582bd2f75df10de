"""The engine behind the daemon: events go in, acts come out.

Everything here is about the logical cluster, which runs ahead of the real one: a gang that is
evicted waits again at once, although its processes still have to go, and whoever starts in its
place is bound at once, although it can begin only when they are gone. `occupancy` keeps the two
apart. No IO and no clock, so that a test can hold this to the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.control import leaving
from phalanx.control.folding import fold
from phalanx.control.forward import PASSES_MOST
from phalanx.control.losses import note_failure, requeue_degraded, tick
from phalanx.control.seating import add_running, past_of
from phalanx.control.state import State
from phalanx.control.strangers import leave_free, occupy
from phalanx.control.tables import DEFAULT_WALLTIME_US
from phalanx.control.waiting import set_gates
from phalanx.engine.cycle import schedule
from phalanx.engine.lifecycle import Happening, Phase, advance
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Evict, Guest, Move, Plan, Repair, Resize, Restart, Seats
from phalanx.model.queue import Queue, UserLimit

#: The machine is one node, and this is its number.
NODE = 0


@dataclass(frozen=True, slots=True)
class Begin:
    """A gang has its seats; `again`: it is moved there, and its present attempt must end first."""

    gang: int
    seats: tuple[Seats, ...]
    guest: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """A gang waits again, and its attempt must end."""

    gang: int
    cause: Cause
    beneficiary: int | None


@dataclass(frozen=True, slots=True)
class SeatChange:
    """A running gang sits on other seats from now on."""

    gang: int
    before: tuple[Seats, ...]
    seats: tuple[Seats, ...]
    cause: Cause
    beneficiary: int | None


@dataclass(slots=True)
class Acts:
    """What a planning pass wants done, in order, and when to plan again without an event."""

    done: list[Begin | Leave | SeatChange] = field(default_factory=list)
    infeasible: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    wake_at_us: int | None = None
    passes: int = 0


class Planner:
    """The logical cluster of one machine."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        queues: Sequence[Queue] = (),
        users: Sequence[UserLimit] = (),
        default_walltime_us: int = DEFAULT_WALLTIME_US,
    ) -> None:
        """Nobody is there yet."""
        self.policy = policy
        self.state = State(fleet, queues, users, default_walltime_us=default_walltime_us)
        tenants = self.state.tenants
        tenants.half_life_us = policy.half_life_us
        weighs = policy.standing or policy.shares_users or bool(policy.takes)
        tenants.watched = tenants.watched or (weighs and (tenants.many or policy.shares_users))
        self.version = 0  # grows with everything that is folded; whoever keeps an answer compares it

    # ------------------------------------------------------------------ events

    def at(self, now_us: int) -> State:
        """The state, brought up to this instant."""
        state = self.state
        now_us = max(now_us, state.now_us)
        state.tenants.decay(now_us)
        state.now_us = now_us
        self.version += 1
        return state

    def submit(self, now_us: int, gang: Gang, *, held: bool = False) -> tuple[int, list[int]]:
        """A gang arrives; the answer is its number, and who is cancelled because a dependency failed long ago."""
        state = self.at(now_us)
        number = state.submit(gang)
        if held:
            self.hold(now_us, number)
        if state.records[number].doomed_by is not None:
            return number, [number, *state.cancel(number)]
        return number, []

    def hold(self, now_us: int, number: int) -> None:
        """It may not have its turn for now."""
        state = self.at(now_us)
        state.thaw()
        record = state.records[number]
        record.held = True
        if record.phase is Phase.PENDING:
            set_gates(state, record)

    def release(self, now_us: int, number: int) -> None:
        """It may have its turn."""
        self.at(now_us).release(number)

    def cancel(self, now_us: int, number: int) -> list[int]:
        """Nobody wants it any more; the answer is whoever else is cancelled with it."""
        return self.at(now_us).cancel(number)

    def complete(self, now_us: int, number: int) -> list[int]:
        """It has ended well and nothing of it is left."""
        return self.at(now_us).complete(number)

    def fail(self, now_us: int, number: int) -> list[int]:
        """It has ended badly; the answer is whoever is cancelled with it."""
        return self.at(now_us).fail(number)

    def requeue(self, now_us: int, number: int, *, failed: bool = False, progressed: bool = False) -> None:
        """It gives everything back and waits again with its age; after failures not before it has rested."""
        state = self.at(now_us)
        if failed:
            note_failure(state, number, progressed=progressed)
            requeue_degraded(state, number)
        else:
            state.requeue(number)

    def replace(self, now_us: int, number: int, gang: Gang, *, held: bool) -> int:
        """Another version of a waiting gang takes its place, with its age; nobody is told of an end."""
        state = self.at(now_us)
        old = state.records[number]
        leaving.leave(state, number, Happening.CANCEL)
        fresh = state.submit(gang)
        record = state.records[fresh]
        record.eligible_us, record.history, record.held = old.eligible_us, old.history, held
        if record.history is not None:
            record.history.resting = False  # the timer of its rest was the old version's
        state.pending.columns["eligible_us"][record.row] = old.eligible_us
        state.order.kept = False
        set_gates(state, record)
        pinned = state.pins.pop(number, None)
        if pinned is not None:
            state.pin(fresh, pinned)
        state.judged.discard(number)
        return fresh

    def seat(self, now_us: int, number: int, seats: tuple[Seats, ...], start_us: int) -> None:
        """It runs there already: found so when the daemon started."""
        state = self.at(now_us)
        state.thaw()
        record = state.records[number]
        length_us = record.gang.walltime_us or state.default_walltime_us
        record.phase = advance(record.phase, Happening.BIND, record.gang.name)
        state.pending.remove(record.row)
        add_running(state, number, Bind(number, seats, length_us), min(start_us, state.now_us))
        record.attempts += 1
        if record.gang.elastic:
            state.running.columns["elastic"][record.row] = False

    def note_ended(self, name: str, *, well: bool) -> None:
        """A gang that others may wait for ended before this state was made."""
        self.state.ended.setdefault(name, Phase.COMPLETED if well else Phase.FAILED)

    def pin(self, now_us: int, number: int, members: int | None) -> bool:
        """A person wants it at this size; False if it cannot have it."""
        return self.at(now_us).pin(number, members)

    def started(self, now_us: int, number: int) -> None:
        """Its members went through the gate now, not when it was given its seats."""
        state = self.at(now_us)
        record = state.records[number]
        if record.phase is Phase.RUNNING:
            state.thaw()
            columns = state.running.columns
            columns["start_us"][record.row] = columns["saved_us"][record.row] = state.now_us
            state.note_end(state.now_us + int(columns["length_us"][record.row]))
            state.unsettle()

    def set_manners(self, now_us: int, number: int, *, elastic: bool) -> None:
        """Whether the members of a running elastic gang have said that they can be resized."""
        state = self.at(now_us)
        record = state.records[number]
        if record.phase.seated and record.gang.elastic:
            state.thaw()
            state.running.columns["elastic"][record.row] = elastic
            state.unsettle()

    def report(self, now_us: int, number: int, end_us: int | None, saved_us: int | None) -> None:
        """What a running gang says of itself: when it will be done, and what it has saved."""
        state = self.at(now_us)
        record = state.records[number]
        if record.phase is not Phase.RUNNING:
            return
        state.thaw()
        columns = state.running.columns
        if end_us is not None:
            columns["length_us"][record.row] = max(1, end_us - int(columns["start_us"][record.row]))
            state.note_end(end_us)
        if saved_us is not None:
            columns["saved_us"][record.row] = saved_us

    def resize_to(self, now_us: int, number: int, seats: tuple[Seats, ...], cause: Cause) -> None:
        """It sits on these seats, whatever was planned: members were lost, or it refused to change."""
        state = self.at(now_us)
        state.thaw()
        fold(state, Plan(decisions=(Resize(number, seats, cause, None, Guest.NO),)))

    def occupy(self, now_us: int, device: int) -> None:
        """A stranger uses a device, or it cannot be used."""
        occupy(self.at(now_us), NODE, device)

    def leave_free(self, now_us: int, device: int) -> None:
        """The device can be used again."""
        leave_free(self.at(now_us), NODE, device)

    # ------------------------------------------------------------------ passes

    def plan(self, now_us: int) -> Acts:
        """What is due by time, then plan and fold until nothing changes any more."""
        state = self.at(now_us)
        acts = Acts()
        due_us = state.next_due_us()
        if due_us is not None and due_us <= state.now_us:
            for bind in tick(state).begun:
                self._begin(bind, acts)
        for _ in range(PASSES_MOST):
            if not self._worth_a_pass() or not self._plan_once(acts):
                break
        due_us = state.next_due_us()
        ahead = [at for at in (acts.wake_at_us, due_us) if at is not None]
        acts.wake_at_us = min(ahead, default=None)
        return acts

    def _worth_a_pass(self) -> bool:
        state = self.state
        if len(state.pending) or state.degraded:
            return True
        return bool(len(state.running)) and (self.policy.touches_running or state.restless)

    def _plan_once(self, acts: Acts) -> bool:
        state = self.state
        acts.passes += 1
        plan = schedule(state.borrow(), self.policy)
        acts.wake_at_us = plan.wake_at_us
        before = {d.gang: state.records[d.gang].seats for d in plan.decisions if isinstance(d, Resize)}
        folded = state.apply(plan)
        begun = {bind.gang for bind in folded.begun}
        for decision in plan.decisions:
            if isinstance(decision, Bind):
                if decision.gang in begun:
                    self._begin(decision, acts)
            elif isinstance(decision, Evict):
                acts.done.append(Leave(decision.gang, decision.cause, decision.beneficiary))
            elif isinstance(decision, Resize):
                was = before[decision.gang]
                acts.done.append(SeatChange(decision.gang, was, decision.seats, decision.cause, decision.beneficiary))
            elif isinstance(decision, Move | Repair | Restart):
                acts.done.append(Begin(decision.gang, decision.seats, again=True))
        acts.infeasible += plan.infeasible
        acts.cancelled += folded.cancelled
        evicted = any(isinstance(decision, Evict) for decision in plan.decisions)
        return bool(plan.infeasible or folded.cancelled or evicted)

    def _begin(self, bind: Bind, acts: Acts) -> None:
        record = self.state.records[bind.gang]
        if record.gang.elastic:  # until its members have said that they can be resized, nobody counts on it
            self.state.running.columns["elastic"][record.row] = False
        acts.done.append(Begin(bind.gang, bind.seats, guest=bind.guest is not Guest.NO))

    # ------------------------------------------------------------------ questions

    def seats_of(self, number: int) -> tuple[Seats, ...]:
        """Where it sits, or will."""
        return self.state.records[number].seats

    def phase_of(self, number: int) -> Phase:
        """Where it stands, logically."""
        return self.state.records[number].phase

    def failures_of(self, number: int) -> int:
        """Attempts lost in a row without progress."""
        return past_of(self.state.records[number]).failures
