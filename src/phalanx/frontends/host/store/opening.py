"""From a directory to a database that can be trusted, or to the reason why not."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from phalanx.frontends.host.store import schema
from phalanx.frontends.host.store.backups import (
    NUMBERS_SKIPPED,
    create_private,
    find_damage,
    find_index_damage,
    is_behind_backups,
    keep_numbers,
    list_backups,
    next_number,
    restore_backup,
    skip_numbers,
    sync_folder,
    write_backup,
)
from phalanx.frontends.host.store.ballast import Ballast
from phalanx.frontends.host.store.database import connect, connect_checker, prepare_writer, write_checkpoint
from phalanx.frontends.host.store.faults import Fault, StoreBroken, explain, find_fault
from phalanx.frontends.host.store.log_witness import LogLoss, find_loss, read_witness
from phalanx.frontends.host.store.redo import catch_up, folder_of, is_anything_told
from phalanx.frontends.host.store.soundness import mend

_MISSING: Final = "it is missing or empty"


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
    before = read_witness(path)
    damage = _find_trouble(path, folder)
    loss = find_loss(before, read_witness(path)) if damage is None else None
    if loss is not None and loss.pages and not loss.outdated and is_behind_backups(path, folder):
        damage = f"its log has lost {loss.pages} pages, and the newest backup knows of more than what is left"
    stories = [] if loss is None or damage is not None else [_tell_loss(path, loss, wall_s)]
    if damage is None:
        try:
            connection, mended = _open_writer(path, folder, wall_s, loss=loss)
            return connection, " ".join([*stories, *mended]) or None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if isinstance(error, sqlite3.Error) and find_fault(error) is not Fault.CORRUPT:
                raise
            damage = str(error)  # what no check has found, reading every row has
    stories = [_restore(path, folder, damage, wall_s)]
    connection, mended = _open_writer(path, folder, wall_s, restored=True)
    return connection, " ".join([*stories, *mended])


def _restore(path: Path, folder: Path, damage: str, wall_s: float) -> str:
    restored = restore_backup(path, folder, wall_s=wall_s, missing=damage == _MISSING)
    if restored is None:
        redo, aside = folder_of(path), path.with_name(f"{path.stem}.broken")
        others = "".join(f" {each}" for each in (folder, redo) if each.exists())
        raise StoreBroken(
            "corrupt",
            f"The database {path} is damaged ({damage}); {folder} has no good backup, and {redo} does not tell all.",
            f"To save what can be read: `sqlite3 {path} .recover | sqlite3 saved.db`. "
            f"To begin with no jobs: `mkdir {aside} && mv {path}*{others} {aside}/`.",
        )
    return f"The database {path} was damaged ({damage}). {restored}"


def _tell_loss(path: Path, loss: LogLoss, wall_s: float) -> str:
    """Keep the damaged log for people, and out of the way if what is left of it would do harm."""
    log = path.with_name(path.name + "-wal")
    aside = path.with_name(f"{path.name}.broken-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall_s))}-wal")
    kept = "nothing of it is left"
    if log.exists():
        aside.unlink(missing_ok=True)
        shutil.copy(log, aside)
        kept = f"it is kept as {aside}"
    if loss.outdated:
        # Every page up to the last checkpoint is in the database file, newer than what these frames hold.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    what = "nothing that was acknowledged is missing"
    if loss.pages:
        what = (
            f"the {loss.pages} pages that were acknowledged last are lost from it (new jobs, or what became of others)"
        )
    return (
        f"The log of the database {path} was damaged: {what}; {kept}, and new job ids begin {NUMBERS_SKIPPED} higher."
    )


def _catch_up(connection: sqlite3.Connection, path: Path, loss: LogLoss | None) -> list[str]:
    """What the second record knows and the database has lost."""
    lost = loss is not None and loss.pages > 0
    found = catch_up(connection, folder_of(path), lost=lost)
    if found is not None and lost:
        return [found.say()]
    if found is not None:
        return [f"The end of the database {path} was lost, as when its log is damaged. {found.say()}"]
    return ["Look at `phalanx ps -a` and submit what is missing again."] if lost else []


def _open_writer(
    path: Path, folder: Path, wall_s: float, *, loss: LogLoss | None = None, restored: bool = False
) -> tuple[sqlite3.Connection, list[str]]:
    """The connection that writes, and what had to be mended. After a loss no number that was given is given again."""
    stories = list[str]()
    connection = connect(path)
    try:
        prepare_writer(connection)
        if 0 < schema.read_version(connection) < len(schema.MIGRATIONS):
            number = next_number(path, folder)
            write_backup(path, folder, number, keep=len(list_backups(folder)) + 1, wall_s=wall_s)
        begun = schema.read_version(connection) == 0
        schema.migrate(connection)
        if begun or restored:
            stories += _keep_numbers_of_runs(connection, path, begun=begun)
        if restored:
            stories += _tell_later_runs(connection, path)
        if loss is not None:
            skip_numbers(connection)
        if not restored:
            stories += _catch_up(connection, path, loss)
        if find_index_damage(connection):
            connection.execute("REINDEX")
            stories.append(f"Indices of the database {path} were damaged; they were made anew, and nothing is lost.")
        stories += mend(connection, path, folder, wall_s)
        # After a failed fsync the log may be whole in memory and not on the disk. What is read from it is written
        # down elsewhere before anything new is put behind it.
        write_checkpoint(connection, "TRUNCATE")
    except BaseException:
        connection.close()
        raise
    return connection, stories


def _tell_later_runs(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Run directories tell that a record which seems to end with its last write has lost some."""
    attempts = dict(connection.execute("SELECT id, attempt FROM job").fetchall())
    known = {tuple(row) for row in connection.execute("SELECT job, attempt FROM run").fetchall()}
    runs = path.parent / "runs"
    later = {run for run in _list_runs(runs) if attempts.get(run[0], 0) < run[1]}
    found = sorted(later | _list_runs(runs / ".live").difference(known))
    if not found:
        return []
    listed = ", ".join(f"{job}.{attempt}" for job, attempt in found[:20])
    more = f" and {len(found) - 20} more" if len(found) > 20 else ""
    return [
        f"Nothing tells of runs {listed}{more}, which have directories: it ends early, and jobs accepted last and "
        "changes since may be lost. What still runs of them is ended; jobs that are back run again."
    ]


def _list_runs(folder: Path) -> set[tuple[int, int]]:
    """Job and attempt of every name that is one of a run."""
    split = (each.name.split(".") for each in folder.glob("*.*"))
    return {(int(n[0]), int(n[1])) for n in split if len(n) == 2 and all(w.isdecimal() and len(w) < 16 for w in n)}


def _keep_numbers_of_runs(connection: sqlite3.Connection, path: Path, *, begun: bool) -> list[str]:
    """Where no backup and no second record knows of a job, its run directory still tells that its number was given."""
    runs = path.parent / "runs"
    names = [*runs.glob("*.*"), *(runs / ".live").glob("*.*")]
    jobs = sorted(
        {int(job) for job in (each.name.partition(".")[0] for each in names) if job.isdecimal() and len(job) < 16}
    )
    if not jobs:
        return []
    keep_numbers(connection, jobs[-1])
    if not begun:
        return []
    listed = ", ".join(map(str, jobs[:20])) + (f" and {len(jobs) - 20} more" if len(jobs) > 20 else "")
    return [
        f"The database {path} was missing, and there is neither a backup nor a second record of it: all jobs are lost. "
        f"Run directories are left of jobs {listed}. What still runs of them is ended, since nobody knows any more "
        f"what it is; submit them again. New job ids begin with {jobs[-1] + 1}."
    ]


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
        if version == 0 and (list_backups(folder) or is_anything_told(folder_of(path))):
            return _MISSING
        return find_damage(connection)
