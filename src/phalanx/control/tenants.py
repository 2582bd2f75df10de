"""The tenant tree and the people as columns, with what they use.

Usage is charged to a queue and to everybody above it, so that a limit or a guarantee anywhere in the tree is compared
with one number. What that usage entitles anybody to is worked out in `engine.fairshare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from phalanx.engine.kernels.slots import Need
from phalanx.model.fleet import Fleet, IntArray
from phalanx.model.queue import DEFAULT_QUEUE, ROOT, Queue, UserLimit
from phalanx.model.snapshot import QueueColumns, UserColumns


class Tenants:
    """Queues from the root down, people as they appear."""

    def __init__(self, fleet: Fleet, queues: Sequence[Queue], users: Sequence[UserLimit]) -> None:
        """A tree with the root, the queues given (parents may come after children), and `default`."""
        # As described, for a fleet that changes and for dumps: columns lose what no node has now.
        self._queues, self._users = tuple(queues), tuple(users)
        self._fleet = fleet
        # Parents before children: whoever walks the columns downwards has every parent done before its children.
        ordered = _parents_first(queues)
        names = tuple(queue.name for queue in ordered)
        self._queue_index = {name: index for index, name in enumerate(names)}
        parent = [-1, *(self._queue_index[queue.parent] for queue in ordered[1:])]
        width = len(fleet.kinds)
        self.queue_columns = QueueColumns(
            names=names,
            parent=np.array(parent, dtype=np.int32),
            weight=np.array([queue.weight for queue in ordered], dtype=np.int64),
            guarantee=np.array([_vector(fleet, queue.guarantee, 0) for queue in ordered]).reshape(len(ordered), width),
            # -1 for none, since 0 is a limit: nothing may start there. Of guarantees 0 is none.
            limit=np.array([_vector(fleet, queue.limit, -1) for queue in ordered]).reshape(len(ordered), width),
            usage=np.zeros((len(ordered), width), dtype=np.int64),
            decayed=np.zeros((len(ordered), width), dtype=np.int64),
        )
        # As arrays, so that a charge is one indexed addition whatever the depth of the tree.
        self._chains = [_way_up(parent, queue) for queue in range(len(parent))]
        # Members taken (less those given back) since the usage was last brought up to date, by queue, user and need.
        self._unsettled: dict[tuple[int, int, Need], int] = {}
        self._user_index: dict[str, int] = {}
        # Over the kinds of this fleet; a limit on a kind that no node has is kept in `_users` until one comes.
        self._limit_by_user = {user.name: _vector(fleet, user.limit, -1) for user in users}
        self.user_columns = UserColumns([], np.zeros((0, width), dtype=np.int64), np.zeros((0, width), dtype=np.int64))
        for user in users:
            self._add_user(user.name)
        self.limited = any(queue.limit for queue in queues) or any(user.limit for user in users)
        self.watched = self.limited  # whether anybody looks at the usage in every cycle
        self.half_life_us: int | None = None
        self._decayed_at_us = 0

    def index_of(self, queue: str, user: str) -> tuple[int, int]:
        """Row of a queue and of a person; people are added as they appear."""
        index = self._user_index.get(user)
        # Queues must be described, people need not be: a user is a name that somebody submits under.
        return self._queue_index[queue], self._add_user(user) if index is None else index

    def charge(self, queue: int, user: int, need: Need, members: int) -> None:
        """Add what some members took (or, negative, gave back) to somebody and to every queue above.

        Counted now and added up when somebody looks: a long simulation without limits looks only at its end,
        and by then most starts have met their own end in this dict. (A list of vectors, added up every 4,096
        charges, was 3 % of a log.)
        """
        key = (queue, user, need)
        self._unsettled[key] = self._unsettled.get(key, 0) + members

    def settle(self) -> None:
        """Bring the usage up to date."""
        if not self._unsettled:
            return
        for (queue, user, need), members in self._unsettled.items():
            # Most have gone back to nought: started and ended since anybody looked.
            if members:
                units = members * need.vector
                self.user_columns.usage[user] += units
                self.queue_columns.usage[self._chains[queue]] += units
        self._unsettled.clear()

    def unshare(self) -> None:
        """Let go of arrays that change and that others read."""
        self.settle()
        # What changes is copied; names, weights and limits are shared with every snapshot.
        q, u = self.queue_columns, self.user_columns
        self.queue_columns = QueueColumns(
            q.names, q.parent, q.weight, q.guarantee, q.limit, q.usage.copy(), q.decayed.copy()
        )
        self.user_columns = UserColumns(list(u.names), u.limit, u.usage.copy())

    def decay(self, now_us: int) -> None:
        """Let the past fade up to now: a running mean of what each queue used, halved every half-life."""
        if self.half_life_us is None or now_us <= self._decayed_at_us:
            return
        self.settle()
        # Towards what is used now: after one half-life of 8 GPUs the memory of nothing is 4, after two it is 6. Exact
        # only if usage did not change in between, so this is called before every change of time.
        kept = 0.5 ** ((now_us - self._decayed_at_us) / self.half_life_us)
        q = self.queue_columns
        # Back to integers at every step: standings are compared exactly, and the same
        # events must give the same plan anywhere.
        q.decayed[:] = np.rint(q.usage + (q.decayed - q.usage) * kept).astype(np.int64)
        self._decayed_at_us = now_us

    def tell_decayed(self) -> dict[str, list[int]]:
        """What queues used in the past, by name and in units by kind, for whoever writes it down."""
        self.settle()
        columns = self.queue_columns
        return {name: columns.decayed[row].tolist() for row, name in enumerate(columns.names)}

    def recall_decayed(self, told: Mapping[str, Sequence[int]]) -> None:
        """The same from earlier days, of queues that are still there, as far as the kinds are as many."""
        columns = self.queue_columns
        for name, values in told.items():
            # A memory that does not fit the tree of today is dropped: it only orders queues, and fades anyway.
            if name in columns.names and len(values) == columns.decayed.shape[1]:
                columns.decayed[columns.names.index(name)] = values

    def over(self, fleet: Fleet) -> Tenants:
        """The same people and queues over another fleet, with nothing in use yet."""
        # From the description, not from the columns: kinds and their order may be others on this fleet.
        fresh = Tenants(fleet, self._queues, self._users)
        fresh.watched, fresh.half_life_us, fresh._decayed_at_us = self.watched, self.half_life_us, self._decayed_at_us
        for kind, column in self._fleet.kind_index.items():
            if kind in fleet.kind_index:
                fresh.queue_columns.decayed[:, fleet.kind_index[kind]] = self.queue_columns.decayed[:, column]
        for name in self._user_index:
            # In the order in which they appeared: running rows hold people by index.
            if name not in fresh._user_index:
                fresh._add_user(name)
        return fresh

    def _add_user(self, name: str) -> int:
        index = self._user_index[name] = len(self._user_index)
        columns, width = self.user_columns, len(self._fleet.kinds)
        limit = self._limit_by_user.get(name, np.full(width, -1, dtype=np.int64))
        usage = np.zeros((1, width), dtype=np.int64)
        # New arrays for each newcomer: people are few, and snapshots may hold the old ones.
        self.user_columns = UserColumns(
            [*columns.names, name], np.concatenate((columns.limit, limit[None])), np.concatenate((columns.usage, usage))
        )
        return index


def _way_up(parent: Sequence[int], queue: int) -> IntArray:
    """A queue and everything above it."""
    chain = []
    while queue >= 0:
        chain.append(queue)
        queue = parent[queue]
    return np.array(chain, dtype=np.int64)


def _vector(fleet: Fleet, amounts: Mapping[str, int], absent: int) -> IntArray:
    vector = np.full(len(fleet.kinds), absent, dtype=np.int64)
    for kind, units in amounts.items():
        if kind in fleet.kind_index:
            vector[fleet.kind_index[kind]] = units
    return vector


def _parents_first(queues: Sequence[Queue]) -> list[Queue]:
    named = {queue.name: queue for queue in queues}
    named.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
    ordered, done = [Queue(ROOT, parent="")], {ROOT}
    while len(ordered) <= len(named):
        # Level by level, each as written: where shares are rounded, the lower index gets the unit more.
        ready = [queue for queue in named.values() if queue.name not in done and queue.parent in done]
        # The reader refuses circles; this is for states that are made in Python.
        if not ready:
            left = sorted(set(named) - done)
            raise ValueError(f"queues without a way up to the root: {', '.join(left)}")
        ordered += ready
        done |= {queue.name for queue in ready}
    return ordered
