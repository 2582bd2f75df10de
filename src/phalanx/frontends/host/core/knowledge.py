"""What is known of jobs, of the plan and of the machine, and what time it is. Parts that only answer need no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.frontends.host.core.counters import Meters, NoMeters
from phalanx.frontends.host.core.intake import Intake
from phalanx.frontends.host.core.jobs import Register
from phalanx.frontends.host.core.machine_trouble import MachineTrouble
from phalanx.frontends.host.core.occupancy import Occupancy
from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.ports import Clock, Device
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.host.store import Store
from phalanx.words import stamp


@dataclass(slots=True)
class Knowledge:
    """One daemon's view of its machine. Whoever has it reads the store; what is written goes through the pen."""

    clock: Clock
    store: Store
    devices: Sequence[Device]
    planner: Planner
    intake: Intake
    runs: Path
    settings: Settings = field(default_factory=Settings)
    system: bool = False  # jobs run as whoever submitted them
    node: str = "host"
    register: Register = field(default_factory=Register)
    occupancy: Occupancy = field(default_factory=Occupancy)
    trouble: MachineTrouble = field(default_factory=MachineTrouble)
    meters: Meters = field(default_factory=NoMeters)

    @property
    def in_trouble(self) -> bool:
        """Whether something keeps everybody from being started: a fault of the machine, or a full disk."""
        return bool(self.trouble.why) or self.store.full

    def now_us(self) -> int:
        """The cluster's clock."""
        return self.clock.now_us()

    def wall_at(self, at_us: int) -> float:
        """The wall clock at an instant of the cluster's."""
        return self.clock.wall_s() + (at_us - self.now_us()) / 1e6

    def iso_at(self, at_us: int) -> str:
        """An instant of the cluster's as a wall-clock time."""
        return self.iso(self.wall_at(at_us))

    def iso(self, wall: float | None) -> str:
        """A wall-clock time with the machine's offset."""
        return "" if wall is None else stamp(wall)
