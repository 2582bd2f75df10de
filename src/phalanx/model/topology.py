"""Wishes about the network, as a gang states them.

A level is named by the cluster (`block`, `rack`); the node itself is always the innermost
level, called `node`. Levels are kept as indices, outermost first, because nearness is order:
a larger index is a tighter domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The level that every cluster has, innermost.
NODE_LEVEL: Final = "node"

#: Index that stands for "no level named": the whole cluster is the domain.
ANYWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive ranks in groups of `size`, each group inside one domain of `level`. Hard."""

    size: int
    level: str


@dataclass(frozen=True, slots=True)
class Topology:
    """What a gang or a role asks of the network."""

    require: str | None = None  # every member inside one domain of this level
    prefer: str | None = None  # the tightest level worth looking for
    segment: Segment | None = None
