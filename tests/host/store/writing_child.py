"""Writes to a store for ever and says on standard output what was acknowledged: `cycle.client.number first_id`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from phalanx.frontends.host.store import AddEvents, EventRecord, InsertJobs, JobRecord, UpdateJob, open_store

JOBS_PER_WRITE = 3


class Clock:
    """Only asked for the names of backups, which this process does not make."""

    def wall_s(self) -> float:
        """Some time."""
        return 0.0


def make_job(name: str) -> JobRecord:
    """A job whose run blob needs pages of its own now and then."""
    blob = b'{"name":"%s"}' % (name.encode() * (1 + 97 * (sum(name.encode()) % 50)))
    return JobRecord(
        uid=1, gid=1, user="ada", name=name, queue="q", state="pending", gang=b"{}", options=b"{}", submit_us=0,
        submit_wall=0.0, run=blob,
    )  # fmt: skip


async def write_for_ever(directory: Path, cycle: int, clients: int) -> None:
    """Each client has one write under way at any time."""
    store = open_store(directory, clock=Clock())

    async def client(number: int) -> None:
        for count in range(10**9):
            key = f"{cycle}.{number}.{count}"
            jobs = [make_job(key) for _ in range(JOBS_PER_WRITE)]
            ids, *_ = await store.write(
                InsertJobs(1, key, jobs), AddEvents([EventRecord(None, key, count, 0.0, b"{}")])
            )
            os.write(1, f"{key} {ids[0]}\n".encode())
            await store.write(UpdateJob(ids[0], state="running"))
            os.write(1, f"{key} running\n".encode())

    await asyncio.gather(*(client(number) for number in range(clients)))


if __name__ == "__main__":
    asyncio.run(write_for_ever(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
