"""Whether the second record goes on to what the database tells.

A database that is whole hides a second record that is not, until the day on which only that is left. So whoever opens
a store asks, and makes a backup at once if the answer is no. What is compared costs no more than reading the record:
the numbers that were given to jobs and events, of which nearly every commit gives some, and the rows of attempts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from phalanx.frontends.host.store.backups import list_backups, newest_number
from phalanx.frontends.host.store.database import SqlConnection, connect_reader
from phalanx.frontends.host.store.redo import folder_of, read_told
from phalanx.frontends.host.store.stored_rows import RunRecord

_RUNS = f"SELECT {', '.join(RunRecord.__struct_fields__)} FROM run"  # noqa: S608 - names of the records


class _Told(msgspec.Struct):
    """What is compared."""

    given: dict[str, int]  # the highest number of each table
    runs: dict[str, tuple[Any, ...]]

    def fold(self, told: Iterable[list[Any]]) -> None:
        for each in told:
            match each:
                case ["jobs", _, _, ids, _]:
                    self.given["job"] = max(self.given.get("job", 0), *ids, 0)
                case ["events", seqs, _]:
                    self.given["event"] = max(self.given.get("event", 0), *seqs, 0)
                case ["run", row]:
                    self.runs[row[0]] = tuple(row)
                case ["drop", run]:
                    self.runs.pop(run, None)
                case _:
                    pass


def is_told_to_the_end(connection: SqlConnection, database: Path, folder: Path) -> bool:
    """Whether the newest backup and what was written down since then tell what the database tells."""
    number, backups = newest_number(folder), list_backups(folder)
    told = _Told({}, {})
    try:
        if backups:
            with closing(connect_reader(backups[0])) as backup:
                told = _look(backup)
        records = read_told(folder_of(database), number)
        if records is None:
            return False
        told.fold(records)
    except (sqlite3.Error, OSError, msgspec.MsgspecError, TypeError, ValueError, IndexError):
        return False  # whatever is wrong with them, they do not tell
    return told == _look(connection)


def _look(connection: SqlConnection) -> _Told:
    given = connection.execute("SELECT name, seq FROM sqlite_sequence WHERE seq > 0 AND name IN ('job', 'event')")
    return _Told(dict(given.fetchall()), {row[0]: tuple(row) for row in connection.execute(_RUNS).fetchall()})
