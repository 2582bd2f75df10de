"""`kubectl phalanx ps`: gangs in a table."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.listing import Column, Row, choose_columns, columns_option, output_option, print_rows
from phalanx.cli.host.text import clean, number, span, start_text
from phalanx.cli.kube.kube_asking import Asker, WhichScheduler, asking, place_options

_USUAL: Final = ("name", "dialect", "state", "members", "gpus", "ahead", "age", "info")
_EVERYWHERE: Final = ("namespace", *_USUAL)
_WIDE: Final = (
    "namespace",
    "name",
    "dialect",
    "state",
    "members",
    "gpus",
    "priority",
    "ahead",
    "starts",
    "age",
    "nodes",
    "reason",
)
_PAUSE_S: Final = 2.0
_NODES_MOST: Final = 4


@click.command()
@place_options
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")
@click.option("--ended", is_flag=True, help="Also gangs that have ended and whose pods are still there.")
@output_option()
@columns_option
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
def ps(
    place: WhichScheduler,
    everywhere: bool,
    ended: bool,
    output: str,
    columns: str | None,
    no_headers: bool,
    watch: bool,
) -> None:
    """List gangs: what runs, then what waits in the order of its turns.

    MEMBERS are those with places of those that there are. AHEAD: how many gangs have
    their turn before. INFO says why it waits and when it is expected to start, or
    where it runs.

    \b
    kubectl phalanx ps -A -w
    """
    with asking(place) as asker:
        space = None if everywhere else asker.namespace
        usual = {"wide": _WIDE, "csv": _WIDE}.get(output, _USUAL if space else _EVERYWHERE)
        chosen = choose_columns(columns, COLUMNS, usual)

        def once() -> None:
            rows = asker.get("/v1/gangs", {"namespace": space, "ended": 1 if ended else None})["gangs"]
            nothing = "" if rows else _say_nothing(asker, space, ended=ended)
            print_rows(rows, chosen, output, headers=not no_headers, none=nothing, fits=output == "table")

        if watch:
            from phalanx.cli.host.redrawing import again

            again(once, _PAUSE_S)
        else:
            once()


def _say_nothing(asker: Asker, space: str | None, *, ended: bool) -> str:
    """Why a list is empty, and where there are some."""
    if space is not None and asker.get("/v1/gangs", {"ended": 1 if ended else None})["gangs"]:
        return f"no gangs in namespace {clean(space)}; kubectl phalanx ps -A lists those of all"
    where = "" if space is None else f" in namespace {clean(space)}, nor in any other"
    return f"no gangs{where}; pods are seen that name the scheduler: spec.schedulerName: phalanx"


def info(row: Row) -> str:
    """Why it waits and until when, or where it runs."""
    reason, starts = row.get("reason"), start_text(row.get("eta"))
    if reason:
        said = f"{clean(reason['code'])}: {clean(reason['message'])}"
        return f"starts {starts}; {said}" if starts else said
    return places(row)


def places(row: Row) -> str:
    """Nodes with how many members sit there."""
    nodes = list((row.get("nodes") or {}).items())
    more = len(nodes) - _NODES_MOST
    told = " ".join(f"{clean(node)}:{count}" for node, count in nodes[:_NODES_MOST])
    return f"{told} and {more} more" if more > 0 else told


def members(row: dict[str, Any]) -> str:
    """With places, of those that there are; and how many it takes, if fewer."""
    least = row["members_min"]
    fewer = f" (min {least})" if least < row["wanted"] and row["dialect"] != "plain" else ""
    return f"{row['bound']}/{row['wanted']}{fewer}"


def _gpus(row: Row) -> str:
    return number(row["gpus"])


def _ahead(row: Row) -> str:
    return "-" if row.get("ahead") is None else str(row["ahead"]["gangs"])


def _reason(row: Row) -> str:
    reason = row.get("reason")
    return f"{clean(reason['code'])}: {clean(reason['message'])}" if reason else "-"


COLUMNS: Final = (
    *(Column(key, lambda row, key=key: clean(row[key])) for key in ("namespace", "name", "dialect", "state")),  # type: ignore[misc]
    Column("members", members, plain=members),
    Column("gpus", _gpus, right=True, plain=_gpus),
    Column("priority", lambda row: str(row["priority"]), right=True),
    Column("ahead", _ahead, right=True, plain=_ahead),
    Column("starts", lambda row: start_text(row.get("eta")) or "-", plain=lambda row: (row.get("eta") or {}).get("at")),
    Column("age", lambda row: span(row["age_s"]), right=True, plain=lambda row: row["age_s"]),
    Column("nodes", places, plain=places),
    Column("reason", _reason, plain=_reason),
    Column("info", info, plain=info),
)
