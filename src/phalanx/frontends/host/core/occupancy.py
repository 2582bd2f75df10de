"""Who really sits on which device.

The plan frees a device when it decides so; here it is free when no process of the last user is
left. A start waits until everything it was given is free in this sense.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.frontends.host.core.jobs import Live, Member
from phalanx.model.resources import MILLI


class Occupancy:
    """Thousandths of each device by run and member, and devices that nobody may use."""

    def __init__(self) -> None:
        """Everything is free."""
        self._held: dict[int, dict[tuple[str, int], int]] = {}
        self.closed: dict[int, str] = {}  # device → why: a stranger, or in quarantine, or gone

    def take(self, live: Live, members: Iterable[Member]) -> None:
        """These members are about to have processes."""
        for member in members:
            for device, milli in member.devices:
                self._held.setdefault(device, {})[live.run, member.key] = milli

    def give(self, live: Live, members: Iterable[Member]) -> None:
        """Nothing of these members is left."""
        for member in members:
            for device, _ in member.devices:
                self._held.get(device, {}).pop((live.run, member.key), None)

    def blockers(self, members: Iterable[Member]) -> list[str]:
        """Runs, or causes, that are in the way of these members; empty if they may begin."""
        found: dict[str, None] = {}
        wanted: dict[int, int] = {}
        for member in members:
            for device, milli in member.devices:
                wanted[device] = wanted.get(device, 0) + milli
        for device, milli in wanted.items():
            if device in self.closed:
                found[self.closed[device]] = None
            held = self._held.get(device, {})
            if milli + sum(held.values()) > MILLI:
                found.update({run: None for run, _ in held})
        return list(found)

    def taken(self) -> frozenset[int]:
        """Devices on which somebody is."""
        return frozenset(device for device, held in self._held.items() if held)

    def users(self, device: int) -> list[tuple[str, int]]:
        """Runs and member keys on a device."""
        return list(self._held.get(device, {}))

    def share(self, device: int, run: str, key: int) -> int:
        """Thousandths of a device that a member has."""
        return self._held.get(device, {}).get((run, key), 0)

    def runs(self) -> set[str]:
        """Every run that holds anything."""
        return {run for held in self._held.values() for run, _ in held}
