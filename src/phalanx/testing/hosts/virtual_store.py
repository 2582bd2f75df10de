"""The real SQL over a database in memory, with a disk whose time is virtual.

Only the thread is not there: a write waits for its turn, as in the real store, and is on disk some
virtual time later, together with whoever waited by then. When the daemon is killed, some of what
waited has been written and the rest has not, in order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.frontends.host.store import Store, StoreBroken, schema
from phalanx.frontends.host.store.applying import apply_group
from phalanx.frontends.host.store.faults import refuse_full
from phalanx.frontends.host.store.store import Answer
from phalanx.frontends.host.store.stored_rows import Change, InsertJobs
from phalanx.testing.hosts.virtual_loop import VirtualLoop

Watcher = Callable[[Sequence[Change]], None]


@dataclass(slots=True)
class _Health:
    """What the store asks of its writer."""

    full: bool = False
    brimful: bool = False  # not even room for what happened
    broken: StoreBroken | None = None


@dataclass(slots=True)
class _Write:
    changes: Sequence[Change]
    answer: Callable[[list[object] | Exception], None] = field(repr=False)


class VirtualStore(Store):
    """A store without a thread and without files."""

    def __init__(self, loop: VirtualLoop, context: Context, delay_us: Callable[[], int] = lambda: 0) -> None:
        """`context`: of the world, so that what is under way outlives a daemon."""
        self._loop, self._context, self._delay_us = loop, context, delay_us
        self._path = Path("phalanx.db")
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        schema.migrate(self._database)
        self._health = self._writer = _Health()  # type: ignore[assignment]
        self.restored = None
        self.watchers: list[Watcher] = []
        self.commits = 0
        self._waiting: list[_Write] = []
        self._busy = False

    async def write(self, *changes: Change) -> list[object]:
        """Apply the changes in one transaction; on disk when it returns."""
        future = self._loop.create_future()

        def answer(outcome: list[object] | Exception) -> None:
            if future.done():
                return  # whoever waited was cancelled; that undoes nothing
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self._waiting.append(_Write(changes, answer))
        if not self._busy:
            self._busy = True
            self._loop.call_ranked(self._loop.now_us + self._delay_us(), 0, self._commit, context=self._context)
        found: list[object] = await future
        return found

    def write_now(self, *changes: Change) -> list[object]:
        """The same, at once."""
        (outcome,) = self._apply([changes])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _commit(self) -> None:
        group, self._waiting, self._busy = self._waiting, [], False
        outcomes = self._apply([write.changes for write in group])
        for write, outcome in zip(group, outcomes, strict=True):
            write.answer(outcome)

    def _apply(self, writes: list[Sequence[Change]]) -> list[list[object] | Exception]:
        if self._health.broken is not None:
            return [self._health.broken for _ in writes]
        refused = [self._is_refused(changes) for changes in writes]
        kept = [changes for changes, no in zip(writes, refused, strict=True) if not no]
        outcomes = iter(apply_group(self._database, kept) if kept else [])
        self.commits += bool(kept)
        found = [refuse_full(self._path) if no else next(outcomes) for no in refused]
        for changes, outcome in zip(writes, found, strict=True):
            if not isinstance(outcome, Exception):
                for watcher in self.watchers:
                    watcher(changes)
        return found

    def _is_refused(self, changes: Sequence[Change]) -> bool:
        """Submits go first when the disk is full; the rest has the ballast's room, until that is used up too."""
        submits = any(isinstance(change, InsertJobs) for change in changes)
        return self._health.brimful or (self._health.full and submits)

    def _read(self, query: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        return query(self._database, *arguments, **options)

    # ------------------------------------------------------------------ what a test does to it

    def lose_daemon(self, kept: Callable[[int], int]) -> None:
        """The process is gone: of so many writes that waited, the first few are on disk."""
        waiting, self._waiting, self._busy = self._waiting, [], False
        count = kept(len(waiting))
        if count and self._health.broken is None:
            self._apply([write.changes for write in waiting[:count]])
        self._health.broken = None

    def set_full(self, *, full: bool, brimful: bool = False) -> None:
        """The disk is full, or has room again."""
        self._health.full, self._health.brimful = full, full and brimful

    def break_down(self) -> None:
        """An fsync failed: nothing is promised from now on."""
        self._health.broken = StoreBroken("io", "the disk failed", "restart the daemon")

    def backup(self) -> Path:
        """There is nothing to lose here."""
        return self._path

    async def close(self) -> None:
        """It stays, as a disk does."""

    def close_now(self) -> None:
        """The test is over."""
        self._database.close()
