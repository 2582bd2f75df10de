"""The tables of an attempt, gone through to the end: every pair has an answer, and every restart comes to the right outcome.

What can be reached is found by a machine with a disk, reduced to what counts (`attempt_model`), whose daemon may die between
any two things that it does, again and again.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from attempt_model import NEVER, Model, carry_out, crash, explore, follow

from phalanx.frontends.host.core.attempt_phases import (
    LATE,
    RECALLED,
    STEPS,
    D,
    E,
    ImpossibleStep,
    Meaning,
    OnDisk,
    P,
    Purpose,
    Remnant,
    advance_attempt,
    judge_end,
)

# ---------------------------------------------------------------------- every pair

#: What nothing can bring about; anything else has an answer. A pair that comes to be possible fails below.
IMPOSSIBLE = {
    *((phase, E.BEGIN) for phase in P if phase is not P.WAITING),
    *((phase, E.AT_GATE) for phase in P if phase not in (P.PREPARING, P.UNWANTED)),
    *((phase, E.CANNOT) for phase in P if not phase.at_gate),
    *((phase, E.WENT) for phase in P if phase not in (P.OPENING, P.REGRETTED, P.OVER_EARLY)),
    # One that waits for seats is dropped: nobody has to end it.
    *((P.WAITING, event) for event in (E.UNWANT, E.CANCEL, E.EMPTY)),
    # Nobody is told before it is known to run, or for no reason.
    *((phase, event) for phase in (P.WAITING, P.RUNNING) for event in (E.ASK, E.SIGNAL)),
    *((phase, event) for phase in P if phase.at_gate for event in (E.ASK, E.SIGNAL)),
}


@pytest.mark.parametrize("phase", P)
@pytest.mark.parametrize("event", E)
def test_every_phase_has_one_answer_to_every_event(phase, event):
    pair = (phase, event)
    assert [pair in STEPS, pair in LATE, pair in IMPOSSIBLE].count(True) == 1
    if pair in IMPOSSIBLE:
        with pytest.raises(ImpossibleStep, match=r"run 7\.1 is"):
            advance_attempt(phase, event, "run 7.1")
    else:
        after, duties = advance_attempt(phase, event, "run 7.1")
        assert pair in STEPS or (after, duties) == (phase, ())


def test_every_find_has_one_answer():
    assert RECALLED.keys() == set(product(OnDisk, Remnant))


def test_nobody_leaves_the_end():
    assert {after for (phase, _), (after, _) in STEPS.items() if phase is P.GONE} == set()


def test_whoever_has_a_decision_written_has_it_written_before_anybody_is_told():
    for step, (_, duties) in STEPS.items():
        if D.TELL in duties:
            # Regretted: it was written when it was regretted.
            assert D.WRITE in duties[: duties.index(D.TELL)] or step == (P.REGRETTED, E.WENT)
    assert all(D.WRITE in duties for (_, event), (_, duties) in STEPS.items() if event is E.CANCEL)
    tells = {step for step, (_, duties) in STEPS.items() if D.SAY_YIELD in duties or D.SEND_TERM in duties}
    assert {phase for phase, _ in tells} == {P.LEAVING, P.ASKED, P.SIGNALLED}, "who leaves has its decision on disk"


# ---------------------------------------------------------------------- everything that can be reached


@pytest.fixture(scope="module")
def reached() -> set[Model]:
    return explore()


def test_every_phase_and_every_step_is_reached(reached):
    assert {model.phase for model in reached} == set(P)
    assert {(model.row, model.there) for model in reached if model.row} >= {
        (OnDisk.REGRETTED, Remnant.ALIVE),
        (OnDisk.STARTING, Remnant.ENDED),
        (OnDisk.STOPPING, Remnant.ENDED),
    }


def test_whatever_happens_it_ends(reached):
    """From everything that can be reached an end can be reached, also if the daemon dies there."""
    ends = {model for model in reached if model.outcome}
    before: dict[Model, set[Model]] = {}
    for model in reached:
        for after in follow(model):
            before.setdefault(after, set()).add(model)
    good, fringe = set(ends), list(ends)
    while fringe:
        for model in before.get(fringe.pop(), ()):
            if model not in good:
                good.add(model)
                fringe.append(model)
    assert reached == good
    assert all(crash(model) in good for model in reached - ends if model.row is not None)


def test_whoever_is_unwanted_at_the_gate_never_runs(reached):
    fringe = [model for model in reached if model.phase is P.UNWANTED]
    seen: set[Model] = set()
    while fringe:
        model = fringe.pop()
        if model not in seen:
            seen.add(model)
            assert model.there is not Remnant.ALIVE
            fringe += follow(model)
    assert len(seen) > 10


def test_whoever_is_unwanted_is_told_or_gone_when_all_is_done(reached):
    unwanted = [model for model in reached if model.purpose and not model.duties and not model.outcome]
    assert {model.phase for model in unwanted} <= {P.UNWANTED, P.REGRETTED, P.OVER_EARLY, P.ASKED, P.SIGNALLED}


def test_what_ran_never_counts_as_never_begun(reached):
    assert {model.outcome for model in reached if model.ran and model.outcome} == set(Meaning) - {Meaning.RESTART}
    assert {model.outcome for model in reached if not model.ran and model.outcome} == {NEVER, Meaning.CANCELLED}


def test_whoever_was_told_to_make_room_has_not_completed(reached):
    told = [m for m in reached if m.outcome and m.told and m.purpose in (Purpose.EVICT, Purpose.MOVE)]
    assert {model.outcome for model in told} == {Meaning.AGAIN}


def test_what_was_promised_comes_about(reached):
    """Acknowledged is what is on disk; from then on no restart may come to another end."""
    ends = {model.promised: set() for model in reached}
    for model in reached:
        if model.outcome:
            ends[model.promised].add(model.outcome)
    assert ends.pop(Purpose.CANCEL) == {Meaning.CANCELLED}
    assert Meaning.COMPLETED in ends.pop(None)
    for promised, outcomes in ends.items():
        outcomes.discard(Meaning.CANCELLED)  # a person may always come later
        outcomes.discard(NEVER)
        if promised in (Purpose.EVICT, Purpose.MOVE):
            assert outcomes == {Meaning.AGAIN, Meaning.COMPLETED}, "completed: before anybody told it"
        else:
            assert outcomes == {Meaning.FAILED}


def test_a_restart_takes_nothing_for_an_end_that_it_cannot_know(reached):
    """What the disk says is unwanted may have been told; then an exit with 0 means another attempt."""
    for model in reached:
        again = crash(model)
        if again is not None and again.purpose in (Purpose.EVICT, Purpose.MOVE) and again.phase is P.GONE:
            end = again
            while not end.outcome:
                (end,) = carry_out(end)
            assert end.outcome in (Meaning.AGAIN, NEVER)


@pytest.mark.parametrize(("told", "well", "stuck", "restarts"), [*product((False, True), repeat=4)])
@pytest.mark.parametrize("purpose", [None, *Purpose])
def test_every_end_means_one_thing(purpose, told, well, stuck, restarts):
    meaning = judge_end(purpose, told=told, well=well, stuck=stuck, restarts=int(restarts))
    if purpose is Purpose.CANCEL:
        assert meaning is Meaning.CANCELLED
    elif stuck or purpose is Purpose.TIME:
        assert meaning is Meaning.FAILED
    elif purpose in (Purpose.EVICT, Purpose.MOVE):
        assert meaning is (Meaning.COMPLETED if well and not told else Meaning.AGAIN)
    elif well:
        assert meaning is Meaning.COMPLETED
    else:
        assert meaning is (Meaning.RESTART if restarts else Meaning.FAILED)


# ---------------------------------------------------------------------- these tests can fail

PLANTS = {
    "told before it is written": (STEPS, (P.RUNNING, E.UNWANT), (P.LEAVING, (D.TELL, D.WRITE))),
    "the gate opens for whoever is unwanted": (STEPS, (P.UNWANTED, E.AT_GATE), (P.REGRETTED, (D.OPEN,))),
    "nobody is told what was decided at the gate": (STEPS, (P.REGRETTED, E.WENT), (P.RUNNING, (D.NOTE_START,))),
    "a word is no word": (STEPS, (P.LEAVING, E.ASK), (P.LEAVING, (D.SAY_YIELD,))),
    "an end is dropped": (STEPS, (P.ASKED, E.EMPTY), (P.GONE, (D.DROP,))),
    "a restart forgets": (RECALLED, (OnDisk.STOPPING, Remnant.ALIVE), (P.RUNNING, (D.ADOPT,))),
    "a restart forgets at the gate": (RECALLED, (OnDisk.REGRETTED, Remnant.ALIVE), (P.RUNNING, (D.ADOPT,))),
    "a restart drops an end": (RECALLED, (OnDisk.STARTING, Remnant.ENDED), (P.GONE, (D.DROP,))),
}
PROPERTIES = (
    test_whoever_is_unwanted_at_the_gate_never_runs,
    test_whoever_is_unwanted_is_told_or_gone_when_all_is_done,
    test_what_ran_never_counts_as_never_begun,
    test_whatever_happens_it_ends,
    test_whoever_was_told_to_make_room_has_not_completed,
    test_what_was_promised_comes_about,
)


def find_broken() -> str:
    try:
        found = explore()
        for look in PROPERTIES:
            look(found)
    except AssertionError as broken:
        return str(broken) or "broken"
    return ""


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_mistake_in_a_table_is_found(monkeypatch, plant):
    assert not find_broken()
    monkeypatch.setitem(*PLANTS[plant])
    assert find_broken()
