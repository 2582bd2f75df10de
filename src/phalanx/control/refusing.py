"""A plan may be refused in part: what is remembered to undo a decision, and what hangs on it.

A plan is folded at once, since the next one must not give the same seats away twice. Where the world may still say
no, every decision is kept with a picture of its gang from before, until it is confirmed. A refusal takes back that
decision and everything that stands on it: a start on seats that are not given back after all, gangs that start
together with one that cannot, and whatever others were to give for a start that does not come about. What remains is
the state as if none of those had been decided, but for a rest, so that the same plan is not made again at once.

Kubernetes undoes a failed bind pod by pod (unreserve); here it is whole gangs and everything between them, because a
gang that was evicted for one that cannot start should run on. Called through `State.refuse`, `confirm` and `forget`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from phalanx.control.records import (
    RUNNING,
    Ghost,
    Image,
    Lent,
    PlanRefusal,
    Record,
    Unconfirmed,
    touches,
    widen_seats,
)
from phalanx.control.seating import add_running, keep_busy, lenders_of, past_of, seat, unseat
from phalanx.control.tables import Tables
from phalanx.control.waiting import queue_up, set_gates
from phalanx.engine.lifecycle import Phase
from phalanx.engine.room.view import find_need
from phalanx.model.plan import Bind, Evict, Plan, Resize, Seats

#: The first rest after a refusal; each further one in a row is twice as long, up to the last. Short at first, since
#: the next plan may well find other places; growing, since a world that says no every time is asked over a network.
REST_FIRST_US: Final = 1_000_000
REST_LAST_US: Final = 300_000_000

#: Seats that others are still leaving: of whom they were to be, until when, and who is leaving.
_Left = tuple[Record, tuple[Seats, ...], int, tuple[int, ...]]


def take_images(state: Tables, plan: Plan) -> None:
    """Before a plan is folded: everybody it speaks of, as they are."""
    # Only plans that still have something unconfirmed need telling apart.
    serial = max((each.plan for each in state.unconfirmed), default=0) + 1
    for decision in plan.decisions:
        record = state.records[decision.gang]
        row = None
        if record.phase.seated:
            # Every column of the running table, so that one that is added later is kept as well.
            row = {name: state.running.columns[name][record.row].item() for name in RUNNING}
        # A copy: folding writes to the record's own.
        history = None if record.history is None else replace(record.history)
        degraded = state.degraded.get(decision.gang)
        # Of the one gang and not of the state: other things may have happened by the time somebody says no.
        image = Image(record.phase, record.attempts, history, record.seats, row, degraded)
        entry = Unconfirmed(serial, decision, image)
        if isinstance(decision, Resize):
            # Seats that it gives back are busy until then, under a row of nobody that is found again by this instant.
            entry.leaves_us = state.now_us + record.gang.resize_pause_us
        elif isinstance(decision, Bind):
            evicts = (other for other in plan.decisions if isinstance(other, Evict))
            # If this start is refused after its victims are really gone, they were evicted in vain (rule 10).
            entry.victims = tuple(other.gang for other in evicts if other.beneficiary == decision.gang)
        elif isinstance(decision, Evict):
            # An eviction frees at once what a shrink before it was still leaving. Undone, the gang leaves it as before.
            entry.ghosts = tuple((at_us, ghost) for at_us, ghost in state.vacating if ghost.leaver is record.gang)
            entry.lent = tuple(_list_lent(state, decision.gang))
        state.unconfirmed.append(entry)


def _list_lent(state: Tables, number: int) -> Iterator[Lent]:
    running = state.running
    starting = (running.alive & (running.columns["start_us"] > state.now_us)).nonzero()[0]
    for row in starting.tolist():
        claimant = int(running.columns["gang"][row])
        past = state.records[claimant].history if claimant >= 0 else None
        if past is not None and past.lenders and number in past.lenders:
            yield Lent(claimant, dict(past.lenders), int(running.columns["start_us"][row]))


def confirm(state: Tables, number: int) -> None:
    """What was decided of a gang has come about; refusals of it no longer count."""
    # Its victims' pictures stay: they have their own answers to give.
    forget(state, number)
    refusal = state.refusals.get(number)
    if refusal is not None and refusal.times:
        # Refusals are counted in a row; what was said stays, for whoever asks why it took so long.
        state.refusals[number] = replace(refusal, times=0, rests_until_us=0)


def forget(state: Tables, number: int) -> None:
    """What was decided of a gang can no longer be taken back: it came about, or something else happened since."""
    if state.unconfirmed:
        state.unconfirmed = [each for each in state.unconfirmed if each.decision.gang != number]


def forget_node(state: Tables, node: int) -> None:
    """Nobody can be put back on a node that is gone."""
    for each in list(state.unconfirmed):
        sat = (*each.image.seats, *state.records[each.decision.gang].seats)
        # Neither those who sat there before nor those who were to sit there.
        if any(bool((seats.nodes == node).any()) for seats in sat):
            forget(state, each.decision.gang)


def widen_images(state: Tables, devices: int) -> None:
    """Nodes may have more devices than before."""
    for each in state.unconfirmed:
        each.image.seats = tuple(widen_seats(seats, devices) for seats in each.image.seats)


# ---- what hangs on what


def find_hanging(state: Tables, number: int) -> list[Unconfirmed]:
    """Everything that falls with what was decided of a gang, in the order in which it was decided."""
    # Whoever has ended is past being put back.
    state.unconfirmed = [each for each in state.unconfirmed if not state.records[each.decision.gang].phase.ended]
    falling = {id(each) for each in state.unconfirmed if each.decision.gang == number}
    size = 0
    # To a fixed point, since what falls makes others fall: a refused shrink voids a start, and that start's victims
    # stay.
    while size != len(falling):
        size = len(falling)
        gone = [each for each in state.unconfirmed if id(each) in falling]
        for each in state.unconfirmed:
            # By identity, since two decisions about one gang may be equal.
            if id(each) not in falling and any(_hangs_on(state, each, other) for other in gone):
                falling.add(id(each))
        # Room is the dearer question and asked only when the bonds tell nothing new.
        if size == len(falling):
            falling |= _find_overfull(state, [each for each in state.unconfirmed if id(each) in falling])
    return [each for each in state.unconfirmed if id(each) in falling]


def _hangs_on(state: Tables, each: Unconfirmed, gone: Unconfirmed) -> bool:
    """Whether one decision is void when another is; room is looked at separately."""
    mine, other = each.decision, gone.decision
    if mine.gang == other.gang:
        return True  # decided upon it
    if isinstance(other, Evict | Resize) and isinstance(mine, Bind):
        past = state.records[mine.gang].history
        # It waits for seats that the other is to leave, perhaps by an earlier plan.
        waits = past is not None and past.claim is not None and other.gang in (past.lenders or ())
        # Serials tell plans apart: gang 7 may be the beneficiary of two of them, and only one start hangs on each.
        return waits or (each.plan == gone.plan and other.beneficiary == mine.gang)
    if isinstance(other, Bind) and each.plan == gone.plan:
        if isinstance(mine, Evict | Resize):
            return mine.beneficiary == other.gang  # nobody makes way for a gang that does not start
        # Gangs that start together do so once; on a later attempt each stands for itself.
        group = state.records[other.gang].group
        return (
            isinstance(mine, Bind)
            and group >= 0
            and group == state.records[mine.gang].group
            and not each.image.attempts
            and not gone.image.attempts
        )
    return False


def _find_overfull(state: Tables, gone: Sequence[Unconfirmed]) -> set[int]:
    """Further decisions that sit where there is no room once these are taken back."""
    free, devices = _room_without(state, gone)
    # Whoever was put back needs its seats: on nodes that are overfull then, later decisions must give way.
    short = (free < 0).any(axis=1) | (devices < 0).any(axis=1)
    if not short.any():
        return set()
    falling = {id(each) for each in gone}
    return {
        id(each)
        for each in state.unconfirmed
        if id(each) not in falling and _takes_on(state, each, np.flatnonzero(short).tolist())
    }


def _takes_on(state: Tables, each: Unconfirmed, nodes: list[int]) -> bool:
    """Whether a decision gave a gang more on any of these nodes than it had."""
    record = state.records[each.decision.gang]
    # It waits again already, so that it is in nobody's way.
    if not record.phase.seated:
        return False
    now, before = _by_node(record.seats), _by_node(each.image.seats)
    # Only who gained there is in the way; who sat there before has the older right.
    return any(now.get(node, 0) > before.get(node, 0) for node in nodes)


def _by_node(seats: Iterable[Seats]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in seats:
        for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
            found[node] = found.get(node, 0) + count
    return found


def _room_without(state: Tables, gone: Sequence[Unconfirmed]) -> tuple[Any, Any]:
    """What would be free if these were taken back: their seats returned, the earlier ones taken."""
    free, devices = state.nodes.free.copy(), state.nodes.device_free.astype(np.int64)
    # Each gang once, however many decisions about it fall.
    for record in {each.decision.gang: state.records[each.decision.gang] for each in gone}.values():
        if record.phase.seated:
            _count(state, record, record.seats, free, devices, 1)
    for _, ghost in _ghosts_of(state, gone):
        # A refused shrink gives nothing back, so that the row which keeps those seats busy goes too.
        _count(state, ghost, ghost.seats, free, devices, 1)
    for number, image in _first_images(gone).items():
        # Who waited before takes nothing when it is put back.
        if image.row is not None:
            _count(state, state.records[number], image.seats, free, devices, -1)
    return free, devices


def _count(state: Tables, record: Record, seats: Iterable[Seats], free: Any, devices: Any, sign: int) -> None:
    for each in seats:
        need = find_need(state.fleet, record.gang.roles[each.role].shape)
        # `add.at` is not needed: a node stands once in the seats of a role.
        free[each.nodes] += sign * each.counts[:, None] * need.vector
        if need.share or need.whole:
            devices[each.nodes] += sign * each.devices.astype(np.int64)


def _first_images(gone: Sequence[Unconfirmed]) -> dict[int, Image]:
    """Of several decisions about one gang the picture before the first."""
    images: dict[int, Image] = {}
    for each in gone:
        # All of them fall together (`_hangs_on`: decided upon it), so that the oldest picture is the one to go back to.
        images.setdefault(each.decision.gang, each.image)
    return images


def _ghosts_of(state: Tables, gone: Sequence[Unconfirmed]) -> list[tuple[int, Ghost]]:
    """Rows of nobody on seats that these resizes were to give back, with the instants until which they are."""
    resizes = [each for each in gone if each.leaves_us]
    # By identity, and by who really sits there: two gangs may be equal in all they say and are still two, and the rest
    # of a seat of which somebody has a part belongs to a gang that is made up for it.
    leaving = {(id(state.gangs[each.decision.gang]), each.leaves_us) for each in resizes}
    lenders = {each.decision.gang for each in resizes}
    return [
        (until_us, ghost)
        for until_us, ghost in state.vacating
        if (id(ghost.leaver), until_us) in leaving or lenders & {*ghost.lenders}
    ]


# ---- undoing


def refuse(state: Tables, number: int, words: str) -> PlanRefusal:
    """Take back what was decided of a gang and is not confirmed, with everything that hangs on it."""
    state.thaw()
    gone = find_hanging(state, number)
    undone: tuple[int, ...] = ()
    # All or nothing: half of it undone would be a state that no plan has ever described.
    if gone and _is_possible(state, gone):
        _undo(state, gone)
        undone = tuple(dict.fromkeys(each.decision.gang for each in gone))
    # Otherwise it is too late: somebody else has begun on those seats, or the gang has gone on. The words are kept.
    for other in undone:
        if other != number and state.records[other].phase is Phase.PENDING:
            # Else it would be planned again at once, on the same seats, and the refused one with it.
            _rest(state, other, f"hangs on {state.gangs[number].name}: {words}", (other,))
    _rest(state, number, words, undone)
    state.hints.unsettle()
    return state.refusals[number]


def _is_possible(state: Tables, gone: Sequence[Unconfirmed]) -> bool:
    """Whether whoever sat there before can sit there again."""
    free, devices = _room_without(state, gone)
    return not bool((free < 0).any() or (devices < 0).any())


def _undo(state: Tables, gone: Sequence[Unconfirmed]) -> None:
    # First everything is given back, then everything is taken: in any other order two gangs could want one seat at
    # once.
    images = _first_images(gone)
    leaving = _give_back(state, gone, images)
    # Everybody sits, or waits, as before. Pictures first, rows of nobody last: they take only what is free.
    for number, image in images.items():
        _restore(state, number, image)
    for record, seats, until_us, lenders in leaving:
        # If all its lenders are put back as well, nobody is leaving: the seats are theirs.
        others = tuple(lender for lender in lenders if lender not in images)
        if until_us > state.now_us and others:
            keep_busy(state, record, seats, until_us, lenders=others)
    for each in gone:
        _lend_again(state, each)
    _count_vain(state, gone)
    _drop_promises(state, images)
    falling = {id(each) for each in gone}
    state.unconfirmed = [each for each in state.unconfirmed if id(each) not in falling]


def _give_back(state: Tables, gone: Sequence[Unconfirmed], images: dict[int, Image]) -> list[_Left]:
    """Everything that was taken is free again; the answer is claims whose seats others may still be leaving."""
    leaving: list[_Left] = []
    # Seats kept busy for a shrink that did not happen belong to their gang again. Of a claim that was taken back before
    # this one, others may still be leaving a part.
    ghosts = _ghosts_of(state, gone)
    for until_us, ghost in ghosts:
        unseat(state, ghost)
        state.running.remove(ghost.row)
        leaving.append((ghost, ghost.seats, until_us, ghost.lenders))
    state.vacating = [entry for entry in state.vacating if not any(entry[1] is ghost for _, ghost in ghosts)]
    for number, image in images.items():
        record = state.records[number]
        if record.phase.seated:
            if record.phase is Phase.STARTING and image.row is None:
                starts_us = int(state.running.columns["start_us"][record.row])
                # Its own claim is void, but the lenders may still be on their way out: those seats are not free yet.
                leaving.append((replace(record), record.seats, starts_us, lenders_of(record)))
            # Before any picture is restored: two of them may have exchanged seats.
            unseat(state, record)
            if image.row is None:
                state.running.remove(record.row)
        elif image.row is not None:
            state.pending.remove(record.row)
    return leaving


def _restore(state: Tables, number: int, image: Image) -> None:
    record = state.records[number]
    was_seated = record.phase.seated
    token = 0 if record.history is None else record.history.token
    # Set, not advanced: the table of lifecycle says what may happen, and this is to make something not have happened.
    record.phase, record.attempts = image.phase, image.attempts
    record.history = None if image.history is None else replace(image.history)
    if token:
        past_of(record).token = token + 1  # timers of the stay that never was mean nothing
    # It waited before: no seats to take, and it queues again with its age, as an arrival that the engine must look at.
    if image.row is None:
        record.row, record.seats = -1, ()
        state.fresh.add(number)
        queue_up(state, number, record)
        return
    if was_seated:
        record.seats = image.seats
        for seats in image.seats:
            seat(state, record, record.row, seats)
    else:
        # By the one way that seats anybody; the row it writes is then overwritten, column by column, with what it was.
        add_running(state, number, Bind(number, image.seats, image.row["length_us"]), image.row["start_us"])
    for name, value in image.row.items():
        state.running.columns[name][record.row] = value
    state.hints.ends.note(image.row["start_us"] + image.row["length_us"])
    state.degraded.pop(number, None)
    if image.degraded is not None:
        state.degraded[number] = image.degraded
    if image.phase is Phase.DEGRADED:
        state.set_timer(image.row["start_us"] + image.row["length_us"], "hold", number, past_of(record).token)
    elif image.phase is Phase.STARTING:
        state.set_timer(image.row["start_us"], "start", number, past_of(record).token)


def _lend_again(state: Tables, each: Unconfirmed) -> None:
    """A gang that was gone for an instant from seats it was leaving is still leaving them."""
    # With the times they had: the eviction had cut them short.
    until = {id(ghost): at_us for at_us, ghost in each.ghosts}
    state.vacating = [(until.get(id(ghost), at_us), ghost) for at_us, ghost in state.vacating]
    for lent in each.lent:
        record = state.records[lent.claimant]
        # One that has begun or ended meanwhile needs no lender any more.
        if record.phase is Phase.STARTING:
            past = past_of(record)
            past.lenders = lent.lenders
            past.token += 1
            state.running.columns["start_us"][record.row] = lent.start_us
            state.set_timer(lent.start_us, "start", lent.claimant, past.token)


def _drop_promises(state: Tables, images: dict[int, Image]) -> None:
    """Promises to those who are back where they were, and promises that counted on their seats."""
    # Promises were planned with those seats free. They are void as if a node had gone (rule 4), and made anew.
    nodes = np.zeros(len(state.fleet), dtype=np.bool_)
    for image in images.values():
        for seats in image.seats:
            nodes[seats.nodes] = True
    # Promises of the gangs themselves are void too: one that is put back sits or
    # queues as if nothing had been promised.
    state.promises = {
        first: promise
        for first, promise in state.promises.items()
        if not images.keys() & set(promise.gangs) and not touches(promise, nodes)
    }


def _count_vain(state: Tables, gone: Sequence[Unconfirmed]) -> None:
    """A start that does not come about, for which somebody was evicted for good: one broken promise (rule 10)."""
    back = {each.decision.gang for each in gone if isinstance(each.decision, Evict)}
    state.evictions_in_vain += sum(any(victim not in back for victim in each.victims) for each in gone)


def _rest(state: Tables, number: int, words: str, undone: tuple[int, ...]) -> None:
    """Nothing is asked of a gang again before it has rested; a waiting one is behind a gate until then."""
    earlier, record = state.refusals.get(number), state.records[number]
    times = 1 if earlier is None else earlier.times + 1
    # 1 s, 2 s, 4 s, up to 5 min. Without anything undone there is nothing to keep from being tried again.
    until_us = state.now_us + min(REST_FIRST_US << min(times - 1, 20), REST_LAST_US) if undone else 0
    state.refusals[number] = PlanRefusal(number, state.now_us, words, undone, times, until_us)
    if undone and record.phase is Phase.PENDING:
        past = past_of(record)
        past.resting = True
        past.token += 1
        state.set_timer(until_us, "rest", number, past.token)
        set_gates(state, record)
    # Who runs has no gate: the loop asks `is_resting` before it hands out the next change.
    elif undone:
        state.set_timer(until_us, "retry", number, 0)
