"""The command line. Each verb is a module that is imported when it is asked for.

Heavy imports (NumPy, rich) stay inside the functions that need them: `phalanx --help` and the
quick verbs must answer at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from phalanx import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Section of the help → verb → the module that has the command of that name, and what it does in a few words.
#: The words stand here because `phalanx --help` would otherwise import every module to read them.
_SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Jobs": {
        "submit": ("host.submit", "Hand in a job: a command, a script, a file of gangs."),
        "run": ("host.run", "Submit and follow the output; Ctrl-C detaches."),
        "ps": ("host.ps", "List jobs."),
        "show": ("host.show", "Everything about one job."),
        "why": ("host.why", "Why a job waits, when it starts, what would help."),
        "logs": ("host.logs", "What a job printed; -f follows."),
        "wait": ("host.wait", "Wait until jobs have ended; the job's exit code."),
        "cancel": ("host.acting", "Stop jobs."),
        "retry": ("host.acting", "Submit an ended job again."),
        "hold": ("host.acting", "Keep pending jobs from starting."),
        "release": ("host.acting", "Let held jobs start."),
        "resize": ("host.acting", "Change how many members an elastic job has."),
        "edit": ("host.acting", "Change a pending job."),
        "preempt": ("host.acting", "Rehearse a preemption."),
        "events": ("host.events", "What happens to jobs, as it happens."),
    },
    "Machine": {
        "up": ("host.up", "Start the daemon."),
        "down": ("host.up", "Stop the daemon; jobs go on."),
        "status": ("host.up", "Whether the daemon runs, and how."),
        "nodes": ("host.nodes", "The machine's GPUs and who has them."),
        "top": ("host.top", "The same, refreshed."),
        "queues": ("host.queues", "Queues, their rights and what they use."),
        "share": ("host.queues", "How you stand among the others."),
        "gantt": ("host.gantt", "Past, present and forecast as a picture."),
        "report": ("host.report", "Where the GPU time went."),
        "config": ("host.config", "Settings, and where each comes from."),
        "doctor": ("host.doctor", "Check this machine; a fix for each finding."),
        "install": ("host.install", "One daemon for all users of this machine."),
        "token": ("host.token", "Tokens for the loopback port."),
        "completion": ("host.completion", "Completion for bash, zsh or fish."),
    },
    "Cluster": {
        "kube": ("kube", "The scheduler for Kubernetes."),
    },
    "Simulator": {
        "sim": ("sim", "Run a scenario or a log under policies and compare them."),
        "trace": ("trace", "Look at logs, convert them, make new ones."),
        "what-if": ("what_if", "What a change would do to a cluster as it stands."),
        "demo": ("demo", "Gang scheduling in one screen."),
    },
}
_VERBS: Final = {verb: module for verbs in _SECTIONS.values() for verb, (module, _) in verbs.items()}


_SIGPIPE: Final = 128 + 13
#: How a stream fails that is written to; what has the name of a file is about that file.
_NOT_WRITTEN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EROFS})


class _LazyGroup(click.Group):
    """A group that knows the names of its commands and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of one verb, imported now."""
        module = _VERBS.get(cmd_name)
        if module is None:
            return None
        found = getattr(import_module(f"phalanx.cli.{module}"), cmd_name.replace("-", "_"))
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was meant; a misspelt one brings a question."""
        if args[0] not in _VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _VERBS, n=1)
            hint = f"did you mean {near[0]}?" if near else "phalanx --help lists the verbs"
            ctx.fail(f"there is no verb {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs that begin like this, without importing them all."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        words = {verb: told for verbs in _SECTIONS.values() for verb, (_, told) in verbs.items()}
        return [CompletionItem(verb, help=words[verb]) for verb in sorted(words) if verb.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Verbs by what they are about."""
        for section, verbs in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(verb, words) for verb, (_, words) in verbs.items()], col_max=12)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the words: how an error is told must be known also where they cannot be read.

        `phalanx --json ps` is `phalanx ps --json`: nothing but a verb prints anything.
        """
        if args[:1] and args[0].startswith("-"):
            args = self._behind_verb(ctx, args)
        ctx.meta["phalanx.words"] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as bad:
            raise _told_as_wanted(bad, ctx.meta["phalanx.words"]) from None  # of `args` some have been taken

    def _behind_verb(self, ctx: click.Context, args: list[str]) -> list[str]:
        from phalanx.cli.failure import json_words

        count = json_words(args)
        said, rest = args[:count], args[count:]
        if not count or not rest or rest[0].startswith("-"):
            return args
        command = self.get_command(ctx, rest[0])
        inner = isinstance(command, click.Group) and rest[1:2] and rest[1] in command.commands
        return [*rest[: 2 if inner else 1], *said, *rest[2 if inner else 1 :]]

    def invoke(self, ctx: click.Context) -> None:
        """Run a verb; a full disk under the output is one line too, like any other failure."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Nobody reads on, as behind `| head`: as quiet as a program that SIGPIPE ends, and with its exit code.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(_SIGPIPE) from None
        except OSError as bad:
            from phalanx.cli.failure import CannotWrite, SystemFailure

            if bad.filename is not None or bad.errno not in _NOT_WRITTEN:
                what = f"{bad.filename}: " if bad.filename else ""
                raise SystemFailure(f"{what}{bad.strerror or bad}", "phalanx doctor") from None
            why = f"cannot write the output: {bad.strerror or bad}; make room or write elsewhere"
            raise CannotWrite(why) from None
        except click.UsageError as bad:
            from phalanx.cli.failure import WORDS

            raise _told_as_wanted(bad, ctx.meta[WORDS]) from None


def _told_as_wanted(bad: click.UsageError, words: list[str]) -> click.ClickException:
    """What click says of words that it cannot read; as JSON if they ask for that."""
    from phalanx.cli.failure import CommandFailure, words_want_json

    if not words_want_json(words) or isinstance(bad, click.exceptions.NoArgsIsHelpError):
        return bad
    path = bad.ctx.command_path if bad.ctx is not None else "phalanx"
    return CommandFailure(bad.format_message(), f"{path} --help", json_wanted=True)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="phalanx")
@click.pass_context
def main(context: click.Context) -> None:
    """Gang scheduling for AI compute: jobs start whole or not at all.

    \b
    phalanx submit -g 4 -- python train.py     # starts a daemon of yours if there is none
    phalanx ps; phalanx why 1; phalanx logs -f 1
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
