"""What may happen to an attempt: tables of (phase, event) → (phase, duties), of what a restart finds, and of ends.

Pure: events come in, duties go out. `starting`, `ending` and `recovery` carry them out and decide nothing of this
themselves. The way of an attempt:

    waiting ─begin─► preparing ─at gate─► opening ─went─► running ──────────unwanted──► leaving ─ask─► asked
                         │                   │ │             ▲                             ▲ │           │ signal
                         │ unwanted unwanted │ │ empty       │ went                        │ └─signal─┐  ▼
                         ▼                   │ └──────► over early                         │          └► signalled
                      unwanted               └──────────────► regretted ─went──────────────┘

and from everywhere to gone: by what kept it from the gate, or when nothing of it is left.

One rule makes a restart safe: what decides the outcome (that it is unwanted, by whom and why) is on disk before
anybody is told of it. So a decision that the disk knows may have been told, and one that it does not know has not:
`RECALLED` says what the next daemon makes of either. Going through everything that can be reached shows that it never
comes to another outcome (tests/host/core/test_attempt_phases.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final


class AttemptPhase(StrEnum):
    """Where an attempt stands."""

    WAITING = "waiting"  # for its seats; nothing of it is on disk
    PREPARING = "preparing"  # written down; its members are brought to the gate
    UNWANTED = "unwanted"  # the same, and nobody may pass the gate
    OPENING = "opening"  # the gate is being opened: it may run already
    REGRETTED = "regretted"  # the same, and it is to go again
    OVER_EARLY = "over early"  # nothing of it is left, before we knew that it had begun
    RUNNING = "running"
    LEAVING = "leaving"  # somebody wants its end, and nobody has told it
    ASKED = "asked"  # told by a word, which gives it time to save; or it may have been
    SIGNALLED = "signalled"
    GONE = "gone"

    @property
    def at_gate(self) -> bool:
        """Whether it is not known to have begun."""
        return self in _AT_GATE

    @property
    def begun(self) -> bool:
        """Whether it is known to have begun, and something of it is left."""
        return self is P.RUNNING or self.ending

    @property
    def ending(self) -> bool:
        """Whether it runs and is to go."""
        return self in _ENDING

    @property
    def told(self) -> bool:
        """Whether it knows that it is to go, or may: then an exit with 0 is no proof of an end."""
        return self in (P.ASKED, P.SIGNALLED)


class AttemptEvent(Enum):
    """What can happen to an attempt."""

    BEGIN = "begin"  # its seats are free
    AT_GATE = "reach the gate"
    CANNOT = "fail to begin"  # nobody ran a line, and nothing is left
    WENT = "go through the gate"
    UNWANT = "be unwanted"  # for room, for its age, because a member failed, or to begin elsewhere
    CANCEL = "be cancelled"  # which goes before every other reason
    ASK = "be asked to go"  # what was decided is on disk, and all of it understand a word
    SIGNAL = "be signalled"  # what was decided is on disk, or the time that the word gave is over
    EMPTY = "be empty"  # nothing of it is left


class Duty(Enum):
    """What is to be done, in this order."""

    WRITE = "write down what was decided"
    PREPARE = "bring the members to the gate"
    OPEN = "open the gate"
    ABORT = "send home whoever is at the gate"
    DROP = "it never was: wait again, at no cost"
    NOTE_START = "write down that it runs"
    TELL = "tell it to go, by a word if it understands one"
    SAY_YIELD = "send the word"
    SEND_TERM = "send the signal"
    CLOSE = "judge, and write down how it ended"
    ADOPT = "go on from how it was found"


P, E, D = AttemptPhase, AttemptEvent, Duty
Step = tuple[AttemptPhase, tuple[Duty, ...]]

_AT_GATE: Final = (P.PREPARING, P.UNWANTED, P.OPENING, P.REGRETTED, P.OVER_EARLY)
_ENDING: Final = (P.LEAVING, P.ASKED, P.SIGNALLED)

STEPS: Final[dict[tuple[AttemptPhase, AttemptEvent], Step]] = {
    (P.WAITING, E.BEGIN): (P.PREPARING, (D.WRITE, D.PREPARE)),
    (P.PREPARING, E.AT_GATE): (P.OPENING, (D.OPEN,)),
    (P.UNWANTED, E.AT_GATE): (P.GONE, (D.ABORT, D.DROP)),
    **{(phase, E.CANNOT): (P.GONE, (D.DROP,)) for phase in _AT_GATE},
    (P.OPENING, E.WENT): (P.RUNNING, (D.NOTE_START,)),
    (P.REGRETTED, E.WENT): (P.LEAVING, (D.NOTE_START, D.TELL)),
    # Its end is judged once its beginning is on disk, as if it had come later.
    (P.OVER_EARLY, E.WENT): (P.RUNNING, (D.NOTE_START, D.CLOSE)),
    (P.OPENING, E.EMPTY): (P.OVER_EARLY, ()),
    (P.REGRETTED, E.EMPTY): (P.OVER_EARLY, ()),
    # At the gate whoever opens it looks first; so nobody has to be told.
    **{(P.PREPARING, event): (P.UNWANTED, (D.WRITE,)) for event in (E.UNWANT, E.CANCEL)},
    **{(P.OPENING, event): (P.REGRETTED, (D.WRITE,)) for event in (E.UNWANT, E.CANCEL)},
    **{(P.RUNNING, event): (P.LEAVING, (D.WRITE, D.TELL)) for event in (E.UNWANT, E.CANCEL)},
    # A person's word goes before the plan's, and is passed on at once.
    **{(phase, E.CANCEL): (phase, (D.WRITE,)) for phase in (P.UNWANTED, P.REGRETTED, P.OVER_EARLY)},
    **{(phase, E.CANCEL): (phase, (D.WRITE, D.TELL)) for phase in _ENDING},
    (P.LEAVING, E.ASK): (P.ASKED, (D.SAY_YIELD,)),
    (P.ASKED, E.ASK): (P.ASKED, (D.SAY_YIELD,)),  # by the next daemon once more, under the same id
    **{(phase, E.SIGNAL): (P.SIGNALLED, (D.SEND_TERM,)) for phase in _ENDING},
    **{(phase, E.EMPTY): (P.GONE, (D.CLOSE,)) for phase in (P.RUNNING, *_ENDING)},
}

#: What may happen all the same and changes nothing: it is late, or somebody else's decision stands.
LATE: Final[frozenset[tuple[AttemptPhase, AttemptEvent]]] = frozenset(
    {
        # The first decision stands.
        *((phase, E.UNWANT) for phase in (P.UNWANTED, P.REGRETTED, P.OVER_EARLY, *_ENDING)),
        # It was still here when somebody decided, or when its time to save began.
        *((P.GONE, event) for event in (E.UNWANT, E.CANCEL, E.ASK, E.SIGNAL, E.EMPTY)),
        # Who was signalled needs no word.
        (P.SIGNALLED, E.ASK),
        # Whoever opens the gate finds out that nobody is there.
        *((phase, E.EMPTY) for phase in (P.PREPARING, P.UNWANTED, P.OVER_EARLY)),
    }
)


class ImpossibleStep(Exception):  # noqa: N818 - names what happened
    """An attempt was told something that cannot happen to it where it stands."""


def advance_attempt(phase: AttemptPhase, event: AttemptEvent, story: str) -> Step:
    """The next phase and what is to be done; `story` names the attempt in the error."""
    found = STEPS.get((phase, event))
    if found is not None:
        return found
    if (phase, event) in LATE:
        return phase, ()
    raise ImpossibleStep(f"{story} is {phase} and cannot {event.value}")


# ---------------------------------------------------------------------- after a restart


class OnDisk(Enum):
    """What the row of an attempt says."""

    STARTING = "starting"  # nobody was let through the gate, as far as was written down
    REGRETTED = "starting, and unwanted"
    RUNNING = "running"
    STOPPING = "running, and unwanted"


class Remnant(Enum):
    """What its run directory says, and the processes."""

    NOTHING = "nothing"  # no directory and no process
    AT_GATE = "nobody passed the gate"
    ALIVE = "it runs"
    ENDED = "it ran, and nothing is left"


def written_as(phase: AttemptPhase) -> OnDisk:
    """What the disk says of an attempt in this phase, once everything is written that was to be."""
    if phase in (P.UNWANTED, P.REGRETTED):
        return OnDisk.REGRETTED
    if phase.at_gate:
        return OnDisk.STARTING
    return OnDisk.STOPPING if phase.ending else OnDisk.RUNNING


_NEVER: Final[Step] = (P.GONE, (D.DROP,))
_OVER: Final[Step] = (P.GONE, (D.CLOSE,))
#: Every pair has an answer. Unwanted means asked: it may have been.
RECALLED: Final[Mapping[tuple[OnDisk, Remnant], Step]] = {
    **{
        (row, remnant): _NEVER
        for row in (OnDisk.STARTING, OnDisk.REGRETTED)
        for remnant in (Remnant.NOTHING, Remnant.AT_GATE)
    },
    **{(row, Remnant.ENDED): _OVER for row in OnDisk},
    # It ran, and its directory is lost: nobody knows how it ended.
    **{
        (row, remnant): _OVER
        for row in (OnDisk.RUNNING, OnDisk.STOPPING)
        for remnant in (Remnant.NOTHING, Remnant.AT_GATE)
    },
    **{(row, Remnant.ALIVE): (P.RUNNING, (D.ADOPT,)) for row in (OnDisk.STARTING, OnDisk.RUNNING)},
    **{(row, Remnant.ALIVE): (P.ASKED, (D.ADOPT, D.TELL)) for row in (OnDisk.REGRETTED, OnDisk.STOPPING)},
}


# ---------------------------------------------------------------------- what an end means


class Purpose(StrEnum):
    """Why an attempt is being ended."""

    CANCEL = "cancel"  # by a person
    EVICT = "evict"  # by the plan
    TIME = "time"  # by its age
    FAIL = "fail"  # because a member failed
    MOVE = "move"  # to begin elsewhere


class Meaning(StrEnum):
    """What the end of an attempt means for its job."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    AGAIN = "again"  # no end: the job waits for, or goes to, its next attempt
    RESTART = "restart"  # the same, as one of its restarts


def judge_end(purpose: str | None, *, told: bool, well: bool, stuck: bool, restarts: int) -> Meaning:
    """What it means that nothing of an attempt is left.

    `well`: all who were to stay to the end exited with 0. `stuck`: something of it does not die.
    """
    if purpose == Purpose.CANCEL:
        return Meaning.CANCELLED
    # Another attempt beside what is left of a stuck one might write the same files.
    if purpose == Purpose.TIME or stuck:
        return Meaning.FAILED
    if purpose in (Purpose.EVICT, Purpose.MOVE):
        # Who saves and leaves exits with 0 as well. Only one that was done before anybody told it has ended.
        return Meaning.COMPLETED if well and not told else Meaning.AGAIN
    if well:
        return Meaning.COMPLETED
    return Meaning.RESTART if restarts > 0 else Meaning.FAILED
