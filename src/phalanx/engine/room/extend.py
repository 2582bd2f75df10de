"""More seats for a gang that already sits: for growth, for a repair, for leaving a node.

Unlike a start, this may not choose its domain: where the gang sits, it stays. It says no rather than re-seat anybody;
whoever wants the whole gang elsewhere moves or restarts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from phalanx.engine.room.placement import First, Wish, place_role
from phalanx.engine.room.seats import add_seats, sizes_of
from phalanx.engine.room.view import NOBODY, Exempt, View, find_need
from phalanx.model.fleet import BoolArray, Fleet, IntArray
from phalanx.model.form import Form, GangForm, RoleForm, form_at_sizes
from phalanx.model.gang import Gang
from phalanx.model.plan import Seats
from phalanx.model.topology import ANYWHERE


def extend(
    view: View, gang: Gang, seats: tuple[Seats, ...], role: int, count: int, exempt: Exempt = NOBODY
) -> Seats | None:
    """Seats for so many more members of a role, beside those it has and inside its domains; taken from the view."""
    form = form_at_sizes(view.fleet, ((gang, sizes_of(seats)),))
    kind = form.gangs[0].roles[role]
    if kind.segment_size > 1 and seats[role].members % kind.segment_size:
        return None  # the last group is not full: whoever joins would have to join it
    # The masks say where; what is left of the wish is to stay close together.
    alone = not len(seats[role].nodes)  # nobody of the role sits anywhere yet, so its own wish still says where
    wanted = replace(
        kind, require=kind.require if alone else ANYWHERE, prefer=kind.prefer if alone else ANYWHERE, size=count
    )
    wish = Wish(form, 1, exempt, _beside(view, seats, exempt), sitting=seats[role])
    for inside in _near_first(view.fleet, form.gangs[0], seats, role):
        found = place_role(view, wish, wanted, count, role, inside)
        if found is None:
            continue
        # More members on a node that is in use shift the ranks of everybody after it, and with them the groups: only
        # the whole row of ranks shows whether each group is still inside one domain.
        if _groups_hold(view.fleet, kind, add_seats(seats[role], found)):
            return found
        view.take_seats(find_need(view.fleet, kind.shape), found, sign=-1)
    return None


def _groups_hold(fleet: Fleet, role: RoleForm, seats: Seats) -> bool:
    """Whether consecutive ranks still stand in groups inside one domain, now that some nodes have more of them."""
    if role.segment_size <= 1:
        return True
    # The domain of every rank, compared with that of the first rank of its group: for groups of 4, ranks 4 to 7 with 4.
    domains = np.repeat(fleet.domains[role.segment_level][seats.nodes], seats.counts)
    starts = np.arange(len(domains)) // role.segment_size * role.segment_size
    return bool((domains == domains[starts]).all())


def _near_first(fleet: Fleet, gang: GangForm, seats: tuple[Seats, ...], role: int) -> Iterator[BoolArray | None]:
    """Nodes of the preferred domain that it sits in, then wider ones, up to what it requires."""
    # What is required bounds everything below; what is preferred is tried inside it, tightest first.
    outer = _inside(fleet, gang, seats, role)
    # A role of which nobody sits yet goes near whichever role does.
    held = seats[role] if len(seats[role].nodes) else next((each for each in seats if len(each.nodes)), None)
    prefer = max(gang.roles[role].prefer, gang.prefer)
    if held is not None and prefer != ANYWHERE:
        for level in range(prefer, max(gang.roles[role].require, gang.require), -1):
            column = fleet.domains[level]
            near = np.isin(column, column[held.nodes])
            yield near if outer is None else near & outer
    yield outer


def _inside(fleet: Fleet, gang: GangForm, seats: tuple[Seats, ...], role: int) -> BoolArray | None:
    """Nodes in the domains that the gang has chosen already."""
    mask: BoolArray | None = None
    seated = [each for each in seats if len(each.nodes)]
    mine = [seats[role]] if len(seats[role].nodes) else []
    for level, held in ((gang.require, seated), (gang.roles[role].require, mine)):
        if level == ANYWHERE or not held:
            continue
        column = fleet.domains[level]
        # Any node will do as a witness: all of them are in one domain of a level that is required.
        here = column == column[int(held[0].nodes[0])]
        mask = here if mask is None else mask & here
    return mask


def _beside(view: View, seats: tuple[Seats, ...], exempt: Exempt) -> First:
    """Prefer nodes where the gang sits already."""

    def first(role: RoleForm) -> IntArray:
        # Whichever role sits there: a node in use is no further node to lose, and needs no further link.
        slots = view.slots(role.shape, exempt).slots
        mine = np.zeros(len(slots), dtype=np.bool_)
        for each in seats:
            mine[each.nodes] = True
        near: IntArray = slots * mine
        return near

    return first


def whole_form(fleet: Fleet, gang: Gang, sizes: tuple[int, ...]) -> Form:
    """The form of one gang at given sizes."""
    return form_at_sizes(fleet, ((gang, sizes),))
