"""Progress of jobs that only print it: their log, read with the pattern that they gave."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.jobs import Job, Live
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.launching.log_reading import read_log

READ_EVERY_S: Final = 5.0
MATCH_WITHIN_S: Final = 2.0
_PIECE: Final = 128 * 1024


class TooSlow(Exception):  # noqa: N818 - what happened
    """A pattern that takes longer than anybody wants to wait."""


class Matcher:
    """The process that matches, started when it is needed."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._process: asyncio.subprocess.Process | None = None

    async def find(self, pattern: str, text: str) -> dict[str, Any] | None:
        """What the pattern finds in the text; raises TooSlow."""
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", "phalanx.frontends.host.matching"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=1 << 16,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(MATCH_WITHIN_S):
                process.stdin.write(json.dumps({"pattern": pattern, "text": text}).encode() + b"\n")
                await process.stdin.drain()
                answer = await process.stdout.readline()
        except (TimeoutError, OSError):
            self.close()
            raise TooSlow from None
        if not answer:  # it died of the pattern
            self.close()
            raise TooSlow
        found = json.loads(answer)
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """No more of this one."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None


class ProgressReader:
    """Looks into the logs of running jobs that asked for it."""

    def __init__(self, known: Knowledge, books: Books) -> None:
        """Nothing was read yet."""
        self.known = known
        self.books, self._matcher = books, Matcher()
        self._offsets: dict[str, int] = {}

    async def run(self) -> None:
        """For as long as the daemon lives."""
        try:
            while True:
                await self.known.clock.sleep(READ_EVERY_S)
                for job in [job for job in self.known.register if job.regex and job.live is not None]:
                    await self._try(job)
        finally:
            self._matcher.close()

    async def _try(self, job: Job) -> None:
        """One job's mistake is not another's."""
        try:
            if job.live is not None:
                await self._read(job, job.live)
        except TooSlow:
            job.regex = ""
            log.warning("job %d: its progress regex takes too long and is not used any more", job.id)
        except Exception:  # noqa: BLE001 - a reading that ends would end for everybody
            log.exception("job %d: its progress could not be read", job.id)

    async def _read(self, job: Job, live: Live) -> None:
        offset = self._offsets.get(live.run, 0)
        path = self.known.runs / live.run
        data, following, _ = await asyncio.to_thread(read_log, path, 0, offset, _PIECE, None)
        whole = data.rfind(b"\n") + 1
        self._offsets[live.run] = following - (len(data) - whole)
        told = await self._matcher.find(job.regex, data[:whole].decode("utf-8", "replace")) if whole else None
        if told is not None and job.live is live:
            self.books.note_status(job, live, told)
        if job.live is not live:
            self._offsets.pop(live.run, None)
