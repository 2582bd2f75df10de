"""Connections to the database file, and the settings on which durability rests.

The file is never opened in any other way by the daemon: closing a plain file descriptor would drop the locks that
SQLite holds on it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol

#: How long to wait for another process, say a person with a shell on the database.
BUSY_MS: Final = 10_000
#: A log that one huge submit has blown up is cut back to this when it is begun anew.
LOG_BYTES_KEPT: Final = 16 << 20


class Cursor(Protocol):
    """What the SQL layer reads answers from."""

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        ...


class SqlConnection(Protocol):
    """What the SQL layer needs: `sqlite3` in the daemon, `apsw` with a disk that loses power in tests."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; SQLite ends it by itself after some errors."""
        ...

    def execute(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[tuple[Any, ...]], /) -> Any:
        """Run one statement for each row."""
        ...


def connect(path: Path) -> sqlite3.Connection:
    """A connection that begins and ends transactions only when told, and may change threads."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot change anything."""
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect_checker(path: Path) -> sqlite3.Connection:
    """A connection that leaves everything as it is, also when it is closed: a damaged database is evidence."""
    if not path.with_name(path.name + "-wal").exists():
        return connect(path)  # nothing to be lost, and a transaction that was cut short can be rolled back
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def prepare_writer(connection: SqlConnection) -> None:
    """Settings of the one connection that writes."""
    connection.execute("PRAGMA journal_mode = WAL")
    # Not NORMAL: it loses acknowledged commits at a power loss (tests/host/store/test_power_loss.py shows it).
    connection.execute("PRAGMA synchronous = FULL")
    # The writer does it after it has answered, and hears of errors there, which the automatic one swallows.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}")
    # Statement journals in memory: a temporary file on a full disk would fail what the ballast still has room for.
    connection.execute("PRAGMA temp_store = MEMORY")


def write_checkpoint(connection: SqlConnection, mode: str = "PASSIVE") -> None:
    """Copy the log into the database file; what readers still look at is left for the next time."""
    connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
