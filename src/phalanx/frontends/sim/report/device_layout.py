"""Lay gangs out on the devices of the nodes, for a picture with time to the right and devices downwards.

Histories say how much of which node a gang holds, not which device; any choice that never puts two on one place
is a fair picture. The lowest free place is taken, so that the picture stays calm.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from phalanx.frontends.sim.report.stays import What
from phalanx.frontends.sim.report.steps import FloatArray, IntArray

#: More would take longer to lay out than the run took, and no screen shows it.
PLACES_MOST: Final = 2_000_000

_SHADE_ROWS_MOST: Final = 128
_SHADE_COLUMNS: Final = 480


@dataclass(frozen=True, slots=True)
class HoldingChange:
    """From now on a gang holds this, and runs or does not."""

    at_us: int
    gang: int
    what: What
    units_by_node: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Rectangles of the picture, as columns. Heights are in units of the counted kind, from the first node down."""

    gang: IntArray
    runs: IntArray  # 1, or 0 where a gang holds places without running
    top: IntArray
    bottom: IntArray
    start_us: IntArray
    end_us: IntArray

    def __len__(self) -> int:
        return len(self.gang)

    @property
    def areas(self) -> FloatArray:
        """Units × µs of each."""
        areas: FloatArray = (self.bottom - self.top).astype(float) * (self.end_us - self.start_us)
        return areas

    def take(self, which: IntArray) -> Boxes:
        """Some of them."""
        return Boxes(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Shade:
    """What is not drawn box by box: the mean share of each cell that is taken."""

    start_us: int
    end_us: int
    height: int
    shares: FloatArray  # rows × columns

    @property
    def area(self) -> float:
        """Units × µs of all of it."""
        return float(self.shares.mean()) * self.height * (self.end_us - self.start_us)


@dataclass(slots=True)
class _Node:
    """One node's free places as sorted (from, to)."""

    free: list[tuple[int, int]]

    def take(self, units: int) -> list[tuple[int, int]]:
        """The lowest gap that holds it all, else the lowest gaps; less than asked if there is no more."""
        for place, (low, high) in enumerate(self.free):
            if high - low >= units:
                self.free[place : place + 1] = [(low + units, high)] if high - low > units else []
                return [(low, low + units)]
        taken = []
        while units and self.free:
            low, high = self.free.pop(0)
            used = min(units, high - low)
            taken.append((low, low + used))
            if used < high - low:
                self.free.insert(0, (low + used, high))
            units -= used
        return taken

    def give(self, low: int, high: int) -> None:
        """Back again; gaps that touch become one."""
        insort(self.free, (low, high))
        merged: list[tuple[int, int]] = []
        for start, end in self.free:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        self.free = merged


@dataclass(slots=True)
class _Drawn:
    """What a gang has on the picture now: per node its (from, to, since)."""

    what: What = "wait"
    places: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)


class _Board:
    """The picture while it is being laid out."""

    def __init__(self, capacity_by_node: Mapping[str, int]) -> None:
        self.tops: dict[str, int] = {}
        self.nodes: dict[str, _Node] = {}
        top = 0
        for name, capacity in capacity_by_node.items():
            self.tops[name] = top
            self.nodes[name] = _Node([(0, capacity)] if capacity else [])
            top += capacity
        self.held: dict[int, _Drawn] = {}
        self.boxes: list[tuple[int, int, int, int, int, int]] = []

    def release(self, change: HoldingChange) -> None:
        """First half of a change: close what ends, and everything if the gang stops or starts to run."""
        held = self.held.setdefault(change.gang, _Drawn())
        if not change.units_by_node:
            self._leave(change)
            return
        for node, places in list(held.places.items()):
            if held.what != change.what:
                for place in places:
                    self._close(change, node, place, held.what)
                places[:] = [(low, high, change.at_us) for low, high, _ in places]
            surplus = sum(high - low for low, high, _ in places) - change.units_by_node.get(node, 0)
            while surplus > 0:
                low, high, since = places.pop()
                kept = max(low, high - surplus)
                self._close(change, node, (kept, high, since), held.what)
                self.nodes[node].give(kept, high)
                if kept > low:
                    places.append((low, kept, since))
                surplus -= high - kept
            if not places:
                del held.places[node]
        held.what = change.what

    def take(self, change: HoldingChange) -> None:
        """Second half: open what is new."""
        for node, units in change.units_by_node.items():
            held = self.held[change.gang]
            places = held.places.setdefault(node, [])
            more = units - sum(high - low for low, high, _ in places)
            if more > 0 and node in self.nodes:
                places += [(low, high, change.at_us) for low, high in self.nodes[node].take(more)]

    def _leave(self, change: HoldingChange) -> None:
        held = self.held.pop(change.gang)
        for node, places in held.places.items():
            for place in places:
                self._close(change, node, place, held.what)
                self.nodes[node].give(place[0], place[1])

    def _close(self, change: HoldingChange, node: str, place: tuple[int, int, int], what: What) -> None:
        low, high, since = place
        if change.at_us > since:
            top = self.tops[node]
            self.boxes.append((change.gang, int(what == "run"), top + low, top + high, since, change.at_us))


def lay_out(capacity_by_node: Mapping[str, int], changes: Iterable[HoldingChange]) -> Boxes | None:
    """All boxes of a run, or nothing if there are too many places to lay out. Every gang's last change empties it."""
    ordered = sorted(changes, key=lambda change: (change.at_us, change.gang))
    if sum(len(change.units_by_node) for change in ordered) > PLACES_MOST:
        return None
    board = _Board(capacity_by_node)
    for _, group in groupby(ordered, key=lambda change: change.at_us):
        now = list(group)
        for change in now:  # what leaves makes room for what comes at the same instant
            board.release(change)
        for change in now:
            board.take(change)
    return _join(np.array(board.boxes, dtype=np.int64).reshape(-1, 6))


def _join(table: IntArray) -> Boxes:
    """Boxes of one gang and one time that touch become one: a gang on ten whole nodes is one box."""
    table = table[np.lexsort((table[:, 2], table[:, 5], table[:, 4], table[:, 1], table[:, 0]))]
    if len(table):
        same = (table[1:, [0, 1, 4, 5]] == table[:-1, [0, 1, 4, 5]]).all(axis=1) & (table[1:, 2] == table[:-1, 3])
        begins = np.flatnonzero(np.concatenate(([True], ~same)))
        ends = np.concatenate((begins[1:], [len(table)])) - 1
        joined = table[begins]
        joined[:, 3] = table[ends, 3]
        table = joined[np.lexsort((joined[:, 2], joined[:, 4]))]
    return Boxes(*(table[:, column] for column in range(6)))


def limit_boxes(boxes: Boxes, most: int, horizon: tuple[int, int], height: int) -> tuple[Boxes, Shade | None]:
    """The largest boxes one by one, and the rest as shading. Together they have the area of all."""
    if len(boxes) <= most:
        return boxes, None
    by_area = np.argsort(-boxes.areas, kind="stable")
    kept, rest = np.sort(by_area[:most]), by_area[most:]
    return boxes.take(kept), _shade(boxes.take(rest), horizon, height)


def _shade(boxes: Boxes, horizon: tuple[int, int], height: int) -> Shade:
    rows, columns = min(_SHADE_ROWS_MOST, height), _SHADE_COLUMNS
    first, last = horizon
    cells = [[0.0] * columns for _ in range(rows)]
    tops, bottoms = boxes.top * rows / height, boxes.bottom * rows / height
    scale = columns / (last - first)
    starts, ends = (boxes.start_us - first) * scale, (boxes.end_us - first) * scale
    for top, bottom, start, end in zip(tops.tolist(), bottoms.tolist(), starts.tolist(), ends.tolist(), strict=True):
        for row, tall in _overlaps(top, bottom, rows):
            for column, wide in _overlaps(start, end, columns):
                cells[row][column] += tall * wide
    return Shade(first, last, height, np.array(cells))


def _overlaps(low: float, high: float, count: int) -> Sequence[tuple[int, float]]:
    """Cells of length 1 that a stretch touches, and how much of each."""
    first, last = int(low), min(int(high), count - 1)
    if first >= last:
        return ((min(first, count - 1), high - low),)
    return [(cell, min(high, cell + 1) - max(low, cell)) for cell in range(first, last + 1)]
