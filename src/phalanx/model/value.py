"""Values that are made by the hundred thousand: immutable for whoever writes code, cheap for whoever runs it.

A frozen dataclass sets every field by a call of `object.__setattr__`: six fields took 1.0 µs against 0.2 µs of a plain
one where this was measured (`timeit`, CPython 3.11). A simulation of a log makes several such values in every pass. The
type checker still sees `frozen=True` and refuses every assignment; at run time nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool, eq: bool = True) -> Callable[[type], type]:
        """As `dataclass`, of which only `frozen` is left to the type checker; equal values still hash alike."""
        assert frozen, "what may change is a plain dataclass"
        return dataclass(slots=slots, eq=eq, unsafe_hash=eq)
