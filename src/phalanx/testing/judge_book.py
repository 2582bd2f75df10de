"""Who sat where and when, rebuilt from histories alone.

The judge (`judge`) reads a scenario and a result and knows nothing of the engine. What it needs of a
result is turned into *stays* here: seats of one gang from one instant to another, and, after a shrink,
the seats that it is still leaving for its `resize_pause` (rule 10). Amounts that a history does not
tell (which role sits where) are taken as the least they can be, so that a sum that is too large is
certainly too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from phalanx.frontends.sim.result import Entry, GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.resources import DEVICE_KIND

#: Later than anything.
NEVER: Final = 1 << 62

#: After these a gang is gone from every seat, those included that it was still leaving.
GONE: Final = frozenset({"complete", "cancel", "fail", "evict", "yield", "move", "restart", "bind"})

#: A start of members on seats that they did not have before.
BEGINS: Final = frozenset({"bind", "grow", "move", "repair", "restart"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: which, by whom, when, and the story."""

    kind: str
    gang: str
    at_us: int
    story: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.kind} at {self.at_us / 1e6:g}: {self.gang}: {self.story}"


@dataclass(frozen=True, slots=True)
class Sitting:
    """Seats of one gang, from one instant to another."""

    gang: int
    start_us: int
    end_us: int
    places: Mapping[str, int]  # members by node
    units: Mapping[str, int] | None  # of the ledger's kind, where roles differ in it
    how: str  # "runs", "held" or "leaving"

    def covers(self, at_us: int) -> bool:
        """Whether it sits there at that instant, everything of the instant done."""
        return self.start_us <= at_us < self.end_us


class Book:
    """A scenario and what came of it, ready to be asked."""

    def __init__(self, scenario: Scenario, result: SimResult) -> None:
        """Nothing is worked out before it is asked for."""
        self.scenario, self.result = scenario, result
        self.gangs = scenario.gangs
        self.told = result.gangs

    # ------------------------------------------------------------------ the cluster

    @cached_property
    def nodes(self) -> dict[str, list[Node]]:
        """Every node there ever was, by name; one that was added again has several faces."""
        found: dict[str, list[Node]] = {}
        for node in (*self.scenario.nodes, *(event.added for event in self.scenario.events if event.added)):
            found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """All kinds that any node has."""
        return tuple(sorted({kind for faces in self.nodes.values() for node in faces for kind in node.resources}))

    @cached_property
    def ledger_kind(self) -> str | None:
        """What the ledger counts, where the rule leaves no doubt: gpu, else the only kind."""
        if DEVICE_KIND in self.kinds:
            return DEVICE_KIND
        return self.kinds[0] if len(self.kinds) == 1 else None

    def capacity(self, name: str, kind: str) -> int:
        """The most that the node ever had."""
        return max(node.resources.get(kind, 0) for node in self.nodes[name])

    @cached_property
    def outages(self) -> dict[str, list[tuple[int, int]]]:
        """When nodes were failed or gone, by the scenario's events."""
        return self._spells({"fail", "remove"}, {"repair", "add"})

    @cached_property
    def closures(self) -> dict[str, list[tuple[int, int]]]:
        """When nodes were cordoned or drained."""
        return self._spells({"cordon", "drain"}, {"uncordon", "add"})

    def _spells(self, begin: set[str], end: set[str]) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        since: dict[str, int] = {}
        removed: set[str] = set()
        # The sort is stable: events of one instant stay in the order of the file.
        for event in sorted(self.scenario.events, key=lambda each: each.at_us):
            name = event.node
            if name is None:
                continue
            if event.verb in begin:
                since.setdefault(name, event.at_us)
            elif event.verb in end and name in since and (name not in removed or event.verb == "add"):
                found.setdefault(name, []).append((since.pop(name), event.at_us))
            if event.verb == "remove":
                removed.add(name)
            elif event.verb == "add":
                removed.discard(name)
        for name, at_us in since.items():
            found.setdefault(name, []).append((at_us, NEVER))
        return found

    # ------------------------------------------------------------------ seats

    @cached_property
    def over_us(self) -> int:
        """The end of the run: what lies beyond it did not happen."""
        return NEVER if self.scenario.until_us is None else self.scenario.until_us

    @cached_property
    def stays(self) -> list[Sitting]:
        """Of all gangs, those of no length left out."""
        return [
            replace(stay, end_us=min(stay.end_us, self.over_us))
            for index, (gang, told) in enumerate(zip(self.gangs, self.told, strict=True))
            for stay in (*_sittings(index, told), *_leavings(index, gang, told, self.outages))
            if stay.start_us < min(stay.end_us, self.over_us)
        ]

    @cached_property
    def stays_of(self) -> list[list[Sitting]]:
        """The same by gang."""
        found: list[list[Sitting]] = [[] for _ in self.gangs]
        for stay in self.stays:
            found[stay.gang].append(stay)
        return found

    def amount(self, stay: Sitting, node: str, kind: str) -> int:
        """What a stay uses of one node, at least."""
        gang, members = self.gangs[stay.gang], stay.places.get(node, 0)
        each = [role.shape.amount(kind) for role in gang.roles]
        if stay.units is not None and kind == self.ledger_kind:
            return stay.units.get(node, 0)
        return members * min(each)

    def is_exact(self, gang: Gang, kind: str) -> bool:
        """Whether `amount` tells what its stays use, not only a bound."""
        return kind == self.ledger_kind or len({role.shape.amount(kind) for role in gang.roles}) == 1

    def used(self, at_us: int, kind: str, without: frozenset[int] = frozenset()) -> dict[str, int]:
        """What is in use by node at an instant, seats that somebody is leaving included."""
        found = dict.fromkeys(self.nodes, 0)
        for stay in self.stays:
            if stay.gang not in without and stay.covers(at_us):
                for node in stay.places:
                    found[node] += self.amount(stay, node, kind)
        return found

    # ------------------------------------------------------------------ what happened when

    @cached_property
    def entries(self) -> dict[int, list[tuple[int, Entry]]]:
        """All entries by instant, with the gang they belong to."""
        found: dict[int, list[tuple[int, Entry]]] = {}
        for index, told in enumerate(self.told):
            for entry in told.history:
                found.setdefault(entry.at_us, []).append((index, entry))
        return found

    def who(self, at_us: int, *events: str) -> list[int]:
        """Gangs with such an entry at that instant."""
        return list(dict.fromkeys(index for index, entry in self.entries.get(at_us, ()) if entry.event in events))

    def sits(self, index: int, at_us: int) -> bool:
        """Whether a gang has seats of its own then."""
        return any(stay.how != "leaving" and stay.covers(at_us) for stay in self.stays_of[index])

    def eligible_us(self, index: int) -> int:
        """From when it could start; for gangs that depend on nobody, the submit."""
        told = self.told[index].eligible_us
        return self.gangs[index].submit_us if told is None else told

    def ended_us(self, index: int) -> int:
        """When it was over, or never."""
        end_us = self.told[index].end_us
        return NEVER if end_us is None else end_us

    def waits(self, index: int, at_us: int) -> bool:
        """Whether it was there and had no seats, after everything that happened at that instant."""
        gone = self.told[index].state == "infeasible" or self.ended_us(index) <= at_us
        return self.eligible_us(index) <= at_us and not gone and not self.sits(index, at_us)


def _sittings(index: int, told: GangResult) -> Iterator[Sitting]:
    ends = [entry.at_us for entry in told.history[1:]] + [NEVER]
    for entry, end_us in zip(told.history, ends, strict=False):
        if entry.placement:
            yield Sitting(index, entry.at_us, end_us, entry.placement, entry.units, "runs")
        elif entry.held:
            yield Sitting(index, entry.at_us, end_us, entry.held, entry.units, "held")


def _leavings(
    index: int, gang: Gang, told: GangResult, outages: Mapping[str, list[tuple[int, int]]]
) -> Iterator[Sitting]:
    """Seats given back by a shrink stay in use for the pause, unless the gang or the node goes first."""
    history = told.history
    for number, entry in enumerate(history):
        if entry.event != "shrink" or not number or not gang.resize_pause_us:
            continue
        before, until_us = history[number - 1], entry.at_us + gang.resize_pause_us
        for later in history[number + 1 :]:
            # A gang that grows again in its pause may do so on the very seats that it was leaving.
            if later.event in GONE or later.event == "grow" or not later.placement:
                until_us = min(until_us, later.at_us)
        for node, members in before.placement.items():
            left = members - entry.placement.get(node, 0)
            if left <= 0:
                continue
            units = None
            if before.units is not None and entry.units is not None:
                units = {node: max(0, before.units.get(node, 0) - entry.units.get(node, 0))}
            broken = [since for since, _ in outages.get(node, ()) if since >= entry.at_us]
            yield Sitting(index, entry.at_us, min([until_us, *broken]), {node: left}, units, "leaving")
