"""Real processes on real devices: who starts and ends them, and how seats go from one to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from phalanx.frontends.host.core.jobs import Live, Member
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.ports import Launcher

#: Why a device is closed whose last user is gone: somebody looks whether nobody else is on it.
CHECKED: Final = "being checked"


async def _look_nowhere() -> None:
    """There is nothing to be seen."""


@dataclass(slots=True)
class Processes:
    """Those of one daemon."""

    known: Knowledge
    launcher: Launcher
    boot_id: str
    look_at_devices: Callable[[], Coroutine[Any, Any, None]] = _look_nowhere
    strays: dict[str, asyncio.Event] = field(default_factory=dict)  # runs of nobody that are killed; set once gone

    async def hand_over(self, live: Live, members: Sequence[Member]) -> None:
        """Nothing of these members is left, as far as is known: look at their devices, then let others have them."""
        devices = {device for member in members for device, _ in member.devices}
        fresh = [device for device in devices if device not in self.known.occupancy.closed]
        self.known.occupancy.closed.update(dict.fromkeys(fresh, CHECKED))
        self.known.occupancy.give(live, members)
        await self.look_at_devices()
        for device in fresh:
            if self.known.occupancy.closed.get(device) == CHECKED:
                del self.known.occupancy.closed[device]
