"""The baseline that gangs were invented against: members handed out one by one.

The engine never sees a partial gang. Each member is submitted as a gang of one, interleaved across
the gangs of an instant, and a barrier outside the engine lets a gang work only once all its members
sit. Requirements that only a whole gang can have (one rack for all, starting with another gang) are
lost on the way, as they are in a scheduler that looks at one pod at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from phalanx.control.forward import Arrival, End, Forward, Happens
from phalanx.control.instructions import Foresight, Remains, SeatChange
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.ledger import Ledger, placement_of
from phalanx.frontends.sim.metrics import compute_metrics, find_horizon
from phalanx.frontends.sim.progress import GangProgress
from phalanx.frontends.sim.result import COMPLETED, DEADLOCKED, RUNNING, Entry, GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.frontends.sim.scribe import LEAVES
from phalanx.model.gang import After, Gang, Role, Sizes
from phalanx.model.plan import Bind, Plan, Seats
from phalanx.perfmodel.speedup import scaled_us


@dataclass(slots=True)
class Squad:
    """One gang as its members see it."""

    gang: Gang
    truth: TrueRun
    names: list[str]
    seated: dict[str, dict[str, int]] = field(default_factory=dict)  # places of the members that sit
    done: set[str] = field(default_factory=set)
    epoch: int = 0  # how often its work began
    start_us: int | None = None
    eligible_us: int = 0
    end_us: int | None = None
    end: str | None = None
    history: list[Entry] = field(default_factory=list)
    last: tuple[int, dict[str, int]] = (0, {})

    def note(self, at_us: int, event: str) -> None:
        """Write down who sits where after an event; binds of one instant are one entry."""
        places: dict[str, int] = {}
        for placed in self.seated.values():
            for node, count in placed.items():
                places[node] = places.get(node, 0) + count
        if self.history and self.history[-1].at_us == at_us and self.history[-1].event == event:
            self.history.pop()
        whole = len(self.seated) + len(self.done) >= len(self.names)
        if whole or not places:
            self.history.append(Entry(at_us, event, len(self.seated), places))
        else:  # members that wait for the rest hold their places and do not run
            self.history.append(Entry(at_us, event, 0, {}, held=places))
        if places:
            self.last = (len(self.seated), places)

    def pace_us(self) -> int:
        """How long it really works at its least size, once whole."""
        least = sum(role.sizes.least for role in self.gang.roles if role.sizes.elastic)
        most = sum(role.sizes.most for role in self.gang.roles if role.sizes.elastic)
        truth = self.truth
        return scaled_us(truth.duration_us, truth.speedup, most, least) if most else truth.duration_us


class Barrier:
    """TrueRun and recorder of a run of members: a gang works from the instant its last member sits."""

    def __init__(self, state: State, squads: list[Squad]) -> None:
        """`squads` in file order."""
        self.state, self.squads, self.ledger = state, squads, Ledger(state)
        self._squad_by_member = {name: squad for squad in squads for name in squad.names}
        self._lives = {squad.gang.name: GangProgress(squad.gang, self.ledger.books) for squad in squads}

    def squad_of(self, number: int) -> Squad:
        """Whose member this is."""
        return self._squad_by_member[self.state.gangs[number].name]

    # ------------------------------------------------------------------ truth

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """Ends of all members, once all sit."""
        squad, life = self._whose(bind.gang)
        if len(squad.seated) + len(squad.done) < len(squad.names) or not life.holding:
            return []
        squad.epoch += 1
        squad.start_us = now_us if squad.start_us is None else squad.start_us
        life.begin(now_us, life.units, squad.pace_us())
        at_us, ok = life.done_us, True
        if life.killed_us is not None and life.killed_us < at_us:
            at_us, ok = life.killed_us, False
        return [End(at_us, self.state.number_by_name[name], ok, token=squad.epoch) for name in squad.names]

    def ends_resized(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """A member alone has one size."""
        raise AssertionError("a single member cannot be resized")

    def ends_moved(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """Nobody moves members one by one."""
        raise AssertionError("a single member cannot be moved")

    def ends_repaired(self, number: int, seats: tuple[Seats, ...], now_us: int) -> Iterable[End]:
        """A member whose node was lost sits elsewhere."""
        self._sit(number, seats, now_us)
        return self.ends_after(Bind(number, seats), now_us)

    def stop(self, number: int, now_us: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """A member goes; the others keep their seats and wait for it, as pods do, and go on from what was saved."""
        squad, life = self._whose(number)
        if squad.seated.pop(self.state.gangs[number].name, None) is None:
            return Remains(progressed=False, left_us=None)
        squad.epoch += 1
        held = life.units
        progressed = life.stop(now_us, saves=False)
        life.hold(now_us, held - self._units(number))
        self._count(-self._units(number))
        return Remains(progressed, left_us=None)

    def foresee(self, number: int, now_us: int) -> Foresight | None:
        """Members report nothing."""
        return None

    def stands(self, end: End) -> bool:
        """Whether the work that this end belongs to was not begun anew meanwhile."""
        return self.squad_of(end.gang).epoch == end.token

    # ------------------------------------------------------------------ recorder

    def on_submit(self, number: int, at_us: int) -> None:
        """A member arrived."""
        squad = self.squad_of(number)
        squad.eligible_us = max(squad.eligible_us, at_us)

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A member sits."""
        squad = self.squad_of(bind.gang)
        if squad.start_us is None:
            squad.eligible_us = max(squad.eligible_us, self.state.eligible_of(bind.gang))
        self._sit(bind.gang, bind.seats, at_us)
        squad.note(at_us, "bind")

    def on_change(self, number: int, at_us: int, event: str, change: SeatChange | None = None) -> None:
        """A member was lost with its node, or sits again."""
        self.squad_of(number).note(at_us, event)

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A member left."""
        squad, life = self._whose(number)
        if how not in LEAVES:
            name = self.state.gangs[number].name
            if squad.seated.pop(name, None) is not None:
                held = life.units
                if not life.holding:
                    life.finish(at_us)
                life.hold(at_us, held - self._units(number))
                self._count(-self._units(number))
            squad.done.add(name)
            squad.end_us, squad.end = at_us, how
        squad.note(at_us, how)
        self.ledger.note()

    def on_capacity(self, at_us: int) -> None:
        """Nodes came or went."""
        self.ledger.note_capacity()

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """Nobody looks at what members leave idle: no room is ever kept for one."""

    # ------------------------------------------------------------------ seats

    def close_all(self, now_us: int) -> None:
        """The run is over: whatever was under way counts as it stands."""
        for life in self._lives.values():
            life.advance(now_us)

    def _whose(self, number: int) -> tuple[Squad, GangProgress]:
        squad = self.squad_of(number)
        return squad, self._lives[squad.gang.name]

    def _sit(self, number: int, seats: tuple[Seats, ...], now_us: int) -> None:
        squad, life = self._whose(number)
        squad.seated[self.state.gangs[number].name] = placement_of(self.state.fleet.names, seats)
        life.hold(now_us, life.units + self._units(number))
        self._count(self._units(number))

    def _units(self, number: int) -> int:
        return self.state.gangs[number].roles[0].shape.amount(self.ledger.kind)

    def _count(self, units: int) -> None:
        self.ledger.used += units
        self.ledger.note()


def simulate_members(
    scenario: Scenario, state: State, policy: Policy, seed: int, progress: Callable[[int, int], None] | None
) -> SimResult:
    """Run a scenario member by member on its empty cluster, and put the gangs together again."""
    squads = [
        Squad(gang, truth, [f"{gang.name}#{i}" for i in range(gang.members_min)])
        for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True)
    ]
    barrier = Barrier(state, squads)
    forward = Forward(state, policy, barrier, barrier)
    forward.run(interleave(squads), _for_members(scenario, squads), scenario.until_us, progress)
    working = any(squad.seated and squad.end is None and _whole(squad) for squad in squads)
    gangs = [_result(squad, state, someone_works=working) for squad in squads]
    horizon = find_horizon(gangs, scenario.until_us)
    barrier.close_all(horizon[1])
    metrics = compute_metrics(gangs, barrier.ledger.close(horizon), {"evictions_in_vain": 0}, horizon)
    return SimResult(policy.name, seed, gangs, metrics, scenario.dropped, forward.passes)


def interleave(squads: list[Squad]) -> list[Arrival]:
    """Members in the order of their turn: by submit, then first members before second ones."""
    names_by_gang = {squad.gang.name: squad.names for squad in squads}
    members = []
    for sequence, squad in enumerate(squads):
        shapes = [role for role in squad.gang.roles for _ in range(role.sizes.least)]
        after = After(
            tuple(name for gang in squad.gang.after.names for name in names_by_gang[gang]), squad.gang.after.any_end
        )
        for index, role in enumerate(shapes):
            member = _member(squad, index, role, after)
            members.append(((squad.gang.submit_us, index, sequence), Arrival(member)))
    return [arrival for _, arrival in sorted(members, key=lambda each: each[0])]


def _member(squad: Squad, index: int, role: Role, after: After) -> Gang:
    gang = squad.gang
    return Gang(
        name=squad.names[index],
        roles=(Role(role.name, Sizes((1,)), role.shape),),
        submit_us=gang.submit_us,
        queue=gang.queue,
        user=gang.user,
        priority=gang.priority,
        walltime_us=gang.walltime_us,
        hold=gang.hold,
        after=after,
    )


def _for_members(scenario: Scenario, squads: list[Squad]) -> list[Happens]:
    names = {squad.gang.name: squad.names for squad in squads}
    return [
        Happens(event.at_us, event.verb, event.node, gang, event.added, event.by_us)
        for event in scenario.events
        if event.verb != "resize"
        for gang in (names[event.gang] if event.gang is not None else (None,))
    ]


def _whole(squad: Squad) -> bool:
    return len(squad.seated) == len(squad.names)


def _result(squad: Squad, state: State, *, someone_works: bool) -> GangResult:
    gang, truth = squad.gang, squad.truth
    reason = None
    phase = _phase(squad, state, someone_works=someone_works)
    if phase in (DEADLOCKED, Phase.PENDING.value):
        missing = len(squad.names) - len(squad.seated)
        what = (
            "holds them for ever, since everyone waits for the others" if phase == DEADLOCKED else "waits for the rest"
        )
        message = f"{len(squad.seated)} of {len(squad.names)} members have a place; the gang {what}"
        reason = ("Capacity", message, len(squad.names), len(squad.names) - missing)
    return GangResult(
        name=gang.name,
        user=gang.user,
        state=phase,
        submit_us=gang.submit_us,
        eligible_us=squad.eligible_us if squad.start_us is not None else None,
        start_us=squad.start_us,
        end_us=squad.end_us if phase in (COMPLETED, "failed", "cancelled") else None,
        members=squad.last[0],
        placement=squad.last[1],
        reason=reason,
        history=squad.history,
        duration_us=truth.duration_us,
        deadline_us=gang.deadline_us,
        queue=gang.queue,
    )


def _phase(squad: Squad, state: State, *, someone_works: bool) -> str:
    """A gang that holds some members and can never get the rest is deadlocked: nobody works who could leave."""
    if squad.end is not None and len(squad.done) == len(squad.names):
        return {"complete": COMPLETED, "fail": "failed"}.get(squad.end, "cancelled")
    if squad.seated and _whole(squad):
        return RUNNING
    if squad.seated and not someone_works:
        return DEADLOCKED
    judged = [state.number_by_name.get(name) for name in squad.names]
    return "infeasible" if any(state.is_judged(number) for number in judged if number is not None) else "pending"
