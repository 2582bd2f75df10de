"""Everything the daemon tells: one door to rows, details, whys, reports and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.frontends.host.core.details import Details
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.gantts import Gantts
from phalanx.frontends.host.core.intake import CheckedSubmission
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.processes import Processes
from phalanx.frontends.host.core.reports import Reports, Watched
from phalanx.frontends.host.core.rows import Rows
from phalanx.frontends.host.core.whys import Whys
from phalanx.frontends.host.messages import Accepted, Detail, NodeRow, QueueRow, Row, Why
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.service import Figures
from phalanx.frontends.host.store import JobRecord


class Telling:
    """Answers questions; changes nothing. `caller` None: the daemon itself asks and may read everything."""

    def __init__(self, known: Knowledge, processes: Processes, forecaster: Forecaster) -> None:
        """Nothing was asked yet."""
        self.rows_of = Rows(known, forecaster)
        self.whys = Whys(known, forecaster, self.rows_of)
        self.details = Details(known, self.rows_of, self.whys)
        self.reports = Reports(known, processes, self.rows_of)
        self.gantts = Gantts(known, forecaster)

    async def rows(self, jobs: Sequence[Job], *, with_eta: bool, caller: Caller | None = None) -> list[Row]:
        """Jobs as rows, in the order given."""
        return await self.rows_of.rows(jobs, with_eta=with_eta, caller=caller)

    def row_of_record(self, record: JobRecord, caller: Caller | None = None) -> Row:
        """The row of a job that is only on disk."""
        return self.rows_of.row_of_record(record, caller)

    async def detail(self, job: Job, caller: Caller | None) -> Detail:
        """Everything about a job that the caller may see."""
        return await self.details.detail(job, caller)

    async def why(self, job: Job, caller: Caller | None = None) -> Why:
        """Why a job is where it is."""
        return await self.whys.why(job, caller)

    async def try_out(self, caller: Caller, taken: CheckedSubmission) -> Accepted:
        """What would become of a job if it were submitted now."""
        return await self.whys.sooners.try_out(caller, taken)

    def queues(self) -> list[QueueRow]:
        """Rights and usage of every queue."""
        return self.reports.queues()

    def nodes(self, watched: Watched) -> list[NodeRow]:
        """The machine and its devices."""
        return self.reports.nodes(watched)

    def share(self, caller: Caller) -> dict[str, Any]:
        """How the caller stands."""
        return self.reports.share(caller)

    def report(self, caller: Caller | None, by: Sequence[str], since_s: float | None) -> dict[str, Any]:
        """Where the device time went."""
        return self.reports.report(caller, by, since_s)

    def report_eta(self) -> dict[str, Any]:
        """How good estimates were."""
        return self.reports.report_eta()

    async def gantt(self, past_s: float) -> dict[str, Any]:
        """Past, present and forecast."""
        return await self.gantts.gantt(past_s)

    def figures(self) -> Figures:
        """For /metrics."""
        return self.reports.figures()
