"""Verbs that change a job: cancel, hold, release, retry, resize, edit, preempt."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from phalanx.cli.host.completing import complete_queue
from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.sending import look_again, tell_accepted
from phalanx.cli.host.talking import HostFailure, for_each, note, ref_argument, refs_argument, talking
from phalanx.cli.host.text import clean, painted, sizes
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import RefusedError, UsageError
from phalanx.client.job_request import check_name, check_priority, parse_topology
from phalanx.client.shape import parse_members
from phalanx.words import count_members

_SHORT = output_option("table", "json")
_LINES_MAX = 40
#: Of an option that takes something back: nothing was said, or that it is taken back.
_UNSAID = (None, "none")


def _act_on_all(verb: str, refs: Sequence[str], output: str, said: str) -> None:
    """Do it to all of them in one step; one that is refused does not keep it from the others, but decides the code."""
    with talking() as daemon:
        told = daemon.post(f"/v1/{verb}", {"jobs": list(refs)})
    rows, refused = told["jobs"], [_error_of(each) for each in told.get("refused") or ()]
    if output == "json" and (rows or len(refs) > 1):
        dump(rows if len(refs) > 1 or len(rows) > 1 else rows[0])
    elif output != "json":
        _tell(rows, said)
    for bad in refused[1:]:
        HostFailure(bad).show()
    if refused:
        raise HostFailure(refused[0])


def _error_of(told: Mapping[str, Any]) -> RefusedError:
    error = told["error"]
    return RefusedError(error["message"], error.get("hint") or "", code=error["code"], details=error.get("details"))


def _tell(rows: Sequence[Mapping[str, Any]], said: str) -> None:
    """A line for each; many in one state are told as one."""
    states = {row["state"] for row in rows}
    if len(rows) > _LINES_MAX and len(states) == 1:
        shown = f"{rows[0]['id']} {clean(rows[0]['name'])} … {rows[-1]['id']} {clean(rows[-1]['name'])}"
        click.echo(f"{len(rows):,} jobs: {shown}  {painted(states.pop())}  {said}".rstrip())
        return
    for row in rows:
        click.echo(f"{row['id']} {clean(row.get('array') or row['name'])}  {painted(row['state'])}  {said}".rstrip())


@click.command()
@refs_argument
@_SHORT
def cancel(refs: tuple[str, ...], output: str) -> None:
    """Stop jobs, pending or running: SIGTERM, their grace, SIGKILL.

    \b
    phalanx cancel 12 sweep
    phalanx cancel 36-39 "arr[0-3]"
    """
    _act_on_all("cancel", refs, output, "")


@click.command()
@refs_argument
@_SHORT
def hold(refs: tuple[str, ...], output: str) -> None:
    """Keep pending jobs from starting until they are released.

    \b
    phalanx hold 12
    """
    _act_on_all("hold", refs, output, "held; phalanx release lets it start")


@click.command()
@refs_argument
@_SHORT
def release(refs: tuple[str, ...], output: str) -> None:
    """Let held jobs start when it is their turn.

    \b
    phalanx release 12
    """
    _act_on_all("release", refs, output, "released")


def _retry(daemon: Daemon, each: str, ref: str, refused: list[RefusedError]) -> dict[str, Any] | None:
    """One of several that cannot be submitted again is no reason not to submit the others."""
    try:
        # With a key: an answer that was lost is asked for again, and makes no second job.
        return daemon.post(job_path(each, "retry"), key=secrets.token_urlsafe(18))  # type: ignore[no-any-return]
    except RefusedError as bad:
        if each == ref or bad.code != "conflict":
            raise
        refused.append(bad)
        return None


@click.command()
@ref_argument
@output_option("table", "json", "jsonl")
def retry(ref: str, output: str) -> None:
    """Submit an ended job again, as a new one with the same command and environment.

    Of an array those that have ended, each in the place of the element it repeats.

    \b
    phalanx retry 12
    """
    with talking() as daemon:
        refused: list[RefusedError] = []
        accepted = [each for each in for_each(ref, lambda each: _retry(daemon, each, ref, refused)) if each]
        if not accepted:
            raise refused[0]
        for bad in refused:
            note(bad.message)
        accepted = look_again(daemon, accepted)
    tell_accepted(accepted, output, many=len(accepted) > 1, dry_run=False)


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
        hint = f"phalanx resize {shlex.quote(ref)} 4, or phalanx resize {shlex.quote(ref)} auto"
        raise HostFailure(UsageError("resize needs one size", hint))
    if wanted is not None and wanted != "auto" and not (wanted.isdigit() and int(wanted)):
        hint = f"phalanx resize {shlex.quote(ref)} 4, or phalanx resize {shlex.quote(ref)} auto"
        raise HostFailure(UsageError(f"{wanted!r} is no number of members", hint))
    body: dict[str, Any] = {"members": "auto" if wanted in (None, "auto") else int(wanted)}
    if least is not None:
        body["min"] = least
    with talking() as daemon:
        rows = for_each(ref, lambda each: daemon.post(job_path(each, "resize"), body))
    if output == "json":
        dump(rows if len(rows) > 1 else rows[0])
        return
    for row in rows:
        click.echo(f"{row['id']} {clean(row['name'])}  {painted(row['state'])}  {_resized(row, wanted, least)}")


def _resized(row: dict[str, Any], wanted: str | None, least: int | None) -> str:
    """What comes of it: the size it has now is the old one until its members have made room."""
    if wanted is None:
        return f"may start with {least}: members {sizes(row)}"
    if wanted == "auto":
        return f"members {sizes(row)}; the scheduler chooses its size again"
    now = row.get("members") or 0
    if not now:
        return f"will start with {wanted} of {row['members_min']}:{row['members_max']} members"
    members = count_members(int(wanted))
    if now == int(wanted):
        return f"has {members}, and keeps {'it' if now == 1 else 'them'}"
    return f"{'grows' if int(wanted) > now else 'shrinks'} from {now} to {members}; phalanx why {row['id']}"


@click.command()
@ref_argument
@click.option("-p", "--priority", type=int, help="Priority inside the queue.")
@click.option("-t", "--time", "walltime", metavar="LENGTH", help="How long it runs, for planning; or none.")
@click.option("--name", help="Another name.")
@click.option("-q", "--queue", help="Another queue.", shell_complete=complete_queue)
@click.option("-n", "--members", metavar="N", help="Members: 4, or a range 2:8.")
@click.option("--topology", metavar="LEVEL", help="require:LEVEL, prefer:LEVEL, or none.")
@click.option("--deadline", metavar="WHEN", help="To be done by: 6h, 18:30; or none.")
@click.option("--kill-after", metavar="LENGTH", help="Kill it after so long; or none.")
@click.option("--preemptible/--no-preemptible", default=None, help="May be stopped for more urgent jobs.")
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
    kill_after: str | None,
    preemptible: bool | None,
    output: str,
) -> None:
    """Change a pending job; none takes a time, a deadline, a kill or a topology back.

    \b
    phalanx edit 12 --priority 5 --time 30m
    phalanx edit 12 --deadline none
    """
    from phalanx.client.times import length_of, until_of

    with talking() as daemon:
        wanted: dict[str, Any] = {
            "priority": check_priority(priority),
            "walltime": None if walltime in _UNSAID else length_of(walltime, "--time"),
            "name": None if name is None else check_name(name),
            "queue": queue,
            "members": None if members is None else parse_members(members),
            "topology": None if topology in _UNSAID else parse_topology(topology),
            "deadline": None if deadline in _UNSAID else until_of(deadline),
            "kill_after": None if kill_after in _UNSAID else length_of(kill_after, "--kill-after"),
            "preemptible": preemptible,
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        taken_back = {"walltime": walltime, "topology": topology, "deadline": deadline, "kill_after": kill_after}
        body |= {key: None for key, said in taken_back.items() if said == "none"}
        if not body:
            hint = f"phalanx edit {shlex.quote(ref)} --priority 5; phalanx edit --help"
            raise UsageError("edit changes nothing", hint)
        rows = for_each(ref, lambda each: daemon.post(job_path(each), body, method="PATCH"))
    if output == "json":
        dump(rows if len(rows) > 1 else rows[0])
        return
    _tell(rows, f"changed: {', '.join(body)}")


@click.command()
@ref_argument
@click.option("--drill", is_flag=True, help="Rehearse: notice, deadline, SIGTERM, and back into the queue.")
@_SHORT
def preempt(ref: str, drill: bool, output: str) -> None:
    """Rehearse a preemption: see that a job saves its work and comes back.

    Of jobs that can be evicted: --preemptible, --requeue, or with members that speak the protocol.

    \b
    phalanx preempt --drill 12
    """
    if not drill:
        why = "only the scheduler preempts for real"
        raise HostFailure(UsageError(why, f"phalanx preempt --drill {ref}, or phalanx cancel {ref}"))
    with talking() as daemon:
        rows = for_each(ref, lambda each: daemon.post(job_path(each, "preempt"), {"drill": True}))
    if output == "json":
        dump(rows if len(rows) > 1 else rows[0])
        return
    _tell(rows, f"drill begun; watch it: phalanx events, phalanx logs -f {ref}")
    for row in rows:
        for text in row.get("warnings") or ():
            click.echo(f"phalanx: warning: {row['id']}: {clean(text)}", err=True)
