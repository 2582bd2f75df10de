"""Looks at the devices every few seconds: strangers on them, devices that are gone, devices in quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.planner import NODE
from phalanx.frontends.host.core.processes import CHECKED
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.ports import DeviceReading, Devices
from phalanx.frontends.host.stranger_watch import Rules, Stranger, StrangerWatch, find_strangers

WATCH_EVERY_S = 3.0
READ_WITHIN_S = 20.0


class Watching:
    """Keeps the engine's idea of busy devices true."""

    def __init__(self, means: Means, devices: Devices, starting: Starting, rules: Rules) -> None:
        """Nothing was read yet."""
        self.known, self.errands, self.processes = means.known, means.errands, means.processes
        self.devices, self.starting, self.rules = devices, starting, rules
        self.readings: Mapping[int, DeviceReading] = {}
        self.watch = StrangerWatch()
        self._closed: set[int] = set()

    async def run(self) -> None:
        """For as long as the daemon lives."""
        while True:
            await self.look()
            await self.known.clock.sleep(WATCH_EVERY_S)

    async def look(self) -> None:
        """One reading."""
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                self.readings = await asyncio.to_thread(self.devices.read)
        except Exception:  # noqa: BLE001 - drivers raise what they like, or hang, and no job may die of it
            log.exception("the devices could not be read; those that nobody of ours has count as busy")
            self.readings = {}
        given = {device.index for device in self.known.devices if self.known.occupancy.users(device.index)}
        numbers = [device.index for device in self.known.devices]
        self.watch = find_strangers(self.readings, numbers, self._is_ours, given, self.watch, self.rules)
        self._settle()

    def _is_ours(self, device: int, pid: int) -> bool:
        """Whether a run that holds this device owns the process."""
        return any(self._owns(run, pid) for run, _ in self.known.occupancy.users(device))

    def _owns(self, run: str, pid: int) -> bool:
        owns = getattr(self.processes.launcher, "owns", None)
        if owns is not None:
            return bool(owns(run, pid))
        job = self.known.register.by_id.get(int(run.partition(".")[0]))
        live = None if job is None else job.live
        return live is not None and any(member.pid == pid for member in live.members.values())

    def _settle(self) -> None:
        closed = {device for device in self.watch.held if not self.known.occupancy.users(device)} | set(self.watch.gone)
        closed |= {device for device, why in self.known.occupancy.closed.items() if why.startswith("quarantined")}
        self._take_back(closed - self._closed)
        for device in sorted(closed - self._closed):
            if self.known.occupancy.closed.get(device, CHECKED) == CHECKED:
                self.known.occupancy.closed[device] = self.why(device)
            log.warning("gpu %d is not given away: %s", device, self.why(device))
        for device in sorted(closed):
            # Also of one that was closed while a run of ours had it, when that is gone.
            if self.known.planner.state.show_nodes().device_free[NODE, device] > 0:
                self.known.planner.occupy(self.known.now_us(), device)
        for device in sorted(self._closed - closed):
            self.known.planner.leave_free(self.known.now_us(), device)
            self.known.occupancy.closed.pop(device, None)
            log.info("gpu %d may be given away again", device)
        if closed != self._closed:
            self._closed = closed
            self.starting.try_all()
            self.errands.stir()

    def _take_back(self, closing: Collection[int]) -> None:
        """Whoever was given one of these devices and has not begun waits again; other devices may be free."""
        for number in list(self.starting.waiting) if closing else ():
            job = self.known.register.by_id[number]
            live = job.next
            if live is not None and any(d in closing for m in live.members.values() for d, _ in m.devices):
                self.starting.drop(job)
                self.known.planner.requeue(self.known.now_us(), job.number)
                job.state = job.state if job.live is not None else "pending"

    def stranger(self, device: int) -> Stranger | None:
        """Who else uses a device."""
        return self.watch.held.get(device)

    def why(self, device: int) -> str:
        """Why a device is not given away."""
        if device in self.watch.gone:
            return "it is gone from the bus"
        held = self.watch.held.get(device)
        return held.message if held is not None else self.known.occupancy.closed.get(device, "")
