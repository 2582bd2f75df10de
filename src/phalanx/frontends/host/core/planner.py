"""The engine behind the daemon: events go in, acts come out.

Everything here is about the logical cluster, which runs ahead of the real one: a gang that is
evicted waits again at once, although its processes still have to go, and whoever starts in its
place is bound at once, although it can begin only when they are gone. `occupancy` keeps the two
apart. No IO and no clock, so that a test can hold this to the simulator.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from phalanx.control.avoiding import sit_beside
from phalanx.control.instructions import Foresight, Instruction, Leave, LetGo, Remains, SeatChange, Shift, Start
from phalanx.control.loop import Loop
from phalanx.control.state import DEFAULT_WALLTIME_US, State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang
from phalanx.model.plan import Cause, DateVerdict, Guest, Plan, Seats
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


@dataclass(slots=True)
class Acts:
    """What a planning pass wants done, in order, and when to plan again without an event."""

    done: list[Begin | Leave | SeatChange] = field(default_factory=list)
    infeasible: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    wake_at_us: int | None = None
    passes: int = 0
    dates: list[DateVerdict] = field(default_factory=list)


class NotedActs:
    """The loop's carrier: what it wants done, noted for whoever has processes, since nothing is done in here."""

    def __init__(self, state: State) -> None:
        """Nothing is to be done yet."""
        self.state = state
        self.done: list[Begin | Leave | SeatChange] = []

    def carry_out(self, instruction: Instruction) -> None:
        """Noted for whoever has processes."""
        if isinstance(instruction, Start):
            # Until its members have said that they can be resized, nobody counts on it.
            self.state.set_elastic(instruction.gang, elastic=False)
            bind = instruction.bind
            self.done.append(Begin(bind.gang, bind.seats, guest=bind.guest is not Guest.NO))
        elif isinstance(instruction, Leave | SeatChange):
            self.done.append(instruction)
        elif isinstance(instruction, Shift):
            self.done.append(Begin(instruction.gang, instruction.seats, again=True))
        elif isinstance(instruction, LetGo):  # members that were lost with a node need no word: they are gone
            # Whatever is left of its attempt must end before it can start again.
            self.done.append(Leave(instruction.gang, Cause.DRAIN))

    def list_refused(self, plan: Plan) -> Iterable[tuple[int, str]]:
        """A start that fails is a failed attempt here, and comes back as that."""
        return ()

    def stop(self, number: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """What is left of an attempt is known when its processes are gone, and reported then."""
        return Remains(progressed=False, left_us=None)

    def foresee(self, number: int) -> Foresight | None:
        """Members report by themselves."""
        return None

    def hand_over(self) -> list[Begin | Leave | SeatChange]:
        """Everything noted since the last time, in order."""
        done, self.done = self.done, []
        return done


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
        state = State(fleet, queues, users, default_walltime_us=default_walltime_us)
        self._noted = NotedActs(state)
        self.loop = Loop(state, policy, self._noted)
        self.taken: Collection[int] = ()  # devices on which there are processes, whoever has them by the plan
        self.version = 0  # grows with everything that is folded; whoever keeps an answer compares it

    def over(self, state: State) -> Planner:
        """The same planner over a copy of its state, for whoever tries something out."""
        twin = copy.copy(self)
        twin._noted = noted = NotedActs(state)  # noqa: SLF001 - its own
        twin.loop = self.loop.over(state, noted)
        return twin

    @property
    def state(self) -> State:
        """The logical cluster."""
        return self.loop.state

    @property
    def policy(self) -> Policy:
        """By which it is planned."""
        return self.loop.policy

    def at(self, now_us: int) -> Loop:
        """The loop, brought up to this instant."""
        self.loop.at(now_us)
        self.version += 1
        return self.loop

    # ------------------------------------------------------------------ events

    def submit(self, now_us: int, gang: Gang, *, held: bool = False) -> tuple[int, list[int]]:
        """A gang arrives; the answer is its number, and who is cancelled because a dependency failed long ago."""
        return self.at(now_us).submit(gang, held=held)

    def hold(self, now_us: int, number: int) -> None:
        """It may not have its turn for now."""
        self.at(now_us).state.hold(number)

    def release(self, now_us: int, number: int) -> None:
        """It may have its turn."""
        self.at(now_us).state.release(number)

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
        self.at(now_us).requeue(number, failed=failed, progressed=progressed)

    def replace(self, now_us: int, number: int, gang: Gang, *, held: bool) -> int:
        """Another version of a waiting gang takes its place, with its age; nobody is told of an end."""
        return self.at(now_us).state.replace(number, gang, held=held)

    def seat(self, now_us: int, number: int, seats: tuple[Seats, ...], start_us: int) -> None:
        """It runs there already: found so when the daemon started."""
        state = self.at(now_us).state
        state.seat_running(number, seats, start_us)
        state.set_elastic(number, elastic=False)

    def note_ended(self, name: str, *, well: bool) -> None:
        """A gang that others may wait for ended before this state was made."""
        self.state.note_ended(name, well=well)

    def note_date(self, verdict: DateVerdict) -> None:
        """What was said of its date by a daemon before this one: a promise outlives whoever gave it."""
        self.state.note_date(verdict)

    def pin(self, now_us: int, number: int, members: int | None) -> bool:
        """A person wants it at this size; False if it cannot have it."""
        return self.at(now_us).state.pin(number, members)

    def started(self, now_us: int, number: int) -> None:
        """Its members went through the gate now, not when it was given its seats."""
        self.at(now_us).state.note_started(number)

    def set_manners(self, now_us: int, number: int, *, elastic: bool) -> None:
        """Whether the members of a running elastic gang have said that they can be resized."""
        self.at(now_us).state.set_elastic(number, elastic=elastic)

    def report(self, now_us: int, number: int, end_us: int | None, saved_us: int | None) -> None:
        """What a running gang says of itself: when it will be done, and what it has saved."""
        state = self.at(now_us).state
        if end_us is not None and state.phase_of(number) is Phase.RUNNING:
            end_us = max(end_us, state.start_of(number) + 1)  # whatever members say, nobody ran for no time
        state.report(number, end_us, saved_us)

    def resize_to(self, now_us: int, number: int, seats: tuple[Seats, ...], cause: Cause) -> None:
        """It sits on these seats, whatever was planned: members were lost, or it refused to change."""
        self.at(now_us).state.sit_on(number, seats, cause)

    def occupy(self, now_us: int, device: int) -> None:
        """A stranger uses a device, or it cannot be used."""
        self.at(now_us).state.occupy(NODE, device)

    def leave_free(self, now_us: int, device: int) -> None:
        """The device can be used again."""
        self.at(now_us).state.leave_free(NODE, device)

    # ------------------------------------------------------------------ passes

    def plan(self, now_us: int) -> Acts:
        """What is due by time, then plan and fold until nothing changes any more."""
        loop = self.at(now_us)
        loop.run_due()
        passed = loop.plan()
        ahead = [at for at in (passed.wake_at_us, loop.state.next_due_us()) if at is not None]
        done = self._noted.hand_over()
        return Acts(
            [_settle(self.state, act, self.taken) for act in done] if self.taken else done,
            passed.infeasible,
            passed.cancelled,
            min(ahead, default=None),
            passed.passes,
            passed.dates,
        )

    def seat_elsewhere(self, now_us: int, number: int) -> Begin | None:
        """The same of one that waits for its seats since an earlier plan; None: it goes on waiting."""
        seats = sit_beside(self.state, number, NODE, self.taken)
        if seats is None:
            return None
        self.at(now_us)
        return Begin(number, seats)


def _settle(state: State, act: Begin | Leave | SeatChange, taken: Collection[int]) -> Begin | Leave | SeatChange:
    """Whoever begins does so on devices that nobody has to leave first, if there are as many."""
    if not isinstance(act, Begin) or act.guest or act.again:
        return act
    seats = sit_beside(state, act.gang, NODE, taken)
    return act if seats is None else replace(act, seats=seats)
