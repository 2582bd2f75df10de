"""Rows that belong to holders: whoever gives its rows back gives exactly those, through compaction and renaming."""

import copy
import random

import numpy as np
import pytest

from phalanx.control import columns
from phalanx.control.columns import HeldTable


def told(table):
    """Values by holder, as the columns have them."""
    found = {}
    for row in np.flatnonzero(table.alive).tolist():
        found.setdefault(int(table.columns["holder"][row]), []).append(int(table.columns["value"][row]))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_what_was_not_given_back(monkeypatch, seed):
    monkeypatch.setattr(columns, "DEAD_LEAST", 3)
    rng = random.Random(seed)
    table = HeldTable({"holder": (np.int64, ()), "value": (np.int64, ())}, capacity=2)
    expected, value = {}, 0
    for _ in range(300):
        if table.wants_compaction():
            table.compact()
        if expected and rng.random() < 0.45:
            gone = rng.choice(list(expected))
            table.remove_of(gone)
            del expected[gone]
        elif rng.random() < 0.1:
            table.renumber({holder: holder + 7 for holder in expected})
            table.columns["holder"] += 7
            expected = {holder + 7: values for holder, values in expected.items()}
        else:
            holder, count = rng.randrange(1_000), rng.randint(1, 4)
            rows = table.add_for(holder, count)
            values = list(range(value, value + count))
            table.columns["holder"][rows], table.columns["value"][rows] = holder, values
            expected.setdefault(holder, []).extend(values)
            value += count
        assert told(table) == expected
        assert len(table) == sum(map(len, expected.values()))


def test_a_copy_goes_its_own_way():
    table = HeldTable({"holder": (np.int64, ())})
    table.add_for(1, 2)
    twin = copy.copy(table)
    twin.unshare()
    twin.remove_of(1)
    assert (len(table), len(twin)) == (2, 0)
    table.remove_of(1)
    assert len(table) == 0
