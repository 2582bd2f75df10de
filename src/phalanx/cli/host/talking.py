"""How a verb talks: with the daemon through the client, with people through standard error."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from phalanx.cli.failure import WORDS, CommandFailure, wants_json
from phalanx.cli.host.text import clean
from phalanx.client.daemon import Daemon, open_daemon
from phalanx.client.daemon_errors import ClientError, RefusedError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class HostFailure(CommandFailure):
    """A verb that did not work: what and why, and below it what to do next."""

    def __init__(self, bad: ClientError) -> None:
        """The exit code goes by the kind of error."""
        super().__init__(bad.message, bad.hint)
        self.exit_code = bad.exit_code  # type: ignore[misc]  # click reads it from the instance
        self.code, self.details = bad.code, bad.details

    def tell(self) -> dict[str, Any]:
        """The error as the daemon said it, or would."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}

    def show_text(self, file: IO[Any] | None = None) -> None:
        """Print it; a message of several lines carries what somebody else said."""
        lines = [f"phalanx: error: {self.message}", *([f"  next: {self.hint}"] if self.hint else [])]
        for line in "\n".join(lines).split("\n"):
            click.echo(clean(line), file=file, err=file is None)


Answer = TypeVar("Answer")


@contextmanager
def failing() -> Iterator[None]:
    """Errors of the client end the command with their exit code."""
    try:
        yield
    except ClientError as bad:
        raise HostFailure(bad) from None


@contextmanager
def retyping(command: Sequence[str]) -> Iterator[None]:
    """Advice to hand in another command keeps the options that were typed before this one."""
    try:
        yield
    except UsageError as bad:
        words = click.get_current_context().meta.get(WORDS, [])
        typed = list(words[: len(words) - len(command)])
        typed = typed[:-1] if typed[-1:] == ["--"] else typed
        if typed and bad.hint.startswith(("phalanx submit -- ", "phalanx submit --env ")):
            bad.hint = f"phalanx {shlex.join(typed)}{bad.hint.removeprefix('phalanx submit')}"
        raise


@contextmanager
def talking(*, start: bool = False, any_version: bool = False) -> Iterator[Daemon]:
    """The daemon, for the length of a verb."""
    with failing():
        daemon = open_daemon(start=start, any_version=any_version)
        try:
            yield daemon
        finally:
            daemon.close()


def for_each(ref: str, do: Callable[[str], Answer]) -> list[Answer]:
    """Do something to the job that a word means, or to every one if it means several: an array, a range of ids."""
    try:
        return [do(ref)]
    except RefusedError as bad:
        several = bad.details.get("several")
        if not isinstance(several, list):
            raise
    return [do(str(number)) for number in several]


def note(text: str) -> None:
    """A word beside the output, where it does not disturb programs that read it; as JSON for those that read that.

    Where one object is printed it belongs into its `warnings`: this is for lists, for streams and for files.
    """
    if wants_json():
        click.echo(json.dumps({"warning": text}), err=True)
    else:
        click.echo(f"phalanx: note: {clean(text)}", err=True)


def complete_ref(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and names of jobs that begin like this; silence where there is nobody to ask."""
    from click.shell_completion import CompletionItem

    try:
        with closing(open_daemon(any_version=True)) as daemon:
            rows = daemon.get("/v1/jobs", {"limit": 1000}, timeout_s=3.0)["jobs"]
    except (ClientError, KeyError, TypeError):
        return []
    found = {str(row["id"]): clean(f"{row['name']} {row['state']}") for row in rows}
    if incomplete:
        # A name means its newest job, and stands once; elements of an array come once nothing else could be meant.
        found |= {clean(row["name"]): f"{row['id']} {row['state']}" for row in rows}
        parts = {clean(row["array"]): f"{row['id']} {row['state']}" for row in rows if row.get("array")}
        words = {word for word in found if word.startswith(incomplete)}
        found |= parts if "[" in incomplete or words <= {incomplete} else {}
    return [CompletionItem(word, help=told) for word, told in found.items() if word.startswith(incomplete)]


#: A job on the command line: an id, a name or its beginning, `sweep[3]` or `sweep[0-3]` of an array, ids `36-39`.
ref_argument = click.argument("ref", metavar="JOB", shell_complete=complete_ref)
refs_argument = click.argument("refs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_ref)
