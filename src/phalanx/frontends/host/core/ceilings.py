"""How many jobs of one person run at once: `max_running_per_user`, and `max_running` of a person.

Kept before every plan, so that changed settings hold from the first pass of a new daemon. Whoever would be one too many
has no turn; of those who wait as many have one as may still start, by priority and then by age
(`control.gates.let_in`, by which a look ahead goes as well). The engine counts what people hold, not how many jobs, so
this stands outside of it, as the limit of an array does.
"""

from __future__ import annotations

from phalanx.control.gates import GATE_RUNNING, let_in
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge


class Ceilings:
    """Opens and closes the gates of those who would be too many."""

    def __init__(self, known: Knowledge, admission: Admission) -> None:
        """Works by the settings, whatever was decided before."""
        self.known = known
        self.admission = admission
        bounds = [
            self.known.settings.max_running_per_user,
            *(each.max_running for each in self.known.settings.user_bounds.values()),
        ]
        self.any = any(bound is not None for bound in bounds)

    def keep(self) -> None:
        """Let as many of everybody have their turn as may still start."""
        if not self.any:
            return
        running: dict[str, int] = {}
        waiting: dict[str, list[Job]] = {}
        for job in self.known.register:
            if is_up(job):
                running[job.user] = running.get(job.user, 0) + 1
            elif not job.ended:
                waiting.setdefault(job.user, []).append(job)
        for user, jobs in waiting.items():
            most = self.known.settings.running_max(user)
            self._let_in(jobs, None if most is None else most - running.get(user, 0))

    def _let_in(self, jobs: list[Job], room: int | None) -> None:
        # Whoever is kept back by something else takes nobody's place.
        for job, may in let_in(((job, job.id, job.gang) for job in jobs if job.gates <= {GATE_RUNNING}), room):
            if may and GATE_RUNNING in job.gates:
                self.admission.open_gate(job, GATE_RUNNING)
            elif not may and GATE_RUNNING not in job.gates:
                self.admission.close_gate(job, GATE_RUNNING)


def is_up(job: Job) -> bool:
    """Whether it has seats, or processes that are not gone yet."""
    return not job.ended and (job.live is not None or job.next is not None)
