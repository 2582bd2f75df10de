"""Who may still hope to be given room in this walk, so that nobody searches in vain twice.

Gangs of one queue, priority and placement key have the same rights over the same places: if one found nothing, a larger
one will not. That is what keeps a long queue from searching once per gang. What is out of reach by sums alone is
for `engine.making_room.reach`; both may err by a search in vain, never by a missed one.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from phalanx.engine.making_room.reach import RoomReach
from phalanx.engine.order.turns import Turns
from phalanx.model.fleet import BoolArray, IntArray

#: More than any size, and longer than any run.
HUGE = 1 << 60


class Hopes:
    """What searches have found out, by class of equal rights."""

    def __init__(self, turns: Turns, reach: RoomReach) -> None:
        """Nobody has failed yet."""
        self.turns, self.reach = turns, reach
        # The least size that found no help, for those who fill and those who do not; of those who fill, only for
        # whoever stays at least as long: who stays shorter may fit before the shadow.
        self._failed: dict[tuple[bool, int], tuple[int, int]] = {}
        self._listed: tuple[tuple[int, int], IntArray, list[bool]] | None = None

    @cached_property
    def _class(self) -> list[int]:
        """By turn: a number for its queue, priority and placement key."""
        columns = self.reach.rights, self.turns.key_index.tolist()
        classes: dict[tuple[int, int], int] = {}
        return [classes.setdefault(kind, len(classes)) for kind in zip(*columns, strict=True)]

    @cached_property
    def _stays(self) -> list[int]:
        """By turn: how long it runs, at its largest; one that does not say, for ever."""
        stays: list[int] = np.where(self.turns.proven, self.turns.length_us, HUGE).tolist()
        return stays

    @cached_property
    def _columns(self) -> tuple[IntArray, IntArray]:
        """Both as columns, for those who look over many turns at once."""
        return np.array(self._class, dtype=np.int64), np.array(self._stays, dtype=np.int64)

    def revive(self) -> None:
        """Room was given back: whoever failed may try again."""
        self._failed.clear()

    def give_up(self, turn: int, size: int, stays: int, *, filling: bool) -> None:
        """A search has found nothing."""
        at = filling, self._class[turn]
        failed = self._failed.get(at)
        # One pair per class is remembered, the smallest size with the shortest stay. Only a pair that refuses at least
        # as much as the old one may replace it, or what is known would be lost with every failure.
        if failed is None or (size <= failed[0] and (not filling or stays <= failed[1])):
            self._failed[at] = size, stays if filling else 0

    def is_gone(self, turn: int, size: int, stays: int, *, filling: bool) -> bool:
        """Whether somebody of the same rights has failed who asked for no more."""
        failed = self._failed.get((filling, self._class[turn])) if self._failed else None
        return failed is not None and size >= failed[0] and stays >= failed[1]

    def might_help(self, block: IntArray, mode: npt.NDArray[np.int8], *, fill: bool) -> BoolArray:
        """Turns for which taking has not failed yet; `mode` of their keys: 0 to be visited, 1 to fill."""
        modes = mode[self.turns.key_index[block]]
        looked = (modes == 0) | ((modes == 1) & fill)
        classes, lasting = self._columns
        least = np.full((2, int(classes.max(initial=-1)) + 1, 2), HUGE, dtype=np.int64)
        for (filling, number), failed in self._failed.items():
            least[int(filling), number] = failed
        # Modes above 1 are not looked at; the index must exist all the same.
        size, stays = least[np.minimum(modes, 1), classes[block]].T
        known: BoolArray = (self.turns.size[block] >= size) & (lasting[block] >= stays)
        return self.reach.keep(block, np.minimum(modes, 1), looked & ~known)

    def list_few(self, order: IntArray, mode: npt.NDArray[np.int8]) -> list[bool]:
        """The same of a few turns that fill, as plain numbers, looked up once until somebody gives or takes."""
        if self._listed is None or self._listed[0] != self.reach.stamp or self._listed[1] is not order:
            turns, modes = order.tolist(), mode[self.turns.key_index[order]].tolist()
            hopes = self.reach.list_having(turns, modes)
            if self._failed:
                sizes = self.turns.size[order].tolist()
                for at, (turn, filling) in enumerate(zip(turns, modes, strict=True)):
                    hopeless = self.is_gone(turn, sizes[at], self._stays[turn], filling=filling == 1)
                    hopes[at] = hopes[at] and not hopeless
            self._listed = self.reach.stamp, order, hopes
        return self._listed[2]
