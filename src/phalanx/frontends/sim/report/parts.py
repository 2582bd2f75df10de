"""What gangs did with their places over time, worked out from their histories.

The ledger of a run is exact and knows totals only. A curve needs to know when: here every gang's stretches are
split again by the rules by which the simulator plays them (pauses first, then work with a snapshot after every
interval, and what was not saved is lost on eviction). Stalls are spread evenly over the work between them. Whoever
draws the curve can hold its area against the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from phalanx.frontends.sim.report.stays import Stretch
from phalanx.model.gang import Gang

_LOSSES: Final = ("evict", "lose")
_SAVES: Final = ("yield", "move")
_BEGINNINGS: Final = ("bind", "restart")


class Span(NamedTuple):
    """Units that were one part of the ledger for a while."""

    part: str
    start_us: int
    end_us: int
    units: int


def split_story(gang: Gang, story: Sequence[Stretch]) -> Iterator[Span]:
    """A gang's stretches by parts of the ledger."""
    book = _Book(gang)
    for stretch in story:
        if stretch.what == "hold":
            yield Span("idle_allocated", stretch.start_us, stretch.end_us, stretch.units)
        elif stretch.what == "run":
            yield from book.run(stretch)
            if stretch.ended_by in _SAVES:
                yield from book.save(owes=stretch.ended_by == "yield")
            elif stretch.ended_by in _LOSSES and not stretch.members_after:
                yield from book.lose()
    yield from book.close()


@dataclass(slots=True)
class _Book:
    """What one gang has ahead of it, and what it would lose."""

    gang: Gang
    waits: list[tuple[str, int]] = field(default_factory=list)
    unsaved: list[Span] = field(default_factory=list)
    kept: bool = False  # whether there is a snapshot
    into_us: int = 0  # since the last snapshot
    was_running: bool = False
    owes: bool = False  # the stall of the snapshot with which its turn ended

    def run(self, stretch: Stretch) -> Iterator[Span]:
        """Pauses first, then work."""
        self._foresee(stretch.event)
        self.was_running = True
        at_us, units = stretch.start_us, stretch.units
        while self.waits and at_us < stretch.end_us:
            part, length = self.waits[0]
            until = min(stretch.end_us, at_us + length)
            yield Span(part, at_us, until, units)
            self.waits[:1] = [(part, length - (until - at_us))] if until - at_us < length else []
            at_us = until
        if at_us < stretch.end_us:
            yield from self._work(at_us, stretch.end_us, units)

    def save(self, *, owes: bool) -> Iterator[Span]:
        """It leaves its places with everything saved; the stall of that may be owed until it runs again."""
        yield from self.close()
        self.kept = self.kept or self.gang.snapshot is not None
        self.owes = owes

    def lose(self) -> Iterator[Span]:
        """It leaves its places, and what was not saved is gone."""
        yield from (span._replace(part="lost") for span in self.unsaved)
        self.unsaved, self.waits, self.into_us, self.was_running = [], [], 0, False

    def close(self) -> Iterator[Span]:
        """What is open counts as productive."""
        yield from self.unsaved
        self.unsaved, self.into_us = [], 0

    def _foresee(self, event: str) -> None:
        """Pauses with which a stretch begins."""
        gang, habit = self.gang, self.gang.snapshot
        if event in _BEGINNINGS or (event == "repair" and not self.was_running):
            self.waits = [("startup", gang.startup_us)]
            if habit is not None and self.kept:
                stall = habit.stall_us if self.owes else 0
                self.waits = [("snapshot", stall), ("restore", habit.restore_us), *self.waits]
            self.owes = False
        elif event == "move" and habit is not None and gang.preemptible:
            self.waits = [("snapshot", habit.stall_us), ("restore", habit.restore_us)]
        else:
            rest = [wait for wait in self.waits if wait[0] != "resize"]
            self.waits = [("resize", gang.resize_pause_us), *rest]
        self.waits = [wait for wait in self.waits if wait[1]]

    def _work(self, start_us: int, end_us: int, units: int) -> Iterator[Span]:
        habit = self.gang.snapshot
        if habit is None:
            self.unsaved.append(Span("productive", start_us, end_us, units))
            return
        cycle = habit.every_us + habit.stall_us
        past = self.into_us + end_us - start_us
        self.into_us = past % cycle
        if past < cycle:
            self.unsaved.append(Span("productive", start_us, end_us, units))
            return
        saved_us = end_us - self.into_us
        for span in (*self.unsaved, Span("productive", start_us, saved_us, units)):
            useful = span.units * habit.every_us // cycle
            yield span._replace(units=useful)
            yield span._replace(part="snapshot", units=span.units - useful)
        self.unsaved, self.kept = [], True
        if saved_us < end_us:
            self.unsaved.append(Span("productive", saved_us, end_us, units))
