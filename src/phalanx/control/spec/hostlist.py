"""Host lists as in HPC: a[0-3,7] is a0 a1 a2 a3 a7; leading zeros are kept."""

from __future__ import annotations

import re
from itertools import product
from typing import Final

from phalanx.control.spec.errors import BadText, show

#: One expression may not name more hosts than this.
HOSTS_MAX: Final = 100_000

_PIECE = re.compile(r"([^\[\],\s]+)|\[([^\[\]]*)\]")
# Eighteen digits fit 64 bits, and longer ones only make the subtraction below slow.
_RANGE = re.compile(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?")


def expand_hosts(text: str) -> list[str]:
    """All names of a host list in the order written: a[0-1],b7 gives a0 a1 b7."""
    names: list[str] = []
    for expression in _split_outside_brackets(text):
        names += _expand_one(expression, text)
        _check_count(len(names), text)
    return names


def _split_outside_brackets(text: str) -> list[str]:
    """Commas separate expressions, except between brackets where they separate ranges."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        # Never checked here: a bracket too many leaves a piece that `_PIECE` does not
        # match, and that is refused with the example.
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _expand_one(expression: str, text: str) -> list[str]:
    choices: list[list[str]] = []
    at, count = 0, 1
    while match := _PIECE.match(expression, at):
        choices.append([match[1]] if match[1] is not None else _expand_ranges(match[2], text))
        # Counted while the pieces are read, so that the product is never made larger than it may be.
        count *= len(choices[-1])
        # Before the product is made: [0-99999][0-99999] is short to write.
        _check_count(count, text)
        at = match.end()
    if at != len(expression) or not choices:
        raise BadText(f"is no host list (got {show(text)}); write names such as a0, a[0-3,7] or r[0-1]n[00-15]")
    return ["".join(parts) for parts in product(*choices)]


def _expand_ranges(inside: str, text: str) -> list[str]:
    names: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise BadText(f"has a bad range [{inside}] (in {show(text)}); write [0-3,7]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadText(f"has a reversed range {match[1]}-{match[2]} (in {show(text)}); write {match[2]}-{match[1]}")
        _check_count(len(names) + last - first + 1, text)
        # By the first number: [08-11] is 08 09 10 11.
        width = len(match[1])
        names += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return names


def _check_count(count: int, text: str) -> None:
    if count > HOSTS_MAX:
        raise BadText(f"names more than {HOSTS_MAX:,} hosts (got {show(text)})")
