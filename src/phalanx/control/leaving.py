"""Gangs go: they end, are cancelled, or give everything back and wait again.

Whoever waits for an end is told; whoever needed it to be a success is cancelled with it.

Functions over the tables of a state. Seats come free at once here: whether processes are really gone is for the front
end, which does not start anybody there before they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.control.records import FORGOTTEN, FORGOTTEN_GANG, Ghost
from phalanx.control.seating import attained_us, keep_busy, lenders_of, past_of, unseat
from phalanx.control.tables import Tables
from phalanx.control.waiting import queue_up, set_gates
from phalanx.engine.lifecycle import Happening, Phase, advance


def leave(state: Tables, number: int, happening: Happening) -> None:
    """Give back everything a gang holds, or take a pending one out of the queue."""
    state.thaw()
    record = state.records[number]
    was = record.phase
    # First of all, since it raises if this cannot happen: nothing has been changed by then.
    record.phase = advance(was, happening, record.gang.name)
    if was is Phase.PENDING:
        state.pending.remove(record.row)
        # A promise is of a start, and this one has started, or will not.
        state.promises.pop(number, None)
    else:
        if record.history is not None or happening is Happening.LOSE:
            past = past_of(record)
            past.token += 1
            # A claim that is given up must not begin later, when the lenders have gone.
            past.claim = None
            past.attained_us += attained_us(state, record) if was is Phase.RUNNING else 0
        # Read before the row is removed, for the seats that others are still leaving.
        starts_us = int(state.running.columns["start_us"][record.row])
        # With neither, nobody is leaving seats and nobody waits for any.
        if state.vacating or state.timers:
            _stop_vacating(state, number)
        unseat(state, record)
        state.running.remove(record.row)
        state.degraded.pop(number, None)
        if was is Phase.STARTING:  # whoever was about to leave these seats still sits there
            keep_busy(state, record, record.seats, starts_us, lenders=lenders_of(record))
    # The row is another's soon, and nobody may find this gang by it.
    record.row, record.seats = -1, ()
    state.hints.unsettle()


def _stop_vacating(state: Tables, number: int) -> None:
    """A gang that was still leaving seats is gone from them now: whoever waits for them starts at once."""
    state.vacating = [
        (state.now_us if _was_last(state, number, ghost) else until_us, ghost) for until_us, ghost in state.vacating
    ]
    running = state.running
    starting = (running.alive & (running.columns["start_us"] > state.now_us)).nonzero()[0]
    for other in running.columns["gang"][starting].tolist():
        record = state.records[other]
        past = record.history
        if past is None or not past.lenders or number not in past.lenders:
            continue
        past.lenders = {lender: until_us for lender, until_us in past.lenders.items() if lender != number}
        # As soon as the last of the others is gone; with none left, now.
        start_us = max([state.now_us, *past.lenders.values()])
        # The timer of its later start is void with this; another one is set below.
        past.token += 1
        state.running.columns["start_us"][record.row] = start_us
        state.set_timer(start_us, "start", other, past.token)


def _was_last(state: Tables, number: int, ghost: Ghost) -> bool:
    """Whether nobody sits there any more once a gang is gone."""
    if number in ghost.lenders:
        ghost.lenders = tuple(lender for lender in ghost.lenders if lender != number)
        return not ghost.lenders
    return ghost.leaver is state.gangs[number]


def end(state: Tables, number: int, happening: Happening) -> list[int]:
    """A gang has ended, well or badly; the answer is whoever is cancelled with it."""
    leave(state, number, happening)
    name, phase = state.gangs[number].name, state.records[number].phase
    state.dependencies.ended[name] = phase
    # Not in `leave`: an evicted gang keeps the size that a person wants of it.
    state.pins.pop(number, None)
    return tell_dependents(state, name, succeeded=phase is Phase.COMPLETED)


def cancel(state: Tables, number: int) -> list[int]:
    """Somebody does not want it any more; the answer is whoever else is cancelled with it."""
    if state.records[number].phase.ended:
        return []
    waiting = state.records[number].phase is Phase.PENDING
    cancelled = end(state, number, Happening.CANCEL)
    group = state.records[number].group
    # Rule 15 (together): cancelling one cancels those not yet started, for they can never be complete again.
    if waiting and group >= 0:
        for other in state.groups.listed[group].gangs:
            record = state.records[other]
            if record.phase is Phase.PENDING and not record.attempts:
                cancelled += [other, *cancel(state, other)]
    return cancelled


def forget_ended(state: Tables, number: int) -> None:
    """Nobody will ask for a gang that has ended, neither by its number nor by its name.

    For clusters in which gangs come for years: what was remembered of each would be two kilobytes.
    """
    record, name = state.records[number], state.gangs[number].name
    assert record.phase.ended, name
    state.thaw()
    state.gangs[number], state.records[number] = FORGOTTEN_GANG, FORGOTTEN
    if state.number_by_name.get(name) == number:
        # A later gang of that name keeps it, with what is said of how the earlier one ended.
        del state.number_by_name[name]
        state.dependencies.ended.pop(name, None)
    state.fresh.discard(number)
    state.judged.discard(number)
    for told in (state.curves, state.refusals, state.pins):
        told.pop(number, None)
    # Replaced and not written to: snapshots share it.
    if number in state.dates:
        state.dates = {other: verdict for other, verdict in state.dates.items() if other != number}
    # Whoever waits in a group asks what became of the others.
    group = record.group
    if group >= 0 and all(state.records[other].phase.ended for other in state.groups.listed[group].gangs):
        state.groups.drop(group)


def requeue(state: Tables, number: int) -> None:
    """A gang gives everything back and waits again, with its age."""
    leave(state, number, Happening.LOSE)
    queue_up(state, number, state.records[number])


def drop_waiting(state: Tables, numbers: Iterable[int]) -> None:
    """Forget gangs that wait, without a word to anybody; for copies in which they do not matter."""
    state.thaw()
    for number in numbers:
        record = state.records[number]
        record.phase = Phase.CANCELLED  # nobody may tell it of an end: its row is another's soon
        state.pending.remove(record.row)
    state.hints.unsettle()


def tell_dependents(state: Tables, name: str, *, succeeded: bool) -> list[int]:
    """Free those who waited for this end; cancel, for good, those who needed it to be a success."""
    # Infeasible gangs come here without an end: to those who wait for them it is one (rule 15, after).
    state.dependencies.ended.setdefault(name, Phase.FAILED)
    cancelled: list[int] = []
    for number in state.dependencies.waiting.pop(name, ()):
        record = state.records[number]
        if record.phase is not Phase.PENDING:
            continue
        if succeeded or record.gang.after.any_end:
            record.waits_for = record.waits_for - {name}
            # Rule 1: it queues from when it could have run. Its rows may stand out of order from here on.
            record.eligible_us = max(record.eligible_us, state.now_us)
            state.pending.columns["eligible_us"][record.row] = record.eligible_us
            state.hints.order.kept = False
            set_gates(state, record)
        else:
            # Written down although it is cancelled at once: the reason names who it was that did not succeed.
            record.doomed_by = name
            cancelled += [number, *cancel(state, number)]
    return cancelled
