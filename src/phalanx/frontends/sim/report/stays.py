"""What every gang held, when and where, read from the histories of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from phalanx.frontends.sim.ledger import counted_kind
from phalanx.frontends.sim.result import DEADLOCKED, INFEASIBLE, Entry, GangResult
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang
from phalanx.model.resources import units_per_whole

What = Literal["wait", "run", "hold"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which nothing changes for a gang. A gang's stretches follow each other from its submit to its end."""

    start_us: int
    end_us: int
    what: What
    members: int  # that run
    units_by_node: Mapping[str, int]  # of the counted kind, also what is held without running
    event: str  # what began it; "submit" for the first
    ended_by: str  # the event that ended it, or nothing if the run ended first
    members_after: int = 0  # that run right after that event; the next stretch may begin with yet another one

    @property
    def units(self) -> int:
        """Over all nodes."""
        return sum(self.units_by_node.values())


class Meter:
    """How much of the counted kind gangs hold and nodes have. The kind is that of the ledger."""

    def __init__(self, scenario: Scenario) -> None:
        """Nodes that join later are known from the start."""
        added = [event.added for event in scenario.events if event.added is not None]
        self.kind = counted_kind(Fleet(scenario.nodes, scenario.levels).kinds)
        self.whole = units_per_whole(self.kind)
        self.capacity_by_node = {node.name: node.resources.get(self.kind, 0) for node in (*scenario.nodes, *added)}
        self._gangs = scenario.gangs
        self._each = [_units_each(gang, self.kind) for gang in scenario.gangs]

    def units_by_node(self, index: int, entry: Entry) -> Mapping[str, int]:
        """What a gang holds after an entry of its history."""
        if entry.units is not None:
            return entry.units
        seats = entry.placement
        if entry.held:
            seats = {node: seats.get(node, 0) + entry.held.get(node, 0) for node in {**seats, **entry.held}}
        each = self._each[index]
        if each is not None:
            return {node: count * each for node, count in seats.items()}
        return self._spread(self._gangs[index], seats)

    def units_at_least(self, index: int) -> int:
        """What a gang needs to start."""
        return sum(role.sizes.least * role.shape.amount(self.kind) for role in self._gangs[index].roles)

    def _spread(self, gang: Gang, seats: Mapping[str, int]) -> dict[str, int]:
        """Roles differ in the kind and the history does not say who sits where: by members, where there is any.

        The sum is right for every gang with at most one elastic role; the places are a guess.
        """
        total = _units_of(gang, sum(seats.values()), self.kind)
        fitting = {node: count for node, count in seats.items() if self.capacity_by_node.get(node, 0)}
        members = sum(fitting.values())
        spread = {node: total * count // members for node, count in fitting.items()}
        if spread:
            spread[next(iter(spread))] += total - sum(spread.values())
        return spread


def read_story(meter: Meter, index: int, gang: GangResult, last_us: int) -> Iterator[Stretch]:
    """A gang's life from its submit to its end, or to the end of the run; nothing of one that was refused."""
    if gang.state == INFEASIBLE and not gang.history:
        return
    end_us = last_us if gang.end_us is None else min(gang.end_us, last_us)
    before = Entry(gang.submit_us, "submit", 0, {})
    for entry in (*gang.history, None):
        until = end_us if entry is None else min(entry.at_us, end_us)
        if until > before.at_us:
            runs = before.members > 0 and gang.state != DEADLOCKED
            units = meter.units_by_node(index, before) if before.members or before.held else {}
            what: What = "run" if runs else "hold" if before.held or before.members else "wait"
            ended_by, after = ("", 0) if entry is None else (entry.event, entry.members)
            members = before.members if runs else 0
            yield Stretch(before.at_us, until, what, members, units, before.event, ended_by, after)
        if entry is not None:
            before = entry


def _units_each(gang: Gang, kind: str) -> int | None:
    """Of one member, if all are alike in this."""
    amounts = {role.shape.amount(kind) for role in gang.roles}
    return amounts.pop() if len(amounts) == 1 else None


def _units_of(gang: Gang, members: int, kind: str) -> int:
    """Of that many members: rigid roles are all there, elastic ones share the rest by their sizes."""
    rigid = [role for role in gang.roles if not role.sizes.elastic]
    elastic = [role for role in gang.roles if role.sizes.elastic]
    fixed = sum(role.sizes.most * role.shape.amount(kind) for role in rigid)
    most = sum(role.sizes.most for role in elastic)
    if not most:
        return fixed
    rest = max(0, members - sum(role.sizes.most for role in rigid))
    return fixed + rest * sum(role.sizes.most * role.shape.amount(kind) for role in elastic) // most
