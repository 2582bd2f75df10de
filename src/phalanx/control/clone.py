"""A second state that knows what the first knows and goes its own way, for whoever looks ahead of a living one."""

from __future__ import annotations

import copy
from dataclasses import replace

from phalanx.control.columns import Table
from phalanx.control.records import Record
from phalanx.control.state import State


def clone_state(state: State) -> State:
    """A copy that shares only what never changes: gangs, forms and the fleet."""
    # First, on the original: the twin begins without charges that are not yet added up.
    state.tenants.settle()
    # Shallow, then part by part: gangs, forms and the fleet never change, and are most of it.
    twin = copy.copy(state)
    twin.nodes = copy.copy(state.nodes)
    twin.nodes.unshare()
    twin.nodes.suspicion = copy.deepcopy(state.nodes.suspicion)
    for name in ("pending", "running", "allocations"):
        setattr(twin, name, _copy_table(getattr(state, name)))
    twin.tenants = copy.copy(state.tenants)
    twin.tenants.unshare()
    twin.tenants._user_index = dict(state.tenants._user_index)  # noqa: SLF001 - people are added as they appear
    twin.tenants._unsettled = {}  # noqa: SLF001 - settled above
    twin.forms = copy.copy(state.forms)
    for name, value in vars(state.forms).items():
        # Numbers of forms are for life, so that the twin may add some of its own without renumbering ours.
        setattr(twin.forms, name, copy.copy(value))
    twin.gangs, twin.number_by_name = list(state.gangs), dict(state.number_by_name)
    # Of those that have ended nobody writes anything any more.
    twin.records = [record if record.phase.ended else _copy_record(record) for record in state.records]
    twin.groups, twin.dependencies = state.groups.clone(), state.dependencies.clone()
    # Ghosts hold row numbers, which compaction in the twin will change.
    copies = {id(ghost): replace(ghost) for _, ghost in state.vacating}
    twin.vacating = [(until_us, copies[id(ghost)]) for until_us, ghost in state.vacating]
    twin.nodes.crowds = {node: copies[id(ghost)] for node, ghost in state.nodes.crowds.items()}
    for name in ("curves", "promises", "degraded", "pins", "dates", "judged", "fresh"):
        setattr(twin, name, copy.copy(getattr(state, name)))
    twin.nodes.crowd_marks = dict(state.nodes.crowd_marks)
    twin.timers = list(state.timers)
    # What may yet be refused is the affair of whoever carries it out; a copy takes it as done, and rests as it is.
    twin.unconfirmed = [replace(each, image=replace(each.image)) for each in state.unconfirmed]
    twin.refusals = dict(state.refusals)
    twin.hints = state.hints.clone()
    twin._frozen = False  # noqa: SLF001
    twin.columns_moved()
    return twin


def _copy_table(table: Table) -> Table:
    twin = copy.copy(table)
    twin.unshare()
    return twin


def _copy_record(record: Record) -> Record:
    # Field by field: `copy.copy` goes by way of pickling, and of ten thousand waiting gangs that were 40 ms a clone.
    return Record(
        record.gang,
        record.phase,
        record.form,
        record.queue,
        record.user,
        record.eligible_us,
        record.row,
        record.waits_for,
        record.held,
        record.group,
        record.seats,
        record.attempts,
        record.doomed_by,
        None if record.history is None else replace(record.history),
    )
