"""`phalanx queues` and `phalanx share`: who is entitled to what, and who uses it."""

from __future__ import annotations

from typing import Final

import click

from phalanx.cli.host.listing import (
    Column,
    choose_columns,
    columns_option,
    dump,
    output_option,
    print_rows,
    print_table,
    print_wrapped,
)
from phalanx.cli.host.talking import talking
from phalanx.cli.host.text import amounts, clean

_USUAL: Final = ("queue", "parent", "weight", "guarantee", "limit", "used", "pending", "running")


@click.command()
@output_option()
@columns_option
def queues(output: str, columns: str | None, no_headers: bool) -> None:
    """Show queues: their rights, what they use, how many jobs they have.

    \b
    phalanx queues
    """
    with talking() as daemon:
        chosen = choose_columns(columns, COLUMNS, _USUAL)
        rows = daemon.get("/v1/queues")["queues"]
    print_rows(rows, chosen, output, headers=not no_headers, fits=output == "table")


@click.command()
@output_option("table", "json")
def share(output: str) -> None:
    """Say in a sentence how you stand among the others, and why.

    \b
    phalanx share
    """
    with talking() as daemon:
        told = daemon.get("/v1/share")
    if output == "json":
        dump(told)
        return
    print_wrapped([clean(told["sentence"])], 2)
    rows = told.get("queues") or []
    if rows:
        click.echo()
        print_table(rows, choose_columns(None, COLUMNS, [name for name in _SHARED if _known(name, rows)]), fits=True)


_SHARED: Final = ("queue", "used", "guarantee", "limit", "weight", "share")


def _known(name: str, rows: list[dict[str, object]]) -> bool:
    return any({"queue": "name"}.get(name, name) in row for row in rows)


def _share(row: dict[str, object]) -> str:
    found = row.get("share")
    return f"{found:.0%}" if isinstance(found, (int, float)) else "-"


def _mapping(key: str) -> Column:
    return Column(key, lambda row: amounts(row.get(key)), plain=lambda row: amounts(row.get(key)).replace("-", ""))


COLUMNS: Final = (
    Column("queue", lambda row: clean(row["name"]), plain=lambda row: row["name"]),
    Column("parent", lambda row: clean(row.get("parent") or "-")),
    Column("weight", lambda row: f"{row.get('weight', 1):g}", right=True),
    _mapping("guarantee"),
    _mapping("limit"),
    _mapping("used"),
    Column("share", _share, right=True),
    Column("pending", lambda row: str(row.get("pending", 0)), right=True),
    Column("running", lambda row: str(row.get("running", 0)), right=True),
)
