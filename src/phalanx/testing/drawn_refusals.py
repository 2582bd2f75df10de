"""A world that says no now and then, by seed, and a watch that knows what was taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from unittest.mock import patch

from phalanx.control.records import PlanRefusal
from phalanx.control.state import State
from phalanx.engine.invariants import check_snapshot, check_usage, demand
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.plan import Plan
from phalanx.testing.checking import CheckedRun
from phalanx.testing.transitions import BrokenPromise


class DrawnRefusals:
    """Refuses decisions of a plan with some probability each."""

    def __init__(self, rng: Random, probability: float) -> None:
        """The same seed refuses the same."""
        self._rng, self._probability = rng, probability

    def draw(self, plan: Plan) -> Iterable[tuple[int, str]]:
        """Whose decisions are refused."""
        for decision in plan.decisions:
            if self._rng.random() < self._probability:
                yield decision.gang, f"no {type(decision).__name__.lower()} today"


class RefusedWatch(CheckedRun):
    """A checked run in a world that says no."""

    def __init__(self, rng: Random, probability: float) -> None:
        """Nothing seen yet."""
        super().__init__()
        self.refusals: list[PlanRefusal] = []
        self.refused = DrawnRefusals(rng, probability)

    def look(self, state: State) -> None:
        """After every instant, also: gangs that start together have all started, or none has."""
        super().look(state)
        for group in state.groups.listed:
            records = [state.records[number] for number in group.gangs]
            begun = {bool(r.attempts) or r.phase is Phase.STARTING for r in records if not r.phase.ended}
            if len(begun) > 1:
                raise BrokenPromise(f"of '{group.word}' some have started and some wait")

    def play(self, scenario: Scenario, policy: str, options: Mapping[str, object] | None = None) -> SimResult:
        """Simulate under this watch, with every promise checked after every refusal."""
        refuse = State.refuse

        def refuse_checked(state: State, number: int, words: str) -> PlanRefusal:
            refusal = refuse(state, number, words)
            self.refusals.append(refusal)
            self.chronicle.unhear(refusal.undone, state.now_us)
            state.tenants.settle()
            demand([*check_snapshot(state.borrow()), *check_usage(state.borrow())])
            told = state.refusal_of(number)
            if told is None or told.words != words or told.at_us != state.now_us:
                raise BrokenPromise(f"why {state.gangs[number].name} was refused is not kept")
            if number not in refusal.undone:
                raise BrokenPromise(f"{state.gangs[number].name} was refused at once, and too late")
            return refusal

        with patch.object(State, "refuse", refuse_checked):
            return super().play(scenario, policy, options)
