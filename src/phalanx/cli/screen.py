"""Printing for people: rich on a terminal, plain aligned text anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from phalanx.cli.failure import AS_JSON
from phalanx.cli.host.text import can_show, table

if TYPE_CHECKING:
    from phalanx.frontends.sim.printing import Sheet
    from phalanx.frontends.sim.text_gantt import Glyphs

#: What the context knows of `-o`.
FORMAT: Final = "phalanx.format"
#: A run with fewer gangs is over before a bar would be drawn.
_PROGRESS_GANGS_MIN = 2_000


def json_option(about: str, *more: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """`--json` as `as_json`, and `-o json`, which says the same; `more`: other formats, which the context knows of."""

    def note_output(context: click.Context, parameter: click.Parameter, value: str) -> None:
        context.meta[AS_JSON] = value == "json"
        context.meta[FORMAT] = value

    def choose(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
        return value or bool(context.meta.get(AS_JSON))

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        kinds, same = click.Choice(["table", "json", *more]), "json: the same as --json."
        function = click.option(
            "-o", "--output", type=kinds, is_eager=True, expose_value=False, callback=note_output, help=same
        )(function)
        return click.option("--json", "as_json", is_flag=True, callback=choose, help=about)(function)

    return decorate


def print_sheet(sheet: Sheet) -> None:
    """One table."""
    if not sys.stdout.isatty():
        print_lines(plain_lines(sheet))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=sheet.title or None, title_justify="left", header_style="bold")
    for column, header in enumerate(sheet.headers):
        drawn.add_column(header, justify="right" if column >= sheet.right_from else "left", overflow="fold")
    for row in sheet.rows:
        # As texts: a gang called [red] is a name and not a colour.
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


def plain_lines(sheet: Sheet) -> list[str]:
    """The table as aligned text without any drawing characters, fit for a file or a pipe."""
    right = range(sheet.right_from, len(sheet.headers))
    return [*([sheet.title] if sheet.title else []), *table(sheet.headers, sheet.rows, right)]


def print_lines(lines: Sequence[str]) -> None:
    """Plain lines; what the terminal's encoding lacks is replaced and never an error."""
    encoding = sys.stdout.encoding or "ascii"
    for line in lines:
        click.echo(line.encode(encoding, errors="replace").decode(encoding))


def choose_glyphs() -> Glyphs:
    """Blocks where the output can show them, else ASCII."""
    from phalanx.frontends.sim.text_gantt import ASCII, BLOCKS

    return BLOCKS if can_show(BLOCKS.levels + BLOCKS.waiting + BLOCKS.holding + BLOCKS.rule) else ASCII


@contextmanager
def share_bar(title: str, gangs: int) -> Iterator[Callable[[float], None] | None]:
    """A callback that is told which share is done and moves one bar for all runs, or None where nobody would see it.

    Drawn by whoever calls, never by a thread of its own: runs are forked meanwhile, and a fork while another
    thread holds the lock of the terminal would leave that lock closed for ever in the child.
    """
    if gangs <= _PROGRESS_GANGS_MIN or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share, refresh=True)
