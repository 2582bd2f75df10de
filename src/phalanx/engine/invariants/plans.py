"""A plan against the snapshot it was made from: who may start, where, and what is promised to the rest.

Safety only: that a plan breaks nothing. Whether it is a good one (nobody idles beside room, the head of the order
starts as early as it can) is held by the oracles and property tests, which may look at more than one cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from phalanx.engine.invariants.changes import (
    Change,
    check_change,
    check_minimums,
    check_vacated,
    check_who_changes,
    claim_of,
    list_changes,
)
from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.engine.invariants.heeding import check_neighbours
from phalanx.engine.invariants.reading import (
    Claim,
    Recount,
    admits,
    asked_by,
    expected_end,
    list_alive,
    name_of,
    units_of,
    vector_of,
    walk_up,
)
from phalanx.engine.invariants.rights import check_rights
from phalanx.engine.invariants.seats import check_claim
from phalanx.engine.policy import EVERYONE, Policy
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Shape
from phalanx.model.plan import Bind, Guest, Plan, Reservation, Resize
from phalanx.model.reason import Code
from phalanx.model.snapshot import Snapshot


def check_plan(snapshot: Snapshot, plan: Plan, policy: Policy) -> list[Violation]:
    """Every promise that a plan breaks; none, if we are right."""
    binds = [decision for decision in plan.decisions if isinstance(decision, Bind)]
    found = [*_check_turns(snapshot, plan, binds), *check_who_changes(snapshot, plan)]
    if found:
        return found  # about gangs that may not start or change at all, the rest is beside the point
    starts = [_claim(snapshot, bind) for bind in binds]
    changes = list_changes(snapshot, plan)
    kept = [claim for claim in (claim_of(snapshot, change) for change in changes) if claim is not None]
    promised = [claim for reservation in plan.reservations for claim in _claims(snapshot, reservation)]
    for claim in (*starts, *kept, *promised):
        found += check_claim(snapshot, claim)
    for bind in binds:
        found += _check_start(snapshot, bind)
    for change in changes:
        found += check_change(snapshot, change, policy)
    found += _check_together(snapshot, [claim.number for claim in starts], "start")
    for reservation in plan.reservations:
        found += _check_together(snapshot, reservation.gangs, "are promised a start")
    found += _check_room(snapshot, changes, [*starts, *kept])
    found += check_neighbours(snapshot, starts, changes)
    found += check_vacated(snapshot, changes)
    found += check_minimums(snapshot, plan, changes)
    found += check_limits(snapshot, starts, changes)
    found += _check_reservations(snapshot, plan, changes)
    found += _check_how_many(snapshot, plan, policy)
    found += _check_dates(snapshot, plan, policy)
    found += _check_reasons(snapshot, plan, {bind.gang for bind in binds})
    # Both replay the plan and would stumble over seats that are none; they come last, and only for a sound plan.
    if not found:
        found += check_rights(snapshot, plan, changes, policy)
        found += _check_calendar(snapshot, plan, changes, starts, kept, promised)
    return found


def _claim(snapshot: Snapshot, bind: Bind) -> Claim:
    gang, now = snapshot.gangs[bind.gang], snapshot.now_us
    # Until its believed end: the calendar counts on that, right or wrong (rule 6).
    return Claim(bind.gang, gang, bind.seats, now, now + bind.length_us, "starts")


def _check_start(snapshot: Snapshot, bind: Bind) -> Iterator[Violation]:
    """What a start says of itself: guests can be made to leave, and pinned sizes are kept."""
    gang, pin = snapshot.gangs[bind.gang], snapshot.pins.get(bind.gang)
    if bind.guest is Guest.WHOLE and not gang.preemptible:
        yield Violation(Promise.GUEST, f"{gang.name} starts as a guest, and nobody may make it leave")
    if bind.guest is Guest.SURPLUS and not gang.elastic:
        yield Violation(Promise.GUEST, f"{gang.name} starts as a guest with its surplus, and has none")
    members = sum(seats.members for seats in bind.seats if gang.roles[seats.role].sizes.elastic)
    # Fewer is allowed: a pinned size that does not fit stays wanted, and the gang starts at its least (rule 15).
    if pin is not None and members > pin:
        yield Violation(Promise.SIZE, f"{gang.name} starts with {members} elastic members, and {pin} are wanted")


def _claims(snapshot: Snapshot, reservation: Reservation) -> Iterator[Claim]:
    # Without split devices a reservation is by amounts, and devices are named at the start.
    shared = snapshot.nodes.shared
    for number, seats in zip(reservation.gangs, reservation.seats, strict=True):
        gang = snapshot.gangs[number]
        yield Claim(number, gang, seats, reservation.start_us, reservation.end_us, "is promised", names_devices=shared)


# ---------------------------------------------------------------------- who


def _check_turns(snapshot: Snapshot, plan: Plan, binds: Sequence[Bind]) -> Iterator[Violation]:
    """Who may be in a plan at all: what waits, is not held back, and is not impossible; each once."""
    pending = snapshot.pending
    gates = dict(zip(list_alive(pending.alive, pending.gang), list_alive(pending.alive, pending.gate), strict=True))
    started = {bind.gang for bind in binds}
    # A start and a promise exclude each other, which is why both are counted in one go.
    promised = [gang for reservation in plan.reservations for gang in reservation.gangs]
    for gang, times in Counter([*(bind.gang for bind in binds), *promised]).items():
        name = name_of(snapshot, gang)
        if times > 1:
            yield Violation(Promise.ONCE, f"{name} is started or promised {times} times")
        if gang not in gates:
            yield Violation(Promise.ONCE, f"{name} does not wait, and is started or promised")
        elif gates[gang]:
            yield Violation(Promise.GATED, f"{name} is held back by gate {gates[gang]}, and is started or promised")
    # Rule 2 (who reserves): what can never run reserves nothing and holds up nobody.
    for gang in sorted(({*snapshot.judged, *plan.infeasible} & {*promised}) | ({*plan.infeasible} & started)):
        yield Violation(Promise.INFEASIBLE, f"{name_of(snapshot, gang)} can never run, and starts or reserves")


def _check_dates(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[Violation]:
    """Dates are judged once each, as soon as their gangs have a turn, and only where they are promised at all."""
    pending = snapshot.pending
    rows = (pending.alive & (pending.gate == 0) & (pending.deadline_us >= 0)).nonzero()[0]
    # Under any other policy a verdict is one that nobody would keep.
    waiting = set(pending.gang[rows].tolist()) if policy.promises_dates else set()
    # A second verdict could take back what somebody was told at submit. Only a change of nodes lets one be forgotten,
    # and only of a date that was not promised.
    judged = Counter(verdict.gang for verdict in plan.dates)
    for gang, times in judged.items():
        if times > 1 or gang in snapshot.dates:
            yield Violation(Promise.DATE, f"the date of {name_of(snapshot, gang)} is judged again")
        if gang not in waiting:
            yield Violation(Promise.DATE, f"{name_of(snapshot, gang)} has no date to be judged now")
    # Whoever is out of reach even alone is told so in another way (rule 15).
    told = {*judged, *snapshot.dates, *snapshot.judged, *plan.infeasible}
    for gang in sorted(waiting - told):
        yield Violation(Promise.DATE, f"the date of {name_of(snapshot, gang)} is not judged")


def _check_together(snapshot: Snapshot, numbers: Iterable[int], verb: str) -> Iterator[Violation]:
    """Gangs of one word that wait for their first start come as a whole, and as many as were announced."""
    pending = snapshot.pending
    groups = dict(zip(list_alive(pending.alive, pending.gang), list_alive(pending.alive, pending.group), strict=True))
    chosen = set(numbers)
    for group in sorted({groups[number] for number in chosen} - {-1}):
        waiting = {number for number, other in groups.items() if other == group}
        together = snapshot.gangs[min(waiting)].together
        # All that still wait for their first start, and as many as were announced: an incomplete group has a gate.
        if not waiting <= chosen or together is None or len(waiting) != together.gangs:
            names = ", ".join(name_of(snapshot, number) for number in sorted(waiting & chosen))
            yield Violation(Promise.TOGETHER, f"{names} {verb} without the rest of their group")


# ---------------------------------------------------------------------- how much


def _check_room(snapshot: Snapshot, changes: Sequence[Change], claims: Sequence[Claim]) -> Iterator[Violation]:
    """Everybody at once as the plan has it: those who start and change, beside those who stay as they are."""
    # Gangs that change are taken out whole and seated anew as the plan has them: sums see no order of steps.
    room = Recount(snapshot, gone=[change.row for change in changes])
    for claim in claims:
        room.take(claim)
    yield from room.check("running and starting gangs")


def check_limits(snapshot: Snapshot, starts: Sequence[Claim], changes: Sequence[Change] = ()) -> Iterator[Violation]:
    """Nobody who gets something ends above a limit on a kind they get, after everything that is given back."""
    nothing = np.zeros(len(snapshot.fleet.kinds), dtype=np.int64)
    users = list(snapshot.users.names)
    moved = [(claim.gang, asked_by(snapshot.fleet, claim)) for claim in starts]
    for change in changes:
        fleet = snapshot.fleet
        after = vector_of(fleet, change.gang, change.after)
        # With its sign: what one gang gives back, another of the same queue may get in the same plan.
        moved.append((change.gang, after - vector_of(fleet, change.gang, change.before)))
    by_user: dict[int, list[IntArray]] = {}
    by_queue: dict[int, list[IntArray]] = {}
    for gang, units in moved:
        by_user.setdefault(users.index(gang.user), []).append(units)
        for queue in walk_up(snapshot, snapshot.queues.names.index(gang.queue)):
            by_queue.setdefault(queue, []).append(units)
    for what, names, columns, units_of_each in (
        ("queue", snapshot.queues.names, snapshot.queues, by_queue),
        ("user", users, snapshot.users, by_user),
    ):
        for index, moves in units_of_each.items():
            # Being above a limit is no fault (it may have been lowered since); getting more of that kind is.
            gets = sum((np.maximum(each, 0) for each in moves), nothing)
            limit, usage = columns.limit[index], columns.usage[index] + sum(moves, nothing)
            for kind in np.flatnonzero((limit >= 0) & (gets > 0) & (usage > limit)).tolist():
                story = f"gets {usage[kind]} of {snapshot.fleet.kinds[kind]}, limit {limit[kind]}"
                yield Violation(Promise.LIMIT, f"{what} '{names[index]}' {story}")


# ---------------------------------------------------------------------- reservations


def _check_reservations(snapshot: Snapshot, plan: Plan, changes: Sequence[Change]) -> Iterator[Violation]:
    """Reservations lie ahead and belong to gangs that no limit stops."""
    for reservation in plan.reservations:
        names = ", ".join(name_of(snapshot, number) for number in reservation.gangs)
        if reservation.start_us < snapshot.now_us or reservation.end_us < reservation.start_us:
            yield Violation(Promise.RESERVATION, f"{names}: from {reservation.start_us} to {reservation.end_us}")
        # Against the usage before this plan, less what it gives back: its starts may have used the rest of a limit.
        back = [change for change in changes if not change.gained]
        for found in check_limits(snapshot, list(_claims(snapshot, reservation)), back):
            yield Violation(Promise.RESERVATION, f"{names} reserves over a limit: {found.story}")


def _check_how_many(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[Violation]:
    """No more reservations than the policy grants among gangs that could use the same nodes."""
    if policy.reservations >= EVERYONE:
        return
    # A policy that stops behind its blocked head keeps everything for that head: that is a reservation too.
    # K is counted per pool of nodes (rule 2): gangs that could never sit on the same node do not compete.
    granted = max(policy.reservations, int(policy.stops))
    pools = [_pool(snapshot, reservation) for reservation in plan.reservations]
    for index, pool in enumerate(pools):  # they are listed as they were granted
        rivals = sum(bool(pool & other) for other in pools[:index])
        if rivals >= granted:
            names = ", ".join(name_of(snapshot, number) for number in plan.reservations[index].gangs)
            story = f"{names} reserves beside {rivals} others, and {policy.name} grants {granted}"
            yield Violation(Promise.RESERVATION, story)


def _check_reasons(snapshot: Snapshot, plan: Plan, started: set[int]) -> Iterator[Violation]:
    """Where reasons were asked for, everybody who does not start has one of the closed set."""
    if plan.verdicts is None:
        return
    for row in np.flatnonzero(snapshot.pending.alive).tolist():
        number, code = int(snapshot.pending.gang[row]), int(plan.verdicts.codes[row])
        # Both ways: a gang that starts has no reason to wait, and nobody waits without one.
        if (code == Code.NONE) != (number in started):
            story = "starts, and is told why not" if code else "waits, and is not told why"
            yield Violation(Promise.REASON, f"{name_of(snapshot, number)} {story}")


def _pool(snapshot: Snapshot, reservation: Reservation) -> frozenset[int]:
    """Nodes in service that admit a member of any role and hold one when empty."""
    # Candidate nodes of any role: two gangs compete as soon as one member of each could want the same node.
    shapes = {role.shape for number in reservation.gangs for role in snapshot.gangs[number].roles}
    service = np.flatnonzero(snapshot.nodes.in_service).tolist()
    return frozenset(node for node in service if any(_could_hold(snapshot, node, shape) for shape in shapes))


def _could_hold(snapshot: Snapshot, node: int, shape: Shape) -> bool:
    units, capacity = units_of(snapshot.fleet, shape), snapshot.fleet.capacity[node].tolist()
    return admits(snapshot.fleet.nodes[node], shape) and all(a <= b for a, b in zip(units, capacity, strict=True))


def _check_calendar(
    snapshot: Snapshot,
    plan: Plan,
    changes: Sequence[Change],
    starts: Sequence[Claim],
    kept: Sequence[Claim],
    promised: Sequence[Claim],
) -> Iterator[Violation]:
    """At every promised start, whoever is expected there then fits, the promised gangs included.

    Load rises only where somebody starts, so the promised starts are the only instants to look at.
    Guests do not count: they leave when the owner comes. Of a guest with its surplus only, nobody has
    written down which members those are, so all of it is left out.
    """
    running = np.flatnonzero(snapshot.running.alive).tolist()
    guests = {decision.gang for decision in plan.decisions if isinstance(decision, Bind | Resize) and decision.guest}
    guests |= {int(snapshot.running.gang[row]) for row in running if snapshot.running.guest[row]} - {-1}
    changed = {change.row for change in changes}
    for at_us in sorted({claim.start_us for claim in promised}):
        # Whoever this plan changes is among the claims, with the seats it has afterwards.
        gone = [row for row in running if row in changed or expected_end(snapshot, row) <= at_us]
        gone += [row for row in running if snapshot.running.guest[row]]
        room = Recount(snapshot, gone)
        for claim in (*starts, *kept, *promised):
            # An end at that very instant is in time: who ends by the shadow time delays nobody (rule 3).
            if claim.start_us <= at_us < claim.end_us and claim.number not in guests:
                room.take(claim)
        for found in room.check(f"those expected at {at_us}"):
            yield Violation(Promise.RESERVATION, found.story)
