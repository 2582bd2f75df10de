"""Progress of jobs that only print it: their log, read with the pattern that they gave."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.hub import Hub
from phalanx.frontends.host.core.jobs import Job, Live
from phalanx.frontends.host.launching.logs import read_log

READ_EVERY_S: Final = 5.0
_PIECE: Final = 256 * 1024
_LINE_MOST: Final = 2000


class Reading:
    """Looks into the logs of running jobs that asked for it."""

    def __init__(self, hub: Hub, books: Books) -> None:
        """Nothing was read yet."""
        self.hub, self.books = hub, books
        self._offsets: dict[str, int] = {}

    async def run(self) -> None:
        """For as long as the daemon lives."""
        while True:
            await self.hub.clock.sleep(READ_EVERY_S)
            for job in [job for job in self.hub.register if job.regex and job.live is not None]:
                assert job.live is not None
                await self._read(job, job.live)

    async def _read(self, job: Job, live: Live) -> None:
        offset = self._offsets.get(live.run, 0)
        path = self.hub.runs / live.run
        data, following, _ = await asyncio.to_thread(read_log, path, 0, offset, _PIECE, None)
        whole = data.rfind(b"\n") + 1
        self._offsets[live.run] = following - (len(data) - whole)
        told = find_progress(job.regex, data[:whole].decode("utf-8", "replace"))
        if told is not None and job.live is live:
            self.books.note_status(job, live, told)
        if job.live is not live:
            self._offsets.pop(live.run, None)


def find_progress(pattern: str, text: str) -> dict[str, float] | None:
    """The last line that tells of a step, and of a total if it does. Long lines are no progress."""
    compiled = re.compile(pattern)
    for line in reversed(text.splitlines()):
        found = compiled.search(line) if len(line) <= _LINE_MOST else None
        if found is None:
            continue
        try:
            told = {"step": float(found["step"])}
            if "total" in compiled.groupindex and found["total"]:
                told["total"] = float(found["total"])
        except (TypeError, ValueError):
            continue
        return told
    return None
