"""What a daemon does now and then: remember, back up, forget."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import msgspec

from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.store import PutMeta, StoreBroken, StoreFull

#: What is worth remembering beside jobs is written so often.
MEMORY_EVERY_US: Final = 60_000_000
BACKUP_EVERY_US: Final = 3_600_000_000
_RUN_NAME: Final = re.compile(r"[0-9]{1,18}\.[0-9]{1,9}")


class Housekeeping:
    """Timers that set themselves again."""

    def __init__(self, means: Means) -> None:
        """Nothing is due yet."""
        self.known, self.errands, self.processes = means.known, means.errands, means.processes

    def begin(self) -> None:
        """From now on."""
        now_us = self.known.now_us()
        self.errands.agenda.at(now_us + MEMORY_EVERY_US, self._remember)
        self.errands.agenda.at(now_us + BACKUP_EVERY_US, self._back_up)

    def _remember(self) -> None:
        self.errands.agenda.at(self.known.now_us() + MEMORY_EVERY_US, self._remember)
        self.errands.spawn(self.remember())

    async def remember(self) -> None:
        """What a later daemon needs beside jobs: the clock, and what queues used."""
        mark = getattr(self.known.clock, "mark", None)
        decayed = self.known.planner.state.tenants.tell_decayed()
        changes = [PutMeta("decayed", msgspec.json.encode(decayed))]
        if mark is not None:
            changes.append(PutMeta("clock", msgspec.json.encode(mark())))
        try:
            await self.known.store.write(*changes)
        except StoreFull:
            log.info("the disk is full; what is worth remembering is written the next time")
        except StoreBroken as broken:
            self.errands.stop_broken(broken)

    async def finish(self) -> None:
        """The last that a daemon writes. What there is no room for now was written a minute, or an hour, ago."""
        await self.remember()
        try:
            await asyncio.to_thread(self.known.store.backup)
        except (StoreFull, StoreBroken) as bad:
            log.warning("no backup was made at the end: %s", bad)

    def recall(self) -> None:
        """What queues used, as far as it was written down and their kinds are the same."""
        told = self.known.store.meta("decayed")
        if told is None:
            return
        self.known.planner.state.tenants.recall_decayed(msgspec.json.decode(told))

    def _back_up(self) -> None:
        self.errands.agenda.at(self.known.now_us() + BACKUP_EVERY_US, self._back_up)
        self.errands.spawn(self._keep_house())

    async def _keep_house(self) -> None:
        keep_us = self.known.settings.retention_days * 86_400_000_000
        try:
            await asyncio.to_thread(self.known.store.backup)
        except (StoreFull, StoreBroken) as bad:
            log.warning("no backup was made: %s", bad)
        try:
            await asyncio.to_thread(self.known.store.prune, self.known.now_us(), keep_us, keep_us)
        except StoreFull:
            log.info("the disk is full; what is old enough is forgotten the next time")
        await self._discard_old_runs()

    async def _discard_old_runs(self) -> None:
        """Logs of jobs that are forgotten go with them."""
        for name in await asyncio.to_thread(_list_names, self.known.runs):
            job = int(name.partition(".")[0])
            if job not in self.known.register.by_id and self.known.store.job(job) is None:
                try:
                    await self.processes.launcher.discard(name)
                except (OSError, TimeoutError) as bad:
                    log.warning("run %s could not be removed: %s", name, bad)


def _list_names(runs: Path) -> list[str]:
    return [entry.name for entry in runs.iterdir() if _RUN_NAME.fullmatch(entry.name)]
