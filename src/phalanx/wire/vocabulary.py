"""What may be said, in each direction: a closed table of types and fields, each with its bound.

A message is a flat JSON object with a `type`. A field that is missing, of another kind or out of
bounds makes the whole message `Malformed`. A field nobody knows is dropped and a type nobody knows
is `UnknownType`, which an end skips and counts: that is how a newer peer adds things without a new
version. `null` in an optional field is the same as leaving it out. docs/protocol.md has this table
in words; tests/wire compares the two.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from phalanx.wire.refusals import Malformed

FROM_JOB: Final = "from job"
FROM_SCHEDULER: Final = "from scheduler"

#: The largest whole number that every JSON reader keeps exact.
COUNT_MAX: Final = 2**53 - 1
GENERATION_MAX: Final = 2**32 - 1
RANK_MAX: Final = 65_535
MEMBERS_MAX: Final = 4_096
SECONDS_MAX: Final = 1e9
TEXT_MAX: Final = 1_000
FLOAT_MAX: Final = sys.float_info.max
VERBS_MAX: Final = 32

ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,64}")
WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class UnknownType(Malformed):
    """A type that this version does not know; skipped, because a newer peer may say it."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: what it must be, in words and as a test."""

    says: str
    fits: Callable[[Any], bool]
    optional: bool = False


def _is_count(value: Any, most: int, least: int = 0) -> bool:
    # `type`, not isinstance: True is an int to Python and nonsense as a rank.
    return type(value) is int and least <= value <= most


def _is_number(value: Any, most: float, least: float = 0.0) -> bool:
    # JSON has whole numbers of any length, and a float ends at 1.8e308.
    if type(value) not in (int, float) or abs(value) > FLOAT_MAX:
        return False
    return math.isfinite(value) and least <= value <= most


def _is_text(value: Any) -> bool:
    # Lone surrogates can be written in JSON and cannot be written to a log.
    return isinstance(value, str) and len(value) <= TEXT_MAX and not any("\ud800" <= c <= "\udfff" for c in value)


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_ranks(value: Any) -> bool:
    if not isinstance(value, list) or len(value) > MEMBERS_MAX or not all(_is_count(r, RANK_MAX) for r in value):
        return False
    return all(a < b for a, b in itertools.pairwise(value))


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= VERBS_MAX and all(map(_matches(WORD), value))


COUNT = Field(f"whole number, 0 to {COUNT_MAX}", lambda v: _is_count(v, COUNT_MAX))
GENERATION = Field(f"whole number, 1 to {GENERATION_MAX}", lambda v: _is_count(v, GENERATION_MAX, 1))
RANK = Field(f"whole number, 0 to {RANK_MAX}", lambda v: _is_count(v, RANK_MAX))
RANKS = Field(f"at most {MEMBERS_MAX} ranks, increasing", _is_ranks)
MEMBERS = Field(f"whole number, 1 to {MEMBERS_MAX}", lambda v: _is_count(v, MEMBERS_MAX, 1))
SECONDS = Field("seconds, 0 to 1e9", lambda v: _is_number(v, SECONDS_MAX))
NUMBER = Field("finite number", lambda v: _is_number(v, math.inf, -math.inf))
RATE = Field("finite number, 0 or more", lambda v: _is_number(v, math.inf))
TEXT = Field(f"text of at most {TEXT_MAX} characters", _is_text)
IDENTIFIER = Field("1 to 64 of A-Z a-z 0-9 . _ : / -", _matches(ID))
PHASE = Field("1 to 32 of a-z 0-9 _ -, a letter first", _matches(WORD))
VERBS = Field(f"at most {VERBS_MAX} words as for a phase", _is_words)
VERDICT = Field("done, accept or refuse", lambda v: v in ("done", "accept", "refuse"))


def _optional(field: Field) -> Field:
    return Field(field.says, field.fits, optional=True)


Table = Mapping[str, Mapping[str, Field]]

_JOB: Final[Table] = {
    "hello": {"rank": RANK, "pid": COUNT, "speaks": VERBS, "version": COUNT},
    "status": {
        "id": _optional(IDENTIFIER),
        "generation": _optional(GENERATION),
        "step": _optional(COUNT),
        "total": _optional(COUNT),
        "rate": _optional(RATE),
        "saved_step": _optional(COUNT),
        "saved_age_s": _optional(SECONDS),
        "phase": _optional(PHASE),
        "loss": _optional(NUMBER),
        # What a victim would cost; the library for PyTorch measures these.
        "save_s": _optional(SECONDS),
        "resize_s": _optional(SECONDS),
        "copies": _optional(COUNT),
        "replica_age_steps": _optional(COUNT),
    },
    "answer": {
        "id": IDENTIFIER,
        "verdict": VERDICT,
        "why": _optional(TEXT),
        "generation": _optional(GENERATION),
        "step": _optional(COUNT),
        "eta_s": _optional(SECONDS),
    },
}

_SCHEDULER: Final[Table] = {
    "welcome": {"generation": GENERATION, "members": MEMBERS, "ranks": _optional(RANKS)},
    "offer": {"id": IDENTIFIER, "members": MEMBERS, "deadline_s": SECONDS},
    "shrink": {
        "id": IDENTIFIER,
        "generation": GENERATION,
        "members": MEMBERS,
        "leaving": RANKS,
        "deadline_s": SECONDS,
        "ranks": _optional(RANKS),
        "why": _optional(TEXT),
    },
    "prepare": {
        "id": IDENTIFIER,
        "generation": GENERATION,
        "members": MEMBERS,
        "deadline_s": SECONDS,
        "joining": _optional(RANKS),
        "ranks": _optional(RANKS),
    },
    "checkpoint": {"id": IDENTIFIER, "deadline_s": SECONDS},
    "yield": {"id": IDENTIFIER, "deadline_s": SECONDS, "why": _optional(TEXT)},
    "status": {"id": IDENTIFIER},
}

TABLES: Final[Mapping[str, Table]] = {FROM_JOB: _JOB, FROM_SCHEDULER: _SCHEDULER}


def check(direction: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with the known fields only; raises Malformed, or UnknownType, with the field and its bound."""
    kind = message.get("type")
    if not isinstance(kind, str) or not WORD.fullmatch(kind):
        raise Malformed("a message needs a 'type': a word of at most 32 letters")
    fields = TABLES[direction].get(kind)
    if fields is None:
        raise UnknownType(f"'{kind}' is no message {direction} in version 1")
    clean: dict[str, Any] = {"type": kind}
    for name, field in fields.items():
        value = message.get(name)
        if value is None:
            if not field.optional:
                raise Malformed(f"{kind}: '{name}' is missing: {field.says}")
        elif not field.fits(value):
            raise Malformed(f"{kind}: '{name}' must be: {field.says}")
        else:
            clean[name] = value
    return clean
