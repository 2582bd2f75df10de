"""Values of the daemon's answers as people read them: safe text, instants, tables; the words are those of `words`."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from click import style

from phalanx import words

span = words.span

_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?s")

STATE_COLOURS: Final = {
    "pending": "yellow",
    "starting": "cyan",
    "running": "green",
    "stopping": "cyan",
    "failed": "red",
    "infeasible": "red",
}


def clean(text: object) -> str:
    """Text of somebody else without anything that a terminal would obey."""
    told = str(text)
    return told if told.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in told)


def _escape(char: str) -> str:
    return ascii(char)[1:-1]


def now() -> datetime:
    """The time of day; tests name another."""
    return datetime.now(UTC)


def instant(iso: str | None) -> datetime | None:
    """An instant of the daemon's, or None if there is none or it is not one."""
    try:
        return datetime.fromisoformat(iso).astimezone() if iso else None
    except ValueError:
        return None


def moment(iso: str | None) -> str:
    """An instant: the time if it is today, the weekday if it is near, else the date."""
    at = instant(iso)
    return "-" if at is None else words.moment(at.timestamp(), now().timestamp())


def due(iso: str | None) -> str:
    """When something will be: "in 40s" if that is soon, else "at 14:05"."""
    at = instant(iso)
    return "-" if at is None else words.due(at.timestamp(), now().timestamp())


def exact(iso: str | None) -> str:
    """An instant to the second, with its date if that is not today's."""
    at = instant(iso)
    return "-" if at is None else words.exact(at.timestamp(), now().timestamp())


def start_text(eta: dict[str, Any] | None) -> str:
    """An expected start with its range; empty if nothing is expected."""
    at = instant(eta.get("at")) if eta else None
    if eta is None or at is None:
        return ""
    low, high = (
        None if end is None else end.timestamp() for end in (instant(eta.get("low")), instant(eta.get("high")))
    )
    return words.start_text(at.timestamp(), low, high, now().timestamp(), predicted=bool(eta.get("predicted")))


def number(value: float | None) -> str:
    """A number of GPUs: whole ones without a point."""
    return "-" if value is None else words.number(value)


def gpus(value: float | None) -> str:
    """So many GPUs."""
    return "- GPUs" if value is None else words.gpus(value)


def sizes(row: dict[str, Any]) -> str:
    """Members of a job: how many now, and the range if it is elastic."""
    low, high, running = row.get("members_min", 0), row.get("members_max", 0), row.get("members", 0)
    if low == high:
        return str(high)
    return f"{running} of {low}:{high}" if running else f"{low}:{high}"


def data_text(data: dict[str, Any] | None, at: str | None = None) -> str:
    """What an event says beside its name; `at`: when it was, for what counts from then."""
    told = {key: value for key, value in (data or {}).items() if value not in (None, "", {}, [])}
    if isinstance(told.get("what"), dict):
        told["what"] = {key: _edited(key, value, at) for key, value in told["what"].items()}
    # A sentence and not a value: it stands for itself, behind the rest.
    because = told.pop("because", None)
    facts = ", ".join(f"{clean(key).replace('_', ' ')} {_flat(value)}" for key, value in told.items())
    return "; ".join(part for part in (facts, clean(because) if because else "") if part)


def _edited(key: str, value: object, at: str | None) -> object:
    """What was asked of a job later on: lengths as people write them, a deadline as the instant that it is."""
    if value is None:
        return "none"
    if not isinstance(value, str) or not _SECONDS.fullmatch(value):
        return value
    began = instant(at)
    if key == "deadline" and began is not None:
        return exact((began + timedelta(seconds=float(value[:-1]))).isoformat())
    return span(float(value[:-1]))


def _flat(value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"min", "max"}:
        return f"{clean(value['min'])}:{clean(value['max'])}"  # as a range is written everywhere
    if isinstance(value, dict):
        return " ".join(f"{clean(key)}:{_flat(inner)}" for key, inner in value.items())
    return " ".join(map(clean, value)) if isinstance(value, list) else clean(value)


def amounts(mapping: dict[str, Any] | None) -> str:
    """Resources in a row."""
    return " ".join(f"{clean(kind)}:{_bytes(kind, value)}" for kind, value in (mapping or {}).items()) or "-"


def _bytes(kind: str, value: object) -> str:
    return gibibytes(value) if kind == "memory" and isinstance(value, (int, float)) else clean(value)


def gibibytes(value: float | None) -> str:
    """An amount of memory."""
    return "-" if value is None else words.size_text(value)


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def shorten(text: str, columns: int) -> str:
    """A text that takes no more columns than these; an ellipsis says that there was more."""
    if width(text) <= columns:
        return text
    end = "…" if can_show("…") else "~"
    kept = ""
    for char in text:
        if width(kept + char) > columns - 1:
            break
        kept += char
    return kept.rstrip() + end


def can_show(text: str) -> bool:
    """Whether the output has all of these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), state: int | None = None
) -> list[str]:
    """Aligned lines; without headers if there are none. `state` is the column whose words have a colour."""
    lines = [headers, *rows] if headers else list(rows)
    if not lines:
        return []
    if all(cell.isascii() for row in lines for cell in row):
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    else:
        widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return [_line(row, widths, right, state) for row in lines]


def _line(row: Sequence[str], widths: Sequence[int], right: Collection[int], state: int | None) -> str:
    cells = []
    for column, (cell, size) in enumerate(zip(row, widths, strict=True)):
        gap = " " * (size - (len(cell) if cell.isascii() else width(cell)))
        shown = painted(cell) if column == state else cell
        cells.append(gap + shown if column in right else shown + gap)
    return "  ".join(cells).rstrip()


def painted(state: str, text: str | None = None) -> str:
    """The word of a state, or a text about it, in its colour; click takes that out where nobody would see it."""
    shown = state if text is None else text
    colour = STATE_COLOURS.get(state)
    return style(shown, fg=colour) if colour else shown
