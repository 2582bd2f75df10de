"""The table of the peers' corner cases names scenarios that exist, and leaves no number out."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "corner-cases.md"
ROW = re.compile(r"^\| (\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)

#: Corner cases that the engine never sees, so that no scenario can show them.
NOT_HERE = {1, 15, 18}


def read_table(text: str) -> dict[int, list[str]]:
    """Names in the last column, by number."""
    return {int(number): re.findall("`([^`]+)`", names) for number, names in ROW.findall(text)}


def find_unknown(table: dict[int, list[str]]) -> set[str]:
    """Names that are no case."""
    known = {path.stem for path in (HERE / "cases").glob("*.yaml")}
    return {name for names in table.values() for name in names} - known


def test_every_corner_case_has_its_row_and_what_shows_it():
    table = read_table(PAGE.read_text(encoding="utf-8"))
    assert list(table) == list(range(1, 38))
    assert {number for number, names in table.items() if not names} == NOT_HERE


def test_the_scenarios_named_exist():
    assert find_unknown(read_table(PAGE.read_text(encoding="utf-8"))) == set()


def test_a_name_that_is_no_case_is_noticed():
    assert find_unknown({1: ["no-such-case"]}) == {"no-such-case"}
    assert read_table("| 3 | a | yes | b | `x-y`, `z` |\n") == {3: ["x-y", "z"]}
