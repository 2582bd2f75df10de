"""Writes down what happens to every gang: when, with how many members, where."""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.control.instructions import SeatChange
from phalanx.control.resizes import say_resize
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.ledger import placement_of
from phalanx.frontends.sim.result import Entry
from phalanx.frontends.sim.world import World
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Evict, Plan, Seats

#: Ways to give all seats back that are no end: the gang queues again.
LEAVES: Final = ("lose", "evict", "yield")

#: Evictions that make room for somebody, which is what people call a preemption.
_FOR_OTHERS: Final = (Cause.PREEMPT, Cause.RECLAIM, Cause.GUEST)


class Scribe:
    """Histories, first starts and ends, counts and outages of one run."""

    def __init__(self, state: State, world: World) -> None:
        """Nothing yet."""
        self.state, self.world = state, world
        self.histories: dict[int, list[Entry]] = {}
        self.eligible: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.last_places: dict[int, tuple[int, dict[str, int]]] = {}
        self.counts: Counter[str] = Counter()
        self.outages: list[tuple[str, int, int | None]] = []
        self._down: dict[str, int] = {}  # since when, by node
        world.on_let_go = self._on_let_go

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        self.histories[number] = []

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        number, gang = bind.gang, self.state.gangs[bind.gang]
        places = placement_of(self.state.fleet.names, bind.seats)
        entry = Entry(at_us, "bind", bind.members, places)
        if len(gang.roles) > 1:
            entry.units = self._units_by_node(gang, bind.seats)
        self.histories[number].append(entry)
        if number not in self.starts:
            self.starts[number] = at_us
            self.eligible[number] = self.state.eligible_of(number)
        self.last_places[number] = (entry.members, places)

    def on_change(self, number: int, at_us: int, event: str, change: SeatChange | None = None) -> None:
        """A gang changed and still holds seats, though it may not run on them."""
        gang, seats = self.state.gangs[number], self.state.seats_of(number)
        places = placement_of(self.state.fleet.names, seats)
        if self.state.phase_of(number) is Phase.DEGRADED:
            entry = Entry(at_us, event, 0, {}, held=places or None)
        else:
            entry = Entry(at_us, event, sum(each.members for each in seats), places)
            self.last_places[number] = (entry.members, places)
        if len(gang.roles) > 1:
            entry.units = self._units_by_node(gang, seats)
        if change is not None:
            entry.cause = change.cause.value
            entry.because = say_resize(change, lambda other: self.state.gangs[other].name)
        self.histories[number].append(entry)
        self.counts["resizes"] += event in ("grow", "shrink")

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang ended, or gave all its seats back."""
        self.histories[number].append(Entry(at_us, how, 0, {}))
        if how not in LEAVES:
            self.ends[number] = at_us
        self.world.close(number, at_us)

    def on_capacity(self, at_us: int) -> None:
        """Nodes came or went."""
        self.world.ledger.note_capacity()
        names = self.state.fleet.names
        failed = {names[node] for node in (~self.state.show_nodes().up).nonzero()[0].tolist()}
        for name in failed - self._down.keys():
            self._down[name] = at_us
        for name in sorted(self._down.keys() - failed):
            self.outages.append((name, self._down.pop(name), at_us))

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle decided."""
        for decision in plan.decisions:
            if isinstance(decision, Evict) and decision.cause in _FOR_OTHERS:
                self.counts["preemptions"] += 1
        self.world.note_plan(plan)

    def list_outages(self) -> list[tuple[str, int, int | None]]:
        """Nodes that were down, and from when to when; None: to the end."""
        return sorted([*self.outages, *((name, since, None) for name, since in self._down.items())], key=_when)

    def _on_let_go(self, number: int, at_us: int) -> None:
        """A degraded gang has held what it had left long enough, and queues again."""
        self.histories[number].append(Entry(at_us, "lose", 0, {}))

    def _units_by_node(self, gang: Gang, seats: tuple[Seats, ...]) -> dict[str, int] | None:
        """What roles that differ in the counted kind hold together, by node."""
        kind, names = self.world.ledger.kind, self.state.fleet.names
        amounts = [role.shape.amount(kind) for role in gang.roles]
        if len(set(amounts)) == 1:
            return None
        found: dict[str, int] = {}
        for each in seats:
            for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
                found[names[node]] = found.get(names[node], 0) + count * amounts[each.role]
        return {node: units for node, units in found.items() if units}


def _when(outage: tuple[str, int, int | None]) -> tuple[int, str]:
    return outage[1], outage[0]
