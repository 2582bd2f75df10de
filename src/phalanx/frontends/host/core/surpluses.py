"""How running elastic jobs stand where surplus is divided: what a date needs, what comes, who gets the next step."""

from __future__ import annotations

import asyncio
from typing import Final

from phalanx.control.forecasting.outlook import ForecastInput
from phalanx.control.resizes import say_surplus
from phalanx.engine.explain_surplus import Surplus, explain_surplus
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.messages import SurplusTold
from phalanx.words import moment

#: Waiting gangs that are looked at beside a job: those who start next, before whom nobody grows.
_BESIDE: Final = 20


class Surpluses:
    """Asks the engine about one job, beside the loop."""

    def __init__(self, known: Knowledge, forecaster: Forecaster) -> None:
        """Knows nothing of its own."""
        self.known = known
        self.forecaster = forecaster

    async def find(self, job: Job) -> SurplusTold | None:
        """How it stands; None if it takes no part."""
        live = job.live
        if live is None or live.purpose is not None or not job.gang.elastic or not self.known.planner.policy.grows:
            return None
        ground = self.forecaster.prepare({job.number}, _BESIDE)
        found = await asyncio.to_thread(self._ask, ground, job.number)
        return None if found is None else self._tell(job, found)

    def _ask(self, ground: ForecastInput, number: int) -> Surplus | None:
        """In another thread, on a copy."""
        return explain_surplus(ground.state.borrow(), self.known.planner.policy, number)

    def _tell(self, job: Job, found: Surplus) -> SurplusTold:
        by_number, step = self.known.register.by_number, found.next
        return SurplusTold(
            members=found.members,
            sentences=say_surplus(found, job.gang.members_max, self._name_of, self._moment),
            date=None if found.date_us is None else self.known.iso_at(found.date_us),
            needs=found.needs,
            coming=found.coming,
            next_members=None if step is None else step.members,
            next_saves_s=None if step is None else step.saves_us / 1e6,
            before=[] if step is None else [by_number[each].id for each in step.before if each in by_number],
        )

    def _name_of(self, number: int) -> str:
        other = self.known.register.by_number.get(number)
        return "another" if other is None else f"{other.id} ({other.name})"

    def _moment(self, at_us: int) -> str:
        return moment(self.known.wall_at(at_us), self.known.clock.wall_s())
