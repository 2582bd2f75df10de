"""`tests/property/test_whole_worlds.py` with ten times as many worlds, and others."""

import importlib.util
from pathlib import Path

import pytest

from phalanx.testing.many_worlds import find_in_worlds, first_by_kind

SHORT = Path(__file__).resolve().parents[1] / "property" / "test_whole_worlds.py"
STRETCH = 1000


def _load_short():
    """The short version; import-mode=importlib puts no folder on the path."""
    found = importlib.util.spec_from_file_location("short_whole_worlds", SHORT)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


TOLERATED = _load_short().TOLERATED


@pytest.mark.parametrize("first", range(100_000, 108_000, STRETCH))
def test_nothing_but_what_is_known_is_found_in_many_worlds(first):
    found = first_by_kind(find_in_worlds(range(first, first + STRETCH), twins=False))
    assert {kind: line for kind, line in found.items() if kind not in TOLERATED} == {}


@pytest.mark.parametrize("first", range(200_000, 201_600, 200))
def test_nothing_but_what_is_known_is_found_between_twins(first):
    found = first_by_kind(find_in_worlds(range(first, first + 200), twins=True))
    assert {kind: line for kind, line in found.items() if kind not in TOLERATED} == {}
