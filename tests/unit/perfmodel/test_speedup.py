import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.perfmodel.speedup import FOREVER_US, Amdahl, Linear, Speedup, Table, scaled_us, speedup_at

TABLE = Table(((1, 1.0), (4, 3.0), (8, 4.0)))
CURVES = st.one_of(
    st.just(Linear()),
    st.builds(Amdahl, st.floats(0, 1)),
    st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-3, 1e6)), min_size=1, max_size=6, unique_by=lambda p: p[0])
    .map(lambda points: Table(tuple(sorted(points)))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("curve", "members", "speed"),
    [
        (Linear(), 1, 1.0),
        (Linear(), 7, 7.0),
        (Amdahl(0.0), 8, 8.0),
        (Amdahl(1.0), 8, 1.0),
        (Amdahl(0.5), 2, 1 / 0.75),
        (Amdahl(0.02), 8, 1 / (0.02 + 0.98 / 8)),
        (TABLE, 1, 1.0),
        (TABLE, 2, 1.0 + 2.0 / 3.0),
        (TABLE, 4, 3.0),
        (TABLE, 6, 3.5),
        (TABLE, 8, 4.0),
        (TABLE, 100, 4.0),
        (Table(((4, 3.0), (8, 4.0))), 1, 3.0),
        (Table(((4, 3.0),)), 9, 3.0),
    ],
)
def test_speed(curve: Speedup, members: int, speed: float):
    assert speedup_at(curve, members) == pytest.approx(speed, rel=1e-12)


@pytest.mark.parametrize(
    ("length_us", "curve", "most", "members", "expected"),
    [
        (100, Linear(), 8, 4, 200),
        (100, Linear(), 3, 2, 150),
        (1, Linear(), 3, 2, 2),  # 1.5 rounds up
        (5, Linear(), 1, 2, 3),  # 2.5 rounds up
        (4, Linear(), 1, 3, 1),  # 1.33 rounds down
        (1000, Amdahl(1.0), 8, 1, 1000),
        (1000, Amdahl(0.5), 2, 1, 1333),
        (1000, TABLE, 8, 1, 4000),
        (1000, TABLE, 8, 4, 1333),
        (2, TABLE, 8, 4, 3),  # 2.67 rounds up
        (3 * 10**15, Linear(), 10**6, 1, FOREVER_US),
        (3 * 10**15, Amdahl(0.0), 10**6, 1, FOREVER_US),
    ],
)
def test_stretched_run_time(length_us: int, curve: Speedup, most: int, members: int, expected: int):
    assert scaled_us(length_us, curve, most, members) == expected


@given(st.integers(1, 3 * 10**15), CURVES, st.integers(1, 10**6))
def test_at_the_largest_size_the_time_is_what_was_said(length_us: int, curve: Speedup, most: int):
    assert scaled_us(length_us, curve, most, most) == length_us


@given(st.integers(1, 10**15), CURVES, st.integers(1, 1000), st.integers(1, 1000))
def test_a_stretched_time_is_a_whole_number_within_64_bits(length_us: int, curve: Speedup, most: int, members: int):
    found = scaled_us(length_us, curve, most, members)
    assert type(found) is int
    assert 0 <= found <= FOREVER_US


@given(st.integers(1, 10**9), st.floats(0, 1), st.integers(1, 500), st.integers(1, 500))
def test_more_members_are_never_slower_by_amdahl(length_us: int, serial: float, one: int, other: int):
    few, many = sorted((one, other))
    curve = Amdahl(serial)
    assert scaled_us(length_us, curve, 500, many) <= scaled_us(length_us, curve, 500, few)
