"""The `maintenance:` and `reservations:` parts: nodes that an administrator speaks for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from phalanx.control.spec.errors import show, suggest
from phalanx.control.spec.quantity import SECOND_US
from phalanx.control.spec.spot import Fields, Spot
from phalanx.model.window import Window

MAINTENANCE_KEYS: Final = ("name", "nodes", "at", "for")
RESERVATION_KEYS: Final = ("name", "nodes", "at", "for", "users", "queues")

#: A window whose end nobody stated is planned like a gang whose length nobody stated.
LENGTH_US_UNKNOWN: Final = 86_400 * SECOND_US


def parse_maintenance(spot: Spot | None, nodes: Collection[str]) -> list[Window]:
    """Windows in which nobody may use the nodes."""
    windows = []
    for index, entry in enumerate(spot.items() if spot else ()):
        fields = entry.titled().fields(MAINTENANCE_KEYS)
        name = fields.get("name")
        # A name for everybody: reasons, reports and dumps speak of windows by name.
        windows.append(_window(fields, name.text() if name else f"maintenance-{index}", nodes))
    return windows


def parse_reservations(spot: Spot | None, nodes: Collection[str], queues: Collection[str]) -> list[Window]:
    """Windows in which only some may use the nodes."""
    windows = []
    for index, entry in enumerate(spot.items() if spot else ()):
        fields = entry.titled().fields(RESERVATION_KEYS)
        users = [item.text() for item in _listed(fields, "users")]
        # Queues must be of this file, users need not: people are known by nothing but what they submit.
        below = [item.one_of(queues, "queue") for item in _listed(fields, "queues")]
        # An empty list would exempt nobody and be a maintenance window under another name.
        if not users and not below:
            entry.titled().refuse("needs users or queues; nodes kept from everybody belong under maintenance")
        name = fields.get("name")
        bare = _window(fields, name.text() if name else f"reservation-{index}", nodes)
        windows.append(Window(bare.name, bare.nodes, bare.start_us, bare.end_us, tuple(users), tuple(below)))
    return windows


def check_nodes(spot: Spot, known: Collection[str]) -> list[str]:
    """The nodes of a host list, all of them known."""
    names = spot.hosts()
    for name in names:
        if name not in known:
            spot.refuse(f"names no node of this cluster: {show(name)}; {suggest(name, known)}")
    return names


def _window(fields: Fields, name: str, nodes: Collection[str]) -> Window:
    where = fields.need("nodes", 'nodes: "a[0-1]"')
    start_us = fields.need("at", "at: 2h").time_us()
    length = fields.get("for")
    length_us = length.length_us() if length else LENGTH_US_UNKNOWN
    # Each node once, in the order written: overlapping host lists are no slip.
    return Window(name, tuple(dict.fromkeys(check_nodes(where, nodes))), start_us, start_us + length_us)


def _listed(fields: Fields, key: str) -> list[Spot]:
    spot = fields.get(key)
    return spot.items_or_one() if spot else []
