"""A value of a file together with where it stands: every question asked of it can name the place.

`Spot` is a cursor. Each method checks one expectation and returns a plain value or a further
`Spot`, or raises `BadInput`. A missing key and a null are the same thing: not said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, TypeVar

from phalanx.control.spec.errors import BadInput, BadText, list_words, show, suggest
from phalanx.control.spec.hostlist import expand_hosts
from phalanx.control.spec.quantity import amount, duration_us
from phalanx.control.spec.reader import Raw, raw_of

_NAME_CHARS_MAX: Final = 253
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class Spot:
    """One value, and its place in words: the entry it belongs to and the path inside that entry."""

    raw: Raw
    file: str = ""
    owner: str = ""  # gangs[2] 'A'
    field: str = ""  # topology.segment.size
    path: str = ""  # gangs[2].topology.segment.size

    @property
    def value(self) -> object:
        """The value as parsed."""
        return self.raw.value

    def fail(self, why: str) -> BadInput:
        """The refusal of this value; `why` follows its name, as in 'must be at least 1 (got 0)'."""
        place = f"{self.owner}: {self.field}" if self.owner and self.field else self.owner or self.field
        # "gangs[2] 'A': members must be …", but "gangs[2] 'A': needs members": the
        # sentence has a subject in either case.
        separator = " " if self.field or not self.owner else ": "
        message = f"{place}{separator}{why}" if place else why
        return BadInput(message, file=self.file, line=self.raw.line, path=self.path)

    def refuse(self, why: str) -> NoReturn:
        """Raise the refusal."""
        raise self.fail(why)

    def parsed(self, parse: Callable[[object], _Parsed]) -> _Parsed:
        """What `parse` makes of the value; what it finds wrong is said of this place."""
        try:
            return parse(self.value)
        except BadText as bad:
            # Without its cause: a user reads one line, and the parser's own traceback would stand above it.
            raise self.fail(str(bad)) from None

    # ---- containers

    def fields(self, valid: Collection[str]) -> Fields:
        """A mapping with these keys and no others."""
        found = self._mapping()
        for key, inner in found.items():
            # Unknown keys are refused, never skipped: a misspelt `walltime` would plan a day.
            if key not in valid:
                place = f"{self.field}." if self.field else ""
                message = f"unknown key {place}{key[:40]}; {suggest(key, valid)}"
                where = f"{self.owner}: " if self.owner else ""
                raise BadInput(where + message, file=self.file, line=inner.line, path=_join(self.path, key))
        return Fields(self, found)

    def pairs(self) -> list[tuple[str, Spot]]:
        """A mapping with free keys, such as labels or resources."""
        found = [(key, self._child(key, inner)) for key, inner in self._mapping().items()]
        for key, spot in found:
            # Keys are names as much as values are, and are printed in reports and reasons.
            _check_word(key, spot)
        return found

    def items(self) -> list[Spot]:
        """A list."""
        if not isinstance(self.value, list):
            self.refuse(f"must be a list (got {show(self.value)})")
        return [self._item(index, inner) for index, inner in enumerate(self.value)]

    def items_or_one(self) -> list[Spot]:
        """A list, or a single value in place of a list of one."""
        return self.items() if isinstance(self.value, list) else [self]

    def titled(self) -> Spot:
        """The same spot as an entry of its own, called by its path and name in messages."""
        name = self.value.get("name") if isinstance(self.value, dict) else None
        # Before the entry has been checked, so that its first refusal can name it;
        # what is no text leaves the path alone.
        word = name.text if isinstance(name, Raw) and name.text is not None else getattr(name, "value", None)
        title = f"{self.path} '{word[:40]}'" if isinstance(word, str) else self.path
        return Spot(self.raw, self.file, title, "", self.path)

    # ---- scalars

    def text(self) -> str:
        """A word, as it was written; numbers and true_runs are words too where a word is asked for."""
        value = self.value
        # As it was written: YAML has made a number of `007` and a truth of `yes` by now.
        if self.raw.text is not None and not isinstance(value, (dict, list)):
            value = self.raw.text
        elif isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (int, float)):
            value = show(value)
        if not isinstance(value, str):
            self.refuse(f"must be a word (got {show(value)})")
        _check_word(value, self)
        return value

    def integer(self, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self.value
        # JSON of some tools writes 4.0 for 4, which is no slip.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # True is an int to Python: `members: yes` would be one member.
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(f"must be a whole number (got {show(value)})")
        if value < least:
            self.refuse(f"must be at least {least:,} (got {show(value)})")
        if value > most:
            self.refuse(f"must be at most {most:,} (got {show(value)})")
        return value

    def boolean(self) -> bool:
        """A truth."""
        if not isinstance(self.value, bool):
            self.refuse(f"must be true or false (got {show(self.value)})")
        return self.value

    def time_us(self) -> int:
        """A time of at least 0 in microseconds."""
        return self.parsed(duration_us)

    def length_us(self) -> int:
        """A time of more than 0 in microseconds."""
        found = self.time_us()
        if found == 0:
            self.refuse(f"must be more than 0 (got {show(self.value)})")
        return found

    def amounts(self, parse: Callable[[object, str], int] = amount) -> dict[str, int]:
        """A mapping of resource kinds to amounts in engine units."""
        # A partial and not a closure in the comprehension, which would see the last kind only.
        return {kind: spot.parsed(partial(_swapped, parse, kind)) for kind, spot in self.pairs()}

    def hosts(self) -> list[str]:
        """Node names from one host list or a list of them."""
        names: list[str] = []
        for spot in self.items_or_one():
            try:
                names += expand_hosts(spot.text())
            except BadText as bad:
                raise spot.fail(str(bad)) from None
        return names

    def one_of(self, valid: Collection[str], what: str) -> str:
        """A word out of a known set."""
        word = self.text()
        if word not in valid:
            self.refuse(f"names no {what} of this file: {show(word)}; {suggest(word, valid)}")
        return word

    # ---- places

    def _mapping(self) -> dict[str, Raw]:
        if not isinstance(self.value, dict):
            self.refuse(f"must be a mapping (got {show(self.value)})")
        return self.value

    def _child(self, key: str, raw: Raw) -> Spot:
        return Spot(raw, self.file, self.owner, _join(self.field, key), _join(self.path, key))

    def _item(self, index: int, raw: Raw) -> Spot:
        return Spot(raw, self.file, self.owner, f"{self.field}[{index}]", f"{self.path}[{index}]")


@dataclass(frozen=True, slots=True)
class Fields:
    """The mapping at a spot, its keys already checked."""

    spot: Spot
    inner: dict[str, Raw]

    def get(self, key: str) -> Spot | None:
        """The value of a key, or None if it is not said."""
        raw = self.inner.get(key)
        # `walltime:` with nothing behind it is what a template leaves empty: not said.
        return None if raw is None or raw.value is None else self.spot._child(key, raw)  # noqa: SLF001 - one noun

    def need(self, key: str, example: str) -> Spot:
        """The value of a key that must be there."""
        found = self.get(key)
        if found is None:
            what = f"{self.spot.field}.{key}" if self.spot.field else key
            where = f"{self.spot.owner}: " if self.spot.owner else ""
            message = f"{where}{what} is missing; write {example}"
            raise BadInput(message, file=self.spot.file, line=self.spot.raw.line, path=_join(self.spot.path, key))
        return found

    def present(self, keys: Collection[str]) -> list[str]:
        """Which of these keys are said, in the order given."""
        return [key for key in keys if self.get(key) is not None]

    def one_verb(self, keys: Collection[str]) -> str:
        """The only one of these keys that is said."""
        found = self.present(keys)
        if len(found) != 1:
            seen = f"got {' and '.join(found)}" if found else "got none"
            self.spot.refuse(f"needs exactly one of {list_words(list(keys))} ({seen})")
        return found[0]


def spot_of(value: object, file: str = "") -> Spot:
    """A cursor at the top of plain Python values, such as a decoded request."""
    return Spot(raw_of(value), file)


def _swapped(parse: Callable[[object, str], int], kind: str, value: object) -> int:
    return parse(value, kind)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _check_word(word: str, spot: Spot) -> None:
    if not word.strip():
        spot.refuse("must not be empty")
    if len(word) > _NAME_CHARS_MAX:
        spot.refuse(f"is longer than {_NAME_CHARS_MAX} characters (got {show(word)})")
    # Names go to terminals, logs and file names; a newline or an escape in one would speak for somebody else.
    if not word.isprintable():
        spot.refuse(f"must be printable text on one line (got {show(word)})")
