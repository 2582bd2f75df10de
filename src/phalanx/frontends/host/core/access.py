"""Which job a caller means, and whether it is theirs: the one place where every verb asks."""

from __future__ import annotations

import msgspec

from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.hub import Hub
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import JobRecord


class Access:
    """Jobs by what people call them: those in memory, then those that are only on disk."""

    def __init__(self, hub: Hub, admission: Admission) -> None:
        """Works on the parts of one core."""
        self.hub, self.admission = hub, admission

    def find(self, caller: Caller, ref: str) -> Job:
        """A job that anybody may know of; refuses if there is none."""
        self.admission.drain()
        job = self.hub.register.find(ref, caller)
        if job is not None:
            return job
        record = self.hub.store.job(int(ref)) if ref.isdecimal() and len(ref) < 19 else None
        if record is not None:
            return self._read_ended(record)
        raise Refused(
            "not_found",
            f"there is no job {ref!r}",
            "look at them: phalanx ps -a, or with those that ended: --finished",
        )

    def find_own(self, caller: Caller, ref: str) -> Job:
        """A job that the caller may act on, or read all of."""
        job = self.find(caller, ref)
        if not caller.may_act_on(job.uid):
            raise Refused(
                "forbidden", f"job {job.id} belongs to {job.user}", "ask them, or an administrator of this machine"
            )
        return job

    def _read_ended(self, record: JobRecord) -> Job:
        """A job that ended long ago, as it was."""
        job = self.admission.make(record, self.hub.intake.read_gang(record.gang))
        job.end_us, job.end_wall, job.exit_code = record.end_us, record.end_wall, record.exit_code
        job.failure = msgspec.json.decode(record.failure) if record.failure else None
        told = msgspec.json.decode(record.reason) if record.reason else None
        job.reason = None if told is None else (told[0], told[1])
        job.progress = msgspec.json.decode(record.progress) if record.progress else None
        job.ledger = msgspec.json.decode(record.ledger) if record.ledger else {}
        return job
