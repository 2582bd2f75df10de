"""`phalanx logs`: what the ranks of a job printed."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.host.following import ENDED, Follower, Wanted, read_whole
from phalanx.cli.host.listing import output_option
from phalanx.cli.host.resting import is_at_rest, logs_at_rest
from phalanx.cli.host.talking import HostFailure, for_each, note, ref_argument, talking
from phalanx.cli.host.text import clean
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import ClientError, UsageError


def _rank(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if not value.isdigit():
        raise HostFailure(UsageError(f"--rank {value!r} is no rank", "write --rank 0, or --rank all"))
    return int(value)


@click.command()
@ref_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended; Ctrl-C leaves it running.")
@click.option("--rank", default="all", callback=_rank, help="One rank, or all.", show_default=True)
@click.option("--tail", type=click.IntRange(min=0), help="Only so many last lines of each rank.")
@click.option("--attempt", type=click.IntRange(min=1), help="An earlier attempt; else the newest.")
@click.option("--raw", is_flag=True, help="Let a terminal obey what the job printed.")
@output_option("table", "jsonl")
def logs(
    ref: str, follow: bool, rank: int | None, tail: int | None, attempt: int | None, raw: bool, output: str
) -> None:
    """Show what a job printed, every line with its rank if there are several.

    A job that has not started yet is waited for, and followed. While the daemon is
    down, what has been printed so far is read from its state directory.

    \b
    phalanx logs -f --rank 0 12
    """
    wanted = Wanted(rank, tail, attempt, raw, as_json=output == "jsonl")
    if is_at_rest():
        logs_at_rest(ref, wanted)
        return
    with talking() as daemon:
        found = for_each(ref, lambda each: daemon.get(job_path(each))["job"])
        for at, job in enumerate(found):
            if len(found) > 1 and not wanted.as_json:  # as tail does it
                click.echo(f"{chr(10) if at else ''}==> {job['id']} {clean(job.get('array') or job['name'])} <==")
            _show(daemon, job, wanted, follow=follow)


def _show(daemon: Daemon, job: dict[str, Any], wanted: Wanted, *, follow: bool) -> None:
    """The output of one job; the id is what stays, whoever gets the name meanwhile."""
    number = str(job["id"])
    if wanted.attempt is not None and wanted.attempt > int(job["attempt"]):
        had = f"{job['attempt']} so far" if job["attempt"] else "none so far"
        why = f"job {number} has had no attempt {wanted.attempt}: {had}"
        raise ClientError(why, f"phalanx logs {number}", code="not_found")
    if job["state"] in ENDED and not job["attempt"]:
        raise ClientError(f"job {number} never began: it was {job['state']}", f"phalanx why {number}", code="not_found")
    waits = not follow and wanted.attempt is None and job["state"] in ("pending", "starting")
    if waits:  # there is nothing to show yet, and whoever asks wants to see something
        note(f"{number} has not started; its output is shown when it does (Ctrl-C leaves it alone)")
    if not follow and not waits:
        read_whole(daemon, number, wanted)
        return
    follower = Follower(daemon, number, wanted)
    try:
        follower.follow()
    except KeyboardInterrupt:
        click.echo(f"\nstill there: phalanx logs -f {follower.id}", err=True)
        raise SystemExit(130) from None
