"""Tables of comma-separated values: cells with a line and a column, or a refusal that names both."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from phalanx.control.spec.errors import BadInput, BadText, list_words, show
from phalanx.control.spec.quantity import SECOND_US, duration_us
from phalanx.control.spec.sizes import MEMBERS_MAX

_WHOLE: Final = re.compile(r"([0-9]{1,18})(?:\.0*)?")
_DECIMAL: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{0,6}))?")  # seconds below 31 years, to the microsecond
_PLACES: Final = 6
_NAME_CHARS_MAX: Final = 253
_TRUTHS: Final = {"": False, "false": False, "0": False, "no": False, "true": True, "1": True, "yes": True}


class CsvTable:
    """The rows of a file below its header. Blank lines do not count; every row is as long as the header."""

    def __init__(self, text: str, file: str) -> None:
        """Reads the header; the rows are read as they are asked for."""
        self.file = file
        self._reader = csv.reader(io.StringIO(text, newline=""))
        self.columns: tuple[str, ...] = ()
        for row in self._raw_rows():
            self.columns = tuple(cell.strip() for cell in row)
            break
        twice = [name for name in self.columns if self.columns.count(name) > 1]
        if twice:
            raise self.fail(f"names the column {show(twice[0])} twice")

    def need(self, names: Collection[str]) -> None:
        """Refuse a table that lacks one of these columns."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            have = list_words([name[:_NAME_CHARS_MAX] for name in self.columns])
            raise self.fail(f"has no column {', '.join(missing)}; it has {have}")

    def rows(self) -> Iterator[list[str]]:
        """Every row, all of the same length."""
        width = len(self.columns)
        for row in self._raw_rows():
            if len(row) != width:
                raise self.fail(f"has {len(row)} fields, and the header has {width}")
            yield row

    def at(self, name: str) -> int:
        """The place of a column in a row."""
        return self.columns.index(name)

    @property
    def line(self) -> int:
        """The line that was read last."""
        return self._reader.line_num

    def fail(self, why: str) -> BadInput:
        """A refusal of the line that was read last."""
        return BadInput(why, file=self.file, line=self.line or None)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """What is found wrong with a text inside is said of the line that was read last."""
        try:
            yield
        except BadText as bad:
            raise self.fail(str(bad)) from None

    def _raw_rows(self) -> Iterator[list[str]]:
        try:
            for row in self._reader:
                if row:
                    yield row
        except csv.Error as bad:
            raise self.fail(f"is no row of a table: {bad}") from None


class Cells(dict[str, int]):
    """The cells of one column as numbers, each text parsed once: a log has few different ones."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        """`parse` says what is wrong with a text by `BadText`; the name of the column is put before it."""
        super().__init__()
        self.name = name
        self._parse = parse

    def __missing__(self, text: str) -> int:
        """Parse a text that was not seen before."""
        value = self[text] = parse_named(self.name, text, self._parse)
        return value


def parse_time_us(text: str) -> int:
    """Seconds, or a time with a unit, as microseconds of at least 0."""
    # Plain decimals by hand: this is most of the time that a large log takes, and exact either way.
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        part = match[2]
        return int(match[1]) * SECOND_US + (int(part.ljust(_PLACES, "0")) if part else 0)
    bare = text.strip()
    if not bare:
        raise BadText("is empty; write seconds")
    return duration_us(bare)


def parse_minutes_us(text: str) -> int:
    """A whole number of minutes as microseconds."""
    return duration_us(60 * parse_whole(text))


def parse_whole(text: str, most: int = MEMBERS_MAX * 1000) -> int:
    """A whole number of at least 0; 8.0 is one too, since that is how some programs write it."""
    match = _WHOLE.fullmatch(text.strip())
    if match is None:
        raise BadText(f"must be a whole number of at least 0 (got {show(text)})")
    if int(match[1]) > most:
        raise BadText(f"must be at most {most:,} (got {show(text)})")
    return int(match[1])


def parse_members(text: str) -> int:
    """How many members or devices a job asks for; 0 is left to the caller."""
    return parse_whole(text, MEMBERS_MAX)


def parse_truth(name: str, text: str) -> bool:
    """A truth as people and programs write it; an empty cell is false."""
    if text.lower() not in _TRUTHS:
        raise BadText(f"{name} must be true or false (got {show(text)})")
    return _TRUTHS[text.lower()]


def check_word(text: str, name: str) -> str:
    """A name that may be printed and written to any file; empty is allowed and means that none is given."""
    bare = text.strip()
    if len(bare) > _NAME_CHARS_MAX or not (bare.isprintable() or not bare):
        raise BadText(f"{name} must be printable text of at most {_NAME_CHARS_MAX} characters (got {show(bare)})")
    return bare


def note_name(name: str, seen: set[str]) -> str:
    """The name of a job, which no other job may have."""
    if not name:
        raise BadText("has no name")
    if name in seen:
        raise BadText(f"job {show(name)} stands twice")
    seen.add(name)
    return name


def parse_named(name: str, text: str, parse: Callable[[str], int]) -> int:
    """A single cell; what is wrong with it is said of its column."""
    try:
        return parse(text)
    except BadText as bad:
        raise BadText(f"{name} {bad}") from None


def read_rows(table: CsvTable, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """These columns of every row, in the order asked for."""
    table.need(names)
    places = [table.at(name) for name in names]
    for row in table.rows():
        yield tuple([row[place] for place in places])
