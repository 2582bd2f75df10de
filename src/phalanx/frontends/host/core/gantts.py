"""Who sat, sits and will sit on which device: past, present and forecast on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from phalanx.control.look_ahead import Outlook
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.rows import seated
from phalanx.frontends.host.store import EventRecord, JobRecord

#: Jobs whose past is drawn: more than a screen can show.
PAST_MOST: Final = 500
BARS_MOST: Final = 10_000
_ENDS: Final = frozenset({"gone", "restart", "complete", "fail", "cancel"})

Bar = dict[str, Any]


class Gantts:
    """Draws bars, one for each device that somebody has for a while."""

    def __init__(self, known: Knowledge, forecaster: Forecaster) -> None:
        """Knows nothing of its own."""
        self.known = known
        self.forecaster = forecaster
        self._index_by_uuid = {device.uuid: device.index for device in self.known.devices}

    async def gantt(self, past_s: float) -> dict[str, Any]:
        """Bars from so long ago up to what is expected."""
        seen = await self.forecaster.outlook()
        now_us = self.known.now_us()
        since_us = max(0, now_us - round(past_s * 1e6))
        bars = [*self._past(since_us), *self._present(since_us, seen), *self._future(seen, now_us)]
        return {
            "now": self.known.iso(self.known.clock.wall_s()),
            "devices": [
                {"index": each.index, "uuid": each.uuid, "model": each.model, "island": each.island}
                for each in self.known.devices
            ],
            "bars": bars[:BARS_MOST],
        }

    # ------------------------------------------------------------------ past

    def _past(self, since_us: int) -> Iterator[Bar]:
        store = self.known.store
        ended = store.ended(since_us, limit=PAST_MOST)
        alive = [job for job in self.known.register if not job.ended and job.attempt]
        jobs: list[Job | JobRecord] = [*reversed(ended), *alive[-PAST_MOST:]]
        for job in jobs:
            for attempt in read_attempts(store.events(job=job.id)):
                start_us, end_us, devices = attempt
                if end_us >= since_us:
                    yield from self._bars(job, devices, max(start_us, since_us), end_us, "past")

    # ------------------------------------------------------------------ present and future

    def _present(self, since_us: int, seen: Outlook) -> Iterator[Bar]:
        """What runs, up to its expected end."""
        ends = {stay.gang: stay.end_us for stay in seen.stays if not stay.fresh}
        for job in self.known.register:
            live = job.live
            if live is not None and live.started_us is not None:
                devices = sorted({device for member in seated(live) for device, _ in member.devices})
                yield from self._bars(job, devices, max(live.started_us, since_us), ends.get(job.number), "running")

    def _future(self, seen: Outlook, now_us: int) -> Iterator[Bar]:
        by_number = self.known.register.by_number
        for stay in seen.stays:
            job = by_number.get(stay.gang)
            over = stay.end_us is not None and stay.end_us <= now_us
            if stay.fresh and job is not None and not job.ended and job.live is None and not over:
                devices = [device for _, device in stay.list_devices()]  # there is one node
                yield from self._bars(job, devices, max(stay.start_us, now_us), stay.end_us, "forecast")

    def _bars(
        self, job: Job | JobRecord, devices: Iterable[int | str], start_us: int, end_us: int | None, kind: str
    ) -> Iterator[Bar]:
        start = self.known.iso_at(start_us)
        end = None if end_us is None else self.known.iso_at(end_us)
        for device in devices:
            index = self._index_by_uuid.get(device) if isinstance(device, str) else device
            if index is not None:  # a device that was taken out of the machine has no row any more
                yield {
                    "job": job.id,
                    "name": job.name,
                    "user": job.user,
                    "device": index,
                    "start": start,
                    "end": end,
                    "kind": kind,
                }


def read_attempts(events: Iterable[EventRecord]) -> Iterator[tuple[int, int, list[str]]]:
    """Attempts that are over, as the log of events tells them: start, end, devices."""
    devices: list[str] = []
    start_us: int | None = None
    for event in events:
        if event.event == "bind":
            devices, start_us = list(msgspec.json.decode(event.data).get("devices", ())), None
        elif event.event == "start":
            start_us = event.at_us
        elif event.event in _ENDS and start_us is not None:
            yield start_us, event.at_us, devices
            start_us = None
