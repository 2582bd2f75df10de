"""Ceilings of queues and people, checked at the moment a gang would start.

A limit is what a queue (with everything below it) or a person may hold at a time: GrpTRES in Slurm, nominal
plus borrowing limit in Kueue, `capability` in Volcano. It is no guarantee, and nobody is evicted for being above one: a
limit that is lowered only stops further starts. Whether a start would use up what a reservation needs later is asked
in `engine.calendar.limits_ahead`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.model.fleet import IntArray
from phalanx.model.reason import Code
from phalanx.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class OverLimit:
    """Starting would pass a ceiling: whose, of which kind, and by the numbers."""

    code: Code
    name: str
    kind: int
    needed: int  # what the gang asks for
    available: int  # what the ceiling leaves, not below 0


class Limits:
    """Usage so far in this cycle against the ceilings of the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Copy the usage only if there is any ceiling at all."""
        self._queues, self._users = snapshot.queues, snapshot.users
        # Without any ceiling no usage is copied or kept: `check` and `charge` answer at once, and callers of the other
        # methods look at `any` first.
        self.any = snapshot.hints.limited
        if self.any:
            self._queue_usage = snapshot.queues.usage.copy()
            self._user_usage = snapshot.users.usage.copy()

    def check(self, queue: int, user: int, asked: IntArray) -> OverLimit | None:
        """The first ceiling, from the gang's queue upwards, that starting it would pass."""
        if not self.any:
            return None
        return self._check(queue, user, asked, self._queue_usage, self._user_usage)

    def check_unit(self, queue: int, shares: Sequence[tuple[int, IntArray]]) -> OverLimit | None:
        """The same for gangs of one queue that start together, given as (user, asked) of each."""
        if not self.any:
            return None
        # People first, each with all of their gangs in the group: two gangs that fit one by one may not fit together.
        by_user = _sum_by_user(shares)
        total = sum(by_user.values())
        for user, asked in by_user.items():
            over = self.check(queue, user, asked)
            if over is not None:
                return over
        # With one person the check above has asked the queues for the whole sum already.
        return None if len(by_user) == 1 else self._check_queues(queue, np.asarray(total), self._queue_usage)

    def usage_after(self, released: tuple[IntArray, IntArray]) -> tuple[IntArray, IntArray]:
        """Usage of queues and people less what queues (each by itself) and people have given back."""
        # `released` has each queue by itself, the usage has it with everything below: hence upwards here, too.
        queues, users = self._queue_usage.copy(), self._user_usage - released[1]
        for queue in np.flatnonzero(released[0].any(axis=1)).tolist():
            self.add_upwards(queues, queue, -released[0][queue])
        return queues, users

    def add_upwards(self, usage: IntArray, queue: int, units: IntArray) -> None:
        """Add to a queue and to every queue above it."""
        # The usage of a queue has everything below it inside, so that each ceiling is one comparison.
        while queue >= 0:
            usage[queue] += units
            queue = int(self._queues.parent[queue])

    def no_usage(self) -> tuple[IntArray, IntArray]:
        """Nothing, for queues and for people: what releases are added to."""
        return np.zeros_like(self._queue_usage), np.zeros_like(self._user_usage)

    def within(self, queues: IntArray, users: IntArray) -> bool:
        """Whether such a usage passes no ceiling."""
        # A limit of 0 is one: nothing may start there. Only -1 means that there is none.
        over_queue = (self._queues.limit >= 0) & (queues > self._queues.limit)
        over_user = (self._users.limit >= 0) & (users > self._users.limit)
        return not bool(over_queue.any() or over_user.any())

    def users_allow(self, shares: Sequence[tuple[int, IntArray]], *, empty: bool) -> bool:
        """Whether no person of these (user, asked) would pass their own ceiling."""
        room = _room(self._users.limit, self._user_usage, empty=empty)
        return all(bool((asked <= room[user]).all()) for user, asked in _sum_by_user(shares).items())

    def check_empty(self, queue: int, user: int, asked: IntArray) -> OverLimit | None:
        """The same with nothing in use: a gang over such a ceiling can never run."""
        if not self.any:
            return None
        return self._check(queue, user, asked, np.zeros_like(self._queue_usage), np.zeros_like(self._user_usage))

    def caps(self, vectors: IntArray, *, empty: bool) -> tuple[IntArray, IntArray]:
        """Multiples of each vector that fit below the ceilings of every queue (its ancestors' too) and person."""
        queue_room = _room(self._queues.limit, self._queue_usage, empty=empty)
        # The tightest ceiling on the way up, pushed down once, so that each queue answers for all above it.
        for queue, parent in enumerate(self._queues.parent.tolist()):  # parents come before children
            if parent >= 0:
                queue_room[queue] = np.minimum(queue_room[queue], queue_room[parent])
        user_room = _room(self._users.limit, self._user_usage, empty=empty)
        return _multiples(queue_room, vectors), _multiples(user_room, vectors)

    def charge(self, queue: int, user: int, asked: IntArray) -> None:
        """Count a gang that starts."""
        if not self.any:
            return
        self._user_usage[user] += asked
        self.add_upwards(self._queue_usage, queue, asked)

    def _check(
        self, queue: int, user: int, asked: IntArray, queue_usage: IntArray, user_usage: IntArray
    ) -> OverLimit | None:
        # Queues first: QueueLimit stands before UserLimit in the order of reasons (rule 15).
        over = self._check_queues(queue, asked, queue_usage)
        if over is not None:
            return over
        kind = _first_over(self._users.limit[user], user_usage[user], asked)
        if kind < 0:
            return None
        room = int(self._users.limit[user, kind] - user_usage[user, kind])
        return OverLimit(Code.USER_LIMIT, self._users.names[user], kind, int(asked[kind]), max(room, 0))

    def _check_queues(self, queue: int, asked: IntArray, queue_usage: IntArray) -> OverLimit | None:
        while queue >= 0:
            kind = _first_over(self._queues.limit[queue], queue_usage[queue], asked)
            if kind >= 0:
                room = int(self._queues.limit[queue, kind] - queue_usage[queue, kind])
                return OverLimit(Code.QUEUE_LIMIT, self._queues.names[queue], kind, int(asked[kind]), max(room, 0))
            queue = int(self._queues.parent[queue])
        return None


def _first_over(limit: IntArray, usage: IntArray, asked: IntArray) -> int:
    # Only kinds that are asked for: a queue above its limit of GPUs may still start what needs CPUs alone.
    over = np.flatnonzero((limit >= 0) & (asked > 0) & (usage + asked > limit))
    return int(over[0]) if len(over) else -1


def _sum_by_user(shares: Sequence[tuple[int, IntArray]]) -> dict[int, IntArray]:
    by_user: dict[int, IntArray] = {}
    for user, asked in shares:
        by_user[user] = by_user.get(user, 0) + asked
    return by_user


def usage_fits(
    limits: Limits, shares: Sequence[tuple[int, int, IntArray]], released: tuple[IntArray, IntArray]
) -> bool:
    """Whether (queue, user, asked) all together stay below every ceiling once something was given back."""
    queues, users = limits.usage_after(released)
    for queue, user, asked in shares:
        users[user] += asked
        limits.add_upwards(queues, queue, asked)
    return limits.within(queues, users)


#: Stands for no ceiling in columns of numbers: more than any room, and any size is below it.
_UNLIMITED = 1 << 60


def _room(limit: IntArray, usage: IntArray, *, empty: bool) -> IntArray:
    return np.where(limit >= 0, np.maximum(limit - (0 if empty else usage), 0), _UNLIMITED)


def _multiples(room: IntArray, vectors: IntArray) -> IntArray:
    """How many times each vector fits each room; kinds it does not ask for do not count."""
    # Room for 7 GPUs and 40 cores, members of 2 GPUs and 8 cores: min(3, 5) = 3 members.
    caps = np.full((len(room), len(vectors)), _UNLIMITED, dtype=np.int64)
    for kind in range(room.shape[1]):
        asks = vectors[:, kind] > 0
        # Kind by kind over all queues and shapes at once: there are few kinds and may be many of the others.
        if asks.any() and bool((room[:, kind] < _UNLIMITED).any()):
            caps[:, asks] = np.minimum(caps[:, asks], room[:, kind, None] // vectors[asks, kind])
    return caps
