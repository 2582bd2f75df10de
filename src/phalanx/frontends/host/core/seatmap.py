"""Seats of the engine as members with devices, and back.

The engine says how many thousandths of each device a role takes together; on one machine its
members are told apart here, in order of device, so that neighbours in rank are neighbours in the
machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from phalanx.frontends.host.core.jobs import Member
from phalanx.model.gang import Gang
from phalanx.model.plan import Seats
from phalanx.model.resources import DEVICE_KIND, MILLI

Devices = tuple[tuple[int, int], ...]


def split_seats(gang: Gang, seats: Sequence[Seats]) -> list[tuple[str, Devices]]:
    """Role and devices of every member, in order of rank."""
    found: list[tuple[str, Devices]] = []
    for each in seats:
        role = gang.roles[each.role]
        share = role.shape.amount(DEVICE_KIND)
        row = each.devices[0].tolist() if len(each.nodes) else []
        found += [(role.name, devices) for devices in _deal(row, share, each.members)]
    return found


def _deal(row: Sequence[int], share: int, members: int) -> list[Devices]:
    """The devices of each of so many members."""
    if not share:
        return [()] * members
    if share >= MILLI:
        whole = [device for device, milli in enumerate(row) if milli]
        width = share // MILLI
        return [tuple((device, MILLI) for device in whole[at * width : (at + 1) * width]) for at in range(members)]
    parts = [((device, share),) for device, milli in enumerate(row) for _ in range(milli // share)]
    return list(parts[:members])


def join_seats(gang: Gang, members: Iterable[Member], slots: int) -> tuple[Seats, ...]:
    """The engine's seats of these members on the one node; `slots` is how many devices it has."""
    by_role = {role.name: index for index, role in enumerate(gang.roles)}
    counts = [0] * len(gang.roles)
    rows = np.zeros((len(gang.roles), slots), dtype=np.int16)
    for member in members:
        role = by_role[member.role]
        counts[role] += 1
        for device, milli in member.devices:
            rows[role, device] += milli
    return tuple(_seats(role, count, rows[role : role + 1]) for role, count in enumerate(counts))


def _seats(role: int, count: int, row: np.ndarray) -> Seats:
    if not count:
        return Seats(role, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), row[:0])
    return Seats(role, np.array([0]), np.array([count]), row.copy())


def match(
    gang: Gang, seats: Sequence[Seats], members: Sequence[Member]
) -> tuple[list[Member], list[tuple[str, Devices]]]:
    """Who of the present members has to go so that the rest sits on these seats, and which places are then free.

    Devices have names, so a member stays exactly if its devices are still the gang's; where devices are
    shared or absent the highest ranks go first.
    """
    wanted = split_seats(gang, seats)
    staying: list[Member] = []
    for member in members:
        place = (member.role, member.devices)
        if place in wanted:
            wanted.remove(place)
            staying.append(member)
    kept = {member.key for member in staying}
    return [member for member in members if member.key not in kept], wanted
