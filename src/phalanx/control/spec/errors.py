"""The one way in which input is refused: where, what, and what to do instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: Longer lists of valid words are cut; a message is one line that someone reads on a terminal.
_LISTED_MAX = 24
_SHOWN_CHARS_MAX = 60


class BadInput(Exception):  # noqa: N818 - the word people read; it is their input that is at fault
    """A file or an argument that cannot be used. Its text is one line."""

    def __init__(self, message: str, *, file: str = "", line: int | None = None, path: str = "") -> None:
        """`path` is dotted (`gangs[2].members`), for programs; `message` names the place for people."""
        self.message = message
        self.file = file
        self.line = line
        self.path = path
        parts = [file] if file else []
        if line is not None:
            parts.append(f"line {line}")
        super().__init__(_one_line(": ".join([*parts, message])))


class BadText(ValueError):  # noqa: N818 - the same of a single word
    """A quantity, range or name that cannot be read; the text says what is wrong with it."""


def suggest(word: str, valid: Iterable[str]) -> str:
    """The nearest valid word as a question, or the list of valid ones."""
    known = list(valid)
    # One and not three: a message is one line, and the nearest is nearly always it.
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    if not known:
        return "there are none"
    return f"valid: {list_words(known)}"


def list_words(words: Sequence[str]) -> str:
    """Words in a row, cut when there are too many to read."""
    if len(words) <= _LISTED_MAX:
        return ", ".join(words)
    return ", ".join(words[:_LISTED_MAX]) + f", … ({len(words)} in all)"


def show(value: object) -> str:
    """A value as a message quotes it: short, and never the inside of a container."""
    # Aliases can make a container that is endless to print, though it is small in memory.
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    text = _digits(value) if isinstance(value, int) else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


def _digits(value: int) -> str:
    # Python refuses to print an integer of more than 4,300 digits; nobody would read it either.
    return str(value) if value.bit_length() < 4 * _SHOWN_CHARS_MAX else f"a number of {value.bit_length()} bits"


def _one_line(text: str) -> str:
    # A name from a file may hold anything, also what a terminal would obey.
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
