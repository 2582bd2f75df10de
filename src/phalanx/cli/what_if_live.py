"""`phalanx what-if` of the daemon as it stands: its state, jobs by their names, submits that were not made."""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from phalanx.cli.host.options import wish_of, wish_options
from phalanx.cli.host.preparing import prepare
from phalanx.cli.host.talking import for_each, talking
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import UsageError
from phalanx.client.job_request import JobRequest


def ask_daemon(cancel: Sequence[str]) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """The daemon's state as the text of a dump; the gangs that these words mean; what people call each gang.

    Each gang that is meant comes with the word that was typed for it.
    """
    with talking() as daemon:
        rows = daemon.get("/v1/jobs", {"all": 1})["jobs"]
        labels = {str(row["id"]): f"{row['id']} {row['name']}" for row in rows}
        meant = {name: ref for ref in reversed(cancel) for name in _find(daemon, ref)}
        return daemon.raw("GET", "/v1/state").body.decode(), meant, labels


def _find(daemon: Daemon, ref: str) -> list[str]:
    return [str(number) for number in for_each(ref, lambda each: daemon.get(job_path(each))["job"]["id"])]


def read_submits(texts: Sequence[str], notes: list[str]) -> tuple[dict[str, Any], ...]:
    """Gangs as `submit` would make them of these words: options and a command, a script, or a file of gangs."""
    found = [gang for text in texts for gang in _gangs_of(text, notes)]
    user = pwd.getpwuid(os.getuid()).pw_name
    names: dict[str, int] = {}
    for gang in found:
        seen = names[gang["name"]] = names.get(gang["name"], 0) + 1
        gang |= {"user": user, "name": f"new {gang['name']}" + (f" {seen}" if seen > 1 else "")}
    return tuple(found)


def _gangs_of(text: str, notes: list[str]) -> list[dict[str, Any]]:
    try:
        words = shlex.split(text)
    except ValueError as bad:
        raise UsageError(f"--submit {text!r} cannot be read: {bad}", "mend the quotes") from None
    wish, command = _read(words)
    jobs = prepare(wish, command or ["true"], each=False, notes=notes)
    return [{"name": wish.name or (job["name"] if command else "job"), **job["gang"]} for job in jobs]


def _read(words: list[str]) -> tuple[JobRequest, list[str]]:
    @click.command("submit", context_settings={"allow_interspersed_args": False}, add_help_option=False)
    @wish_options
    @click.argument("command", nargs=-1, type=click.UNPROCESSED)
    def submit(**_: object) -> None:
        """Only parsed."""

    try:
        params = submit.make_context("--submit", words).params
    except click.UsageError as bad:
        raise UsageError(f"--submit: {bad.format_message()}", "phalanx submit --help lists the options") from None
    return wish_of(params), list(params["command"])
