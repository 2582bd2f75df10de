"""The one thread that writes, and the group commit.

Writes that arrive while a commit runs wait together and share the next one: with one client each write has an fsync
of its own, with many the disk's time is divided among them. Answers go back in one wake-up per commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from phalanx.frontends.host.store.applying import Outcome, apply_group
from phalanx.frontends.host.store.ballast import Ballast, has_room
from phalanx.frontends.host.store.database import write_checkpoint
from phalanx.frontends.host.store.faults import Fault, StoreBroken, explain, find_fault, refuse_closed, refuse_full
from phalanx.frontends.host.store.redo import Redo
from phalanx.frontends.host.store.stored_rows import Change, InsertJobs

#: Writes in one commit; a bound on how long the first of them waits for the last.
GROUP_MAX: Final = 512
#: Rows between checkpoints, a commit counting for four: about a thousand pages, four megabytes of log.
ROWS_PER_CHECKPOINT: Final = 2000
#: The same on a full disk, where the log should not take the ballast's room.
ROWS_PER_CHECKPOINT_FULL: Final = 200


class Write(NamedTuple):
    """Changes that are applied together, and who waits for them."""

    changes: Sequence[Change]
    answer: Future[list[object]] | asyncio.Future[list[object]]
    loop: asyncio.AbstractEventLoop | None


class Writer:
    """The thread, its queue and its connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, ballast: Ballast, redo: Redo) -> None:
        """Takes the connection over and closes it in the end."""
        self._redo = redo
        self._connection = connection
        self._path = path
        self._ballast = ballast
        self.full = not ballast.make()
        self.broken: StoreBroken | None = None
        self._rows_at_checkpoint = connection.total_changes
        self._commits = 0
        self._queue: SimpleQueue[Write | None] = SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        # A daemon thread: what it has not answered was not promised, and nobody should have to wait for it.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, write: Write) -> None:
        """Queue a write; it is answered in any case."""
        with self._lock:  # nobody may come after the end
            if self._closed:
                raise refuse_closed(self._path)
            self._queue.put(write)

    def close(self) -> None:
        """Finish what is queued, then close the database."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while self._serve():
            self._checkpoint()
        self._connection.close()

    def _serve(self) -> bool:
        """One commit; False at the end. In a function of its own, so that nobody's jobs are kept while it waits."""
        group, going = self._take()
        try:
            outcomes = self._commit([write.changes for write in group])
            self._note(group, outcomes)
        except Exception as error:  # noqa: BLE001 - the boundary of the thread: whoever waits must hear of it
            outcomes = self._break(Fault.IO, error, len(group))
        _send_answers(group, outcomes)
        return going

    def _note(self, group: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
        """Into the second record, before anybody hears of it."""
        done = zip(group, outcomes, strict=True)
        self._redo.note(
            ((write.changes, results) for write, results in done if not isinstance(results, Exception)), full=self.full
        )

    def _take(self) -> tuple[list[Write], bool]:
        """Everything that waits now, at least one write; and whether there will be more."""
        write = self._queue.get()
        group: list[Write] = []
        while write is not None:
            group.append(write)
            if len(group) == GROUP_MAX:
                return group, True
            try:
                write = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _commit(self, writes: Sequence[Sequence[Change]]) -> list[Outcome]:
        """Apply the writes in one transaction, if the store is sound."""
        if self.broken is not None:
            return [_again(self.broken) for _ in writes]
        if self.full and self._ballast.make():
            self.full = False
        return self._attempt(writes)

    def _attempt(self, writes: Sequence[Sequence[Change]]) -> list[Outcome]:
        refused = [self.full and _is_submit(changes) for changes in writes]
        kept = [changes for changes, no in zip(writes, refused, strict=True) if not no]
        try:
            outcomes = iter(apply_group(self._connection, kept) if kept else [])
        except sqlite3.Error as error:
            return self._on_error(error, writes)
        self._commits += 1
        return [refuse_full(self._path.parent) if no else next(outcomes) for no in refused]

    def _on_error(self, error: sqlite3.Error, writes: Sequence[Sequence[Change]]) -> list[Outcome]:
        """The transaction failed as a whole, and nothing of it was applied."""
        fault = find_fault(error)
        if fault is Fault.UNSURE:
            fault = Fault.IO if has_room(self._path.parent) else Fault.FULL
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if fault is Fault.FULL:
                return self._on_full(writes)
        except sqlite3.Error as second:
            return self._break(Fault.IO, second, len(writes))
        if fault is Fault.BUSY:
            return [explain(fault, self._path, error) for _ in writes]
        return self._break(fault, error, len(writes))

    def _on_full(self, writes: Sequence[Sequence[Change]]) -> list[Outcome]:
        """Once more, without the submits, in the room that the ballast took."""
        released = self._ballast.release()
        self.full = True
        # A huge transaction that did not fit has left its pages in the log, and the disk full of them.
        try:
            write_checkpoint(self._connection, "TRUNCATE")
        except sqlite3.Error as error:
            if find_fault(error) not in {Fault.FULL, Fault.UNSURE}:
                raise
        if released:
            return self._attempt(writes)
        return [refuse_full(self._path.parent) for _ in writes]

    def _break(self, fault: Fault, error: Exception, count: int) -> list[Outcome]:
        """Acknowledge nothing more: after a failed fsync nobody knows what is on the disk, and asking again lies."""
        self.broken = explain(fault, self._path, error)
        return [_again(self.broken) for _ in range(count)]

    def _checkpoint(self) -> None:
        """Keep the log short, after everybody was answered."""
        rows = self._connection.total_changes - self._rows_at_checkpoint + 4 * self._commits
        if self.broken is not None or rows < (ROWS_PER_CHECKPOINT_FULL if self.full else ROWS_PER_CHECKPOINT):
            return
        self._rows_at_checkpoint = self._connection.total_changes
        self._commits = 0
        try:
            write_checkpoint(self._connection)
        except sqlite3.Error as error:
            self._on_error(error, [])


def _is_submit(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, InsertJobs) for change in changes)


def _again(broken: StoreBroken) -> StoreBroken:
    """The same error for one more caller: a shared one would collect everybody's traceback."""
    return StoreBroken(broken.kind, broken.message, broken.hint)


def _send_answers(group: Sequence[Write], outcomes: Sequence[Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop | None, list[tuple[Write, Outcome]]] = {}
    for write, outcome in zip(group, outcomes, strict=True):
        by_loop.setdefault(write.loop, []).append((write, outcome))
    for loop, answers in by_loop.items():
        if loop is None:
            _settle(answers)
        else:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
                loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: Sequence[tuple[Write, Outcome]]) -> None:
    for write, outcome in answers:
        if write.answer.done():
            continue  # the caller was cancelled; what it asked for is done all the same
        if isinstance(outcome, Exception):
            write.answer.set_exception(outcome)
        else:
            write.answer.set_result(outcome)
