"""Mistakes, as functions of what goes through a public door. None of them knows how the engine or the state is built.

The engine is a function: it is made wrong by what it is shown (`seeing`), by the policy it is told to follow
(`following`) or by what becomes of its plan (`deciding`). The checks look at the true snapshot, and judge.
The state is an object: it is made wrong by a method in front of one of its own (`Patch`).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from phalanx.control.loop import Engine
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.progress import GangProgress
from phalanx.model.form import Form
from phalanx.model.gang import SnapshotHabit
from phalanx.model.plan import Bind, Cause, Evict, Plan, Repair, Resize, Seats
from phalanx.model.reason import Code
from phalanx.model.resources import MILLI
from phalanx.model.snapshot import Snapshot
from phalanx.testing.builders import SECOND_US
from phalanx.testing.first_fit import FreeColumns

PLENTY = 1 << 40


def seeing(blur: Callable[[Snapshot], Snapshot]) -> Engine:
    """The engine, shown something else than there is."""
    return lambda snapshot, policy, **rest: schedule(blur(snapshot), policy, **rest)


def following(bend: Callable[[Policy], Policy]) -> Engine:
    """The engine, under another policy than people chose."""
    return lambda snapshot, policy, **rest: schedule(snapshot, bend(policy), **rest)


def deciding(spoil: Callable[[Snapshot, Plan], Plan]) -> Engine:
    """The engine, with something else coming out than it decided."""
    return lambda snapshot, policy, **rest: spoil(snapshot, schedule(snapshot, policy, **rest))


@dataclass(frozen=True, slots=True)
class Patch:
    """A method in front of a public one: `around` gets the true one and answers with another."""

    owner: object
    name: str
    around: Callable[[Callable], Callable]


# ---------------------------------------------------------------------- what the engine is shown


def show_pending(snapshot, **columns):
    return replace(snapshot, pending=replace(snapshot.pending, **columns))


def show_running(snapshot, **columns):
    return replace(snapshot, running=replace(snapshot.running, **columns))


def show_nodes(snapshot, **columns):
    return replace(snapshot, nodes=replace(snapshot.nodes, **columns))


def show_gangs(snapshot, /, **fields):
    return replace(snapshot, gangs=[replace(gang, **fields) for gang in snapshot.gangs])


def show_guarantees(snapshot, guarantee):
    return replace(snapshot, queues=replace(snapshot.queues, guarantee=guarantee))


def show_forms(snapshot, *, gang=None, **role):
    """Every form with other fields of its roles, and of its gangs."""
    gangs = [
        tuple(replace(each, **(gang or {}), roles=tuple(replace(r, **role) for r in each.roles)) for each in form.gangs)
        for form in snapshot.forms
    ]
    return replace(snapshot, forms=[Form(each) for each in gangs])


def forget_cordons(snapshot):
    nodes = snapshot.nodes
    return show_nodes(snapshot, open=np.ones_like(nodes.open), in_service=nodes.up)


def forget_cordons_in_repairs(snapshot):
    return show_nodes(snapshot, repairable=snapshot.nodes.up)


def use_spares(snapshot):
    return show_nodes(snapshot, in_service=snapshot.nodes.repairable)


def overbook(snapshot):
    """A little more of everything that has no name."""
    more = np.where(np.array(snapshot.fleet.kinds) == "gpu", 0, 2 * MILLI)
    return show_nodes(snapshot, free=snapshot.nodes.free + more)


def forget_companions(snapshot):
    alone = show_pending(snapshot, group=np.full_like(snapshot.pending.group, -1))
    return replace(alone, group_forms={})


def forget_gates(snapshot):
    return show_pending(snapshot, gate=np.zeros_like(snapshot.pending.gate))


def forget_limits(snapshot):
    queues, users = snapshot.queues, snapshot.users
    return replace(
        snapshot,
        queues=replace(queues, limit=np.full_like(queues.limit, -1)),
        users=replace(users, limit=np.full_like(users.limit, -1)),
        hints=replace(snapshot.hints, limited=False),
    )


def forget_windows(snapshot):
    return replace(snapshot, windows=())


def forget_segments(snapshot):
    return show_forms(snapshot, segment_size=0, segment_level=-1)


def forget_levels(snapshot):
    return show_forms(snapshot, gang={"require": -1}, require=-1)


def forget_selection(snapshot):
    forms = [form.gangs for form in snapshot.forms]
    blank = [
        Form(
            tuple(
                replace(gang, roles=tuple(replace(role, shape=replace(role.shape, select=())) for role in gang.roles))
                for gang in gangs
            )
        )
        for gangs in forms
    ]
    return replace(snapshot, forms=blank)


def forget_rules(snapshot):
    return replace(snapshot, forms=[_without_rules(form) for form in snapshot.forms])


def _without_rules(form):
    return Form(
        tuple(
            replace(gang, roles=tuple(replace(role, shape=replace(role.shape, rules=())) for role in gang.roles))
            for gang in form.gangs
        )
    )


def forget_who_is_where(snapshot):
    return replace(snapshot, presence=None)


def forget_promises(snapshot):
    return replace(snapshot, promises={})


def forget_priorities(snapshot):
    return show_pending(snapshot, priority=np.zeros_like(snapshot.pending.priority))


def raise_whoever_waits(snapshot):
    return show_pending(snapshot, priority=snapshot.pending.priority + 1)


def soften_everybody(snapshot):
    """Whoever runs or waits can be stopped."""
    running = np.ones_like(snapshot.running.preemptible)
    softened = show_running(show_gangs(snapshot, preemptible=True), preemptible=running)
    return replace(softened, hints=replace(snapshot.hints, has_reclaimable=True))


def forget_guarantees_of_victims(snapshot):
    """Only queues in which somebody waits are promised anything."""
    pending, guarantee = snapshot.pending, np.zeros_like(snapshot.queues.guarantee)
    asking = np.unique(pending.queue[pending.alive])
    guarantee[asking] = snapshot.queues.guarantee[asking]
    return show_guarantees(snapshot, guarantee)


def promise_takers_everything(snapshot):
    guarantee = snapshot.queues.guarantee
    return show_guarantees(snapshot, np.where(guarantee > 0, PLENTY, guarantee))


def believe_in_snapshots(snapshot):
    """Everybody saves their work all the time, for nothing."""
    return show_gangs(snapshot, snapshot=SnapshotHabit(SECOND_US, 0, 0))


def forget_pins(snapshot):
    return replace(snapshot, pins={})


def forget_cool_downs(snapshot):
    return show_running(snapshot, cool_until_us=np.zeros_like(snapshot.running.cool_until_us))


def forget_guests(snapshot):
    return show_running(snapshot, guest=np.zeros_like(snapshot.running.guest))


# ---------------------------------------------------------------------- the policy it follows


def forget_patience(policy):
    return replace(policy, min_runtime_us=0, max_evictions=PLENTY)


def halve_turns(policy):
    return replace(policy, quantum_us=policy.quantum_us // 2)


# ---------------------------------------------------------------------- what becomes of its plan


def change(plan, kind, spoil):
    """Every decision of a kind as `spoil` has it."""
    return replace(plan, decisions=tuple(spoil(each) if isinstance(each, kind) else each for each in plan.decisions))


def drop_member(seats):
    """All but the last member of a role, whose devices are kept."""
    counts = seats.counts.copy()
    counts[-1] -= 1
    return Seats(seats.role, seats.nodes, counts, seats.devices)


def drop_members(_, plan):
    return change(plan, Bind, lambda bind: replace(bind, seats=(drop_member(bind.seats[0]), *bind.seats[1:])))


def drop_roles(_, plan):
    return change(plan, Bind, lambda bind: replace(bind, seats=bind.seats[:-1]))


def use_first_devices(_, plan):
    """Whoever comes gets the first devices of its nodes."""

    def shift(seats):
        return replace(seats, devices=-np.sort(-seats.devices, axis=1))

    return change(plan, Bind, lambda bind: replace(bind, seats=tuple(map(shift, bind.seats))))


def crowd(_, plan):
    """Everybody sits on the first node."""

    def gather(seats):
        return replace(seats, nodes=np.zeros_like(seats.nodes[:1]), counts=seats.counts.sum(keepdims=True),
                       devices=seats.devices[:1])  # fmt: skip

    return change(plan, Bind, lambda bind: replace(bind, seats=tuple(map(gather, bind.seats))))


def smear_shares(_, plan):
    """Of every device half goes to its neighbour."""

    def smear(seats):
        half = seats.devices // 2
        return replace(seats, devices=half + np.roll(half, 1, axis=1))

    return change(plan, Bind, lambda bind: replace(bind, seats=tuple(map(smear, bind.seats))))


def reverse_ranks(_, plan):
    def turn(seats):
        return Seats(seats.role, seats.nodes[::-1], seats.counts[::-1], seats.devices[::-1])

    return change(plan, Bind, lambda bind: replace(bind, seats=tuple(map(turn, bind.seats))))


def repeat(kind):
    """What is decided of a kind is decided twice."""
    return lambda _, plan: replace(
        plan, decisions=(*plan.decisions, *(each for each in plan.decisions if isinstance(each, kind)))
    )


def split_groups(_, plan):
    """The first of those who start stays behind."""
    return replace(plan, decisions=plan.decisions[1:])


def refuse_for_ever(_, plan):
    """Whoever starts is told that it never will."""
    started = tuple(each.gang for each in plan.decisions if isinstance(each, Bind))
    return replace(plan, infeasible=plan.infeasible + started)


def evict_in_vain(_, plan):
    """Somebody makes way, and nobody comes."""
    if not any(isinstance(each, Evict) for each in plan.decisions):
        return plan
    return replace(plan, decisions=tuple(each for each in plan.decisions if not isinstance(each, Bind)))


def evict_one_more(snapshot, plan):
    """One victim would have been enough."""
    evicted = [each for each in plan.decisions if isinstance(each, Evict)]
    running = snapshot.running
    numbers = set(running.gang[running.alive & running.preemptible].tolist()) - {each.gang for each in evicted}
    more = tuple(Evict(number, Cause.PREEMPT, evicted[0].beneficiary) for number in sorted(numbers)[:1] if evicted)
    return replace(plan, decisions=(*more, *plan.decisions))


def take_one_more(_, plan):
    """Whoever shrinks loses one member more, with its seat."""

    def cut(seats):
        return Seats(seats.role, seats.nodes[1:], seats.counts[1:], seats.devices[1:])

    return change(plan, Resize, lambda resize: replace(resize, seats=(cut(resize.seats[0]), *resize.seats[1:])))


def repair_one_more(snapshot, plan):
    """A repair brings a member that was never lost."""

    def widen(repair):
        seats = repair.seats[0]
        free = snapshot.nodes.in_service & (snapshot.nodes.free > 0).all(axis=1)
        idle = np.setdiff1d(free.nonzero()[0], seats.nodes)[:1]
        nodes, counts = np.append(seats.nodes, idle), np.append(seats.counts, np.ones_like(idle))
        devices = np.concatenate((seats.devices, snapshot.nodes.device_free[idle]))
        return replace(repair, seats=(Seats(0, nodes, counts, devices),))

    return change(plan, Repair, widen)


def sleep_on(_, plan):
    """Nobody is called when the plan could change by time alone."""
    return replace(plan, wake_at_us=None)


# ---------------------------------------------------------------------- engines of another kind


def ask_one_by_one(snapshot, policy, **rest):
    """Everybody is asked as if alone: with the room that others left, and nothing else that they were given.

    So nobody behind a head that waits hears of it, and nobody counts what those before are charged with.
    """
    told = schedule(snapshot, policy, **rest)
    pending, nodes = snapshot.pending, snapshot.nodes
    room = FreeColumns(snapshot.fleet, nodes.free.copy(), nodes.device_free.copy())
    binds: list[Bind] = []
    for row in policy.order(snapshot, (pending.alive & (pending.gate == 0)).nonzero()[0]).tolist():
        gate = np.full_like(pending.gate, Code.HELD)
        gate[row] = 0
        hints = replace(snapshot.hints, gated=True, room=-1, settled_upto=0)
        left = show_nodes(replace(snapshot, hints=hints), free=room.free.copy(), device_free=room.devices.copy())
        plan = schedule(show_pending(left, gate=gate), policy)
        for bind in plan.decisions:
            room.take(snapshot.gangs[bind.gang], bind.seats)
            binds.append(bind)
    return replace(told, decisions=tuple(binds), settled=None, verdicts=_without_reasons(snapshot, told, binds))


def _without_reasons(snapshot, told, binds):
    """What is told of those who wait, and nothing of those who start: a wrong plan that is at one with itself."""
    if told.verdicts is None:
        return None
    started = np.isin(snapshot.pending.gang, [bind.gang for bind in binds]) & snapshot.pending.alive
    return replace(told.verdicts, codes=np.where(started, Code.NONE, told.verdicts.codes).astype(np.int8))


def judge_again(snapshot, plan):
    """What was said of a date once is said in every plan."""
    return replace(plan, dates=(*plan.dates, *snapshot.dates.values()))


def forget_verdicts(snapshot, plan):
    """Dates are judged, and nobody is told."""
    return replace(plan, dates=())


def forget_reasons(snapshot, plan):
    """Whoever waits is told nothing."""
    if plan.verdicts is None:
        return plan
    return replace(plan, verdicts=replace(plan.verdicts, codes=np.zeros_like(plan.verdicts.codes)))


def never_reconsider(snapshot, policy, **rest):
    """Gangs of one word are seated one after the other; if the last finds no place, it is the end of it."""
    plan = schedule(forget_companions(snapshot), policy, **rest)
    started = {each.gang for each in plan.decisions}
    whole = set(snapshot.pending.gang[snapshot.pending.alive].tolist()) <= started
    return plan if whole else replace(plan, decisions=())


def take_from_anybody(snapshot, policy, **rest):
    """Whoever waits is entitled to the seats of everybody who can be stopped."""
    running, table, nodes = snapshot.running, snapshot.allocations, snapshot.nodes
    soft = running.alive & running.preemptible
    gone = table.alive & soft[table.running]
    free, device_free = nodes.free.copy(), nodes.device_free.copy()
    np.add.at(free, table.node[gone], table.taken[gone])
    np.add.at(device_free, table.node[gone], table.devices[gone])
    cleared = replace(snapshot, allocations=replace(table, alive=table.alive & ~gone))
    cleared = show_running(show_nodes(cleared, free=free, device_free=device_free), alive=running.alive & ~soft)
    plan = schedule(cleared, policy, **rest)
    if not plan.decisions:
        return schedule(snapshot, policy, **rest)
    beneficiary = plan.decisions[0].gang
    evicted = tuple(Evict(number, Cause.RECLAIM, beneficiary) for number in running.gang[soft].tolist())
    return replace(plan, decisions=(*evicted, *plan.decisions))


def be_moody():
    """An order that differs from call to call, as an iteration over a set would."""
    mood = random.Random(0)

    def blink(snapshot):
        pending = snapshot.pending
        gate = np.array([Code.HELD if mood.random() < 0.3 else code for code in pending.gate], dtype=np.int8)
        return replace(show_pending(snapshot, gate=gate), hints=replace(snapshot.hints, gated=True))

    return seeing(blink)


def write_into_it(snapshot, policy, **rest):
    """What is given away is taken from the columns themselves."""
    plan = schedule(snapshot, policy, **rest)
    room = FreeColumns(snapshot.fleet, snapshot.nodes.free, snapshot.nodes.device_free)
    for bind in plan.decisions:
        room.take(snapshot.gangs[bind.gang], bind.seats)
    return plan


# ---------------------------------------------------------------------- the state


def charge_no_parents(borrow):
    """Only the queue of a gang is told to be charged with it."""

    def told(self):
        snapshot = borrow(self)
        usage = snapshot.queues.usage.copy()
        usage[np.unique(snapshot.queues.parent[1:])] = 0
        return replace(snapshot, queues=replace(snapshot.queues, usage=usage))

    return told


def keep_the_last_role(complete):
    """The seats of one role are never given back."""

    def forgetful(self, number):
        record = self.records[number]
        record.seats = record.seats[:-1]
        return complete(self, number)

    return forgetful


def forget_pauses(apply):
    """Whoever shrinks is taken to be gone from its seats at once."""

    def hasty(self, plan, **rest):
        gangs = {each.gang: self.records[each.gang].gang for each in plan.decisions}
        for number, gang in gangs.items():
            self.records[number].gang = replace(gang, resize_pause_us=0)
        folded = apply(self, plan, **rest)
        for number, gang in gangs.items():
            self.records[number].gang = gang
        return folded

    return hasty


def never_vacate(tick):
    """Rows of nobody outlive their time."""

    def forgetful(self):
        self.vacating.clear()
        return tick(self)

    return forgetful


def leave_them_soft(lose_node):
    """A degraded gang is still said to be preemptible."""

    def forgetful(self, node):
        lost = lose_node(self, node)
        for loss in lost:
            self.running.columns["preemptible"][self.records[loss.gang].row] = True
        return lost

    return forgetful


CHARGE_NO_PARENTS = Patch(State, "borrow", charge_no_parents)
KEEP_THE_LAST_ROLE = Patch(State, "complete", keep_the_last_role)
FORGET_PAUSES = Patch(State, "apply", forget_pauses)
NEVER_VACATE = Patch(State, "tick", never_vacate)
LEAVE_THEM_SOFT = Patch(State, "lose_node", leave_them_soft)


# ---------------------------------------------------------------------- the ledger


def resize_for_nothing(resize):
    """A change of size costs no pause."""

    def cheap(self, *args):
        gang, self.gang = self.gang, replace(self.gang, resize_pause_us=0)
        resize(self, *args)
        self.gang = gang

    return cheap


def never_save(stop):
    return lambda self, now, *, saves: stop(self, now, saves=False)


def keep_what_was_rolled_back(stop):
    """More work than there is: what was lost stays productive."""

    def proud(self, now, *, saves):
        self.advance(now)
        self.unsaved = 0
        return stop(self, now, saves=saves)

    return proud


def book_no_holding(advance):
    """Seats that a gang holds without running are in nobody's books."""

    def forgetful(self, now):
        if self.holding:
            self.at_us = now
        advance(self, now)

    return forgetful


def move_from_nothing(_):
    """Whoever moves begins where its last snapshot was."""

    def careless(self, now, units, pace):
        self.stop(now, saves=False)
        self.begin(now, units, pace, anew=False)

    return careless


RESIZE_FOR_NOTHING = Patch(GangProgress, "resize", resize_for_nothing)
NEVER_SAVE = Patch(GangProgress, "stop", never_save)
KEEP_WHAT_WAS_ROLLED_BACK = Patch(GangProgress, "stop", keep_what_was_rolled_back)
BOOK_NO_HOLDING = Patch(GangProgress, "advance", book_no_holding)
MOVE_FROM_NOTHING = Patch(GangProgress, "move", move_from_nothing)
