"""A run as a picture in text: one row per gang, time from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import DEADLOCKED, INFEASIBLE, Entry, GangResult

WIDTH: Final = 72
ROWS_MAX: Final = 40
_NAME_CHARS_MAX: Final = 20

_UNITS: Final = (("d", 86_400 * SECOND_US), ("h", 3_600 * SECOND_US), ("m", 60 * SECOND_US))


@dataclass(frozen=True, slots=True)
class Glyphs:
    """How the cells look. `levels` goes from few members to all of them."""

    levels: str
    waiting: str
    holding: str
    rule: str


BLOCKS: Final = Glyphs(levels="░▒▓█", waiting="·", holding="╳", rule="─")
ASCII: Final = Glyphs(levels="-=+#", waiting=".", holding="x", rule="-")


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What a gang does from `start_us` to `end_us`: one character says it all."""

    start_us: int
    end_us: int
    glyph: str
    runs: bool


def draw_gantt(gangs: Sequence[GangResult], horizon: tuple[int, int], glyphs: Glyphs = BLOCKS) -> list[str]:
    """The picture as lines, legend last; nothing if it would not fit or nothing took time."""
    first, last = horizon
    if not gangs or len(gangs) > ROWS_MAX or last <= first:
        return []
    margin = min(_NAME_CHARS_MAX, max(len(gang.name) for gang in gangs))
    drawn: set[str] = set()
    lines = []
    for gang in gangs:
        row = _draw_row(_stretches(gang, last, glyphs), horizon)
        drawn.update(row)
        lines.append(f"{_cut(gang.name):<{margin}} {row}".rstrip())
    lines.append(f"{'':<{margin}} {glyphs.rule * WIDTH}")
    lines.append(f"{'':<{margin}} {_axis(first, last)}")
    lines.append(f"{'':<{margin}} {_legend(drawn, glyphs)}")
    return lines


def span(us: int) -> str:
    """A length of time as people say it, exact: 1h30m, 12s, 0.25s."""
    parts, rest = [], us
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        whole, part = divmod(rest, SECOND_US)
        fraction = f".{part:06d}".rstrip("0") if part else ""
        parts.append(f"{whole}{fraction}s")
    return "".join(parts)


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_CHARS_MAX else name[: _NAME_CHARS_MAX - 1] + "…"


def _stretches(gang: GangResult, last: int, glyphs: Glyphs) -> list[_Stretch]:
    """The gang's life as stretches that follow each other, from its submit to its end."""
    if gang.state == INFEASIBLE:
        return []  # refused at once: it does not wait for anything
    most = max((entry.members for entry in gang.history), default=0)
    end = last if gang.end_us is None else gang.end_us
    found = []
    start, glyph, runs = gang.submit_us, glyphs.waiting, False
    for entry in gang.history:
        found.append(_Stretch(start, entry.at_us, glyph, runs))
        start, runs = entry.at_us, entry.members > 0 and gang.state != DEADLOCKED
        glyph = _level(entry.members, most, glyphs) if runs else _idle(gang, entry, glyphs)
    found.append(_Stretch(start, end, glyph, runs))
    return [stretch for stretch in found if stretch.end_us > stretch.start_us]


def _idle(gang: GangResult, entry: Entry, glyphs: Glyphs) -> str:
    """Of a gang that is deadlocked no member ever runs, whatever it sits on."""
    return glyphs.holding if entry.held or (entry.members and gang.state == DEADLOCKED) else glyphs.waiting


def _level(members: int, most: int, glyphs: Glyphs) -> str:
    """All members: the fullest block; a quarter of them: the thinnest."""
    return glyphs.levels[-(-len(glyphs.levels) * members // most) - 1]


def _draw_row(stretches: Sequence[_Stretch], horizon: tuple[int, int]) -> str:
    first, last = horizon
    row = [" "] * WIDTH
    for stretch in stretches:
        left = _column(stretch.start_us - first, last - first)
        right = _column(stretch.end_us - first, last - first)
        if stretch.runs and right == left:
            left = min(left, WIDTH - 1)  # a run too short for a cell is still drawn: nothing that ran is invisible
            right = left + 1
        row[left:right] = stretch.glyph * (min(right, WIDTH) - left)
    return "".join(row[:WIDTH])


def _column(after_us: int, length_us: int) -> int:
    return max(0, min(WIDTH, (2 * after_us * WIDTH + length_us) // (2 * length_us)))


def _axis(first: int, last: int) -> str:
    left, middle, right = span(first), span((first + last) // 2), span(last)
    axis = f"{left}{middle:^{max(0, WIDTH - 2 * len(left))}}"[: WIDTH - len(right) - 1]
    return f"{axis:<{WIDTH - len(right)}}{right}"


def _legend(drawn: set[str], glyphs: Glyphs) -> str:
    parts = [f"{glyphs.levels[-1]} running"] if glyphs.levels[-1] in drawn else []
    fewer = [glyph for glyph in reversed(glyphs.levels[:-1]) if glyph in drawn]
    if fewer:
        parts.append(f"{''.join(fewer)} with fewer members")
    if glyphs.waiting in drawn:
        parts.append(f"{glyphs.waiting} waiting")
    if glyphs.holding in drawn:
        parts.append(f"{glyphs.holding} holds seats without running")
    return "   ".join(parts)
