"""Verbs that change a job: cancel, hold, release, retry, resize, edit, preempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.sending import look_again, tell_accepted
from phalanx.cli.host.talking import HostFailure, ref_argument, refs_argument, talking
from phalanx.cli.host.text import clean, painted, sizes
from phalanx.client.daemon import job_path
from phalanx.client.daemon_errors import ClientError, UsageError
from phalanx.client.job_request import check_name, check_priority, parse_topology
from phalanx.client.shape import parse_members

_SHORT = output_option("table", "json")


def _act(verb: str, refs: Sequence[str], output: str, said: str, body: Mapping[str, Any] | None = None) -> None:
    """Do it to each; one that fails does not keep the others from it, but decides the exit code."""
    rows, failed = [], None
    with talking() as daemon:
        for ref in refs:
            try:
                rows.append(daemon.post(job_path(ref, verb), body))
            except ClientError as bad:
                failed = failed or bad
                if len(refs) > 1 and bad is not failed:
                    HostFailure(bad).show()
    if output == "json":
        dump(rows if len(refs) > 1 else rows[0] if rows else None)
    else:
        for row in rows:
            click.echo(f"{row['id']} {clean(row['name'])}  {painted(row['state'])}  {said}".rstrip())
    if failed is not None:
        raise HostFailure(failed)


@click.command()
@refs_argument
@_SHORT
def cancel(refs: tuple[str, ...], output: str) -> None:
    """Stop jobs, pending or running: SIGTERM, their grace, SIGKILL.

    \b
    phalanx cancel 12 sweep
    """
    _act("cancel", refs, output, "")


@click.command()
@refs_argument
@_SHORT
def hold(refs: tuple[str, ...], output: str) -> None:
    """Keep pending jobs from starting until they are released.

    \b
    phalanx hold 12
    """
    _act("hold", refs, output, "held; phalanx release lets it start")


@click.command()
@refs_argument
@_SHORT
def release(refs: tuple[str, ...], output: str) -> None:
    """Let held jobs start when it is their turn.

    \b
    phalanx release 12
    """
    _act("release", refs, output, "released")


@click.command()
@ref_argument
@output_option("table", "json", "jsonl")
def retry(ref: str, output: str) -> None:
    """Submit an ended job again, as a new one with the same command and environment.

    \b
    phalanx retry 12
    """
    with talking() as daemon:
        accepted = look_again(daemon, [daemon.post(job_path(ref, "retry"))])
    tell_accepted(accepted, output, many=False, dry_run=False)


@click.command()
@ref_argument
@click.argument("size", required=False)
@click.option("--to", "to", metavar="N|auto", help="The same as SIZE.")
@click.option("--min", "least", type=click.IntRange(min=1), metavar="N", help="Of a pending job: start with so few.")
@_SHORT
def resize(ref: str, size: str | None, to: str | None, least: int | None, output: str) -> None:
    """Change how many members an elastic job has.

    SIZE is a number of members, or auto to leave it to the scheduler again.

    \b
    phalanx resize 12 4
    """
    wanted = to or size
    if (to and size) or (wanted is None and least is None):
        raise HostFailure(UsageError("resize needs one size", "phalanx resize 12 4, or phalanx resize 12 auto"))
    if wanted is not None and wanted != "auto" and not (wanted.isdigit() and int(wanted)):
        raise HostFailure(UsageError(f"{wanted!r} is no number of members", "phalanx resize 12 4, or 12 auto"))
    body: dict[str, Any] = {"members": "auto" if wanted in (None, "auto") else int(wanted)}
    if least is not None:
        body["min"] = least
    with talking() as daemon:
        row = daemon.post(job_path(ref, "resize"), body)
    if output == "json":
        dump(row)
        return
    click.echo(f"{row['id']} {clean(row['name'])}  {painted(row['state'])}  members {sizes(row)}")


@click.command()
@ref_argument
@click.option("-p", "--priority", type=int, help="Priority inside the queue.")
@click.option("-t", "--time", "walltime", metavar="LENGTH", help="How long it runs, for planning.")
@click.option("--name", help="Another name.")
@click.option("-q", "--queue", help="Another queue.")
@click.option("-n", "--members", metavar="N", help="Members: 4, or a range 2:8.")
@click.option("--topology", metavar="LEVEL", help="require:LEVEL, prefer:LEVEL, or none.")
@click.option("--deadline", metavar="WHEN", help="To be done by.")
@_SHORT
def edit(
    ref: str,
    priority: int | None,
    walltime: str | None,
    name: str | None,
    queue: str | None,
    members: str | None,
    topology: str | None,
    deadline: str | None,
    output: str,
) -> None:
    """Change a pending job.

    \b
    phalanx edit 12 --priority 5 --time 30m
    """
    from phalanx.client.times import length_of, until_of

    with talking() as daemon:
        wanted: dict[str, Any] = {
            "priority": check_priority(priority),
            "walltime": None if walltime is None else length_of(walltime, "--time"),
            "name": None if name is None else check_name(name),
            "queue": queue,
            "members": None if members is None else parse_members(members),
            "topology": None if topology in (None, "none") else parse_topology(topology),
            "deadline": None if deadline is None else until_of(deadline),
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        if topology == "none":
            body["topology"] = None  # takes the wish back
        if not body:
            raise UsageError("edit changes nothing", "phalanx edit 12 --priority 5; phalanx edit --help")
        row = daemon.post(job_path(ref), body, method="PATCH")
    if output == "json":
        dump(row)
        return
    click.echo(f"{row['id']} {clean(row['name'])}  {painted(row['state'])}  changed: {', '.join(body)}")


@click.command()
@ref_argument
@click.option("--drill", is_flag=True, help="Rehearse: notice, deadline, SIGTERM, and back into the queue.")
@_SHORT
def preempt(ref: str, drill: bool, output: str) -> None:
    """Rehearse a preemption: see that a job saves its work and comes back.

    \b
    phalanx preempt --drill 12
    """
    if not drill:
        why = "only the scheduler preempts for real"
        raise HostFailure(UsageError(why, f"phalanx preempt --drill {ref}, or phalanx cancel {ref}"))
    _act("preempt", [ref], output, f"drill begun; watch it: phalanx events, phalanx logs -f {ref}", {"drill": True})
