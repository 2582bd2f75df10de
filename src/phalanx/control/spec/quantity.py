"""Times and amounts as people write them, into integers, without ever touching a float sum.

Everything goes through exact fractions: 0.1 s is 100,000 µs, and three times 0.1 GPU is 300
thousandths on every machine.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from phalanx.control.spec.errors import BadText, show
from phalanx.model.resources import AMOUNT_MAX, BYTE_KINDS, DEVICE_KIND, MILLI, units_per_whole

SECOND_US: Final = 1_000_000

#: A hundred years. Anything beyond is a slip of the keyboard, and sums of it would leave 64 bits.
TIME_US_MAX: Final = 100 * 365 * 86_400 * SECOND_US

# Fractions of very long texts take quadratic time; no amount that anybody means is longer.
_TEXT_CHARS_MAX: Final = 48
_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
# Two digits: 1e999999999 would be a fraction that fills the memory before it is found too large.
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,2})?"
_PLAIN = re.compile(rf"[+-]?(?:{_NUMBER}){_EXPONENT}")
_DURATION_PART = re.compile(rf"({_NUMBER})\s*(us|µs|ms|s|m|h|d|w)\s*")
_AMOUNT = re.compile(rf"([+-]?(?:{_NUMBER}){_EXPONENT})\s*([A-Za-z]*)")

_US_BY_UNIT: Final = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": SECOND_US,
    "m": 60 * SECOND_US,
    "h": 3_600 * SECOND_US,
    "d": 86_400 * SECOND_US,
    "w": 604_800 * SECOND_US,
}

_FACTOR_BY_SUFFIX: Final = {
    "": Fraction(1),
    # Thousandths: 500m of cpu is half a core.
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("k", "M", "G", "T", "P"), start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTP", start=1)},
}


def duration_us(value: object) -> int:
    """Seconds as a number, or text such as 90s, 5m, 1h30m, 200ms, 2d; rounded half up to a microsecond."""
    if isinstance(value, str):
        return _text_us(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadText(f'must be a time such as 90, "5m" or "1h30m" (got {show(value)})')
    # A generated log is mostly numbers of seconds, and fractions of them took a quarter of reading it.
    if isinstance(value, int) and 0 <= value <= TIME_US_MAX // SECOND_US:
        return value * SECOND_US
    return _whole_us(_exact(value), value)


def amount(value: object, kind: str) -> int:
    """An amount of one resource in engine units."""
    exact = _amount_exact(value, kind)
    if exact < 0:
        raise BadText(f"must not be negative (got {show(value)})")
    units = exact * units_per_whole(kind)
    if units > AMOUNT_MAX:
        raise BadText(f"is too large (got {show(value)}); the most is {AMOUNT_MAX // units_per_whole(kind)}")
    # Kinds that are counted in bytes; a quotient such as 0.1Gi is seldom whole, and up is the safe side.
    if units_per_whole(kind) == 1:
        return -(-units.numerator // units.denominator)  # part of a byte is a byte
    # Refused and not rounded: 0.3333 three times is not one device, and somebody would count on it.
    if units.denominator != 1:
        raise BadText(f"is finer than a thousandth (got {show(value)}); write {max(float(round(exact, 3)), 0.001):g}")
    return units.numerator


def member_amount(value: object, kind: str) -> int:
    """What one member asks for: a share of a device sits on one device, so above 1 it is whole."""
    units = amount(value, kind)
    # Rule 15 (shares): InvalidSpec rather than Infeasible, since no cluster could satisfy it.
    if kind == DEVICE_KIND and units > MILLI and units % MILLI:
        raise BadText(f"above 1 must be whole (got {show(value)}); a share sits on a single device")
    return units


def device_amount(value: object, kind: str) -> int:
    """What a node has: its devices are counted in whole ones."""
    units = amount(value, kind)
    if kind == DEVICE_KIND and units % MILLI:
        raise BadText(f"of a node must be whole (got {show(value)}); gangs may ask for shares of a device")
    return units


def number(value: object) -> Fraction:
    """Any finite number, as text or not, exactly."""
    # The pattern and not a try: `Fraction` also takes "1/3" and underscores, which no schema promises.
    if isinstance(value, str) and len(value) <= _TEXT_CHARS_MAX and _PLAIN.fullmatch(value.strip()):
        return Fraction(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadText(f"must be a number (got {show(value)})")
    return _exact(value)


@lru_cache(maxsize=4096)
def _text_us(text: str) -> int:
    bare = text.strip()
    if len(bare) > _TEXT_CHARS_MAX:
        raise BadText(f"is no time (got {show(text)})")
    # A bare number is seconds, quoted or not: TOML and shells quote where YAML does not.
    if _PLAIN.fullmatch(bare):
        return _whole_us(Fraction(bare), text)
    total, at = Fraction(0), 0
    while match := _DURATION_PART.match(bare, at):
        total += Fraction(match[1]) * _US_BY_UNIT[match[2]]
        at = match.end()
    if at != len(bare) or not bare:
        # Parts have no sign, so that -5m would only be called no time.
        if bare.startswith("-"):
            raise BadText(f"must not be negative (got {show(text)})")
        raise BadText(f'is no time (got {show(text)}); write seconds, or "200ms", "5m", "1h30m", "2d"')
    return _whole_us(total / SECOND_US, text)


def _whole_us(seconds: Fraction, written: object) -> int:
    if seconds < 0:
        raise BadText(f"must not be negative (got {show(written)})")
    # Half up in integers: `round` goes to even, and 0.5 µs would be nothing.
    us = (2 * seconds * SECOND_US + 1) // 2
    if us > TIME_US_MAX:
        raise BadText(f"is more than 100 years (got {show(written)})")
    return us


def _exact(value: float) -> Fraction:
    """The decimal that was written, not the binary number next to it."""
    if isinstance(value, int):
        return Fraction(value)
    # The shortest decimal that reads back as this float is what somebody typed: 0.1, and not
    # 0.1000000000000000055511151231257827.
    text = repr(value)
    if not _PLAIN.fullmatch(text):  # nan, inf, or an exponent beyond all reason
        raise BadText(f"must be an ordinary number (got {text})")
    return Fraction(text)


def _amount_exact(value: object, kind: str) -> Fraction:
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadText(f'must be an amount such as 8, 0.5 or "64Gi" (got {show(value)})')
        return _exact(value)
    match = _AMOUNT.fullmatch(value.strip()) if len(value) <= _TEXT_CHARS_MAX else None
    factor = _FACTOR_BY_SUFFIX.get(match[2]) if match else None
    if match is None or factor is None:
        raise BadText(f'is no amount (got {show(value)}); write a number, or one with Ki Mi Gi Ti k M G T, as "64Gi"')
    if factor < 1 and kind in BYTE_KINDS:
        # Kubernetes reads 100m of memory as a tenth of a byte; everyone who wrote it meant megabytes.
        raise BadText(f"m means thousandths, and {kind} comes in bytes (got {show(value)}); write M or Mi")
    return Fraction(match[1]) * factor
