"""`phalanx logs`: what the ranks of a job printed."""

from __future__ import annotations

import click

from phalanx.cli.host.following import Follower, read_whole
from phalanx.cli.host.talking import HostFailure, note, ref_argument, talking
from phalanx.client.daemon import job_path
from phalanx.client.daemon_errors import UsageError


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
def logs(ref: str, follow: bool, rank: int | None, tail: int | None, attempt: int | None, raw: bool) -> None:
    """Show what a job printed, every line with its rank if there are several.

    A job that has not started yet is waited for, and followed.

    \b
    phalanx logs -f --rank 0 12
    """
    with talking() as daemon:
        waits = not follow and attempt is None and daemon.get(job_path(ref))["job"]["state"] in ("pending", "starting")
        if waits:  # there is nothing to show yet, and whoever asks wants to see something
            note(f"{ref} has not started; its output is shown when it does (Ctrl-C leaves it alone)")
        if not follow and not waits:
            read_whole(daemon, ref, rank=rank, tail=tail, attempt=attempt, raw=raw)
            return
        follower = Follower(daemon, ref, rank=rank, tail=tail, attempt=attempt, raw=raw)
        try:
            follower.follow()
        except KeyboardInterrupt:
            click.echo(f"\nstill there: phalanx logs -f {follower.id}", err=True)
            raise SystemExit(130) from None
