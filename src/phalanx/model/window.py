"""Times at which nodes are spoken for by an administrator.

Slurm calls both kinds reservations (one with the flag MAINT). A reservation of ours is something else: the start that
the engine plans for a blocked gang (`model.plan.Reservation`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Nodes kept from `start_us` until `end_us`: for nobody (maintenance), or for some (a reservation)."""

    name: str
    nodes: tuple[str, ...]
    start_us: int  # a window that begins may find gangs inside: those that can leave get notice
    end_us: int
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # as named; gangs of queues below them count too

    @property
    def maintenance(self) -> bool:
        """Nobody may overlap it."""
        return not self.users and not self.queues
