"""`phalanx events`: what happens to jobs, as it happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import click

from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.talking import complete_ref, for_each, note, talking
from phalanx.cli.host.text import clean, data_text, exact, instant, now
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import UnreachableError

#: Instead of the number of an event: none of those that are kept.
NEW: Final = -1
AGAIN_S: Final = 0.5
AGAIN_S_MAX: Final = 60.0


@click.command()
@click.option(
    "--since", type=click.IntRange(min=0), metavar="SEQ", help="First those after this event; 0: all that are kept."
)
@click.option(
    "--job", metavar="JOB", help="Only of this job; of an array, of all its jobs.", shell_complete=complete_ref
)
@output_option("table", "jsonl")
def events(since: int | None, job: str | None, output: str) -> None:
    """Print what happens to jobs from now on, until Ctrl-C.

    The stream goes on when the daemon is restarted, without a gap. What has happened
    before is shown by --since 0.

    \b
    phalanx events -o jsonl | jq .event
    """
    with talking() as daemon, contextlib.suppress(KeyboardInterrupt):
        wanted = None if job is None else _find_ids(daemon, job)
        for event in follow(daemon, since):
            if wanted is not None and event.get("job") not in wanted:
                continue
            if output == "jsonl":
                dump(event)
            else:
                words = [exact(event.get("at")), str(event.get("job") or "-"), clean(event.get("event"))]
                click.echo("  ".join([*words, data_text(event.get("data"))]).rstrip())


def _find_ids(daemon: Daemon, job: str) -> set[int]:
    """Ids as well are looked up: of a job that was never there nothing would come, for ever."""
    return {int(number) for number in for_each(job, lambda each: daemon.get(job_path(each))["job"]["id"])}


def follow(daemon: Daemon, since: int | None) -> Iterator[dict[str, Any]]:
    """All events from a number on, or all new ones; a lost connection is taken up again where it broke off."""
    alone_s, began = 0.0, now() - timedelta(seconds=1)  # the daemon tells instants to the second
    last, old = NEW if since is None else since, False
    while True:
        try:
            for event in daemon.events(last):
                last, alone_s = max(last, int(event.get("seq") or 0)), 0.0
                at = instant(event.get("at"))
                if not old or at is None or at >= began:
                    yield event
        except UnreachableError:
            if alone_s >= AGAIN_S_MAX:
                raise
        # Nothing new was seen before the connection broke, so that no number says where: then all of them, and by the
        # time of day only those since we began.
        last, old = max(last, 0), old or last == NEW
        if alone_s == 0:
            note("the daemon has gone; waiting for it to come back")
        time.sleep(AGAIN_S)
        alone_s += AGAIN_S
