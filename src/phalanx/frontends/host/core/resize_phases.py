"""A change of size while a gang runs, as a table of (phase, event) → phase.

    clearing ─seats free─► bringing ─at gate─► readying ─ready─► opening ─went─► done
        │  └─cleared (nobody comes)──────────────────────────────────────────────► done
        └─give up, replaced─► reverted ◄─give up─ bringing, readying; cannot ─ opening

Once the gate is being opened nobody changes their mind: it went, or it did not. Pure; `resizing` carries it out. No
outcome of a job hangs on this: after a restart whoever came is in, and whoever had to go is asked again.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final


class ResizePhase(StrEnum):
    """Where a change of size stands."""

    CLEARING = "clearing"  # whoever is to leave is asked to, and seats are waited for
    BRINGING = "bringing"  # whoever comes is brought to a gate of their own
    READYING = "readying"  # the old members are asked to make ready
    OPENING = "opening"  # the gate is being opened
    DONE = "done"
    REVERTED = "reverted"  # it goes on as it was

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self in (ResizePhase.DONE, ResizePhase.REVERTED)


class ResizeEvent(Enum):
    """What can happen to a change of size."""

    CLEARED = "be clear"  # all who had to leave are gone, and nobody comes
    SEATS_FREE = "get its seats"
    AT_GATE = "reach the gate"
    READY = "be ready"  # all who stay have answered
    GIVE_UP = "be given up"  # refused, too late, or whoever was to come could not be brought
    CANNOT = "fail at the gate"
    WENT = "go through the gate"
    REPLACED = "be replaced"  # by a newer word, while it waits for seats


_P, _E = ResizePhase, ResizeEvent

RESIZE_STEPS: Final[dict[tuple[ResizePhase, ResizeEvent], ResizePhase]] = {
    (_P.CLEARING, _E.CLEARED): _P.DONE,
    (_P.CLEARING, _E.SEATS_FREE): _P.BRINGING,
    (_P.CLEARING, _E.REPLACED): _P.REVERTED,
    (_P.BRINGING, _E.AT_GATE): _P.READYING,
    (_P.READYING, _E.READY): _P.OPENING,
    (_P.OPENING, _E.WENT): _P.DONE,
    (_P.OPENING, _E.CANNOT): _P.REVERTED,
    **{(phase, _E.GIVE_UP): _P.REVERTED for phase in (_P.CLEARING, _P.BRINGING, _P.READYING)},
}

#: What comes too late, or too early to mean anything.
RESIZE_LATE: Final[frozenset[tuple[ResizePhase, ResizeEvent]]] = frozenset(
    {
        # Timers and answers of a change that is over, or that was decided while they were on their way.
        *((phase, event) for phase in _P if phase.over for event in _E),
        (_P.OPENING, _E.GIVE_UP),
        (_P.OPENING, _E.READY),
        # Answers to the shrink that comes before a growth.
        *((phase, _E.READY) for phase in (_P.CLEARING, _P.BRINGING)),
        # Somebody looks again whether seats are free, or leaves after its time.
        *((phase, event) for phase in (_P.BRINGING, _P.READYING, _P.OPENING) for event in (_E.SEATS_FREE, _E.REPLACED)),
    }
)


class ImpossibleResize(Exception):  # noqa: N818 - names what happened
    """A change of size was told something that cannot happen to it where it stands."""


def advance_resize(phase: ResizePhase, event: ResizeEvent, story: str) -> ResizePhase:
    """The next phase, the same if the event means nothing any more; `story` names the change in the error."""
    found = RESIZE_STEPS.get((phase, event))
    if found is not None:
        return found
    if (phase, event) in RESIZE_LATE:
        return phase
    raise ImpossibleResize(f"{story} is {phase} and cannot {event.value}")
