"""Kubernetes quantities into integers: thousandths of cpu, whole units of everything else.

The grammar is that of the API: a signed decimal number, then a suffix (n u m k M G T P E, Ki to Ei) or an exponent.
What is finer than the unit is rounded up, as the API does. It differs from the schema of gang files, which refuses what
it would have to round (`control.spec.quantity`); only the reading of plain decimals is the same, and taken from there.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from phalanx.control.spec.errors import BadText
from phalanx.control.spec.quantity import number
from phalanx.frontends.kube.remarks import quote
from phalanx.model.resources import AMOUNT_MAX, BYTE_KINDS, MILLI

CPU: Final = "cpu"
PODS: Final = "pods"

#: Bytes above this leave what the engine can sum; so do other kinds, which are counted in thousandths there.
_UNITS_MAX: Final = AMOUNT_MAX
_TEXT_CHARS_MAX: Final = 48
# `E` is a suffix unless digits follow; the longest alternative first, so that `Ei` is not `E` and rubbish.
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)([KMGTPE]i|[numkMGTPE])?"
)

_FACTOR_BY_SUFFIX: Final = {
    "n": Fraction(1, 1000**3),
    "u": Fraction(1, 1000**2),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def whole_amount(written: str | float, resource: str) -> int:
    """So much of that resource: milli of cpu, units (bytes, devices, pods) of everything else; up to the next one."""
    return _amount(str(written), resource == CPU, _most(resource))


def engine_amount(units: int, resource: str) -> int:
    """The same in the engine's units: bytes stay bytes, cpu is in thousandths already, the rest is made so."""
    return units if resource == CPU or _in_bytes(resource) else units * MILLI


# One text stands in thousands of pods: "8", "100m" and "1Gi" are nearly all there is.
@lru_cache(maxsize=4096)
def _amount(text: str, in_milli: bool, most: int) -> int:  # noqa: FBT001 - an unnamed key of a cache
    exact = parse_quantity(text)
    if exact < 0:
        raise BadText(f"must not be negative (got {quote(text)})")
    if in_milli:
        exact *= MILLI
    units = -(-exact.numerator // exact.denominator)
    if units > most:
        raise BadText(f"is more than can be counted (got {quote(text)})")
    return units


def parse_quantity(text: str) -> Fraction:
    """A quantity exactly; `BadText` if it is none."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_CHARS_MAX else None
    # 1e3k is two scales in one; the API reads an exponent or a suffix.
    if match is None or (match[2] and re.search("[eE]", match[1])):
        raise BadText(f'is no quantity (got {quote(text)}); write a number, "500m", "1.5" or "64Gi"')
    return number(match[1]) * _FACTOR_BY_SUFFIX.get(match[2], Fraction(1))


def _in_bytes(resource: str) -> bool:
    return resource in BYTE_KINDS or resource.startswith("hugepages")


def _most(resource: str) -> int:
    return _UNITS_MAX if resource == CPU or _in_bytes(resource) else _UNITS_MAX // MILLI
