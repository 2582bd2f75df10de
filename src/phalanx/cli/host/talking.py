"""How a verb talks: with the daemon through the client, with people through standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from phalanx.cli.failure import CommandFailure
from phalanx.cli.host.text import clean
from phalanx.client.daemon import Daemon, open_daemon
from phalanx.client.daemon_errors import ClientError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class HostFailure(CommandFailure):
    """A verb that did not work: what and why, and below it what to do next."""

    def __init__(self, bad: ClientError) -> None:
        """The exit code goes by the kind of error."""
        super().__init__(bad.message)
        self.exit_code = bad.exit_code  # type: ignore[misc]  # click reads it from the instance
        self.hint = bad.hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it; a message of several lines carries what somebody else said."""
        lines = [f"phalanx: error: {self.message}", *([f"  next: {self.hint}"] if self.hint else [])]
        for line in "\n".join(lines).split("\n"):
            click.echo(clean(line), file=file, err=file is None)


@contextmanager
def failing() -> Iterator[None]:
    """Errors of the client end the command with their exit code."""
    try:
        yield
    except ClientError as bad:
        raise HostFailure(bad) from None


@contextmanager
def talking(*, start: bool = False, any_version: bool = False) -> Iterator[Daemon]:
    """The daemon, for the length of a verb."""
    with failing():
        daemon = open_daemon(start=start, any_version=any_version)
        try:
            yield daemon
        finally:
            daemon.close()


def note(text: str) -> None:
    """A word beside the output, where it does not disturb programs that read it."""
    click.echo(f"phalanx: note: {clean(text)}", err=True)


def complete_ref(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and names of jobs that begin like this; silence where there is nobody to ask."""
    from click.shell_completion import CompletionItem

    try:
        with closing(open_daemon(any_version=True)) as daemon:
            rows = daemon.get("/v1/jobs", {"limit": 1000}, timeout_s=3.0)["jobs"]
    except (ClientError, KeyError, TypeError):
        return []
    found = [CompletionItem(str(row["id"]), help=clean(f"{row['name']} {row['state']}")) for row in rows]
    found += [CompletionItem(clean(row["name"]), help=f"{row['id']} {row['state']}") for row in rows if incomplete]
    return [item for item in found if item.value.startswith(incomplete)]


#: A job on the command line: an id, a name or the beginning of a name.
ref_argument = click.argument("ref", metavar="JOB", shell_complete=complete_ref)
refs_argument = click.argument("refs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_ref)
