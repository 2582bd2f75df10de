"""Whether anybody was evicted for nothing, by trying everything: would the others have been enough?

A plan is taken apart in the order in which it was decided. For every start that somebody made way for,
each of those is left where it was, and the exhaustive search looks for a place. For small clusters, and
only where nothing but places decides: with limits, windows, drains or reservations about, not fitting may have
another reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.engine.invariants.changes import Change, claim_of, list_changes
from phalanx.engine.invariants.reading import Recount
from phalanx.engine.invariants.rights import list_units
from phalanx.engine.policy import Policy
from phalanx.model.plan import Bind, Cause, Evict, Plan, Resize
from phalanx.model.snapshot import Snapshot
from phalanx.testing.exhaustive import board_of, find_any

#: Larger starts are not searched.
MEMBERS_MOST = 8


def find_superfluous(snapshot: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """Gangs that made way for a start that had room without them, as sentences; the plan tells its reservations."""
    evicted = [decision for decision in plan.decisions if isinstance(decision, Evict)]
    if not evicted or plan.reservations or snapshot.windows or snapshot.hints.limited:
        return
    changes = list_changes(snapshot, plan)
    if any(not isinstance(change.decision, Evict | Resize) for change in changes):
        return
    before: list[Bind] = []
    gave: list[Change] = [change for change in changes if change.beneficiary is None]
    for unit in list_units(snapshot, [decision for decision in plan.decisions if isinstance(decision, Bind)]):
        numbers = {bind.gang for bind in unit}
        given = [change for change in changes if change.beneficiary in numbers]
        sizes = [_least_sizes(snapshot, bind, policy) for bind in unit]
        for change in given if sum(map(sum, sizes)) <= MEMBERS_MOST else ():
            if not isinstance(change.decision, Evict) or _makes_others_lawful(change.decision, given):
                continue
            if any(snapshot.nodes.draining[node] for _, node in change.before):
                continue  # it had to leave its node, and took a free place for that before it was evicted
            others = [other for other in (*gave, *given) if other is not change]
            if _fits(snapshot, unit, sizes, before, others):
                names = " and ".join(snapshot.gangs[bind.gang].name for bind in unit)
                yield f"{change.gang.name} is evicted for {names}, which had room without that"
        gave += given
        before += unit


def _makes_others_lawful(decision: Evict, given: Sequence[Change]) -> bool:
    """Whether somebody of the asker's own queue goes so that the asker is within the guarantee that others go for."""
    reclaims = any(isinstance(other.decision, Evict) and other.decision.cause is Cause.RECLAIM for other in given)
    return decision.cause is not Cause.RECLAIM and reclaims


def _least_sizes(snapshot: Snapshot, bind: Bind, policy: Policy) -> list[int]:
    """Sizes at which it was let in."""
    gang, sizes = snapshot.gangs[bind.gang], [seats.members for seats in bind.seats]
    if policy.moldable or bind.gang in snapshot.pins:
        return sizes
    return [min(size, role.sizes.least) for size, role in zip(sizes, gang.roles, strict=True)]


def _fits(
    snapshot: Snapshot,
    unit: Sequence[Bind],
    sizes: Sequence[Sequence[int]],
    before: Sequence[Bind],
    gave: Sequence[Change],
) -> bool:
    room = Recount(snapshot, [change.row for change in gave])
    for change in gave:
        claim = claim_of(snapshot, change)
        if claim is not None:
            room.take(claim)
    for bind in before:  # with the surplus that they got later, which can only make the place harder to find
        for seats in bind.seats:
            for node, count, devices in zip(seats.nodes, seats.counts, seats.devices, strict=True):
                room.occupy(int(node), snapshot.gangs[bind.gang], seats.role, int(count), devices)
    if bool((room.free < 0).any()) or bool((room.devices < 0).any()):
        return False
    board = board_of(snapshot.fleet, room.free.tolist(), room.devices.tolist(), snapshot.nodes.in_service.tolist())
    return find_any(board, [snapshot.gangs[bind.gang] for bind in unit], sizes) is not None
