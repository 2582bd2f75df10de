"""Seat a form in a view, whole, or leave the view as it was.

One role is one vectorised problem and greedy is exact for it. Several roles, or several gangs
that start together, are tried greedily in a few orders and domains first; where that fails, the
exact search decides within its budget of steps.

This is gang admission: all seats or none, in one step, so that two half-placed gangs can never wait
for each other. Whether the gang may start at all (order, limits, reservations) was decided by the
caller, who chose the view: room now, room until a reservation, or room at an instant to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from phalanx.engine.kernels.cuts import cut_by_wishes, cut_slots, spread_out
from phalanx.engine.kernels.fill import Company, SlotRoom, choose_nodes, compute_capability
from phalanx.engine.kernels.slots import Need
from phalanx.engine.room.packing import BudgetSpent, PackingProblem, Part, Search, pack_devices
from phalanx.engine.room.view import NOBODY, Exempt, SlotRow, View, find_need
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import Form, GangForm, RoleForm
from phalanx.model.plan import Seats
from phalanx.model.resources import MILLI
from phalanx.model.rules import Apart, AtMost, Evenly
from phalanx.model.topology import ANYWHERE

#: Steps of the exact search for one problem. A step is a few microseconds.
SEARCH_STEPS = 20_000
#: More nodes than this are not searched exactly: the walk is as deep as it has nodes.
SEARCH_NODES = 256
#: Domains that greedy tries for a gang of several roles before the search decides.
GREEDY_DOMAINS = 64

First = Callable[[RoleForm], IntArray]  # slots per node that a role should use before others
Places = tuple[tuple[Seats, ...], ...]  # per gang, per role


@dataclass(frozen=True, slots=True)
class Wish:
    """How a form should be placed: at which size, exempt from which windows, preferring which slots."""

    form: Form
    size: int  # members of the one role, if the form's size is open
    exempt: Exempt = NOBODY
    first: First | None = None
    sitting: Seats | None = None  # members of the role that have their seats already, for what it asks of its own


@dataclass(frozen=True, slots=True)
class NoPlace:
    """The form does not fit the view; `undecided` if the search gave up before it knew."""

    undecided: bool = False


def find_ceiling(view: View, form: Form, exempt: Exempt = NOBODY) -> int:
    """The most members of an open-size form that fit one placement; of other forms an upper bound of 1 or 0."""
    if form.open_size:
        return role_ceiling(view, form.roles[0], form.gangs[0].require, exempt)
    for gang in form.gangs:
        for role in gang.roles:
            if role_ceiling(view, role, max(gang.require, role.require), exempt) < role.size:
                return 0
    return 1


def role_ceiling(view: View, role: RoleForm, require: int, exempt: Exempt) -> int:
    """The most members of a role that one domain of the required level holds now."""
    return row_ceiling(view, view.slots(role.shape, exempt), role, require)


def row_ceiling(view: View, row: SlotRow, role: RoleForm, require: int) -> int:
    """The same of slots that are at hand."""
    # The case of most gangs: how many fit in all is a number that the view keeps.
    if require == ANYWHERE and role.segment_size <= 1:
        return row.total
    sums = {level: view.domain_sums(row, level) for level in (require, role.segment_level) if level >= 0}
    innermost = len(view.fleet.levels) - 1
    # `compute_capability` sums over single nodes where no level is required.
    sums.setdefault(innermost, view.domain_sums(row, innermost))
    capability = compute_capability(view.fleet, sums, role, require)
    return int(capability.max(initial=0))


def place(view: View, wish: Wish) -> Places | NoPlace:
    """Seat the form and take its seats from the view; on `NoPlace` the view is untouched."""
    if wish.form.open_size:
        # Greedy is exact for one role, so that a no is a no and the search has nothing to add.
        seats = place_role(view, wish, wish.form.roles[0], wish.size, 0, None)
        return NoPlace(undecided=_is_intricate(wish.form)) if seats is None else ((seats,),)
    # A role that does not fit by itself cannot fit beside others. Most hopeless forms end here, before any trying.
    if find_ceiling(view, wish.form, wish.exempt) == 0:
        return NoPlace()
    placed = _place_greedily(view, wish)
    if placed is not None:
        return placed
    if any(role.shape.social for role in wish.form.roles) and len(wish.form.roles) > 1:
        # Undecided and not a no: the next start or end may put them in another order.
        # The search fills node by node and knows nothing of words and domains: what it found might break a rule.
        return NoPlace(undecided=True)
    return _place_exactly(view, wish)


def _is_intricate(form: Form) -> bool:
    """Whether a no may be wrong: members spread by several rules, one after the other, may get stuck for nothing."""
    rules = form.roles[0].shape.rules
    evenly = sum(isinstance(rule, Evenly) for rule in rules)
    return evenly > 1 or (evenly == 1 and any(isinstance(rule, AtMost | Apart) for rule in rules))


def undo(view: View, form: Form, places: Places) -> None:
    """Give seats back, in reverse, so that the view is as it was before."""
    for gang, seats_by_role in reversed(list(zip(form.gangs, places, strict=True))):
        for seats in reversed(seats_by_role):
            view.take_seats(find_need(view.fleet, gang.roles[seats.role].shape), seats, sign=-1)


def retake(view: View, form: Form, places: Places) -> None:
    """Take seats that were chosen before."""
    for gang, seats_by_role in zip(form.gangs, places, strict=True):
        for seats in seats_by_role:
            view.take_seats(find_need(view.fleet, gang.roles[seats.role].shape), seats)


def make_room(view: View, row: SlotRow, first: IntArray | None, inside: BoolArray | None) -> SlotRoom:
    """Lay a shape's slots out over the walk order."""
    fleet = view.fleet
    slots = row.slots if inside is None else row.slots * inside
    # Over all nodes: a domain is judged by all that is free in it, also on nodes that this gang may not use.
    unasked = [view.free[:, column] for column in row.need.unasked]
    asked = [view.free[:, column] for column in row.need.columns]
    if row.need.share:
        # Of a share the room left is what remains of the device it would sit on, before all else.
        holding = np.where(view.device_free >= row.need.share, view.device_free, MILLI + 1)
        asked.insert(0, holding.min(axis=1, initial=MILLI + 1).astype(np.int64))
    if not fleet.walk_trivial:
        slots = slots[fleet.walk]
        unasked = [amount[fleet.walk] for amount in unasked]
        asked = [amount[fleet.walk] for amount in asked]
        first = None if first is None else first[fleet.walk]
    return SlotRoom(fleet, slots, unasked, asked, first, _company_of(view, row.need))


def _company_of(view: View, need: Need) -> Company | None:
    # Whoever asks for devices alone takes no cores from them; whoever asks for none has no devices to weigh against.
    if len(need.columns) < 2 or not (need.whole or need.share):
        return None
    column = view.fleet.device_column
    beside = tuple((at, units) for at, units in zip(need.columns, need.amounts, strict=True) if at != column)
    return Company(int(need.vector[column]), column, beside, view.free)


def place_role(view: View, wish: Wish, role: RoleForm, size: int, index: int, inside: BoolArray | None) -> Seats | None:
    """Seat members of one role on some nodes, and take the seats; None if they do not fit."""
    row = view.slots(role.shape, wish.exempt)
    # One number against one number: the usual way for a placement to fail.
    if row.total < size:
        return None
    # The slots of the row are for as many as there can be, anywhere; this asks for these members, here.
    if row.need.social and (row := _heed_others(view, wish, row, size, inside)).total < size:
        return None
    first = None if wish.first is None else wish.first(role)
    chosen = _choose_as_wished(view, row, role, size, first, inside) if row.need.shape.rather else None
    if chosen is None:
        chosen = choose_nodes(make_room(view, row, first, inside), role, size)
    if chosen is None:
        return None
    nodes, counts = chosen
    return Seats(index, nodes, counts, view.take(row.need, nodes, counts), size)


def _choose_as_wished(
    view: View, row: SlotRow, role: RoleForm, size: int, first: IntArray | None, inside: BoolArray | None
) -> tuple[IntArray, IntArray] | None:
    """Nodes where wishes hold; None if none does, or there it does not fit as it has to."""
    slots = row.slots if inside is None else row.slots * inside
    left = cut_by_wishes(view.fleet, row.need.shape, slots, view.presence, size)
    if left is None:
        return None
    wished = SlotRow(row.need, row.mask, left, int(np.add.reduce(left)), row.seen)
    return choose_nodes(make_room(view, wished, first, None), role, size)


def _heed_others(view: View, wish: Wish, row: SlotRow, size: int, inside: BoolArray | None) -> SlotRow:
    """The slots that rules leave to these very members: inside some nodes, beside those who sit already."""
    fleet, shape, slots = view.fleet, row.need.shape, row.slots
    if inside is not None or wish.sitting is not None:
        own = np.zeros(len(fleet), dtype=np.int64)
        if wish.sitting is not None:
            own[wish.sitting.nodes] = wish.sitting.counts
        # From all slots and not from those left: a domain's share may lie on nodes that are not among these.
        slots = view.count_uncut(row.need, row.mask if inside is None else row.mask & inside)
        slots = cut_slots(fleet, shape, slots, view.presence, own)
    if view.presence is not None and any(isinstance(rule, Evenly) for rule in shape.rules):
        # How many go where depends on how many there are: exactly these slots are left, and taken.
        found = spread_out(fleet, shape, slots, view.presence, size)
        slots = np.zeros_like(slots) if found is None else found
    return SlotRow(row.need, row.mask, slots, int(np.add.reduce(slots)), row.seen)


# ------------------------------------------------------------------ several roles: greedy


def _place_greedily(view: View, wish: Wish) -> Places | None:
    """Gang by gang, each in the first domain and role order that works; everything back if one gang fails."""
    placed: list[tuple[Seats, ...]] = []
    for gang in wish.form.gangs:
        seats = _place_gang(view, wish, gang)
        if seats is None:
            if placed:
                undo(view, Form(wish.form.gangs[: len(placed)]), tuple(placed))
            return None
        placed.append(seats)
    return tuple(placed)


def _place_gang(view: View, wish: Wish, gang: GangForm) -> tuple[Seats, ...] | None:
    # Domains outside, orders inside: a tight domain in any order is better than a wide one in the best.
    for inside in _gang_domains(view, wish, gang):
        for order in _role_orders(view, gang):
            seats = _place_roles(view, wish, gang, order, inside)
            if seats is not None:
                return seats
    return None


def _place_roles(
    view: View, wish: Wish, gang: GangForm, order: tuple[int, ...], inside: BoolArray | None
) -> tuple[Seats, ...] | None:
    done: list[Seats] = []
    for index in order:
        role = gang.roles[index]
        seats = place_role(view, wish, role, role.size, index, inside)
        if seats is None:
            # Whole or absent: the roles that were seated give their places back before anything else is tried.
            for other in reversed(done):
                view.take_seats(find_need(view.fleet, gang.roles[other.role].shape), other, sign=-1)
            return None
        done.append(seats)
    return tuple(sorted(done, key=lambda seats: seats.role))


def _role_orders(view: View, gang: GangForm) -> Iterator[tuple[int, ...]]:
    """The hardest to seat first (fewest slots for its size), then as written, then the reverse of that."""
    indices = tuple(range(len(gang.roles)))
    if len(indices) == 1:
        yield indices
        return
    # 20 slots for 10 members is 2.0, 9 slots for 8 is 1.1: the second goes first, while it still has its choice.
    spare = [view.slots(role.shape).total / role.size for role in gang.roles]
    hardest = tuple(sorted(indices, key=lambda i: (spare[i], i)))
    yield from dict.fromkeys((hardest, indices, indices[::-1]))


def _gang_domains(view: View, wish: Wish, gang: GangForm) -> Iterator[BoolArray | None]:
    """Domains to try for all roles together: preferred level first, then wider, best fit first."""
    if len(gang.roles) == 1 or max(gang.require, gang.prefer) == ANYWHERE:
        yield None
        return
    rows = [view.slots(role.shape, wish.exempt) for role in gang.roles]
    tried = 0
    # Tightest first. Each role fits by itself wherever `fits` says so; together is what the caller finds out.
    for level in range(max(gang.require, gang.prefer), max(gang.require, 0) - 1, -1):
        fits = np.ones(len(view.fleet.run_starts[level]), dtype=np.bool_)
        room = np.zeros(len(fits), dtype=np.int64)
        for role, row in zip(gang.roles, rows, strict=True):
            sums = view.domain_sums(row, level)
            fits &= sums >= role.size
            room += sums
        runs = np.flatnonzero(fits)
        for run in runs[np.argsort(room[runs], kind="stable")].tolist():
            # Not a no: the exact search still decides.
            if tried == GREEDY_DOMAINS:
                return
            tried += 1
            yield view.fleet.domains[level] == view.fleet.domain_by_run[level][run]
    if gang.require == ANYWHERE:
        yield None


# ------------------------------------------------------------------ several roles: exact


@dataclass(slots=True)
class _Flat:
    """All roles of all gangs in one list, with the nodes each may use."""

    roles: list[tuple[int, int, RoleForm]]  # gang, role index, role
    needs: list[Need]
    slots: list[IntArray]
    positions: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # nodes in walk order


def _place_exactly(view: View, wish: Wish) -> Places | NoPlace:
    flat = _Flat([], [], [])
    for g, gang in enumerate(wish.form.gangs):
        for r, role in enumerate(gang.roles):
            row = view.slots(role.shape, wish.exempt)
            flat.roles.append((g, r, role))
            flat.needs.append(row.need)
            flat.slots.append(row.slots)
    # Nodes that hold nobody only make the walk deeper.
    useful = np.sum(flat.slots, axis=0) > 0
    flat.positions = view.fleet.walk[useful[view.fleet.walk]]
    if len(flat.positions) > SEARCH_NODES:
        # Undecided is a reason of its own (SearchBudget). Called infeasible, the gang would never be tried again.
        return NoPlace(undecided=True)
    budget = SEARCH_STEPS
    for domains in _domain_choices(view, wish.form, flat):
        search = Search(_question(view, flat, domains), budget)
        try:
            found = search.solve()
        except BudgetSpent:
            return NoPlace(undecided=True)
        # One budget for all choices of domains, or a cluster of many racks would have as many budgets.
        budget = search.steps_left
        if found is not None:
            return _seat_found(view, wish.form, flat, search.problem, found)
    return NoPlace()


def _domain_choices(view: View, form: Form, flat: _Flat) -> Iterator[list[BoolArray]]:
    """Every combination of required domains, as the nodes each role may use."""
    nodes = np.ones(len(view.fleet), dtype=np.bool_)
    per_gang = [_level_masks(view, gang.require) for gang in form.gangs]
    per_role = [_level_masks(view, role.require) for _, _, role in flat.roles]
    for gang_masks in product(*per_gang):
        # A role's domain outside its gang's is empty; dropping those keeps the product small.
        inside = [
            [mask for mask in masks if (mask & gang_masks[g]).any()]
            for (g, _, _), masks in zip(flat.roles, per_role, strict=True)
        ]
        for role_masks in product(*inside):
            masks = [nodes & gang_masks[g] & mask for (g, _, _), mask in zip(flat.roles, role_masks, strict=True)]
            # By sums first: a choice of domains in which a role lacks slots needs no search to fail.
            enough = (
                int(slots[mask].sum()) >= role.size
                for slots, mask, (_, _, role) in zip(flat.slots, masks, flat.roles, strict=True)
            )
            if all(enough):
                yield masks


def _level_masks(view: View, level: int) -> list[BoolArray]:
    if level == ANYWHERE:
        return [np.ones(len(view.fleet), dtype=np.bool_)]
    column = view.fleet.domains[level]
    # By number, and numbers follow the lowest node index (rule 1, ties): the first solution found is the one given.
    return [column == domain for domain in range(int(column.max(initial=-1)) + 1)]


def _question(view: View, flat: _Flat, masks: list[BoolArray]) -> PackingProblem:
    positions = flat.positions
    parts = []
    for (_, _, role), need, mask, slots in zip(flat.roles, flat.needs, masks, flat.slots, strict=True):
        allowed = frozenset(np.flatnonzero((mask & (slots > 0))[positions]).tolist())
        # Inside a required domain of the segment's level, or of a tighter one, all groups are together anyway.
        grouped = role.segment_size > 1 and role.segment_level > role.require
        # Walk order keeps domains in one piece, which the search relies on: it settles groups where a domain ends.
        domain = view.fleet.domains[role.segment_level][positions] if grouped else np.arange(len(positions))
        group = role.segment_size if grouped else 1
        parts.append(Part(need, role.size, group, allowed, tuple(domain.tolist())))
    return PackingProblem(
        free=[tuple(row) for row in view.free[positions].tolist()],
        devices=[tuple(row) for row in view.device_free[positions].tolist()],
        device_column=view.fleet.device_column,
        parts=tuple(parts),
    )


def _seat_found(view: View, form: Form, flat: _Flat, problem: PackingProblem, found: list[tuple[int, ...]]) -> Places:
    """Trim the surplus of a solution, choose devices exactly, and take the seats."""
    # Trimmed first, devices second: members that are dropped must not decide who shares which device.
    trimmed = [_trim(part, [way[i] for way in found]) for i, part in enumerate(problem.parts)]
    devices = _exact_devices(view, problem, trimmed)
    places: list[list[Seats]] = [[] for _ in form.gangs]
    for index, (g, r, _) in enumerate(flat.roles):
        order = [at for at in trimmed[index] if trimmed[index][at]]
        nodes = flat.positions[np.array(order, dtype=np.int64)]
        counts = np.array([trimmed[index][at] for at in order], dtype=np.int64)
        taken = np.array([devices[index, at] for at in order], dtype=np.int16).reshape(len(order), -1)
        seats = Seats(r, nodes, counts, taken)
        view.take_seats(flat.needs[index], seats)
        places[g].append(seats)
    return tuple(tuple(seats) for seats in places)


def _trim(part: Part, given: list[int]) -> dict[int, int]:
    """Exactly the asked members, position by position in rank order: whole groups, the smaller one last."""
    # The search fills nodes to the brim and may hold too many; here groups are formed as it formed them, in walk order,
    # and what is beyond them is dropped.
    groups, rest = divmod(part.size, part.group)
    by_domain: dict[int, list[int]] = {}
    for at in range(len(given)):
        by_domain.setdefault(part.domain[at], []).append(at)
    kept: dict[int, int] = {}
    last: dict[int, int] = {}
    for positions in by_domain.values():
        held = sum(given[at] for at in positions)
        formed = min(groups, held // part.group)
        groups -= formed
        want = formed * part.group
        target = kept
        if rest and held - want >= rest:
            # A domain with the smaller group goes to the end as a whole: its ranks must be the last ones.
            want, rest, target = want + rest, 0, last
        for at in positions:
            target[at] = min(given[at], want)
            want -= target[at]
    return {**kept, **last}


def _exact_devices(
    view: View, problem: PackingProblem, trimmed: list[dict[int, int]]
) -> dict[tuple[int, int], list[int]]:
    """Devices per (part, position): packed exactly, since best fit may fail where a packing exists."""
    chosen: dict[tuple[int, int], list[int]] = {}
    width = view.device_free.shape[1]
    for at in range(len(problem.free)):
        asked = [(i, counts.get(at, 0)) for i, counts in enumerate(trimmed) if counts.get(at, 0)]
        for i, _ in asked:
            chosen[i, at] = [0] * width
        if problem.device_column < 0 or not asked:
            continue
        # Largest first, as the search checked them. Fewer members than it checked only make packing easier.
        shares = sorted(((problem.parts[i].need.share, i) for i, n in asked for _ in range(n)), key=lambda x: -x[0])
        shares = [(share, i) for share, i in shares if share]
        whole = [i for i, n in asked for _ in range(n * problem.parts[i].need.whole)]
        packed = pack_devices(problem.devices[at], len(whole), [share for share, _ in shares])
        assert packed is not None, "the search placed members that its own device check refuses"
        for i, device in zip(whole, packed[0], strict=True):
            chosen[i, at][device] = MILLI
        for (share, i), device in zip(shares, packed[1], strict=True):
            chosen[i, at][device] += share
    return chosen
