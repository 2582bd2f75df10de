"""The command line. Each verb is a module that is imported when it is asked for.

Heavy imports (NumPy, rich) stay inside the functions that need them: `phalanx --help` and the
quick verbs must answer at once.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from phalanx import __version__

#: Verb → module of this package; the command in it has the verb's name.
_VERBS = {"demo": "demo", "sim": "sim", "trace": "trace", "what-if": "what_if"}


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

    def invoke(self, ctx: click.Context) -> None:
        """Run a verb; a full disk under the output is one line too, like any other failure."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise  # click ends quietly when nobody reads on
        except OSError as bad:
            from phalanx.cli.failure import CannotWrite

            why = f"cannot write the output: {bad.strerror or bad}; make room or write elsewhere"
            raise CannotWrite(why) from None


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="phalanx")
def main() -> None:
    """Gang scheduling for AI compute: jobs start whole or not at all."""
