"""What rules about others leave of the slots of a shape.

Slots go in per node and come out per node, cut to what rules allow: any choice of members among what comes out keeps
`AtMost`, `Apart` and `Beside`, so that whoever chooses nodes need not know of them. Only `Evenly` depends on how many
are placed; there this is the most that can be, and `spread_out` says where a given number goes.

Without a presence nobody is anywhere else, and rules that others could make easier (`Beside`, `Evenly`) are left out:
the answer is what can ever be, and a no is for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from phalanx.model.fleet import BoolArray, Domains, Fleet, IntArray
from phalanx.model.gang import Shape
from phalanx.model.rules import Apart, AtMost, Beside, Evenly, Presence, Rather


def cut_slots(
    fleet: Fleet, shape: Shape, slots: IntArray, presence: Presence | None, own: IntArray | None = None
) -> IntArray:
    """The slots that rules leave; `own`: members of the role that sit already, per node."""
    # Domains that are out of the question first. A share of a domain is kept on some of its nodes and not on others,
    # and a no to one of those afterwards would be a no to the whole domain.
    if presence is not None:
        for open_ in _list_open(fleet, shape, presence):
            slots = slots * open_
    # Single nodes before wider domains: what is left of them is what those have to share.
    for domains, most in sorted(_list_shares(fleet, shape, own), key=lambda share: not share[0].single):
        slots = _cut_to(fleet, slots, domains, most)
    return slots if presence is None else _cut_by_room(fleet, shape, slots, presence)


def _cut_by_room(fleet: Fleet, shape: Shape, slots: IntArray, presence: Presence) -> IntArray:
    """What depends on all the room that a domain has, last."""
    for rule in shape.rules:
        if isinstance(rule, Beside) and rule.word in shape.bears and not presence.bearing(rule.word).any():
            slots = _keep_one(slots, fleet.domains_by(rule.by))
        elif isinstance(rule, Evenly):
            slots = _cut_to_skew(fleet, shape, slots, presence, rule)
    return slots


def _list_open(fleet: Fleet, shape: Shape, presence: Presence) -> Iterator[BoolArray]:
    """Rule by rule the nodes that it leaves, whole domains at a time."""
    # Both ways: whoever came first keeps those away that bear the word, whatever those ask themselves.
    for word in shape.bears:
        for by, holders in presence.away.get(word, {}).items():
            domains = fleet.domains_by(by)
            yield ~domains.spread_to_nodes(domains.sum(holders) > 0)
    for rule in shape.rules:
        if not isinstance(rule, Apart | Beside):
            continue
        domains, bearing = fleet.domains_by(rule.by), presence.bearing(rule.word)
        there = domains.spread_to_nodes(domains.sum(bearing) > 0)
        if isinstance(rule, Apart):
            # Also on nodes without the label: in no domain nobody is in the same one.
            yield ~there
        elif rule.word not in shape.bears or bearing.any():
            yield there


def _list_shares(fleet: Fleet, shape: Shape, own: IntArray | None) -> Iterator[tuple[Domains, IntArray]]:
    """How many members each domain may have of those that are placed now, whoever else is there."""
    for rule in shape.rules:
        domains = fleet.domains_by(rule.by)
        if isinstance(rule, AtMost):
            sitting = np.zeros(domains.count, dtype=np.int64) if own is None else domains.sum(own)
            # Never below zero: members that sit closer than they may now have come under another rule, or none.
            yield domains, np.maximum(rule.members - sitting, 0)
        elif isinstance(rule, Apart) and rule.word in shape.bears:
            # Its siblings come in the same breath, and no presence knows of them yet.
            yield domains, np.ones(domains.count, dtype=np.int64)


def _keep_one(slots: IntArray, domains: Domains) -> IntArray:
    """The first of those who want to be beside each other: in any domain, but all in one."""
    room = domains.sum(slots)
    there = np.zeros(domains.count, dtype=np.bool_)
    if len(room):
        # The roomiest: where it does not fit, it fits nowhere.
        there[int(room.argmax())] = True
    return slots * domains.spread_to_nodes(there)


def _cut_to(fleet: Fleet, slots: IntArray, domains: Domains, most: IntArray) -> IntArray:
    """At most so many slots in each domain; of several nodes the roomiest keep theirs."""
    if domains.single:  # by far the commonest wish, and a number per node
        inside = domains.codes >= 0
        return np.where(inside, np.minimum(slots, most[domains.codes]), slots) if len(most) else slots
    over = domains.sum(slots) > most
    if not over.any():
        return slots
    nodes = domains.spread_to_nodes(over).nonzero()[0]
    # Fewest nodes, and neighbours in the network: what a gang would choose itself among equals.
    order = nodes[np.lexsort((fleet.walk_rank[nodes], -slots[nodes], domains.codes[nodes]))]
    codes = domains.codes[order]
    # Slots before each node within its domain: a running sum over all, less what it was at the domain's first node.
    filled = slots[order].cumsum()
    first = np.concatenate(([True], codes[1:] != codes[:-1]))
    before = (filled - slots[order])[first][first.cumsum() - 1]
    left = most[codes] - (filled - slots[order] - before)
    cut = slots.copy()
    cut[order] = np.clip(left, 0, slots[order])
    return cut


def cut_by_wishes(fleet: Fleet, shape: Shape, slots: IntArray, presence: Presence | None, size: int) -> IntArray | None:
    """The slots that its wishes leave to so many members; None if they leave all, or none of them can be met."""
    left = slots
    # The heaviest first, and each only if all members find a place where it holds, beside those that were met before.
    for rather in shape.rather:
        wished = _cut_by_wish(fleet, shape, left, presence, rather, size)
        if wished is not None and int(wished.sum()) >= size:
            left = wished
    return None if left is slots else left


def _cut_by_wish(
    fleet: Fleet, shape: Shape, slots: IntArray, presence: Presence | None, rather: Rather, size: int
) -> IntArray | None:
    wish = rather.wish
    if isinstance(wish, tuple):
        return slots * fleet.allowed(wish, shape.tolerate)
    if isinstance(wish, Apart) and wish.word in shape.bears:
        # Rather not where its own are: as few in each domain as can be, which is one if there are as many domains.
        wish = Evenly(wish.by, wish.word, _AS_MANY_AS_NEED_BE)
    if isinstance(wish, Evenly):
        even = replace(wish, max_skew=_AS_MANY_AS_NEED_BE)
        return None if presence is None else spread_out(fleet, replace(shape, rules=(even,)), slots, presence, size)
    return cut_slots(fleet, replace(shape, rules=(wish,)), slots, presence)


#: A skew that nobody is ever above: only the order of domains is left of the rule.
_AS_MANY_AS_NEED_BE = 1 << 40


# ------------------------------------------------------------------ evenly


@dataclass(slots=True, eq=False)
class _Evenness:
    """One rule over domains: who is where, and which domains count."""

    rule: Evenly
    domains: Domains
    counts: IntArray
    eligible: BoolArray
    more: int  # by which a member raises the count of its domain

    def fewest(self, counts: IntArray) -> int:
        """The count that others are compared with."""
        some = counts[self.eligible]
        return int(some.min()) if len(some) and len(some) >= self.rule.min_domains else 0


def _lay_out(fleet: Fleet, shape: Shape, presence: Presence, rule: Evenly) -> _Evenness:
    domains = fleet.domains_by(rule.by)
    counted = domains.codes >= 0
    if rule.heeds_select or rule.heeds_taints:
        counted = counted & fleet.allowed(
            shape.select if rule.heeds_select else (), shape.tolerate if rule.heeds_taints else fleet.taints
        )
    # As the default scheduler counts: by what the member selects, not by whether it would fit, and taints aside unless
    # it says otherwise. A zone that is full, or cordoned, goes on being one that others are compared with.
    # A node that was removed keeps its labels and has nothing to give.
    counted = counted & fleet.capacity.any(axis=1)
    counts = domains.sum(presence.bearing(rule.word) * counted)
    return _Evenness(rule, domains, counts, domains.sum(counted) > 0, int(rule.word in shape.bears))


def _cut_to_skew(fleet: Fleet, shape: Shape, slots: IntArray, presence: Presence, rule: Evenly) -> IntArray:
    """The most there can be in each domain once the one with the fewest has all that it can hold."""
    even = _lay_out(fleet, shape, presence, rule)
    slots = slots * (even.domains.codes >= 0)
    if not even.more:
        fine = even.counts - even.fewest(even.counts) <= rule.max_skew
        return slots * even.domains.spread_to_nodes(fine)
    # Whoever fills up the least first ends when one domain is full: that is the bound for all, plus the skew.
    full = even.counts + even.domains.sum(slots)
    most = np.maximum(np.minimum(full, even.fewest(full) + rule.max_skew) - even.counts, 0)
    return _cut_to(fleet, slots, even.domains, most)


def spread_out(fleet: Fleet, shape: Shape, slots: IntArray, presence: Presence, size: int) -> IntArray | None:
    """Members per node, one after the other to where they are fewest; None if there is no going on.

    Of one rule this finds whatever there is: to fill up the least is what raises the bound for all others. Of several
    it may miss a way.
    """
    evens = [_lay_out(fleet, shape, presence, rule) for rule in shape.rules if isinstance(rule, Evenly)]
    left, placed = slots.copy(), np.zeros_like(slots)
    for _ in range(size):
        nodes = left.nonzero()[0]
        for even in evens:
            codes = even.domains.codes[nodes]
            allowed = (codes >= 0) & (even.counts[codes] + even.more - even.fewest(even.counts) <= even.rule.max_skew)
            nodes = nodes[allowed]
        # Not any that may be: the fewest, which raises the bound for whoever comes next.
        for even in evens:
            if len(nodes):
                there = even.counts[even.domains.codes[nodes]]
                nodes = nodes[there == there.min()]
        if not len(nodes):
            return None
        # On nodes that it has begun with, then the roomiest, then neighbours.
        node = int(nodes[np.lexsort((fleet.walk_rank[nodes], -left[nodes], -placed[nodes]))[0]])
        left[node] -= 1
        placed[node] += 1
        for even in evens:
            even.counts[even.domains.codes[node]] += even.more
    return placed
