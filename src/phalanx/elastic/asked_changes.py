"""What the scheduler wants of the job, and the seat from which the job answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SHRINK: Final = "shrink"
GROW: Final = "grow"
YIELD: Final = "yield"
CHECKPOINT: Final = "checkpoint"
KINDS: Final = (SHRINK, GROW, YIELD, CHECKPOINT)

#: What each request of the wire asks for.
KIND_BY_TYPE: Final[Mapping[str, str]] = {
    "shrink": SHRINK,
    "prepare": GROW,
    "yield": YIELD,
    "checkpoint": CHECKPOINT,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A request that waits for an answer: do it, then `job.done(change)`, or `job.refuse(change, why)`."""

    id: str
    kind: str  # shrink, grow, yield or checkpoint
    deadline: float  # on time.monotonic()
    leaves: bool  # this member is to exit: a yield, or a shrink that names it
    generation: int | None = None  # of the world after it; None where the world stays
    members: int | None = None  # how many then
    names: tuple[int, ...] = ()  # which then; empty where that is not known
    leaving: tuple[int, ...] = ()  # names, as `job.member`
    joining: tuple[int, ...] = ()
    why: str = ""

    @property
    def left_s(self) -> float:
        """Seconds until the scheduler stops waiting; never below zero."""
        return max(0.0, self.deadline - time.monotonic())


def read_change(message: Mapping[str, Any], name: int, names: tuple[int, ...], now: float) -> Change:
    """A request as the scheduler sent it, seen by the member of this name in a world of these names."""
    kind = KIND_BY_TYPE[message["type"]]
    leaving, joining = tuple(message.get("leaving", ())), tuple(message.get("joining", ()))
    members = message.get("members")
    after = tuple(message["ranks"]) if "ranks" in message else _count_on(names, leaving, joining)
    return Change(
        id=message["id"],
        kind=kind,
        deadline=now + message["deadline_s"],
        leaves=kind == YIELD or name in leaving,
        generation=message.get("generation"),
        members=members,
        # A list that does not fit the count was told by half; better none than a wrong one.
        names=after if members == len(after) else (),
        leaving=leaving,
        joining=joining,
        why=message.get("why", ""),
    )


def _count_on(names: tuple[int, ...], leaving: tuple[int, ...], joining: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted((set(names) - set(leaving)) | set(joining)))


@dataclass(frozen=True, slots=True)
class Membership:
    """One agreed membership."""

    generation: int
    members: int
    names: tuple[int, ...]  # of all members; empty where nobody has said which they are
