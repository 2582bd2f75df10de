"""Rules about others, read member by member: who is placed by a plan keeps them, and keeps those of others.

Only places that a plan gives are judged: rules say where members may go, and nothing of those who sit already. What is
true at the end of a plan is enough to look at, since nobody who comes later in it may break what holds for an earlier
one; but how even a spread is depends on the order, so that it is judged where one gang alone moves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from phalanx.engine.invariants.changes import Change
from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.engine.invariants.reading import Claim, Held, admits, domain_of, find_rows, held_after, held_by, name_of
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang, Shape
from phalanx.model.rules import Apart, AtMost, Beside, Evenly, IntArray, Mark, Rule
from phalanx.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Placed:
    """One gang as it sits afterwards, and where it has more members than before."""

    gang: Gang
    after: Held
    gained: frozenset[tuple[int, int]]  # (role, node)
    before: Held = field(default_factory=dict)

    def shapes(self) -> Iterator[tuple[int, Shape, list[int]]]:
        """Roles that gained something, and on which nodes."""
        for role, each in enumerate(self.gang.roles):
            nodes = sorted(node for at, node in self.gained if at == role)
            if nodes:
                yield role, each.shape, nodes


class _Census:
    """How many with each mark are on each node."""

    def __init__(self, snapshot: Snapshot) -> None:
        """As the snapshot says."""
        self.fleet, self.nodes = snapshot.fleet, len(snapshot.fleet)
        presence = snapshot.presence
        self.counts: dict[Mark, IntArray] = {}
        for word, counts in presence.words.items() if presence else ():
            self.counts[word] = counts.copy()
        for word, held in presence.away.items() if presence else ():
            for by, counts in held.items():
                self.counts[word, by] = counts.copy()

    # Node by node in plain numbers, where the engine sums over arrays of domains.
    def add(self, gang: Gang, held: Held, sign: int) -> None:
        """So many of a gang come, or go."""
        for (role, node), (count, _) in held.items():
            for mark in gang.roles[role].shape.list_marks():
                self.counts.setdefault(mark, np.zeros(self.nodes, dtype=np.int64))[node] += sign * count

    def in_domain(self, mark: Mark, by: str, node: int) -> int:
        """Those in the domain of a node; of a node in none, nobody."""
        here = _domain(self.fleet, by, node)
        counts = self.counts.get(mark)
        if counts is None or here is None:
            return 0
        return sum(count for at, count in enumerate(counts.tolist()) if count and _domain(self.fleet, by, at) == here)

    def total(self, mark: Mark) -> int:
        """All of them."""
        return int(self.counts[mark].sum()) if mark in self.counts else 0


# Levels by their whole path, labels by their value: where only the label says, zone 1 is one zone in all regions.
def _domain(fleet: Fleet, by: str, node: int) -> object:
    return domain_of(fleet, by, node) if by in fleet.levels else fleet.nodes[node].labels.get(by)


def check_neighbours(snapshot: Snapshot, starts: Sequence[Claim], changes: Sequence[Change]) -> Iterator[Violation]:
    """Everybody whom a plan seats, against everybody who is there then."""
    placed = [_Placed(claim.gang, held, frozenset(held)) for claim in starts for held in [held_after(claim.seats)]]
    placed += [_Placed(change.gang, change.after, frozenset(change.gained), change.before) for change in changes]
    # Most clusters: nothing below costs anything where nobody asks.
    if not any(shape.social for each in placed for _, shape, _ in each.shapes()):
        return
    # From what the snapshot says of others, whom nobody here could count; what it says of gangs, `check_presence` does.
    before, after = _Census(snapshot), _Census(snapshot)
    for each in placed:
        after.add(each.gang, each.before, -1)
        after.add(each.gang, each.after, 1)
    # Two gangs of one plan that bear one word: each was even when it came, and nobody says which came first.
    moves = Counter(word for each in placed for role in each.gang.roles for word in set(role.shape.bears))
    for each in placed:
        judge = _Judge(snapshot, each, before, after, moves)
        for role, shape, nodes in each.shapes():
            for story in chain.from_iterable(judge.judge(role, shape, node) for node in nodes):
                yield Violation(Promise.NEIGHBOURS, f"{each.gang.name} {story}")


@dataclass(frozen=True, slots=True)
class _Judge:
    """One placement against who was there before the plan, and who is there after it."""

    snapshot: Snapshot
    placed: _Placed
    before: _Census
    after: _Census
    moves: Counter[str]  # by word: how many gangs of the plan bear it

    def judge(self, role: int, shape: Shape, node: int) -> Iterator[str]:
        """Everything that is wrong with members of a role on a node."""
        name = self.snapshot.fleet.names[node]
        for word in shape.bears:
            # Whoever keeps the word away from here, by whatever makes its domains; whether it came before or after.
            keepers = [mark for mark in self.after.counts if not isinstance(mark, str) and mark[0] == word]
            for mark in keepers:
                if self._others(mark, mark[1], shape, node):
                    yield f"bears '{word}' on {name}, from where somebody keeps that away by {mark[1]}"
        # Its own: of what it asks, nothing may be left to chance because nobody else has a word in it.
        for rule in shape.rules:
            if not self._holds(rule, role, shape, node):
                yield f"is on {name} against its {rule}"

    def _holds(self, rule: Rule, role: int, shape: Shape, node: int) -> bool:
        match rule:
            case AtMost():
                return self._siblings(role, rule.by, node) <= rule.members
            case Apart():
                return not self._others(rule.word, rule.by, shape, node)
            case Beside():
                # Somebody of before, or of this plan; siblings that come with it are no company, unless they are the
                # first of all, and then they are all in one domain.
                there = self.before.in_domain(rule.word, rule.by, node) or self._strangers(rule.word, rule.by, node)
                return there > 0 or (not self._others_before(rule.word) and self._are_first(rule, role, shape))
            case Evenly():
                alone = self.moves[rule.word] == int(
                    any(rule.word in each.shape.bears for each in self.placed.gang.roles)
                )
                # Nor of whoever leaves one place for another: it was even with those whom it is about to take along.
                return not alone or bool(self.placed.before) or self._is_even(shape, rule, node)

    def _others(self, mark: Mark, by: str, shape: Shape, node: int) -> int:
        """How many with a mark are in the domain of a node beside the member that is judged."""
        there = self.after.in_domain(mark, by, node)
        return there - int(there > 0 and mark in shape.list_marks())

    def _others_before(self, word: str) -> int:
        """How many bore a word anywhere before the plan, without those whom it takes elsewhere."""
        gang, held = self.placed.gang, self.placed.before.items()
        mine = sum(count for (role, _), (count, _) in held if word in gang.roles[role].shape.bears)
        return self.before.total(word) - mine

    def _strangers(self, word: str, by: str, node: int) -> int:
        """How many of other gangs bear a word in the domain of a node afterwards."""
        roles = [at for at, each in enumerate(self.placed.gang.roles) if word in each.shape.bears]
        return self.after.in_domain(word, by, node) - sum(self._siblings(role, by, node) for role in roles)

    def _are_first(self, rule: Beside, role: int, shape: Shape) -> bool:
        nodes = (node for at, node in self.placed.gained if at == role)
        # In one domain they came first; in others they may sit beside whoever came with the same plan.
        alone = {
            _domain(self.snapshot.fleet, rule.by, node)
            for node in nodes
            if not self._strangers(rule.word, rule.by, node)
        }
        return rule.word in shape.bears and len(alone) == 1 and None not in alone

    def _siblings(self, role: int, by: str, node: int) -> int:
        fleet, here = self.snapshot.fleet, _domain(self.snapshot.fleet, by, node)
        held = self.placed.after.items()
        return sum(n for (at, on), (n, _) in held if at == role and here is not None and _domain(fleet, by, on) == here)

    def _is_even(self, shape: Shape, rule: Evenly, node: int) -> bool:
        fleet, counts = self.snapshot.fleet, dict[object, int]()
        asked = Shape((), shape.select if rule.heeds_select else (), shape.tolerate)
        for at, each in enumerate(fleet.nodes):
            judged = each if rule.heeds_taints else replace(each, taints=())
            here = _domain(fleet, rule.by, at)
            if here is not None and each.resources and admits(judged, asked):
                there = self.after.counts.get(rule.word)
                counts[here] = counts.get(here, 0) + (0 if there is None else int(there[at]))
        mine = _domain(fleet, rule.by, node)
        fewest = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
        return mine in counts and counts[mine] - fewest <= rule.max_skew


def check_presence(snapshot: Snapshot) -> Iterator[Violation]:
    """Everybody who runs is where the snapshot says; beside them there may be others."""
    recount: dict[Mark, IntArray] = {}
    census = _Census(snapshot)
    for number, row in find_rows(snapshot).items():
        gang = snapshot.gangs[number]
        for (role, node), (count, _) in held_by(snapshot, row).items():
            for mark in gang.roles[role].shape.list_marks():
                recount.setdefault(mark, np.zeros(len(snapshot.fleet), dtype=np.int64))[node] += count
    # At least as many: others are there as well, and gangs that are still leaving.
    for mark, counts in recount.items():
        said = census.counts.get(mark)
        if said is None or bool((said < counts).any()):
            yield Violation(Promise.SUMS, f"somebody with {mark!r} runs where the snapshot says nobody does")
    for number in () if snapshot.presence is not None else snapshot.pending.gang[snapshot.pending.alive].tolist():
        if any(role.shape.names_others for role in snapshot.gangs[number].roles):
            yield Violation(Promise.SUMS, f"{name_of(snapshot, number)} asks about others, and nobody keeps count")
