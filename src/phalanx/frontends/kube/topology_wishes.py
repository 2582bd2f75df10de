"""What dialects say of the network, and the same in the engine's words once the cluster's levels are known.

One dialect names a node label, one a layer, one a tier by number; which level of the cluster that is, is configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from phalanx.frontends.kube.remarks import Invalid, Remark, Unsupported, quote
from phalanx.model.topology import NODE_LEVEL, Segment, Topology

_HOSTNAME: Final = "kubernetes.io/hostname"


class NamedBy(Enum):
    """How a level was named."""

    LABEL = "label"  # of its nodes
    LAYER = "layer"
    TIER = "tier"  # a number, 1 for the innermost
    TIER_NAME = "tier name"


@dataclass(frozen=True, slots=True, order=True)
class NamedLevel:
    """A level as somebody named it."""

    by: str  # a value of `NamedBy`: plain text, so that levels can be put in order
    name: str


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """What a gang asks of the network. Of several levels the tightest counts."""

    require: tuple[NamedLevel, ...] = ()
    prefer: tuple[NamedLevel, ...] = ()
    segments: tuple[tuple[int, NamedLevel], ...] = ()  # size and level
    field: str = ""  # where it was written, for messages


@dataclass(frozen=True, slots=True)
class LevelNames:
    """The cluster's levels, outermost first, and what else they are called."""

    levels: tuple[str, ...] = ()
    level_by_label: Mapping[str, str] = field(default_factory=dict)
    level_by_layer: Mapping[str, str] = field(default_factory=dict)


def name_levels(wish: TopologyWish, names: LevelNames) -> tuple[Topology, tuple[Remark, ...]]:
    """The wish in the engine's words. A level that nobody configured is refused: a wish is not dropped silently."""
    remarks: list[Remark] = []
    require = _tightest(wish.require, wish, names, remarks)
    prefer = _tightest(wish.prefer, wish, names, remarks)
    segment = None
    if wish.segments:
        if len(wish.segments) > 1:
            do = "ask for multiples at one layer only"
            remarks.append(Unsupported(wish.field, "asks for multiples at several layers", do))
        size, level = wish.segments[0]
        known = _find_level(level, names)
        if known is not None:
            segment = Segment(size, known)
        elif level not in (*wish.require, *wish.prefer):
            remarks.append(_tell_unknown(level, wish, names))
    return Topology(require, prefer, segment), tuple(remarks)


def _tightest(
    named: tuple[NamedLevel, ...], wish: TopologyWish, names: LevelNames, remarks: list[Remark]
) -> str | None:
    order = (*names.levels, NODE_LEVEL)
    found: list[str] = []
    for level in named:
        known = _find_level(level, names)
        if known is None:
            remarks.append(_tell_unknown(level, wish, names))
        else:
            found.append(known)
    return max(found, key=order.index, default=None)


def _find_level(level: NamedLevel, names: LevelNames) -> str | None:
    order = (*names.levels, NODE_LEVEL)
    if level.by == NamedBy.TIER.value:
        # Tier 1 is the innermost above the node. One beyond the outermost level is refused like any that nobody knows:
        # that it is the whole cluster is a guess, and the wish would be gone.
        index = len(names.levels) - int(level.name)
        return names.levels[index] if 0 <= index < len(names.levels) else None
    table = names.level_by_label if level.by == NamedBy.LABEL.value else names.level_by_layer
    known = table.get(level.name, level.name)
    if level.by == NamedBy.LABEL.value and level.name == _HOSTNAME:
        known = NODE_LEVEL
    return known if known in order else None


def _tell_unknown(level: NamedLevel, wish: TopologyWish, names: LevelNames) -> Invalid:
    known = ", ".join((*names.levels, NODE_LEVEL))
    says = f"names the {level.by} {quote(level.name)}, which is no level of this cluster (levels: {known})"
    return Invalid(wish.field, says, "configure that level, or name another")
