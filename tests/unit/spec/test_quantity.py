from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.control.spec.errors import BadText
from phalanx.control.spec.quantity import TIME_US_MAX, amount, device_amount, duration_us, member_amount, number

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("written", "us"),
    [
        (0, 0),
        (90, 90 * SECOND),
        (0.2, 200_000),
        (0.1, 100_000),
        (1e-6, 1),
        (5e-7, 1),  # half a microsecond rounds up
        (4e-7, 0),
        ("90", 90 * SECOND),
        ("1e3", 1000 * SECOND),
        ("0.2s", 200_000),
        (".5s", 500_000),
        ("200ms", 200_000),
        ("10us", 10),
        ("5m", 300 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1h 30m", 5400 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("2d", 172_800 * SECOND),
        ("1w", 604_800 * SECOND),
        (" 5m ", 300 * SECOND),
    ],
)
def test_times(written, us: int):
    assert duration_us(written) == us


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (-1, "must not be negative (got -1)"),
        ("-5m", "must not be negative (got '-5m')"),
        (float("nan"), "must be an ordinary number (got nan)"),
        (float("inf"), "must be an ordinary number (got inf)"),
        (1e300, "must be an ordinary number"),
        (10**12, "is more than 100 years"),
        ("40000d", "is more than 100 years"),
        ("5 minutes", "is no time (got '5 minutes')"),
        ("5x", "is no time"),
        ("", "is no time"),
        ("m", "is no time"),
        ("9" * 100 + "s", "is no time"),
        (True, 'must be a time such as 90, "5m" or "1h30m" (got true)'),
        ([], "(got a list)"),
        (None, "(got nothing)"),
    ],
)
def test_what_is_no_time(written, why: str):
    with pytest.raises(BadText) as bad:
        duration_us(written)
    assert why in str(bad.value)


@pytest.mark.parametrize(
    ("written", "kind", "units"),
    [
        (8, "gpu", 8000),
        (0.5, "gpu", 500),
        (0.1, "gpu", 100),
        ("0.3", "gpu", 300),
        (0, "gpu", 0),
        ("500m", "cpu", 500),
        (2.25, "cpu", 2250),
        ("2k", "license", 2_000_000),
        (1024, "memory", 1024),
        ("1Ki", "memory", 1024),
        ("1.5Gi", "memory", 3 << 29),
        ("1Ti", "memory", 1 << 40),
        ("64G", "memory", 64 * 10**9),
        ("0.1Ki", "memory", 103),  # part of a byte is a byte
        ("1Gi", "hugepages-2Mi", 1 << 30),
    ],
)
def test_amounts(written, kind: str, units: int):
    assert amount(written, kind) == units


@pytest.mark.parametrize(
    ("written", "kind", "why"),
    [
        (-1, "gpu", "must not be negative (got -1)"),
        ("-1Gi", "memory", "must not be negative"),
        (0.0005, "gpu", "is finer than a thousandth (got 0.0005); write 0"),
        (0.3333, "gpu", "is finer than a thousandth (got 0.3333); write 0.333"),
        (float("nan"), "gpu", "must be an ordinary number (got nan)"),
        ("1Pi", "memory", "is too large"),
        (10**30, "gpu", "is too large"),
        ("64GB", "memory", "is no amount (got '64GB')"),
        ("many", "gpu", "is no amount"),
        ("1e999", "gpu", "is no amount"),
        ("100m", "memory", "m means thousandths"),
        (True, "gpu", "must be an amount"),
        ({}, "gpu", "(got a mapping)"),
    ],
)
def test_what_is_no_amount(written, kind: str, why: str):
    with pytest.raises(BadText) as bad:
        amount(written, kind)
    assert why in str(bad.value)


def test_a_member_asks_for_a_share_of_one_device_or_for_whole_ones():
    assert member_amount(0.75, "gpu") == 750
    assert member_amount(2, "gpu") == 2000
    assert member_amount(1.5, "cpu") == 1500
    with pytest.raises(BadText, match=r"above 1 must be whole \(got 1.5\)"):
        member_amount(1.5, "gpu")


def test_a_node_has_whole_devices():
    assert device_amount(8, "gpu") == 8000
    assert device_amount(0.5, "cpu") == 500
    with pytest.raises(BadText, match="must be whole"):
        device_amount(0.5, "gpu")


def test_a_number_is_the_decimal_that_was_written():
    assert number(0.02) == Fraction(2, 100)
    assert number("1e-2") == Fraction(1, 100)
    with pytest.raises(BadText):
        number("one")


@given(st.integers(0, TIME_US_MAX))
def test_every_whole_microsecond_survives_being_written_as_seconds(us: int):
    assert duration_us(f"{us // SECOND}.{us % SECOND:06d}") == us
    assert duration_us(f"{us}us") == us
