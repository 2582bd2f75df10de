"""Everything about one job, as far as whoever asks may see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from phalanx.frontends.host.core.jobs import Job, Live
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.reports import open_ledger, sum_up
from phalanx.frontends.host.core.rows import Rows, may_read
from phalanx.frontends.host.core.whys import Whys
from phalanx.frontends.host.messages import Detail, JobWishes, MemberRow, Run
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.store import JobRecord

HISTORY_MOST: Final = 500
_RUN = msgspec.json.Decoder(Run)
_SILENT: Final = ("lines", "why")  # of a failure: what its members wrote, or may have written


class Details:
    """Answers `show`."""

    def __init__(self, known: Knowledge, rows: Rows, whys: Whys) -> None:
        """Knows nothing of its own."""
        self.known = known
        self.rows, self.whys = rows, whys

    async def detail(self, job: Job, caller: Caller | None) -> Detail:
        """Others see a job without its command, its directory, its environment and what it wrote."""
        reads = may_read(caller, job.uid)
        (row,) = await self.rows.rows([job], with_eta=True, caller=caller)
        if job.state == "pending":  # the sentence of `why`: two of one blocker read like two blockers
            row = msgspec.structs.replace(row, reason=self.whys.reason(job))
        record = self.known.store.job(job.id)
        gang: dict[str, Any] = msgspec.json.decode(record.gang) if record is not None else {}
        run = self._read_run(job) if reads else None
        live = job.live or job.next
        return Detail(
            job=row,
            gang=gang,
            command=None if run is None else run.command,
            cwd=None if run is None else run.cwd,
            env=None if run is None else run.env,
            members=[] if live is None else self._members(live),
            attempts=job.attempt,
            history=self.whys.story(job.id, HISTORY_MOST, reads=reads),
            failure=_failure(job, reads=reads),
            ledger_gpu_s=sum_up(job.ledger, open_ledger(job, self.known.now_us())),
            run_dir=str(self.known.runs / f"{job.id}.{job.attempt}") if reads and job.attempt else None,
            asked=self._asked(job, gang, record),
        )

    def _asked(self, job: Job, tree: Mapping[str, Any], record: JobRecord | None) -> JobWishes:
        """In one place what stands in the gang, in how it is run and in the submission."""
        gang = job.gang
        options: Mapping[str, Any] = msgspec.json.decode(record.options) if record and record.options else {}
        walltime_s = None if gang.walltime_us is None else gang.walltime_us / 1e6
        topology = tree.get("topology")
        return JobWishes(
            time_s=None if job.predicted else walltime_s,
            time_guessed_s=walltime_s if job.predicted else None,
            kill_after_s=None if gang.kill_after_us is None else gang.kill_after_us / 1e6,
            warn="" if job.warning is None else f"{job.warning[0]} {job.warning[1]:g} s before",
            deadline="" if gang.deadline_us is None else self.known.iso_at(job.submit_us + gang.deadline_us),
            begin="" if job.begin_us is None else self.known.iso_at(job.begin_us),
            after=[int(name) for name in gang.after.names if name.isdecimal()],
            after_any=gang.after.any_end,
            restarts=int(options.get("restarts", 0)),
            restarts_left=job.restarts_left,
            grace_s=job.grace_s,
            progress_regex=job.regex,
            preemptible=gang.preemptible,
            requeue=job.on_preempt == "requeue",
            singleton=job.singleton,
            topology=dict(topology) if isinstance(topology, Mapping) else {},
        )

    def _read_run(self, job: Job) -> Run | None:
        try:
            return _RUN.decode(self.known.store.load_run(job.id))
        except (LookupError, msgspec.DecodeError):
            return None

    def _members(self, live: Live) -> list[MemberRow]:
        uuids = [device.uuid for device in self.known.devices]
        members = sorted(live.members.values(), key=lambda member: (member.exited and member.leaving, member.rank))
        return [
            MemberRow(
                rank=member.rank,
                role=member.role,
                devices=[uuids[device] for device, _ in member.devices],
                pid=member.pid,
                exit_code=member.code,
                signal=member.signal,
            )
            for member in members
        ]


def _failure(job: Job, *, reads: bool) -> dict[str, Any] | None:
    if job.failure is None or reads:
        return job.failure
    return {key: value for key, value in job.failure.items() if key not in _SILENT}
