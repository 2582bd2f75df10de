"""Rows of JSON as a table, as CSV or as they are: the one printer of all verbs that list something."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import click

from phalanx.cli.failure import AS_JSON
from phalanx.cli.host.completing import complete_columns
from phalanx.cli.host.text import clean, shorten, table, width
from phalanx.client.daemon_errors import UsageError

FORMATS: Final = ("table", "wide", "json", "jsonl", "csv")

_GAP: Final = 2
_LAST_LEAST: Final = 24
_LAST_BARE: Final = 8
_BARE: Final = 4
_GAPS: Final = re.compile(r"\S+\s*")
_NAME_LEAST: Final = 12

Row = dict[str, Any]


class Column(NamedTuple):
    """One column: its name for --columns and CSV, and the cell of a row as people read it."""

    name: str
    show: Callable[[Row], str]
    right: bool = False
    plain: Callable[[Row], object] | None = None  # for CSV; else what the row has under the name

    def value(self, row: Row) -> str:
        """The cell for programs."""
        found = self.plain(row) if self.plain else row.get(self.name)
        return "" if found is None else clean(found)


def output_option(*formats: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """`-o`, with what a verb can print, and `--json`, which says the same as `-o json` everywhere.

    A verb that prints a stream has no end at which a list could be closed: there json means jsonl.
    """
    kinds = formats or FORMATS
    program = "json" if "json" in kinds else "jsonl"
    about = "How to print it." if program == "json" else "How to print it; json is jsonl here: a line for each."

    def note_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            context.meta[AS_JSON] = True

    def choose(context: click.Context, parameter: click.Parameter, value: str) -> str:
        return program if context.meta.get(AS_JSON) or value == "json" else value

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        function = click.option(
            "--json",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=note_json,
            help=f"The same as -o {program}.",
        )(function)
        return click.option(
            *("-o", "--output"), type=click.Choice([*dict.fromkeys([*kinds, "json"])]), default="table",
            callback=choose, help=about, show_default=True,
        )(function)  # fmt: skip

    return decorate


def columns_option(function: Callable[..., object]) -> Callable[..., object]:
    """`--columns` and `--no-headers`."""
    function = click.option("--no-headers", is_flag=True, help="Without the first line.")(function)
    about = "Only these columns, separated by commas."
    return click.option("--columns", help=about, shell_complete=complete_columns)(function)


def dump(value: object) -> None:
    """JSON on one line. ASCII only: what a terminal would obey stays written out."""
    click.echo(json.dumps(value))


def choose_columns(named: str | None, known: Sequence[Column], usual: Sequence[str]) -> list[Column]:
    """The columns somebody wants, or the usual ones."""
    by_name = {column.name: column for column in known}
    names = [name.strip().lower() for name in named.split(",")] if named is not None else usual
    for name in names:
        if name not in by_name:
            raise UsageError(f"--columns: there is no column {name!r}", f"choose of {','.join(by_name)}")
    return [by_name[name] for name in names]


def print_rows(
    rows: Sequence[Row],
    columns: Sequence[Column],
    output: str,
    *,
    headers: bool = True,
    none: str = "",
    fits: bool = False,
) -> None:
    """The rows in one of the formats; `none` is said beside an empty table. `fits`: cut to a terminal's width."""
    if output == "json":
        dump(rows)
    elif output == "jsonl":
        for row in rows:
            dump(row)
    elif output == "csv":
        _print_csv(rows, columns, headers=headers)
    elif rows or not none:
        print_table(rows, columns, headers=headers, fits=fits)
    else:
        click.echo(none, err=True)


def print_table(rows: Sequence[Row], columns: Sequence[Column], *, headers: bool = True, fits: bool = False) -> None:
    """An aligned table; states have a colour where there is a terminal."""
    columns_there = terminal_columns() if fits else None
    click.echo("\n".join(make_table(rows, columns, headers=headers, columns_there=columns_there)))


def terminal_columns() -> int | None:
    """How wide the terminal is that reads us, or COLUMNS says so; None: it is none, and programs want whole cells."""
    import os
    import sys

    try:
        there = os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isdecimal() and int(said) else there


def print_wrapped(lines: Iterable[str], indent: int) -> None:
    """Sentences; on a terminal they go on below themselves instead of where the terminal breaks them."""
    there = terminal_columns()
    for line in lines:
        click.echo("\n".join(wrap(line, there, indent)) if there is not None else line)


def wrap(line: str, there: int, indent: int) -> list[str]:
    """One line as several; what is longer than a line stays whole, since it may be a command."""
    if width(click.unstyle(line)) <= there or there <= indent:
        return [line]
    bare = line.lstrip(" ")
    lead = len(line) - len(bare)
    shown, found = " " * lead, []
    indent = lead if lead > _GAP else indent  # what stands below a label goes on there
    for word in _GAPS.findall(bare):  # each with the spaces behind it
        if shown.strip() and width(click.unstyle(shown + word.rstrip())) > there:
            found.append(shown.rstrip())
            shown = " " * indent
        shown += word
    return [*found, shown.rstrip()]


def make_table(
    rows: Sequence[Row], columns: Sequence[Column], *, headers: bool = True, columns_there: int | None = None
) -> list[str]:
    """The lines of a table, no longer than there are columns on the terminal, as far as that can be."""
    cells = [[column.show(row) for column in columns] for row in rows]
    names = [column.name.upper() for column in columns]
    if columns_there is not None:
        names, *cells = (
            _cut([names, *cells], columns, columns_there) if headers else [[], *_cut(cells, columns, columns_there)]
        )
    right = {at for at, column in enumerate(columns) if column.right}
    state = next((at for at, column in enumerate(columns) if column.name == "state"), None)
    return table(names if headers else [], cells, right, state)


def _cut(cells: list[list[str]], columns: Sequence[Column], there: int) -> list[list[str]]:
    """Names give way down to a few characters, then the last column, which says most in its first words."""
    if not cells:
        return cells
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    over = sum(widths) + _GAP * (len(widths) - 1) - there
    last = len(widths) - 1
    limits: dict[int, int] = {}
    # A wide last column first, as long as it still says something; then long names; then the rest of it.
    named = [at for at, column in enumerate(columns) if column.name == "name"]
    order = [(last, _LAST_LEAST), *((at, _NAME_LEAST) for at in named), (last, _LAST_BARE)]
    order += [*((at, _LAST_BARE) for at in named), (last, _BARE)]
    for at, least in order:
        give = min(over, max(0, limits.get(at, widths[at]) - least))
        if give > 0:
            limits[at] = limits.get(at, widths[at]) - give
            over -= give
    while over > 0:  # then whatever is widest, but for states, which have few words
        kept = {at: limits.get(at, size) for at, size in enumerate(widths) if columns[at].name != "state"}
        at = max(kept, key=lambda at: (kept[at], at))
        if kept[at] <= _BARE:
            break
        limits[at] = kept[at] - 1
        over -= 1
    return [[shorten(cell, limits[at]) if at in limits else cell for at, cell in enumerate(row)] for row in cells]


def _print_csv(rows: Sequence[Row], columns: Sequence[Column], *, headers: bool) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if headers:
        writer.writerow([column.name for column in columns])
    writer.writerows([column.value(row) for column in columns] for row in rows)
    click.echo(text.getvalue(), nl=False)
