"""The clocks of the controller: one that people read, one that steps for nobody and counts while the machine sleeps."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class KubeClock:
    """The machine's."""

    def __init__(self) -> None:
        # The engine counts from when we came by a clock that never goes back, set once to what people call it.
        self._offset_us = time.time_ns() // 1_000 - self.boot_us()

    def now_us(self) -> int:
        """For the engine."""
        return self.boot_us() + self._offset_us

    def boot_us(self) -> int:
        """Since the machine was started, the time it slept included: how long a lease is still good."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000

    def wall_s(self) -> float:
        """Since the epoch, as others see it too: deadlines that a successor reads."""
        return time.time()

    def stamp(self) -> str:
        """Now, as Kubernetes writes it in conditions."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def stamp_micro(self) -> str:
        """Now, as leases and events have it, and our log."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_stamp_us(stamp: str) -> int | None:
    """An instant as Kubernetes writes it, since the epoch; None if it is none."""
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1_000_000)
    except ValueError:
        return None
