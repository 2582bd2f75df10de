"""One row per gang, as CSV; and how any row is written."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import SimResult

#: A spreadsheet would take a cell that begins so for a formula, and run it.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")

_GANG_COLUMNS: Final = (
    *("policy", "seed", "gang", "user", "queue", "state", "submit_s", "start_s", "end_s", "wait_s"),
    *("members", "nodes", "events", "reason"),
)


def write_rows(rows: Iterable[Sequence[object]]) -> str:
    """Rows as text. Numbers stand as in JSON; a text that a spreadsheet would run gets a quote before it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)  # the shortest digits that give this number back, as in JSON
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def gang_rows(result: SimResult, label: str, queues: Sequence[str]) -> str:
    """One row per gang, without the header."""
    return write_rows(
        (
            *(label, result.seed, gang.name, gang.user, queue, gang.state, _seconds(gang.submit_us)),
            *(_seconds(gang.start_us), _seconds(gang.end_us), _seconds(gang.wait_us), gang.members),
            *(len(gang.placement), len(gang.history), None if gang.reason is None else gang.reason[0]),
        )
        for gang, queue in zip(result.gangs, queues, strict=True)
    )


def gang_header() -> str:
    """The header of the rows of gangs."""
    return write_rows([_GANG_COLUMNS])


def _seconds(us: int | None) -> int | float | None:
    if us is None:
        return None
    return us / SECOND_US if us % SECOND_US else us // SECOND_US
