"""Who is asking, in order: pending gangs as columns over the turns of one cycle.

Gangs that start together are one turn, at the place of the last of them. Gangs that cannot be
looked at yet (held, waiting for a dependency, group incomplete) have no turn.

Decides in which order gangs are looked at, at which sizes each may start (*offers*: one for a rigid gang, several for
a moldable one), and writes a start down. Whether there is room is for the walk (`engine.actions.allocate`) and its
calendar. Columns, because a cycle may face 100,000 gangs and dismisses most of them by comparing sizes with a number.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from phalanx.engine.curves import curve_of
from phalanx.engine.order.orders import share_between_users
from phalanx.engine.room.limits import OverLimit
from phalanx.engine.room.placement import NoPlace, Places, Wish, find_ceiling, place, retake, undo
from phalanx.engine.room.seats import drop_tail, elastic_members, subtract_seats
from phalanx.engine.room.view import View, find_need
from phalanx.engine.session import PlacementKey, Session
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import Form, form_at_sizes
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Guest
from phalanx.model.snapshot import PendingColumns
from phalanx.model.topology import ANYWHERE
from phalanx.perfmodel.speedup import Speedup, scaled_us, speedup_at

#: Sizes of an elastic gang that are tried in one cycle, from the largest that could fit; its least is always tried.
SIZES_TRIED = 128

Groups = dict[int, list[int]]


class Turns:
    """One entry per turn, in the policy's order. Columns that most passes never read are fetched when asked for."""

    def __init__(
        self,
        pending: PendingColumns,
        rows: IntArray,
        keys: tuple[IntArray, list[PlacementKey]],
        groups: Groups,
    ) -> None:
        """`rows` are pending rows, of a group the last gang's; `keys` an index per turn and what it points to."""
        self.rows = rows
        self.key_index, self.keys = keys
        self.members = groups  # rows of a group, by the row of its last gang
        self._pending = pending
        self._length: IntArray | None = None
        # A copy, which indexing by an array makes: below it is written to.
        self.size = pending.size[rows]  # least members, or 1 if the form has its sizes inside
        if groups:
            self.size[[row in groups for row in rows.tolist()]] = 1

    @cached_property
    def queue(self) -> npt.NDArray[np.int32]:
        """Queue of each turn."""
        return self._pending.queue[self.rows]

    @cached_property
    def user(self) -> npt.NDArray[np.int32]:
        """User of each turn; of a group, the last gang's."""
        return self._pending.user[self.rows]

    @property
    def length_us(self) -> IntArray:
        """Believed run time at the largest size; of a group, the longest."""
        if self._length is None:
            self._length = self._lengths()
        return self._length

    def _lengths(self) -> IntArray:
        length = self._pending.length_us[self.rows]
        for turn, row in enumerate(self.rows.tolist()) if self.members else ():
            if row in self.members:
                # A group is planned as one block until its last gang ends. Its elastic gangs start at their least.
                length[turn] = max(self._pending.least_us[self.members[row]])
        return length

    @cached_property
    def proven(self) -> npt.NDArray[np.bool_]:
        """Whether that run time was stated or predicted; of a group, for all of it."""
        proven = self._pending.proven[self.rows]
        for turn, row in enumerate(self.rows.tolist()) if self.members else ():
            proven[turn] = self._pending.proven[self.members.get(row, row)].all()
        return proven

    def lengths_at_first_size(self, session: Session) -> IntArray:
        """Believed run time at the size a turn is first tried at."""
        pending = self._pending
        # A moldable gang is tried at its largest first, which is the size its length is stated at.
        if session.policy.moldable or not pending.elastic[self.rows].any():
            return self.length_us
        lengths = pending.least_us[self.rows]
        for turn, row in enumerate(self.rows.tolist()) if self.members else ():
            if row in self.members:
                lengths[turn] = self.length_us[turn]
        return lengths

    def may_be_guest(self, session: Session, turn: int) -> bool:
        """Whether it may live under a reservation: it can be made to leave altogether.

        Not in a plan that sends somebody away: whoever has the reservation may find room by that, so that the
        guest would be sent away in turn. After such a plan the instant is gone through once more.
        """

        if session.reclaimable is not None and session.reclaimable.evicted:
            return False
        # Rule 8 (guests): a guest leaves when the owner comes, so that its whole minimum must be preemptible.
        gangs = session.snapshot.gangs
        return session.snapshot.hints.has_reclaimable and all(
            gangs[int(self._pending.gang[row])].preemptible for row in self.rows_of(turn)
        )

    def key_of(self, turn: int) -> PlacementKey:
        """What a turn asks for."""
        return self.keys[int(self.key_index[turn])]

    def __len__(self) -> int:
        """How many turns there are."""
        return len(self.rows)

    def rows_of(self, turn: int) -> list[int]:
        """Pending rows that start together in this turn."""
        row = int(self.rows[turn])
        return self.members.get(row, [row])

    def keep(self, wanted: BoolArray) -> Turns:
        """The same order with some turns left out."""
        # The keys stay as they are, used or not: indices into them remain good.
        return Turns(self._pending, self.rows[wanted], (self.key_index[wanted], self.keys), self.members)

    def queue_caps(self, session: Session) -> IntArray:
        """The largest size of each placement key that the ceilings of each queue leave now."""
        # [queue, key]: one division for every gang of that queue and key.
        return session.limits.caps(self._asked_by_one(session), empty=False)[0]

    def counted_by_one(self, session: Session, column: int) -> IntArray:
        """What one member of each placement key asks of one kind; of a form with its sizes inside, all of it."""
        asked = [
            sum(int(find_need(session.fleet, role.shape).vector[column]) * (role.size or 1) for role in key.form.roles)
            for key in self.keys
        ]
        return np.array(asked, dtype=np.int64)

    def _asked_by_one(self, session: Session) -> IntArray:
        """What one member of each placement key asks of every kind; of a form with its sizes inside, all of it."""
        vectors = np.array([asked_units(session, key.form, 1) for key in self.keys])
        return vectors.reshape(len(self.keys), len(session.fleet.kinds))

    def limit_caps(self, session: Session, *, empty: bool) -> tuple[IntArray, IntArray]:
        """The largest size of each turn that its queues' and its user's ceilings leave, now or with nothing in use."""
        by_queue, by_user = session.limits.caps(self._asked_by_one(session), empty=empty)
        users = by_user[self.user, self.key_index]
        for turn, row in enumerate(self.rows.tolist()) if self.members else ():
            if row in self.members:  # each gang of a group counts for its own user
                offer = Offer(self.keys[int(self.key_index[turn])].form, 1, 0)
                # A yes or no stands for a size of 1 or 0: the size of a group is inside its form, and 1 in the column.
                users[turn] = session.limits.users_allow(list_shares(session, self, turn, offer), empty=empty)
        return by_queue[self.queue, self.key_index], users


def order_turns(session: Session) -> Turns:
    """Lay the pending gangs out in the policy's order."""
    pending = session.snapshot.pending
    # Gates first: one that is held may stand anywhere in the order and would only be skipped again.
    rows = (pending.alive & (pending.gate == 0)).nonzero()[0]
    rows = session.policy.order(session.snapshot, rows)
    # After the policy's own order, which it keeps among gangs of one person.
    if session.policy.shares_users and len(rows):
        rows = share_between_users(session.snapshot, rows)
    if session.dates is not None:
        rows = session.dates.put_first(rows)
    members: Groups = {}
    if session.snapshot.group_forms:
        rows, members = _merge_groups(session, rows)
    form = pending.form[rows]
    for turn, row in enumerate(rows.tolist()) if members else ():
        if row in members:
            # A group is placed by one form with all of its gangs inside: together or not at all.
            form[turn] = session.snapshot.group_forms[int(pending.group[row])]
    return Turns(pending, rows, _ask(session, form, rows, members), members)


def _merge_groups(session: Session, rows: IntArray) -> tuple[IntArray, dict[int, list[int]]]:
    group = session.snapshot.pending.group[rows]
    grouped = np.flatnonzero(group >= 0)
    gathered: dict[int, list[int]] = {}
    for at in grouped.tolist():
        gathered.setdefault(int(group[at]), []).append(int(rows[at]))
    members = {
        # At the place of its last gang (rule 15, together): nobody passes others by naming a friend who came early. The
        # rows inside are by number, as the gangs inside the group's form are.
        in_order[-1]: sorted(in_order, key=lambda row: int(session.snapshot.pending.gang[row]))
        for in_order in gathered.values()
    }
    keep = [row for row, number in zip(rows.tolist(), group.tolist(), strict=True) if number < 0 or row in members]
    return np.array(keep, dtype=np.int64), members


def _ask(session: Session, form: IntArray, rows: IntArray, members: Groups) -> tuple[IntArray, list[PlacementKey]]:
    forms = session.snapshot.forms
    # Nobody is exempt from anything, so that a form is all there is to a key.
    if all(window.maintenance for window in session.snapshot.windows):
        # Keys nobody uses cost a ceiling each; finding out which those are costs a sort of all turns.
        if len(forms) <= 64:  # few forms: number them as they are instead of finding the ones in use
            return form, [PlacementKey(each) for each in forms]
        used, index = np.unique(form, return_inverse=True)
        return index, [PlacementKey(forms[each]) for each in used.tolist()]
    keys: dict[PlacementKey, int] = {}
    asked = np.empty(len(form), dtype=np.int64)
    owners = (session.snapshot.pending.queue[rows].tolist(), session.snapshot.pending.user[rows].tolist())
    for turn, (number, q, u) in enumerate(zip(form.tolist(), *owners, strict=True)):
        exempt = session.exempt_of(q, u)
        for row in members.get(int(rows[turn]), ()):  # of several that start together, what all may use
            exempt &= session.exempt_of(q, int(session.snapshot.pending.user[row]))
        # The session's view must know which nodes are usable for each set of exemptions before it is asked.
        session.ask_as(exempt)
        asked[turn] = keys.setdefault(PlacementKey(forms[number], exempt), len(keys))
    return asked, list(keys)


@dataclass(frozen=True, slots=True)
class Offer:
    """One size at which a turn may start: its form at that size, and how long it would run."""

    form: Form
    size: int
    length_us: int


def list_offers(session: Session, turns: Turns, turn: int) -> list[Offer]:
    """Sizes to try, largest first. A rigid gang, or several that start together, have one."""
    key, length = turns.key_of(turn), int(turns.length_us[turn])
    row = int(turns.rows[turn])
    # Rule 15 (together) covers the start only: elastic gangs of a group start at their least and may grow later.
    if row in turns.members or not session.snapshot.pending.elastic[row]:
        return [Offer(key.form, int(turns.size[turn]), length)]
    number = int(session.snapshot.pending.gang[row])
    gang = session.snapshot.gangs[number]
    pinned = session.snapshot.pins.get(number)
    if pinned is not None:
        # A pinned size is a wish (`resize`): if it does not fit, the gang starts at its least and the wish stays.
        wanted = tuple(pinned if role.sizes.elastic else role.sizes.least for role in gang.roles)
        sizes = list(dict.fromkeys((wanted, tuple(role.sizes.least for role in gang.roles))))
    elif session.policy.moldable:
        # Moldable (Feitelson and Rudolph): the size is chosen once, at the start. Bounded by what fits on nodes in all.
        sizes = list_sizes(gang, session.view.slots(key.form.roles[0].shape, key.exempt).total)
        sizes = keep_efficient(gang, curve_of(session.snapshot, number), sizes, session.policy.mold_efficiency)
    else:
        # Malleable: minimums go to everyone in order first (rule 1), and surplus is shared out at the end of the cycle.
        if key.form.open_size:
            return [Offer(key.form, gang.roles[0].sizes.least, int(session.snapshot.pending.least_us[row]))]
        sizes = [tuple(role.sizes.least for role in gang.roles)]
    return [offer_at(session, key, number, each, length) for each in sizes]


def fit_domain(session: Session, view: View, turn: int, turns: Turns, offer: Offer, places: Places) -> Places:
    """An elastic gang that starts at its least goes where most of its range would fit, if a level matters to it."""
    row = int(turns.rows[turn])
    role = offer.form.roles[0]
    if session.policy.moldable or not offer.form.open_size or not session.snapshot.pending.elastic[row]:
        return places
    if max(role.require, role.prefer) == ANYWHERE or row in turns.members:
        return places
    exempt = turns.key_of(turn).exempt
    gang = session.snapshot.gangs[int(session.snapshot.pending.gang[row])]
    # Rule 15 (topology): the domain that now holds the most of its range, then best fit. The gang is placed at the
    # largest size that fits and cut back to its least, which leaves it in that domain with room to grow.
    undo(view, offer.form, places)
    # Asked with the gang's own places free again, or it would be in its own way.
    most = find_ceiling(view, offer.form, exempt)
    wider = [size for size in gang.roles[0].sizes.allowed if offer.size < size <= most]
    found = place(view, Wish(offer.form, wider[-1], exempt)) if wider else NoPlace()
    if isinstance(found, NoPlace):
        retake(view, offer.form, places)
        return places
    seats = found[0][0]
    kept = drop_tail(session.fleet, role.shape, seats, seats.members - offer.size)
    view.take_seats(find_need(session.fleet, role.shape), subtract_seats(seats, kept), sign=-1)
    return ((kept,),)


def offer_at(session: Session, key: PlacementKey, number: int, sizes: tuple[int, ...], length: int) -> Offer:
    """An elastic gang at one size, with its believed run time there."""
    gang, curve = session.snapshot.gangs[number], curve_of(session.snapshot, number)
    members = elastic_members(gang, sizes)
    most = elastic_members(gang, tuple(role.sizes.most for role in gang.roles))
    # Rule 6 (time): stated at the largest size, times S(max) / S(n). Linear from 8 to 2 members: four times as long.
    span = scaled_us(length, curve, most, members)
    if key.form.open_size:
        return Offer(key.form, sizes[0], span)
    return Offer(form_at_sizes(session.fleet, ((gang, sizes),)), 1, span)


def find_over_limit(session: Session, turns: Turns, turn: int, offer: Offer) -> OverLimit | None:
    """The ceiling that starting a turn at an offer would pass, if any."""
    if not session.limits.any:
        return None
    return session.limits.check_unit(int(turns.queue[turn]), list_shares(session, turns, turn, offer))


def list_shares(session: Session, turns: Turns, turn: int, offer: Offer) -> list[tuple[int, IntArray]]:
    """(user, what is asked of every kind) of each gang of a turn."""
    rows = turns.rows_of(turn)
    # Gangs of a group may be different people's; each is charged to its own.
    forms = [offer.form] if len(rows) == 1 else [Form((gang,)) for gang in offer.form.gangs]
    users = session.snapshot.pending.user
    return [(int(users[row]), asked_units(session, form, offer.size)) for row, form in zip(rows, forms, strict=True)]


def start_turn(
    session: Session, turns: Turns, turn: int, offer: Offer, places: Places, *, guest: Guest = Guest.NO
) -> None:
    """Write a start down: the binds, the end for the calendar, the charge to queue and users. Room is the walk's."""
    now, pending, rows = session.snapshot.now_us, session.snapshot.pending, turns.rows_of(turn)
    for row, gang, seats in zip(rows, offer.form.gangs, places, strict=True):
        # Starting together says nothing about ending together.
        length = offer.length_us if len(rows) == 1 else int(pending.least_us[row])
        session.binds.append(Bind(int(pending.gang[row]), seats, length, guest))
        form = offer.form if len(rows) == 1 else Form((gang,))
        # A guest counts as gone in the next moment: to the owner of the reservation above it, its seats are free.
        session.bound.append((form, (seats,), now + 1 if guest else now + length))
    # Without any of these nobody reads the usage before the plan is folded.
    if session.limits.any or session.policy.standing or session.policy.takes:
        for user, asked in list_shares(session, turns, turn, offer):
            session.charge(int(turns.queue[turn]), user, asked)


def keep_efficient(
    gang: Gang, curve: Speedup, sizes: list[tuple[int, ...]], efficiency: float
) -> list[tuple[int, ...]]:
    """Sizes at which a device does at least so much of what one does at the minimum (rule 16, molding).

    Once started it keeps its size, so that devices which hardly help it are lost to everybody until it ends.
    """
    least = tuple(role.sizes.least for role in gang.roles)
    m = elastic_members(gang, least)
    speed = speedup_at(curve, m)
    kept = []
    for each in sizes:
        n = elastic_members(gang, each)
        # S(n)·m ≥ e·S(m)·n, without a division; a hair of slack, since tables are decimal.
        if each == least or speedup_at(curve, n) * m >= efficiency * speed * n * (1 - 1e-9):
            kept.append(each)
    return kept or [least]


def list_sizes(gang: Gang, room: int) -> list[tuple[int, ...]]:
    """Sizes of all roles, largest first, one role shrinking at a time; of a single role none that `room` forbids."""
    if len(gang.roles) == 1:
        allowed = gang.roles[0].sizes.allowed
        # Sizes beyond `room` cannot fit. The least stays in any case: there must be something to be blocked with.
        fitting = allowed[: max(bisect_right(allowed, room), 1)]
        # From the largest down. A gang with thousands of sizes is tried at the first 128, then at its least.
        tried = fitting[: -SIZES_TRIED - 1 : -1]
        return [(size,) for size in (tried if tried[-1] == allowed[0] else (*tried, allowed[0]))]
    at = [len(role.sizes.allowed) - 1 for role in gang.roles]
    found: list[tuple[int, ...]] = []
    while len(found) < SIZES_TRIED:
        found.append(tuple(role.sizes.allowed[i] for role, i in zip(gang.roles, at, strict=True)))
        # The last role gives first. Every combination would be a product; this is a path from all largest to all least.
        shrinkable = [index for index, i in enumerate(at) if i]
        if not shrinkable:
            return found
        at[shrinkable[-1]] -= 1
    return [*found, tuple(role.sizes.least for role in gang.roles)]


def asked_units(session: Session, form: Form, size: int) -> IntArray:
    """What a form at a size takes of every kind."""
    total = np.zeros(len(session.fleet.kinds), dtype=np.int64)
    for role in form.roles:
        total += find_need(session.fleet, role.shape).vector * (role.size or size)
    return total
