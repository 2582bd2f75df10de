"""Who takes from whom, in the order in which a plan does it: priorities, turns, loans, guarantees.

A plan lists its starts in the order in which they were decided, and everybody who gives something back
names the start that it is for. So the plan can be played again, start by start, with the usage of every
queue as it was at that moment. Of a gang that gave twice only the last beneficiary is known, and the
whole release is counted there.

The one thing that is not recomputed here is whose queue stands better: `engine.fairshare` is a function
of columns that its own tests hold to a slow reading of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.fairshare import Standing
from phalanx.engine.invariants.changes import Change, has_to_leave
from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.engine.invariants.reading import find_rows, find_waiting, name_of, units_of, vector_of, walk_up
from phalanx.engine.policy import Policy
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Bind, Cause, Evict, Guest, Move, Plan, Resize
from phalanx.model.resources import MILLI
from phalanx.model.snapshot import Snapshot

#: Rule 14: a turn is changed only if saving and restoring cost less than one part in so many of it.
_TURN_PARTS = 20


@dataclass(frozen=True, slots=True)
class _Taker:
    """Who gets what others give back."""

    number: int
    queue: int
    priority: int
    # What the orders of rules 8, 9 and 14 compare, and nothing more of the gang.
    attained_us: int
    arrival: tuple[int, int]
    asked: IntArray


#: Surplus that goes from one gang to another without anybody starting (rule 16).
DIVIDED = (Cause.SHARE, Cause.BALANCE)


def check_rights(snapshot: Snapshot, plan: Plan, changes: Sequence[Change], policy: Policy) -> Iterator[Violation]:
    """Everything that is taken is taken by somebody who may, and who gets it."""
    # First what needs no order; then the plan once more from the top, as it was decided.
    yield from _check_evictions(snapshot, plan, changes, policy)
    replay = _Replay(snapshot, policy, plan.infeasible)
    by_taker: dict[int, list[Change]] = {}
    for change in changes:
        if change.beneficiary is not None:
            by_taker.setdefault(change.beneficiary, []).append(change)
        # For nobody in particular (a drain, a pin): counted before any start. Growth comes after the last start, and
        # counts against nobody here.
        elif not (isinstance(change.decision, Resize) and change.decision.cause in (Cause.GROW, *DIVIDED)):
            replay.charge(change, -1, +1)
    binds = [decision for decision in plan.decisions if isinstance(decision, Bind)]
    for unit in list_units(snapshot, binds):
        # A release names one gang of a group, whichever; each of them may be the one.
        for taker in replay.takers(unit):
            if taker.number in by_taker:
                yield from replay.check(taker, by_taker.pop(taker.number))
        replay.start(unit)
    for number, given in by_taker.items():  # sizes that people want come last
        row = find_rows(snapshot).get(number)
        if row is not None:
            yield from replay.check(replay.pinned(number, row, changes), given)


def _check_evictions(snapshot: Snapshot, plan: Plan, changes: Sequence[Change], policy: Policy) -> Iterator[Violation]:
    """Nobody is taken from for somebody who does not get it, and nobody is evicted who may not be."""
    starts = {decision.gang for decision in plan.decisions if isinstance(decision, Bind)}
    grows = {change.number for change in changes if isinstance(change.decision, Resize) and change.gained}
    # Whoever is to reach a pinned size has to wait until seats that are lent to it have been left.
    waits = {change.decision.beneficiary for change in changes
             if isinstance(change.decision, Resize) and change.gang.resize_pause_us}  # fmt: skip
    pinned = (grows | (waits & set(find_rows(snapshot)))) & set(snapshot.pins)
    for change in changes:
        decision = change.decision
        if not isinstance(decision, Resize | Evict):
            continue
        # Rule 10: nothing is evicted for a gang that then does not start. These causes need somebody who gains by it.
        for_somebody = decision.cause in (Cause.LOAN, Cause.PREEMPT, Cause.RECLAIM, Cause.GUEST, Cause.TURN)
        gets = decision.beneficiary in starts or (isinstance(decision, Resize) and decision.beneficiary in pinned)
        # Surplus that is divided anew is for a gang that runs, which grows when the seats have been left.
        gets |= decision.cause in DIVIDED and decision.beneficiary in find_rows(snapshot)
        if (for_somebody or decision.beneficiary is not None) and not gets:
            whom = None if decision.beneficiary is None else name_of(snapshot, decision.beneficiary)
            story = f"{change.gang.name} gives ({decision.cause.value}) to {whom}, who does not get it"
            yield Violation(Promise.EVICTION, story)
        if isinstance(decision, Evict):
            yield from _check_victim(snapshot, change, decision, policy)
    # A move names nobody, so all that can be asked is that somebody starts in the same plan.
    if any(isinstance(change.decision, Move) for change in changes) and not starts:
        for change in changes:
            if isinstance(change.decision, Move) and not has_to_leave(snapshot, change):
                yield Violation(Promise.MOVE, f"{change.gang.name} is moved, and nobody starts")


def _check_victim(snapshot: Snapshot, change: Change, decision: Evict, policy: Policy) -> Iterator[Violation]:
    running, row, name = snapshot.running, change.row, change.gang.name
    # A degraded gang runs nothing, and letting go of what it holds takes no work from it.
    if not change.gang.preemptible and change.number not in snapshot.degraded:
        yield Violation(Promise.EVICTION, f"{name} is evicted ({decision.cause.value}) and is not preemptible")
    if decision.cause is Cause.DRAIN and not has_to_leave(snapshot, change):
        yield Violation(Promise.EVICTION, f"{name} is evicted from nodes that nobody has to leave")
    # Guests were told at their start, turns have a quantum of their own, and who drains must go: only these two are
    # held to a least run time and a count.
    if decision.cause not in (Cause.PREEMPT, Cause.RECLAIM):
        return
    if int(running.evictions[row]) >= policy.max_evictions:
        yield Violation(Promise.EVICTION, f"{name} was evicted {running.evictions[row]} times, and once more")
    if int(running.start_us[row]) + policy.min_runtime_us > snapshot.now_us:
        yield Violation(Promise.EVICTION, f"{name} has run since {running.start_us[row]}, which is too short")


def list_units(snapshot: Snapshot, binds: Sequence[Bind]) -> Iterator[list[Bind]]:
    """Starts in the order in which they were decided; those of one word at once."""
    groups: dict[int, list[Bind]] = {}
    waiting = find_waiting(snapshot)
    for at, bind in enumerate(binds):
        group = int(snapshot.pending.group[waiting[bind.gang]])
        # A negative key of its own for whoever starts alone; dicts keep the order of first mention.
        groups.setdefault(group if group >= 0 else -1 - at, []).append(bind)
    yield from groups.values()


class _Replay:
    """Usage and standing of every queue, as they move with a plan."""

    def __init__(self, snapshot: Snapshot, policy: Policy, infeasible: Sequence[int]) -> None:
        """As the snapshot has it, but for those whom the plan finds to be hopeless: they are no demand either."""
        self.hopeless = snapshot.judged.union(infeasible)
        self.snapshot, self.policy = snapshot, policy
        self.usage = snapshot.queues.usage.copy()
        self.waiting = find_waiting(snapshot)
        service = snapshot.nodes.in_service
        history = snapshot.queues.decayed if snapshot.queues.decayed.any() else None
        # Shares are of what is in service: what is down cannot be anybody's.
        capacity = snapshot.fleet.capacity[service].sum(axis=0)
        self.standing = Standing(snapshot.queues, capacity, self._demand(), history)

    def _demand(self) -> IntArray:
        """Usage and what those who could have a turn would take at their largest."""
        demand = self.snapshot.queues.usage.copy()
        for number, row in self.waiting.items():
            # Rule 11: demand is usage and what waits, at its largest; whoever cannot have a turn demands nothing.
            if not self.snapshot.pending.gate[row] and number not in self.hopeless:
                gang = self.snapshot.gangs[number]
                most = self._asks(number, [role.sizes.most for role in gang.roles])
                for queue in walk_up(self.snapshot, int(self.snapshot.pending.queue[row])):
                    demand[queue] += most
        return demand

    def _asks(self, number: int, sizes: Sequence[int]) -> IntArray:
        total = np.zeros(len(self.snapshot.fleet.kinds), dtype=np.int64)
        for role, size in zip(self.snapshot.gangs[number].roles, sizes, strict=True):
            total += size * np.array(units_of(self.snapshot.fleet, role.shape), dtype=np.int64)
        return total

    def _add(self, queue: int, units: IntArray) -> None:
        self.standing.charge(queue, units)
        for above in walk_up(self.snapshot, queue):
            self.usage[above] += units

    def charge(self, change: Change, before: int, after: int) -> None:
        """Count what a gang had and has, with these signs."""
        fleet = self.snapshot.fleet
        units = before * vector_of(fleet, change.gang, change.before) + after * vector_of(
            fleet, change.gang, change.after
        )
        self._add(int(self.snapshot.running.queue[change.row]), units)

    def takers(self, unit: Sequence[Bind]) -> Iterator[_Taker]:
        """The gangs of a start, each asking for all of it."""
        # A group starts as a whole, so that each of its gangs needs room for all.
        asked = sum((self._asks(bind.gang, self._first_sizes(bind)) for bind in unit[1:]),
                    self._asks(unit[0].gang, self._first_sizes(unit[0])))  # fmt: skip
        pending = self.snapshot.pending
        for bind in unit:
            row = self.waiting[bind.gang]
            arrival = int(pending.eligible_us[row]), bind.gang
            yield _Taker(bind.gang, int(pending.queue[row]), int(pending.priority[row]),
                         int(pending.attained_us[row]), arrival, asked)  # fmt: skip

    def pinned(self, number: int, row: int, changes: Sequence[Change]) -> _Taker:
        """A running gang that reaches the size people want of it."""
        running = self.snapshot.running
        own = next((change for change in changes if change.number == number), None)
        asked = np.zeros(len(self.snapshot.fleet.kinds), dtype=np.int64)
        if own is not None:
            # Its growth was counted with those who change for nobody; for the comparison it must not have happened yet.
            self.charge(own, +1, -1)  # as it was before it grew
            fleet = self.snapshot.fleet
            asked = vector_of(fleet, own.gang, own.after) - vector_of(fleet, own.gang, own.before)
        arrival = int(running.eligible_us[row]), number
        return _Taker(number, int(running.queue[row]), int(running.priority[row]), 0, arrival, asked)

    def _first_sizes(self, bind: Bind) -> list[int]:
        """Sizes at which a gang is let in; its share of surplus comes after everybody had a chance to start."""
        gang = self.snapshot.gangs[bind.gang]
        sizes = [seats.members for seats in bind.seats]
        if self.policy.moldable or bind.gang in self.snapshot.pins:
            return sizes
        # Rights are for starting at the minimum. Surplus is shared out afterwards, from what is idle.
        return [min(size, role.sizes.least) for size, role in zip(sizes, gang.roles, strict=True)]

    def start(self, unit: Sequence[Bind]) -> None:
        """Count a start."""
        for bind in unit:
            queue = int(self.snapshot.pending.queue[self.waiting[bind.gang]])
            self._add(queue, self._asks(bind.gang, self._first_sizes(bind)))

    # ------------------------------------------------------------------ rights

    def check(self, taker: _Taker, given: Sequence[Change]) -> Iterator[Violation]:
        """What one start takes, compared before the taking and then counted."""
        for change in given:
            yield from self._check_right(taker, change)
        # Rule 8 compares standings before the taking, rule 9 looks at guarantees after it.
        for change in given:
            self.charge(change, -1, +1)
        yield from self._check_guarantees(taker, given)

    def _check_right(self, taker: _Taker, change: Change) -> Iterator[Violation]:
        decision, running, row = change.decision, self.snapshot.running, change.row
        assert isinstance(decision, Resize | Evict)
        queue, priority = int(running.queue[row]), int(running.priority[row])
        story = f"{name_of(self.snapshot, taker.number)} takes from {change.gang.name} ({decision.cause.value})"
        takes = self.policy.takes
        match decision.cause:
            case Cause.LOAN | Cause.SHARE | Cause.BALANCE:
                # One right for all three: rule 16 adds reasons to call surplus back, and gives nobody a right that rule
                # 8 does not.
                same = queue == taker.queue
                # Equal priority is enough for surplus, which is on loan, and not for a minimum.
                fine = taker.priority >= priority if same else self.standing.better(taker.queue, queue)
                if "shrink" not in takes or not fine:
                    yield Violation(Promise.RIGHTS, f"{story}: neither its equal nor of a better queue")
            case Cause.PREEMPT:
                # Strictly higher, by the integer alone: laxity and age never evict (rule 9), or equals would evict each
                # other.
                if "preempt" not in takes or queue != taker.queue or taker.priority <= priority:
                    yield Violation(Promise.RIGHTS, f"{story}: {taker.priority} against {priority}, or another queue")
            case Cause.RECLAIM:
                if "reclaim" not in takes or queue == taker.queue:
                    yield Violation(Promise.RIGHTS, f"{story} inside one queue, or where nobody reclaims")
            case Cause.GUEST:
                guest = Guest(int(running.guest[row]))
                # No priority and no standing: a guest was told at its start that the owner takes its seats.
                if guest is Guest.NO or (isinstance(decision, Evict) and guest is not Guest.WHOLE):
                    yield Violation(Promise.RIGHTS, f"{story}, which is no guest")
            case Cause.TURN:
                yield from self._check_turn(taker, change, story)
            case _:
                pass

    def _check_turn(self, taker: _Taker, change: Change, story: str) -> Iterator[Violation]:
        """Rule 14."""
        running, row, quantum = self.snapshot.running, change.row, self.policy.quantum_us
        habit = change.gang.snapshot
        if quantum is None or habit is None:
            yield Violation(Promise.RIGHTS, f"{story}: nobody takes turns here, or it cannot save its work")
            return
        start_us, now = int(running.start_us[row]), self.snapshot.now_us
        # A full quantum, counted from the start of the attempt.
        if start_us + quantum > now:
            yield Violation(Promise.RIGHTS, f"{story} after {now - start_us} of its {quantum}")
        if (habit.stall_us + habit.restore_us) * _TURN_PARTS >= quantum:
            yield Violation(Promise.RIGHTS, f"{story}: a turn costs too much")
        if int(running.priority[row]) != taker.priority:
            yield Violation(Promise.RIGHTS, f"{story}: not its equal")
        units = sum(count * change.gang.roles[role].shape.amount(self.snapshot.fleet.counted_kind)
                    for (role, _), (count, _) in change.before.items())  # fmt: skip
        units = units or MILLI * sum(count for count, _ in change.before.values())
        had = int(running.attained_us[row]) + (now - start_us) * units // MILLI
        earlier = taker.arrival < (int(running.eligible_us[row]), change.number)
        # Least attained service; of equals the earlier. Otherwise two gangs would hand the nodes to and fro.
        if had < taker.attained_us or (had == taker.attained_us and not earlier):
            yield Violation(Promise.RIGHTS, f"{story}, which has had {had}, and itself {taker.attained_us}")

    # ------------------------------------------------------------------ guarantees

    def _check_guarantees(self, taker: _Taker, given: Sequence[Change]) -> Iterator[Violation]:
        """As everything stands after the taking (rules 8 and 9)."""
        for change in given:
            decision = change.decision
            assert isinstance(decision, Resize | Evict)
            victim = int(self.snapshot.running.queue[change.row])
            # Inside one queue there are no sides, and these causes ask for no guarantee.
            if victim == taker.queue or decision.cause in (Cause.GUEST, Cause.TURN, Cause.DRAIN):
                continue
            story = f"{name_of(self.snapshot, taker.number)} takes from {change.gang.name} ({decision.cause.value})"
            lost = vector_of(self.snapshot.fleet, change.gang, change.before)
            if not self._keeps(taker.queue, victim, lost):
                yield Violation(Promise.GUARANTEE, f"{story} and leaves its side below its guarantee")
            # Under `reclaim: entitlement` more may be taken back than a guarantee, and the share is not recomputed
            # here.
            reclaims = decision.cause is Cause.RECLAIM and not self.policy.reclaims_share
            if reclaims and not self._within(taker, victim):
                yield Violation(Promise.GUARANTEE, f"{story}, and is not within its own guarantee")

    def _path(self, queue: int) -> list[int]:
        """Queues from the root down; the own gangs of a queue above others are one more below it, without promises."""
        path = [*walk_up(self.snapshot, queue)][::-1]
        inner = queue in self.snapshot.queues.parent.tolist()
        return [*path, -1 - queue] if inner else path

    def _sides(self, taker: int, victim: int) -> tuple[list[int], list[int], list[int]]:
        """What two queues have in common, and each one's own way down."""
        mine, theirs = self._path(taker), self._path(victim)
        # Two different queues part somewhere: each path ends in a row that only that queue has.
        split = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
        return mine[:split], mine[split:], theirs[split:]

    def _guaranteed(self, row: int, units: IntArray) -> list[int]:
        if row < 0:
            return []
        guarantee = self.snapshot.queues.guarantee[row]
        return [kind for kind, amount in enumerate(units.tolist()) if amount > 0 and guarantee[kind] > 0]

    def _keeps(self, taker: int, victim: int, lost: IntArray) -> bool:
        guarantee = self.snapshot.queues.guarantee
        _, _, side = self._sides(taker, victim)
        return all(
            self.usage[row][kind] >= guarantee[row][kind] for row in side for kind in self._guaranteed(row, lost)
        )

    def _within(self, taker: _Taker, victim: int) -> bool:
        common, side, _ = self._sides(taker.queue, victim)
        mine = [row for row in side if self._guaranteed(row, taker.asked)]
        # Rule 9: a queue without a guarantee of its own counts as within it while its nearest ancestor with one is.
        rows = mine or [row for row in reversed(common) if self._guaranteed(row, taker.asked)][:1]
        guarantee = self.snapshot.queues.guarantee
        return bool(rows) and all(
            self.usage[row][kind] + taker.asked[kind] <= guarantee[row][kind]
            for row in rows
            for kind in self._guaranteed(row, taker.asked)
        )
