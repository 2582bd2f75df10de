"""`tests/property/test_whole_worlds.py` with ten times as many worlds, and others."""

import pytest

from phalanx.testing.many_worlds import find_in_worlds, first_by_kind

pytestmark = pytest.mark.long
STRETCH = 1000


@pytest.mark.parametrize("first", range(100_000, 108_000, STRETCH))
def test_no_rule_is_broken_in_many_worlds(first):
    assert first_by_kind(find_in_worlds(range(first, first + STRETCH), twins=False)) == {}


@pytest.mark.parametrize("first", range(200_000, 201_600, 200))
def test_no_rule_is_broken_between_twins(first):
    assert first_by_kind(find_in_worlds(range(first, first + 200), twins=True)) == {}
