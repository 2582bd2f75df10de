"""A job from its row when a daemon starts; one that makes no sense any more costs no other job its daemon."""

from __future__ import annotations

from typing import Final

import msgspec

from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.jobs import LINGER_US, Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.pen import Pen
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.store import JobRecord, UpdateJob
from phalanx.model.gang import Gang

#: Of those that ended a short while ago so many are read.
RECENT_MOST: Final = 2000
_BLANK: Final = b'{"members":1,"each":{"gpu":1}}'


async def read_back(known: Knowledge, pen: Pen, admission: Admission, record: JobRecord) -> Job | None:
    """The job as it waits again; None if it could not be read, and then it has failed, and both is said.

    The store has looked at types and at JSON. What is left is JSON that says something that nobody could have
    submitted: a flipped bit in a word.
    """
    try:
        job = admission.make(record, _read_gang(known, record))
        job.ledger = dict(msgspec.json.decode(record.ledger)) if record.ledger else {}
        job.progress = msgspec.json.decode(record.progress) if record.progress else None
    except Exception as bad:  # noqa: BLE001 - whatever is wrong with one row, the others are read
        why = f"its record cannot be read any more: {bad}"
        log.error("job %d has failed: %s; submit it again", record.id, why)
        log.error("job %d was %.2000r with %.2000r", record.id, record.gang, record.options)
        failure = {"rank": None, "why": why}
        ended = UpdateJob(
            record.id,
            state="failed",
            gang=_BLANK,  # who asks about it later must be able to read it
            options=b"{}",
            end_us=known.now_us(),
            end_wall=known.clock.wall_s(),
            failure=msgspec.json.encode(failure),
            reason=msgspec.json.encode(("Failed", why)),
        )
        await pen.commit(ended, facts=[(record.id, "fail", failure)])
        return None
    job.state = "pending"
    return job


def read_ended(known: Knowledge, admission: Admission, record: JobRecord) -> Job:
    """A job that has ended, as it was."""
    job = admission.make(record, known.intake.read_gang(record.gang))
    job.end_us, job.end_wall, job.exit_code = record.end_us, record.end_wall, record.exit_code
    job.failure = msgspec.json.decode(record.failure) if record.failure else None
    told = msgspec.json.decode(record.reason) if record.reason else None
    job.reason = None if told is None else (told[0], told[1])
    job.progress = msgspec.json.decode(record.progress) if record.progress else None
    job.ledger = msgspec.json.decode(record.ledger) if record.ledger else {}
    return job


def read_recent(known: Knowledge, admission: Admission) -> list[Job]:
    """Jobs that ended so short a while ago that they are in memory still, in order of arrival."""
    found = []
    for record in known.store.ended(max(0, known.now_us() - LINGER_US), limit=RECENT_MOST):
        try:
            found.append(read_ended(known, admission, record))
        except Exception as bad:  # noqa: BLE001 - as above; of one that has ended nothing more is at stake
            log.info("job %d, which has ended, cannot be read any more: %s", record.id, bad)
    return sorted(found, key=lambda job: job.id)


def _read_gang(known: Knowledge, record: JobRecord) -> Gang:
    try:
        return known.intake.read_gang(record.gang)
    except Refused as bad:  # its queue is gone from the settings, for example
        log.error("job %d cannot be read any more: %s", record.id, bad)
        return known.intake.read_gang(_without_queue(record.gang))


def _without_queue(gang: bytes) -> bytes:
    tree = msgspec.json.decode(gang)
    tree.pop("queue", None)
    return msgspec.json.encode(tree)
