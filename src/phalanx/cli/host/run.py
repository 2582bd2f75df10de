"""`phalanx run`: submit, follow, end with the job's exit code."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from typing import Any, Final

import click

from phalanx.cli.failure import WORDS
from phalanx.cli.host.completing import complete_command
from phalanx.cli.host.following import Follower, Wanted, tell_failure
from phalanx.cli.host.listing import output_option
from phalanx.cli.host.options import wish_of, wish_options
from phalanx.cli.host.preparing import prepare
from phalanx.cli.host.sending import send, tell_notes, tell_shape
from phalanx.cli.host.talking import failing, retyping, talking
from phalanx.cli.host.text import clean
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import UsageError

_SECOND_S: Final = 2.0
_INTERRUPTED: Final = 130


@click.command(context_settings={"allow_interspersed_args": False})
@wish_options
@click.option("--raw", is_flag=True, help="Let a terminal obey what the job printed.")
@output_option("table", "jsonl")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_command)
def run(raw: bool, output: str, command: tuple[str, ...], **params: Any) -> None:
    """Submit a job and follow what all its ranks print; end with its exit code.

    Ctrl-C detaches: the job goes on, and the command to come back is printed.
    A second Ctrl-C within two seconds asks whether to cancel it.

    \b
    phalanx run -g 2 -- python train.py
    """
    notes: list[str] = []
    with failing(), retyping(command):
        jobs = prepare(wish_of(params), command, each=False, notes=notes)
        if len(jobs) != 1:
            words = click.get_current_context().meta.get(WORDS, ["run"])[1:]
            ours, theirs = words[: len(words) - len(command)], words[len(words) - len(command) :]
            again = shlex.join([*(word for word in ours if word not in ("--raw", "--json")), *theirs])
            raise UsageError(f"run follows one job, and these are {len(jobs)}", f"phalanx submit {again}")
    with talking(start=True) as daemon:
        (accepted,) = send(daemon, jobs, notes)
        tell_notes([*notes, *(accepted.get("warnings") or ())])
        job = f"{accepted['id']} {clean(accepted['name'])}"
        click.echo(f"phalanx: {job} {accepted['state']}, {tell_shape(jobs[0])}; Ctrl-C detaches", err=True)
        try:
            follower = Follower(daemon, str(accepted["id"]), Wanted(raw=raw, as_json=output == "jsonl"))
            code = tell_end(daemon, follower.follow(), seen=True)
        except KeyboardInterrupt:
            detach(daemon, accepted)
            code = _INTERRUPTED
    raise SystemExit(code)


def tell_end(daemon: Daemon, job: dict[str, Any], *, seen: bool = False) -> int:
    """How it ended, where that was not well; the exit code for it. `seen`: its output has been printed already."""
    code = exit_code_of(job)
    if job["state"] != "completed":
        tell_failure(daemon, str(job["id"]), lines=not seen)
        shown = f" with exit code {job['exit_code']}" if job.get("exit_code") is not None else ""
        click.echo(f"phalanx: {job['id']} {clean(job['name'])} {job['state']}{shown}", err=True)
    return code


def exit_code_of(job: dict[str, Any]) -> int:
    """The job's own exit code; a job that has none and did not complete is a failure."""
    code = job.get("exit_code")
    if job["state"] == "completed":
        return int(code or 0)
    return int(code) & 0xFF or 1 if code is not None else 1


def detach(daemon: Daemon, job: dict[str, Any]) -> None:
    """The first Ctrl-C leaves the job alone; the second one asks."""
    number = job["id"]
    try:
        click.echo(f"\ndetached; {number} {clean(job['name'])} goes on", err=True)
        click.echo(f"  phalanx logs -f {number}   come back\n  phalanx cancel {number}    stop it", err=True)
        if sys.stdin.isatty():
            time.sleep(_SECOND_S)
    except KeyboardInterrupt:
        _ask_and_cancel(daemon, job)


def _ask_and_cancel(daemon: Daemon, job: dict[str, Any]) -> None:
    with contextlib.suppress(click.Abort):
        if click.confirm(f"cancel {job['id']} {clean(job['name'])}?", err=True):
            daemon.post(job_path(str(job["id"]), "cancel"))
            click.echo("cancelled", err=True)
