"""Rules about sums: no seat used twice, no limit passed, and a ledger that agrees with the histories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from phalanx.frontends.sim.metrics import find_horizon
from phalanx.model.queue import ROOT
from phalanx.testing.judge_book import Book, Finding

#: Parts in which somebody has the seats.
HELD_PARTS: Final = ("productive", "startup", "snapshot", "restore", "resize", "lost", "idle_allocated")
_GPU_SECOND: Final = 1_000_000 * 1000


def find_overfull(book: Book) -> Iterator[Finding]:
    """No device is given twice (DESIGN 5), and a vacated one not before its pause is over (rule 10)."""
    for name in book.nodes:
        here = [stay for stay in book.stays if stay.places.get(name)]
        for at_us in sorted({stay.start_us for stay in here}):
            now = [stay for stay in here if stay.covers(at_us)]
            for kind in book.kinds:
                used = sum(book.amount(stay, name, kind) for stay in now)
                room = book.capacity(name, kind)
                if used <= room:
                    continue
                left = sum(book.amount(stay, name, kind) for stay in now if stay.how == "leaving")
                last = max(now, key=lambda stay: stay.start_us)
                story = f"{used} of {room} milli-{kind} of {name} in use, {left} by gangs that are leaving"
                found = "overfull" if used - left > room else "seat-in-pause"
                yield Finding(found, book.told[last.gang].name, at_us, story)


def find_over_limits(book: Book) -> Iterator[Finding]:
    """No queue and no user is above a limit when one of its gangs begins (DESIGN 5)."""
    parents = {queue.name: queue.parent for queue in book.scenario.queues}
    for at_us in book.entries:
        begins = [index for index, entry in book.entries[at_us] if entry.event in ("bind", "grow")]
        for queue in book.scenario.queues:
            inside = {i for i, gang in enumerate(book.gangs) if queue.name in _above(gang.queue, parents)}
            if queue.limit and inside & set(begins):
                yield from _over(book, at_us, inside, queue.limit, f"queue {queue.name}")
        for user in book.scenario.users:
            inside = {i for i, gang in enumerate(book.gangs) if gang.user == user.name}
            if inside & set(begins):
                yield from _over(book, at_us, inside, user.limit, f"user {user.name}")


def _above(queue: str, parents: Mapping[str, str]) -> Iterator[str]:
    while queue in parents and queue != ROOT:
        yield queue
        queue = parents[queue]


def _over(book: Book, at_us: int, inside: set[int], limit: Mapping[str, int], whose: str) -> Iterator[Finding]:
    now = [stay for stay in book.stays if stay.gang in inside and stay.how == "runs" and stay.covers(at_us)]
    for kind, most in limit.items():
        used = sum(book.amount(stay, node, kind) for stay in now for node in stay.places)
        if used > most:
            names = ", ".join(book.told[stay.gang].name for stay in now)
            yield Finding("limit", names, at_us, f"{whose} uses {used} milli-{kind} of {most}")


def find_ledger_lies(book: Book) -> Iterator[Finding]:
    """The parts sum to what there was, and what gangs hold by their histories is in them (rule 13)."""
    told = book.result.metrics["ledger_gpu_s"]
    assert isinstance(told, dict)
    parts = {str(part): float(amount) for part, amount in told.items()}
    total, capacity = sum(parts.values()) - parts["capacity"], parts["capacity"]
    near = 1e-9 * max(1.0, capacity) + 1e-6
    if abs(total - capacity) > near or min(parts.values()) < 0:
        yield Finding("ledger", "", 0, f"the parts sum to {total:g} of {capacity:g}")
    kind = book.ledger_kind
    if kind is None or not all(book.is_exact(gang, kind) for gang in book.gangs):
        return
    first, last = find_horizon(book.result.gangs, book.scenario.until_us)
    held = 0
    for stay in book.stays:
        span = min(last, stay.end_us) - max(first, stay.start_us)
        if span > 0:
            held += span * sum(book.amount(stay, node, kind) for node in stay.places)
    booked = sum(parts[part] for part in HELD_PARTS)
    # Seats that are claimed before their gang begins stand in no history, so more may be booked than was held.
    claims = any(gang.resize_pause_us for gang in book.gangs)
    short = held / _GPU_SECOND - booked
    if short > near or (not claims and short < -near):
        yield Finding("ledger", "", 0, f"gangs held {held / _GPU_SECOND:g}, and {booked:g} is booked as held")
