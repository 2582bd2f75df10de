"""How a command fails: one line on standard error, an exit code, no traceback."""

from __future__ import annotations

from typing import IO, Any

import click


class CommandFailure(click.ClickException):
    """A command that cannot go on; the message says what, why, and what to do."""

    exit_code = 2  # input that cannot be used, as for a wrong option

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the one line."""
        click.echo(f"phalanx: error: {self.message}", file=file, err=file is None)


class CannotWrite(CommandFailure):
    """The output has no place to go."""

    exit_code = 1
