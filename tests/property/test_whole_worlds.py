"""Whole worlds, judged by their results alone: histories, places, reasons, the ledger, and the same world in other words.

Unlike `test_lively`, nothing here looks at plans or states: `phalanx.testing.judge` reads what a user could read. A seed
is a world, a policy and its options (`phalanx.testing.whole_worlds.draw_run`); `tests/long` plays ten times as many.
"""

import pytest

from phalanx.testing.many_worlds import find_in_worlds, first_by_kind

#: Worlds in which a rule was broken once, with the rule.
ONCE = {
    "head-late": 1466,
    "hopeless": 28,
    "in-window": 717,
    "ledger": 1589,
    "pause-in-window": 145,
    "reason": 1099,
    "reason of time alone": 4300,
    "seat-in-pause": 7576,
    "together": 92,
    "twin-amounts": 272,
    "twin-dream": 28,
    "twin-kind": 28,
    "undone-start": 1972,
    "a promise that was due, and a guest that had just come": 1709,
    "a guest with its least between a window and a reservation": 101179,
    "a guest that can be evicted, left with its least where the owner comes": 103272,
    "surplus that nobody is leaving, and nobody came for": 424,
    "the same beside a date": 104630,
}


def test_no_rule_is_broken_in_many_worlds():
    assert first_by_kind(find_in_worlds(range(800), twins=False)) == {}


def test_no_rule_is_broken_between_twins():
    assert first_by_kind(find_in_worlds(range(5000, 5160), twins=True)) == {}


@pytest.mark.parametrize("kind", ONCE)
def test_what_was_broken_once_holds(kind):
    assert first_by_kind(find_in_worlds([ONCE[kind]], twins=kind.startswith("twin-"))) == {}
