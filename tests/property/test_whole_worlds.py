"""Whole worlds, judged by their results alone: histories, places, reasons, the ledger, and the same world in other words.

Unlike `test_lively`, nothing here looks at plans or states: `phalanx.testing.judge` reads what a user could read. A seed
is a world, a policy and its options (`phalanx.testing.whole_worlds.draw_run`); `tests/long` plays ten times as many.
"""

import pytest

from phalanx.testing.many_worlds import find_in_worlds, first_by_kind

#: Rules that are known to be broken, each with a seed that shows it. An entry goes as soon as its rule holds there.
KNOWN = {
    "head-late": 1466,
    "hopeless": 28,
    "in-window": 717,
    "ledger": 1589,
    "pause-in-window": 145,
    "reason": 1099,
    "seat-in-pause": 7576,
    "together": 92,
    "twin-amounts": 272,
    "twin-dream": 28,
    "twin-kind": 28,
    "undone-start": 1972,
}

#: Known as well, too rare for a seed: files of `tests/scenarios/found` show them, and fail as soon as they do not.
IN_FILES = {"needless-evict", "needless-shrink"}
TOLERATED = {*KNOWN, *IN_FILES}


def test_nothing_but_what_is_known_is_found_in_many_worlds():
    found = first_by_kind(find_in_worlds(range(800), twins=False))
    assert {kind: line for kind, line in found.items() if kind not in TOLERATED} == {}


def test_nothing_but_what_is_known_is_found_between_twins():
    found = first_by_kind(find_in_worlds(range(5000, 5160), twins=True))
    assert {kind: line for kind, line in found.items() if kind not in TOLERATED} == {}


@pytest.mark.parametrize("kind", KNOWN)
def test_what_is_known_to_be_broken_still_is(kind):
    found = first_by_kind(find_in_worlds([KNOWN[kind]], twins=kind.startswith("twin-")))
    assert kind in found, f"seed {KNOWN[kind]} shows no {kind} any more: take it off the list"
