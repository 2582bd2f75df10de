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
from contextlib import closing
from pathlib import Path
from typing import Final

from phalanx.frontends.host.store import schema
from phalanx.frontends.host.store.ballast import BALLAST_BYTES
from phalanx.frontends.host.store.database import connect, connect_reader
from phalanx.frontends.host.store.faults import Fault, StoreBroken, StoreFull, find_fault

#: Ids and sequence numbers that were given after the backup are not known; none may be given twice, because run
#: directories and followers of events go by them.
NUMBERS_SKIPPED: Final = 100_000


def list_backups(folder: Path) -> list[Path]:
    """Finished copies, the newest first."""
    return sorted(folder.glob("[0-9]*-*.db"), key=_read_number, reverse=True)


def _read_number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def write_backup(database: Path, folder: Path, *, keep: int, wall_s: float) -> Path:
    """Copy the database and let the oldest copies go; raises StoreFull rather than take the last room."""
    folder.mkdir(mode=0o700, exist_ok=True)
    needed = database.stat().st_size + 4 * BALLAST_BYTES
    if shutil.disk_usage(folder).free < needed:
        raise StoreFull(
            f"No backup was made: it needs {needed >> 20} MiB under {folder}.", f"Free some space (`df -h {folder}`)."
        )
    older = list_backups(folder)
    number = _read_number(older[0]) + 1 if older else 1
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


def restore_backup(database: Path, folder: Path, *, wall_s: float) -> str | None:
    """Put the newest good copy in place of the database and keep the old file; the story of it, None without a copy."""
    restoring = database.with_name(database.name + ".restoring")
    for path in list_backups(folder):
        try:
            with closing(connect_reader(path)) as source:
                if not 0 < schema.read_version(source) <= len(schema.MIGRATIONS):
                    continue
                _copy(source, restoring, _skip_numbers)
        except (sqlite3.DatabaseError, StoreBroken) as error:
            if find_fault(error) is Fault.CORRUPT or isinstance(error, StoreBroken):
                continue  # damaged too; an older one may be good
            raise
        aside = _set_aside(database, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s)))
        restoring.rename(database)
        sync_folder(database.parent)
        return (
            f"The backup {path} is in use; what was written after it is lost, except what run directories tell. "
            f"The old file is kept as {aside}; new job ids begin {NUMBERS_SKIPPED} higher."
        )
    return None


def _skip_numbers(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE sqlite_sequence SET seq = seq + ?", (NUMBERS_SKIPPED,))


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
    try:
        found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if find_fault(error) is Fault.CORRUPT:
            return str(error)
        raise
    return None if found == "ok" else found


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
