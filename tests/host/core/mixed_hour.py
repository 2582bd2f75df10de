"""An hour of one machine with all kinds of people, in virtual time, and how good its forecasts were."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from random import Random

from telling_world import UIDS, World

from phalanx.frontends.host.store import AddEstimate

#: Who they are, by what they do with --time.
KINDS = ("honest", "crashing", "overstating", "understating", "silent")
for at, kind in enumerate(KINDS):
    UIDS.setdefault(kind, 2000 + at)
HOUR_S = 3600


@dataclass
class Drawn:
    at_s: float
    user: str
    name: str
    gpus: int
    stated_s: float | None
    runs_s: float
    ends: str


def draw_jobs(rng: Random, many: int) -> list[Drawn]:
    return sorted((_draw(rng) for _ in range(many)), key=lambda job: job.at_s)


def _draw(rng: Random) -> Drawn:
    user = rng.choice(KINDS)
    program = rng.randint(0, 2)
    needs_s = (40, 120, 400)[program] * rng.uniform(0.7, 1.4)
    stated_s = {
        "honest": needs_s / rng.uniform(0.85, 1.0),
        "crashing": needs_s / rng.uniform(0.85, 1.0),
        "overstating": needs_s * rng.uniform(3, 8),
        "understating": needs_s / rng.uniform(1.2, 2.0),
        "silent": None,
    }[user]
    ends = "completed"
    if user == "crashing" and rng.random() < 0.5:
        needs_s, ends = rng.uniform(0.5, 5), "failed"
    gpus = rng.choice((1, 1, 1, 2, 2, 4, 8))
    return Drawn(rng.uniform(0, HOUR_S), user, f"{user}{program}", gpus, stated_s, needs_s, ends)


@dataclass
class Hour:
    """What was foreseen, and what came of it."""

    world: World
    estimates: list[AddEstimate] = field(default_factory=list)
    started_us: dict[int, int] = field(default_factory=dict)

    @property
    def judged(self) -> list[tuple[AddEstimate, int]]:
        return [(each, self.started_us[each.job]) for each in self.estimates if each.job in self.started_us]

    @property
    def inside(self) -> float:
        return sum(each.low_us <= at_us <= each.high_us for each, at_us in self.judged) / len(self.judged)


def play(seed: int, policy: str = "goodput", many: int = 50, look_every_s: int = 180) -> Hour:
    """Everybody comes, runs and ends; people look at the list now and then, and whenever somebody has come."""
    rng = Random(seed)
    hour = Hour(World(policy))
    world, sequence = hour.world, 0
    world.forecaster.on_estimates = hour.estimates.extend
    began_us = world.clock.us
    truth: dict[int, Drawn] = {}
    heap: list[tuple[int, int, str, object]] = []

    def push(at_us, what, about=None):
        nonlocal sequence
        sequence += 1
        heapq.heappush(heap, (at_us, sequence, what, about))

    for drawn in draw_jobs(rng, many):
        push(began_us + round(drawn.at_s * 1e6), "come", drawn)
    for at_s in range(0, 2 * HOUR_S, look_every_s):
        push(began_us + at_s * 1_000_000, "look")
    while heap:
        at_us, _, what, about = heapq.heappop(heap)
        world.clock.us = max(world.clock.us, at_us)
        if what == "come":
            truth[_submit(world, about)] = about
        elif what == "end":
            _end(world, about, truth[about.id])
        world.plan()
        for job in world.known.register:
            if job.live is not None and job.id not in hour.started_us:
                hour.started_us[job.id] = world.clock.us
                world.forecaster.note_start(job, job.live)
                push(world.clock.us + round(truth[job.id].runs_s * 1e6), "end", job)
        if what != "end":
            asyncio.run(world.forecaster.forecasts())
    return hour


def _submit(world: World, drawn: Drawn) -> int:
    guess_us = None if drawn.stated_s else world.predictions.walltime_us(drawn.user, drawn.name)
    walltime_s = drawn.stated_s if guess_us is None else guess_us / 1e6
    said = {} if walltime_s is None else {"walltime": walltime_s}
    line = f"{drawn.gpus} gpu=1"
    return world.submit(drawn.name, line, drawn.user, predicted=guess_us is not None, **said).id


def _end(world: World, job, drawn: Drawn) -> None:
    world.end(job, drawn.ends)
    if drawn.ends == "completed":
        world.predictions.note(drawn.user, drawn.name, drawn.runs_s, drawn.stated_s)
