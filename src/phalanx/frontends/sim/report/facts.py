"""What a report says about one run, small enough to travel between processes and to be put into a page.

Everything that grows with the number of gangs is boiled down here: curves to some hundred points, the picture to
some thousand boxes and shading for the rest. Totals stay what they were.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.metrics import find_horizon
from phalanx.frontends.sim.report.cdf import Curve, find_shares
from phalanx.frontends.sim.report.gang_csv import gang_header, gang_rows
from phalanx.frontends.sim.report.parts import split_story
from phalanx.frontends.sim.report.run_picture import Picture, draw_picture, find_marks
from phalanx.frontends.sim.report.stays import Meter, Stretch, read_story
from phalanx.frontends.sim.report.steps import Steps, common_instants, mean_steps, sum_spans
from phalanx.frontends.sim.report.tenant_totals import TenantTotals, Tree, read_tree
from phalanx.frontends.sim.result import COMPLETED, GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.queue import DEFAULT_QUEUE
from phalanx.model.resources import DEVICE_KIND

STEPS_MOST: Final = 360
QUEUE_STEPS_MOST: Final = 120
CURVE_POINTS_MOST: Final = 300
SLOWEST_MOST: Final = 25

#: In which a device does something for its gang, useful or not.
_BUSY_PARTS: Final = ("productive", "startup", "snapshot", "restore", "resize", "lost")


@dataclass(frozen=True, slots=True)
class Usage:
    """The cluster over time, in whole units of the counted kind: one more instant than levels."""

    at_s: list[float]
    capacity: list[float]
    busy: list[float]
    productive: list[float]
    differs: float  # goodput is worked out from the histories, and is so far beside that of the ledger


@dataclass(frozen=True, slots=True)
class Slow:
    """A gang that waited long, and why as far as that is known."""

    name: str
    user: str
    queue: str
    state: str
    submit_s: float
    wait_s: float
    started: bool
    members: int
    needed: float  # units of the counted kind to start
    unused: float  # in service, left when it could first have started
    code: str
    why: str


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue: its numbers, and its level over time in whole units."""

    standing: TenantTotals
    levels: list[float]
    guarantee: float | None
    entitlement: float | None
    limit: float | None


@dataclass(slots=True)
class ReportFacts:
    """One run. Without `pictures` only the numbers of the comparison are there."""

    policy: str
    seed: int
    gangs: int
    completed: int
    deadlines: int  # gangs that have one
    metrics: Mapping[str, object]
    horizon_s: tuple[float, float]
    pictures: Pictures | None = None


@dataclass(slots=True)
class Pictures:
    """The parts of a run that are drawn."""

    usage: Usage
    waits: Curve
    completions: Curve
    queue_at_s: list[float]
    queues: list[QueueFacts]
    users: list[TenantTotals]
    slowest: list[Slow]
    picture: Picture
    gangs_csv: bytes  # gzip
    unit: str  # what the counted kind is called
    states: dict[str, int] = field(default_factory=dict)


def collect_facts(scenario: Scenario, result: SimResult, label: str, boxes_most: int | None = None) -> ReportFacts:
    """The facts of one run. `boxes_most` bounds what the picture holds; None leaves all pictures out."""
    horizon = find_horizon(result.gangs, scenario.until_us)
    facts = ReportFacts(
        policy=label,
        seed=result.seed,
        gangs=len(result.gangs),
        completed=sum(gang.state == COMPLETED for gang in result.gangs),
        deadlines=sum(gang.deadline_us is not None for gang in result.gangs),
        metrics=result.metrics,
        horizon_s=(horizon[0] / SECOND_US, horizon[1] / SECOND_US),
    )
    if boxes_most is not None:
        facts.pictures = _collect_pictures(_Run(scenario, result, horizon), label, boxes_most)
    return facts


class _Run:
    """One run with its histories read once."""

    def __init__(self, scenario: Scenario, result: SimResult, horizon: tuple[int, int]) -> None:
        self.scenario, self.result, self.horizon = scenario, result, horizon
        self.meter = Meter(scenario)
        self.stories: list[list[Stretch]] = [
            list(read_story(self.meter, index, gang, horizon[1])) for index, gang in enumerate(result.gangs)
        ]
        self.capacity = sum_spans(_capacity_spans(scenario, self.meter, horizon), horizon)
        held = [
            (each.start_us, each.end_us, each.units) for story in self.stories for each in story if each.units_by_node
        ]
        self.held = sum_spans(held, horizon)
        self.device_us = [
            sum((each.end_us - each.start_us) * each.units for each in story if each.units_by_node)
            for story in self.stories
        ]

    def queue_of(self, index: int) -> str:
        """The queue of a gang."""
        return self.result.gangs[index].queue or self.scenario.gangs[index].queue

    def unused_at_start(self) -> list[float]:
        """Whole units in service that nobody had taken when each gang could first have started."""
        at = np.array([_eligible_us(gang) for gang in self.result.gangs], dtype=np.int64)
        outages = [
            (mark.start_us, mark.end_us, self.meter.capacity_by_node.get(mark.node, 0))
            for mark in find_marks(self.scenario, self.result, self.horizon)
            if mark.what != "reservation"
        ]
        away = sum_spans(outages, self.horizon)
        free = self.capacity.level_at(at) - self.held.level_at(at) - away.level_at(at)
        levels: list[float] = (np.maximum(free, 0.0) / self.meter.whole).tolist()
        return levels


def _collect_pictures(run: _Run, label: str, boxes_most: int) -> Pictures:
    gangs = run.result.gangs
    waits = [wait / SECOND_US for gang in gangs if (wait := gang.wait_us) is not None]
    ends = [gang.end_us - gang.submit_us for gang in gangs if gang.state == COMPLETED and gang.end_us is not None]
    unused = run.unused_at_start()
    states: dict[str, int] = {}
    for gang in gangs:
        states[gang.state] = states.get(gang.state, 0) + 1
    queue_at_s, queues = _collect_queues(run)
    rows = gang_rows(run.result, label, [run.queue_of(index) for index in range(len(gangs))])
    return Pictures(
        usage=_collect_usage(run),
        waits=find_shares(waits, len(gangs), CURVE_POINTS_MOST),
        completions=find_shares([end / SECOND_US for end in ends], len(gangs), CURVE_POINTS_MOST),
        queue_at_s=queue_at_s,
        queues=queues,
        users=_collect_users(run),
        slowest=_find_slowest(run, unused),
        picture=draw_picture(run.scenario, run.result, run.meter, run.stories, run.horizon, unused, boxes_most),
        # No time in it: the same run gives the same bytes.
        gangs_csv=gzip.compress((gang_header() + rows).encode("utf-8", "backslashreplace"), mtime=0),
        unit=name_unit(run.meter.kind),
        states=states,
    )


def _collect_usage(run: _Run) -> Usage:
    spans: dict[str, list[tuple[int, int, int]]] = {"busy": [], "productive": []}
    for gang, story in zip(run.scenario.gangs, run.stories, strict=True):
        for part, start, end, units in split_story(gang, story):
            if part in _BUSY_PARTS:
                spans["busy"].append((start, end, units))
            if part == "productive":
                spans["productive"].append((start, end, units))
    curves = [run.capacity, *(sum_spans(each, run.horizon) for each in spans.values())]
    at_us = common_instants(curves, STEPS_MOST)
    capacity, busy, productive = (_whole(mean_steps(curve, at_us), run.meter) for curve in curves)
    return Usage((at_us / SECOND_US).tolist(), capacity, busy, productive, _differs(run, curves[2]))


def _differs(run: _Run, productive: Steps) -> float:
    """By how much of the capacity the curve's goodput is beside that of the ledger."""
    goodput, capacity = run.result.metrics.get("goodput"), run.capacity.area
    if not isinstance(goodput, (int, float)) or not capacity:
        return 0.0
    return abs(productive.area / capacity - goodput)


def _collect_queues(run: _Run) -> tuple[list[float], list[QueueFacts]]:
    """Queues in the order of the file, those without any gang left out."""
    capacity = sum(run.meter.capacity_by_node.values())
    tree = read_tree(run.scenario.queues, run.meter.kind, capacity)
    standings: dict[str, TenantTotals] = {name: TenantTotals(name) for name in tree.above}
    spans: dict[str, list[tuple[int, int, int]]] = {}
    for index, (gang, story) in enumerate(zip(run.result.gangs, run.stories, strict=True)):
        device_s = run.device_us[index] / SECOND_US / run.meter.whole
        held = [(each.start_us, each.end_us, each.units) for each in story if each.units_by_node]
        for name in tree.above.get(run.queue_of(index), (run.queue_of(index),)):
            standings.setdefault(name, TenantTotals(name)).add(gang, device_s)
            spans.setdefault(name, []).extend(held)
    present = [standing for standing in standings.values() if standing.gangs]
    if [standing.name for standing in present] == [DEFAULT_QUEUE]:
        return [], [_queue_facts(present[0], [], tree, run.meter)]  # one queue for all is the cluster itself
    curves = [sum_spans(spans[standing.name], run.horizon) for standing in present]
    at_us = common_instants(curves, QUEUE_STEPS_MOST)
    levels = [_whole(mean_steps(curve, at_us), run.meter) for curve in curves]
    found = [_queue_facts(standing, level, tree, run.meter) for standing, level in zip(present, levels, strict=True)]
    return (at_us / SECOND_US).tolist(), found


def _queue_facts(standing: TenantTotals, levels: list[float], tree: Tree, meter: Meter) -> QueueFacts:
    amounts = [known.get(standing.name) for known in (tree.guarantees, tree.entitlements, tree.limits)]
    guarantee, entitlement, limit = (None if amount is None else amount / meter.whole for amount in amounts)
    return QueueFacts(standing, levels, guarantee, entitlement, limit)


def _collect_users(run: _Run) -> list[TenantTotals]:
    """Users by the device time they got, most first."""
    standings: dict[str, TenantTotals] = {}
    for index, gang in enumerate(run.result.gangs):
        standing = standings.setdefault(gang.user, TenantTotals(gang.user))
        standing.add(gang, run.device_us[index] / SECOND_US / run.meter.whole)
    return sorted(standings.values(), key=lambda standing: -standing.device_s)


def _find_slowest(run: _Run, unused: list[float]) -> list[Slow]:
    """Those that waited longest; one that never started waits until the end of the run."""
    waited = [
        (_waited_us(gang, run.horizon[1]), index)
        for index, gang in enumerate(run.result.gangs)
        if run.stories[index] and gang.state != "cancelled"
    ]
    waited.sort(key=lambda each: (-each[0], each[1]))
    found = []
    for wait_us, index in waited[:SLOWEST_MOST]:
        gang = run.result.gangs[index]
        if wait_us <= 0:
            break
        code, why, *_ = gang.wait_reason or gang.reason or ("", "")
        found.append(
            Slow(
                *(gang.name, gang.user, run.queue_of(index), gang.state, gang.submit_us / SECOND_US),
                wait_s=wait_us / SECOND_US,
                started=gang.start_us is not None,
                members=gang.members or run.scenario.gangs[index].members_min,
                needed=run.meter.units_at_least(index) / run.meter.whole,
                unused=unused[index],
                code=code,
                why=why,
            )
        )
    return found


def name_unit(kind: str) -> str:
    """A kind as it stands in a sentence."""
    return "GPU" if kind == DEVICE_KIND else kind


def _eligible_us(gang: GangResult) -> int:
    return gang.submit_us if gang.eligible_us is None else gang.eligible_us


def _waited_us(gang: GangResult, last_us: int) -> int:
    wait = gang.wait_us
    return max(0, last_us - _eligible_us(gang)) if wait is None else wait


def _capacity_spans(scenario: Scenario, meter: Meter, horizon: tuple[int, int]) -> list[tuple[int, int, int]]:
    """When each node was part of the cluster, in service or not."""
    there = dict.fromkeys((node.name for node in scenario.nodes), horizon[0])
    spans = []
    for event in sorted(scenario.events, key=lambda event: event.at_us):
        if event.verb == "add" and event.added is not None:
            there.setdefault(event.added.name, event.at_us)
        elif event.verb == "remove" and event.node in there:
            spans.append((there.pop(event.node), event.at_us, meter.capacity_by_node[event.node]))
    spans += [(start, horizon[1], meter.capacity_by_node[name]) for name, start in there.items()]
    return spans


def _whole(steps: Steps, meter: Meter) -> list[float]:
    levels: list[float] = (steps.levels / meter.whole).round(6).tolist()
    return levels
