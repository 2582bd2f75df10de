"""The daemon's clock.

Durations come from CLOCK_BOOTTIME, which steps for nobody and counts while the machine sleeps. The
wall clock is for people, and for one question: how long a machine was off between two boots.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from phalanx.frontends.host.ports import Clock


@dataclass(frozen=True, slots=True)
class ClockMark:
    """The cluster's clock beside the machine's, as it was written down last."""

    now_us: int
    boot_id: str
    boottime_us: int
    wall_us: int


class HostClock:
    """Microseconds since the first start of this state directory."""

    def __init__(self, last: ClockMark | None = None) -> None:
        """Go on from the last mark; after a reboot by the time that the machine says it was off."""
        self.boot_id = read_boot_id()
        boottime_us = read_boottime_us()
        if last is None:
            now_us = 0
        elif last.boot_id == self.boot_id:
            now_us = last.now_us + max(0, boottime_us - last.boottime_us)
        else:
            off_us = time.time_ns() // 1000 - last.wall_us
            now_us = last.now_us + max(0, off_us)
        self._offset_us = now_us - boottime_us

    def now_us(self) -> int:
        """The cluster's clock."""
        return read_boottime_us() + self._offset_us

    def wall_s(self) -> float:
        """Seconds since the epoch, for people only."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def mark(self) -> ClockMark:
        """What a later start goes on from."""
        return ClockMark(self.now_us(), self.boot_id, read_boottime_us(), time.time_ns() // 1000)


def read_boot_id() -> str:
    """Which boot of the machine this is; tests name another in place of a reboot."""
    import os

    told = os.environ.get("PHALANX_BOOT_ID")
    if told:
        return told
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def read_boottime_us() -> int:
    """Since the machine was started, the time it slept included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


_: type[Clock] = HostClock
