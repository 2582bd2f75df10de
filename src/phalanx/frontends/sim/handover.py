"""Seats between two users: those that a shrinking gang still sits on, and those claimed by a gang that waits for that.

The state keeps both busy. Whose time it is: what a shrinking gang still uses is part of its resize, also
where somebody else has a claim on it already; what a gang claims and nobody uses is allocated and idle.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.control.records import Ghost
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Plan, Resize, Seats

Fading = tuple[int, int, int, int]  # when; how much less is vacated and claimed from then on, how much more is down


class Handover:
    """Who claims what, and what of it is still in use."""

    def __init__(self, state: State, kind: str) -> None:
        """Nobody yet."""
        self.claims: dict[int, dict[int, int]] = {}  # units by node, by gang
        self._state, self._kind = state, kind
        self._in_use: list[tuple[int, int, dict[int, int]]] = []  # claimed, by node, and used until then by this gang
        self._abandoned: list[Ghost] = []  # rows of nobody that were a claim

    def note_plan(self, plan: Plan, before: Mapping[int, tuple[Seats, ...]]) -> None:
        """Claims that a plan made, on seats that gangs resized by it had before."""
        state, now_us = self._state, self._state.now_us
        room: dict[int, int] = {}  # claimed just now, by node
        for decision in plan.decisions:
            if isinstance(decision, Bind) and state.phase_of(decision.gang) is Phase.STARTING:
                units = self._by_node(state.gangs[decision.gang], state.seats_of(decision.gang))
                self.claims[decision.gang] = units
                for node, amount in units.items():
                    room[node] = room.get(node, 0) + amount
        for decision in plan.decisions if room else ():
            if isinstance(decision, Resize) and decision.gang in before:
                gang = state.gangs[decision.gang]
                until_us = now_us + gang.resize_pause_us
                handed = self._by_node(gang, before[decision.gang])
                _subtract(handed, self._by_node(gang, decision.seats))
                for at_us, ghost in state.list_vacating():
                    if ghost.leaver is gang and at_us == until_us:
                        _subtract(handed, self._by_node(ghost.gang, ghost.seats))
                # Only as much as is claimed there: a gang that grows onto given-back seats has them at once.
                taken = {node: min(amount, room.get(node, 0)) for node, amount in handed.items() if amount > 0}
                self._in_use.append((until_us, decision.gang, taken))

    def note_left(self, number: int) -> None:
        """A gang is gone from all its seats, also from those that it was about to leave."""
        if self._in_use:
            self._in_use = [each for each in self._in_use if each[1] != number]

    def measure(self) -> tuple[int, int, list[Fading]]:
        """How much is being vacated and claimed on nodes that are up, and when that changes by itself."""
        state, now_us = self._state, self._state.now_us
        self._drop_claims()
        vacating, fading = 0, []
        claimed = sum(self._up(units) for units in self.claims.values())
        for until_us, ghost in state.list_vacating():
            by_node = self._by_node(ghost.gang, ghost.seats)
            units = self._up(by_node)
            closed = units - self._up(by_node, open_=True)  # nobody may use it once it is left
            if self._is_abandoned(ghost):
                claimed += units
                fading.append((until_us, 0, units, closed))
            else:
                vacating += units
                fading.append((until_us, units, 0, closed))
        self._in_use = [each for each in self._in_use if each[0] > now_us]
        for until_us, _, taken in self._in_use:
            # Where only numbers are known, not devices, a claim may begin on seats that were counted for another.
            units = min(self._up(taken), claimed)
            vacating, claimed = vacating + units, claimed - units
            fading.append((until_us, units, -units, 0))
        return vacating, claimed, sorted(fading)

    def _drop_claims(self) -> None:
        """Claims of gangs that run now are over. One that was given up leaves rows of nobody for as long."""
        state, ghosts = self._state, [ghost for _, ghost in self._state.list_vacating()]
        self._abandoned = [ghost for ghost in self._abandoned if any(ghost is each for each in ghosts)]
        for number in [n for n in self.claims if state.phase_of(n) is not Phase.STARTING]:
            del self.claims[number]
            # By name, since a crumb's gang is made up. Of an earlier stay it was gone when it left; only what others
            # are still leaving for a claim has lenders.
            name = state.gangs[number].name
            self._abandoned += [ghost for ghost in ghosts if ghost.lenders and ghost.gang.name == name]

    def _is_abandoned(self, ghost: Ghost) -> bool:
        return any(ghost is each for each in self._abandoned)

    def _up(self, units: Mapping[int, int], *, open_: bool = False) -> int:
        """Units on nodes that have not failed: a failed one counts as down, whoever sat there."""
        nodes = self._state.show_nodes()
        up = nodes.up & nodes.open if open_ else nodes.up
        return sum(amount for node, amount in units.items() if up[node])

    def _by_node(self, gang: Gang, seats: tuple[Seats, ...]) -> dict[int, int]:
        found: dict[int, int] = {}
        for each in seats:
            amount = gang.roles[each.role].shape.amount(self._kind)
            for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
                found[node] = found.get(node, 0) + count * amount
        return found


def _subtract(units: dict[int, int], gone: Mapping[int, int]) -> None:
    for node, amount in gone.items():
        if node in units:
            units[node] -= amount
