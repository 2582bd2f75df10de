"""A machine with a disk, reduced to what counts for one attempt, with a daemon that may die between any two duties.

What the disk says of it, what of it there is, whether it was told to go. For tests that go through all that can be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from phalanx.frontends.host.core.attempt_phases import (
    RECALLED,
    AttemptEvent,
    AttemptPhase,
    D,
    Duty,
    E,
    Meaning,
    OnDisk,
    P,
    Purpose,
    Remnant,
    advance_attempt,
    judge_end,
    written_as,
)

NEVER = "never was"


@dataclass(frozen=True)
class Model:
    """An attempt, its row, what of it there is, and what is still to be done."""

    phase: AttemptPhase = P.WAITING
    purpose: Purpose | None = None
    row: OnDisk | None = None
    row_purpose: Purpose | None = None
    there: Remnant = Remnant.NOTHING
    ran: bool = False  # somebody went through the gate
    told: bool = False  # the members know that they are to go; not that the daemon says so
    duties: tuple[Duty, ...] = ()
    may_be_told: bool = False  # what the daemon goes by when it judges
    outcome: Meaning | str = ""
    promised: Purpose | None = None  # what is on disk, and may have been acknowledged


def happen(model: Model, event: AttemptEvent, purpose: Purpose | None = None) -> Model:
    """The daemon hears of something, and knows what is to be done."""
    may_be_told = model.phase.told or model.may_be_told
    phase, duties = advance_attempt(model.phase, event, "the model")
    if purpose is not None and D.WRITE in duties:
        model = replace(model, purpose=purpose)
    return replace(model, phase=phase, duties=(*model.duties, *duties), may_be_told=may_be_told)


def write(model: Model) -> Model:
    if model.phase is P.GONE:  # what was decided before is overtaken by the end
        return model
    return replace(model, row=written_as(model.phase), row_purpose=model.purpose, promised=model.purpose)


def drop(model: Model) -> Model:
    outcome = Meaning.CANCELLED if model.purpose is Purpose.CANCEL else NEVER
    return replace(model, row=None, outcome=outcome, there=Remnant.NOTHING)


def tell(model: Model) -> Model:
    assert model.row_purpose is not None, "nobody is told what the disk does not know"
    return replace(model, told=True)


def close(model: Model) -> Model:
    if model.phase is not P.GONE:  # it was over early, and its beginning is written down now
        return happen(model, E.EMPTY)
    # All that the members do is to exit with 0, unless one of them failed: the worst case, as it looks like an end.
    well = model.purpose is not Purpose.FAIL
    meaning = judge_end(model.purpose, told=model.may_be_told, well=well, stuck=False, restarts=0)
    return replace(model, row=None, outcome=meaning)


CARRIED = {
    D.WRITE: write,
    D.NOTE_START: write,
    D.PREPARE: lambda model: replace(model, there=Remnant.AT_GATE),
    D.OPEN: lambda model: replace(model, there=Remnant.ALIVE, ran=True),
    D.ABORT: lambda model: replace(model, there=Remnant.NOTHING),
    D.DROP: drop,
    D.SAY_YIELD: tell,
    D.SEND_TERM: tell,
    D.CLOSE: close,
    D.ADOPT: lambda model: model,
}


def carry_out(model: Model) -> list[Model]:
    """The next duty, and how it may come out."""
    duty, rest = model.duties[0], replace(model, duties=model.duties[1:])
    if duty is D.TELL:
        ways = [happen(replace(rest, duties=()), event) for event in (E.ASK, E.SIGNAL)]
        return [replace(way, duties=(*way.duties, *rest.duties)) for way in ways]  # at once, not after all the rest
    found = [CARRIED[duty](rest)]
    if duty in (D.PREPARE, D.OPEN):  # or somebody dies there, or the machine has no room
        found.append(happen(replace(rest, there=Remnant.NOTHING), E.CANNOT))
    return found


def go_on(model: Model) -> list[Model]:
    """Everything that was to be done is done: what comes of it."""
    if model.phase is P.WAITING:
        return [happen(model, E.BEGIN)]
    if model.phase in (P.PREPARING, P.UNWANTED):
        return [happen(model, E.AT_GATE)]
    if model.phase in (P.OPENING, P.REGRETTED, P.OVER_EARLY):
        return [happen(model, E.WENT)]
    return [happen(model, E.SIGNAL)] if model.phase is P.ASKED else []


def intrude(model: Model) -> list[Model]:
    """What others do meanwhile: members end, the daemon hears of it, somebody wants the end of it all."""
    found = []
    if model.there is Remnant.ALIVE:
        found.append(replace(model, there=Remnant.ENDED))
    # A daemon that still sorts out what it found hears nobody.
    if model.phase in (P.WAITING, P.GONE) or {D.CLOSE, D.ADOPT} & set(model.duties):
        return found
    if model.there is Remnant.ENDED and model.phase is not P.OVER_EARLY:
        found.append(happen(model, E.EMPTY))
    if len(model.duties) < 3:  # as many people as one likes, and not for ever
        purposes = [Purpose.CANCEL] if model.purpose else Purpose
        wanted = [purpose for purpose in purposes if purpose is not model.purpose]
        found += [happen(model, E.CANCEL if each is Purpose.CANCEL else E.UNWANT, each) for each in wanted]
    return found


def follow(model: Model) -> list[Model]:
    """Whatever may come next."""
    if model.outcome:
        return []
    return [*(carry_out(model) if model.duties else go_on(model)), *intrude(model)]


def crash(model: Model) -> Model | None:
    """The daemon dies and another one comes; None if nothing is on disk, so that the job simply waits."""
    if model.row is None or model.outcome:
        return None
    # Whoever stands at the gate goes home with the daemon.
    there = Remnant.NOTHING if model.there is Remnant.AT_GATE else model.there
    row, purpose = model.row, model.row_purpose
    if purpose is not None:  # why it is unwanted stands beside the state
        row = OnDisk.REGRETTED if row in (OnDisk.STARTING, OnDisk.REGRETTED) else OnDisk.STOPPING
    phase, duties = RECALLED[row, there]
    may_be_told = purpose is not None and phase is P.GONE
    return replace(model, phase=phase, purpose=purpose, there=there, duties=duties, may_be_told=may_be_told)


def explore() -> set[Model]:
    """All that can be reached, with crashes at every point, of the next daemon too."""
    seen: set[Model] = set()
    fringe = [Model()]
    while fringe:
        model = fringe.pop()
        if model in seen:
            continue
        seen.add(model)
        again = crash(model)
        fringe += [*follow(model), *([] if again is None else [again])]
    return seen
