"""Quantities of the API, exactly; what is finer than the unit goes up."""

from contextlib import suppress
from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.control.spec.errors import BadText
from phalanx.frontends.kube.quantities import engine_amount, whole_amount
from phalanx.model.resources import AMOUNT_MAX


@pytest.mark.parametrize(
    ("written", "resource", "amount"),
    [
        ("100m", "cpu", 100),
        ("0.5", "cpu", 500),
        (".5", "cpu", 500),
        ("1.", "cpu", 1000),
        (2, "cpu", 2000),
        (0.1, "cpu", 100),
        ("+1", "cpu", 1000),
        ("1e3", "cpu", 1_000_000),
        ("1E-3", "cpu", 1),
        ("100u", "cpu", 1),  # a tenth of a thousandth goes up
        ("1n", "cpu", 1),
        ("1Gi", "memory", 1 << 30),
        ("1.5Gi", "memory", 3 << 29),
        ("1G", "memory", 10**9),
        ("1k", "memory", 1000),
        ("1Ki", "memory", 1024),
        ("100m", "memory", 1),  # legal, if hardly meant
        ("128974848", "memory", 128974848),
        ("129e6", "memory", 129_000_000),
        ("123Mi", "hugepages-2Mi", 123 << 20),
        ("8", "nvidia.com/gpu", 8),
        ("0", "nvidia.com/gpu", 0),
        ("110", "pods", 110),
        ("0.001E", "example.com/many", None),
        ("0.0001P", "memory", 10**11),
    ],
)
def test_amounts(written, resource, amount):
    if amount is None:
        with pytest.raises(BadText, match="more than can be counted"):
            whole_amount(written, resource)
    else:
        assert whole_amount(written, resource) == amount


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "no quantity"),
        ("Gi", "no quantity"),
        ("1 Gi", "no quantity"),
        ("1gi", "no quantity"),
        ("1K", "no quantity"),
        ("1e3k", "no quantity"),
        ("1.2.3", "no quantity"),
        ("0x10", "no quantity"),
        ("nan", "no quantity"),
        ("1e999999999", "no quantity"),
        ("٣", "no quantity"),
        ("9" * 10_000, "no quantity"),
        ("-1", "negative"),
        ("1E", "more than can be counted"),
        (float("inf"), "no quantity"),
    ],
)
def test_what_is_no_amount_is_told(written, why):
    with pytest.raises(BadText, match=why) as told:
        whole_amount(written, "memory")
    assert len(str(told.value)) < 250


def test_the_engine_counts_devices_in_thousandths_and_memory_in_bytes():
    assert engine_amount(8, "nvidia.com/gpu") == 8000
    assert engine_amount(250, "cpu") == 250
    assert engine_amount(1 << 30, "memory") == 1 << 30
    assert engine_amount(1, "pods") == 1000


SCALE = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(1000), "M": Decimal(10**6),
         "Ki": Decimal(1024), "Mi": Decimal(1024**2), "Gi": Decimal(1024**3)}  # fmt: skip


@given(st.decimals(0, 10_000, allow_nan=False, allow_infinity=False, places=5), st.sampled_from(sorted(SCALE)))
def test_agrees_with_decimal_arithmetic(number, suffix):
    exact = number * SCALE[suffix]
    assert whole_amount(f"{number:f}{suffix}", "memory") == int(exact.to_integral_value(ROUND_CEILING))


@given(st.text(max_size=60), st.sampled_from(["cpu", "memory", "pods", "x/y"]))
def test_any_text_is_an_amount_or_no_quantity(text, resource):
    with suppress(BadText):
        assert 0 <= whole_amount(text, resource) <= AMOUNT_MAX
