"""The engine with every promise checked on every call, and a run of the simulator on top of it.

`play` is `simulate` with three watchers: each snapshot and plan goes through `engine.invariants`, each
call is made twice (the same snapshot gives the same plan, with or without reasons, and is left as it
was), and a `Chronicle` follows every gang over time, for the promises that no single plan can break.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from unittest.mock import patch

import numpy as np

from phalanx.control import forward
from phalanx.control.state import State
from phalanx.engine import cycle
from phalanx.engine.invariants import check_plan, check_snapshot, check_usage, demand
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.fleet import Fleet
from phalanx.model.plan import Plan
from phalanx.model.snapshot import Snapshot


class BrokenPromise(AssertionError):  # noqa: N818 - says what happened
    """A promise that no single plan can break does not hold."""


def schedule_checked(snapshot: Snapshot, policy: Policy, *, explain: bool = False) -> Plan:
    """`schedule`, held to its promises: sound, pure, and the same when asked again."""
    demand(check_snapshot(snapshot))
    before = freeze(snapshot)
    plan = cycle.schedule(snapshot, policy, explain=explain)
    told = cycle.schedule(snapshot, policy, explain=True)
    if freeze(snapshot) != before:
        raise BrokenPromise("the engine wrote into its snapshot")
    if decided(plan) != decided(told):
        raise BrokenPromise(f"asked twice, two plans: {decided(plan)} and {decided(told)}")
    demand(check_plan(snapshot, plan, policy))
    demand(check_plan(snapshot, told, policy))
    return plan


def decided(plan: Plan) -> tuple[object, ...]:
    """A plan without what it tells only when asked for reasons."""
    return tuple(decision.key() for decision in plan.decisions), plan.infeasible, plan.wake_at_us


def freeze(value: object) -> object:
    """Anything inside a snapshot as a value that can be compared; the fleet is shared and never written."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, Fleet):
        return id(value)
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(freeze(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple((key, freeze(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(freeze(inner) for inner in value)
    return frozenset(value) if isinstance(value, set) else value


class Chronicle:
    """What may not happen between two looks at the same state."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._phases: dict[int, Phase] = {}
        self._attempts: dict[int, int] = {}
        self._judged: set[int] = set()  # being infeasible is an end for those who wait, even if nodes come later

    def look(self, state: State) -> None:
        """After every pass: nobody is lost, nobody rises from the dead, nobody starts before what it waits for."""
        state.tenants.settle()
        demand([*check_snapshot(state.borrow()), *check_usage(state.borrow())])
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
        """A gang has a row exactly while it waits or runs."""
        snapshot = state.borrow()
        for columns, phase in ((snapshot.pending, Phase.PENDING), (snapshot.running, Phase.RUNNING)):
            listed = set(columns.gang[columns.alive].tolist())
            wanted = {number for number, record in enumerate(state.records) if record.phase is phase}
            if listed != wanted:
                raise BrokenPromise(f"rows of {phase.value} gangs: {sorted(listed)}, should be {sorted(wanted)}")


def play(scenario: Scenario, policy: str, options: Mapping[str, object] | None = None) -> SimResult:
    """Simulate with every promise checked after every event."""
    with patch.object(forward, "schedule", schedule_checked):
        return simulate(scenario, policy, options, check=Chronicle().look)
