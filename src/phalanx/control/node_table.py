"""The nodes as columns: what is free on each, and whether it is in service.

Free amounts and devices move with every seat (`seating`); service with cordons, drains, failures and suspicion. Both
end in the same columns of a snapshot. What a change means for gangs (losses, promises) is for whoever makes it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phalanx.control.records import Ghost
from phalanx.control.suspicion import NodeSuspicion
from phalanx.model.fleet import BoolArray, Fleet
from phalanx.model.rules import Mark, Presence
from phalanx.model.snapshot import NodeColumns


class NodeTable:
    """One row per node of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """Everything is free and in service."""
        self.free = fleet.capacity.copy()
        # Beside `free`, which has the same devices as an amount: without shares amounts are enough, and this is the
        # slower one.
        self.device_free = fleet.device_capacity.copy()
        # Once true, for good: whether a device was ever split decides if devices are looked at one by one, and looking
        # costs nothing in correctness, only time.
        self.shared = False
        self.up = np.ones(len(fleet), dtype=np.bool_)
        self.open = np.ones(len(fleet), dtype=np.bool_)
        self.draining = np.zeros(len(fleet), dtype=np.bool_)
        self.suspicion = NodeSuspicion(len(fleet))
        self.crowds: dict[int, Ghost] = {}  # by node: the row of nobody that stands for others who are there
        self.presence: Presence | None = None  # who bears which word where, from the first who asks
        self.crowd_marks: dict[int, Mapping[Mark, int]] = {}  # by node: what others there are to rules about others
        self._spare = fleet.spare
        self._columns: NodeColumns | None = None  # as last handed out, while they still hold

    def columns(self) -> NodeColumns:
        """What a snapshot says of nodes; shared with it until `unshare`."""
        columns = self._columns
        # Made anew only if an array is another one, or the flag has risen, or `note_service` was told: free amounts are
        # written in place.
        if (
            columns is None
            or columns.free is not self.free
            or columns.shared != self.shared
            or columns.up is not self.up
        ):
            # Spares are for repairs only, suspects for nobody: not even a repair should try a node that kills.
            repairable = self.up & self.open & self.suspicion.trusted
            in_service = repairable & ~self._spare
            columns = self._columns = NodeColumns(
                self.free, self.device_free, self.shared, self.up, self.open, in_service, repairable, self.draining
            )
        return columns

    def unshare(self) -> None:
        """Let go of the arrays that a snapshot shares."""
        # Not suspicion: a snapshot has no part of it, only who is in service because of it.
        self.free, self.device_free = self.free.copy(), self.device_free.copy()
        self.up, self.open, self.draining = self.up.copy(), self.open.copy(), self.draining.copy()
        self.presence = None if self.presence is None else self.presence.copy()

    def note_service(self) -> BoolArray:
        """Something about service has changed; the answer is the nodes that are out of it."""
        self._columns = None
        out: BoolArray = ~(self.up & self.open)
        return out

    def lay_out(self, fleet: Fleet) -> None:
        """Over a fleet with more nodes or other kinds: everything is free until it is seated anew."""
        extra = np.ones(len(fleet) - len(self.up), dtype=np.bool_)
        # New nodes are up, open and not draining.
        self.up, self.open = np.concatenate((self.up, extra)), np.concatenate((self.open, extra))
        self.draining = np.concatenate((self.draining, ~extra))
        self.suspicion.widen(len(fleet))
        self.free, self.device_free = fleet.capacity.copy(), fleet.device_capacity.copy()
        self._spare = fleet.spare
        self._columns = None
        # Indices of nodes are for life, so that what was said of others holds; gangs are seated anew by whoever calls.
        if self.presence is not None:
            self.count_marks()

    def count_marks(self) -> None:
        """Count who bears which word where, from those who are no gangs of ours on; those are seated anew."""
        sought = self.presence is not None and self.presence.sought
        self.presence = Presence(len(self.up), sought=sought)
        for node, marks in self.crowd_marks.items():
            self._add_marks(node, marks, 1)

    def set_marks(self, node: int, marks: Mapping[Mark, int]) -> None:
        """What others on a node are to rules about others, all of them together; whoever is there less than before."""
        if self.presence is None:
            self.count_marks()
        # By what was said before and not by a recount: a node has few others, and the cluster many nodes.
        self._add_marks(node, self.crowd_marks.pop(node, {}), -1)
        if marks:
            self.crowd_marks[node] = dict(marks)
            self._add_marks(node, marks, 1)

    def _add_marks(self, node: int, marks: Mapping[Mark, int], sign: int) -> None:
        assert self.presence is not None, "counted before"
        # One mark at a time: others are told of as sums by node, gangs as seats over many.
        for mark, count in marks.items():
            self.presence.add((mark,), np.array([node]), np.array([sign * count]))
