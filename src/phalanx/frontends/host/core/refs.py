"""What people write for jobs, read: `12`, `36-39,41`, `train`, `sweep[3]`, `sweep[0-3,7]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from phalanx.control.spec.errors import show
from phalanx.frontends.host.ports import Refused

#: Ids of one range that are looked at; whoever means more names a queue or a user.
RANGE_MOST: Final = 100_000
_IDS = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*")
_HOW = re.compile("(?:any|ok):")
_PARTS = re.compile(r"(.+)\[([^\[\]]*)\]", re.DOTALL)
_BLOCK = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class IdRange:
    """`36-39`, `36-37,40`: jobs by their ids."""

    ids: tuple[range, ...]


@dataclass(frozen=True, slots=True)
class ArrayElements:
    """`sweep[0-3,7]`: elements of an array by their indices; without any, all of them."""

    word: str
    indices: frozenset[int]


def read_ref(ref: str) -> IdRange | ArrayElements | None:
    """A range of ids or elements of an array; None: an id, a name or the beginning of one."""
    if not ref.isdecimal() and _IDS.fullmatch(ref):
        return IdRange(tuple(_read_ids(part, ref) for part in ref.split(",")))
    match = _PARTS.fullmatch(ref)
    return None if match is None else ArrayElements(match[1], _read_indices(match[2], ref))


def is_reference(name: str) -> bool:
    """Whether a name would be read as something else: an id, a range, elements, or `any:` of a dependency."""
    return name.isdecimal() or name == "-" or bool(_IDS.fullmatch(name) or _PARTS.fullmatch(name) or _HOW.match(name))


def _read_ids(part: str, ref: str) -> range:
    first, dash, text = part.partition("-")
    last = int(text) if dash else int(first)
    if last < int(first) or last - int(first) >= RANGE_MOST:
        what = "ends before it begins" if last < int(first) else f"is longer than {RANGE_MOST:,} jobs"
        raise Refused("usage", f"{ref} {what}", "write 36-39, the smaller id first")
    return range(int(first), last + 1)


def _read_indices(text: str, ref: str) -> frozenset[int]:
    """Indices as `--array` has them."""
    found: set[int] = set()
    for part in text.split(",") if text.strip() not in ("", "*") else ():
        match = _BLOCK.fullmatch(part.strip())
        first, step = (int(match[1]), int(match[3] or 1)) if match else (0, 0)
        last = int(match[2] or first) if match else 0
        if last < first or step == 0 or last - first >= RANGE_MOST:
            raise Refused("usage", f"{show(ref)} names no elements of an array", "write sweep[3], or sweep[0-3,7]")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def tell_ids(ids: list[int]) -> str:
    """Ids as they can be written back: 36-39, or the first few."""
    if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1:
        return f"{ids[0]}-{ids[-1]}"
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return ", ".join(map(str, ids[:5])) + more
