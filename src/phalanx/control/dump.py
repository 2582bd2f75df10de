"""Everything the engine knows of a cluster as one JSON file, schema `phalanx.state/1`.

Written by whoever has a `State` (today the simulator at an instant), read by `control.restore`. What a gang or a
node *is* stands under `spec`, in the words of scenario files; what has happened to it stands beside that, times as
integer microseconds of the cluster's clock. Gangs that have ended are left out, but for the few that something
still points to. Gangs stand in order of arrival, which is what ties break by; their numbers are not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from phalanx.control.belief import AS_STATED, RunTimes
from phalanx.control.bonds import Group
from phalanx.control.gates import Gates
from phalanx.control.gates_file import dump_gang_gates, dump_gates
from phalanx.control.records import Ghost, Past
from phalanx.control.spec.writing import amounts_tree, gang_tree, node_tree, policy_tree, queue_tree
from phalanx.control.state import State
from phalanx.control.strangers import is_stranger
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang
from phalanx.model.plan import Guest, Reservation, Seats
from phalanx.model.window import Window

SCHEMA: Final = "phalanx.state/1"

Tree = dict[str, Any]

#: Columns of a running gang that are nowhere else, with the key they stand under.
RUN_COLUMNS: Final = ("start_us", "length_us", "saved_us", "cool_until_us", "attained_us")


def dump_state(
    state: State,
    policy: tuple[str, Mapping[str, object]] | None = None,
    drains: Mapping[str, int] | None = None,
    *,
    gates: Gates | None = None,
    runs: RunTimes = AS_STATED,
) -> Tree:
    """The state as plain values. `policy`: what it ran under; `drains`: when drained nodes must be empty, by name.

    `gates` and `runs`: what whoever has people to serve goes by beside the state.
    """
    # In order of arrival. Numbers start from 0 again when this is read, which changes nobody's place in any order.
    kept = _list_kept(state)
    # By row, which is the order in which they sat down: sums and lists come out as they were.
    seated = sorted((n for n in kept if state.records[n].phase.seated), key=lambda n: state.records[n].row)
    queues = state.tenants._queues  # noqa: SLF001 - as they were described, with kinds that no node has now
    tree: Tree = {"schema": SCHEMA, "now_us": state.now_us}
    if policy is not None:
        # Beside the state: a state knows no policy, and what-if may bring another.
        tree["policy"] = policy_tree(*policy)
    tree |= {
        "default_walltime_us": state.default_walltime_us,
        "evictions_in_vain": state.evictions_in_vain,
        # Not to be read off the seats: a device that was split once and is whole now leaves no trace there.
        "devices_split": state.nodes.shared,
        # Without the node, which is always the innermost.
        "levels": list(state.fleet.levels[:-1]),
        "nodes": _dump_nodes(state, drains or {}),
        "queues": [queue_tree(queue) for queue in queues],
        "decayed": _dump_decayed(state),
        "users": _dump_users(state),
        "windows": [_dump_window(window) for window in state.windows],
        "ended": {name: phase.value for name, phase in sorted(state.dependencies.ended.items())},
        "gangs": [
            _dump_gang(state, number) | dump_gang_gates(gates, runs, number, state.gangs[number].name)
            for number in kept
        ],
        "started": [state.gangs[number].name for number in seated],
        "groups": [
            {"word": group.word, "wanted": group.wanted, "gangs": [state.gangs[number].name for number in group.gangs]}
            for group in _list_groups(state)
        ],
        "pins": {state.gangs[number].name: members for number, members in state.pins.items()},
        "vacating": [_dump_vacating(state, until_us, ghost) for until_us, ghost in _list_vacating(state)],
        "promises": [_dump_promise(state, promise) for promise in state.promises.values()],
    }
    return tree | dump_gates(gates, runs)


def format_state(tree: Tree) -> str:
    """The JSON text, with a line for every node, gang and promise, so that two dumps can be compared by eye."""
    parts = []
    for key, value in tree.items():
        # Neither one long line nor a line per bracket: `diff` of two dumps shows which gang differs.
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value)
            parts.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _list_groups(state: State) -> list[Group]:
    """Groups that may still start, or that somebody may still join."""
    records = state.records
    return [
        group
        for group in state.groups.listed
        if len(group.gangs) < group.wanted
        # A group that has started is history: `together` covers the start only.
        or any(not records[number].phase.ended and not records[number].attempts for number in group.gangs)
    ]


def _list_vacating(state: State) -> list[tuple[int, Ghost]]:
    """Seats being vacated by gangs. Of strangers on devices nobody knows when they leave: a dump is without them."""
    return [entry for entry in state.vacating if not is_stranger(entry[1])]


def _list_kept(state: State) -> list[int]:
    """Gangs that have not ended, and those that a group or seats being vacated still name."""
    named = {number for group in _list_groups(state) for number in group.gangs}
    # An ended gang may still be leaving seats, and what those are is said by its spec.
    named |= {state.number_by_name[ghost.gang.name] for _, ghost in _list_vacating(state)}
    return [number for number, record in enumerate(state.records) if not record.phase.ended or number in named]


# ---- the cluster


def _dump_nodes(state: State, drains: Mapping[str, int]) -> list[Tree]:
    entries = []
    for index, node in enumerate(state.fleet.nodes):
        entry: Tree = {"spec": node_tree(node)}
        # Only what is unusual, here and below: a healthy node is its spec and nothing else.
        if not state.nodes.up[index]:
            entry["up"] = False
        if not state.nodes.open[index]:
            entry["open"] = False
        if state.nodes.draining[index]:
            entry["draining"] = True
            if node.name in drains:
                entry["drain_by_us"] = drains[node.name]
        # The kills as well as the suspicion: the next one makes it longer by how many there were.
        if state.nodes.suspicion.kills.get(index):
            entry["kills_us"] = list(state.nodes.suspicion.kills[index])
        if index in state.nodes.suspicion.until_us:
            entry["suspect_until_us"] = state.nodes.suspicion.until_us[index]
        entries.append(entry)
    return entries


def _dump_decayed(state: State) -> Tree:
    """What queues used in the past, as far as it is not forgotten: units by kind, by queue."""
    # Up to now already: `State.advance_to` lets it fade before the clock moves.
    columns, kinds = state.tenants.queue_columns, state.fleet.kind_index
    rows = ((name, columns.decayed[row]) for row, name in enumerate(columns.names))
    # By name of queue and kind: columns may stand in another order when this is read.
    return {name: {kind: int(past[at]) for kind, at in kinds.items() if past[at]} for name, past in rows if past.any()}


def _dump_users(state: State) -> list[Tree]:
    limits = {user.name: user.limit for user in state.tenants._users}  # noqa: SLF001 - as above
    # Everybody who ever appeared, in that order: people's numbers are given by it.
    return [{"name": name, "limit": amounts_tree(limits.get(name, {}))} for name in state.tenants.user_columns.names]


def _dump_window(window: Window) -> Tree:
    tree: Tree = {"name": window.name, "nodes": list(window.nodes)}
    tree |= {"start_us": window.start_us, "end_us": window.end_us}
    return tree | _said(users=list(window.users), queues=list(window.queues))


# ---- gangs


def _dump_gang(state: State, number: int) -> Tree:
    record = state.records[number]
    entry: Tree = {"spec": gang_tree(record.gang), "phase": record.phase.value, "eligible_us": record.eligible_us}
    curve = state.curves.get(number)
    if curve is not None:
        entry["curve"] = [list(point) for point in curve]
    # In the order of the spec and not of the set, so that two dumps of one state are equal.
    waits = [name for name in record.gang.after.names if name in record.waits_for and not record.phase.ended]
    entry |= _said(attempts=record.attempts, held=record.held, waits_for=waits, doomed_by=record.doomed_by)
    entry |= _said(infeasible=number in state.judged, fresh=number in state.fresh)
    verdict = state.date_of(number)
    if verdict is not None:
        entry["date"] = {"promised": verdict.promised} | _said(earliest_us=verdict.earliest_us, beside=verdict.beside)
    if record.history is not None:
        entry |= _said(past=_dump_past(state, number, record.history))
    if record.phase.seated:
        columns = state.running.columns
        # Whatever the gang's spec says (priority, whether it is elastic) is not written a second time.
        entry["run"] = {key: int(columns[key][record.row]) for key in RUN_COLUMNS}
        guest = Guest(int(columns["guest"][record.row]))
        entry["run"] |= _said(guest=guest.name.lower() if guest else "")
        entry["seats"] = _dump_seats(state.fleet, record.gang, record.seats)
    refusal = state.refusal_of(number)
    if refusal is not None and not record.phase.ended:
        entry["refused"] = {"at_us": refusal.at_us, "words": refusal.words}
        entry["refused"] |= _said(times=refusal.times, rests_until_us=refusal.rests_until_us)
    # Under the word of the schema, which others read; the code says degraded.
    if number in state.degraded:
        degraded = state.degraded[number]
        entry["hurt"] = {"lost": list(degraded.lost), "whole": degraded.whole}
    return entry


def _dump_past(state: State, number: int, past: Past) -> Tree:
    tree = _said(evictions=past.evictions, failures=past.failures, attained_us=past.attained_us, forced=past.forced)
    if past.left_us is not None:
        tree["left_us"] = past.left_us
    # Who still sits on the seats that it was given, and until when.
    if past.claim is not None and past.lenders:
        tree["lenders"] = {state.gangs[lender].name: until_us for lender, until_us in past.lenders.items()}
    if past.resting:
        # The one timer with the token of today; older ones for the same gang mean nothing.
        tree["rests_until_us"] = next(
            at_us for at_us, what, whom, token in state.timers if (what, whom, token) == ("rest", number, past.token)
        )
    return tree


def _dump_seats(fleet: Fleet, gang: Gang, seats: Sequence[Seats]) -> list[Tree]:
    return [{"role": gang.roles[each.role].name, "at": list(_dump_places(fleet, each))} for each in seats]


def _dump_places(fleet: Fleet, seats: Seats) -> Iterable[Tree]:
    """Nodes in rank order, with the thousandths of each device that are taken there."""
    for node, count, devices in zip(seats.nodes.tolist(), seats.counts.tolist(), seats.devices.tolist(), strict=True):
        place: Tree = {"node": fleet.names[node], "members": count}
        yield place | _said(devices=_dump_devices(devices))


def _dump_devices(devices: Sequence[int]) -> Tree:
    """Thousandths by device, neighbours that give as much under one key: {"0-7": 1000}."""
    found: Tree = {}
    # Runs, since a gang of a thousand GPUs would else be a thousand keys, and nobody could read the line.
    for milli, run in groupby(range(len(devices)), key=devices.__getitem__):
        numbers = list(run)
        # Free devices are left out, and split runs: {"0-3": 1000, "6": 250}.
        if milli:
            found[f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])] = milli
    return found


def _dump_vacating(state: State, until_us: int, ghost: Ghost) -> Tree:
    """Of rests of members' seats also what they are, since the gang has no such role."""
    start_us = int(state.running.columns["start_us"][ghost.row])
    seats = _dump_seats(state.fleet, ghost.gang, ghost.seats)
    tree: Tree = {"gang": ghost.gang.name, "since_us": start_us, "until_us": until_us, "seats": seats}
    # See `room.seats.list_crumbs`: rests of a member get shapes of their own.
    # By identity: a crumb's gang is made up, and differs from the one of its name in its roles alone.
    real = ghost.leaver or state.gangs[state.number_by_name[ghost.gang.name]]
    rests = [] if ghost.gang is real else [amounts_tree(dict(role.shape.need)) for role in ghost.gang.roles]
    return tree | _said(rests=rests, lenders=[state.gangs[lender].name for lender in ghost.lenders])


def _dump_promise(state: State, promise: Reservation) -> Tree:
    gangs = [state.gangs[number] for number in promise.gangs]
    seats = [_dump_seats(state.fleet, gang, each) for gang, each in zip(gangs, promise.seats, strict=True)]
    times = {"start_us": promise.start_us, "end_us": promise.end_us}
    return {"gangs": [gang.name for gang in gangs], **times, "seats": seats}


def _said(**keys: object) -> Tree:
    """What differs from its default; everything here is empty, 0 or false by default."""
    return {key: value for key, value in keys.items() if value}
