"""Expressions over labels, of nodes and of pods, as values that can be asked.

`Expression` covers both: pods are selected by In, NotIn, Exists and DoesNotExist, nodes by Gt and Lt as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from phalanx.frontends.kube.objects.metadata import LabelSelector, MatchExpression
from phalanx.frontends.kube.remarks import Invalid, Remark, quote

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
ABSENT: Final = "DoesNotExist"
GREATER: Final = "Gt"
LESS: Final = "Lt"

OF_PODS: Final = frozenset({IN, NOT_IN, EXISTS, ABSENT})
OF_NODES: Final = OF_PODS | {GREATER, LESS}

_BY_VALUES: Final = frozenset({IN, NOT_IN})
_BY_NUMBER: Final = frozenset({GREATER, LESS})
# Sixty-four bits have at most nineteen digits; longer texts are no numbers to the API either.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
#: What the value of a label can be. A selector with another one is an error to the API, not one that never holds.
_VALUE: Final = re.compile(r"(?:(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_VALUE_CHARS_MAX: Final = 63
#: A bound must be a label's value too, and those begin with a letter or a digit.
_BOUND: Final = re.compile(r"[0-9]{1,19}")
_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True, order=True)
class Expression:
    """What must hold of one label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()  # sorted, so that equal wishes are equal

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether it does. A label that is absent is in no list: NotIn holds, Gt and Lt do not."""
        found = labels.get(self.key)
        if self.operator == EXISTS:
            return found is not None
        if self.operator == ABSENT:
            return found is None
        if self.operator in _BY_VALUES:
            return (found in self.values) == (self.operator == IN)
        return found is not None and exceeds(found, self.values[0], above=self.operator == GREATER)


@dataclass(frozen=True, slots=True)
class Selector:
    """Expressions that must all hold; with none of them, everything is selected."""

    expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether somebody with these labels is selected."""
        return all(each.holds(labels or {}) for each in self.expressions)


def exceeds(found: str, bound: str, *, above: bool) -> bool:
    """Whether one number is above (or below) another; what is no number of 64 bits is neither."""
    one, other = parse_integer(found), parse_integer(bound)
    if one is None or other is None:
        return False
    return one > other if above else one < other


@lru_cache(maxsize=1024)
def parse_integer(text: str) -> int | None:
    """A whole number of 64 bits, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def find_selector(written: LabelSelector | None, path: str, remarks: list[Remark]) -> Selector | None:
    """A selector as a value; without one, nothing is selected (None)."""
    if written is None:
        return None
    found = [Expression(key, IN, (value,)) for key, value in (written.match_labels or {}).items()]
    found += find_expressions(written.match_expressions or (), OF_PODS, f"{path}.matchExpressions", remarks)
    return Selector(tuple(sorted(found)))


def find_expressions(
    written: Collection[MatchExpression], operators: Collection[str], path: str, remarks: list[Remark]
) -> list[Expression]:
    """Each line of it; what makes no sense is remarked on and left out, so the caller must not use what remains."""
    found = []
    for index, line in enumerate(written):
        why = _check(line, operators)
        if why:
            remarks.append(Invalid(f"{path}[{index}]", why, f"use one of {', '.join(sorted(operators))} as documented"))
        else:
            found.append(Expression(line.key, line.operator, tuple(sorted(set(line.values or ())))))
    return found


def _is_bound(text: str) -> bool:
    return _BOUND.fullmatch(text) is not None and parse_integer(text) is not None


def _check(line: MatchExpression, operators: Collection[str]) -> str:
    if not line.key:
        return "names no key"
    if line.operator not in operators:
        return f"has the operator {quote(line.operator)}"
    return _check_values(line.operator, line.values or ())


def _check_values(operator: str, values: tuple[str, ...]) -> str:
    if operator in _BY_VALUES and not values:
        return f"has no values for {operator}"
    odd = next((value for value in values if len(value) > _VALUE_CHARS_MAX or not _VALUE.fullmatch(value)), None)
    if odd is not None:
        return f"has {quote(odd)}, which no label can have"
    if operator in _BY_NUMBER and (len(values) != 1 or not _is_bound(values[0])):
        return f"needs one whole number for {operator}"
    if operator in (EXISTS, ABSENT) and values:
        return f"has values for {operator}"
    return ""
