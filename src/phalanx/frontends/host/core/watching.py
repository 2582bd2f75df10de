"""Looks at the devices every few seconds: strangers on them, devices that are gone, devices in quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from phalanx.frontends.host.core.hub import CHECKED, Hub, log
from phalanx.frontends.host.core.planner import NODE
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.ports import DeviceReading, Devices
from phalanx.frontends.host.stranger_watch import Rules, Stranger, StrangerWatch, find_strangers

WATCH_EVERY_S = 3.0
READ_WITHIN_S = 20.0


class Watching:
    """Keeps the engine's idea of busy devices true."""

    def __init__(self, hub: Hub, devices: Devices, starting: Starting, rules: Rules) -> None:
        """Nothing was read yet."""
        self.hub, self.devices, self.starting, self.rules = hub, devices, starting, rules
        self.readings: Mapping[int, DeviceReading] = {}
        self.watch = StrangerWatch()
        self._closed: set[int] = set()

    async def run(self) -> None:
        """For as long as the daemon lives."""
        while True:
            await self.look()
            await self.hub.clock.sleep(WATCH_EVERY_S)

    async def look(self) -> None:
        """One reading."""
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                self.readings = await asyncio.to_thread(self.devices.read)
        except Exception:  # noqa: BLE001 - drivers raise what they like, or hang, and no job may die of it
            log.exception("the devices could not be read; those that nobody of ours has count as busy")
            self.readings = {}
        given = {device.index for device in self.hub.devices if self.hub.occupancy.users(device.index)}
        numbers = [device.index for device in self.hub.devices]
        self.watch = find_strangers(self.readings, numbers, self._is_ours, given, self.watch, self.rules)
        self._settle()

    def _is_ours(self, device: int, pid: int) -> bool:
        """Whether a run that holds this device owns the process."""
        return any(self._owns(run, pid) for run, _ in self.hub.occupancy.users(device))

    def _owns(self, run: str, pid: int) -> bool:
        owns = getattr(self.hub.launcher, "owns", None)
        if owns is not None:
            return bool(owns(run, pid))
        job = self.hub.register.by_id.get(int(run.partition(".")[0]))
        live = None if job is None else job.live
        return live is not None and any(member.pid == pid for member in live.members.values())

    def _settle(self) -> None:
        hub = self.hub
        closed = {device for device in self.watch.held if not hub.occupancy.users(device)} | set(self.watch.gone)
        closed |= {device for device, why in hub.occupancy.closed.items() if why.startswith("quarantined")}
        self._take_back(closed - self._closed)
        for device in sorted(closed - self._closed):
            if hub.occupancy.closed.get(device, CHECKED) == CHECKED:
                hub.occupancy.closed[device] = self.why(device)
            log.warning("gpu %d is not given away: %s", device, self.why(device))
        for device in sorted(closed):
            # Also of one that was closed while a run of ours had it, when that is gone.
            if hub.planner.state.show_nodes().device_free[NODE, device] > 0:
                hub.planner.occupy(hub.now_us(), device)
        for device in sorted(self._closed - closed):
            hub.planner.leave_free(hub.now_us(), device)
            hub.occupancy.closed.pop(device, None)
            log.info("gpu %d may be given away again", device)
        if closed != self._closed:
            self._closed = closed
            self.starting.try_all()
            hub.stir()

    def _take_back(self, closing: Collection[int]) -> None:
        """Whoever was given one of these devices and has not begun waits again; other devices may be free."""
        hub = self.hub
        for number in list(self.starting.waiting) if closing else ():
            job = hub.register.by_id[number]
            live = job.next
            if live is not None and any(d in closing for m in live.members.values() for d, _ in m.devices):
                self.starting.drop(job)
                hub.planner.requeue(hub.now_us(), job.number)
                job.state = job.state if job.live is not None else "pending"

    def stranger(self, device: int) -> Stranger | None:
        """Who else uses a device."""
        return self.watch.held.get(device)

    def why(self, device: int) -> str:
        """Why a device is not given away."""
        if device in self.watch.gone:
            return "it is gone from the bus"
        held = self.watch.held.get(device)
        return held.message if held is not None else self.hub.occupancy.closed.get(device, "")
