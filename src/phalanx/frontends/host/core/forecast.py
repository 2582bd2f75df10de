"""When waiting jobs are expected to start: a time, a range around it, and the end that it hangs on.

The logical cluster is copied and played forward again and again (`outlook`), with run times as they are thought to be
(`lengths`). That costs up to a second or two of processor time with thousands waiting, so it is done beside the loop,
never twice at once, and not again before a multiple of what it cost has passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from phalanx.control.clone import clone_state
from phalanx.control.forecasting.calibration import Calibration
from phalanx.control.forecasting.lengths import Lengths, Said, measure_left, measure_whole
from phalanx.control.forecasting.outlook import ForecastInput, Looks, look_often, tell
from phalanx.control.forecasting.predictions import Predictions
from phalanx.control.gates import OPENED_BY_OTHERS, OPENS_BY_ITSELF
from phalanx.control.look_ahead import Outlook, StartCause
from phalanx.control.queue_view import KEPT_MOST, thin_out
from phalanx.control.sentences import say_cause
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.host.core.errands import log
from phalanx.frontends.host.core.gates_ahead import list_gates
from phalanx.frontends.host.core.jobs import Job, Live
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.store import VOID_US, AddEstimate, EstimateRecord

#: Processor time of one forecast: half for the middle, the rest for the range.
BUDGET_S: Final = 1.2
#: An answer may be told again for so many times what it cost, and not for longer than this.
PAUSE_FACTOR: Final = 20.0
PAUSE_MOST_US: Final = 30_000_000
#: Nothing happened, but time goes by.
STALE_US: Final = 60_000_000
#: Another estimate of a job is written down after this, or after a quarter of its wait. Nearer starts are no waits.
RECORD_EVERY_US: Final = 60_000_000
NOT_A_WAIT_US: Final = 1_000_000
#: Of estimates that were judged before, the last so many are learned from.
RECALLED_MOST: Final = 500
#: Who only wants to show a list waits for so long, and takes what was known a while ago otherwise.
PATIENCE_S: Final = 0.4
#: With more waiting than this, a list is told what was known before, and the look comes after it.
CROWD: Final = 1000
CROWD_LATER_S: Final = 1.0
#: But where nothing of the last minute is known the list waits: by turns with and without starts, it would read as if
#: they had been taken back. A look costs `BUDGET_S`.
CROWD_PATIENCE_S: Final = 2.5
#: What a forecast for a few jobs costs in such a crowd, where most who ask stand too far back to be seen at any price.
CROWD_BUDGET_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Forecast:
    """An expected start."""

    at_us: int
    low_us: int
    high_us: int
    hangs_on: str
    predicted: bool = False  # from earlier runs, since somebody stated no time


@dataclass(slots=True)
class ForecastAnswer:
    """What was found out last."""

    forecasts: dict[int, Forecast] = field(default_factory=dict)  # by job
    seen: Outlook | None = None  # the middle look
    version: int = -1
    at_us: int = 0
    cost_us: int = 0
    ends_us: int = 1 << 62  # if nothing has happened by then, what was believed of somebody was wrong
    asked: frozenset[int] | None = frozenset()  # jobs that were looked for; None: as many as there was time for

    def is_old(self, now_us: int) -> bool:
        """Whether so much may have happened since that nobody should be told it."""
        return self.seen is None or now_us - self.at_us >= STALE_US


class Forecaster:
    """Looks ahead for whoever asks."""

    def __init__(
        self,
        known: Knowledge,
        predictions: Predictions,
        *,
        meter: Callable[[], float] = time.thread_time,
        budget_s: float = BUDGET_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`meter` tells the processor time of the thread that asks it."""
        self.known = known
        self.predictions = predictions
        self.meter, self.budget_s, self.patience_s = meter, budget_s, patience_s
        self.calibration = Calibration()
        self._told: dict[int, list[AddEstimate]] = {}  # by job that waits: what was written down of it
        self.looks = 0  # how often somebody had to look
        self._wide = ForecastAnswer(asked=None)  # about everybody
        self._narrow = ForecastAnswer()  # about whoever was asked for last
        self.on_estimates: Callable[[list[AddEstimate]], None] = lambda changes: None  # who writes them down
        self._recorded: dict[int, int] = {}  # by job: when another estimate of it is worth a row
        self._crowd_waits = False
        self._ground: ForecastInput | None = None  # the last, good as long as nothing happens
        self._looking = asyncio.Lock()
        self._looks_on: set[asyncio.Future[ForecastAnswer]] = set()  # looks for which nobody waits any more

    # ------------------------------------------------------------------ questions

    async def forecasts(self, wanted: Collection[int] | None = None) -> dict[int, Forecast]:
        """Expected starts by job; of jobs whose start nobody can see nothing is said. None: of all that wait."""
        return self._choose(await self._find(wanted), wanted)

    async def at_hand(self, wanted: Collection[int] | None = None) -> dict[int, Forecast]:
        """The same from what can be found quickly, else from what was known a while ago; the look goes on."""
        answer = self._fit(wanted)
        crowded = answer is None and is_crowded(self.known)
        if crowded and not self._wide.is_old(self.known.now_us()):
            # A look at a long queue takes a second of the processor, and whoever lists it wants the list.
            answer = self._wide
            if not self._crowd_waits:
                self._crowd_waits = True
                asyncio.get_running_loop().call_later(CROWD_LATER_S, self._look_at_crowd)
        if answer is None:
            looking = self._begin(None if crowded else wanted)
            await asyncio.wait({looking}, timeout=CROWD_PATIENCE_S if crowded else self.patience_s)
            found = looking.done() and not looking.cancelled() and looking.exception() is None
            answer = looking.result() if found else self._wide
        return {} if answer.is_old(self.known.now_us()) else self._choose(answer, wanted)

    def note_start(self, job: Job, live: Live) -> None:
        """It runs: how far off was what was said of it last? Only first attempts are foreseen."""
        expected = self._narrow.forecasts.get(job.id) or self._wide.forecasts.get(job.id)
        if expected is not None and live.attempt == 1 and live.started_us is not None:
            self.known.meters.count_eta_error((live.started_us - expected.at_us) / 1e6)
        for each in self._told.pop(job.id, ()):
            if live.attempt == 1 and live.started_us is not None:
                self.calibration.judge(each.low_us, each.high_us, live.started_us)

    def forget(self, job: Job) -> None:
        """Somebody holds it: what was told of its start cannot be judged any more."""
        self._told.pop(job.id, None)
        self._recorded.pop(job.id, None)

    def recall(self, records: Iterable[EstimateRecord]) -> None:
        """What became of estimates that daemons before this one made."""
        judged = [each for each in records if each.actual_us is not None and each.actual_us != VOID_US]
        for each in sorted(judged[-RECALLED_MOST:], key=lambda each: each.actual_us or 0):
            self.calibration.judge(each.low_us, each.high_us, each.actual_us or 0)

    def _look_at_crowd(self) -> None:
        self._crowd_waits = False
        self._begin(None)

    def _begin(self, wanted: Collection[int] | None) -> asyncio.Future[ForecastAnswer]:
        looking = asyncio.ensure_future(self._find(wanted))
        self._looks_on.add(looking)
        looking.add_done_callback(self._looks_on.discard)
        looking.add_done_callback(_log_failure)
        return looking

    def _choose(self, answer: ForecastAnswer, wanted: Collection[int] | None) -> dict[int, Forecast]:
        now_us = self.known.now_us()
        chosen = answer.forecasts if wanted is None else {job: answer.forecasts.get(job) for job in wanted}
        return {job: _not_before(each, now_us) for job, each in chosen.items() if each is not None}

    async def starts_before(self, job: Job) -> dict[int, int]:
        """Gangs that are expected to start before a job, and when; if its own start is not seen, all that are."""
        seen = (await self._find([job.id])).seen
        assert seen is not None
        mine_us = seen.starts[job.number][0] if job.number in seen.starts else None
        return {number: at_us for number, (at_us, _) in seen.starts.items() if mine_us is None or at_us < mine_us}

    async def outlook(self) -> Outlook:
        """Who is expected to sit where, for how long."""
        seen = (await self._find(None)).seen
        assert seen is not None
        return seen

    def record(self, job: Job, forecast: Forecast) -> AddEstimate:
        """The estimate as it is written down, so that it can be judged later."""
        at_us, low_us, high_us = forecast.at_us, forecast.low_us, forecast.high_us
        return AddEstimate(job.id, self.known.now_us(), at_us, low_us, high_us, forecast.predicted)

    def _record_all(self, forecasts: Mapping[int, Forecast]) -> None:
        """Hand estimates to whoever writes them down: the first of a job, and later ones as its start comes nearer."""
        now_us = self.known.now_us()
        changes = []
        for job, forecast in forecasts.items():
            due_us = self._recorded.get(job, 0)
            known = self.known.register.by_id[job]
            # What a person named is no forecast: whoever begins at 18:30 does.
            if now_us >= due_us and forecast.at_us - now_us >= NOT_A_WAIT_US and known.gates <= OPENED_BY_OTHERS:
                changes.append(self.record(known, forecast))
                self._told.setdefault(job, []).append(changes[-1])
                self._recorded[job] = now_us + max(RECORD_EVERY_US, (forecast.at_us - now_us) // 4)
        if len(self._recorded) > 2 * len(self.known.register.by_id) + 100:
            self._recorded = {job: due for job, due in self._recorded.items() if job in self.known.register.by_id}
            self._told = {job: told for job, told in self._told.items() if job in self.known.register.by_id}
        if changes:
            self.on_estimates(changes)

    async def _find(self, wanted: Collection[int] | None) -> ForecastAnswer:
        answer = self._fit(wanted)
        if answer is None:
            async with self._looking:  # whoever waited here may find what they need now
                answer = self._fit(wanted) or await self._look(wanted)
                if wanted is None:
                    self._wide = answer
                else:
                    self._narrow = answer
        return answer

    def _fit(self, wanted: Collection[int] | None) -> ForecastAnswer | None:
        """An answer found before that will do."""
        return next((answer for answer in (self._wide, self._narrow) if self._fits(answer, wanted)), None)

    def _fits(self, answer: ForecastAnswer, wanted: Collection[int] | None) -> bool:
        if answer.seen is None:
            return False
        if answer.asked is not None and (wanted is None or not answer.asked | answer.forecasts.keys() >= set(wanted)):
            return False
        now_us = self.known.now_us()
        age_us = now_us - answer.at_us
        # Somebody was to end by now and nothing has happened: who is late is expected later, and not any moment.
        if answer.version == self.known.planner.version and now_us < answer.ends_us:
            return age_us < STALE_US
        return age_us < min(PAUSE_MOST_US, PAUSE_FACTOR * answer.cost_us)

    # ------------------------------------------------------------------ looking

    async def _look(self, wanted: Collection[int] | None) -> ForecastAnswer:
        self.looks += 1
        version, began_s = self.known.planner.version, self.meter()
        numbers = None if wanted is None else self._numbers(wanted)
        self._ground = None  # as of now: in a copy of a while ago nobody has grown older
        ground = self.ground(numbers or ())
        numbers = None if numbers is None else numbers & set(ground.kept)
        here_s = self.meter() - began_s
        looks, there_s = await asyncio.to_thread(self.look, ground, numbers)
        told, by_number = self.tell(ground.lengths, looks), self.known.register.by_number
        found = {by_number[number].id: each for number, each in told.items() if number in by_number}
        self._record_all(found)
        cost_us = round((here_s + there_s) * 1e6)
        asked = None if wanted is None else frozenset(wanted)
        ends_us = ground.state.now_us + ground.lengths.good_for_us()
        return ForecastAnswer(found, looks.middle, version, self.known.now_us(), cost_us, ends_us, asked)

    def _numbers(self, wanted: Collection[int]) -> set[int]:
        """Gangs whose start can be seen at all: nobody knows when a person opens a gate, or when a mate ends."""
        jobs = (self.known.register.by_id.get(job) for job in wanted)
        return {job.number for job in jobs if job is not None and not job.ended and job.gates <= OPENS_BY_ITSELF}

    def ground(self, keep: Collection[int]) -> ForecastInput:
        """A copy of the cluster that several may look from, and nobody may change."""
        known, wanted = self._ground, frozenset(keep)
        if known is None or (known.version, known.keep) != (self.known.planner.version, wanted):
            known = self._ground = self.prepare(wanted)
        return known

    def prepare(self, keep: Collection[int], most: int = KEPT_MOST) -> ForecastInput:
        """Copy the cluster as it is now; `keep`: gangs that matter whatever their place in the line."""
        state = clone_state(self.known.planner.state)
        state.advance_to(self.known.now_us())
        gates, numbers = list_gates(self.known, state), state.number_by_name
        begin = sorted((at_us, numbers[name]) for name, at_us in gates.begins_us.items())
        # Whoever goes through a gate before one that matters matters as much; of one far back nothing is told.
        near = {number: gates.find_before(state, number) for number in keep}
        wanted = {number for number, before in near.items() if len(before) <= most}
        before = {other for number in wanted for other in near[number]}
        matter = {*wanted, *before, *(number for _, number in begin[:most])}
        kept = thin_out(state, self.known.planner.policy, matter, most, gates.list_bounded(state).values())
        gates = list_gates(self.known, state)  # without those who were dropped
        return ForecastInput(state, self.measure(state, kept), gates, kept, self.known.planner.version, frozenset(keep))

    def look(self, ground: ForecastInput, wanted: Collection[int] | None) -> tuple[Looks, float]:
        """In another thread: all looks, and what they cost."""
        began_s = self.meter()
        most_s = min(self.budget_s, CROWD_BUDGET_S) if wanted is not None and is_crowded(self.known) else self.budget_s
        looks = look_often(ground, self.known.planner.policy, wanted, self.meter, most_s)
        ground.seen = looks.middle
        return looks, self.meter() - began_s

    # ------------------------------------------------------------------ lengths

    def measure(self, state: State, waiting: Iterable[int]) -> Lengths:
        """How long everybody runs who matters."""
        lengths = Lengths()
        by_number = self.known.register.by_number
        for number in waiting:
            job = by_number.get(number)
            if job is not None:
                self.measure_whole(lengths, number, job)
        ends = state.expected_ends()
        for number, job in by_number.items():
            if state.phase_of(number) is Phase.RUNNING:
                age_us, left_us = state.now_us - state.start_of(number), ends[number] - state.now_us
                said = _said(job, _left_by_progress(job, self.known.now_us()))
                lengths.source[number], lengths.left[number] = measure_left(self.predictions, said, age_us, left_us)
                if lengths.source[number] == "stated" and state.end_of(number) <= state.now_us:
                    lengths.source[number] = "overdue"
        return lengths

    def measure_whole(self, lengths: Lengths, number: int, job: Job) -> None:
        """How long a waiting job runs."""
        default_us = self.known.planner.state.default_walltime_us
        lengths.source[number], lengths.whole[number] = measure_whole(self.predictions, _said(job), default_us)

    # ------------------------------------------------------------------ telling

    def tell(self, lengths: Lengths, looks: Looks) -> dict[int, Forecast]:
        """What the looks come to, by gang number, in words."""
        return {
            number: Forecast(each.at_us, each.low_us, each.high_us, self.say_cause(each.cause, lengths), each.predicted)
            for number, each in tell(lengths, looks, self.calibration).items()
        }

    def say_cause(self, cause: StartCause, lengths: Lengths) -> str:
        """What a start hangs on, in words."""
        other = self.known.register.by_number.get(cause.gang)
        if other is None:
            return ""
        source = lengths.source.get(cause.gang, "")
        call, waits = f"{other.id} ({other.name})", other.state == "pending"
        return say_cause(cause, call, source, other.gang.walltime_us, "--time", waits=waits)


def is_crowded(known: Knowledge) -> bool:
    """Whether so many wait that a question about one of them has to be cheap."""
    return known.planner.state.count_waiting() > CROWD


def _log_failure(looking: asyncio.Future[ForecastAnswer]) -> None:
    if not looking.cancelled() and looking.exception() is not None:
        log.error("a look ahead failed", exc_info=looking.exception())


def _not_before(forecast: Forecast, now_us: int) -> Forecast:
    """Nobody is expected to have started in the past: it will be any moment."""
    if forecast.low_us >= now_us:
        return forecast
    at_us, high_us = max(forecast.at_us, now_us), max(forecast.high_us, now_us)
    return Forecast(at_us, now_us, high_us, forecast.hangs_on, forecast.predicted)


def _said(job: Job, progress_us: float | None = None) -> Said:
    """What is known of its length."""
    walltime_us = job.gang.walltime_us
    stated_us, guess_us = (None, walltime_us) if job.predicted else (walltime_us, None)
    return Said(job.user, job.name, stated_us, guess_us, progress_us)


def _left_by_progress(job: Job, now_us: int) -> float | None:
    """By its own word: steps to go, at the pace of late."""
    told = job.progress or {}
    step, total, rate = told.get("step"), told.get("total"), told.get("rate")
    if step is None or not total or not rate or rate <= 0:
        return None
    since_us = max(0, now_us - int(told.get("at_us") or now_us))
    return max(1e6, (float(total) - float(step)) / float(rate) * 1e6 - since_us)
