"""What comes out of the control loop, and who takes it: typed instructions, and two ports.

Clusters differ behind the ports: a `Carrier` carries instructions out and knows how gangs really fare, a `Recorder`
writes down what happened. Every front end brings both; `control.loop` decides what they are told and in which order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from phalanx.model.plan import Bind, Cause, Grounds, Plan, Seats
from phalanx.model.value import value

# ---- what comes out


@value(frozen=True, slots=True)
class Start:
    """A gang has its seats, and nobody sits there any more."""

    bind: Bind

    @property
    def gang(self) -> int:
        """Who."""
        return self.bind.gang


@dataclass(frozen=True, slots=True)
class Leave:
    """A gang gives everything back; it waits again already."""

    gang: int
    cause: Cause
    beneficiary: int | None = None


@dataclass(frozen=True, slots=True)
class SeatChange:
    """A running gang sits on other seats from now on."""

    gang: int
    before: tuple[Seats, ...]
    seats: tuple[Seats, ...]
    cause: Cause
    beneficiary: int | None = None
    grounds: Grounds | None = None  # the numbers behind it, where surplus was divided

    @property
    def gained(self) -> int:
        """By how many members it grows; negative: shrinks."""
        return sum(each.members for each in self.seats) - sum(each.members for each in self.before)


@dataclass(frozen=True, slots=True)
class Shift:
    """A gang goes on at these seats: after a move, a repair, or anew after a restart."""

    gang: int
    seats: tuple[Seats, ...]
    how: str  # move repair restart


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A gang lost members with a node and goes on with those that are left."""

    gang: int
    seats: tuple[Seats, ...]


@dataclass(frozen=True, slots=True)
class LetGo:
    """A degraded gang found no place and waits again; `held`: it gives back seats that it held until now."""

    gang: int
    held: bool


Instruction = Start | Leave | SeatChange | Shift | Shrunk | LetGo


# ---- ports


@dataclass(frozen=True, slots=True)
class Foresight:
    """What the in-job library of a running gang reports of it."""

    end_us: int  # when it will be done at its present size
    saved_us: int  # its newest snapshot, else the start of its work


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of an attempt that stopped before its end."""

    progressed: bool  # whether anything of it was saved
    left_us: int | None  # run time still needed at the largest size, if the gang reports progress


class Carrier(Protocol):
    """Who carries instructions out, and knows what becomes of gangs that run."""

    def list_refused(self, plan: Plan) -> Iterable[tuple[int, str]]:
        """Gangs of whose decisions it is known at once that they will not be carried out, and why."""
        ...

    def stop(self, number: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """A gang stops; `saves`: after a snapshot; `holds`: seats that it keeps without running."""
        ...

    def carry_out(self, instruction: Instruction) -> None:
        """Have it done. What cannot be done comes back later, as a refusal."""
        ...

    def foresee(self, number: int) -> Foresight | None:
        """What a running elastic gang reports just now; None if it reports nothing, or does so by itself."""
        ...


class Recorder(Protocol):
    """Who writes down what happened."""

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        ...

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        ...

    def on_change(self, number: int, at_us: int, event: str, change: SeatChange | None = None) -> None:
        """A gang that holds seats changed (grow, shrink, move, lose, repair, restart); the state knows how it sits.

        `change`: what the plan said, if a plan changed its size; `control.resizes` has words for it.
        """
        ...

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang was completed, failed, cancelled, or gave all its seats back (evict, yield)."""
        ...

    def on_capacity(self, at_us: int) -> None:
        """Nodes joined, left, failed or came back."""
        ...

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle decided."""
        ...


class Silence:
    """A recorder for those who write things down elsewhere."""

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""

    def on_change(self, number: int, at_us: int, event: str, change: SeatChange | None = None) -> None:
        """A gang that holds seats changed."""

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang ended, or gave all its seats back."""

    def on_capacity(self, at_us: int) -> None:
        """Nodes joined, left, failed or came back."""

    def on_plan(self, plan: Plan, at_us: int) -> None:
        """A cycle decided."""
