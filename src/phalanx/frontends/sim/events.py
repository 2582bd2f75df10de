"""The `events:` part of a scenario: what happens to nodes and gangs, and when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from phalanx.control.spec.cluster import parse_nodes
from phalanx.control.spec.errors import show, suggest
from phalanx.control.spec.sizes import MEMBERS_MAX
from phalanx.control.spec.spot import Fields, Spot
from phalanx.control.spec.windows import check_nodes
from phalanx.model.fleet import Node

NODE_VERBS: Final = ("fail", "repair", "cordon", "drain", "uncordon", "remove")
GANG_VERBS: Final = ("cancel", "release")
VERBS: Final = (*NODE_VERBS, "add", *GANG_VERBS, "resize")
EVENT_KEYS: Final = ("at", *VERBS, "by")


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """One thing that happens to one node or one gang. A host list in the file gives several of these."""

    at_us: int
    verb: str
    node: str | None = None
    gang: str | None = None
    members: int | None = None  # of a resize; None gives the size back to the scheduler
    added: Node | None = None
    by_us: int | None = None  # of a drain: the instant at which what is left is evicted


def parse_events(spot: Spot | None, nodes: Collection[str], gangs: Collection[str]) -> tuple[TimedEvent, ...]:
    """All events in the order written. Nodes that an event adds may be named by the others."""
    if spot is None:
        return ()
    entries = [entry.titled() for entry in spot.items()]
    known = set(nodes)
    removed: set[str] = set()
    events: list[TimedEvent] = []
    for entry in entries:
        fields = entry.fields(EVENT_KEYS)
        verb = fields.one_verb(VERBS)
        at_us = fields.need("at", "at: 30m").time_us()
        if fields.get("by") and verb != "drain":
            entry.refuse(f"by belongs to drain only, not to {verb}")
        what = fields.need(verb, f"{verb}: …")
        if verb == "add":
            events += _parse_add(what, at_us, known - removed)
            known.update(event.node for event in events if event.node)
        elif verb in NODE_VERBS:
            by_us = _parse_by(fields, at_us)
            names = check_nodes(what, known)
            events += [TimedEvent(at_us, verb, node=name, by_us=by_us) for name in names]
            removed.update(names if verb in ("remove", "fail") else ())
        else:
            events += _parse_gang_event(what, at_us, verb, gangs)
    return tuple(events)


def _parse_add(spot: Spot, at_us: int, present: Collection[str]) -> list[TimedEvent]:
    events = []
    for item in spot.items_or_one():
        for node in parse_nodes(item):
            if node.name in present:
                item.refuse(f"adds the node {show(node.name)}, which is there already; remove it first")
            events.append(TimedEvent(at_us, "add", node=node.name, added=node))
    return events


def _parse_by(fields: Fields, at_us: int) -> int | None:
    """`by` is an instant of the same clock as `at`."""
    spot = fields.get("by")
    if spot is None:
        return None
    by_us = spot.time_us()
    if by_us <= at_us:
        spot.refuse(f"must be later than at (got {show(spot.value)}); it is an instant, counted like at")
    return by_us


def _parse_gang_event(spot: Spot, at_us: int, verb: str, gangs: Collection[str]) -> list[TimedEvent]:
    if verb != "resize":
        return [TimedEvent(at_us, verb, gang=item.one_of(gangs, "gang")) for item in spot.items_or_one()]
    events = []
    for name, wanted in spot.pairs():
        if name not in gangs:
            spot.refuse(f"names no gang of this file: {show(name)}; {suggest(name, gangs)}")
        members = None if wanted.value == "auto" else wanted.integer(1, MEMBERS_MAX)
        events.append(TimedEvent(at_us, verb, gang=name, members=members))
    if not events:
        spot.refuse("must not be empty; write {A: 4} or {A: auto}")
    return events
