"""A second record of what was written since the last backup, for the day on which the database is damaged.

One file for each backup, begun just before it: changes as they were committed, with the numbers that they were given.
Put onto the backup in order they give the database as it was, running jobs, waiting ones, keys and all; the file with
number 0 goes with no backup, and put onto an empty database it gives everything since the first job. What is in the
backup already does no harm when it is put there again, so that nobody has to know which commit was its last.

Not synced: every write is in the database by the time it is here, which is synced. This record has to outlive a damaged
page, a killed daemon, a file that somebody removed; not those together with a loss of power. A full disk ends it until
the next backup: the room that is left is the database's.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from phalanx.frontends.host.store.database import SqlConnection
from phalanx.frontends.host.store.stored_rows import (
    AddEvents,
    Change,
    DropRun,
    InsertJobs,
    JobRecord,
    PutMeta,
    PutRun,
    RunRecord,
    UpdateJob,
)

#: Files of so many backups are kept, in case that the newest copies are damaged too.
KEPT: Final = 3
_HEAD: Final = struct.Struct("<II")  # length and checksum of what follows
_BYTES_MAX: Final = 1 << 30
_BROKEN_OFF: Final = _HEAD.pack(0, 1)  # what comes here is missing
_JOB_COLUMNS: Final = JobRecord.__struct_fields__[:-1]


def folder_of(database: Path) -> Path:
    """Where the second record of a database lies."""
    return database.parent / "redo"


def list_redo(folder: Path) -> list[Path]:
    """Files of the second record, the oldest first."""
    return sorted(folder.glob("[0-9]*.redo"), key=number_of)


def number_of(path: Path) -> int:
    """Of the backup that a file goes with."""
    return int(path.stem)


class Redo:
    """The file that is written to. Commits come from one thread, backups from another."""

    def __init__(self, folder: Path, number: int, *, whole: bool = True) -> None:
        """Goes on with the newest file; `number` is that of the newest backup, for the first of all.

        Not `whole`: it lacks something, so it ends here until the next backup, or what comes would hide that.
        """
        self._folder, self._lock, self._fd = folder, threading.Lock(), -1
        if folder.exists() and not folder.is_dir():
            with contextlib.suppress(OSError):
                folder.rename(folder.with_name(f"{folder.name}.no-folder"))
        # A backup that failed has left a file that is newer than the newest backup.
        self._open(max([number, *map(number_of, list_redo(folder))]))
        if not whole:
            self._break_off()

    def _open(self, number: int) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path = self._folder / f"{number:06d}.redo"
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
            data = path.read_bytes()
            size = _measure(data)
            # A record that was being written when the last daemon was killed would hide all that come behind it.
            if data[size:] == _BROKEN_OFF:
                self._stop()
            else:
                os.ftruncate(self._fd, size)
        except OSError:
            self._stop()

    def _stop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def begin(self, number: int, newest: int) -> None:
        """A backup of this number is about to be made: what is committed from now on goes with it. `newest`: so far."""
        with self._lock:
            self._stop()
            self._open(number)
            for path in list_redo(self._folder):
                if number_of(path) <= newest + 1 - KEPT:
                    path.unlink(missing_ok=True)

    def note(self, writes: Iterable[tuple[Sequence[Change], list[object]]], *, full: bool) -> None:
        """These were committed, with these results. `full`: the disk is, and what is left of it is not ours."""
        with self._lock:
            if self._fd < 0:
                return
            told = [each for changes, results in writes for each in _tell(changes, results)]
            if not told:
                return
            data = b"".join(_HEAD.pack(len(text), zlib.crc32(text)) + text for text in told)
            at = os.fstat(self._fd).st_size
            with contextlib.suppress(OSError):
                if not full and os.write(self._fd, data) == len(data):
                    return
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, at)
            self._break_off()

    def _break_off(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._fd, _BROKEN_OFF)
        self._stop()

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            self._stop()


def _tell(changes: Sequence[Change], results: Sequence[object]) -> Iterator[bytes]:
    for change, result in zip(changes, results, strict=True):
        told: list[Any]
        match change:
            case InsertJobs(uid, key, jobs):
                assert isinstance(result, list)
                if key is not None and len(result) != len(jobs):
                    continue  # an earlier submit with this key made them
                told = ["jobs", uid, key, result, [msgspec.structs.astuple(job)[1:] for job in jobs]]
            case UpdateJob():
                told = ["update", change.id, change.columns]
            case PutRun(record):
                told = ["run", msgspec.structs.astuple(record)]
            case DropRun(run):
                told = ["drop", run]
            case PutMeta(key, value):
                told = ["meta", key, value]
            case AddEvents(events):
                told = ["events", result, [msgspec.structs.astuple(event)[:-1] for event in events]]
            case _:
                continue  # estimates and what retention removes: nobody misses them
        yield msgspec.msgpack.encode(told)


def _measure(data: bytes) -> int:
    """How many bytes of a file are whole records."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        text = data[at + _HEAD.size : at + _HEAD.size + length]
        if length > _BYTES_MAX or len(text) < length or zlib.crc32(text) != checksum:
            break
        at += _HEAD.size + length
    return at


# ---------------------------------------------------------------------- the way back


class Replayed(msgspec.Struct):
    """What the second record gave back."""

    jobs: list[int] = []
    whole: bool = True  # it goes on to the last commit, as far as it can tell
    missing: set[int] = set()  # jobs that something was told of, and never what they are

    def say_all(self, *, from_first: bool) -> str:
        """In a sentence, where there was no backup. `from_first`: the record begins with the first job."""
        found = f"jobs that are back: {_list(self.jobs)}" if self.jobs else "it knows of no job"
        lost = f" Of jobs {_list(sorted(self.missing))} too little is left; submit them again." if self.missing else ""
        if not from_first:
            lost = (
                f" It begins late: jobs accepted before{f' job {min(self.jobs)}' if self.jobs else ''} are lost.{lost}"
            )
        if not self.whole:
            last = f" after job {max(self.jobs)}" if self.jobs else ""
            lost = f" It ends early: jobs accepted{last} and changes since may be lost.{lost}"
        return f"There is no good backup, so everything was put together from the second record; {found}.{lost}"

    def say(self) -> str:
        """In a sentence."""
        ids = _list(self.jobs)
        found = f"jobs submitted since then are back: {ids}" if self.jobs else "no job was submitted since then"
        if self.whole:
            return f"What was written after it is put back from the second record; {found}."
        last = f" after job {max(self.jobs)}" if self.jobs else ""
        return f"The second record ends early: jobs accepted{last} and changes since may be lost; {found}."


def _list(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:20])) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "")


def is_broken_off(path: Path) -> bool:
    """Whether nothing more is written to a file of the second record, or nobody could read that."""
    data = path.read_bytes()
    return _measure(data) < len(data)


def read_told(folder: Path, number: int) -> list[list[Any]] | None:
    """What was written since the backup of this number, in order; None if a part of it is damaged or missing."""
    paths = {number_of(path): path for path in list_redo(folder) if number_of(path) >= number}
    if any(each not in paths for each in range(number, max(paths, default=number))):
        return None
    parts = [paths[each].read_bytes() for each in sorted(paths)]
    if any(_measure(part) < len(part) for part in parts):
        return None
    return [msgspec.msgpack.decode(text) for part in parts for text in _split(part)]


def is_anything_told(folder: Path) -> bool:
    """Whether there is any second record."""
    return any(path.stat().st_size for path in list_redo(folder))


def is_told_from_first(folder: Path) -> bool:
    """Whether the second record goes back to the first job.

    A record that a newer version has begun beside an older database has number 0 as well.
    """
    paths = list_redo(folder)
    if not paths or number_of(paths[0]) != 0:
        return False
    data = paths[0].read_bytes()
    told = (msgspec.msgpack.decode(text) for text in _split(data[: _measure(data)]))
    return next((each[1][0] == 1 for each in told if each[0] == "events" and each[1]), bool(data))


def replay(connection: SqlConnection, folder: Path, number: int) -> Replayed:
    """Put everything onto the backup of this number that was written since; 0: onto an empty database."""
    found = Replayed()
    numbers = {number_of(path): path for path in list_redo(folder)}
    newest = max([number, *numbers])
    first = number if number or not numbers else min(numbers)  # with no backup, whatever there is, if it begins late
    for each in range(first, newest + 1):
        path = numbers.get(each)
        data = path.read_bytes() if path is not None else b""
        size = _measure(data)
        found.whole = _apply_all(connection, data[:size], found) and path is not None and size == len(data)
        if not found.whole:
            break
    return found


def catch_up(connection: SqlConnection, folder: Path, *, lost: bool = False) -> Replayed | None:
    """Put back what a database that seems whole has lost of its end, as one whose log was damaged; None: nothing.

    `lost`: something is known to be. Else it shows in numbers that were given and are not there.
    """
    parts = [path.read_bytes() for path in list_redo(folder)]  # a backup leaves the log as it is, so more than the last
    data = b"".join(part[: _measure(part)] for part in parts)
    # One that ends early may be older than what the database still has, and would undo that.
    if lost and parts and len(data) == sum(map(len, parts)):
        found = Replayed()
        found.whole = _apply_all(connection, data, found)
        return found
    told = [msgspec.msgpack.decode(text) for text in _split(data)]
    for table, kind, at in (("job", "jobs", 3), ("event", "events", 1)):
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        if max((max(each[at], default=0) for each in told if each[0] == kind), default=0) > (row[0] if row else 0):
            break
    else:
        return None
    found = Replayed()
    found.whole = _apply_all(connection, data, found)
    return found


def _apply_all(connection: SqlConnection, data: bytes, found: Replayed) -> bool:
    """False if something in there cannot be understood, as what another version wrote; what comes before it counts."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for text in _split(data):
            _apply(connection, msgspec.msgpack.decode(text), found)
    except (sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError):
        return False
    finally:
        connection.execute("COMMIT")
    return True


def _split(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, _ = _HEAD.unpack_from(data, at)
        yield data[at + _HEAD.size : at + _HEAD.size + length]
        at += _HEAD.size + length


# Every name below that is put into a statement comes from the records; values are always bound.
_INSERT_JOB: Final = (
    f"INSERT OR IGNORE INTO job ({', '.join(_JOB_COLUMNS)}) VALUES ({', '.join('?' * len(_JOB_COLUMNS))})"  # noqa: S608
)
_INSERT_RUN: Final = f"INSERT OR REPLACE INTO run VALUES ({', '.join('?' * len(RunRecord.__struct_fields__))})"  # noqa: S608


def _apply(connection: SqlConnection, told: list[Any], found: Replayed) -> None:
    match told:
        case ["jobs", uid, key, ids, rows]:
            _insert_jobs(connection, uid, key, dict(zip(ids, rows, strict=True)), found)
        case ["update", number, columns]:
            change = UpdateJob(number, **columns)
            sets = ", ".join(f"{name} = ?" for name in change.columns)
            connection.execute(f"UPDATE job SET {sets} WHERE id = ?", (*change.columns.values(), number))  # noqa: S608
            if not connection.execute("SELECT changes()").fetchone()[0]:
                found.missing.add(number)
        case ["run", row]:
            connection.execute(_INSERT_RUN, tuple(row))
        case ["drop", run]:
            connection.execute("DELETE FROM run WHERE run = ?", (run,))
        case ["meta", key, value]:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
        case ["events", seqs, rows]:
            connection.executemany(
                "INSERT OR IGNORE INTO event (job, event, at_us, wall, data, seq) VALUES (?, ?, ?, ?, ?, ?)",
                ((*row, seq) for seq, row in zip(seqs, rows, strict=True)),
            )
        case _:
            raise ValueError(f"a record that nobody here has written: {told[:1]}")


def _insert_jobs(
    connection: SqlConnection, uid: int, key: str | None, rows: dict[int, list[Any]], found: Replayed
) -> None:
    for number, row in rows.items():
        connection.execute(_INSERT_JOB, (number, *row[:-1]))
        if connection.execute("SELECT changes()").fetchone()[0]:
            found.jobs.append(number)
        if row[-1] is not None:
            connection.execute("INSERT OR IGNORE INTO job_run VALUES (?, ?)", (number, row[-1]))
    if key is not None and rows:
        connection.execute(
            "INSERT OR IGNORE INTO submit_key (uid, key, first, last) VALUES (?, ?, ?, ?)",
            (uid, key, min(rows), max(rows)),
        )
