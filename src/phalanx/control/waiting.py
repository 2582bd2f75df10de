"""Gangs that wait: their rows in the pending table, the gates before them, groups and dependencies.

Functions over the tables of a state.

A gate is a reason that stops a gang before any question of room: the engine gives it no turn and it holds up nobody
(rule 2). Kubernetes has scheduling gates for the same; Slurm shows such jobs as held or dependent. `leaving` and
`losses` call in here when a gang has to wait again.
"""

from __future__ import annotations

from phalanx.control.records import Record
from phalanx.control.tables import Tables
from phalanx.engine.lifecycle import Phase
from phalanx.model.form import form_at_sizes
from phalanx.model.reason import Code
from phalanx.perfmodel.speedup import Linear, Table, scaled_us


def wait_for_dependencies(state: Tables, number: int, record: Record) -> None:
    """Note whose end a gang waits for, and whether one of them has failed already."""
    ended = state.dependencies.ended
    for name in record.gang.after.names:
        # Names and not numbers: a dependency may have ended long ago, or arrive later than whoever waits for it.
        if name in ended:
            if ended[name] is not Phase.COMPLETED and not record.gang.after.any_end:
                record.doomed_by = name
            continue
        record.waits_for = record.waits_for | {name}
        state.dependencies.wait(number, name)


def join_group(state: Tables, number: int, record: Record, word: str, wanted: int) -> None:
    """Put a gang with those it starts together with."""
    index = state.groups.find_open(word, wanted)
    group = state.groups.listed[index]
    # One that ended without ever starting will not start with anybody: those who come now are doomed with it.
    gone = [other for other in group.gangs if state.records[other].phase.ended and not state.records[other].attempts]
    if gone:
        record.doomed_by = state.gangs[gone[0]].name
    group.gangs.append(number)
    record.group = index
    if len(group.gangs) >= group.wanted and not gone:
        # Known only when all are here: the form of a group has every gang at its least inside.
        least = [(state.gangs[n], tuple(r.sizes.least for r in state.gangs[n].roles)) for n in group.gangs]
        state.groups.complete(index, state.intern(form_at_sizes(state.fleet, tuple(least))))


def leave_group(state: Tables, number: int) -> None:
    """A gang that waits no longer starts together with others; those are as they were before it came."""
    record = state.records[number]
    if record.group < 0 or record.attempts or record.phase is not Phase.PENDING:
        return
    state.thaw()
    index, group = record.group, state.groups.listed[record.group]
    record.group = -1
    state.pending.columns["group"][record.row] = -1
    state.groups.give_place(index, number)
    others = [state.records[other] for other in group.gangs]
    # Gates of one group are set together: any of those who wait will do.
    for each in (record, *[other for other in others if other.phase is Phase.PENDING][:1]):
        set_gates(state, each)


def note_length(state: Tables, number: int, row: int, length_us: int) -> None:
    """Believed run time of a gang that waits: at its largest size, and what that makes at its least."""
    columns, roles = state.pending.columns, state.gangs[number].roles
    columns["length_us"][row] = columns["least_us"][row] = length_us
    if columns["elastic"][row]:
        # Here and not in the engine, which would stretch every waiting gang's time by its curve in every pass.
        points = state.curves.get(number)
        most, least = (sum(getattr(r.sizes, end) for r in roles if r.sizes.elastic) for end in ("most", "least"))
        columns["least_us"][row] = scaled_us(length_us, Table(points) if points else Linear(), most, least)


def queue_up(state: Tables, number: int, record: Record) -> None:
    """A row in the pending table, with the gate that keeps it from a turn, if any."""
    # Rows move when a table is compacted, and every record must be told where its own has gone.
    if state.pending.wants_compaction():
        _compact_pending(state)
    gang, table, past = record.gang, state.pending, record.history
    state.hints.order.note((gang.priority, record.eligible_us, number), alone=not len(table))
    row = table.add_row()
    # Columns are what the engine reads; the record keeps what only `control` needs.
    form = state.forms.forms[record.form]
    columns = table.columns
    columns["gang"][row] = number
    columns["form"][row] = record.form
    # A form with its sizes inside fits or does not: one of it.
    columns["size"][row] = gang.roles[0].sizes.least if form.open_size else 1
    columns["elastic"][row] = elastic = gang.elastic
    state.hints.note_gang(gang, elastic=elastic)
    columns["queue"][row] = record.queue
    columns["user"][row] = record.user
    columns["priority"][row] = gang.priority
    columns["eligible_us"][row] = record.eligible_us
    # Rule 7: only what was stated or predicted proves an end. The default plans the calendar and proves nothing.
    length = gang.walltime_us if gang.walltime_us is not None else state.default_walltime_us
    proven = gang.walltime_us is not None
    if past is not None and past.left_us is not None:
        # It has reported progress: what is left by its own snapshot is better than any walltime (rule 6).
        length, proven = past.left_us, True
    note_length(state, number, row, length)
    columns["proven"][row] = proven
    columns["deadline_us"][row] = -1 if gang.deadline_us is None else gang.submit_us + gang.deadline_us
    # `together` covers the start only (rule 15): once evicted, each queues for itself.
    columns["group"][row] = record.group if record.attempts == 0 else -1
    columns["attained_us"][row] = 0 if past is None else past.attained_us
    columns["gate"][row] = 0
    record.row = row
    if record.held or record.waits_for or record.group >= 0 or (past is not None and past.resting):
        set_gates(state, record)


def _compact_pending(state: Tables) -> None:
    kept = state.pending.compact()
    for row, number in enumerate(state.pending.columns["gang"][: len(kept)].tolist()):
        # Pending rows have no other names: no seats and no timers point to them.
        state.records[number].row = row


def _gate(record: Record) -> Code:
    # One gate is told of several; a rest before a group that is not complete, since it is the gang's own.
    if record.held:
        return Code.HELD
    if record.waits_for:
        return Code.DEPENDENCY_WAITING
    if record.history is not None and record.history.resting:
        return Code.BACKOFF
    return Code.NONE


def set_gates(state: Tables, record: Record) -> None:
    """Gates of this gang, and of the gangs that start with it: one that is not ready holds back all."""
    state.hints.unsettle()
    state.hints.gated = True
    # A gate that opens is an arrival to the engine: it must look, although it has seen this gang before.
    state.fresh.add(state.number_by_name[record.gang.name])
    if record.group < 0 or record.attempts:
        state.pending.columns["gate"][record.row] = _gate(record)
        return
    group = state.groups.listed[record.group]
    waiting = [r for r in map(state.records.__getitem__, group.gangs) if r.phase is Phase.PENDING and not r.attempts]
    # Those of the group that have started do not matter any more; of those that wait, all must be ready.
    ready = group.form >= 0 and all(_gate(other) is Code.NONE for other in waiting)
    for other in waiting:
        own = _gate(other)
        state.fresh.add(state.number_by_name[other.gang.name])
        gate = own if own is not Code.NONE or ready else Code.GANG_INCOMPLETE
        # One that has not queued yet, as while a state is restored, has no row; its own call sets its gate.
        if other.row >= 0:
            state.pending.columns["gate"][other.row] = gate
