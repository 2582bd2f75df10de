"""Which dates are promised, and what that means for everybody else (option `admit`).

A gang with a date is judged once, when it is first seen eligible, in order of arrival: its date is promised if it can
be met beside all those that are promised already (`engine.dates.filling`). The verdict is told in the plan and comes
back in the snapshot; nothing is remembered here. From then on a promise is kept by three things, each worked out anew
in every pass: what each promised gang that runs needs now (its share, below which nobody may take from it), the order
(promised gangs have their turn first), and a look before every start, whoever starts, whether all promises still hold
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phalanx.engine.dates.counting import Counting
from phalanx.engine.dates.demands import pending_demand, running_demand
from phalanx.engine.dates.filling import Demand
from phalanx.engine.dates.rooms import RoomReader
from phalanx.engine.kept_dates import PlannedStart
from phalanx.engine.order.deadlines import is_too_late
from phalanx.engine.policy import Policy
from phalanx.engine.reclaimable import Reclaimable
from phalanx.engine.room.limits import Limits
from phalanx.model.fleet import IntArray
from phalanx.model.plan import DateVerdict
from phalanx.model.snapshot import PendingColumns, RunningColumns, Snapshot

#: The earliest date that could be promised is told to this.
GRAIN_US = 1_000_000
#: Bounds above the earliest date that are tried, each twice as far away: beyond, nobody could rely on it anyway.
BOUNDS_TRIED = 8


class Dates:
    """Promised dates of one cycle, and what is kept for them."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Everybody whose date was promised before; newcomers are judged by `judge`."""
        self.snapshot, self.policy = snapshot, policy
        self._limits = Limits(snapshot)
        reader = self._reader = RoomReader(snapshot, policy)
        self._counting = Counting(reader)
        for row in reader.flexible.values():
            demand = running_demand(snapshot, row, int(reader.ends[row]))
            self._counting.enter(self._limit(demand, snapshot.running, row))
        for row in reader.waiting.values():
            demand = self._limit(pending_demand(snapshot, row), snapshot.pending, row)
            if demand.sizes:  # else a ceiling was lowered since: it can never run any more
                self._counting.enter(demand)
        self._counting.broken = frozenset(self._counting.count().late)

    @property
    def promised(self) -> frozenset[int]:
        """Gangs that are counted by their dates."""
        return frozenset(self._counting.demands)

    # ------------------------------------------------------------------ judging

    def judge(self) -> tuple[DateVerdict, ...]:
        """Verdicts on everybody who is seen eligible for the first time, in order of arrival."""
        pending, known = self.snapshot.pending, self.snapshot.dates
        # Not while a gate is shut: nobody knows how long it stays so, and room would be kept for the gang all the
        # while.
        rows = (pending.alive & (pending.gate == 0) & (pending.deadline_us >= 0)).nonzero()[0]
        # Arrival decides and not the policy's order: a priority would let a later gang have a date at the expense of an
        # earlier one that is judged in the same pass, and not at that of one judged a pass before.
        rows = rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows]))]
        # What is out of reach on an empty cluster is refused by rule 15, whatever the option says.
        rows = [
            row for row in rows.tolist() if int(pending.gang[row]) not in known and not is_too_late(self.snapshot, row)
        ]
        asked = [(int(pending.gang[row]), self._read_newcomer(row)) for row in rows]
        earliest = self._admit([demand for _, demand in asked if demand is not None])
        found, beside = [], self._reader.promised
        for number, demand in asked:
            promised = number in self._counting.demands
            earliest_us = demand.date_us if promised and demand is not None else earliest.get(number)
            found.append(DateVerdict(number, promised=promised, earliest_us=earliest_us, beside=beside))
            beside += promised
        return tuple(found)

    def _read_newcomer(self, row: int) -> Demand | None:
        """What a date would take; None where none can be promised, whoever else is there."""
        # A guess is no ground for a promise (rule 7), and gangs that start together are not counted as one here.
        if not self.snapshot.pending.proven[row] or self.snapshot.pending.group[row] >= 0:
            return None
        demand = self._limit(pending_demand(self.snapshot, row), self.snapshot.pending, row)
        # Its least passes a ceiling: it can never run, and is told so (rule 11).
        if not demand.sizes:
            return None
        self._counting.look_at(demand)
        return demand

    def _admit(self, newcomers: Sequence[Demand]) -> dict[int, int | None]:
        """Promise what can be promised, in this order; the earliest dates of the others, by number."""
        earliest: dict[int, int | None] = {}
        at, width = 0, 1
        while at < len(newcomers):
            # Several at once, and twice as many after each time that it went well: if all of their dates can be met,
            # so they can one after the other. Of hundreds that come at one instant each would be counted hundreds of
            # times.
            group = newcomers[at : at + width]
            # At once, before the next is judged: two who come together may not both be promised what is there for one.
            if self._counting.admit(group):
                at, width = at + len(group), 2 * width
            elif len(group) > 1:
                width = len(group) // 2
            else:
                earliest[group[0].number] = self._find_earliest(group[0])
                at += 1
        return earliest

    def _limit(self, demand: Demand, columns: PendingColumns | RunningColumns, row: int) -> Demand:
        """The same with the sizes that its ceilings would ever allow: a date that needs more cannot be promised."""
        limits = self._limits
        if not limits.any:
            return demand
        units = np.array([demand.units(size) for size in demand.sizes])
        # With nothing in use: what others of its queue hold meanwhile is not counted (decision 19).
        by_queue, by_user = limits.caps(units, empty=True)
        fits = np.minimum(by_queue[int(columns.queue[row])], by_user[int(columns.user[row])]) >= 1
        kept = [at for at, fine in enumerate(fits.tolist()) if fine or demand.sizes[at] == demand.present]
        sizes, speeds = tuple(demand.sizes[at] for at in kept), tuple(demand.speeds[at] for at in kept)
        return replace(demand, sizes=sizes, speeds=speeds)

    def _find_earliest(self, demand: Demand) -> int | None:
        """The earliest date, in whole seconds from its submit, that would have been promised."""
        submit_us = self.snapshot.gangs[demand.number].submit_us
        # Behind everybody else it disturbs nobody: no later date is needed.
        last_us = self._counting.find_end_behind(demand)
        if last_us is None:
            return None
        low, high = (demand.date_us - submit_us) // GRAIN_US, -(-(last_us - submit_us) // GRAIN_US)
        question = _Question(self._counting, demand)
        # By the very test that a submit with that date would have to pass: a formula of its own would name dates that
        # are then refused. The bound as well, since others may be pushed back by who comes behind them.
        for _ in range(BOUNDS_TRIED):
            if high > low and question.holds(submit_us + high * GRAIN_US):
                break
            low, high = max(low, high), max(low, high) + max(1, 2 * abs(high - low))
        else:
            return None
        while low + 1 < high:
            middle = (low + high) // 2
            if question.holds(submit_us + middle * GRAIN_US):
                high = middle
            else:
                low = middle
        return submit_us + high * GRAIN_US

    def show(self, judged: tuple[DateVerdict, ...]) -> Snapshot:
        """The snapshot with these verdicts, in which a date that is not promised is none."""
        snapshot, pending = self.snapshot, self.snapshot.pending
        # In the column, where orders and laxity read it: neither has to know that there is such a thing as a promise.
        # Shares read the date of the gang itself, and ask for the verdict.
        dates = {**snapshot.dates, **{verdict.gang: verdict for verdict in judged}}
        without = [number for number, verdict in dates.items() if not verdict.promised and not self.is_refused(verdict)]
        column = pending.deadline_us
        if without:
            column = np.where(np.isin(pending.gang, without), -1, column)
        return replace(snapshot, dates=dates, pending=replace(pending, deadline_us=column))

    def is_refused(self, verdict: DateVerdict) -> bool:
        """Whether a gang does not run because of what was said of its date."""
        # Where nobody knows how long it runs there is no date to offer, and nobody is refused for a guess.
        return self.policy.admit == "refuse" and not verdict.promised and verdict.earliest_us is not None

    def put_first(self, rows: IntArray) -> IntArray:
        """Pending rows in order, those with a promised date before all others, by date."""
        pending = self.snapshot.pending
        # Before priority and standing, which is what a promise means (decision 19). `allows` alone would let others
        # start for as long as a date has slack, until all of that is used up.
        promised = np.isin(pending.gang[rows], list(self._counting.demands))
        first = rows[promised]
        first = first[np.lexsort((pending.gang[first], pending.deadline_us[first]))]
        return np.concatenate((first, rows[~promised]))

    def count_first(self, gangs: IntArray) -> int:
        """How many of these, which stand in order, have a promised date."""
        return int(np.isin(gangs, list(self._counting.demands)).sum())

    # ------------------------------------------------------------------ keeping

    def shares(self) -> dict[int, int]:
        """Members of its elastic role that each promised gang needs from now on, by number; 0: not yet any."""
        return self._counting.count().sizes

    def protect(self, reclaimable: Reclaimable) -> None:
        """Nobody takes from those who run what their dates need, nor sends them away."""
        needed = self.shares()
        for occupant in reclaimable.occupants:
            # Also of those that are not counted by their dates. A rigid gang needs no floor, but an eviction would
            # break its promise all the same.
            occupant.promised = self._reader.is_promised(occupant.number)
            occupant.floor = needed.get(occupant.number, 0)

    def allows(self, start: PlannedStart) -> bool:
        """Whether all promises that can be kept now can be kept beside this start."""
        return self._counting.allows(start)

    def note_start(self, start: PlannedStart) -> None:
        """It is counted from now on."""
        self._counting.note_start(start)


class _Question:
    """Whether a date could be promised to somebody; asked with many dates."""

    def __init__(self, counting: Counting, demand: Demand) -> None:
        self._demand, self._may_be_late = demand, counting.broken
        # Of each pool that holds it every style of counting, as far as no date that is asked for makes a difference.
        self._begun = counting.begin_fillings(demand)

    def holds(self, date_us: int) -> bool:
        """Whether it could."""
        for styles in self._begun:
            for filling in styles:
                twin = filling.copy()
                twin.add(replace(self._demand, date_us=date_us))
                if twin.run(may_be_late=self._may_be_late):
                    break
            else:
                return False
        return True
