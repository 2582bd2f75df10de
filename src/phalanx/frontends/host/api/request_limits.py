"""How much anybody may ask for at once, so that one user's storm leaves the others their daemon.

Three kinds of bound: connections (counted when they are accepted), requests a second (a bucket for each
user that fills up again), and slots for what is expensive to hold (large bodies, event streams).
Whoever may stop the daemon is not bound by the second: that user has shorter ways to harm it, and in
user mode nobody else is there to be protected.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from phalanx.frontends.host.messages import Refusal
from phalanx.frontends.host.ports import Caller, Refused

#: Connections above the cap that root and the daemon's own user still get, to see what is going on.
CONNECTIONS_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Bounds of the API; sizes in bytes, times in seconds."""

    body_bytes: int = 1 << 20
    batch_bytes: int = 64 << 20  # POST /v1/jobs over the unix socket
    head_bytes: int = 64 << 10
    headers: int = 64
    connections: int = 480  # below the usual limit of 1024 open files, with room for shims and logs
    connections_per_uid: int = 128
    requests_per_s: float = 1000.0
    requests_burst: float = 2000.0
    large: int = 4  # bodies above body_bytes at the same time
    large_per_uid: int = 1
    streams: int = 128
    streams_per_uid: int = 16
    request_s: float = 30.0  # from the first byte of a request to its last
    idle_s: float = 60.0  # between requests
    first_s: float = 10.0  # from the connection to the first byte
    stall_s: float = 30.0  # a reader that takes nothing
    sweep_s: float = 1.0
    heartbeat_s: float = 15.0
    throttle_s: float = 0.1  # a refused storm is answered slowly, or refusing would be the load
    drain_s: float = 1.0  # for requests under way when the daemon stops


@dataclass(slots=True)
class Crowd:
    """Who is connected. TCP connections have no uid yet and count as one user."""

    limits: ApiLimits
    own_uids: frozenset[int] = field(default_factory=lambda: frozenset({0, os.geteuid()}))
    total: int = 0
    by_uid: Counter[int | None] = field(default_factory=Counter)
    #: How to hang up on TCP connections over which nobody has shown a token, the oldest first.
    _strangers: dict[object, Callable[[], None]] = field(default_factory=dict)

    def enter(self, uid: int | None) -> Refusal | None:
        """Count a connection, or say why not."""
        kept = CONNECTIONS_KEPT if uid in self.own_uids else 0
        if self.total >= self.limits.connections + kept:
            return Refusal(
                "unavailable", f"the daemon has {self.total} connections, its limit", "try again in a moment"
            )
        if not kept and self.by_uid[uid] >= self.limits.connections_per_uid:
            many = f"{self.limits.connections_per_uid} connections are open already"
            return Refusal("too_many", many, "close some; one connection carries any number of requests")
        self.total += 1
        self.by_uid[uid] += 1
        return None

    def note_stranger(self, connection: object, hang_up: Callable[[], None]) -> None:
        """This one was counted, and nobody knows whose it is."""
        self._strangers[connection] = hang_up

    def know(self, connection: object) -> None:
        """It is somebody's, or it is gone."""
        self._strangers.pop(connection, None)

    def make_way(self) -> bool:
        """Hang up on the stranger who has been silent for longest; False if there is none.

        Anybody can open connections. Whoever says nothing over them must not keep those out who have a token.
        """
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self._strangers.pop(oldest)()
        return True

    def leave(self, uid: int | None) -> None:
        """One that was counted is gone."""
        self.total -= 1
        self.by_uid[uid] -= 1
        if not self.by_uid[uid]:
            del self.by_uid[uid]


class RequestRates:
    """Requests a second, by user; nobody in particular (no valid token) is one user too."""

    def __init__(self, limits: ApiLimits, now_s: Callable[[], float]) -> None:
        self._rate = limits.requests_per_s
        self._burst = limits.requests_burst
        self._now_s = now_s
        self._levels: dict[int | None, tuple[float, float]] = {}

    def take(self, uid: int | None) -> bool:
        """Whether there is room for one more request now."""
        now_s = self._now_s()
        level, at_s = self._levels.get(uid, (self._burst, now_s))
        level = min(self._burst, level + (now_s - at_s) * self._rate)
        if level < 1.0:
            self._levels[uid] = (level, now_s)
            return False
        self._levels[uid] = (level - 1.0, now_s)
        return True

    def check(self, caller: Caller) -> None:
        """Refuse a caller who asks too often."""
        if not caller.admin and not self.take(caller.uid):
            raise too_often(self._rate)


def too_often(rate: float) -> Refused:
    """The refusal for a storm."""
    return Refused(
        "too_many", f"more than {rate:.0f} requests a second", 'submit many jobs as one batch: {"jobs": [...]}'
    )


class Slots:
    """Places for what is expensive to hold."""

    def __init__(self, what: str, total: int, per_uid: int) -> None:
        self._what = what
        self._total = total
        self._per_uid = per_uid
        self._by_uid: Counter[int] = Counter()

    def take(self, uid: int) -> contextlib.AbstractContextManager[None]:
        """A place from now until the end of the context, or a refusal."""
        if self._by_uid[uid] >= self._per_uid:
            raise Refused(
                "too_many", f"{self._per_uid} {self._what} of yours at once is the limit", "wait for one to end"
            )
        if self._by_uid.total() >= self._total:
            raise Refused("too_many", f"{self._total} {self._what} at once is the limit", "try again in a moment")
        self._by_uid[uid] += 1
        return self._hold(uid)

    @contextlib.contextmanager
    def _hold(self, uid: int) -> Iterator[None]:
        try:
            yield
        finally:
            self._by_uid[uid] -= 1
            if not self._by_uid[uid]:
                del self._by_uid[uid]
