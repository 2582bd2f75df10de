"""A job from its row when a daemon starts; one that makes no sense any more costs no other job its daemon."""

from __future__ import annotations

from typing import Final

import msgspec

from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.hub import Hub, log
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.store import JobRecord, UpdateJob
from phalanx.model.gang import Gang

_BLANK: Final = b'{"members":1,"each":{"gpu":1}}'


async def read_back(hub: Hub, admission: Admission, record: JobRecord) -> Job | None:
    """The job as it waits again; None if it could not be read, and then it has failed, and both is said.

    The store has looked at types and at JSON. What is left is JSON that says something that nobody could have
    submitted: a flipped bit in a word.
    """
    try:
        job = admission.make(record, _read_gang(hub, record))
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
            end_us=hub.now_us(),
            end_wall=hub.clock.wall_s(),
            failure=msgspec.json.encode(failure),
            reason=msgspec.json.encode(("Failed", why)),
        )
        await hub.commit(ended, facts=[(record.id, "fail", failure)])
        return None
    job.state = "pending"
    return job


def _read_gang(hub: Hub, record: JobRecord) -> Gang:
    try:
        return hub.intake.read_gang(record.gang)
    except Refused as bad:  # its queue is gone from the settings, for example
        log.error("job %d cannot be read any more: %s", record.id, bad)
        return hub.intake.read_gang(_without_queue(record.gang))


def _without_queue(gang: bytes) -> bytes:
    tree = msgspec.json.decode(gang)
    tree.pop("queue", None)
    return msgspec.json.encode(tree)
