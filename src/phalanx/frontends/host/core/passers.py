"""Who will pass a waiting job, and by which rule, in the words of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.control.gates import OPENED_BY_OTHERS
from phalanx.control.passing import Overtaking, PassedBy
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.rows import Rows
from phalanx.frontends.host.messages import Passing


class Passers:
    """Says who passes whom."""

    def __init__(self, known: Knowledge, rows: Rows) -> None:
        """Knows nothing of its own."""
        self.known, self.rows = known, rows

    def find(self, job: Job, starts: Mapping[int, int], ahead: Iterable[int]) -> tuple[list[Passing], Passing | None]:
        """Who will pass a job, and who fills before it by right.

        `starts`: those expected before its own, with when; `ahead`: those whose turn comes before its turn.
        """
        others = ((each, self.known.register.by_number.get(each)) for each in starts)
        gated = {each: bool(job.gates & OPENED_BY_OTHERS) for each, job in others if job is not None and job.gates}
        alive = {each: at_us for each, at_us in starts.items() if each in self.known.register.by_number}
        passing, first = Overtaking(self.rows.scene()).find(job.number, alive, ahead, gated)
        return [self._say(each) for each in passing], None if first is None else self._say(first)

    def _say(self, found: PassedBy) -> Passing:
        by_number = self.known.register.by_number
        return Passing([by_number[each].id for each in found.gangs], found.rule, found.message)
