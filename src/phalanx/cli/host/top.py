"""`phalanx top`: GPUs with owner, job, rank and use, refreshed on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from phalanx.cli.host.listing import Column, choose_columns, dump, output_option, print_rows
from phalanx.cli.host.nodes import COLUMNS, device_rows
from phalanx.cli.host.ps import info
from phalanx.cli.host.talking import talking
from phalanx.cli.host.text import clean
from phalanx.client.daemon import Daemon

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN: Final = ("gpu", "model", "state", "util", "used", "memory", "job", "name", "rank", "user", "info")
_DEVICE_COLOURS: Final = {"free": "dim", "busy": "green", "stranger": "yellow", "quarantined": "red", "gone": "red"}


@click.command()
@click.option("-d", "--delay", type=click.FloatRange(min=0.2), default=2.0, show_default=True, help="Seconds between.")
@click.option("-1", "--once", is_flag=True, help="Print it once.")
@output_option("table", "json")
def top(delay: float, once: bool, output: str) -> None:
    """Watch the GPUs: whose they are, which job and rank, how busy; Ctrl-C ends.

    \b
    phalanx top
    """
    with talking() as daemon:
        if output == "json":
            dump(read(daemon)[0])
            return
        if once or not sys.stdout.isatty():
            rows, summary = read(daemon)
            click.echo(summary)
            print_rows(rows, choose_columns(None, [*COLUMNS, *_JOB_COLUMNS], _SHOWN), "table")
            return
        _live(daemon, delay)


def read(daemon: Daemon) -> tuple[list[dict[str, Any]], str]:
    """Devices with the job on each, and a line about all."""
    devices = device_rows(daemon.get("/v1/nodes")["nodes"])
    jobs = {
        job["id"]: job
        for job in daemon.get("/v1/jobs", {"all": 1, "state": "pending,starting,running,stopping"})["jobs"]
    }
    for device in devices:
        device["of"] = jobs.get(device.get("job"), {})
    places = {(device["node"], device["index"]): device["state"] for device in devices}  # a shared one has several rows
    busy = sum(state == "busy" for state in places.values())
    waiting = [job for job in jobs.values() if job["state"] == "pending"]
    wanted = sum(job.get("gpus") or 0 for job in waiting)
    running = len(jobs) - len(waiting)
    words = f"{busy} of {len(places)} GPUs busy, {running} job{'s' if running != 1 else ''} running"
    return devices, f"{words}, {len(waiting)} waiting for {wanted:g} GPUs"


def _live(daemon: Daemon, delay: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            rows, summary = read(daemon)
            live.update(Group(Text(summary), make_table(rows)), refresh=True)
            time.sleep(delay)


def make_table(rows: list[dict[str, Any]]) -> Table:
    """The same columns, drawn; cells are texts, so that a job called [red] is a name."""
    from rich.table import Table
    from rich.text import Text

    columns = choose_columns(None, [*COLUMNS, *_JOB_COLUMNS], _SHOWN)
    found = Table(header_style="bold", expand=True)
    for column in columns:
        found.add_column(column.name, justify="right" if column.right else "left", no_wrap=column.name != "info")
    for row in rows:
        style = _DEVICE_COLOURS.get(row["state"], "")
        found.add_row(*(Text(column.show(row), style=style if column.name == "state" else "") for column in columns))
    return found


def _name(row: dict[str, Any]) -> str:
    return clean(row["of"].get("name") or "-")


def _info(row: dict[str, Any]) -> str:
    job = row["of"]
    # One line for each job is enough: the first rank speaks.
    return info(job) if job and row.get("rank") in (0, None) else ""


_JOB_COLUMNS: Final = (Column("name", _name), Column("info", _info))
