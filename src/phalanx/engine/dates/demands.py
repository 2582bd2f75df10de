"""What gangs with promised dates ask for, read from the snapshot: `Demand`, as `engine.dates.filling` fills it in."""

from __future__ import annotations

import numpy as np

from phalanx.engine.curves import curve_of
from phalanx.engine.dates.filling import Demand
from phalanx.engine.order.orders import overhead_us
from phalanx.engine.room.view import find_need
from phalanx.engine.session import could_hold_one
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.gang import Gang
from phalanx.model.snapshot import Snapshot
from phalanx.perfmodel.speedup import speedup_at


def is_proven(snapshot: Snapshot, number: int) -> bool:
    """Whether anything that was said proves its end."""
    # An elastic gang reports its progress, from which its end follows (rule 6); the walltime is a claim until then.
    return snapshot.gangs[number].walltime_us is not None


def is_resizable(snapshot: Snapshot, number: int) -> bool:
    """Whether a running gang has one role whose size may change."""
    gang = snapshot.gangs[number]
    return sum(role.sizes.elastic for role in gang.roles) == 1 and number not in snapshot.pins


def pool_of(snapshot: Snapshot, gang: Gang) -> BoolArray:
    """Nodes in service that could hold a member of it."""
    pool = np.zeros(len(snapshot.fleet), dtype=np.bool_)
    for role in gang.roles:
        # The union over roles, as `Session.pool_of`: amounts are summed, and a node that holds only one role is room
        # for that role.
        pool |= could_hold_one(snapshot.fleet, role.shape)
    return pool & snapshot.nodes.in_service


def _amounts(snapshot: Snapshot, gang: Gang, elastic: int) -> tuple[IntArray, IntArray]:
    """What it takes besides its elastic role, and what a member of that takes."""
    needs = [find_need(snapshot.fleet, role.shape).vector for role in gang.roles]
    fixed = np.zeros(len(snapshot.fleet.kinds), dtype=np.int64)
    for index, role in enumerate(gang.roles):
        if index != elastic:
            fixed += needs[index] * role.sizes.least
    return fixed, needs[elastic] if elastic >= 0 else np.zeros_like(fixed)


def _elastic_role(gang: Gang) -> int:
    """The one role that has several sizes; -1 if there is none, or there are several, which is as good as none."""
    elastic = [index for index, role in enumerate(gang.roles) if role.sizes.elastic]
    return elastic[0] if len(elastic) == 1 else -1


def _demand(
    snapshot: Snapshot, number: int, size: int, left_us: float, waits_us: int, *, present: int, held: bool
) -> Demand:
    """`left_us`: of run time, at a size of its elastic roles."""
    gang = snapshot.gangs[number]
    role = _elastic_role(gang)
    fixed, each = _amounts(snapshot, gang, role)
    date_us = gang.submit_us + (gang.deadline_us or 0)
    curve = curve_of(snapshot, number)
    if role < 0:
        # Several roles change one by one in ways that are not counted here: taken at its least, and never larger.
        least = sum(r.sizes.least for r in gang.roles if r.sizes.elastic)
        work = left_us * speedup_at(curve, size) / speedup_at(curve, least) if least else left_us
        return Demand(number, date_us, (1,), (1.0,), fixed, each, work, waits_us, 0, present and 1, held)
    # A person wants that size and no other (rule 15): a date is met with it or not at all.
    pinned = snapshot.pins.get(number)
    sizes = gang.roles[role].sizes.allowed if pinned is None else (pinned,)
    speeds = tuple(speedup_at(curve, n) for n in sizes)
    work = left_us * speedup_at(curve, size)
    return Demand(number, date_us, sizes, speeds, fixed, each, work, waits_us, gang.resize_pause_us, present, held)


def pending_demand(snapshot: Snapshot, row: int) -> Demand:
    """Of one that waits."""
    pending, number = snapshot.pending, int(snapshot.pending.gang[row])
    gang = snapshot.gangs[number]
    waits_us = overhead_us(gang, ran_before=bool(pending.attained_us[row] > 0))
    most = sum(role.sizes.most for role in gang.roles if role.sizes.elastic)
    return _demand(snapshot, number, most, float(pending.length_us[row]), waits_us, present=0, held=False)


def running_demand(snapshot: Snapshot, row: int, end_us: int) -> Demand:
    """As `making_room.permits.prospect_of` sees it."""
    running, table, number = snapshot.running, snapshot.allocations, int(snapshot.running.gang[row])
    gang = snapshot.gangs[number]
    start_us = int(running.start_us[row])
    waits_us = max(0, start_us + gang.startup_us - snapshot.now_us)
    left_us = end_us - (start_us if waits_us else snapshot.now_us)
    role = _elastic_role(gang)
    members = int(table.count[table.alive & (table.running == row) & (table.role == role)].sum())
    at = members
    if waits_us and gang.walltime_us is not None:
        # Before its first step it reports nothing, and its length is that of the size it was given first. All of its
        # work is ahead; after a restart less, which nobody knows here.
        at, left_us = sum(each.sizes.most for each in gang.roles if each.sizes.elastic), gang.walltime_us
    return _demand(snapshot, number, at, float(left_us), waits_us, present=members, held=True)
