"""Rows of JSON as a table, as CSV or as they are: the one printer of all verbs that list something."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click

from phalanx.cli.host.text import clean, table
from phalanx.client.daemon_errors import UsageError

FORMATS: Final = ("table", "wide", "json", "jsonl", "csv")

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
    """`-o`, with what a verb can print."""
    kinds = click.Choice(formats or FORMATS)
    return click.option("-o", "--output", type=kinds, default="table", help="How to print it.", show_default=True)


def columns_option(function: Callable[..., object]) -> Callable[..., object]:
    """`--columns` and `--no-headers`."""
    function = click.option("--no-headers", is_flag=True, help="Without the first line.")(function)
    return click.option("--columns", help="Only these columns, separated by commas.")(function)


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
    rows: Sequence[Row], columns: Sequence[Column], output: str, *, headers: bool = True, none: str = ""
) -> None:
    """The rows in one of the formats; `none` is said beside an empty table."""
    if output == "json":
        dump(rows)
    elif output == "jsonl":
        for row in rows:
            dump(row)
    elif output == "csv":
        _print_csv(rows, columns, headers=headers)
    elif rows or not none:
        print_table(rows, columns, headers=headers)
    else:
        click.echo(none, err=True)


def print_table(rows: Sequence[Row], columns: Sequence[Column], *, headers: bool = True) -> None:
    """An aligned table; states have a colour where there is a terminal."""
    click.echo("\n".join(make_table(rows, columns, headers=headers)))


def make_table(rows: Sequence[Row], columns: Sequence[Column], *, headers: bool = True) -> list[str]:
    """The lines of a table."""
    cells = [[column.show(row) for column in columns] for row in rows]
    right = {at for at, column in enumerate(columns) if column.right}
    state = next((at for at, column in enumerate(columns) if column.name == "state"), None)
    return table([column.name.upper() for column in columns] if headers else [], cells, right, state)


def _print_csv(rows: Sequence[Row], columns: Sequence[Column], *, headers: bool) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if headers:
        writer.writerow([column.name for column in columns])
    writer.writerows([column.value(row) for column in columns] for row in rows)
    click.echo(text.getvalue(), nl=False)
