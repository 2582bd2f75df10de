"""Who sits where: the running and allocation tables of a state, and the room that is left.

Functions over the tables of a state. Seats that a shrinking gang still
occupies while it pauses are rows of nobody (gang -1), so that nobody else is given them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from phalanx.control.records import Ghost, Past, Record
from phalanx.control.tables import Tables
from phalanx.engine.lifecycle import Happening, advance
from phalanx.engine.room.seats import list_crumbs, still_free, subtract_seats
from phalanx.engine.room.view import find_need
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Bind, Seats
from phalanx.model.resources import MILLI

#: The gang of a row that only keeps seats busy until their last user is gone.
NOBODY = -1


def past_of(record: Record) -> Past:
    """What is remembered of a gang, made when there is something to remember."""
    if record.history is None:
        record.history = Past()
    return record.history


def add_running(state: Tables, number: int, bind: Bind, start_us: int) -> None:
    """A row for a gang that starts now, or once its seats are vacated."""
    record = state.records[number]
    gang = record.gang
    # Before the new row is handed out, never after: compaction renumbers rows, and a
    # number in somebody's hand would be wrong.
    if state.running.wants_compaction():
        _compact_running(state)
    row = state.running.add_row()
    columns = state.running.columns
    columns["gang"][row] = number
    columns["queue"][row] = record.queue
    columns["user"][row] = record.user
    columns["priority"][row] = gang.priority
    # Its age goes along: whoever is evicted keeps its place in the order (rule 1), and guests are ranked by it.
    columns["eligible_us"][row] = record.eligible_us
    columns["start_us"][row] = start_us
    columns["length_us"][row] = bind.length_us
    state.hints.ends.note(start_us + bind.length_us)
    columns["members"][row] = bind.members
    columns["preemptible"][row] = gang.preemptible
    columns["elastic"][row] = gang.elastic
    columns["guest"][row] = bind.guest
    # As if it had just saved: nothing is lost yet, and an elastic gang will report when it really does.
    columns["saved_us"][row] = start_us
    past = record.history
    # Over all its attempts, as is attained service: both would be worthless if a restart set them back.
    columns["evictions"][row] = 0 if past is None else past.evictions
    # No rest after a start: it was bound with its surplus, without a resize.
    columns["cool_until_us"][row] = 0
    columns["attained_us"][row] = 0 if past is None else past.attained_us
    record.row, record.seats = row, bind.seats
    for seats in bind.seats:
        seat(state, record, row, seats)


def seat(state: Tables, record: Record, row: int, seats: Seats) -> None:
    """Take the room of some seats for a running row."""
    # A degraded gang may have a role of which nobody is left.
    if not len(seats.nodes):
        return
    table = state.allocations
    # The allocation table renumbers only itself: nobody outside holds its row numbers, but through `HeldTable`.
    if table.wants_compaction():
        table.compact()
    rows = table.add_for(row, len(seats.nodes))
    need = find_need(state.fleet, record.gang.roles[seats.role].shape)
    columns = table.columns
    if len(seats.nodes) == 1:
        # Many gangs sit on one node: plain numbers instead of arrays of one.
        at, node = rows.start, int(seats.nodes[0])
        taken = seats.members * need.vector
        columns["node"][at], columns["count"][at] = node, seats.members
        columns["running"][at], columns["role"][at] = row, seats.role
        columns["taken"][at] = taken
        if seats.devices.shape[1]:
            columns["devices"][at] = seats.devices[0]
        state.nodes.free[node] -= taken
    else:
        taken = seats.counts[:, None] * need.vector
        columns["node"][rows], columns["count"][rows] = seats.nodes, seats.counts
        columns["running"][rows], columns["role"][rows] = row, seats.role
        columns["taken"][rows], columns["devices"][rows] = taken, seats.devices
        state.nodes.free[seats.nodes] -= taken
    # Ghosts too: whoever is still leaving is still there, and keeps others away.
    if need.marks and state.nodes.presence is not None:
        state.nodes.presence.add(need.marks, seats.nodes, seats.counts)
    # Two accounts of one thing, as in `engine.room.view.View`: amounts above, devices here.
    if need.share or need.whole:
        state.nodes.device_free[seats.nodes] -= seats.devices
    # Here and nowhere else, so that sums cannot drift from seats: usage is what is seated, for starting gangs too.
    state.tenants.charge(record.queue, record.user, need, seats.members)


def unseat(state: Tables, record: Record) -> None:
    """Give back everything that a running row holds."""
    # By holder, since the rows of a gang lie anywhere in the table by now.
    state.allocations.remove_of(record.row)
    for seats in record.seats:
        need = find_need(state.fleet, record.gang.roles[seats.role].shape)
        if len(seats.nodes) == 1:
            state.nodes.free[int(seats.nodes[0])] += seats.members * need.vector
        else:
            state.nodes.free[seats.nodes] += seats.counts[:, None] * need.vector
        if need.marks and state.nodes.presence is not None:
            state.nodes.presence.add(need.marks, seats.nodes, -seats.counts)
        if need.share or need.whole:
            state.nodes.device_free[seats.nodes] += seats.devices
        state.tenants.charge(record.queue, record.user, need, -seats.members)


def reseat(state: Tables, record: Record, seats: tuple[Seats, ...]) -> None:
    """Let a running gang sit on exactly these seats."""
    # Given back whole and taken anew, not by the difference: the sums then depend on
    # the seats alone, and not on the path.
    unseat(state, record)
    record.seats = seats
    for each in seats:
        seat(state, record, record.row, each)
    state.running.columns["members"][record.row] = sum(each.members for each in seats)


def keep_busy(
    state: Tables,
    record: Record,
    seats: tuple[Seats, ...],
    until_us: int,
    leaver: Gang | None = None,
    lenders: tuple[int, ...] = (),
) -> None:
    """A row of nobody on what is still free of some seats, until their last user is gone.

    Whole members first, then what is left of members of whose seats somebody has claimed a part: whoever
    did begins there when the last user is gone, and until then nobody else may have the rest.
    """
    # On copies: what one role's rest takes must be gone for the next role's, and nothing is seated before all is known.
    free, device_free = state.nodes.free.copy(), state.nodes.device_free.copy()
    left: list[Seats] = []
    rests: list[tuple[Shape, Seats]] = []
    for each in seats:
        need = find_need(state.fleet, record.gang.roles[each.role].shape)
        whole = still_free(free, device_free, need, each)
        crumbs = list_crumbs(state.fleet, free, device_free, need, each, whole)
        for taken, some in [(need, whole), *((find_need(state.fleet, shape), some) for shape, some in crumbs)]:
            free[some.nodes] -= some.counts[:, None] * taken.vector
            device_free[some.nodes] -= some.devices
        left += [whole] if len(whole.nodes) else []
        rests += crumbs
    # Who really uses it: of a crumb the gang is made up, and by the leaver it is found when that one ends early.
    # Of a claim that was taken back it is the lenders, and not the claimant, which may start and end elsewhere
    # while they are still leaving.
    leaver = None if lenders else leaver or record.gang
    if left:
        add_ghost(state, _ghost_of(record, record.gang, tuple(left), leaver, lenders), until_us)
    if rests:
        # Seats are read by the shapes of their gang's roles everywhere, so that rests of
        # other shapes need a gang with such roles.
        gang = crumb_gang(record.gang, [shape for shape, _ in rests])
        named = tuple(replace(some, role=role) for role, (_, some) in enumerate(rests))
        add_ghost(state, _ghost_of(record, gang, named, leaver, lenders), until_us)


def lenders_of(record: Record) -> tuple[int, ...]:
    """Gangs for whose leaving a claim waits."""
    return () if record.history is None else tuple(record.history.lenders or ())


def crumb_gang(gang: Gang, shapes: Sequence[Shape]) -> Gang:
    """What the rests of a gang's seats belong to as long as it uses them: a role for each shape."""
    return replace(gang, roles=tuple(Role(f"rest-{at}", Sizes((1,)), shape) for at, shape in enumerate(shapes)))


def _ghost_of(
    record: Record, gang: Gang, seats: tuple[Seats, ...], leaver: Gang | None, lenders: tuple[int, ...]
) -> Ghost:
    # A copy that shares no history: what happens to the gang later must not be written into a row of nobody.
    facts = {field.name: getattr(record, field.name) for field in fields(Record)}
    return Ghost(**{**facts, "gang": gang, "seats": seats, "history": None, "leaver": leaver, "lenders": lenders})


def add_ghost(state: Tables, ghost: Ghost, until_us: int) -> None:
    """A row of nobody on these seats, all of which are free, until then."""
    if state.running.wants_compaction():
        _compact_running(state)
    row = state.running.add_row()
    columns = state.running.columns
    for name in columns:
        # Rows are handed out again and again, and what a column still says is the last one's.
        columns[name][row] = 0
    columns["gang"][row] = NOBODY
    # Charged to whoever leaves, until it is gone: it still uses them, and limits count what is in use.
    columns["queue"][row], columns["user"][row] = ghost.queue, ghost.user
    columns["start_us"][row] = state.now_us
    # An end like any other: the calendar plans on these seats from then on, without knowing what they are.
    columns["length_us"][row] = until_us - state.now_us
    state.hints.ends.note(until_us)
    ghost.row = row
    for each in ghost.seats:
        seat(state, ghost, row, each)
    state.vacating.append((until_us, ghost))


def vacate_due(state: Tables) -> bool:
    """Free the seats whose last user is gone by now."""
    # In a list of its own, since the loop below takes entries out.
    due = [entry for entry in state.vacating if entry[0] <= state.now_us]
    for entry in due:
        unseat(state, entry[1])
        state.running.remove(entry[1].row)
        state.vacating.remove(entry)
    return bool(due)


def drop_nodes(seats: tuple[Seats, ...], node: int) -> tuple[Seats, ...]:
    """Seats without those on one node."""
    kept = []
    for each in seats:
        # A role that loses its last node stays, empty: seats are addressed by the index of their role.
        here = each.nodes != node
        kept.append(Seats(each.role, each.nodes[here], each.counts[here], each.devices[here]))
    return tuple(kept)


def given_back(old: tuple[Seats, ...], new: tuple[Seats, ...]) -> tuple[Seats, ...]:
    """What of the old seats is not among the new ones."""
    return tuple(subtract_seats(before, after) for before, after in zip(old, new, strict=True))


def attained_us(state: Tables, record: Record) -> int:
    """Time of the counted kind that a running attempt has had so far; of a gang without any of it, member time."""
    start = int(state.running.columns["start_us"][record.row])
    # A claim begins in the future, and has had nothing.
    span = max(0, state.now_us - start)
    kind = state.fleet.counted_kind
    milli = sum(each.members * record.gang.roles[each.role].shape.amount(kind) for each in record.seats)
    members = sum(each.members for each in record.seats)
    # In integers, cut once per stretch between two changes of size, as the engine's rights over turns count it.
    return span * milli // MILLI if milli else span * members


def _compact_running(state: Tables) -> None:
    # Row numbers are known in four places; all of them have to be told, or somebody reads another gang's seats.
    kept = state.running.compact()
    new_row = np.zeros(int(kept.max(initial=0)) + 1, dtype=np.int32)
    new_row[kept] = np.arange(len(kept))
    held = state.allocations.alive
    # Living rows only: dead ones point to rows that may not exist any more.
    state.allocations.columns["running"][held] = new_row[state.allocations.columns["running"][held]]
    state.allocations.renumber({old: new for new, old in enumerate(kept.tolist())})
    for row, number in enumerate(state.running.columns["gang"][: len(kept)].tolist()):
        # Rows of nobody have no record by number; theirs hang on the ghosts below.
        if number >= 0:
            state.records[number].row = row
    for _, ghost in state.vacating:
        ghost.row = int(new_row[ghost.row])


def claim_or_bind(state: Tables, number: int, bind: Bind, start_us: int) -> None:
    """Take the seats of a start; if some are still being vacated, the gang starts when they are."""
    record = state.records[number]
    late = start_us > state.now_us
    # First, since it raises if this cannot happen: nothing has been changed by then.
    record.phase = advance(record.phase, Happening.CLAIM if late else Happening.BIND, record.gang.name)
    state.pending.remove(record.row)
    add_running(state, number, bind, start_us)
    if late:
        past = past_of(record)
        past.claim = bind
        # Timers are never searched for: one that was set for an earlier stay finds another token and does nothing.
        past.token += 1
        state.set_timer(start_us, "start", number, past.token)
    else:
        # A claim is no attempt before it begins (decision 6): lost until then, it has cost the gang nothing.
        record.attempts += 1
