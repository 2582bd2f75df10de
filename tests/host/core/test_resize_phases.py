"""The table of a change of size: every pair has an answer, every change ends, and nobody changes their mind at the gate."""

from __future__ import annotations

import pytest

from phalanx.frontends.host.core.resize_phases import (
    RESIZE_LATE,
    RESIZE_STEPS,
    ImpossibleResize,
    ResizeEvent,
    ResizePhase,
    advance_resize,
)

P, E = ResizePhase, ResizeEvent

#: What nothing can bring about.
IMPOSSIBLE = {
    *((phase, E.CLEARED) for phase in (P.BRINGING, P.READYING, P.OPENING)),  # somebody comes
    *((phase, E.AT_GATE) for phase in (P.CLEARING, P.READYING, P.OPENING)),
    *((phase, event) for phase in (P.CLEARING, P.BRINGING, P.READYING) for event in (E.WENT, E.CANNOT)),
}


@pytest.mark.parametrize("phase", P)
@pytest.mark.parametrize("event", E)
def test_every_phase_of_a_change_has_one_answer_to_every_event(phase, event):
    pair = (phase, event)
    assert [pair in RESIZE_STEPS, pair in RESIZE_LATE, pair in IMPOSSIBLE].count(True) == 1
    if pair in IMPOSSIBLE:
        with pytest.raises(ImpossibleResize, match="change r1 is"):
            advance_resize(phase, event, "change r1")
    elif pair in RESIZE_LATE:
        assert advance_resize(phase, event, "change r1") is phase


def test_every_change_can_end_and_what_is_over_stays_over():
    ends = {phase for phase in P if phase.over}
    assert not any(phase in ends for phase, _ in RESIZE_STEPS)
    good = set(ends)
    for _ in P:
        good |= {phase for (phase, _), after in RESIZE_STEPS.items() if after in good}
    assert good == set(P)


def test_once_the_gate_is_being_opened_it_went_or_it_did_not():
    assert {event for phase, event in RESIZE_STEPS if phase is P.OPENING} == {E.WENT, E.CANNOT}
