"""`phalanx gantt`: rows are GPUs, time goes from left to right, what has not happened yet is hatched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import click

from phalanx.cli.host.listing import dump, output_option, terminal_columns
from phalanx.cli.host.talking import talking
from phalanx.cli.host.text import can_show, clean, exact, instant, moment, shorten, table
from phalanx.client.times import seconds_of

_WIDTH: Final = 72
_NARROWEST: Final = 40
_MARGIN: Final = 10
_NAMED: Final = 24
_SHORT_S: Final = 900
_AHEAD: Final = timedelta(seconds=10)
#: Starts are drawn so many times as far ahead as there is past, and so far in any case.
_AHEAD_TIMES: Final = 4
_AHEAD_LEAST: Final = timedelta(minutes=5)
_COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "red")
#: Ended, running, forecast, idle, now.
_BLOCKS: Final = {"past": "▒", "running": "█", "forecast": "░", "idle": "·", "now": "│", "edge": "▐"}
_ASCII: Final = {"past": "=", "running": "#", "forecast": "-", "idle": ".", "now": "|", "edge": "["}

Bar = dict[str, Any]


class _Axis(NamedTuple):
    """The stretch of time that is drawn."""

    first: datetime
    last: datetime
    width: int

    def label(self, at: datetime | None) -> str:
        """An instant, to the second where minutes would all be the same."""
        iso = None if at is None else at.isoformat()
        return exact(iso) if (self.last - self.first).total_seconds() < _SHORT_S else moment(iso)

    def column(self, at: datetime) -> int:
        share = (at - self.first) / (self.last - self.first)
        return max(0, min(self.width, round(share * self.width)))


@click.command()
@click.option("--past", default="1h", show_default=True, metavar="LENGTH", help="How much of the past.")
@output_option("table", "json")
def gantt(past: str, output: str) -> None:
    """Draw past, present and forecast: one row for each GPU.

    \b
    phalanx gantt --past 6h
    """
    with talking() as daemon:
        told = daemon.get("/v1/gantt", {"past_s": seconds_of(past, "--past")})
    if output == "json":
        dump(told)
        return
    width, there = choose_width()
    for line in draw(told, width, there):
        click.echo(line)


def choose_width(margin: int = _MARGIN) -> tuple[int, int | None]:
    """Columns of the picture beside such a margin, and those of the terminal, if it is one."""
    there = terminal_columns()
    return _WIDTH if there is None else max(_NARROWEST, there - margin), there


def draw(told: dict[str, Any], width: int, there: int | None = None) -> list[str]:
    """The picture as lines, legend last; `there`: the columns of the terminal, if it is one."""
    here = instant(told["now"])
    bars = [bar for bar in told["bars"] if instant(bar.get("start"))]
    if here is None or not bars:
        return ["nothing has run lately, and nothing waits"]
    return draw_rows(_rows(told["devices"], bars), bars, here, width, there)


def draw_rows(
    rows: Sequence[tuple[str, Sequence[Bar]]], bars: Sequence[Bar], here: datetime, width: int, there: int | None
) -> list[str]:
    """The same of rows with names: a bar has a `job`, by which it is labelled and coloured, and an entry below."""
    axis = _make_axis(bars, here, width)
    glyphs = _choose_glyphs()
    margin = max(len(name) for name, _ in rows)
    lines = [f"{name:>{margin}} {_draw_row(mine, axis, here, glyphs)}" for name, mine in rows]
    lines.append(f"{'':>{margin}} {_draw_axis(axis, here)}")
    legend = [("past", "ended"), ("running", "running"), ("forecast", "expected"), ("now", "now")]
    lines.append(f"{'':>{margin}} {'   '.join(f'{glyphs[kind]} {words}' for kind, words in legend)}")
    listed = _list_jobs(bars, axis)
    return [*lines, "", *(listed if there is None else [shorten(line, there) for line in listed])]


def _make_axis(bars: Sequence[Bar], here: datetime, width: int) -> _Axis:
    starts = [at for bar in bars if (at := instant(bar["start"]))]
    ends = [at for bar in bars if (at := instant(bar.get("end")))]
    first = min([*starts, here])
    # Beyond the last expected start only guesses of ends lie ahead, and they may be hours away.
    # And not further than the past allows: one start hours away would squeeze all that runs into nothing.
    seen = min(max([*starts, here]), here + max(_AHEAD_TIMES * (here - first), _AHEAD_LEAST))
    enough = max(seen + (seen - first) / 2, here + (here - first) / 4, here + _AHEAD)
    return _Axis(first, min(enough, max([*ends, here + (here - first) / 4, here + _AHEAD])), width)


def _rows(devices: Sequence[Any], bars: Sequence[Bar]) -> list[tuple[str, list[Bar]]]:
    """One for each device, with the bars on it."""
    found = []
    for at, device in enumerate(devices):
        index = device.get("index", at) if isinstance(device, dict) else device
        found.append((f"GPU {clean(index)}", [bar for bar in bars if bar["device"] == index]))
    return found


def _draw_row(bars: Sequence[Bar], axis: _Axis, here: datetime, glyphs: dict[str, str]) -> str:
    cells = [glyphs["idle"]] * axis.width
    colours: list[str | None] = [None] * axis.width
    for bar in bars:
        start, end = instant(bar["start"]), instant(bar.get("end")) or axis.last
        assert start is not None
        if start > axis.last:
            continue  # in the list below, and beyond the picture
        left = min(axis.column(start), axis.width - 1)
        right = max(left + 1, axis.column(min(end, axis.last)))  # nothing that runs is invisible
        glyph = glyphs.get(str(bar.get("kind")), glyphs["running"])
        cells[left:right] = glyph * (right - left)
        colours[left:right] = [_COLOURS[int(bar["job"]) % len(_COLOURS)]] * (right - left)
        if right - left > 1 and left and cells[left - 1] == glyph:
            cells[left] = glyphs["edge"]  # or without colours two of one kind would be one
        label = str(bar["job"])
        if len(label) + 2 <= right - left:
            cells[left + 1 : left + 1 + len(label)] = label
    now_at = min(axis.column(here), axis.width - 1)
    cells[now_at], colours[now_at] = glyphs["now"], None
    return _paint(cells, colours)


def _paint(cells: Sequence[str], colours: Sequence[str | None]) -> str:
    """Stretches of one colour at a time; click takes the colours out where nobody would see them."""
    parts, at = [], 0
    while at < len(cells):
        end = at
        while end < len(cells) and colours[end] == colours[at]:
            end += 1
        text, colour = "".join(cells[at:end]), colours[at]
        parts.append(click.style(text, fg=colour) if colour else text)
        at = end
    return "".join(parts)


def _draw_axis(axis: _Axis, here: datetime) -> str:
    left, middle, right = (axis.label(at) for at in (axis.first, here, axis.last))
    line = list(f"{left:<{axis.width}}")
    place = min(max(axis.column(here) - len(middle) // 2, len(left) + 1), axis.width - len(right) - len(middle) - 1)
    if place > len(left):
        line[place : place + len(middle)] = middle
    line[axis.width - len(right) :] = right
    return "".join(line)


def _list_jobs(bars: Sequence[Bar], axis: _Axis) -> list[str]:
    """Who is in the picture; whoever began twice, twice."""
    found: dict[tuple[int, str], Bar] = {}
    for bar in bars:  # one for each device
        found.setdefault((int(bar["job"]), str(bar["start"])), bar)
    cells = [
        [str(job), clean(bar.get("name", "")), clean(bar.get("user", "")), clean(bar.get("kind", "")),
         f"{axis.label(instant(bar['start']))} - {axis.label(instant(bar.get('end')))}"]
        for (job, _), bar in sorted(found.items())[-_NAMED:]
    ]  # fmt: skip
    more = len(found) - len(cells)
    return [*table([], cells, {0}), *([f"and {more} more"] if more > 0 else [])]


def _choose_glyphs() -> dict[str, str]:
    return _BLOCKS if can_show("".join(_BLOCKS.values())) else _ASCII
