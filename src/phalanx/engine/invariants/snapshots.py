"""Columns of a snapshot against each other: who sits where, what is free, who uses how much.

`control` keeps these sums by adding and subtracting, event by event; here they are counted from nothing. A sum that
drifted would let the engine give a device twice, or never again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.engine.invariants.heeding import check_presence
from phalanx.engine.invariants.reading import Held, Recount, held_by, list_alive, name_of, sizes_of, units_of, walk_up
from phalanx.engine.invariants.seats import check_device_use, check_sizes
from phalanx.model.gang import Gang
from phalanx.model.plan import Guest
from phalanx.model.resources import MILLI
from phalanx.model.snapshot import Snapshot


def check_snapshot(snapshot: Snapshot) -> list[Violation]:
    """Everything that is wrong with a snapshot; nothing, if we are right."""
    found = [*_check_rows(snapshot)]
    if found:
        return found  # sums over rows that point nowhere would only say the same again, less clearly
    # Without a limit no cycle reads the usage, and a borrowed snapshot may have it not yet added up.
    usage = check_usage(snapshot) if snapshot.hints.limited else ()
    seated = [*_check_seats(snapshot), *_check_running(snapshot), *_check_free(snapshot), *check_presence(snapshot)]
    return [*seated, *usage, *_check_hints(snapshot)]


def _check_rows(snapshot: Snapshot) -> Iterator[Violation]:
    """Every gang is in one place, and every seat belongs to somebody, or to nobody for a while."""
    pending = list_alive(snapshot.pending.alive, snapshot.pending.gang)
    running = [gang for gang in list_alive(snapshot.running.alive, snapshot.running.gang) if gang >= 0]
    for gang, times in Counter([*pending, *running]).items():
        if times > 1:
            yield Violation(Promise.ONCE, f"{name_of(snapshot, gang)} is {times} times among the pending and running")
    seated = set(list_alive(snapshot.allocations.alive, snapshot.allocations.running))
    # Both ways: seats without a gang are lost room, a gang without seats runs on nothing.
    held = set(np.flatnonzero(snapshot.running.alive).tolist())
    for row in sorted(seated - held):
        yield Violation(Promise.ONCE, f"seats belong to running row {row}, which is nobody's")
    for row in sorted(held - seated):
        gang = int(snapshot.running.gang[row])
        if gang < 0:
            yield Violation(Promise.WHOLE, f"row {row} keeps seats busy for nobody, and there are none")
        # One that lost its last node may wait with nothing in its hands until its hold is over.
        elif gang not in snapshot.degraded or snapshot.degraded[gang].whole:
            yield Violation(Promise.WHOLE, f"{name_of(snapshot, gang)} runs and sits nowhere")
    for gang in sorted(set(snapshot.degraded) - set(running)):
        yield Violation(Promise.DEGRADED, f"{name_of(snapshot, gang)} is degraded and holds nothing")
    for gang in sorted(set(snapshot.pins) - set(running) - set(pending)):
        yield Violation(Promise.SIZE, f"{name_of(snapshot, gang)} is pinned, and is not there any more")


def _check_seats(snapshot: Snapshot) -> Iterator[Violation]:
    """What is booked for every seat is what its members ask for, on a node that is there."""
    allocation = snapshot.allocations
    for row in np.flatnonzero(allocation.alive).tolist():
        number, node = int(snapshot.running.gang[allocation.running[row]]), int(allocation.node[row])
        if number < 0:
            continue  # nobody's seats are what somebody left: whose shape that was is not written down
        gang = snapshot.gangs[number]
        role, count = gang.roles[int(allocation.role[row])], int(allocation.count[row])
        story = f"{gang.name}/{role.name} with {count} members on {snapshot.fleet.names[node]}"
        # Whoever was on a failed node was taken off it with the same event. A cordoned node may have gangs.
        if not snapshot.nodes.up[node]:
            yield Violation(Promise.SERVICE, f"{story}, which is down")
        if allocation.taken[row].tolist() != [count * units for units in units_of(snapshot.fleet, role.shape)]:
            yield Violation(Promise.SUMS, f"{story} is booked with {allocation.taken[row].tolist()}")
        yield from check_device_use(role.shape, count, allocation.devices[row].tolist(), story)


def _check_running(snapshot: Snapshot) -> Iterator[Violation]:
    """Whoever runs is whole; whoever was degraded is not, and runs nothing; nobody is gone when the time is over."""
    running = snapshot.running
    for row in np.flatnonzero(running.alive).tolist():
        number, counted = int(running.gang[row]), int(running.members[row])
        if number < 0:
            # Seats being vacated are kept for the length of a pause; after it they must be free or somebody's.
            if int(running.start_us[row] + running.length_us[row]) <= snapshot.now_us:
                yield Violation(Promise.VACATED, f"row {row} keeps seats busy for nobody after its time")
            continue
        gang, held = snapshot.gangs[number], held_by(snapshot, row)
        degraded = snapshot.degraded.get(number)
        if degraded is not None and not degraded.whole:
            yield from _check_degraded(snapshot, gang, row, held)
            continue
        sizes = sizes_of(gang, held)
        # Whole or absent: a running gang has one of its sizes in every role, at every instant.
        yield from check_sizes(gang, sizes)
        yield from _check_flags(snapshot, gang, row)
        if sum(sizes) != counted:
            yield Violation(Promise.SUMS, f"{gang.name} counts {counted} members and has {sizes}")


def _check_flags(snapshot: Snapshot, gang: Gang, row: int) -> Iterator[Violation]:
    """What a running row says of its gang."""
    running = snapshot.running
    guest = Guest(int(running.guest[row]))
    # The columns decide who can be made to leave, and the gang says who agreed to it.
    if bool(running.preemptible[row]) != gang.preemptible or bool(running.elastic[row]) != gang.elastic:
        yield Violation(Promise.SUMS, f"{gang.name} is said to be preemptible or elastic, and is not, or is")
    if guest is Guest.WHOLE and not gang.preemptible:
        yield Violation(Promise.GUEST, f"{gang.name} is a guest, and nobody may make it leave")
    if guest is Guest.SURPLUS and not gang.elastic:
        yield Violation(Promise.GUEST, f"{gang.name} is a guest with its surplus, and has none")


def _check_degraded(snapshot: Snapshot, gang: Gang, row: int, held: Held) -> Iterator[Violation]:
    """A degraded gang runs nothing, cannot be made to give anything back, and is below its least."""
    running, sizes = snapshot.running, sizes_of(gang, held)
    if int(running.members[row]):
        yield Violation(Promise.DEGRADED, f"{gang.name} is degraded and counts {running.members[row]} members")
    # Its seats are held for its repair (rule 12); were it still preemptible, others would take them from under it.
    if running.preemptible[row] or running.elastic[row] or running.guest[row]:
        yield Violation(Promise.DEGRADED, f"{gang.name} is degraded, and somebody could take what it holds")
    if all(size >= role.sizes.least for size, role in zip(sizes, gang.roles, strict=True)):
        yield Violation(Promise.DEGRADED, f"{gang.name} is degraded and has {sizes}, which is enough")
    # What it has and what it lost add up to what it had, which was one of its sizes.
    lost = snapshot.degraded[int(running.gang[row])].lost
    for size, more, role in zip(sizes, lost, gang.roles, strict=True):
        if size + more > role.sizes.most:
            yield Violation(
                Promise.DEGRADED, f"{gang.name}/{role.name} has {size} and lost {more} of {role.sizes.most}"
            )


def _check_free(snapshot: Snapshot) -> Iterator[Violation]:
    """Free amounts and free devices are what the seats leave, and nothing is below zero."""
    nodes, room = snapshot.nodes, Recount(snapshot)
    # Two accounts: a device may be free while the amount says otherwise, if somebody gave back only one of them.
    for what, said, summed in (("units", nodes.free, room.free), ("devices", nodes.device_free, room.devices)):
        for index in np.flatnonzero((said != summed).any(axis=1)).tolist():
            story = f"{said[index].tolist()} {what} free, and its gangs leave {summed[index].tolist()}"
            yield Violation(Promise.SUMS, f"{snapshot.fleet.names[index]} says {story}")
    yield from room.check("running gangs")
    # The other way round is no fault: a device that was split once and is whole again may still be called shared.
    split = (room.devices > 0) & (room.devices < MILLI)
    if bool(split.any()) and not nodes.shared:
        yield Violation(Promise.SUMS, "a device is split, and the snapshot says that none ever was")


def _check_hints(snapshot: Snapshot) -> Iterator[Violation]:
    """What a snapshot says about itself, to save the engine a look, is true.

    Most hints may err on the safe side: whether anybody *ever* had a gate, or whether rows are *known* to
    stand in order. Only the side that would let the engine skip a look is checked.
    """
    nodes, pending, running, hints = snapshot.nodes, snapshot.pending, snapshot.running, snapshot.hints
    rows = np.flatnonzero(pending.alive)
    ends = (running.start_us + running.length_us)[running.alive]
    keys = list(zip(pending.eligible_us[rows].tolist(), pending.gang[rows].tolist(), strict=True))
    waiting = [snapshot.gangs[gang] for _, gang in keys]
    # Those who wait count too: they may start in this very cycle, as guests or with surplus.
    soft = any(gang.elastic or gang.preemptible for gang in waiting)
    soft = soft or bool((running.alive & (running.elastic | running.preemptible)).any())
    known = [
        ("repairable", not bool((nodes.repairable & ~(nodes.up & nodes.open)).any())),
        ("in_service", bool((nodes.in_service == (nodes.repairable & ~snapshot.fleet.spare)).all())),
        ("draining", not bool((nodes.draining & nodes.open).any())),
        ("gated", hints.gated or not pending.gate[rows].any()),
        ("has_elastic", hints.has_elastic or not pending.elastic[rows].any()),
        ("has_reclaimable", hints.has_reclaimable or not soft),
        ("limited", hints.limited or not ((snapshot.queues.limit >= 0).any() or (snapshot.users.limit >= 0).any())),
        ("in_order", not hints.in_order or (keys == sorted(keys) and len(set(pending.priority[rows].tolist())) < 2)),
        ("on_time", not hints.on_time or bool((ends > snapshot.now_us).all())),
        (
            "fresh",
            not hints.settled_upto or {g for _, g in keys if g >= hints.settled_upto} == set(snapshot.fresh),
        ),
    ]
    for hint, true in known:
        if not true:
            yield Violation(Promise.SUMS, f"the snapshot's hint '{hint}' is not true of its own columns")


def check_usage(snapshot: Snapshot) -> Iterator[Violation]:
    """Queues, their ancestors and people are charged with what their gangs hold."""
    # Seats of a starting gang count already, as a charge was made when they were given.
    by_queue, by_user = np.zeros_like(snapshot.queues.usage), np.zeros_like(snapshot.users.usage)
    for row in np.flatnonzero(snapshot.allocations.alive).tolist():
        running = int(snapshot.allocations.running[row])
        by_user[snapshot.running.user[running]] += snapshot.allocations.taken[row]
        for queue in walk_up(snapshot, int(snapshot.running.queue[running])):
            by_queue[queue] += snapshot.allocations.taken[row]
    for what, names, said, summed in (
        ("queue", snapshot.queues.names, snapshot.queues.usage, by_queue),
        ("user", snapshot.users.names, snapshot.users.usage, by_user),
    ):
        for index in np.flatnonzero((said != summed).any(axis=1)).tolist():
            story = f"is charged {said[index].tolist()} and uses {summed[index].tolist()}"
            yield Violation(Promise.SUMS, f"{what} '{names[index]}' {story}")
