"""Sums over time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.frontends.sim.report.steps import common_instants, mean_steps, sum_spans

SPANS = st.lists(
    st.tuples(st.integers(-50, 1000), st.integers(0, 400), st.integers(0, 8000)).map(
        lambda s: (s[0], s[0] + s[1], s[2])
    ),
    max_size=40,
)


def test_levels_change_where_spans_begin_and_end():
    steps = sum_spans([(0, 10, 2), (5, 20, 3)], (0, 20))
    assert steps.at_us.tolist() == [0, 5, 10, 20]
    assert steps.levels.tolist() == [2, 5, 3]
    assert steps.level_at(np.array([-1, 0, 4, 5, 19, 20])).tolist() == [0, 2, 2, 5, 3, 0]


def test_spans_are_cut_to_the_horizon():
    steps = sum_spans([(-10, 5, 4), (15, 99, 2), (30, 40, 7)], (0, 20))
    assert steps.at_us.tolist() == [0, 5, 15, 20]
    assert steps.levels.tolist() == [4, 0, 2]


def test_nothing_over_no_time():
    assert sum_spans([(0, 5, 1)], (3, 3)).area == 0
    assert sum_spans([], (0, 4)).levels.tolist() == [0]


@given(SPANS)
def test_the_area_is_that_of_the_spans(spans):
    inside = sum(units * max(0, min(end, 900) - max(start, 0)) for start, end, units in spans)
    assert sum_spans(spans, (0, 900)).area == inside


@given(SPANS, st.integers(1, 30))
def test_fewer_steps_have_the_same_area(spans, most):
    steps = sum_spans(spans, (0, 900))
    fewer = mean_steps(steps, common_instants([steps], most))
    assert len(fewer.levels) <= max(most, 1)
    assert fewer.area == pytest.approx(steps.area, rel=1e-9, abs=1e-6)
    assert fewer.levels.max(initial=0) <= steps.levels.max(initial=0) + 1e-6


def test_curves_drawn_together_share_their_instants():
    one, two = sum_spans([(0, 10, 2)], (0, 20)), sum_spans([(5, 20, 3)], (0, 20))
    at = common_instants([one, two], 10)
    assert at.tolist() == [0, 5, 10, 20]
    assert mean_steps(one, at).levels.tolist() == [2, 2, 0]
    assert common_instants([one, two], 2).tolist() == [0, 10, 20]
    assert mean_steps(two, common_instants([one, two], 2)).levels.tolist() == [1.5, 3]
