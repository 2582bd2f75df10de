"""`phalanx events`: what happens to jobs, as it happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import complete_ref, for_each, note, talking
from phalanx.cli.host.text import clean, data_text, exact
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import UnreachableError

AGAIN_S: Final = 0.5
AGAIN_S_MAX: Final = 60.0


@click.command()
@click.option(
    "--since", type=click.IntRange(min=0), metavar="SEQ", help="From this event on; else from the first kept."
)
@click.option(
    "--job", metavar="JOB", help="Only of this job; of an array, of all its jobs.", shell_complete=complete_ref
)
@output_option("table", "jsonl")
def events(since: int | None, job: str | None, output: str) -> None:
    """Print what happens to jobs as it happens, until Ctrl-C.

    The stream goes on when the daemon is restarted, without a gap.

    \b
    phalanx events -o jsonl | jq .event
    """
    with talking() as daemon, contextlib.suppress(KeyboardInterrupt):
        wanted = None if job is None else _find_ids(daemon, job)
        for event in follow(daemon, since or 0):
            if wanted is not None and event.get("job") not in wanted:
                continue
            if output == "jsonl":
                dump(event)
            else:
                words = [exact(event.get("at")), str(event.get("job") or "-"), clean(event.get("event"))]
                click.echo("  ".join([*words, data_text(event.get("data"))]).rstrip())


def _find_ids(daemon: Daemon, job: str) -> set[int]:
    """Ids need no look: events of a job may be kept longer than the job is known."""
    if job.isdecimal():
        return {int(job)}
    return {int(number) for number in for_each(job, lambda each: daemon.get(job_path(each))["job"]["id"])}


def follow(daemon: Daemon, since: int) -> Iterator[dict[str, Any]]:
    """All events from a number on; a lost connection is taken up again where it broke off."""
    alone_s = 0.0
    while True:
        try:
            for event in daemon.events(since):
                since, alone_s = max(since, int(event.get("seq") or 0)), 0.0
                yield event
        except UnreachableError:
            if alone_s >= AGAIN_S_MAX:
                raise
        if alone_s == 0:
            note("the daemon has gone; waiting for it to come back")
        time.sleep(AGAIN_S)
        alone_s += AGAIN_S
