"""The picture of one run: boxes on the nodes, rows of gangs, and what is told about each on pointing at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.report.device_layout import Boxes, HoldingChange, Shade, lay_out, limit_boxes
from phalanx.frontends.sim.report.stays import Meter, Stretch
from phalanx.frontends.sim.result import GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario

ROWS_MOST: Final = 300
MARKS_MOST: Final = 4_000

#: Entries of a gang's history that are told; of a gang that changes more often, the first.
_STORY_MOST: Final = 40


@dataclass(frozen=True, slots=True)
class NodeMark:
    """Something that happened to a node, or was planned for it."""

    node: str
    start_us: int
    end_us: int
    what: str  # down, maintenance, reservation


@dataclass(frozen=True, slots=True)
class Tooltip:
    """What is told about a gang on pointing at it."""

    name: str
    user: str
    queue: str
    state: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    wait_s: float | None
    members: int
    members_max: int
    needed: float
    unused: float
    why: str
    story: list[tuple[float, str, int]]  # when, event, members after it; only where it is more than start and end


@dataclass(frozen=True, slots=True)
class GanttRow:
    """One gang as a row: stretches as (from, to, wait or run or hold, members)."""

    gang: int  # number in the list of those told about
    stretches: list[tuple[float, float, str, int]]


@dataclass(frozen=True, slots=True)
class Picture:
    """Both views. `boxes` is None where there were too many places to lay out."""

    nodes: list[tuple[str, int]]  # name and units, from the top
    boxes: Boxes | None  # `gang` counts in `told`
    boxes_all: int
    share_drawn: float  # of all device time, how much the boxes show one by one
    shade: Shade | None
    marks: list[NodeMark]
    rows: list[GanttRow]
    gangs_all: int
    told: list[Tooltip]


def draw_picture(
    scenario: Scenario,
    result: SimResult,
    meter: Meter,
    stories: Sequence[list[Stretch]],
    horizon: tuple[int, int],
    unused: Sequence[float],
    boxes_most: int,
) -> Picture:
    """Lay a run out and keep of it what a screen can show."""
    capacity_by_node = {node: units for node, units in meter.capacity_by_node.items() if units}
    height = sum(capacity_by_node.values())
    every = lay_out(capacity_by_node, _read_changes(stories))
    drawn, shade = (None, None) if every is None else limit_boxes(every, boxes_most, horizon, height)
    rows = choose_rows(result.gangs, stories, horizon[1])
    shown = dict.fromkeys([] if drawn is None else drawn.gang.tolist()) | dict.fromkeys(rows)
    numbers = {index: number for number, index in enumerate(shown)}
    share = 1.0
    if drawn is not None and every is not None:
        total = float(every.areas.sum())
        share = float(drawn.areas.sum()) / total if total else 1.0
        local = np.array([numbers[index] for index in drawn.gang.tolist()], dtype=np.int64)
        drawn = Boxes(local, drawn.runs, drawn.top, drawn.bottom, drawn.start_us, drawn.end_us)
    return Picture(
        nodes=list(capacity_by_node.items()),
        boxes=drawn,
        boxes_all=0 if every is None else len(every),
        share_drawn=share,
        shade=shade,
        marks=_longest(mark for mark in find_marks(scenario, result, horizon) if mark.node in capacity_by_node),
        rows=[_row(numbers[index], stories[index]) for index in rows],
        gangs_all=len(result.gangs),
        told=[_tell(scenario, result.gangs[index], index, meter, unused[index]) for index in shown],
    )


def choose_rows(gangs: Sequence[GangResult], stories: Sequence[list[Stretch]], last_us: int) -> list[int]:
    """Gangs that get a row, in the order of their submit: all, or those that waited longest."""
    present = [index for index, story in enumerate(stories) if story]
    if len(present) > ROWS_MOST:
        present.sort(key=lambda index: (-_wait_us(gangs[index], last_us), index))
    return sorted(present[:ROWS_MOST], key=lambda index: (gangs[index].submit_us, index))


def find_marks(scenario: Scenario, result: SimResult, horizon: tuple[int, int]) -> Iterator[NodeMark]:
    """Nodes out of service and windows, cut to the horizon."""
    first, last = horizon
    outages = result.outages if result.outages is not None else _planned_outages(scenario)
    found = [NodeMark(node, start, last if end is None else end, "down") for node, start, end in outages]
    for window in scenario.windows:
        what = "maintenance" if window.maintenance else "reservation"
        found += [NodeMark(node, window.start_us, window.end_us, what) for node in window.nodes]
    for mark in found:
        start, end = max(mark.start_us, first), min(mark.end_us, last)
        if end > start:
            yield NodeMark(mark.node, start, end, mark.what)


def _longest(marks: Iterable[NodeMark]) -> list[NodeMark]:
    """As many as can be told apart: on thousands of nodes over months, short outages are thinner than a line."""
    return sorted(marks, key=lambda mark: mark.start_us - mark.end_us)[:MARKS_MOST]


def _planned_outages(scenario: Scenario) -> list[tuple[str, int, int | None]]:
    """Failures that the file itself has."""
    down: dict[str, int] = {}
    found: list[tuple[str, int, int | None]] = []
    for event in sorted(scenario.events, key=lambda event: event.at_us):
        if event.node is None:
            continue
        if event.verb in ("fail", "remove"):
            down.setdefault(event.node, event.at_us)
        elif event.verb in ("repair", "add") and event.node in down:
            found.append((event.node, down.pop(event.node), event.at_us))
    return [*found, *((node, start, None) for node, start in down.items())]


def _read_changes(stories: Sequence[list[Stretch]]) -> Iterator[HoldingChange]:
    """Stories as changes of what is held; each ends with nothing."""
    for index, story in enumerate(stories):
        held = False
        for stretch in story:
            if stretch.units_by_node or held:
                yield HoldingChange(stretch.start_us, index, stretch.what, stretch.units_by_node)
            held = bool(stretch.units_by_node)
        if held:
            yield HoldingChange(story[-1].end_us, index, "wait", {})


def _row(number: int, story: Sequence[Stretch]) -> GanttRow:
    return GanttRow(
        number, [(each.start_us / SECOND_US, each.end_us / SECOND_US, each.what, each.members) for each in story]
    )


def _tell(scenario: Scenario, gang: GangResult, index: int, meter: Meter, unused: float) -> Tooltip:
    asked = scenario.gangs[index]
    reason = gang.wait_reason or gang.reason
    plain = len(gang.history) <= 2 and all(entry.event in ("bind", "complete") for entry in gang.history)
    return Tooltip(
        *(gang.name, gang.user, gang.queue or asked.queue, gang.state, gang.submit_us / SECOND_US),
        start_s=_seconds(gang.start_us),
        end_s=_seconds(gang.end_us),
        wait_s=_seconds(gang.wait_us),
        members=gang.members,
        members_max=asked.members_max,
        needed=meter.units_at_least(index) / meter.whole,
        unused=unused,
        why="" if reason is None else f"{reason[1]} ({reason[0]})",
        story=[]
        if plain
        else [(entry.at_us / SECOND_US, entry.event, entry.members) for entry in gang.history[:_STORY_MOST]],
    )


def _wait_us(gang: GangResult, last_us: int) -> int:
    wait = gang.wait_us
    return last_us - gang.submit_us if wait is None else wait


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / SECOND_US
