"""Which job a caller means, and whether it is theirs: the one place where every verb asks."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.control.spec.errors import show
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.jobs import Job, choose_elements, refuse_several
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.reading_back import read_ended
from phalanx.frontends.host.core.refs import ArrayElements, IdRange, read_ref, tell_ids
from phalanx.frontends.host.messages import RefusedRef
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import JobRecord

#: Jobs on disk that are looked at for one word.
_LOOKED_UP_MOST = 10_000


class Access:
    """Jobs by what people call them: those in memory, then those that are only on disk."""

    def __init__(self, known: Knowledge, admission: Admission) -> None:
        """Works on the parts of one core."""
        self.known = known
        self.admission = admission

    def find(self, caller: Caller, ref: str) -> Job:
        """A job that anybody may know of; refuses if there is none, or if several are meant."""
        self.admission.drain()
        found = self._find_all(caller, ref)
        if len(found) > 1:
            refuse_several(ref, found)
        return found[0]

    def find_own(self, caller: Caller, ref: str) -> Job:
        """A job that the caller may act on, or read all of."""
        return self._check_own(caller, self.find(caller, ref))

    def find_each(self, caller: Caller, refs: Sequence[str]) -> tuple[list[tuple[str, Job]], list[RefusedRef]]:
        """All jobs that these words mean, each once and under the word that named it; what is refused beside them.

        Of several under one word those that have ended are left out: whoever cancels an array means the rest of it.
        """
        self.admission.drain()
        found: dict[int, tuple[str, Job]] = {}
        refused = []
        for ref in refs:
            try:
                jobs = self._find_all(caller, ref)
                self._check_newest(caller, ref, jobs)
                jobs = [job for job in jobs if not job.ended] or jobs
                for job in jobs if len(jobs) == 1 else [job for job in jobs if caller.may_act_on(job.uid)] or jobs:
                    self._check_own(caller, job)
                    found.setdefault(job.id, (ref, job))
            except Refused as no:
                refused.append(RefusedRef(ref, no.refusal))
        return list(found.values()), refused

    def _check_newest(self, caller: Caller, ref: str, found: Sequence[Job]) -> None:
        """A name means its newest job: where only an older one can be meant, that is asked for and not guessed."""
        named = self.known.register.named(ref)
        older = sorted((job for job in named if not job.ended and caller.may_act_on(job.uid)), key=lambda job: -job.id)
        if not older or not all(job.ended for job in found):
            return
        ended = f"the newest {show(ref)} is job {found[-1].id}, which has ended: {found[-1].state}"
        ids = tell_ids(sorted(job.id for job in older))
        raise Refused("conflict", f"{ended}; of that name there is still {ids}", f"name it by its id: {older[0].id}")

    @staticmethod
    def _check_own(caller: Caller, job: Job) -> Job:
        if not caller.may_act_on(job.uid):
            raise Refused(
                "forbidden", f"job {job.id} belongs to {job.user}", "ask them, or an administrator of this machine"
            )
        return job

    def _find_all(self, caller: Caller, ref: str) -> list[Job]:
        """Jobs that a word means, in memory or on disk; refuses if there are none."""
        read = None if self.known.register.named(ref) else read_ref(ref)
        if isinstance(read, ArrayElements):
            found = self._find_elements(caller, read)
        else:
            found = self.known.register.find_all(ref, caller) or self._find_stored(caller, ref, read)
        if not found:
            raise Refused(
                "not_found",
                f"there is no job {ref!r}",
                "look at them: phalanx ps -a, or with those that ended: phalanx ps -a --finished",
            )
        return found

    def _find_stored(self, caller: Caller, ref: str, read: IdRange | None) -> list[Job]:
        """Jobs that ended long ago: by id, or the newest of a name among the caller's own, with its array."""
        store = self.known.store
        if isinstance(read, IdRange):
            ids = [number for part in read.ids for number in part][:_LOOKED_UP_MOST]
            records = [record for record in map(store.job, ids) if record is not None]
            return [self._read_ended(record) for record in records if caller.may_act_on(record.uid)]
        if ref.isdecimal():
            record = store.job(int(ref)) if len(ref) < 19 else None
            return [] if record is None else [self._read_ended(record)]
        newest = next(iter(store.ended(user=caller.user, name=ref, limit=1)), None)
        if newest is None:
            return []
        job = self._read_ended(newest)
        return [job] if job.array is None else self._find_elements(caller, ArrayElements(ref, frozenset()))

    def _find_elements(self, caller: Caller, wanted: ArrayElements) -> list[Job]:
        """Of the newest array of that word; those of its elements that ended long ago are on disk."""
        live = self.known.register.find_all(wanted.word, caller)
        found = {job.array.element: job for job in live if job.array is not None}
        if found and wanted.indices <= found.keys():
            return choose_elements(wanted, found.values())
        stored = self.known.store.ended(user=caller.user, name=wanted.word, limit=_LOOKED_UP_MOST)
        old = [job for job in map(self._read_ended, sorted(stored, key=lambda record: -record.id)) if job.array]
        keys = [job.array.key for job in (*found.values(), *old) if job.array is not None]
        for job in old:
            if job.array is not None and job.array.key == keys[0]:
                found.setdefault(job.array.element, job)
        return choose_elements(wanted, found.values()) if found else []

    def _read_ended(self, record: JobRecord) -> Job:
        return read_ended(self.known, self.admission, record)
