"""Boxes of the picture: nothing lies on anything else, and nothing gets lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.frontends.sim.report import device_layout
from phalanx.frontends.sim.report.device_layout import HoldingChange, lay_out, limit_boxes

NODES = {"a": 4000, "b": 4000, "c": 2000}


def boxes_of(changes, nodes=NODES):
    found = lay_out(nodes, changes)
    assert found is not None
    columns = (found.gang, found.runs, found.top, found.bottom, found.start_us, found.end_us)
    return [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def stay(gang, start, end, units_by_node, what="run"):
    return [HoldingChange(start, gang, what, units_by_node), HoldingChange(end, gang, "wait", {})]


def test_one_gang_on_two_whole_neighbours_is_one_box():
    assert boxes_of(stay(7, 0, 10, {"a": 4000, "b": 4000})) == [(7, 1, 0, 8000, 0, 10)]


def test_who_comes_at_the_instant_another_leaves_gets_its_place():
    found = boxes_of([*stay(1, 0, 10, {"a": 4000}), *stay(0, 10, 20, {"a": 4000})])
    assert found == [(1, 1, 0, 4000, 0, 10), (0, 1, 0, 4000, 10, 20)]


def test_growth_leaves_the_first_box_as_it_is():
    grown = [
        HoldingChange(0, 0, "run", {"a": 1000}),
        HoldingChange(5, 0, "run", {"a": 3000}),
        HoldingChange(9, 0, "wait", {}),
    ]
    assert boxes_of(grown) == [(0, 1, 0, 1000, 0, 9), (0, 1, 1000, 3000, 5, 9)]


def test_shrinking_ends_a_part_of_a_box():
    shrunk = [
        HoldingChange(0, 0, "run", {"a": 3000}),
        HoldingChange(5, 0, "run", {"a": 1000}),
        HoldingChange(9, 0, "wait", {}),
    ]
    assert boxes_of(shrunk) == [(0, 1, 0, 1000, 0, 9), (0, 1, 1000, 3000, 0, 5)]


def test_holding_is_another_box_than_running():
    degraded = [
        HoldingChange(0, 0, "run", {"a": 2000}),
        HoldingChange(5, 0, "hold", {"a": 2000}),
        HoldingChange(8, 0, "wait", {}),
    ]
    assert boxes_of(degraded) == [(0, 1, 0, 2000, 0, 5), (0, 0, 0, 2000, 5, 8)]


def test_a_gang_in_pieces_fills_the_gaps():
    first = [*stay(0, 0, 9, {"a": 1000}), *stay(1, 0, 4, {"a": 1000}), *stay(2, 0, 9, {"a": 1000})]
    found = boxes_of([*first, *stay(3, 5, 9, {"a": 2000})])
    assert [box[2:4] for box in found if box[0] == 3] == [(1000, 2000), (3000, 4000)]


def test_a_picture_of_too_many_places_is_not_drawn(monkeypatch):
    monkeypatch.setattr(device_layout, "PLACES_MOST", 1)
    assert lay_out(NODES, stay(0, 0, 9, {"a": 1000, "b": 1000})) is None


@st.composite
def stays(draw):
    """Gangs that come and go, never more than a node has."""
    changes, free, held = [], dict(NODES), {}
    for at in range(draw(st.integers(1, 25))):
        gang = draw(st.integers(0, 5))
        for node, units in held.pop(gang, {}).items():
            free[node] += units
        wanted = {node: draw(st.integers(0, free[node] // 500)) * 500 for node in NODES}
        units_by_node = {node: units for node, units in wanted.items() if units}
        for node, units in units_by_node.items():
            free[node] -= units
        if units_by_node:
            held[gang] = units_by_node
        changes.append(
            HoldingChange(at, gang, draw(st.sampled_from(["run", "hold"])) if units_by_node else "wait", units_by_node)
        )
    return [*changes, *(HoldingChange(99, gang, "wait", {}) for gang in held)]


def area_of(changes):
    total = 0
    for gang in {change.gang for change in changes}:
        mine = [change for change in changes if change.gang == gang]
        total += sum(sum(a.units_by_node.values()) * (b.at_us - a.at_us) for a, b in pairwise(mine))
    return total


@given(stays())
def test_boxes_never_overlap_and_have_the_area_of_what_was_held(changes):
    boxes = boxes_of(changes)
    for index, (_, _, top, bottom, start, end) in enumerate(boxes):
        assert top < bottom
        assert start < end
        for _, _, other_top, other_bottom, other_start, other_end in boxes[index + 1 :]:
            assert end <= other_start or other_end <= start or bottom <= other_top or other_bottom <= top
    assert sum((bottom - top) * (end - start) for _, _, top, bottom, start, end in boxes) == area_of(changes)


@given(stays(), st.integers(0, 6))
def test_what_is_not_drawn_one_by_one_is_shaded(changes, most):
    every = lay_out(NODES, changes)
    kept, shade = limit_boxes(every, most, (0, 99), sum(NODES.values()))
    assert len(kept) == min(most, len(every))
    shaded = 0.0 if shade is None else shade.area
    assert kept.areas.sum() + shaded == pytest.approx(every.areas.sum())
    assert (shade is None) == (len(every) <= most)
    if shade is not None:
        assert 0 <= shade.shares.min() <= shade.shares.max() <= 1 + 1e-9
        assert kept.areas.min(initial=1e18) >= sorted(every.areas)[len(every) - len(kept)] if len(kept) else True
