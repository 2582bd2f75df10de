"""Starts in a log of the simulator, foreseen by the daemon's own predictor and range while the log is played.

Whoever has to wait is foreseen when it comes, and then again as its start comes nearer, as the daemon writes its
estimates down. What is learned is learned as a daemon would: from runs that have completed, and from its own misses.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from phalanx.control.clone import clone_state
from phalanx.control.forecasting.calibration import Calibration
from phalanx.control.forecasting.lengths import Lengths, Said, measure_left, measure_whole
from phalanx.control.forecasting.outlook import ForecastInput, look_often, tell
from phalanx.control.forecasting.predictions import Predictions
from phalanx.control.forward import Arrival, Forward
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.run import make_state
from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.scribe import Scribe
from phalanx.frontends.sim.world import World
from phalanx.policy import named

#: Another estimate of a job is made after so long, or after a quarter of its wait.
AGAIN_US = 600_000_000


@dataclass
class Estimate:
    made_us: int
    at_us: int
    low_us: int
    high_us: int
    actual_us: int = -1

    @property
    def inside(self) -> bool:
        return self.low_us <= self.actual_us <= self.high_us


@dataclass
class Foretelling:
    """Looks on while a log is played."""

    scenario: Scenario
    policy: str = "easy"
    one_in: int = 1  # so many of those who wait are foreseen
    predictions: Predictions = field(default_factory=Predictions)
    calibration: Calibration = field(default_factory=Calibration)
    judged: list[Estimate] = field(default_factory=list)

    def play(self) -> list[Estimate]:
        scenario = self.scenario
        truths = {gang.name: truth for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True)}
        self.state = make_state(scenario)
        world = World(self.state, truths)
        self.scribe, self.chosen = Scribe(self.state, world), named(self.policy)
        self.open: dict[int, list[Estimate]] = defaultdict(list)
        self.due_us: dict[int, int] = {}
        self.known = 0  # gangs that were looked at once
        self.over: set[int] = set()
        self.running: set[int] = set()
        forward = Forward(self.state, self.chosen, world, self.scribe)
        forward.check = lambda state: self.look_on()
        forward.run([Arrival(gang) for gang in scenario.gangs])
        return self.judged

    def look_on(self) -> None:
        """After a pass: judge whoever has started, learn from whoever has completed, foresee whoever waits."""
        state, now_us = self.state, self.state.now_us
        for number in [each for each in self.running if state.phase_of(each).ended]:
            self.running.discard(number)
            if state.phase_of(number) is Phase.COMPLETED:
                self.learn(number)
        for number in [each for each in self.due_us if state.phase_of(each) is not Phase.PENDING]:
            self.judge(number, now_us)
        for number in range(self.known, len(state.gangs)):
            if state.phase_of(number) is Phase.RUNNING:
                self.running.add(number)
            elif number % self.one_in == 0:
                self.due_us[number] = now_us
            else:
                self.due_us[number] = 1 << 62
        self.known = len(state.gangs)
        wanted = {number for number, due_us in self.due_us.items() if due_us <= now_us}
        if wanted:
            self.foresee(wanted, now_us)

    def learn(self, number: int) -> None:
        gang = self.state.gangs[number]
        ran_us = self.scribe.ends[number] - self.scribe.starts[number]
        self.predictions.note(gang.user, gang.name, ran_us / 1e6, gang.walltime_us / 1e6)

    def judge(self, number: int, now_us: int) -> None:
        del self.due_us[number]
        self.running.add(number)
        for each in self.open.pop(number, ()):
            each.actual_us = now_us
            self.calibration.judge(each.low_us, each.high_us, now_us)
            self.judged.append(each)

    def foresee(self, wanted: set[int], now_us: int) -> None:
        lengths = self.measure(now_us)
        ground = ForecastInput(clone_state(self.state), lengths)
        looks = look_often(ground, self.chosen, wanted, lambda: 0.0, 1.0)
        found = tell(lengths, looks, self.calibration)
        for number in wanted & found.keys():
            seen = found[number]
            if seen.at_us - now_us >= 1_000_000:
                self.open[number].append(Estimate(now_us, seen.at_us, seen.low_us, seen.high_us))
            self.due_us[number] = now_us + max(AGAIN_US, (seen.at_us - now_us) // 4)

    def measure(self, now_us: int) -> Lengths:
        lengths, state = Lengths(), self.state
        ends = state.expected_ends()
        for number in state.list_waiting():
            lengths.source[number], lengths.whole[number] = measure_whole(self.predictions, self.said(number), 0)
        for number in self.running:
            age_us, left_us = now_us - state.start_of(number), ends[number] - now_us
            told = measure_left(self.predictions, self.said(number), age_us, left_us)
            lengths.source[number], lengths.left[number] = told
        return lengths

    def said(self, number: int) -> Said:
        gang = self.state.gangs[number]
        return Said(gang.user, gang.name, gang.walltime_us)
