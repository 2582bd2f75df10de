"""Exact placement of several roles at once, with a budget in steps.

Roles of different shapes compete for the same nodes, so greedy choice can miss a placement that
exists. Here the problem is decided: walk the nodes; on each, try every way of holding members
that is not dominated by a larger one; remember which (node, members still missing) were already
found hopeless. Steps are counted, not seconds, so the answer is the same on every machine
(rule 15, completeness: never a false `Infeasible`).

What greedy misses: two nodes with 5 and 4 GPUs, one member of 3 GPUs and three of 2. The larger member
fits best on the 4, the smaller ones fill the 5 first, and either way the others lack a place; only with
3 + 2 on the one and 2 + 2 on the other do all sit.

A role with groups (`segment`) counts whole groups: members gathered inside the current domain
become groups when the walk leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phalanx.engine.kernels.slots import Need
from phalanx.model.resources import MILLI


class BudgetSpent(Exception):  # noqa: N818 - an outcome the caller turns into a reason, not a fault
    """The search ended undecided."""


@dataclass(frozen=True, slots=True)
class Part:
    """One role of the problem, inside the nodes its domains allow."""

    need: Need
    size: int
    group: int  # members of one group; 1: none
    nodes: frozenset[int]  # positions in `PackingProblem.nodes` it may use
    domain: tuple[int, ...]  # the segment's domain of every position


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """Nodes in walk order with what is free on them, and the roles to seat."""

    free: Sequence[tuple[int, ...]]
    devices: Sequence[tuple[int, ...]]
    device_column: int
    parts: tuple[Part, ...]


# What is still missing of a part: whole groups, whether the smaller last group is still missing,
# and members gathered in the domain the walk is in.
Missing = tuple[int, bool, int]


class Search:
    """One problem and the steps left for it."""

    def __init__(self, problem: PackingProblem, budget: int) -> None:
        """`budget` is how many node fillings may be tried."""
        self.problem = problem
        self.steps_left = budget
        self._hopeless: set[tuple[int, tuple[Missing, ...]]] = set()
        self._fillings: dict[tuple[object, ...], tuple[tuple[int, ...], ...]] = {}
        self._counts: list[tuple[int, ...]] = []

    def solve(self) -> list[tuple[int, ...]] | None:
        """Members of every part on every node, possibly more than asked; None if there is no way."""
        start = tuple((part.size // part.group, part.size % part.group > 0, 0) for part in self.problem.parts)
        return list(self._counts) if self._walk(0, start) else None

    def _walk(self, at: int, missing: tuple[Missing, ...]) -> bool:
        # Entering a node means having left the one before: groups that span a domain are settled when it is over.
        if at:
            missing = tuple(self._leave(i, at, state) for i, state in enumerate(missing))
        if all(groups == 0 and not last for groups, last, _ in missing):
            return True
        # What is missing and where the walk stands say all that matters of the nodes passed: two ways to the same
        # remainder fail or succeed alike. This keeps the search from trying every combination.
        if at == len(self.problem.free) or (at, missing) in self._hopeless:
            return False
        # Largest fillings only: what a smaller one leads to, the larger one that contains it leads to as well, since
        # members too many are trimmed in the end (`placement._trim`).
        for counts in self._maximal_fillings(at):
            self.steps_left -= 1
            if self.steps_left < 0:
                raise BudgetSpent
            after = tuple((g, last, held + n) for (g, last, held), n in zip(missing, counts, strict=True))
            self._counts.append(counts)
            if self._walk(at + 1, after):
                return True
            self._counts.pop()
        self._hopeless.add((at, missing))
        return False

    def _leave(self, index: int, at: int, state: Missing) -> Missing:
        """Turn gathered members into groups where the walk crosses into another domain, or ends."""
        part, (groups, last, held) = self.problem.parts[index], state
        if at < len(self.problem.free) and part.domain[at] == part.domain[at - 1]:
            return state
        # Seven gathered, groups of 4: one group, and three that can only be the smaller last group, if that many are
        # enough for it. What is left after that is of no use: the next domain starts a new group.
        formed = min(groups, held // part.group)
        rest = held - formed * part.group
        return groups - formed, last and rest < part.size % part.group, 0

    def _maximal_fillings(self, at: int) -> tuple[tuple[int, ...], ...]:
        """Ways to hold members on one node, largest in sum first, none contained in another."""
        problem = self.problem
        usable = tuple(at in part.nodes for part in problem.parts)
        # Nodes that look alike are filled alike, and in most clusters most nodes do.
        key = (problem.free[at], problem.devices[at], usable)
        if key not in self._fillings:
            ways = sorted(self._fill(at, usable, ()), key=lambda way: (-sum(way), way))
            kept: list[tuple[int, ...]] = []
            for way in ways:
                if not any(all(a <= b for a, b in zip(way, other, strict=True)) for other in kept):
                    kept.append(way)
            self._fillings[key] = tuple(kept)
        return self._fillings[key]

    def _fill(self, at: int, usable: tuple[bool, ...], counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        index = len(counts)
        if index == len(self.problem.parts):
            yield counts
            return
        most = self.problem.parts[index].size if usable[index] else 0
        for count in range(most + 1):
            # Counted as well: a node with room for many small members has very many fillings.
            self.steps_left -= 1
            if self.steps_left < 0:
                raise BudgetSpent
            # If so many do not fit, more do not.
            if not node_holds(self.problem, at, (*counts, count)):
                return
            yield from self._fill(at, usable, (*counts, count))


def node_holds(problem: PackingProblem, at: int, counts: tuple[int, ...]) -> bool:
    """Whether one node can hold these members of the first parts at once."""
    parts = problem.parts[: len(counts)]
    free = problem.free[at]
    if any(n and part.need.missing is not None for part, n in zip(parts, counts, strict=True)):
        return False
    for column in range(len(free)):
        if column == problem.device_column:
            continue
        if sum(n * int(part.need.vector[column]) for part, n in zip(parts, counts, strict=True)) > free[column]:
            return False
    if problem.device_column < 0:
        return True
    whole = sum(n * part.need.whole for part, n in zip(parts, counts, strict=True))
    shares = sorted((part.need.share for part, n in zip(parts, counts, strict=True) for _ in range(n)), reverse=True)
    devices = problem.devices[at]
    return pack_devices(devices, whole, [share for share in shares if share]) is not None


def pack_devices(devices: Sequence[int], whole: int, shares: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """Devices for whole requests and one device per share (largest share first), or None if they do not fit.

    Whole requests need untouched devices; which of those they take makes no difference to the shares.
    """
    untouched = [device for device, milli in enumerate(devices) if milli == MILLI]
    if len(untouched) < whole:
        return None
    given = untouched[:whole]
    # Least room first, so that the first way tried is best fit.
    bins = sorted((milli, device) for device, milli in enumerate(devices) if device not in given)
    chosen = _pack(bins, list(shares))
    return None if chosen is None else (given, chosen)


def _pack(bins: list[tuple[int, int]], shares: list[int]) -> list[int] | None:
    """Bin packing on a handful of devices, best fit first, backing up where that fails."""
    if not shares:
        return []
    if sum(shares) > sum(room for room, _ in bins):
        return None
    for index, (room, device) in enumerate(bins):
        # Devices with equal room are one choice: trying each of them again would only find the same failure.
        if room < shares[0] or (index and bins[index - 1][0] == room):
            continue
        rest = sorted([*bins[:index], *bins[index + 1 :], (room - shares[0], device)])
        chosen = _pack(rest, shares[1:])
        if chosen is not None:
            return [device, *chosen]
    return None
