"""A command of many verbs, each of which is imported when it is asked for; and how all of them fail.

Heavy imports (NumPy, rich) stay inside the functions that need them: `--help` and the quick verbs must answer at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Section of the help → verb → the module that has the command of that name, and what it does in a few words.
Sections = Mapping[str, Mapping[str, tuple[str, str]]]

_SIGPIPE: Final = 128 + 13
#: How a stream fails that is written to; what has the name of a file is about that file.
_NOT_WRITTEN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EROFS})


class VerbGroup(click.Group):
    """A group that knows the names of its commands and imports one when it is used."""

    def __init__(self, *, sections: Sections, program: str = "phalanx", **more: Any) -> None:
        """What verbs do is known here too: `--help` would otherwise import every module to read it."""
        super().__init__(**more)
        self._sections, self._program = sections, program  # as people type it
        self.verbs = {verb: module for verbs in sections.values() for verb, (module, _) in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return sorted(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of one verb, imported now."""
        module = self.verbs.get(cmd_name)
        if module is None:
            return None
        found = getattr(import_module(f"phalanx.cli.{module}"), cmd_name.replace("-", "_"))
        return found if isinstance(found, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that was meant; a misspelt one brings a question."""
        if args[0] not in self.verbs and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.verbs, n=1)
            hint = f"did you mean {near[0]}?" if near else f"{self._program} --help lists the verbs"
            ctx.fail(f"there is no verb {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs that begin like this, without importing them all."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        words = {verb: told for verbs in self._sections.values() for verb, (_, told) in verbs.items()}
        return [CompletionItem(verb, help=words[verb]) for verb in sorted(words) if verb.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Verbs by what they are about."""
        for section, verbs in self._sections.items():
            with formatter.section(section):
                formatter.write_dl([(verb, words) for verb, (_, words) in verbs.items()], col_max=12)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the words: how an error is told must be known also where they cannot be read.

        `phalanx --json ps` is `phalanx ps --json`: nothing but a verb prints anything.
        """
        if args[:1] and args[0].startswith("-"):
            args = self._behind_verb(ctx, args)
        ctx.meta.setdefault("phalanx.words", list(args))  # of a group inside another the outer one has all of them
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
