"""The store as the core sees it: durable writes to await, and queries to ask on the spot."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from phalanx.frontends.host.ports import Clock
from phalanx.frontends.host.store import queries
from phalanx.frontends.host.store.backups import newest_number, next_number, write_backup
from phalanx.frontends.host.store.ballast import Ballast
from phalanx.frontends.host.store.database import connect_reader
from phalanx.frontends.host.store.faults import Fault, StoreBroken, StoreFull, explain, find_fault, refuse_closed
from phalanx.frontends.host.store.opening import open_database, prepare_directory
from phalanx.frontends.host.store.redo import Redo, folder_of
from phalanx.frontends.host.store.redo_check import is_told_to_the_end
from phalanx.frontends.host.store.stored_rows import (
    Change,
    EstimateRecord,
    EventRecord,
    Forget,
    JobRecord,
    RunRecord,
)
from phalanx.frontends.host.store.writer import Write, Writer

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

#: Rows that retention removes in one commit, so that others need not wait for long.
FORGET_ROWS: Final = 1000


def open_store(directory: Path, *, clock: Clock, backups: int = 24) -> Store:
    """Open the store of a state directory, made or migrated if need be; raises StoreBroken with the next step."""
    prepare_directory(directory)
    return Store(directory, clock, backups)


class Store:
    """Jobs, runs, events and estimates on disk. Made by `open_store`."""

    def __init__(self, directory: Path, clock: Clock, backups: int) -> None:
        self._path = directory / "phalanx.db"
        self._folder = directory / "backups"
        self._clock = clock
        self._backups = backups
        self._backing_up = threading.Lock()
        ballast = Ballast(directory / "ballast")
        connection, story = open_database(self._path, self._folder, ballast, clock.wall_s())
        #: What was lost and found when the store was opened; None if all was well.
        self.restored: str | None = story
        self._reader = connect_reader(self._path)
        self._reading = threading.Lock()
        self._closed = False
        told = is_told_to_the_end(self._reader, self._path, self._folder)
        self._redo = Redo(folder_of(self._path), newest_number(self._folder), whole=told)
        self._writer = Writer(connection, self._path, ballast, self._redo)
        # What was put together anew is worth a copy before anything else happens to it, and so is what only the
        # database tells.
        if story is not None or not told:
            try:
                self.backup()
            except (StoreBroken, StoreFull) as error:
                _log.warning("the second record does not tell all until there is a backup: %s", error)
            else:
                if not told:
                    _log.warning("the second record did not tell what the database tells, so a backup was made")

    @property
    def full(self) -> bool:
        """Whether the disk is full: submits are refused, the rest goes where the ballast was."""
        return self._writer.full

    @property
    def problem(self) -> str | None:
        """What people should know about the store now."""
        if self._writer.broken is not None:
            return str(self._writer.broken)
        if self.full:
            return f"The disk under {self._path.parent} is full; submits are refused."
        return self.restored

    # ------------------------------------------------------------- writing

    async def write(self, *changes: Change) -> list[object]:
        """Apply the changes in one transaction; on disk when it returns. Writes take effect in the order of the calls.

        Raises StoreFull or StoreBroken, or what one of the changes raised; nothing of the write was applied then.
        A caller that is cancelled while it waits does not undo anything.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[object]] = loop.create_future()
        self._writer.put(Write(changes, answer, loop))
        return await answer

    def write_now(self, *changes: Change) -> list[object]:
        """The same, holding up the calling thread."""
        answer: Future[list[object]] = Future()
        self._writer.put(Write(changes, answer, None))
        return answer.result()

    def prune(self, now_us: int, keep_events_us: int, keep_jobs_us: int) -> int:
        """Forget old events and long ended jobs; says how many rows. Holds up the calling thread, not the writers."""
        forget = Forget(now_us - keep_events_us, now_us - keep_jobs_us, FORGET_ROWS)
        total = 0
        while gone := self.write_now(forget)[0]:
            assert isinstance(gone, int)
            total += gone
        return total

    def backup(self) -> Path:
        """Copy the database and rotate the copies. Holds up the calling thread, not the writers."""
        with self._backing_up:
            try:
                number = next_number(self._path, self._folder)
                self._redo.begin(number, newest_number(self._folder))
                return write_backup(self._path, self._folder, number, keep=self._backups, wall_s=self._clock.wall_s())
            except (sqlite3.Error, OSError) as error:
                fault = find_fault(error) if isinstance(error, sqlite3.Error) else Fault.IO
                raise explain(fault, self._path, error) from error

    async def close(self) -> None:
        """Finish what is queued, then close."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """The same, holding up the calling thread."""
        # The writer's connection is closed last: that empties the log into the database.
        with self._reading:
            self._closed = True
            self._reader.close()
        self._writer.close()
        self._redo.close()

    # ------------------------------------------------------------- reading

    def jobs(self, *, ended: bool = False) -> list[JobRecord]:
        """Jobs that have not ended, or all, by id and without what they run."""
        return self._read(queries.read_jobs, ended=ended)

    def job(self, job: int) -> JobRecord | None:
        """One job, without what it runs."""
        return self._read(queries.read_job, job)

    def newest(self) -> int:
        """The highest id that was ever given."""
        return self._read(queries.read_newest)

    def load_run(self, job: int) -> bytes:
        """What the members of a job run; LookupError if that was never said."""
        return self._read(queries.read_run_blob, job)

    def ended(
        self,
        since_us: int = 0,
        user: str | None = None,
        limit: int = 1000,
        *,
        queue: str | None = None,
        name: str | None = None,
        states: Sequence[str] = (),
    ) -> list[JobRecord]:
        """Jobs that ended since then, the newest first."""
        wanted = {"user": user, "queue": queue, "name": name}
        equal = [(column, value) for column, value in wanted.items() if value is not None]
        return self._read(queries.read_ended, since_us, equal, states, limit)

    def history(self, user: str, name: str, limit: int) -> list[JobRecord]:
        """The last ended jobs of this user and name, the newest first."""
        return self.ended(0, user, limit, name=name)

    def find_key(self, uid: int, key: str) -> list[int] | None:
        """The ids that this user's idempotency key stands for."""
        return self._read(queries.find_key, uid, key)

    def runs(self) -> list[RunRecord]:
        """All runs that were not dropped."""
        return self._read(queries.read_runs)

    def run(self, run: str) -> RunRecord | None:
        """One run."""
        return self._read(queries.read_run, run)

    def events(self, job: int | None = None, since: int = 0, limit: int = 1000) -> list[EventRecord]:
        """Events after this sequence number, in order, of one job or of all."""
        return self._read(queries.read_events, job, since, limit)

    def meta(self, key: str) -> bytes | None:
        """Something remembered about the daemon itself."""
        return self._read(queries.read_meta, key)

    def estimates(self, since_us: int = 0) -> list[EstimateRecord]:
        """Estimates made since then, oldest first."""
        return self._read(queries.read_estimates, since_us)

    def _read(self, query: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        with self._reading:
            if self._closed:
                raise refuse_closed(self._path)
            try:
                return query(self._reader, *arguments, **options)
            except sqlite3.DatabaseError as error:
                fault = find_fault(error)
                if fault is Fault.OWN:
                    raise
                broken = explain(fault, self._path, error)
                if broken.kind == "corrupt":
                    self._writer.broken = broken  # nothing is promised on top of damage
                raise broken from error
