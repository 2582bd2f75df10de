"""The engine with every promise checked on every call, and a run of the simulator on top of it.

`play` is `simulate` with three watchers: each snapshot and plan goes through `engine.invariants`, each
call is made several times (the same snapshot gives the same plan, with or without reasons, with or
without a ledger, and is left as it was), and a `TransitionCheck` follows every gang over time, for the promises
that no single plan can break.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from unittest.mock import patch

import numpy as np

from phalanx.control import loop
from phalanx.control.forward import Refusals
from phalanx.control.state import State
from phalanx.engine import cycle
from phalanx.engine.invariants import check_plan, check_snapshot, check_usage, demand
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.ledger import Ledger
from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.fleet import Fleet
from phalanx.model.form import Form
from phalanx.model.gang import Gang
from phalanx.model.plan import Plan
from phalanx.model.snapshot import Snapshot
from phalanx.testing.transitions import BrokenPromise, TransitionCheck
from phalanx.testing.victims import find_superfluous

__all__ = ["BrokenPromise", "CheckedRun", "TransitionCheck", "decided", "freeze", "play", "schedule_checked"]


def schedule_checked(
    snapshot: Snapshot,
    policy: Policy,
    *,
    explain: bool = False,
    ledger: bool = False,
    engine: loop.Engine = cycle.schedule,
) -> Plan:
    """`schedule`, held to its promises: sound, pure, and the same when asked again.

    `engine`: another one in its place, for those who want to see a wrong one caught.
    """
    demand(check_snapshot(snapshot))
    if _reads_usage(snapshot, policy):
        demand([*check_usage(snapshot)])
    before = freeze(snapshot)
    plan = engine(snapshot, policy, explain=explain, ledger=ledger)
    again = engine(snapshot, policy, explain=explain, ledger=not ledger)
    told = engine(snapshot, policy, explain=True)
    if freeze(snapshot) != before:
        raise BrokenPromise("the engine wrote into its snapshot")
    for other in (again, told):
        if decided(plan) != decided(other):
            raise BrokenPromise(f"asked twice, two plans: {decided(plan)} and {decided(other)}")
    demand(check_plan(snapshot, plan, policy))
    demand(check_plan(snapshot, told, policy))
    for story in find_superfluous(snapshot, told, policy):
        raise BrokenPromise(story)
    return plan


def _reads_usage(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether the plan depends on who uses how much; else a borrowed snapshot may have it not yet added up."""
    below_root = len(snapshot.queues.names) - 1
    return policy.shares_users or (below_root > 1 and bool(policy.standing or policy.takes))


def decided(plan: Plan) -> tuple[object, ...]:
    """A plan without what it tells only when asked for reasons."""
    decisions = tuple(decision.key() for decision in plan.decisions)
    return decisions, plan.infeasible, plan.wake_at_us, plan.settled_in


def freeze(value: object) -> object:
    """Anything inside a snapshot as a value that can be compared; what cannot be written is known by its identity."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, Fleet | Gang | Form):
        return id(value)
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(freeze(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple((key, freeze(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(freeze(inner) for inner in value)
    return frozenset(value) if isinstance(value, set) else value


def play(scenario: Scenario, policy: str, options: Mapping[str, object] | None = None) -> SimResult:
    """Simulate with every promise checked after every event."""
    return CheckedRun().play(scenario, policy, options)


class CheckedRun:
    """One checked run; those who want to know more than whether it holds look at what it has seen."""

    def __init__(self, engine: loop.Engine = cycle.schedule) -> None:
        """Nothing seen yet of what this engine decides."""
        self.engine = engine
        self.chronicle = TransitionCheck()
        self.refused: Refusals | None = None  # what the world will not carry out
        self.parts: dict[str, int] = {}  # of the ledger, in µs and thousandths, when the run is over

    def schedule(self, snapshot: Snapshot, policy: Policy, *, explain: bool = False, ledger: bool = False) -> Plan:
        """In the place of the engine's."""
        self.chronicle.look_at(snapshot)
        plan = schedule_checked(snapshot, policy, explain=explain, ledger=ledger, engine=self.engine)
        self.chronicle.hear(snapshot, plan)
        self.on_plan(snapshot, plan, policy)
        return plan

    def on_plan(self, snapshot: Snapshot, plan: Plan, policy: Policy) -> None:
        """For those who watch for more."""

    def look(self, state: State) -> None:
        """After every instant."""
        self.chronicle.look(state)

    def play(self, scenario: Scenario, policy: str, options: Mapping[str, object] | None = None) -> SimResult:
        """Simulate under this watch."""
        close = Ledger.close

        def close_checked(ledger: Ledger, horizon: tuple[int, int]) -> dict[str, int]:
            self.parts = close(ledger, horizon)
            self.chronicle.close(self.parts)
            return self.parts

        with patch.object(loop, "schedule", self.schedule), patch.object(Ledger, "close", close_checked):
            return simulate(scenario, policy, options, check=self.look, refusals=self.refused)
