"""From a directory to a database that can be trusted, or to the reason why not."""

from __future__ import annotations

import os
import pwd
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from phalanx.frontends.host.store import schema
from phalanx.frontends.host.store.backups import (
    create_private,
    find_damage,
    list_backups,
    restore_backup,
    sync_folder,
    write_backup,
)
from phalanx.frontends.host.store.ballast import Ballast
from phalanx.frontends.host.store.database import connect, connect_checker, prepare_writer, write_checkpoint
from phalanx.frontends.host.store.faults import Fault, StoreBroken, explain, find_fault


def prepare_directory(directory: Path) -> None:
    """Make the state directory, or make sure that the one there is ours to write."""
    try:
        directory.mkdir(mode=0o700, parents=True)
        sync_folder(directory.parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise _refuse_readonly(directory, str(error)) from error
    check_owner(directory, directory.stat().st_uid, os.geteuid())
    # Effective ids: the real ones may differ in a daemon that was started by another user's rights.
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _refuse_readonly(directory, "it may not be written")


def check_owner(path: Path, owner: int, uid: int) -> None:
    """Nobody's state but one's own: another user could change it, and what is written there would be theirs."""
    if owner == uid:
        return
    raise StoreBroken(
        "foreign",
        f"{path} belongs to {_name_user(owner)}, and this daemon runs as {_name_user(uid)}.",
        f"Set PHALANX_HOME to a directory of your own, or hand this one over: `sudo chown -R {uid} {path}`.",
    )


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _refuse_readonly(directory: Path, why: str) -> StoreBroken:
    return StoreBroken(
        "readonly",
        f"The state directory {directory} cannot be written: {why}.",
        f"Set PHALANX_HOME to another directory, or look at `ls -ld {directory}` and `findmnt -T {directory}`.",
    )


def open_database(path: Path, folder: Path, ballast: Ballast, wall_s: float) -> tuple[sqlite3.Connection, str | None]:
    """A checked and migrated database to write to, and the story of its restoration if there was one."""
    for _ in range(2):
        try:
            return _open_whole(path, folder, wall_s)
        except (sqlite3.Error, OSError) as error:
            fault = find_fault(error) if isinstance(error, sqlite3.Error) else Fault.IO
            # Even opening takes some room, and a daemon that cannot start on a full disk cannot record exits.
            if fault in {Fault.FULL, Fault.UNSURE} and ballast.release():
                continue
            raise explain(fault, path, error) from error
    raise AssertionError("the ballast can be released once only")


def _open_whole(path: Path, folder: Path, wall_s: float) -> tuple[sqlite3.Connection, str | None]:
    """Open the database; in place of a damaged or vanished one, the newest good backup."""
    damage = _find_trouble(path, folder)
    story = None
    if damage is not None:
        restored = restore_backup(path, folder, wall_s=wall_s)
        if restored is None:
            raise StoreBroken(
                "corrupt",
                f"The database {path} is damaged ({damage}), and {folder} has no good backup.",
                f"To save what can be read: `sqlite3 {path} .recover | sqlite3 saved.db`. "
                f"To begin with no jobs: `mkdir {path}.broken && mv {path}* {path}.broken/`.",
            )
        story = f"The database {path} was damaged ({damage}). {restored}"
    connection = connect(path)
    try:
        prepare_writer(connection)
        if 0 < schema.read_version(connection) < len(schema.MIGRATIONS):
            write_backup(path, folder, keep=len(list_backups(folder)) + 1, wall_s=wall_s)
        schema.migrate(connection)
        # After a failed fsync the log may be whole in memory and not on the disk. What is read from it is written
        # down elsewhere before anything new is put behind it.
        write_checkpoint(connection, "TRUNCATE")
    except BaseException:
        connection.close()
        raise
    return connection, story


def _find_trouble(path: Path, folder: Path) -> str | None:
    """What is wrong with the database file; raises what cannot be helped by a backup."""
    if path.is_symlink() or path.exists():
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode):
            raise StoreBroken(
                "foreign", f"{path} is no plain file.", f"Look at what it is, and move it away: ls -l {path}"
            )
        check_owner(path, facts.st_uid, os.geteuid())
        path.chmod(0o600)
    else:
        create_private(path)
    with closing(connect_checker(path)) as connection:
        try:
            version = schema.read_version(connection)
        except sqlite3.DatabaseError as error:
            if find_fault(error) is Fault.CORRUPT:
                return str(error)
            raise
        if version > len(schema.MIGRATIONS):
            raise StoreBroken(
                "newer",
                f"The database {path} was written by a newer phalanx (schema {version}; "
                f"this one knows {len(schema.MIGRATIONS)}).",
                "Upgrade phalanx, or set PHALANX_HOME to another directory.",
            )
        if version == 0 and list_backups(folder):
            return "it is missing or empty"
        return find_damage(connection)
