"""What anybody may ask of a state without knowing how it keeps things.

The reading half of the boundary: front ends and `explain` come through here, so that columns and rows can change
without anybody noticing. Numbers of gangs are for life; rows are not, and are never handed out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.control.records import Ghost, PlanRefusal
from phalanx.control.tables import Tables
from phalanx.engine.ends import expected_ends
from phalanx.engine.lifecycle import Phase
from phalanx.model.plan import DateVerdict
from phalanx.perfmodel.speedup import Linear, Speedup, Table, speedup_at


class Queries(Tables):
    """Questions about gangs by number."""

    def phase_of(self, number: int) -> Phase:
        """Where it stands."""
        return self.records[number].phase

    def start_of(self, number: int) -> int:
        """When a gang that holds seats began, or will."""
        return int(self.running.columns["start_us"][self.records[number].row])

    def end_of(self, number: int) -> int:
        """When a gang that holds seats ends by what was said of it; that may be over."""
        return self.start_of(number) + int(self.running.columns["length_us"][self.records[number].row])

    def expected_ends(self) -> dict[int, int]:
        """When running gangs are expected to end, by number; never in the past, whatever was said of them."""
        # The same reading as the engine's, overruns included (rule 7): what people are told is what was planned with.
        ends = expected_ends(self.borrow().running, self.now_us)
        return {number: int(ends[self.records[number].row]) for number in self.list_seated()}

    def eligible_of(self, number: int) -> int:
        """Since when it could have had its turn."""
        return self.records[number].eligible_us

    def attempts_of(self, number: int) -> int:
        """How often it has begun."""
        return self.records[number].attempts

    def doom_of(self, number: int) -> str | None:
        """The dependency that did not succeed, and dooms it."""
        return self.records[number].doomed_by

    def failures_of(self, number: int) -> int:
        """Attempts lost in a row without progress."""
        past = self.records[number].history
        return 0 if past is None else past.failures

    def rest_of(self, number: int) -> int | None:
        """Until when a waiting gang rests, if it does."""
        # Looked for in the timers: asked so seldom that no column is kept for it.
        until = [at_us for at_us, what, whom, _ in self.timers if what == "rest" and whom == number]
        return max(until, default=None)

    def refusal_of(self, number: int) -> PlanRefusal | None:
        """What was last decided of it and refused, when and in which words."""
        return self.refusals.get(number)

    def is_resting(self, number: int) -> bool:
        """Whether something about it was refused a moment ago."""
        refusal = self.refusals.get(number)
        # By the clock: a refusal is remembered after its rest is over, so that the next one can be longer.
        return refusal is not None and refusal.rests_until_us > self.now_us

    def list_seated(self) -> list[int]:
        """Gangs that hold seats, in the order in which they sat down."""
        rows = np.flatnonzero(self.running.alive)
        # Rows of nobody keep seats busy and are no gang.
        return [number for number in self.running.columns["gang"][rows].tolist() if number >= 0]

    def list_waiting(self) -> list[int]:
        """Gangs that wait, in the order in which they queued."""
        listed: list[int] = self.pending.columns["gang"][np.flatnonzero(self.pending.alive)].tolist()
        return listed

    def count_waiting(self) -> int:
        """How many gangs wait."""
        return len(self.pending)

    def is_empty(self) -> bool:
        """Whether nobody holds seats, or is still leaving some."""
        # Rows of nobody count: their seats are in use as well.
        return not len(self.running)

    def is_judged(self, number: int) -> bool:
        """Whether it was told that it can never run."""
        return number in self.judged

    def date_of(self, number: int) -> DateVerdict | None:
        """What was said of its date, under a policy that promises dates."""
        return self.dates.get(number)

    def list_vacating(self) -> Sequence[tuple[int, Ghost]]:
        """Seats that somebody is still leaving, with the instant at which they are left; good until the next write."""
        # The list itself: books ask at every instant, and almost always it is empty.
        return self.vacating

    def how_ended(self, name: str) -> Phase | None:
        """The way in which a gang ended, if it has, or if it can never run."""
        # By name: it may have ended before this state was made, and then there is no record of it.
        return self.dependencies.ended.get(name)

    def list_names(self) -> set[str]:
        """Names of gangs that are here, or have been."""
        return {*self.number_by_name, *self.dependencies.ended}

    def compare_speeds(self, number: int, members: int, before: int) -> float:
        """How many times as fast a gang is with so many members as with another number, by its curve."""
        points = self.curves.get(number)
        curve: Speedup = Table(points) if points else Linear()
        return speedup_at(curve, members) / speedup_at(curve, before)

    def list_elastic(self) -> list[int]:
        """Gangs that sit and can be resized just now."""
        if not self.hints.has_elastic:
            return []  # no elastic gang was ever here, as in most logs
        # By the column and not by the spec: members may have said that they cannot be resized just now (`set_elastic`).
        running = self.running
        rows = (running.alive & running.columns["elastic"]).nonzero()[0]
        listed: list[int] = running.columns["gang"][rows].tolist()
        return listed
