"""The options of `submit` and `run`, which are also what `#PHALANX` lines of a script may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

import click

from phalanx.cli.host.completing import complete_queue
from phalanx.cli.host.talking import complete_ref
from phalanx.client.job_request import JobRequest, check_name

_OPTIONS: Final[tuple[Callable[[Callable[..., object]], Callable[..., object]], ...]] = (
    click.option("-g", "--gpus", metavar="N", help="GPUs: 4, a range 2:8 (elastic), or a share 0.5."),
    click.option("-n", "--members", metavar="N", help="Members; else one for each GPU."),
    click.option("--cpus", metavar="N", help="Cores of each member."),
    click.option("--memory", metavar="SIZE", help="Memory of each member, as 16Gi."),
    click.option("--name", help="Name; else that of the script or program."),
    click.option("-t", "--time", metavar="LENGTH", help="How long it runs, for planning: 2h, 90m, 01:30:00."),
    click.option("--kill-after", metavar="LENGTH", help="Kill it after so long."),
    click.option("--warn", metavar="SIGNAL@LENGTH", help="With --kill-after: signal it before, as USR1@60s."),
    click.option("--begin", metavar="WHEN", help="Not before: +10m, 18:30 or 2026-11-16T09:00."),
    click.option("--deadline", metavar="WHEN", help="To be done by: 6h from now, or an instant."),
    click.option("-q", "--queue", help="Queue.", shell_complete=complete_queue),
    click.option("-p", "--priority", type=int, help="Priority inside the queue; higher goes first."),
    click.option(
        "--after",
        multiple=True,
        metavar="JOB",
        help="After this job succeeded; any:JOB: after any end.",
        shell_complete=complete_ref,
    ),
    click.option("--array", metavar="RANGE", help="One job per index: 0-99, at most eight at once: 0-99%8."),
    click.option("--singleton", is_flag=True, help="Not beside another job of yours with the same name."),
    click.option("-e", "--env", multiple=True, metavar="K=V", help="Set a variable, or keep K with --clean-env."),
    click.option("--clean-env", is_flag=True, help="Without your environment, but for PATH, HOME and the like."),
    click.option("-C", "--cwd", metavar="DIR", help="Start there; else here."),
    click.option("--preemptible", is_flag=True, help="May be stopped for more urgent jobs."),
    click.option("--requeue", is_flag=True, help="The same, and waits again: SIGTERM means save and exit."),
    click.option("--restarts", type=int, metavar="N", help="Start again so often after a failure."),
    click.option("--grace", metavar="LENGTH", help="Between SIGTERM and SIGKILL; else 10s."),
    click.option("--hold", is_flag=True, help="Wait until phalanx release."),
    click.option("--topology", metavar="LEVEL", help="require:LEVEL or prefer:LEVEL."),
    click.option("--progress-regex", metavar="REGEX", help="Finds (?P<step>...) in the log."),
    click.option("--allow-infeasible", is_flag=True, help="Wait even if this machine could never run it."),
)


def wish_options(function: Callable[..., object]) -> Callable[..., object]:
    """All options that describe a job."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def wish_of(params: Mapping[str, Any]) -> JobRequest:
    """What was said with them."""
    if params.get("name") == "":  # else it would be as if nothing was said
        check_name("")
    return JobRequest(**{field.name: params[field.name] for field in fields(JobRequest) if field.name in params})


def parse_words(words: list[str]) -> JobRequest:
    """The same from words of a header line; what is no option of a job is a usage error."""

    @click.command("header", context_settings={"allow_interspersed_args": False}, add_help_option=False)
    @wish_options
    def header(**_: object) -> None:
        """Only parsed."""

    return wish_of(header.make_context("#PHALANX", words).params)
