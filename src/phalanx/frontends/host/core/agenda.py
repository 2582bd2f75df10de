"""Things that are due at an instant of the cluster's clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Agenda:
    """A heap of calls. What is no longer wanted is noticed by whoever is called."""

    def __init__(self) -> None:
        """Nothing is due. `on_sooner` is called when something is due before everything else that was."""
        self.on_sooner: Callable[[], None] = lambda: None
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = count()

    def at(self, at_us: int, call: Callable[[], None]) -> None:
        """Call this then, or as soon as possible after."""
        sooner = not self._due or at_us < self._due[0][0]
        heapq.heappush(self._due, (at_us, next(self._sequence), call))
        if sooner:
            self.on_sooner()

    def next_us(self) -> int | None:
        """The next instant at which something is due."""
        return self._due[0][0] if self._due else None

    def run_due(self, now_us: int) -> int:
        """Call everything that is due; the answer is how many."""
        called = 0
        while self._due and self._due[0][0] <= now_us:
            heapq.heappop(self._due)[2]()
            called += 1
        return called
