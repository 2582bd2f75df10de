"""What a plan does to running gangs: sizes, seats, moves, repairs; each by itself, whoever gains by it.

Whether somebody had the right to make a gang change is for `rights`. Here is what no right can excuse: a rigid gang
that is resized, a move that loses work, members that swap devices without leaving, a repair that drops healthy seats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.engine.invariants.reading import (
    Claim,
    Held,
    Recount,
    expected_end,
    find_rows,
    held_after,
    held_by,
    name_of,
    sizes_of,
)
from phalanx.engine.policy import Policy
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Evict, Move, Plan, Repair, Resize, Restart
from phalanx.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Change:
    """One running gang before and after."""

    number: int
    gang: Gang
    row: int
    decision: Resize | Evict | Move | Repair | Restart
    before: Held
    # Read off the snapshot and off the decision: a plan says how a gang sits afterwards, never the difference.
    after: Held  # nothing, if it is evicted

    @property
    def beneficiary(self) -> int | None:
        """Who gets what it gives back, if it is for somebody."""
        return self.decision.beneficiary if isinstance(self.decision, Resize | Evict) else None

    @property
    def gained(self) -> Held:
        """Seats on nodes where it has more members than before."""
        return {at: seat for at, seat in self.after.items() if seat[0] > self.before.get(at, (0, ()))[0]}

    @property
    def given(self) -> Held:
        """Seats on nodes where it has fewer."""
        return {at: seat for at, seat in self.before.items() if seat[0] > self.after.get(at, (0, ()))[0]}


def check_who_changes(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Only what runs can be changed, and only once; who was degraded can only be repaired."""
    rows = find_rows(snapshot)
    # A plan says once how a gang shall sit afterwards; a second word about it would contradict the first.
    changed = [decision for decision in plan.decisions if not isinstance(decision, Bind)]
    for gang, times in Counter(decision.gang for decision in changed).items():
        if times > 1:
            yield Violation(Promise.ONCE, f"{name_of(snapshot, gang)} is told {times} things at once")
    for decision in changed:
        name, row = name_of(snapshot, decision.gang), rows.get(decision.gang)
        if row is None:
            yield Violation(Promise.ONCE, f"{name} does not run, and is told to {type(decision).__name__.lower()}")
            continue
        degraded = snapshot.degraded.get(decision.gang)
        # It waits for seats that others are leaving (a claim), and has no processes that could be told anything.
        if int(snapshot.running.start_us[row]) > snapshot.now_us:
            yield Violation(Promise.ONCE, f"{name} has not begun, and is told to {type(decision).__name__.lower()}")
        if isinstance(decision, Repair | Restart):
            # One that runs on with fewer members may get them back, but has nothing to start anew for.
            if degraded is None or (degraded.whole and isinstance(decision, Restart)):
                yield Violation(Promise.DEGRADED, f"{name} is repaired, and nothing is wrong with it")
        elif degraded is not None and not degraded.whole and not _lets_go(decision):
            yield Violation(Promise.DEGRADED, f"{name} is degraded, and is told to {type(decision).__name__.lower()}")


def _lets_go(decision: Resize | Evict | Move) -> bool:
    """Whether somebody gives up what it holds because nobody may be there."""
    return isinstance(decision, Evict) and decision.cause is Cause.DRAIN


def list_changes(snapshot: Snapshot, plan: Plan) -> list[Change]:
    """Every change of a plan in which only running gangs are changed."""
    rows, found = find_rows(snapshot), []
    for decision in plan.decisions:
        if not isinstance(decision, Bind):
            row = rows[decision.gang]
            after = {} if isinstance(decision, Evict) else held_after(decision.seats)
            gang = snapshot.gangs[decision.gang]
            found.append(Change(decision.gang, gang, row, decision, held_by(snapshot, row), after))
    return found


def claim_of(snapshot: Snapshot, change: Change) -> Claim | None:
    """The seats that a change leaves its gang with, as a claim; None if it leaves nothing."""
    decision, gang, now = change.decision, change.gang, snapshot.now_us
    if isinstance(decision, Evict):
        return None
    # Then every seat is a new one and has to stand all tests; otherwise only what was gained.
    anew = isinstance(decision, Move | Restart)
    repaired = isinstance(decision, Repair | Restart)
    end_us = expected_end(snapshot, change.row)
    if repaired:
        believed_us = now + (snapshot.default_length_us if gang.walltime_us is None else gang.walltime_us)
        # Whoever never stopped may be further than that, and is sooner done with more members.
        end_us = min(end_us, believed_us) if snapshot.degraded[change.number].whole else believed_us
    # A node where it has no more members than before was checked when it sat down there.
    held = frozenset() if anew else frozenset(change.after) - frozenset(change.gained)
    verb = type(decision).__name__.lower() + "s"
    return Claim(change.number, gang, decision.seats, now, end_us, verb, held=held, ranked=anew, spares=repaired)


def check_change(snapshot: Snapshot, change: Change, policy: Policy) -> Iterator[Violation]:
    """One change against what may happen to such a gang under such a policy."""
    decision = change.decision
    yield from _check_devices(snapshot, change)
    if isinstance(decision, Resize):
        yield from _check_resize(snapshot, change, decision, policy)
    elif isinstance(decision, Move):
        yield from _check_move(snapshot, change, policy)
    elif isinstance(decision, Repair):
        yield from _check_mended(snapshot, change, whole=True)
    elif isinstance(decision, Restart):
        yield from _check_mended(snapshot, change, whole=False)


def _check_devices(snapshot: Snapshot, change: Change) -> Iterator[Violation]:
    """Where members stay they keep their devices; nobody swaps one for another without leaving."""
    if isinstance(change.decision, Move | Restart):
        return
    # Processes keep the devices they have open: fewer members hold a part of the old ones, more hold all of them.
    for at in sorted(set(change.before) & set(change.after)):
        (was, old), (now, new) = change.before[at], change.after[at]
        fewer = all(a <= b for a, b in zip(new, old, strict=True))
        more = all(a >= b for a, b in zip(new, old, strict=True))
        if (now <= was and not fewer) or (now >= was and not more):
            where = snapshot.fleet.names[at[1]]
            yield Violation(Promise.DEVICE, f"{change.gang.name} on {where} had devices {old} and has {new}")


def _members(gang: Gang, held: Held) -> int:
    """Members of the elastic roles."""
    sizes = sizes_of(gang, held)
    return sum(size for role, size in zip(gang.roles, sizes, strict=True) if role.sizes.elastic)


def _check_resize(snapshot: Snapshot, change: Change, decision: Resize, policy: Policy) -> Iterator[Violation]:
    gang, pin = change.gang, snapshot.pins.get(change.number)
    story = f"{gang.name} goes from {sizes_of(gang, change.before)} to {sizes_of(gang, change.after)}"
    story = f"{story} ({decision.cause.value})"
    if not gang.elastic:
        yield Violation(Promise.SIZE, f"{story}, and is rigid")
    # Only elastic roles may change at all; `check_claim` finds a rigid role of another size.
    grown = _members(gang, change.after) - _members(gang, change.before)
    match decision.cause:
        # Of a share two are told: who gets there, and who gives for it. Who gets by balance is told of growth, later.
        case Cause.SHARE if grown > 0:
            # Rule 16 excepts shares from the rest: a date does not wait until somebody may grow again.
            yield from _check_growth(snapshot, change, policy, story, rests=False)
        case Cause.LOAN | Cause.GUEST | Cause.SHARE | Cause.BALANCE:
            yield from _check_given(change, pin, grown, story)
        case Cause.PIN:
            # On the way to a pinned size there are no stops: it is reached or left alone.
            if pin is None or _members(gang, change.after) != pin:
                yield Violation(Promise.SIZE, f"{story}, and {pin} is wanted")
        case Cause.GROW:
            yield from _check_growth(snapshot, change, policy, story, rests=True)
        case Cause.DRAIN:
            yield from _check_left(snapshot, change, story)
        # Preempt, reclaim and turn take whole gangs; a resize for one of them would be half a gang.
        case _:
            yield Violation(Promise.SIZE, f"{story}: that takes a whole gang")


def _check_given(change: Change, pin: int | None, grown: int, story: str) -> Iterator[Violation]:
    if change.gained or grown >= 0:
        yield Violation(Promise.SIZE, f"{story}: it gives back nothing, or gets something for it")
    # A pinned gang has no surplus: a person said how large it shall be (rule 15, resize).
    if pin is not None:
        yield Violation(Promise.SIZE, f"{story}, and a person pinned it at {pin}")


def _check_growth(
    snapshot: Snapshot, change: Change, policy: Policy, story: str, *, rests: bool
) -> Iterator[Violation]:
    cool_us = int(snapshot.running.cool_until_us[change.row])
    grown = _members(change.gang, change.after) > _members(change.gang, change.before)
    # Growth is by idle room only, on top of what it has. A swap of seats under this name would be a move in disguise.
    if change.given or not grown or not policy.grows or change.number in snapshot.pins:
        yield Violation(Promise.SIZE, f"{story}, which is no growth, or nobody's to decide")
    # Rule 16 (growth pays): after a resize a gang rests, or it would pay its pause again and again.
    if rests and cool_us > snapshot.now_us:
        yield Violation(Promise.SIZE, f"{story} before its cool-down is over at {cool_us}")


def _check_left(snapshot: Snapshot, change: Change, story: str) -> Iterator[Violation]:
    """Whoever leaves a node leaves it altogether, and had reason to."""
    bad = _nodes_to_leave(snapshot, change)
    if not any(node in bad for _, node in change.before):
        yield Violation(Promise.SIZE, f"{story}, and sits on no node that it should leave")
    # Half a way out is a pause paid for nothing: the node still cannot be taken down.
    if any(node in bad for _, node in change.after):
        yield Violation(Promise.SIZE, f"{story}, and still sits on a node that it should leave")


def _nodes_to_leave(snapshot: Snapshot, change: Change) -> set[int]:
    """Draining nodes, and those under a window that was not made for this gang."""
    bad = set(np.flatnonzero(snapshot.nodes.draining).tolist())
    gang, names = change.gang, snapshot.fleet.names
    above = set(_queues_above(snapshot, change))
    lead_us = gang.resize_pause_us if isinstance(change.decision, Resize) else 0  # it leaves after its pause
    for window in snapshot.windows:
        invited = gang.user in window.users or bool(above & set(window.queues))
        # Earlier by its pause, so that it is gone when the window opens, and not on its way.
        if window.start_us - lead_us <= snapshot.now_us < window.end_us and not invited:
            bad |= {index for index, name in enumerate(names) if name in window.nodes}
    return bad


def _walk(snapshot: Snapshot, queue: int) -> Iterator[int]:
    while queue >= 0:
        yield queue
        queue = int(snapshot.queues.parent[queue])


def has_to_leave(snapshot: Snapshot, change: Change) -> bool:
    """Whether a gang sits where nobody should."""
    bad = _nodes_to_leave(snapshot, change)
    return any(node in bad for _, node in change.before)


def _check_move(snapshot: Snapshot, change: Change, policy: Policy) -> Iterator[Violation]:
    gang = change.gang
    if not gang.preemptible or gang.snapshot is None:
        yield Violation(Promise.MOVE, f"{gang.name} is moved, and cannot save its work or may not be stopped")
    # A move is no resize: whoever needs its place may not shrink it by the way.
    if sizes_of(gang, change.before) != sizes_of(gang, change.after):
        story = f"from {sizes_of(gang, change.before)} to {sizes_of(gang, change.after)}"
        yield Violation(Promise.MOVE, f"{gang.name} is moved and changes its size {story}")
    if change.before == change.after:
        yield Violation(Promise.MOVE, f"{gang.name} is moved to where it is")
    # Draining moves gangs under every policy (rule 15, drain); making room by moves is for some.
    if "move" not in policy.takes and not has_to_leave(snapshot, change):
        yield Violation(Promise.MOVE, f"{gang.name} is moved, and {policy.name} moves nobody")


def _check_mended(snapshot: Snapshot, change: Change, *, whole: bool) -> Iterator[Violation]:
    """A repair keeps every healthy seat that makes up a size the gang may have; nobody gets more than it had."""
    gang, lost = change.gang, snapshot.degraded[change.number].lost
    before, after = sizes_of(gang, change.before), sizes_of(gang, change.after)
    # A repair gives back what was lost. More would be growth, without its rules.
    if any(now > was + more for now, was, more in zip(after, before, lost, strict=True)):
        yield Violation(Promise.DEGRADED, f"{gang.name} had {before}, lost {list(lost)} and is repaired to {after}")
    giving = {role for role, _ in change.given}
    # A role may close its ranks to a size it may have, if nobody was found for those it lost: that much and no more.
    closing = all(
        after[role] == max((size for size in gang.roles[role].sizes.allowed if size <= before[role]), default=-1)
        for role in giving
    )
    if whole and giving and not closing:
        yield Violation(Promise.DEGRADED, f"{gang.name} is repaired and gives healthy seats up")
    if whole and not change.gained:
        yield Violation(Promise.DEGRADED, f"{gang.name} is repaired with nothing")


def check_minimums(snapshot: Snapshot, plan: Plan, changes: Sequence[Change]) -> Iterator[Violation]:
    """Who can be made to leave with its surplus only is not made to give up the seats on which it may stay.

    Those are outside the windows of its time and, of a guest, outside the places that the plan reserves in its time.
    """
    names = snapshot.fleet.names
    for change in changes:
        # Whatever surplus is called back for, it is surplus: no gang goes below its minimum for a share (rule 16), nor
        # for a balance.
        called = isinstance(change.decision, Resize) and change.decision.cause in (
            Cause.LOAN,
            Cause.GUEST,
            Cause.SHARE,
            Cause.BALANCE,
        )
        # Whoever is preemptible may be made to leave as a whole, so that no seat of it is sacred.
        if change.gang.preemptible or not called:
            continue
        end_us, above = expected_end(snapshot, change.row), set(_queues_above(snapshot, change))
        # Under a reservation it lives on sufferance; elsewhere its minimum is its own.
        ahead = [each for each in plan.reservations if each.start_us < end_us and snapshot.running.guest[change.row]]
        lent = {int(node) for each in ahead for per_gang in each.seats for seats in per_gang for node in seats.nodes}
        for window in snapshot.windows:
            invited = change.gang.user in window.users or bool(above & set(window.queues))
            if not invited and window.start_us < end_us and window.end_us > snapshot.now_us:
                lent = lent | {node for node, name in enumerate(names) if name in window.nodes}
        for role, each in enumerate(change.gang.roles):
            had, has = (
                sum(count for (at, node), (count, _) in held.items() if at == role and node not in lent)
                for held in (change.before, change.after)
            )
            # It may have had too little there before: then at least none of that is taken.
            if has < min(had, each.sizes.least):
                story = f"{change.gang.name} keeps {has} of {had} members of {each.name} where it may stay"
                yield Violation(Promise.WINDOW if snapshot.windows else Promise.RESERVATION, story)


def _queues_above(snapshot: Snapshot, change: Change) -> list[str]:
    return [snapshot.queues.names[index] for index in _walk(snapshot, int(snapshot.running.queue[change.row]))]


def check_vacated(snapshot: Snapshot, changes: Sequence[Change]) -> Iterator[Violation]:
    """Whoever goes on running sits down only where nobody is still leaving: a shrinking gang leaves after its pause.

    Starts are left out. They begin when the seats are free, which is for whoever carries the plan out.
    """
    gone = [change.row for change in changes]
    room = Recount(snapshot, gone)
    for change in changes:
        claim = claim_of(snapshot, change)
        # Everybody who changes sits down at once on what stays free of those who have not left yet.
        if claim is not None:
            room.take(claim)
        if isinstance(change.decision, Resize) and change.gang.resize_pause_us:
            for (role, node), (count, devices) in change.given.items():
                # The seats it gives up on this node, still in use until its pause is over.
                left = change.after.get((role, node), (0, (0,) * len(devices)))
                used = np.array(devices, dtype=np.int64) - np.array(left[1], dtype=np.int64)
                room.occupy(node, change.gang, role, count - left[0], used)
    for found in room.check("those who run on, beside those who are leaving"):
        yield Violation(Promise.VACATED, found.story)
