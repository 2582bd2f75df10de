"""What a part needs that does something: it knows, writes down, looks again, and has processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.frontends.host.core.errands import Errands
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.pen import Pen
from phalanx.frontends.host.core.processes import Processes
from phalanx.frontends.host.ports import Launcher


@dataclass(slots=True)
class Means:
    """One daemon's. Parts that need less are given less."""

    known: Knowledge
    launcher: Launcher
    boot_id: str
    errands: Errands = field(default_factory=Errands)
    pen: Pen = field(init=False)
    processes: Processes = field(init=False)

    def __post_init__(self) -> None:
        """All of them about one daemon."""
        self.pen = Pen(self.known, self.errands, self.boot_id)
        self.processes = Processes(self.known, self.launcher, self.boot_id)
