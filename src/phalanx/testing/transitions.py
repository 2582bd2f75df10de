"""What no single plan can break: lives of gangs, seats between two users, passes of one instant, the books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from phalanx.control import loop
from phalanx.control.state import State
from phalanx.engine.invariants import check_snapshot, check_usage, demand
from phalanx.engine.invariants.changes import list_changes
from phalanx.engine.invariants.reading import find_rows, units_of
from phalanx.engine.invariants.rights import list_units
from phalanx.engine.lifecycle import Phase
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Bind, Cause, Evict, Plan, Resize
from phalanx.model.snapshot import Snapshot


class BrokenPromise(AssertionError):  # noqa: N818 - says what happened
    """A promise that no single plan can break does not hold."""


@dataclass(frozen=True, slots=True)
class _GivenBack:
    """Seats that a shrinking gang has given back and still sits on."""

    number: int
    node: int
    since_us: int
    until_us: int
    units: IntArray
    devices: IntArray


class TransitionCheck:
    """What may not happen between two looks at the same state."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._phases: dict[int, Phase] = {}
        self._attempts: dict[int, int] = {}
        self._judged: set[int] = set()  # being infeasible is an end for those who wait, even if nodes come later
        self._leaving: list[_GivenBack] = []
        self._together: list[set[int]] = []  # gangs of one word that the last plan has started
        self._instant = -1
        self._passes = 0
        self._used: set[tuple[int, str]] = set()  # who was bound and who evicted, at this instant
        self._swaps: set[tuple[int, int]] = set()  # who made way for whom, at this instant
        self.passes_most = 0
        self.evictions: Counter[int] = Counter()  # to make room for others, in all

    # ------------------------------------------------------------------ plans

    def hear(self, snapshot: Snapshot, plan: Plan) -> None:
        """A plan was made: who is leaving, who was evicted, and how often in this instant."""
        if snapshot.now_us != self._instant:
            self._instant, self._passes, self._used, self._swaps = snapshot.now_us, 0, set(), set()
        self._passes += 1
        self.passes_most = max(self.passes_most, self._passes)
        if self._passes >= loop.PASSES_MOST:
            raise BrokenPromise(f"{self._passes} passes at {snapshot.now_us}, and no end")
        for decision in plan.decisions:
            if isinstance(decision, Evict):
                self.evictions[decision.gang] += decision.cause not in (Cause.TURN, Cause.DRAIN)
                self._check_swap(snapshot, decision)  # which says more than that somebody was bound in vain
                self._use(snapshot, decision.gang, "evicted")
            elif isinstance(decision, Bind):
                self._use(snapshot, decision.gang, "bound")
        self._note_leaving(snapshot, plan)
        units = list_units(snapshot, [each for each in plan.decisions if isinstance(each, Bind)])
        self._together = [{bind.gang for bind in unit} for unit in units if len(unit) > 1]

    def unhear(self, numbers: Collection[int], now_us: int) -> None:
        """What was planned of these gangs just now was taken back."""
        self._leaving = [each for each in self._leaving if each.number not in numbers or each.since_us != now_us]
        self._used = {(number, verb) for number, verb in self._used if number not in numbers}
        self._swaps = {pair for pair in self._swaps if not set(pair) & set(numbers)}

    def _use(self, snapshot: Snapshot, number: int, verb: str) -> None:
        """At one instant nobody is bound twice, nobody evicted twice, and nobody evicted who has just been bound.

        So the number of times that this can still happen falls with every plan that evicts: nobody can go on
        making way for each other for ever.
        """
        if (number, verb) in self._used:
            raise BrokenPromise(f"{snapshot.gangs[number].name} is {verb} twice at {snapshot.now_us}")
        if verb == "evicted" and (number, "bound") in self._used:
            raise BrokenPromise(f"{snapshot.gangs[number].name} is bound and evicted at {snapshot.now_us}")
        self._used.add((number, verb))

    def _check_swap(self, snapshot: Snapshot, decision: Evict) -> None:
        if decision.beneficiary is None:
            return
        self._swaps.add((decision.gang, decision.beneficiary))
        if (decision.beneficiary, decision.gang) in self._swaps:
            names = snapshot.gangs[decision.gang].name, snapshot.gangs[decision.beneficiary].name
            raise BrokenPromise(f"{names[0]} and {names[1]} make way for each other at {snapshot.now_us}")

    def _note_leaving(self, snapshot: Snapshot, plan: Plan) -> None:
        for change in list_changes(snapshot, plan):
            if not isinstance(change.decision, Resize) or not change.gang.resize_pause_us:
                continue
            until_us = snapshot.now_us + change.gang.resize_pause_us
            for (role, node), (count, devices) in change.given.items():
                left = change.after.get((role, node), (0, (0,) * len(devices)))
                each = np.array(units_of(snapshot.fleet, change.gang.roles[role].shape), dtype=np.int64)
                used = np.array(devices, dtype=np.int64) - np.array(left[1], dtype=np.int64)
                units = (count - left[0]) * each
                self._leaving.append(_GivenBack(change.number, node, snapshot.now_us, until_us, units, used))

    def _check_together(self, snapshot: Snapshot, rows: Mapping[int, int]) -> None:
        """Gangs that a plan has started together begin at one instant, whoever of them has to wait for seats."""
        for numbers in self._together if snapshot.now_us == self._instant else ():
            starts = {int(snapshot.running.start_us[rows[number]]) for number in numbers if number in rows}
            if len(starts) > 1:
                names = ", ".join(snapshot.gangs[number].name for number in sorted(numbers))
                raise BrokenPromise(f"{names} start together, and begin at {sorted(starts)}")
        self._together = []

    def look_at(self, snapshot: Snapshot) -> None:
        """Whoever has begun sits beside those who are still leaving, not on their seats."""
        now, rows = snapshot.now_us, find_rows(snapshot)
        self._check_together(snapshot, rows)
        # Whoever is gone altogether, or began anew, is gone from the seats it was leaving as well.
        began = {number: int(snapshot.running.start_us[row]) for number, row in rows.items()}
        self._leaving = [
            each
            for each in self._leaving
            if each.until_us > now and snapshot.nodes.up[each.node] and began.get(each.number, now + 1) <= each.since_us
        ]
        if not self._leaving:
            return
        running, table = snapshot.running, snapshot.allocations
        begun = table.alive & (running.start_us <= now)[table.running] & (running.gang >= 0)[table.running]
        for node in sorted({each.node for each in self._leaving}):
            here = begun & (table.node == node)
            leaving = [each for each in self._leaving if each.node == node]
            units, devices = table.taken[here].sum(axis=0), table.devices[here].astype(np.int64).sum(axis=0)
            for each in leaving:
                units = units + _widen(each.units, len(units))
                devices = devices + _widen(each.devices, len(devices))
            capacity, whole = snapshot.fleet.capacity[node], snapshot.fleet.device_capacity[node]
            if bool((units > capacity).any()) or bool((devices > whole).any()):
                names = ", ".join(sorted({snapshot.gangs[each.number].name for each in leaving}))
                raise BrokenPromise(
                    f"somebody sits on {snapshot.fleet.names[node]} at {now} where {names} is still leaving"
                )

    # ------------------------------------------------------------------ instants

    def look(self, state: State) -> None:
        """After every pass: nobody is lost, nobody rises from the dead, nobody starts before what it waits for."""
        state.tenants.settle()
        demand([*check_snapshot(state.borrow()), *check_usage(state.borrow())])
        self.look_at(state.borrow())
        self._judged |= state.judged
        if len(state.records) < len(self._phases):
            raise BrokenPromise("a submitted gang is gone")
        for number, record in enumerate(state.records):
            before = self._phases.get(number)
            if before is not None and before.ended and record.phase is not before:
                raise BrokenPromise(f"{record.gang.name} was {before.value} and is {record.phase.value}")
            if record.attempts < self._attempts.get(number, 0):
                raise BrokenPromise(f"{record.gang.name} counts fewer attempts than before")
            if record.phase is Phase.RUNNING:
                self._check_dependencies(state, number)
            self._phases[number], self._attempts[number] = record.phase, record.attempts
        self._check_tables(state)

    def _check_dependencies(self, state: State, number: int) -> None:
        gang = state.gangs[number]
        for name in gang.after.names:
            other = state.number_by_name.get(name)
            phase = None if other is None else state.records[other].phase
            ended = phase is not None and (phase.ended or other in self._judged)
            if not (ended if gang.after.any_end else phase is Phase.COMPLETED):
                raise BrokenPromise(f"{gang.name} runs, and {name}, which it comes after, is {phase}")
        if state.records[number].held:
            raise BrokenPromise(f"{gang.name} runs and is held")

    def _check_tables(self, state: State) -> None:
        """A gang has a row exactly while it waits or holds seats, and its seats are those of its row."""
        snapshot = state.borrow()
        waiting = {number for number, record in enumerate(state.records) if record.phase is Phase.PENDING}
        seated = {number for number, record in enumerate(state.records) if record.phase.seated}
        for told, wanted, alive, gang in (
            ("pending", waiting, snapshot.pending.alive, snapshot.pending.gang),
            ("seated", seated, snapshot.running.alive, snapshot.running.gang),
        ):
            listed = {number for number in gang[alive].tolist() if number >= 0}
            if listed != wanted:
                raise BrokenPromise(f"rows of {told} gangs: {sorted(listed)}, should be {sorted(wanted)}")
        for number, record in enumerate(state.records):
            if record.phase.seated and int(snapshot.running.gang[record.row]) != number:
                raise BrokenPromise(f"{record.gang.name} points at a row of somebody else")
            starting = record.phase is Phase.STARTING
            if record.phase.seated and starting != bool(snapshot.running.start_us[record.row] > state.now_us):
                raise BrokenPromise(f"{record.gang.name} is {record.phase.value} and its row says otherwise")

    # ------------------------------------------------------------------ the end

    def close(self, parts: Mapping[str, int]) -> None:
        """The parts of the ledger sum to what there was, exactly, and none is below zero."""
        rest = {part: amount for part, amount in parts.items() if part != "capacity"}
        if min(rest.values()) < 0 or sum(rest.values()) != parts["capacity"]:
            raise BrokenPromise(f"the ledger does not sum to {parts['capacity']}: {rest}")


def _widen(column: IntArray, width: int) -> IntArray:
    """The same over more kinds or devices; nodes may have joined since."""
    wide = np.zeros(width, dtype=np.int64)
    wide[: min(len(column), width)] = column[:width]
    return wide
