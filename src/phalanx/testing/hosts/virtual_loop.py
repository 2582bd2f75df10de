"""An event loop whose time is a number, and the daemon's clock on it.

Nothing sleeps: when nobody has anything to do, the time jumps to the next timer. What happens at one
instant has an order: whatever is ready, then timers by rank and by when they were set. So a run is the
same every time, and a test says who comes first where a real machine leaves it to chance.

A callback belongs to a `Life`. When a life is over, none of its callbacks runs any more: its tasks stand
still where they are, as those of a process do that was killed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final

#: Who comes first at one instant. Limits run out only after everything else that happens then.
FIRST: Final = 0
WORDS: Final = 1
SUBMITS: Final = 2
LIMITS: Final = 5
LAST: Final = 9


class Life:
    """A process whose work runs on the loop."""

    def __init__(self, name: str) -> None:
        """It lives."""
        self.name, self.alive = name, True


LIFE: Final[ContextVar[Life | None]] = ContextVar("LIFE", default=None)


class NothingLeft(Exception):  # noqa: N818 - what happened
    """Somebody waits, and nothing will ever happen again."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop without a selector."""

    def __init__(self) -> None:
        """It is instant 0."""
        super().__init__()
        self.now_us = 0
        self.turns = 0  # callbacks that ran
        #: Called before anything of rank WORDS or later runs; says whether it gave somebody something to do.
        self.hush: Callable[[], bool] | None = None
        #: Called when nothing is ready any more.
        self.on_still: Callable[[], None] | None = None
        #: Called for an exception that nobody handles.
        self.on_error: Callable[[BaseException], None] | None = None
        self._soon: deque[tuple[asyncio.Handle, Life | None]] = deque()
        self._timers: list[tuple[int, int, int, asyncio.Handle, Life | None]] = []
        self._sequence = count()
        self._stirred = False
        self.set_exception_handler(_report)

    # ------------------------------------------------------------------ what asyncio asks of a loop

    def time(self) -> float:
        """Seconds."""
        return self.now_us / 1e6

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run it when everything that is ready has run."""
        if _is_limit(callback):  # of no time at all
            return self._put(self.now_us, LIMITS, callback, args, context)
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append((handle, _life_in(context)))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it then."""
        rank = LIMITS if _is_limit(callback) else FIRST
        return self._put(max(self.now_us, round(when * 1e6)), rank, callback, args, context)

    def call_ranked(
        self, at_us: int, rank: int, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it then, behind everything of a lower rank."""
        return self._put(max(self.now_us, at_us), rank, callback, args, context)

    def _put(
        self, at_us: int, rank: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(at_us / 1e6, callback, args, self, context)
        heapq.heappush(self._timers, (at_us, rank, next(self._sequence), handle, _life_in(context)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Threads would come in any order; here the work is done on the spot."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        return future

    # ------------------------------------------------------------------ time

    def _run_once(self) -> None:
        if self._soon:
            for _ in range(len(self._soon)):
                self._run(*self._soon.popleft())
            return
        if self._stirred:
            self._stirred = False
            if self.on_still is not None:
                self.on_still()
            return
        self._next_timer()

    def _next_timer(self) -> None:
        while self._timers and _is_void(self._timers[0][3], self._timers[0][4]):
            heapq.heappop(self._timers)
        if not self._timers:
            raise NothingLeft(f"nothing will happen after {self.now_us / 1e6:g} s")
        self.now_us = max(self.now_us, self._timers[0][0])
        if self._timers[0][1] >= WORDS and self.hush is not None and self.hush():
            return
        _, _, _, handle, life = heapq.heappop(self._timers)
        self._run(handle, life)

    def _run(self, handle: asyncio.Handle, life: Life | None) -> None:
        if not _is_void(handle, life):
            self.turns += 1
            self._stirred = True
            handle._run()  # noqa: SLF001 - what a loop does with a handle


def _is_void(handle: asyncio.Handle, life: Life | None) -> bool:
    return handle.cancelled() or (life is not None and not life.alive)


def _life_in(context: Context | None) -> Life | None:
    return LIFE.get() if context is None else context.get(LIFE)


def _is_limit(callback: Callable[..., object]) -> bool:
    return isinstance(getattr(callback, "__self__", None), asyncio.Timeout)


def _report(loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
    """Tasks of a dead process are dropped where they stand; every other complaint is somebody's mistake."""
    error = told.get("exception")
    if isinstance(loop, VirtualLoop) and isinstance(error, BaseException) and loop.on_error is not None:
        loop.on_error(error)


class PatientEvent(asyncio.Event):
    """An event that is set only when nothing else is left to do at the instant."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Not set."""
        super().__init__()
        self._virtual = loop

    def set(self) -> None:
        """In a moment that takes no time."""
        self._virtual.call_ranked(self._virtual.now_us, LAST, super().set)


class VirtualClock:
    """The daemon's clock on a virtual loop. The wall can be set; the cluster's time cannot."""

    def __init__(self, loop: VirtualLoop, wall_s: float = 1_700_000_000.0) -> None:
        """The cluster's clock is the loop's."""
        self._loop, self.wall_at_0_s = loop, wall_s
        #: Whoever only looks round every few seconds does so that much more rarely.
        self.laziness = 1.0

    def now_us(self) -> int:
        """The cluster's clock."""
        return self._loop.now_us

    def wall_s(self) -> float:
        """Seconds since the epoch, as somebody set them."""
        return self.wall_at_0_s + self._loop.now_us / 1e6

    async def sleep(self, seconds: float) -> None:
        """Wait, in no time."""
        await asyncio.sleep(seconds * self.laziness)


def new_context(life: Life) -> Context:
    """A context in which everything belongs to this life."""
    context = copy_context()
    context.run(LIFE.set, life)
    return context
