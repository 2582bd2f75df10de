"""Who will pass a waiting job, and by which rule: those who fill the room beside a reservation (rule 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from phalanx.control.gates import OPENED_BY_OTHERS
from phalanx.control.queue_view import Filler, list_fillers
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.rows import Rows
from phalanx.frontends.host.messages import Passing
from phalanx.model.reason import Code
from phalanx.words import due, listing

Rule = Literal["shortest", "arrival", "tier"]
_NAMED_MOST: Final = 4
#: With many reservations, or in another pool of nodes.
_OWN_START: Final = "at a reservation of its own, which delays nobody before it"
#: Of one that a person gave a time to begin.
_OPENS: Final = "its time to begin comes before this job fits, and it fits then"
#: Of one that others keep behind a gate: a ceiling, an array, a name.
_COMES_UP: Final = "it has its turn before this job fits, and it fits then"
#: Of those who wait for nothing but room.
_FILLING: Final = (Code.NONE, Code.CAPACITY, Code.FRAGMENTATION, Code.TOPOLOGY, Code.BEHIND, Code.RESERVED)


class Passers:
    """Says who passes whom, by what is foreseen and what the engine orders by."""

    def __init__(self, known: Knowledge, rows: Rows) -> None:
        """Knows nothing of its own."""
        self.known = known
        self.rows = rows

    def find(self, job: Job, starts: Mapping[int, int], ahead: Iterable[int]) -> tuple[list[Passing], Passing | None]:
        """Who will pass a job, and who fills before it by right.

        `starts`: those expected before its own, with when; `ahead`: those whose turn comes before its turn.
        """
        planner, by_number = self.known.planner, self.known.register.by_number
        fillers = list_fillers(planner.state, planner.policy)
        mine = fillers.get(job.number)
        if mine is None:  # behind a gate: it has no turn that anybody could pass
            return [], None
        reserved = {gang: each.start_us for each in self.rows.explained().reservations for gang in each.gangs}
        before = set(ahead)
        groups: dict[tuple[Rule, str], list[Job]] = {}
        for number, at_us in starts.items():
            other, filler = by_number.get(number), fillers.get(number)
            if other is None or (filler is None and not other.gates):
                continue
            if filler is None:  # its turn comes when its gate opens, and that is foreseen
                words = _COMES_UP if other.gates & OPENED_BY_OTHERS else _OPENS
                groups.setdefault((self.known.planner.policy.fill, words), []).append(other)
                continue
            by_tier = self._fills_by_tier(filler, mine)
            if number in reserved:
                # Whoever is ahead has its reservation in its turn; of one behind, it was found to delay nobody.
                if number not in before:
                    groups.setdefault((self.known.planner.policy.fill, _OWN_START), []).append(other)
            elif number not in before or (by_tier and other.number > job.number):
                why = self._rule(filler, mine, at_us, reserved.get(job.number), by_tier=by_tier)
                groups.setdefault(why, []).append(other)
        passing = [_passing(rule, words, jobs) for (rule, words), jobs in groups.items()]
        told = {each for found in passing if found.rule == "tier" for each in found.jobs}
        return passing, self._fills_after(job, mine, fillers, reserved, told)

    def _fills_by_tier(self, other: Filler, mine: Filler) -> bool:
        return self.known.planner.policy.fill == "shortest" and other.tiers < mine.tiers

    def _rule(
        self, other: Filler, mine: Filler, at_us: int, reserved_us: int | None, *, by_tier: bool
    ) -> tuple[Rule, str]:
        """The rule, and the words behind "will pass"."""
        fill = self.known.planner.policy.fill
        if by_tier:
            return "tier", f"queue '{other.queue}' is below its guarantee, and '{mine.queue}' is not (fill by tier)"
        shorter = "shorter" if fill == "shortest" and other.length_us < mine.length_us else ""
        if reserved_us is None:
            where = "" if shorter else "fits where this job does not"
        else:
            at = due(self.known.wall_at(reserved_us), self.known.clock.wall_s())
            ends = at_us + other.length_us <= reserved_us
            where = f"done before this job's reservation {at}" if ends else f"beside this job's reservation {at}"
        return fill, f"{', and '.join(part for part in (shorter, where) if part)} (fill: {fill})"

    def _fills_after(
        self, job: Job, mine: Filler, fillers: Mapping[int, Filler], reserved: Mapping[int, int], told: set[int]
    ) -> Passing | None:
        """Of one that could only fill: who fills before it, whatever their lengths."""
        if not reserved or job.number in reserved:
            return None
        by_number, reasons = self.known.register.by_number, self.rows.explained().reasons
        rivals = [
            (by_number[number], filler)
            for number, filler in fillers.items()
            if number in by_number
            and number not in reserved
            and self._fills_by_tier(filler, mine)
            # One that a limit keeps, or a rest, fills nothing.
            and number in reasons
            and reasons[number][0] in _FILLING
        ]
        rivals = [each for each in rivals if each[0].id not in told]
        if not rivals:
            return None
        named = [f"{other.id} ({other.name}) of queue '{filler.queue}'" for other, filler in rivals]
        names, verb = listing(named, _NAMED_MOST), "fills" if len(rivals) == 1 else "fill"
        words = f"queue '{mine.queue}' is not below its guarantee; {names}, below its own, {verb} first"
        return Passing([other.id for other, _ in rivals], "tier", words)


def _passing(rule: Rule, words: str, jobs: list[Job]) -> Passing:
    names = listing([f"{job.id} ({job.name})" for job in jobs], _NAMED_MOST)
    return Passing([job.id for job in jobs], rule, f"{names} will pass: {words}")
