"""Nodes that kill gangs again and again are not trusted for a growing while.

A node that fails at once when something starts there is free all the time, so a scheduler that packs well feeds it one
gang after the other. Repair does not clear a suspicion, time does: whoever says that it is mended may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from phalanx.model.fleet import BoolArray

#: So many gangs killed within the window make a node suspect, for an hour and twice as long each further time.
KILLS_SUSPECT = 3
KILLS_WINDOW_US = 24 * 3_600_000_000
SUSPECT_US = 3_600_000_000


@dataclass(slots=True)
class NodeSuspicion:
    """Which nodes killed gangs lately."""

    nodes: int
    trusted: BoolArray = field(init=False)
    kills: dict[int, list[int]] = field(default_factory=dict)  # instants, by node
    until_us: dict[int, int] = field(default_factory=dict)  # end of a suspicion, by node

    def __post_init__(self) -> None:
        """Everybody is trusted at first."""
        self.trusted = np.ones(self.nodes, dtype=np.bool_)

    def widen(self, nodes: int) -> None:
        """Nodes were added."""
        self.trusted = np.concatenate((self.trusted, np.ones(nodes - len(self.trusted), dtype=np.bool_)))

    def note_kill(self, node: int, now_us: int) -> int | None:
        """A gang died with this node; the answer is the end of the suspicion that follows, if any."""
        # Old kills drop out by themselves: a node that behaves for a day starts from nothing.
        recent = [at for at in self.kills.get(node, ()) if at > now_us - KILLS_WINDOW_US]
        self.kills[node] = [*recent, now_us]
        times = len(self.kills[node]) - KILLS_SUSPECT
        if times < 0:
            return None
        # Suspected and not cordoned: a cordon is a person's word, and only a person takes it back.
        self.trusted[node] = False
        # 1 h at the third kill, 2 h at the fourth; bounded, or the shift would outgrow any clock.
        self.until_us[node] = now_us + (SUSPECT_US << min(times, 8))
        return self.until_us[node]

    def forgive(self, now_us: int) -> bool:
        """End the suspicions that are over."""
        # All that are over and not the timer's one: a further kill moves the end of a
        # suspicion, and its earlier timer comes too.
        over = [node for node, until in self.until_us.items() if until <= now_us]
        for node in over:
            self.trusted[node] = True
            del self.until_us[node]
        return bool(over)
