"""The tenant tree: who is entitled to what, and how far anyone may go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The top of the tree; it has no limit of its own.
ROOT: Final = "root"

#: Where a gang lands that names no queue.
DEFAULT_QUEUE: Final = "default"


@dataclass(frozen=True, slots=True)
class Queue:
    """One node of the tenant tree. Amounts are in engine units by kind."""

    name: str
    parent: str = ROOT
    weight: int = 1  # divides what the guarantees leave
    guarantee: Mapping[str, int] = field(default_factory=dict)  # a floor that reclaim restores
    limit: Mapping[str, int] = field(default_factory=dict)  # a ceiling, by kind


@dataclass(frozen=True, slots=True)
class UserLimit:
    """How much one person may hold at a time, over all queues."""

    name: str
    limit: Mapping[str, int]
