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
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.ledger import LOSSES, Attempt, Ledger, fresh_ledger, placement_of
from phalanx.frontends.sim.metrics import compute_metrics, find_horizon
from phalanx.frontends.sim.result import COMPLETED, DEADLOCKED, RUNNING, Entry, GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario, Truth
from phalanx.model.gang import After, Gang, Role, Sizes
from phalanx.model.plan import Bind
from phalanx.perfmodel.speedup import scaled_us


@dataclass(slots=True)
class Squad:
    """One gang as its members see it."""

    gang: Gang
    truth: Truth
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

    def length_us(self) -> int:
        """How long it really works at its least size, once whole."""
        least = sum(role.sizes.least for role in self.gang.roles if role.sizes.elastic)
        most = sum(role.sizes.most for role in self.gang.roles if role.sizes.elastic)
        truth = self.truth
        length = scaled_us(truth.duration_us, truth.speedup, most, least) if most else truth.duration_us
        return self.gang.startup_us + length


class Barrier:
    """Truth and witness of a run of members: a gang works from the instant its last member sits."""

    def __init__(self, state: State, squads: list[Squad], ledger: Ledger) -> None:
        """`squads` in file order."""
        self.state, self.squads, self.ledger = state, squads, ledger
        self._squad_by_member = {name: squad for squad in squads for name in squad.names}
        self._open: dict[int, Attempt] = {}

    def squad_of(self, number: int) -> Squad:
        """Whose member this is."""
        return self._squad_by_member[self.state.gangs[number].name]

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """Ends of all members, once all sit."""
        squad = self.squad_of(bind.gang)
        if len(squad.seated) + len(squad.done) < len(squad.names):
            return []
        squad.epoch += 1
        squad.start_us = now_us if squad.start_us is None else squad.start_us
        length, ok = squad.length_us(), True
        if squad.gang.kill_after_us is not None and squad.gang.kill_after_us < length:
            length, ok = squad.gang.kill_after_us, False
        numbers = [self.state.number_by_name[name] for name in squad.names]
        for number in numbers:
            if number in self._open:
                self._open[number].works_from_us = now_us
        return [End(now_us + length, number, ok, token=squad.epoch) for number in numbers]

    def stands(self, end: End) -> bool:
        """Whether the work that this end belongs to was not begun anew meanwhile."""
        return self.squad_of(end.gang).epoch == end.token

    def on_submit(self, number: int, at_us: int) -> None:
        """A member arrived."""
        squad = self.squad_of(number)
        squad.eligible_us = max(squad.eligible_us, at_us)

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A member sits."""
        squad, gang = self.squad_of(bind.gang), self.state.gangs[bind.gang]
        squad.seated[gang.name] = placement_of(self.state.fleet.names, bind.seats)
        if squad.start_us is None:
            squad.eligible_us = max(squad.eligible_us, self.state.records[bind.gang].eligible_us)
        attempt = self.ledger.open_attempt(gang, bind.seats, at_us)
        attempt.works_from_us = None
        attempt.startup_us = squad.gang.startup_us
        self._open[bind.gang] = attempt
        squad.note(at_us, "bind")
        self._note_capacity()

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A member left; the work of a gang that loses one is gone."""
        squad = self.squad_of(number)
        squad.seated.pop(self.state.gangs[number].name, None)
        attempt = self._open.pop(number, None)
        if attempt is not None:
            attempt.end_us, attempt.lost = at_us, how in LOSSES and attempt.works_from_us is not None
        if how in LOSSES:
            self._lose_work(squad, at_us)
        else:
            squad.done.add(self.state.gangs[number].name)
            squad.end_us, squad.end = at_us, how
        squad.note(at_us, how)
        self._note_capacity()

    def _lose_work(self, squad: Squad, at_us: int) -> None:
        """The others keep their seats and wait for the missing member, as pods do."""
        squad.epoch += 1
        for name in squad.seated:
            number = self.state.number_by_name[name]
            attempt = self._open.get(number)
            if attempt is not None and attempt.works_from_us is not None:
                attempt.end_us, attempt.lost = at_us, True
                record = self.state.records[number]
                self._open[number] = self.ledger.open_attempt(record.gang, record.seats, at_us)
                self._open[number].works_from_us = None

    def on_capacity(self, at_us: int) -> None:
        """Nodes came or went."""
        self.ledger.note_capacity(self.state)

    def _note_capacity(self) -> None:
        if self.state.closed:
            self.ledger.note_capacity(self.state)


def simulate_members(
    scenario: Scenario, state: State, policy: Policy, seed: int, progress: Callable[[int, int], None] | None
) -> SimResult:
    """Run a scenario member by member on its empty cluster, and put the gangs together again."""
    squads = [
        Squad(gang, truth, [f"{gang.name}#{i}" for i in range(gang.members_min)])
        for gang, truth in zip(scenario.gangs, scenario.truths, strict=True)
    ]
    barrier = Barrier(state, squads, fresh_ledger(state))
    forward = Forward(state, policy, barrier, barrier)
    forward.run(interleave(squads), _for_members(scenario, squads), scenario.until_us, progress)
    working = any(squad.seated and squad.end is None and _whole(squad) for squad in squads)
    gangs = [_result(squad, state, someone_works=working) for squad in squads]
    horizon = find_horizon(gangs, scenario.until_us)
    metrics = compute_metrics(gangs, barrier.ledger.close(horizon), {}, horizon)
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
    return "infeasible" if any(number in state.judged for number in judged if number is not None) else "pending"
