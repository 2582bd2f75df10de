"""Walk down the order: start what fits, give the blocked head of each pool a reservation, let others pass.

This is the fast walk: at most one reservation per pool, no administrative windows. Room then grows
with time except at the reservations' starts, so what a gang may use is the room now (if it ends by
a reservation's start) or the lesser of now and then (if it does not). Those are two arrays, and most
gangs are dismissed by comparing their size with one number per placement key, a whole block at a time.

`engine.actions.plan_ahead` is the general walk; tests hold the two to the same starts and promised times.
Places may differ beside a reservation, where one breaks ties by what is free now and the other throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.calendar.limits_ahead import leaves_limits
from phalanx.engine.calendar.releases import Start, find_shadow, find_start
from phalanx.engine.kernels.devices import keep_devices
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.making_room.preemption import RoomFinder, RoomFound
from phalanx.engine.order.queue_turns import QueueTurns
from phalanx.engine.order.turns import Offer, Turns, find_over_limit, fit_domain, list_offers, start_turn
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import First, NoPlace, Places, Wish, find_ceiling, place, retake, undo
from phalanx.engine.room.seats import cover_nodes
from phalanx.engine.room.view import Exempt, View, find_need
from phalanx.engine.session import PlacementKey, Session, empty_ceiling
from phalanx.model.fleet import BoolArray, IntArray, MilliArray
from phalanx.model.form import Form, RoleForm
from phalanx.model.plan import Guest, Reservation, Seats
from phalanx.model.reason import Code

_NO_INSTANTS = np.zeros(0, dtype=np.int64)
VISIT, FILL, STOPPED = 0, 1, 2  # how the turns of a placement key are looked at
BIG = 1 << 40
BLOCK = 1024  # turns that are screened at once
SHORT = 64  # so many turns are walked one by one


@dataclass(slots=True, eq=False)
class Head:
    """A blocked gang with a reservation, or with the right to one that nobody has needed yet."""

    turn: int
    pool: BoolArray
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """What sums tell of the one head: when it starts, and how many slots of its placement key it leaves then."""

    index: int  # of that key
    at_us: int  # NEVER: sums do not tell
    extra: int


class Walk:
    """One walk over the turns of a session."""

    def __init__(self, session: Session, turns: Turns) -> None:
        """Nothing is known yet: every placement key is visited and has an unknown ceiling."""
        self.session, self.turns = session, turns
        self.now = session.snapshot.now_us
        self.mode = np.zeros(len(turns.keys), dtype=np.int8)
        self.ceilings = np.full((1, len(turns.keys)), BIG, dtype=np.int64)
        self.views = [session.view]
        self.heads: list[Head] = []
        self.shadows: list[Head] = []  # heads whose start is known, by start
        self.instants = _NO_INSTANTS
        self.started = np.zeros(len(turns), dtype=np.bool_)
        self.undecided: set[int] = set()
        limits = session.limits.any
        self.limit_caps = turns.queue_caps(session) if limits else None

        self._service: dict[int, int] = {}  # ceilings on the nodes in service, were they empty
        self._undecided_now = False
        self._sums: Sums | None = None
        self._gone: IntArray | None = None
        self._sizes = turns.size.tolist()
        self._key_index = turns.key_index.tolist()
        self.finder = None if session.reclaimable is None else RoomFinder(session, turns, self, session.reclaimable)

    @property
    def gone(self) -> IntArray:
        """When each gang is provably gone; without a stated walltime never: no reservation may count on it."""
        if self._gone is None:
            self._gone = np.where(self.turns.proven, self.now + self.turns.length_us, NEVER)
        return self._gone

    # -------------------------------------------------------------- the walk

    def run(self) -> None:
        """Give every turn its chance, in order."""
        fill = self.session.policy.fill == "arrival"
        line = QueueTurns(self.session, self.turns)
        while line.left:
            order = line.next_stretch()
            if len(order) <= SHORT:
                line.done(self._pass_over_short(order.tolist(), fill=fill, until_start=line.moves))
            else:
                line.done(self._pass_over(order, fill=fill, until_start=line.moves))
        if self.session.policy.fill == "shortest" and self.heads:
            waiting = ~self.started & (self.mode[self.turns.key_index] == FILL)
            waiting[[head.turn for head in self.heads]] = False  # they have their reservation, and fill nothing
            left = np.flatnonzero(waiting)
            lengths = self.turns.least_lengths(self.session)[left]
            self._pass_over(left[np.argsort(lengths, kind="stable")], fill=True)

    def _pass_over_short(self, order: Sequence[int], *, fill: bool, until_start: bool = False) -> int:
        """The same as `_pass_over`, turn by turn: below some dozens of turns that is cheaper than arrays."""
        for at, turn in enumerate(order):
            index, size = self._key_index[turn], self._sizes[turn]
            mode = self.mode[index]
            if mode == STOPPED or (mode == FILL and not fill):
                continue
            if self.finder is None:
                if mode == FILL and size > self.ceilings[self._level(turn), index]:
                    continue
                if self.limit_caps is not None and size > self.limit_caps[self.turns.queue[turn], index]:
                    continue
            self._visit(turn)
            if until_start and self.started[turn]:
                return at + 1
        return len(order)

    def _level(self, turn: int) -> int:
        """Which view a rigid gang of this length may use; somebody who may be a guest, the widest."""
        if not self.shadows or self.session.snapshot.soft:
            return 0
        return int(self.instants.searchsorted(self.gone[turn]))

    def _pass_over(self, order: IntArray, *, fill: bool, until_start: bool = False) -> int:
        """Visit whoever might start; the answer is how many turns are dealt with."""
        at = 0
        while at < len(order) and not self.heads and self.limit_caps is None:
            turn = int(order[at])
            self._visit(turn)  # nobody is blocked yet, so everybody is looked at
            at += 1
            if until_start and self.started[turn]:
                return at
        while at < len(order):
            if self.session.policy.stops and self.heads and bool((self.mode == STOPPED).all()):
                break
            block = order[at : at + BLOCK]
            look = self._worth_a_look(block, fill=fill)
            hit = int(look.argmax())
            if not look[hit]:
                at += len(block)
                continue
            at += hit + 1
            turn = int(block[hit])
            self._visit(turn)
            if until_start and self.started[turn]:
                return at
        return len(order)

    def _worth_a_look(self, block: IntArray, *, fill: bool) -> BoolArray:
        """Turns that are not yet known to fail: ceilings only fall within a walk."""
        index, size = self.turns.key_index[block], self.turns.size[block]
        mode = self.mode[index]
        look: BoolArray = mode == VISIT
        if self.heads and fill:
            soft = self.session.snapshot.soft
            level = self.instants.searchsorted(self.gone[block]) if self.shadows and not soft else 0
            look |= (mode == FILL) & (size <= self.ceilings[level, index])
            if self._sums is not None and not self.shadows and not soft:
                sums = self._sums
                look &= (self.gone[block] <= sums.at_us) | (size <= sums.extra) | (index != sums.index)
        if self.limit_caps is not None:
            look &= size <= self.limit_caps[self.turns.queue[block], index]
        if self.finder is not None:
            look |= self.finder.might_help(block, self.mode, fill=fill)
        return look

    def _visit(self, turn: int) -> None:
        index, size = self._key_index[turn], self._sizes[turn]
        key = self.turns.keys[index]
        if size > self._service_ceiling(index, key):
            return  # not on the nodes in service even if empty: it neither reserves nor blocks
        filling = bool(self.mode[index] == FILL)
        if self.limit_caps is not None and self._over_limit(turn, index, key.form, size):
            self._take(turn, key, filling=filling)
            return
        if filling and self._refuse_by_sums(turn, index, size) and not self.turns.may_be_guest(self.session, turn):
            self._take(turn, key, filling=True)
            return
        if filling:
            self._compute_reservations()
        outcome = self._try_offers(turn, index, key)
        if outcome is not None:
            self._start(turn, *outcome)
        elif not self._take(turn, key, filling=filling) and not filling and turn not in self.undecided:
            self._block(turn, key)

    def _take(self, turn: int, key: PlacementKey, *, filling: bool) -> bool:
        """Start a blocked gang at the expense of running ones, if anybody lets it."""
        if self.finder is None:
            return False
        if filling:
            self._compute_reservations()
        taken = self.finder.find(turn, key, filling=filling)
        if taken is None:
            return False
        self._commit(turn, taken)
        return True

    def _commit(self, turn: int, taken: RoomFound) -> None:
        assert self.finder is not None
        self.finder.commit(taken, int(self.session.snapshot.pending.gang[self.turns.rows[turn]]))
        self.ceilings[:] = BIG  # there is more room than there was
        self._sums = None
        retake(self.session.view, taken.offer.form, taken.places)
        start_turn(self.session, self.turns, turn, taken.offer, taken.places)
        self.started[turn] = True
        if self.shadows:
            self._settle(taken.offer.form, taken.places, taken.gone_us)
        self.finder.settle_moves(taken)
        self.limit_caps = self.turns.queue_caps(self.session) if self.session.limits.any else None

    # -------------------------------------------------------------- calendar

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until then, with releases; a copy of its own."""
        level = int(self.instants.searchsorted(gone_us)) if self.shadows else 0
        base = self.views[level]
        view = View(self.session.fleet, base.free, base.device_free, shared=base.shared, usable=self.session.in_service)
        view.usable_by_exempt = base.usable_by_exempt
        if not releases:
            return view
        now = self.session.view
        nodes = np.unique(np.concatenate([seats.nodes for release in releases for seats in release.seats]))
        free, devices = self._with_releases(now, nodes, releases, -1)
        for head in self.shadows[:level]:
            assert head.start is not None
            then, then_devices = self._with_releases(head.start.view, nodes, releases, head.start.at_us)
            free = np.minimum(free, then)
            devices = self._devices_left(devices, then_devices, free)
        view.overwrite(nodes, free, devices)
        return view

    def _with_releases(
        self, view: View, nodes: IntArray, releases: Sequence[Release], at_us: int
    ) -> tuple[IntArray, MilliArray]:
        """Room of some nodes with releases; at a later instant without those that are gone by then anyway."""
        free, devices = view.free[nodes].copy(), view.device_free[nodes].copy()
        for release in releases:
            if at_us >= 0 and (release.occupant.end_us <= at_us or release.occupant.guest):
                continue
            for seats in release.seats:
                need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
                at = nodes.searchsorted(seats.nodes)
                free[at] += seats.counts[:, None] * need.vector
                devices[at] += seats.devices
        return free, devices

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Without a stated walltime nobody knows, so that no reservation may count on it."""
        return self.now + offer.length_us if self.turns.proven[turn] else NEVER

    def name_devices(self, form: Form, places: Places) -> Places:
        """The devices of a trial are real ones here."""
        return places

    def give(self, release: Release) -> None:
        """Seats given back are free later as well, unless that was counted on already."""
        for head in self.shadows:
            assert head.start is not None
            if release.occupant.end_us > head.start.at_us and not release.occupant.guest:
                for seats in release.seats:
                    need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
                    head.start.view.take_seats(need, seats, sign=-1)
        for seats in release.seats if self.shadows else ():
            self._settle_nodes(seats.nodes)

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats taken are missing later as well, until they are given back."""
        for head in self.shadows:
            assert head.start is not None
            if head.start.at_us < gone_us:
                head.start.view.take_seats(need, seats, sign)
        if self.shadows:
            self._settle_nodes(seats.nodes)

    def _service_ceiling(self, index: int, key: PlacementKey) -> int:
        found = self._service.get(index)
        if found is None:
            found = empty_ceiling(self.session.fleet, key.form, self.session.in_service)
            self._service[index] = found
        return found

    def _over_limit(self, turn: int, index: int, form: Form, size: int) -> bool:
        """Whether a ceiling forbids the start; its size is then remembered, since usage only grows in a walk."""
        over = find_over_limit(self.session, self.turns, turn, Offer(form, size, 0))
        if over is not None and over.code is Code.QUEUE_LIMIT and self.limit_caps is not None:
            queue = int(self.turns.queue[turn])
            self.limit_caps[queue, index] = min(int(self.limit_caps[queue, index]), size - 1)
        return over is not None

    # -------------------------------------------------------------- starting

    def _try_offers(self, turn: int, index: int, key: PlacementKey) -> tuple[Offer, Places, int, Guest] | None:
        """The largest size that fits where the gang may go; as a guest, where it may not stay."""
        for offer in list_offers(self.session, self.turns, turn):
            level = 0
            if self.shadows:
                level = int(self.instants.searchsorted(self.gone_us(turn, offer)))
            places = self._try_at(turn, index, key, offer, level)
            if places is not None:
                return offer, places, level, Guest.NO
            if level and self.turns.may_be_guest(self.session, turn):
                places = self._try_at(turn, index, key, offer, 0)
                if places is not None:
                    return offer, places, 0, Guest.WHOLE
        return None

    def _try_at(self, turn: int, index: int, key: PlacementKey, offer: Offer, level: int) -> Places | None:
        """Places in one of the views, taken; None if there are none."""
        if offer.form.open_size or offer.form == key.form:
            ceiling = find_ceiling(self.views[level], offer.form, key.exempt)
            if ceiling < offer.size:
                self.ceilings[level, index] = min(int(self.ceilings[level, index]), ceiling)
                return None
        if self.session.limits.any and not self._limits_allow(turn, offer):
            return None
        places = self._place_in(level, Wish(offer.form, offer.size, key.exempt), index)
        if places is None:
            if self._undecided_now:
                self.undecided.add(turn)
            return None
        return fit_domain(self.session, self.views[level], turn, self.turns, offer, places)

    def _limits_allow(self, turn: int, offer: Offer) -> bool:
        """Neither over a ceiling now, nor in the way of a head that will need it."""
        if find_over_limit(self.session, self.turns, turn, offer) is not None:
            return False
        self._compute_reservations()  # a ceiling holds for all pools, so every head must be known
        reserved = [(head.turn, head.start.at_us) for head in self.shadows if head.start is not None]
        return leaves_limits(self.session, self.turns, turn, offer, self.gone_us(turn, offer), reserved)

    def _place_in(self, level: int, wish: Wish, index: int) -> Places | None:
        """Take seats in one of the views; `_start` settles the others."""
        view = self.views[level]
        if level == 0 and self.shadows:
            wish = Wish(wish.form, wish.size, wish.exempt, first=self._reserved_but_idle(wish))
        places = place(view, wish)
        self._undecided_now = isinstance(places, NoPlace) and places.undecided
        if isinstance(places, NoPlace):
            if not self._undecided_now:
                self.ceilings[level, index] = min(self.ceilings[level, index], wish.size - 1)
            return None
        return places

    def _reserved_but_idle(self, wish: Wish) -> First:
        def first(role: RoleForm) -> IntArray:
            now = self.views[0].slots(role.shape, wish.exempt).slots
            kept = self.views[-1].slots(role.shape, wish.exempt).slots
            # Between the roles of one gang the first view has moved on already.
            idle: IntArray = np.maximum(now - kept, 0)
            return idle

        return first

    def _start(self, turn: int, offer: Offer, places: Places, level: int, guest: Guest) -> None:
        session = self.session
        start_turn(session, self.turns, turn, offer, places, guest=guest)
        self.started[turn] = True
        if level:
            undo(self.views[level], offer.form, places)
            retake(session.view, offer.form, places)
        if self.shadows:
            self._settle(offer.form, places, self.now if guest else self.gone_us(turn, offer))

    def _settle(self, form: Form, places: Places, gone_us: int) -> None:
        """Take the seats out of every later instant at which they are still taken."""
        for head in self.shadows:
            if head.start is not None and head.start.at_us < gone_us:
                retake(head.start.view, form, places)
        for seats_by_role in places:
            for seats in seats_by_role:
                self._settle_nodes(seats.nodes)

    def _settle_nodes(self, nodes: IntArray) -> None:
        """Bring the later views up to date on nodes whose room changed."""
        free, device_free = self.session.view.free[nodes], self.session.view.device_free[nodes]
        for view, head in zip(self.views[1:], self.shadows, strict=True):
            assert head.start is not None
            free = np.minimum(free, head.start.view.free[nodes])
            device_free = self._devices_left(device_free, head.start.view.device_free[nodes], free)
            view.overwrite(nodes, free, device_free)

    # -------------------------------------------------------------- blocking

    def _block(self, turn: int, key: PlacementKey) -> None:
        """The head of a pool: stop those behind it, or let them fill around its reservation."""
        policy = self.session.policy
        if policy.reservations == 0 and not policy.stops:
            return
        head = Head(turn, self.session.pool_of(key))
        self.heads.append(head)
        mode = FILL if policy.reservations else STOPPED
        if len(self.turns.keys) == 1:
            self.mode[0] = mode
            return
        pools: dict[bytes, bool] = {}
        for index, other in enumerate(self.turns.keys):
            if self.mode[index] != VISIT:
                continue
            pool = self.session.pool_of(other)
            meets = pools.get(pool.tobytes())
            if meets is None:
                meets = pools[pool.tobytes()] = bool((pool & head.pool).any())
            if meets:
                self.mode[index] = mode

    def _devices_left(self, now: MilliArray, then: MilliArray, free: IntArray) -> MilliArray:
        """Devices that are free now and then. Of devices never split, any will do: as many as the amounts say."""
        if self.session.view.shared:
            return np.minimum(now, then)
        column = self.session.fleet.device_column
        return now if column < 0 else keep_devices(now, free[:, column])

    def _refuse_by_sums(self, turn: int, index: int, size: int) -> bool:
        """Whether sums alone show that a filler would delay the one reservation there is.

        Where head and filler ask the same placement key about the whole cluster, places do not matter: it may
        start if it is gone by the head's start, or if it fits beside the head then. Most fillers fail
        this, and failing it costs no view of the future.
        """
        if self.shadows or len(self.heads) != 1 or self._key_index[self.heads[0].turn] != index:
            return False
        if self._sums is None:
            head = self.heads[0].turn
            shadow_us, extra = find_shadow(self.session, self.turns.keys[index], self._sizes[head])
            self._sums = Sums(index, shadow_us, extra)
        return self._sums.at_us != NEVER and int(self.gone[turn]) > self._sums.at_us and size > self._sums.extra

    def _compute_reservations(self) -> None:
        """Find starts that somebody now wants to fill around. Most passes end without needing them."""
        missing = [head for head in self.heads if head.start is None]
        if not missing:
            return
        for head in missing:
            key, size = (
                self.turns.key_of(head.turn),
                int(self.turns.size[head.turn]),
            )
            known_us = self._sums.at_us if self._sums is not None and len(self.heads) == 1 else NEVER
            head.start = find_start(self.session, key, size, known_us)
        known = [(head.start.at_us, head) for head in self.heads if head.start is not None]
        known.sort(key=lambda each: each[0])
        self.shadows = [head for _, head in known]
        self.instants = np.array([at_us for at_us, _ in known], dtype=np.int64)
        self._make_views()

    def _make_views(self) -> None:
        """What is free now, and what is free now and at the first start, and at the first two, and so on."""
        base = self.session.view
        self.views = [base]
        free, device_free = base.free, base.device_free
        for head in self.shadows:
            assert head.start is not None
            free = np.minimum(free, head.start.view.free)
            device_free = self._devices_left(device_free, head.start.view.device_free, free)
            view = View(self.session.fleet, free, device_free, shared=base.shared, usable=self.session.in_service)
            view.usable_by_exempt = base.usable_by_exempt
            self.views.append(view)
        # Less room later: what did not fit now does not fit then.
        self.ceilings = np.repeat(self.ceilings[:1], len(self.views), axis=0)

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which a head will start."""
        return cover_nodes(len(self.session.fleet), self.list_reservations())

    def next_start_us(self) -> int:
        """The first reserved start."""
        self._compute_reservations()
        return int(self.instants[0]) if len(self.instants) else NEVER

    def why_not(self, turn: int) -> Code:
        """Of a gang that has room now: whether the order or a reservation keeps it waiting."""
        return Code.RESERVED if self.mode[self.turns.key_index[turn]] == FILL else Code.BEHIND

    def list_reservations(self) -> tuple[Reservation, ...]:
        """The reservations of this walk, worked out now if nobody asked before."""
        self._compute_reservations()
        found = []
        for head in self.shadows:
            assert head.start is not None
            gangs = tuple(int(self.session.snapshot.pending.gang[row]) for row in self.turns.rows_of(head.turn))
            end = head.start.at_us + int(self.turns.length_us[head.turn])
            found.append(Reservation(gangs, head.start.at_us, end, head.start.places))
        return tuple(found)
