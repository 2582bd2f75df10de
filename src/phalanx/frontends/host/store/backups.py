"""Copies of the database, and the way back to one.

A copy is made by SQLite while the daemon goes on writing, is checked before it counts, and lies in one file. The
number in its name orders copies, because a wall clock may be set back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from phalanx.frontends.host.store import schema
from phalanx.frontends.host.store.ballast import BALLAST_BYTES
from phalanx.frontends.host.store.database import connect, connect_checker, connect_reader
from phalanx.frontends.host.store.faults import Fault, StoreBroken, StoreFull, find_fault
from phalanx.frontends.host.store.redo import (
    Replayed,
    folder_of,
    is_anything_told,
    is_broken_off,
    is_told_from_first,
    list_redo,
    number_of,
    replay,
)

#: Ids and sequence numbers that were given after the backup are not known; none may be given twice, because run
#: directories and followers of events go by them.
NUMBERS_SKIPPED: Final = 100_000


def list_backups(folder: Path) -> list[Path]:
    """Finished copies, the newest first."""
    return sorted(folder.glob("[0-9]*-*.db"), key=_read_number, reverse=True)


def _read_number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def newest_number(folder: Path) -> int:
    """Of the newest copy; 0 if there is none."""
    return max(map(_read_number, list_backups(folder)), default=0)


def next_number(database: Path, folder: Path) -> int:
    """Of the next copy. Where copies were removed, the second record still has their numbers.

    A copy that was not made has left a file of the second record, which the next one goes with, unless it ends early.
    """
    files = list_redo(folder_of(database))
    return max([newest_number(folder) + 1, *(number_of(path) + is_broken_off(path) for path in files[-1:])])


def write_backup(database: Path, folder: Path, number: int, *, keep: int, wall_s: float) -> Path:
    """Copy the database and let the oldest copies go; raises StoreFull rather than take the last room."""
    folder.mkdir(mode=0o700, exist_ok=True)
    needed = database.stat().st_size + 4 * BALLAST_BYTES
    if shutil.disk_usage(folder).free < needed:
        raise StoreFull(
            f"No backup was made: it needs {needed >> 20} MiB under {folder}.", f"Free some space (`df -h {folder}`)."
        )
    older = list_backups(folder)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s))
    finished = folder / f"{number:06d}-{stamp}.db"
    with closing(connect_reader(database)) as source:
        _copy(source, finished)
    for path in [finished, *older][keep:]:
        path.unlink(missing_ok=True)
    return finished


def _copy(source: sqlite3.Connection, target: Path, edit: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """A durable, checked copy in one file; nothing is there under the name of the target until it is all of that."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        create_private(part)
        with closing(connect(part)) as copy:
            # In one step: in several, a copy is begun anew whenever somebody writes between two of them.
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            if edit is not None:
                edit(copy)
            problem = find_damage(copy)
        if problem is not None:
            raise StoreBroken(
                "corrupt",
                f"The copy {target} of the database is damaged: {problem}. It was not kept.",
                "Restart the daemon: it checks the database itself and goes back to the newest good backup.",
            )
        part.rename(target)
        sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def restore_backup(database: Path, folder: Path, *, wall_s: float, missing: bool) -> str | None:
    """Put the newest good copy in place of the database and keep the old file; the story of it, None without a copy.

    Without one, what the second record tells; also if that is not all, if the database is `missing` anyway.
    """
    restoring, redo = database.with_name(database.name + ".restoring"), folder_of(database)
    for path in list_backups(folder):
        try:
            with closing(connect_reader(path)) as source:
                if not 0 < schema.read_version(source) <= len(schema.MIGRATIONS):
                    continue
                told = _put_together(source, restoring, redo, _read_number(path))
        except (sqlite3.DatabaseError, StoreBroken) as error:
            if find_fault(error) is Fault.CORRUPT or isinstance(error, StoreBroken):
                continue  # damaged too; an older one may be good
            raise
        return f"The backup {path} is in use. {told.say()} {_take_place(database, restoring, wall_s)}"
    from_first = is_told_from_first(redo)
    if not from_first and not (missing and is_anything_told(redo)):
        return None
    with closing(_make_empty()) as source:
        told = _put_together(source, restoring, redo, 0)
    return f"{told.say_all(from_first=from_first)} {_take_place(database, restoring, wall_s)}"


def _make_empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection)
    return connection


def _put_together(source: sqlite3.Connection, target: Path, redo: Path, number: int) -> Replayed:
    """A copy with what was written since."""
    told: list[Replayed] = []

    def catch_up(copy: sqlite3.Connection) -> None:
        told.append(replay(copy, redo, number))
        skip_numbers(copy, least=max(told[0].missing, default=0))

    _copy(source, target, catch_up)
    return told[0]


def _take_place(database: Path, restoring: Path, wall_s: float) -> str:
    aside = _set_aside(database, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s)))
    restoring.rename(database)
    sync_folder(database.parent)
    return f"The old file is kept as {aside}; new job ids begin {NUMBERS_SKIPPED} higher."


def recall(database: Path, folder: Path) -> sqlite3.Connection | None:
    """The database as the newest good backup and the second record have it, in memory; None if they do not say all."""
    redo = folder_of(database)
    for path in [*list_backups(folder), None]:
        if path is None and not is_told_from_first(redo):
            break
        connection = _make_empty()
        with suppress(sqlite3.DatabaseError, OSError):
            if path is not None:
                with closing(connect_reader(path)) as source:
                    if schema.read_version(source) != len(schema.MIGRATIONS) or find_damage(source) is not None:
                        connection.close()
                        continue
                    source.backup(connection)
            if replay(connection, redo, 0 if path is None else _read_number(path)).whole:
                return connection
        connection.close()
    return None


def skip_numbers(connection: sqlite3.Connection, *, least: int = 0) -> None:
    """None that may have been given already is given again; `least` was given to a job."""
    make_counters(connection)
    keep_numbers(connection, least)
    connection.execute("UPDATE sqlite_sequence SET seq = seq + ?", (NUMBERS_SKIPPED,))


def keep_numbers(connection: sqlite3.Connection, given: int) -> None:
    """Of jobs, up to this one."""
    make_counters(connection)
    connection.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'job'", (given,))


def make_counters(connection: sqlite3.Connection) -> None:
    """Rows that SQLite makes with the first row of a table."""
    for table in ("job", "event"):  # without a row of its own, a table begins with 1
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, 0"
            " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
            (table,),
        )


def _set_aside(database: Path, stamp: str) -> Path:
    """The broken database and its log, out of the way. Its log must not meet the restored file."""
    # The database first: a crash in between leaves none, and the next start comes here again. A database without
    # its log would look whole.
    aside = database.with_name(f"{database.name}.broken-{stamp}")
    for suffix in ("", "-wal", "-shm", "-journal"):
        path = database.with_name(database.name + suffix)
        if path.exists():
            path.rename(aside.with_name(aside.name + suffix))
    return aside


def find_damage(connection: sqlite3.Connection) -> str | None:
    """What SQLite finds wrong with a database."""
    found = _check(connection, "quick_check(1)")
    return None if found == ["ok"] else found[0]


def find_index_damage(connection: sqlite3.Connection) -> bool:
    """Whether indices of a database whose tables are in order say something else than these; they can be made anew."""
    return _check(connection, "integrity_check(1)") != ["ok"]


def _check(connection: sqlite3.Connection, pragma: str) -> list[str]:
    # What it says may quote what it found, which need not be text.
    before, connection.text_factory = connection.text_factory, lambda data: data.decode(errors="backslashreplace")
    try:
        return [row[0] for row in connection.execute(f"PRAGMA {pragma}").fetchall()]
    except UnicodeDecodeError:
        return ["what SQLite says of it is no text"]  # an error quotes what was found
    except sqlite3.DatabaseError as error:
        if find_fault(error) is Fault.CORRUPT:
            return [str(error)]
        raise
    finally:
        connection.text_factory = before


def is_behind_backups(database: Path, folder: Path) -> bool:
    """Whether the newest readable backup knows of more than the database does."""
    for path in list_backups(folder):
        with suppress(sqlite3.Error):
            return _count_given(connect_checker(database)) < _count_given(connect_reader(path))
    return False


def _count_given(connection: sqlite3.Connection) -> int:
    """How many numbers were given to jobs and events."""
    with closing(connection):
        found: int = connection.execute("SELECT ifnull(sum(seq), 0) FROM sqlite_sequence").fetchone()[0]
        return found


def create_private(path: Path) -> None:
    """An empty file for nobody else to read. Never opens one that is there: see `database`."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
