"""How a command fails: one line on standard error, an exit code, no traceback; for programs the line is JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

import click

#: What the context knows: all words of the command line, and whether --json is among them.
WORDS: Final = "phalanx.words"
AS_JSON: Final = "phalanx.as_json"
_FORMATS: Final = frozenset({"json", "jsonl"})


class CommandFailure(click.ClickException):
    """A command that cannot go on; the message says what, why, and what to do."""

    exit_code = 2  # input that cannot be used, as for a wrong option
    code = "usage"

    def __init__(self, message: str, hint: str = "", *, json_wanted: bool | None = None) -> None:
        """Whether a program reads is known here: when it is shown, the context is gone. `hint`: what to do next."""
        super().__init__(message)
        self.hint = hint
        self.json_wanted = wants_json() if json_wanted is None else json_wanted

    def tell(self) -> Mapping[str, Any]:
        """The error as the daemon would say it."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": {}}

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the one line."""
        if self.json_wanted:
            click.echo(json.dumps({"error": self.tell()}), file=file, err=file is None)
        else:
            self.show_text(file)

    def show_text(self, file: IO[Any] | None = None) -> None:
        """The line for people, and what to do next."""
        click.echo(f"phalanx: error: {self.message}", file=file, err=file is None)
        if self.hint:
            click.echo(f"  next: {self.hint}", file=file, err=file is None)


class SystemFailure(CommandFailure):
    """The system refused something that nobody foresaw."""

    exit_code = 1
    code = "failure"


class CannotWrite(CommandFailure):
    """The output has no place to go."""

    exit_code = 1
    code = "failure"


def wants_json() -> bool:
    """Whether the command that runs was asked for JSON."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    return context.params.get("output") in _FORMATS or bool(context.params.get("as_json") or context.meta.get(AS_JSON))


def json_words(words: Sequence[str]) -> int:
    """How many words at the beginning only say that JSON is wanted: `--json`, `-o jsonl`."""
    count = 0
    while count < len(words):
        if words[count] in ("--json", "-ojson", "-ojsonl", "--output=json", "--output=jsonl"):
            count += 1
        elif words[count] in ("-o", "--output") and words[count + 1 : count + 2] and words[count + 1] in _FORMATS:
            count += 2
        else:
            break
    return count


def words_want_json(words: Sequence[str]) -> bool:
    """The same of words that could not be read as options; what stands behind -- is somebody else's."""
    ours = list(words[: words.index("--")] if "--" in words else words)
    pairs = zip(ours, [*ours[1:], ""], strict=False)
    return any(
        word == "--json"
        or (word in ("-o", "--output") and value in _FORMATS)
        or word in ("-ojson", "-ojsonl", "--output=json", "--output=jsonl")
        for word, value in pairs
    )
