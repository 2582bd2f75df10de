"""Rules about what was not needed, and about whom it made wait.

That somebody made way for nothing, or that a reservation moved, can be said of a result only where
nothing else explains it. So each check first asks for a world, or an instant, in which nothing does:
one queue, nobody tied to anybody, the taker first in the order, and so on. What is left is judged
exactly; the rest is left to whoever sees the plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from phalanx.model.fleet import Node
from phalanx.model.gang import Shape
from phalanx.testing.judge_book import BEGINS, NEVER, Book, Finding
from phalanx.testing.judge_gangs import sole_shape

#: Policies that keep the order of priority, eligibility and sequence while there is one queue and no deadline.
_BY_PRIORITY: Final = ("fcfs", "easy", "conservative", "fair", "deadline", "goodput")
_RESERVES: Final = (*_BY_PRIORITY, "rotate")

Room = dict[str, dict[str, int]]  # free by node and kind


def is_simple(book: Book) -> bool:
    """One queue, no limits, windows, events or ties: whoever waits, waits for room alone."""
    world = book.scenario
    one = len({gang.queue for gang in world.gangs}) == 1
    calm = not world.windows and not world.events and not world.users and world.failures is None
    free = all(not queue.limit for queue in world.queues)
    tied = any(gang.together or gang.after.names or gang.hold for gang in world.gangs)
    spare = any(node.spare for node in world.nodes)
    return one and calm and free and not tied and not spare


def _rank(book: Book, index: int) -> tuple[int, int, int]:
    return -book.gangs[index].priority, book.eligible_us(index), index


def free_room(book: Book, at_us: int, without: frozenset[int] = frozenset()) -> Room:
    """What is free, node by node, if these gangs were not there."""
    used = {kind: book.used(at_us, kind, without) for kind in book.kinds}
    return {
        name: {kind: book.capacity(name, kind) - used[kind][name] for kind in book.kinds}
        for name in book.nodes
        if not any(since <= at_us < until for since, until in book.outages.get(name, ()))
    }


def fits(nodes: Mapping[str, list[Node]], room: Room, shape: Shape, members: int) -> dict[str, int] | None:
    """Places for members of one shape, found by counting; None if there are too few.

    Exact for whole amounts. Where shares of a device are asked for, or there are islands, counting may find what is
    not there: callers leave such worlds aside (`is_countable`).
    """
    found: dict[str, int] = {}
    for name, free in room.items():
        node = nodes[name][0]
        if not all(node.labels.get(label) in values for label, values in shape.select):
            continue
        if not set(node.taints) <= set(shape.tolerate):
            continue
        count = min(members, *(free.get(kind, 0) // units for kind, units in shape.need))
        if count > 0:
            found[name] = count
            members -= count
        if not members:
            return found
    return None


def is_countable(book: Book) -> bool:
    """Whether room can be counted: whole amounts, every gang of one role, no islands."""
    whole = all(
        len(gang.roles) == 1 and all(units % 1000 == 0 for _, units in gang.roles[0].shape.need) for gang in book.gangs
    )
    return whole and not any(node.islands for faces in book.nodes.values() for node in faces)


def take(room: Room, places: Mapping[str, int], shape: Shape, sign: int = -1) -> None:
    """Seat members (or, with the other sign, let them go)."""
    for name, members in places.items():
        for kind, units in shape.need:
            room[name][kind] += sign * members * units


# ---------------------------------------------------------------------- evicted for nothing


def find_needless_evictions(book: Book) -> Iterator[Finding]:
    """Every gang first tries free places (rule 1), and no victim is superfluous (rule 9).

    Certain where one rigid gang begins, it is the first of all that wait, and it fits beside its victims.
    """
    if book.result.policy not in _BY_PRIORITY or not is_simple(book) or not is_countable(book):
        return
    if any(gang.deadline_us is not None for gang in book.gangs):
        return
    for at_us in book.entries:
        if at_us >= book.over_us:
            continue  # the run ends here, and nobody's seats are known beyond it
        victims = frozenset(book.who(at_us, "evict"))
        begins = [index for index in book.who(at_us, *BEGINS) if index not in victims]
        if not victims or len(begins) != 1 or book.who(at_us, "shrink", "grow", "move", "yield"):
            continue
        (taker,) = begins
        shape = sole_shape(book.gangs[taker])
        if shape is None or book.gangs[taker].elastic or book.told[taker].history[0].at_us != at_us:
            continue
        waiting = [index for index in range(len(book.gangs)) if book.waits(index, at_us) and index not in victims]
        if any(_rank(book, index) < _rank(book, taker) for index in waiting):
            continue
        places = _beside(book, at_us, taker, shape, victims)
        if places is not None and not _harms(book, at_us, taker, victims, places):
            names = ", ".join(book.told[index].name for index in sorted(victims))
            yield Finding("needless-evict", book.told[taker].name, at_us, f"fits on {places}, yet {names} had to go")


def _beside(book: Book, at_us: int, taker: int, shape: Shape, victims: frozenset[int]) -> dict[str, int] | None:
    """Free places for the taker, with its victims where they were."""
    room = free_room(book, at_us, victims | {taker})
    for victim in victims:
        stay = max((s for s in book.stays_of[victim] if s.end_us <= at_us), key=lambda s: s.end_us, default=None)
        victim_shape = sole_shape(book.gangs[victim])
        if stay is None or victim_shape is None or stay.end_us != at_us:
            return None
        take(room, stay.places, victim_shape)
    return fits(book.nodes, room, shape, book.gangs[taker].members_min)


def _harms(book: Book, at_us: int, taker: int, victims: frozenset[int], places: Mapping[str, int]) -> bool:
    """Whether those who began later could not have begun when they did, taker and victims sitting on for ever.

    A promise that was given before (rule 4) may forbid places that are free now. Where nobody would have begun later,
    none did.
    """
    if book.result.policy != "conservative":
        return False
    shape = sole_shape(book.gangs[taker])
    for later_us in sorted(book.entries):
        begins = [index for index in book.who(later_us, "bind") if index not in victims and index != taker]
        if later_us <= at_us or not begins:
            continue
        room = free_room(book, later_us, victims | {taker} | set(begins))
        if shape is not None:
            take(room, places, shape)
        for index in (*victims, *begins):
            other = sole_shape(book.gangs[index])
            if other is None:
                return True
            if index in victims:
                stay = max((s for s in book.stays_of[index] if s.end_us <= at_us), key=lambda s: s.end_us)
                take(room, stay.places, other)
            else:
                found = fits(book.nodes, room, other, _members_at(book, index, later_us))
                if found is None:
                    return True
                take(room, found, other)
    return False


def _members_at(book: Book, index: int, at_us: int) -> int:
    return next(entry.members for entry in book.told[index].history if entry.at_us == at_us and entry.event == "bind")


# ---------------------------------------------------------------------- shrunk for nothing


def find_needless_shrinks(book: Book) -> Iterator[Finding]:
    """Nobody gives room back that is not needed (rules 8 and 9).

    Certain where one rigid gang begins on what was given back, nobody else waits, and it would have found its places
    with one of the givers left as it was.
    """
    if not is_simple(book) or not is_countable(book):
        return
    for at_us in book.entries:
        givers = book.who(at_us, "shrink")
        if not givers or book.who(at_us, *(BEGINS - {"bind"}), "evict", "yield", "lose"):
            continue
        over_us = at_us + max(book.gangs[index].resize_pause_us for index in givers)
        between = [index for when in book.entries if at_us <= when <= over_us for index in book.who(when, *BEGINS)]
        # Who ends in the meantime makes room that could not be counted on; whoever else moves may be why.
        changes = [when for when in book.entries if at_us < when < over_us]
        others = [each for when in changes for _, each in book.entries[when] if each.event != "complete"]
        arrivals = [g for g in book.gangs if at_us < g.submit_us <= over_us]
        if len(between) > 1 or others or arrivals or over_us >= book.over_us:
            continue
        if any(book.waits(index, over_us) for index in range(len(book.gangs))):
            continue
        for giver in givers:
            story = _for_nothing(book, at_us, over_us, giver, between[0] if between else None)
            if story:
                yield Finding("needless-shrink", book.told[giver].name, at_us, story)


def _for_nothing(book: Book, at_us: int, over_us: int, giver: int, taker: int | None) -> str | None:
    if taker is None:
        return "shrinks, and nobody comes"
    shape, own = sole_shape(book.gangs[taker]), sole_shape(book.gangs[giver])
    if shape is None or own is None or book.gangs[taker].elastic or taker == giver:
        return None
    # Where the taker would find room with the giver as it was, ends since then left aside: they may not be counted on.
    room = free_room(book, at_us, frozenset({giver, taker}))
    for stay in book.stays:
        if stay.how == "leaving" and stay.covers(at_us) and stay.start_us == at_us and stay.gang != giver:
            take(room, stay.places, book.gangs[stay.gang].roles[0].shape, sign=1)
    before = [s for s in book.stays_of[giver] if s.how == "runs" and s.end_us == at_us]
    if len(before) != 1:
        return None
    take(room, before[0].places, own)
    if min(units for free in room.values() for units in free.values()) < 0:
        return None
    places = fits(book.nodes, room, shape, book.gangs[taker].members_min)
    return None if places is None else f"shrinks, though {book.told[taker].name} fits on {places} beside it"


# ---------------------------------------------------------------------- a reservation that moved


def find_late_heads(book: Book) -> Iterator[Finding]:
    """The first in the order starts when those who ran before it have ended, at the latest (rules 1, 3 and 8).

    Certain where everybody who ran when it came says truly how long, and nobody who came later can hold it up: they
    end when they say, or they are guests and must go.
    """
    if book.result.policy not in _RESERVES or not is_simple(book) or not is_countable(book):
        return
    if any(_may_overrun(book, index) or book.gangs[index].deadline_us is not None for index in range(len(book.gangs))):
        return
    most = max(gang.priority for gang in book.gangs)
    slack = max(gang.resize_pause_us for gang in book.gangs)
    for index, gang in enumerate(book.gangs):
        shape = sole_shape(gang)
        if shape is None or gang.elastic or gang.priority < most or book.told[index].state == "infeasible":
            continue
        bound_us = _latest_start(book, index, shape)
        if bound_us is None or (book.scenario.until_us is not None and bound_us + slack >= book.scenario.until_us):
            continue
        start_us = book.told[index].start_us
        if start_us is None or start_us > bound_us + slack:
            told = "never" if start_us is None else f"at {start_us / 1e6:g}"
            yield Finding("head-late", gang.name, bound_us, f"first in the order, could start here, starts {told}")


def _may_overrun(book: Book, index: int) -> bool:
    """Whether it may be there longer than it said: what it saves, restores and starts with is no part of a walltime."""
    gang, truth = book.gangs[index], book.scenario.true_runs[index]
    if gang.snapshot is not None or gang.startup_us or gang.kill_after_us:
        return True
    return gang.walltime_us is not None and gang.walltime_us < truth.duration_us


def _is_exact(book: Book, index: int) -> bool:
    gang = book.gangs[index]
    return not gang.elastic and gang.walltime_us == book.scenario.true_runs[index].duration_us


def _latest_start(book: Book, index: int, shape: Shape) -> int | None:
    """When the ends of those who were there before it make room for it; None where that cannot be said."""
    came_us, start_us = book.eligible_us(index), book.told[index].start_us
    start_us = NEVER if start_us is None else start_us
    earlier = [i for i in range(len(book.gangs)) if (book.eligible_us(i), i) < (came_us, index)]
    for other in earlier:
        instants = [came_us, *(at_us for at_us in book.entries if came_us < at_us < start_us)]
        if any(book.waits(other, at_us) for at_us in instants):
            return None
    there = [i for i in earlier if book.sits(i, came_us)]
    if not all(_is_exact(book, i) for i in there):
        return None
    # Where those sit who came with it or later does not matter: they may not hold it up.
    room = free_room(book, came_us, frozenset(range(len(book.gangs))) - set(there))
    if fits(book.nodes, room, shape, book.gangs[index].members_min) is not None:
        return came_us
    ends: list[tuple[int, int]] = []
    for other in there:
        stay = next(s for s in book.stays_of[other] if s.how == "runs" and s.covers(came_us))
        ends.append((stay.start_us + book.scenario.true_runs[other].duration_us, other))
    for end_us, other in sorted(ends):
        stay = next(s for s in book.stays_of[other] if s.how == "runs" and s.covers(came_us))
        take(room, stay.places, book.gangs[other].roles[0].shape, sign=1)
        if fits(book.nodes, room, shape, book.gangs[index].members_min) is not None:
            return end_us
    return None


def find_forgotten(book: Book) -> Iterator[Finding]:
    """Whoever fits an empty cluster starts, once everybody else is done."""
    if book.scenario.until_us is not None or not is_simple(book) or not is_countable(book):
        return
    for gang, told in zip(book.gangs, book.told, strict=True):
        shape = sole_shape(gang)
        if told.state == "pending" and shape is not None:
            room: Room = {name: {k: book.capacity(name, k) for k in book.kinds} for name in book.nodes}
            if fits(book.nodes, room, shape, gang.members_min) is not None:
                yield Finding("forgotten", gang.name, NEVER, "is pending for ever and fits an empty cluster")
