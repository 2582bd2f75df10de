"""What the engine decides about a drawn snapshot, in six characters for each plan.

Over plain values, in one written form: neither the order of a set nor the name of a class or a module is in it,
so that a digest is the same on every run and survives everything but another plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2s

import numpy as np

from phalanx.engine.cycle import schedule
from phalanx.model.plan import Plan
from phalanx.model.snapshot import Snapshot
from phalanx.policy import named

MINUTE_US = 60_000_000

#: Policies with options; every snapshot is planned under each.
WAYS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "fcfs": ("fcfs", {}),
    "easy": ("easy", {}),
    "conservative": ("conservative", {}),
    "fair": ("fair", {}),
    "deadline": ("deadline", {}),
    "rotate": ("rotate", {}),
    "goodput": ("goodput", {}),
    "easy-3": ("easy", {"reservations": 3}),
    "replan": ("conservative", {"keep": False}),
    "entitlement": ("fair", {"reclaim": "entitlement"}),
    "users": ("fair", {"users": "fair", "fill": "shortest"}),
    "turns": ("goodput", {"rotate": 10 * MINUTE_US, "reservations": 2}),
    "gentle": ("goodput", {"min_runtime": 20 * MINUTE_US, "max_evictions": 1, "keep": True}),
    "no-stop": ("pod-fifo", {}),
}


def make_plan(snapshot: Snapshot, seed: int, way: str) -> Plan:
    """What the engine decides; whether it is asked for reasons or keeps a ledger goes by turns."""
    at = list(WAYS).index(way)
    name, options = WAYS[way]
    return schedule(snapshot, named(name, options), explain=(seed + at) % 2 == 0, ledger=(seed + 2 * at) % 5 == 0)


def digest_plan(plan: Plan) -> str:
    """Six characters that change whenever the plan decides or tells something else; hints are no part of it."""
    idle = None if plan.idle is None else (plan.idle.reserved.tolist(), plan.idle.fragmented)
    return _digest((plan.key(), idle))


def digest_snapshot(snapshot: Snapshot) -> str:
    """The same of what was drawn: where this differs, it is not the engine that decides otherwise."""
    nodes, pending, running = snapshot.nodes, snapshot.pending, snapshot.running
    waiting = (pending.gang, pending.eligible_us, pending.length_us, pending.gate, pending.attained_us)
    seated = (running.gang, running.start_us, running.length_us, running.members, running.guest, running.evictions)
    rows = [column[pending.alive].tolist() for column in waiting], [column[running.alive].tolist() for column in seated]
    service = [mask.tolist() for mask in (nodes.in_service, nodes.repairable, nodes.draining)]
    memory = [sorted(numbers) for numbers in (snapshot.promises, snapshot.degraded, snapshot.pins, snapshot.fresh)]
    room = nodes.free.tolist(), nodes.device_free.tolist()
    return _digest((snapshot.now_us, snapshot.hints.settled_upto, snapshot.hints.room, rows, service, memory, room))


def _digest(value: object) -> str:
    text = json.dumps(_plain(value), separators=(",", ":"))
    return blake2s(text.encode(), digest_size=3).hexdigest()


def _plain(value: object) -> object:
    """Without class names: a number is a number whether numpy made it or not."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, int | np.integer | np.bool_):
        return int(value)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"a plan's key holds {value!r}, for which no form to digest is agreed")


def list_kinds(plan: Plan) -> Iterator[str]:
    """What occurs in a plan, as words to count."""
    for key in (decision.key() for decision in plan.decisions):
        word = str(key[0])
        if word == "bind":
            word += ("", " as guest with surplus", " as guest")[int(str(key[3]))]
        elif word in ("resize", "evict"):
            word += f" for {key[2]}"
        yield word
    yield from ("reservation" for _ in plan.reservations)
    yield from ("infeasible" for _ in plan.infeasible)
    yield from ("settled in" for _ in plan.settled_in)
    if plan.wake_at_us is not None:
        yield "wake"
    if plan.idle is not None:
        yield "ledger"
    if plan.verdicts is not None:
        yield from (f"verdict {code}" for code in sorted(set(plan.verdicts.codes.tolist())))
