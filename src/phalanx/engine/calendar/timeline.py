"""The whole calendar: planned ends, reservations with places, and administrative windows.

Per node, what is free from each instant on. Claims (reservations) are added and taken away; a
window is not a claim but a cut, since it binds some gangs and not others. This is the general
calendar; `engine.calendar.releases` is the short cut for when only ends lie ahead.

Asked for an earliest start (`find_start`) or for places over a stretch (`place_over`), it answers and claims nothing:
that is for `engine.calendar.long`. Two forms of one truth are kept. The lines say what is free on each node at each
step; the lanes (`engine.kernels.lanes`), made from the lines shape by shape, say how many members fit for how long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import add

import numpy as np

from phalanx.engine.calendar.releases import collect_ends
from phalanx.engine.kernels.devices import keep_devices
from phalanx.engine.kernels.fill import SlotRoom, choose_nodes
from phalanx.engine.kernels.lanes import LaneTable, cut_lanes, trace_lanes
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.room.placement import First, NoPlace, Places, Wish, find_ceiling, make_room, place
from phalanx.engine.room.view import Exempt, View, find_need
from phalanx.engine.session import PlacementKey, Session
from phalanx.model.fleet import IntArray
from phalanx.model.form import Form, RoleForm
from phalanx.model.gang import Shape
from phalanx.model.plan import Seats
from phalanx.model.resources import MILLI
from phalanx.model.topology import ANYWHERE


@dataclass(slots=True)
class NodeLine:
    """One node: from `times[i]` until `times[i + 1]`, `free[i]` by kind and `devices[i]` by device."""

    times: list[int]
    free: list[tuple[int, ...]]
    devices: list[tuple[int, ...]]

    def cut_at(self, at_us: int) -> int:
        """Index of the step that begins exactly then, made if there is none."""
        # Never before the first step, which is now: `change` takes care of that.
        index = bisect_left(self.times, at_us)
        if index < len(self.times) and self.times[index] == at_us:
            return index
        self.times.insert(index, at_us)
        self.free.insert(index, self.free[index - 1])
        self.devices.insert(index, self.devices[index - 1])
        return index

    def change(self, start_us: int, end_us: int, free: tuple[int, ...], devices: tuple[int, ...]) -> bool:
        """Add to what is free over a stretch (negative: a claim). False if something falls below zero."""
        low = self.cut_at(max(start_us, self.times[0]))

        high = self.cut_at(end_us) if end_us < NEVER else len(self.times)
        sound = True
        for index in range(low, high):
            level = tuple(map(add, self.free[index], free))
            self.free[index] = level
            # On to the end even if it is unsound: a claim is undone by its opposite, which must find all of it.
            sound = sound and min(level) >= 0
            if devices:
                shares = tuple(map(add, self.devices[index], devices))
                self.devices[index] = shares
                sound = sound and min(shares, default=0) >= 0
        return sound

    def least(self, start_us: int, end_us: int) -> tuple[list[int], list[int]]:
        """The least of every kind and device over a stretch."""
        # The step that is under way at the start counts, one that begins at the end does not.
        low = max(bisect_right(self.times, start_us) - 1, 0)
        high = max(bisect_left(self.times, end_us), low + 1)
        free = [min(column) for column in zip(*self.free[low:high], strict=True)]
        devices = [min(column) for column in zip(*self.devices[low:high], strict=True)]
        return free, devices


class Timeline:
    """All nodes from now on."""

    def __init__(self, session: Session) -> None:
        """What is free now, growing as running gangs end."""
        self.session = session
        self.fleet = session.fleet
        self.now = session.snapshot.now_us
        # Devices only where one was ever split: else amounts say it all.
        self._with_devices = session.view.shared
        view = session.view
        nothing: tuple[int, ...] = ()
        self.lines = [
            NodeLine([self.now], [tuple(free)], [tuple(devices) if self._with_devices else nothing])
            for free, devices in zip(view.free.tolist(), view.device_free.tolist(), strict=True)
        ]
        # What runs, and what this plan has bound or taken back so far. Guests end in the next moment (rule 8): to
        # owners of reservations their seats are free.
        ends = collect_ends(session)
        # In order of time each end is appended at the tail of its line, and nothing behind it has to be raised.
        order = np.lexsort((ends.end_us, ends.node)).tolist()
        nodes, ends_us, taken = ends.node.tolist(), ends.end_us.tolist(), ends.taken.tolist()
        devices = ends.devices.tolist() if self._with_devices else None
        for row in order:
            given = tuple(devices[row]) if devices is not None else nothing
            self.lines[nodes[row]].change(ends_us[row], NEVER, tuple(taken[row]), given)
        self._tables: dict[tuple[Shape, Exempt, bool], LaneTable] = {}
        # Nodes whose lanes are out of date, by shape: a claim touches a few nodes, and lanes cost a walk along each
        # line.
        self._dirty: dict[tuple[Shape, Exempt, bool], set[int]] = {}
        self.last_claim_us = self.now  # the latest start of any claim

    # ------------------------------------------------------------------ claims

    def claim(self, form: Form, places: Places, start_us: int, end_us: int, sign: int = -1) -> bool:
        """Take room over a stretch (sign 1: give it back). False if there was not enough; then it must be undone."""
        sound = True
        for gang, seats_by_role in zip(form.gangs, places, strict=True):
            for seats in seats_by_role:
                need = find_need(self.fleet, gang.roles[seats.role].shape)
                sound &= self.claim_seats(need, seats, start_us, end_us, sign)
        if sign < 0:
            # Not lowered when a claim is undone: it only bounds how far `_kept_for_later` looks ahead.
            self.last_claim_us = max(self.last_claim_us, start_us)
        return sound

    def claim_seats(self, need: Need, seats: Seats, start_us: int, end_us: int, sign: int) -> bool:
        """The same for the seats of one role."""
        sound, each = True, need.vector.tolist()
        nodes = seats.nodes.tolist()
        for row, (node, count) in enumerate(zip(nodes, seats.counts.tolist(), strict=True)):
            free = tuple(sign * count * units for units in each)
            devices = tuple(sign * milli for milli in seats.devices[row].tolist()) if self._with_devices else ()
            sound &= self.lines[node].change(start_us, end_us, free, devices)
        for dirty in self._dirty.values():
            dirty.update(nodes)
        return sound

    # ------------------------------------------------------------------ lanes

    def lanes(self, shape: Shape, exempt: Exempt, *, windows: bool = True) -> LaneTable:
        """Lanes of a shape, up to date; without cutting windows out, if so wanted."""
        key = (shape, exempt, windows)
        table = self._tables.get(key)
        if table is None:
            # By exemption as well: to whom a window was made for, it is no cut.
            table = self._tables[key] = LaneTable()
            self._dirty[key] = set(range(len(self.lines)))
        dirty = self._dirty[key]
        if dirty:
            need = find_need(self.fleet, shape)
            usable = need.allowed & self.session.in_service
            flags = np.zeros(len(self.lines), dtype=np.bool_)
            nodes = sorted(dirty)
            flags[nodes] = True
            table.replace(flags, {n: self._node_lanes(n, need, exempt, cut=windows) for n in nodes if usable[n]})
            dirty.clear()
        return table

    def _node_lanes(self, node: int, need: Need, exempt: Exempt, *, cut: bool) -> list[tuple[int, int, int]]:
        line = self.lines[node]
        lanes = trace_lanes(line.times, self._count(need, line))
        if cut:
            for index, window in enumerate(self.session.snapshot.windows):
                if index not in exempt and self.session.window_masks[index][node]:
                    lanes = cut_lanes(lanes, window.start_us, window.end_us)
        return lanes

    def _count(self, need: Need, line: NodeLine) -> list[int]:
        """Members that one node holds during each of its steps."""
        if need.missing is not None:
            # A kind that no node has: there is no column to divide.
            return [0] * len(line.times)
        rooms = []
        for column, amount in zip(need.columns, need.amounts, strict=True):
            if column == self.fleet.device_column and need.share:
                rooms.append([sum(milli // need.share for milli in devices) for devices in line.devices])
            elif column == self.fleet.device_column and self._with_devices:
                # As in `kernels.slots`: whole requests need untouched devices, shares count device by device.
                rooms.append([sum(milli == MILLI for milli in devices) // need.whole for devices in line.devices])
            else:
                rooms.append([free[column] // amount for free in line.free])
        return rooms[0] if len(rooms) == 1 else [min(each) for each in zip(*rooms, strict=True)]

    # ------------------------------------------------------------------ keys

    def find_start(
        self, key: PlacementKey, size: int, length_us: int, latest_us: int = NEVER
    ) -> tuple[int, Places] | None:
        """The earliest whole placement that lasts, not later than `latest_us`; the places are not claimed."""
        form = key.form
        # Each role by itself: no instant before that can do for all of them together.
        at_us = max(self._lower_bound(key, role, role.size or size, length_us) for role in form.roles)
        if at_us > latest_us or at_us == NEVER:
            return None
        # Exact: the lanes have counted what fits, so that placing at that instant cannot fail for lack of room.
        if self._simple(form):
            places = self.place_over(key, form, size, at_us, length_us)
            return None if places is None else (at_us, places)
        # Several roles, groups or split devices: sums may hold what places do not. Every instant at which anything
        # changes is tried in turn; between two of them nothing new can fit.
        for instant in self._instants(at_us):
            if instant > latest_us:
                break
            places = self.place_over(key, form, size, instant, length_us)
            if places is not None:
                return instant, places
        return None

    def _simple(self, form: Form) -> bool:
        """One role, no groups, no shared devices, no rules or wishes: the lanes alone tell the start."""
        role = form.roles[0]
        return form.open_size and role.segment_size <= 1 and role.shape.plain and not self._with_devices

    def _lower_bound(self, key: PlacementKey, role: RoleForm, size: int, length_us: int) -> int:
        """Before this a role cannot start; for a simple form it is the start."""
        table = self.lanes(role.shape, key.exempt)
        if role.require == ANYWHERE:
            return table.find_earliest(size, length_us)
        column = self.fleet.domains[role.require]
        # The earliest over the domains, each for itself: room in two racks is no room in one.
        domains = np.unique(column[np.unique(table.node)]).tolist() if len(table.node) else []
        return min((table.find_earliest(size, length_us, column == domain) for domain in domains), default=NEVER)

    def _instants(self, from_us: int) -> list[int]:
        """Every instant at which anything changes, from one on."""
        found = {at for line in self.lines for at in line.times if at >= from_us}
        # Windows are cut out of lanes and leave no step in the lines, so their ends are added.
        found.update(window.end_us for window in self.session.snapshot.windows if window.end_us >= from_us)
        return sorted({*found, from_us})

    def place_over(
        self, key: PlacementKey, form: Form, size: int, at_us: int, length_us: int, first: First | None = None
    ) -> Places | None:
        """Places for a form from an instant for a length, or None. Nothing is claimed."""
        if first is None:
            # Rule 3 (choice of places). Later: what is busy now, so that what is free now stays so for fillers. Now:
            # what only a reservation needs later, so that unreserved places stay for those who cannot be gone in time.
            first = self._busy_now(key, at_us, length_us) if at_us > self.now else self._kept_for_later(key, length_us)
        if self._simple(form):
            return self._place_simple(key, form.roles[0], size, at_us, length_us, first)
        view = self.view_over(key.exempt, at_us, at_us + length_us)
        if find_ceiling(view, form, key.exempt) < (size if form.open_size else 1):
            return None
        places = place(view, Wish(form, size, key.exempt, first))
        return None if isinstance(places, NoPlace) else places

    def _place_simple(
        self, key: PlacementKey, role: RoleForm, size: int, at_us: int, length_us: int, first: First
    ) -> Places | None:
        slots = self.slots_over(key, role, at_us, length_us)
        # The slots over the stretch are the lanes': what may be used is settled, and only where is still open.
        if int(slots.sum()) < size:
            return None
        row = self.session.view.slots(role.shape, key.exempt)
        room = make_room(self.session.view, row, first(role), None)
        walked = slots if self.fleet.walk_trivial else slots[self.fleet.walk]
        # The best fit of a start in the future is judged by its slots alone.
        asked = room.asked if at_us == self.now else [walked]  # what is free now says nothing of room left then
        room = SlotRoom(
            room.fleet, walked, room.unasked, asked, room.first, room.company if at_us == self.now else None
        )
        chosen = choose_nodes(room, role, size)
        if chosen is None:
            return None
        nodes, counts = chosen
        devices = np.zeros((len(nodes), self.session.view.device_free.shape[1]), dtype=np.int16)
        return ((Seats(0, nodes, counts, devices, size),),)

    def slots_over(self, key: PlacementKey, role: RoleForm, at_us: int, length_us: int) -> IntArray:
        """Members of a role that each node holds from an instant for a length."""
        return self.lanes(role.shape, key.exempt).slots_over(at_us, length_us, len(self.lines))

    def _busy_now(self, key: PlacementKey, at_us: int, length_us: int) -> First:
        """For a start in the future: places that are busy now before places that are free now."""

        def first(role: RoleForm) -> IntArray:
            then = self.slots_over(key, role, at_us, length_us)
            now = self.session.view.slots(role.shape, key.exempt).slots
            # Slots that are there then and not now.
            busy: IntArray = np.maximum(then - now, 0)
            return busy

        return first

    def _kept_for_later(self, key: PlacementKey, length_us: int) -> First:
        """For a start now that ends in time: places that a reservation will need later, before others."""

        def first(role: RoleForm) -> IntArray:
            # Room that is there for this length, less room that is there beyond the last reserved start: what somebody
            # has claimed in between.
            span = max(self.last_claim_us + 1 - self.now, length_us)
            here = self.slots_over(key, role, self.now, length_us)
            long = self.lanes(role.shape, key.exempt, windows=False).slots_over(self.now, span, len(self.lines))
            kept: IntArray = np.maximum(here - long, 0)
            return kept

        return first

    def view_over(self, exempt: Exempt, start_us: int, end_us: int) -> View:
        """What is free throughout a stretch, nodes under a window left out."""
        least = [line.least(start_us, end_us) for line in self.lines]
        free = np.array([free for free, _ in least], dtype=np.int64).reshape(len(self.lines), len(self.fleet.kinds))
        if self._with_devices:
            devices = np.array([devices for _, devices in least], dtype=np.int16).reshape(len(self.lines), -1)
        elif self.fleet.device_column >= 0:
            # Never split, so that any devices will do: as many as the amounts say. `LongCalendar.name_devices` picks
            # real ones.
            devices = keep_devices(self.fleet.device_capacity, free[:, self.fleet.device_column])
        else:
            devices = self.fleet.device_capacity
        usable = self.session.in_service
        for index, window in enumerate(self.session.snapshot.windows):
            if index not in exempt and window.start_us < end_us and window.end_us > start_us:
                usable = usable & ~self.session.window_masks[index]
        view = View(
            self.fleet, free, devices, shared=self._with_devices, usable=usable, presence=self.session.view.presence
        )
        view.usable_by_exempt[exempt] = usable
        return view
