"""Where every GPU-second of the cluster went. The parts sum to capacity times time, exactly.

Integer µs × milli of one kind: the device where there are any, else the first kind there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from phalanx.control.state import State
from phalanx.model.gang import Gang
from phalanx.model.plan import Seats
from phalanx.model.resources import DEVICE_KIND

#: Ways to leave that are no end: the gang queues again, and its work is lost.
LOSSES: Final = ("lose", "evict")


@dataclass(slots=True)
class Attempt:
    """One stay of a gang on the cluster."""

    start_us: int
    units: int  # milli of the counted kind that it held
    startup_us: int
    works_from_us: int | None  # when its work began; None while it waits for the rest of itself
    end_us: int | None = None
    lost: bool = False  # its work was thrown away


@dataclass(slots=True)
class Ledger:
    """Attempts as they come, and the steps of capacity."""

    kind: str
    attempts: list[Attempt] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)  # from when: capacity, of it down

    def note_capacity(self, state: State) -> None:
        """Remember how much there is from now on, and how much of it is out of service."""
        column = state.fleet.kind_index.get(self.kind)
        if column is None:
            return
        capacity = state.fleet.capacity[:, column]
        closed = state.up & ~state.open
        down = int(capacity[~state.up].sum()) + int(state.free[closed, column].sum())
        step = (state.now_us, int(capacity.sum()), down)
        if self.steps and self.steps[-1][0] == state.now_us:
            self.steps[-1] = step
        elif not self.steps or self.steps[-1][1:] != step[1:]:
            self.steps.append(step)

    def open_attempt(self, gang: Gang, seats: tuple[Seats, ...], now_us: int) -> Attempt:
        """A gang took its seats."""
        units = sum(each.members * gang.roles[each.role].shape.amount(self.kind) for each in seats)
        attempt = Attempt(now_us, units, gang.startup_us, now_us)
        self.attempts.append(attempt)
        return attempt

    def close(self, horizon: tuple[int, int]) -> dict[str, int]:
        """The parts over the horizon."""
        first, last = horizon
        parts = dict.fromkeys(("capacity", "productive", "startup", "lost", "idle_allocated", "down"), 0)
        ends = [at for at, _, _ in self.steps[1:]] + [last]
        for (at, capacity, down), until in zip(self.steps, ends, strict=False):
            span = max(0, min(until, last) - max(at, first))
            parts["capacity"] += capacity * span
            parts["down"] += down * span
        for attempt in self.attempts:
            _book(attempt, first, last, parts)
        spent = parts["productive"] + parts["startup"] + parts["lost"] + parts["idle_allocated"] + parts["down"]
        parts["free"] = parts["capacity"] - spent
        return parts


def _book(attempt: Attempt, first: int, last: int, parts: dict[str, int]) -> None:
    end = last if attempt.end_us is None else min(attempt.end_us, last)
    start = max(attempt.start_us, first)
    works = end if attempt.works_from_us is None else min(max(attempt.works_from_us, start), end)
    begun = min(works + attempt.startup_us, end) if attempt.works_from_us is not None else end
    parts["idle_allocated"] += (works - start) * attempt.units
    if attempt.lost:
        parts["lost"] += (end - works) * attempt.units
    else:
        parts["startup"] += (begun - works) * attempt.units
        parts["productive"] += (end - begun) * attempt.units


def counted_kind(kinds: tuple[str, ...]) -> str:
    """The kind the ledger counts."""
    return DEVICE_KIND if DEVICE_KIND in kinds or not kinds else kinds[0]


def placement_of(names: tuple[str, ...], seats: tuple[Seats, ...]) -> dict[str, int]:
    """Members by node name, in rank order."""
    placed: dict[str, int] = {}
    for each in seats:
        for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
            placed[names[node]] = placed.get(names[node], 0) + count
    return placed


def fresh_ledger(state: State) -> Ledger:
    """An empty ledger of a cluster."""
    ledger = Ledger(counted_kind(state.fleet.kinds))
    ledger.note_capacity(state)
    return ledger
