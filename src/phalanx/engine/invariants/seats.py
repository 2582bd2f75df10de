"""The seats of one gang: whole, admitted, in service, in the right domains, in rank order.

Each gang by itself, whoever else sits there: that two of them fit is counted in `plans`. Asked about starts, about
promises, and about what changes leave a running gang with; what a gang held before it may keep (`Claim.held`), even
where nobody could start today.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.engine.invariants.reading import Claim, admits, domain_of, walk_up
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang, Role, Shape
from phalanx.model.plan import Seats
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import Segment
from phalanx.model.window import Window


def check_claim(snapshot: Snapshot, claim: Claim) -> Iterator[Violation]:
    """One gang's seats, whoever else sits there."""
    gang, roles = claim.gang, sorted(seats.role for seats in claim.seats)
    # A gang with a role missing is not whole, and everything below would speak of the wrong one.
    if roles != list(range(len(gang.roles))):
        yield Violation(Promise.WHOLE, f"{claim.story} with roles {roles} of {len(gang.roles)}")
        return
    for seats in claim.seats:
        if not _well_formed(seats):
            yield Violation(Promise.WHOLE, f"{claim.story} with seats that are none: {seats.key()[:3]}")
            return
    by_role = sorted(claim.seats, key=lambda seats: seats.role)
    yield from check_sizes(gang, [seats.members for seats in by_role])
    # The gang's own wish is about all roles together, each role's about its own members (rule 15, topology).
    every_node = [node for seats in by_role for node in seats.nodes.tolist()]
    yield from _check_domain(snapshot.fleet, gang.topology.require, every_node, claim.story)
    for seats in by_role:
        yield from _check_role(snapshot, claim, gang.roles[seats.role], seats)


def _well_formed(seats: Seats) -> bool:
    nodes, counts = seats.nodes.tolist(), seats.counts.tolist()
    even = len(nodes) == len(counts) == len(seats.devices)
    return even and bool(nodes) and len(set(nodes)) == len(nodes) and min(counts) > 0 and seats.members == sum(counts)


def _check_role(snapshot: Snapshot, claim: Claim, role: Role, seats: Seats) -> Iterator[Violation]:
    fleet, story = snapshot.fleet, f"{claim.story}: {role.name}"
    for node, count, devices in zip(seats.nodes.tolist(), seats.counts.tolist(), seats.devices.tolist(), strict=True):
        # On a node that was cordoned meanwhile one may stay, but not sit down.
        if (seats.role, node) not in claim.held:
            yield from _check_node(snapshot, claim, role, node)
        if claim.names_devices:
            yield from check_device_use(role.shape, count, devices, f"{story} on {fleet.names[node]}")
    yield from _check_domain(fleet, role.topology.require, seats.nodes.tolist(), story)
    segment = role.topology.segment or claim.gang.topology.segment
    yield from _check_segments(fleet, segment, seats, story)
    # Whole groups that joined later stand behind the others, wherever in the network they found room.
    joined = segment is not None and segment.size > 1 and seats.members > role.sizes.least
    if claim.ranked and not joined:
        yield from _check_ranks(fleet, segment, seats, story)
    yield from _check_core(snapshot, claim, role, seats)


def _check_node(snapshot: Snapshot, claim: Claim, role: Role, node: int) -> Iterator[Violation]:
    fleet = snapshot.fleet
    at = f"{claim.story}: {role.name} on {fleet.names[node]}"
    if not snapshot.nodes.up[node]:
        yield Violation(Promise.SERVICE, f"{at}, which is down")
    if not snapshot.nodes.open[node]:
        yield Violation(Promise.SERVICE, f"{at}, which is cordoned")
    if not admits(fleet.nodes[node], role.shape):
        yield Violation(Promise.ADMISSION, f"{at}, which its labels or taints forbid")
    if fleet.nodes[node].spare and not claim.spares:
        yield Violation(Promise.SERVICE, f"{at}, which is a spare")
    for window in snapshot.windows:
        # Whoever can be made to leave, whole or with its surplus, may enter what is only ahead, and gets notice.
        # Rule 15 (maintenance). At its first instant nobody may be inside a window that has begun.
        soft = claim.gang.preemptible or claim.gang.elastic
        free_until_us = claim.start_us + 1 if soft else claim.end_us
        if _in_the_way(snapshot, claim, window, node, free_until_us):
            yield Violation(Promise.WINDOW, f"{at} over [{claim.start_us}, {claim.end_us}), into '{window.name}'")


def _in_the_way(snapshot: Snapshot, claim: Claim, window: Window, node: int, until_us: int) -> bool:
    overlaps = window.start_us < until_us and claim.start_us < window.end_us
    return overlaps and snapshot.fleet.names[node] in window.nodes and not _invited(snapshot, claim, window)


def _check_core(snapshot: Snapshot, claim: Claim, role: Role, seats: Seats) -> Iterator[Violation]:
    """Whoever can be made to leave with its surplus only has its least where nothing comes."""
    if claim.gang.preemptible or not claim.gang.elastic or not snapshot.windows:
        return
    # The window takes the surplus; what is left must be enough to run on.
    core = 0
    for node, count in zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True):
        kept = (seats.role, node) in claim.held
        ways = (_in_the_way(snapshot, claim, window, node, claim.end_us) for window in snapshot.windows)
        core += count if kept or not any(ways) else 0
    if core < role.sizes.least:
        story = f"{claim.story}: {role.name} has {core} members outside the windows ahead, needs {role.sizes.least}"
        yield Violation(Promise.WINDOW, story)


def _invited(snapshot: Snapshot, claim: Claim, window: Window) -> bool:
    """Whether a window was made for the owner; a queue invites everything below it."""
    queue = snapshot.queues.names.index(claim.gang.queue)
    above = {snapshot.queues.names[index] for index in walk_up(snapshot, queue)}
    return claim.gang.user in window.users or bool(above & set(window.queues))


def check_sizes(gang: Gang, sizes: Sequence[int]) -> Iterator[Violation]:
    """Every role has one of its sizes."""
    for role, size in zip(gang.roles, sizes, strict=True):
        if size not in role.sizes.allowed:
            yield Violation(Promise.WHOLE, f"{gang.name}/{role.name} has {size} members, allowed {role.sizes.allowed}")


def check_device_use(shape: Shape, count: int, devices: Sequence[int], story: str) -> Iterator[Violation]:
    """A share sits on one device: each device then carries a multiple of it, and all of them the sum."""
    each, used = shape.amount(DEVICE_KIND), [milli for milli in devices if milli]
    # Two members of 300 on one device are 600, a multiple of 300; on two devices 300 each. 450 and 150 would be a share
    # smeared over two devices.
    unit = min(each, MILLI)
    if not each:
        if used:
            yield Violation(Promise.DEVICE, f"{story} takes devices {used} without asking for any")
    elif sum(used) != count * each or any(milli % unit or not 0 < milli <= MILLI for milli in used):
        yield Violation(Promise.DEVICE, f"{story}: {count} members of {each} thousandths on devices {used}")


# ---------------------------------------------------------------------- topology


def _check_domain(fleet: Fleet, level: str | None, nodes: Sequence[int], story: str) -> Iterator[Violation]:
    if level is not None and len({domain_of(fleet, level, node) for node in nodes}) > 1:
        names = sorted({fleet.names[node] for node in nodes})
        yield Violation(Promise.REQUIRE, f"{story} requires one {level} and is on {', '.join(names)}")


def _check_segments(fleet: Fleet, segment: Segment | None, seats: Seats, story: str) -> Iterator[Violation]:
    if segment is None:
        return
    pairs = zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True)
    # One entry per rank. The last group may be smaller, and slicing leaves it so.
    ranks = [node for node, count in pairs for _ in range(count)]
    for first in range(0, len(ranks), segment.size):
        group = ranks[first : first + segment.size]
        domains = {domain_of(fleet, segment.level, node) for node in group}
        if len(domains) > 1:
            where = f"in {len(domains)} domains of {segment.level}"
            yield Violation(Promise.SEGMENT, f"{story}: ranks {first} to {first + len(group) - 1} are {where}")


def _check_ranks(fleet: Fleet, segment: Segment | None, seats: Seats, story: str) -> Iterator[Violation]:
    """In topology order; the domain with a smaller last group may come last, wherever it stands.

    Of ranks in groups, those above the least joined when the groups of the others stood already.
    """
    nodes = seats.nodes.tolist()
    # Neighbours in rank shall be neighbours in the network: ring collectives talk to the next rank.
    order = [_walk_key(fleet, node) for node in nodes]
    if order == sorted(order):
        return
    # The smaller group must have the last ranks, so its domain goes last; the others keep their order, and so does it.
    if segment is not None and seats.members % segment.size:
        last = domain_of(fleet, segment.level, nodes[-1])
        inside = [domain_of(fleet, segment.level, node) == last for node in nodes]
        parts = [[key for key, here in zip(order, inside, strict=True) if here is wanted] for wanted in (False, True)]
        if inside == sorted(inside) and all(part == sorted(part) for part in parts):
            return
    yield Violation(Promise.RANKS, f"{story} has ranks on {[fleet.names[node] for node in nodes]}, out of order")


def _walk_key(fleet: Fleet, node: int) -> tuple[int, ...]:
    """Position in the network: at every level, the lowest node index of its domain."""
    key = []
    for level in fleet.levels:
        own = domain_of(fleet, level, node)
        # What `Fleet.walk` sorts by, found by looking at every node: slow, and independent of the columns it checks.
        key.append(next(other for other in range(len(fleet)) if domain_of(fleet, level, other) == own))
    return tuple(key)
