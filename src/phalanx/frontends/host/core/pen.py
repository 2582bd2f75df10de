"""The one way to write something down, and to tell whoever follows that it happened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from phalanx.frontends.host.core.attempt_phases import OnDisk, written_as
from phalanx.frontends.host.core.errands import Errands
from phalanx.frontends.host.core.jobs import Live
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.messages import Happening
from phalanx.frontends.host.store import (
    AddEvents,
    Change,
    EventRecord,
    PutRun,
    RunRecord,
    StoreBroken,
    StoreFull,
)

log = logging.getLogger("phalanx")

#: What the row of an attempt says of it; whether it is unwanted stands beside.
ROW_STATES: Final = {
    OnDisk.STARTING: "starting",
    OnDisk.REGRETTED: "starting",
    OnDisk.RUNNING: "running",
    OnDisk.STOPPING: "stopping",
}

Fact = tuple[int, str, dict[str, Any]]  # job, event, data


@dataclass(slots=True)
class Pen:
    """One daemon's."""

    known: Knowledge
    errands: Errands
    boot_id: str
    listeners: list[Callable[[Happening], None]] = field(default_factory=list)
    _queue: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while somebody waits for room on the disk

    async def commit(self, *changes: Change, facts: Sequence[Fact] = ()) -> None:
        """Write changes and what happened in one transaction; durable when this returns."""
        if not facts:
            await self._write(*changes)
            return
        now_us, wall = self.known.now_us(), self.known.clock.wall_s()
        records = [EventRecord(job, event, now_us, wall, msgspec.json.encode(data)) for job, event, data in facts]
        results = await self._write(*changes, AddEvents(records))
        seqs = results[-1]
        assert isinstance(seqs, list)
        for seq, (job, event, data) in zip(seqs, facts, strict=True):
            self._publish(Happening(seq, self.known.iso(wall), job, event, data))

    async def _write(self, *changes: Change) -> list[object]:
        """A full disk is waited for: what happened to processes has happened, and must be written down."""
        if not self._queue.locked():
            try:
                return await self._write_once(*changes)
            except StoreFull:
                log.warning("the disk is full: what happened cannot be written down yet; make room")
        async with self._queue:  # one after the other, or what happened first would be written over what happened last
            while True:
                try:
                    return await self._write_once(*changes)
                except StoreFull:
                    await self.known.clock.sleep(1.0)

    async def _write_once(self, *changes: Change) -> list[object]:
        try:
            return await self.known.store.write(*changes)
        except StoreBroken as broken:
            self.errands.stop_broken(broken)
            raise

    def _publish(self, happening: Happening) -> None:
        for listener in list(self.listeners):
            listener(happening)

    def put_run(self, live: Live, **intent: Any) -> PutRun:
        """The row of an attempt as it stands now."""
        members = [
            {
                "key": m.key,
                "role": m.role,
                "rank": m.rank,
                # By name: numbers shift when a device is missing, or cut anew, at the next start.
                "devices": [(self.known.devices[device].uuid, milli) for device, milli in m.devices],
                "pid": m.pid,
                "start": m.start,
                "leaving": m.leaving,
                "joined": m.joined,
            }
            for m in live.members.values()
            if not (m.exited and m.leaving)
        ]
        kept = {key: value for key, value in intent.items() if value is not None}
        if live.purpose is not None:
            kept |= {"purpose": live.purpose, "by": live.by, "failure": live.failure}
        return PutRun(
            RunRecord(
                run=live.run,
                job=live.job,
                attempt=live.attempt,
                generation=live.generation,
                state=ROW_STATES[written_as(live.phase)],
                boot_id=self.boot_id,
                devices=msgspec.json.encode(members),
                members=None if live.started_us is None else msgspec.json.encode({"started_us": live.started_us}),
                intent=msgspec.json.encode(kept) if kept else None,
            )
        )
