"""A loop over file descriptors and timers, with the ends of children among its events.

Smaller than asyncio by a factor that every start would pay. Nothing that a callback raises ends the
loop: a shim that dies takes exit codes with it, so it says what went wrong and goes on.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Timer:
    """Something to be done later, unless it is cancelled."""

    __slots__ = ("act", "at_s", "order")

    def __init__(self, at_s: float, order: int, act: Callable[[], None]) -> None:
        self.at_s, self.order = at_s, order
        self.act: Callable[[], None] | None = act

    def __lt__(self, other: Timer) -> bool:
        return (self.at_s, self.order) < (other.at_s, other.order)

    def cancel(self) -> None:
        """Do not."""
        self.act = None


class EventLoop:
    """Waits for whatever happens next."""

    def __init__(self, on_child: Callable[[], None], on_error: Callable[[BaseException], None]) -> None:
        """`on_child` is called after a child has ended, `on_error` with what a callback raised."""
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._count = 0
        self._on_child, self._on_error = on_child, on_error
        self.stopped = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # Whoever started the daemon may ignore some, and members would inherit that.
        for number in (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP, signal.SIGTTIN):
            signal.signal(number, signal.SIG_DFL)
        # A handler, not SIG_IGN: an ignored signal stays ignored after exec, a handled one does not.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)
        self.watch(self._wake_read, READ, self._on_signal)

    def watch(self, fd: int, events: int, act: Callable[[int], None]) -> None:
        """Call `act(events)` whenever the descriptor is ready; again with other events to change them."""
        try:
            self._selector.modify(fd, events, act)
        except KeyError:
            self._selector.register(fd, events, act)

    def unwatch(self, fd: int) -> None:
        """No longer; does nothing if it was not watched."""
        try:
            self._selector.unregister(fd)
        except (KeyError, ValueError):
            return

    def now_s(self) -> float:
        """The clock of the timers."""
        return time.monotonic()

    def after(self, delay_s: float, act: Callable[[], None]) -> Timer:
        """Call `act` once, that much later."""
        self._count += 1
        timer = Timer(self.now_s() + delay_s, self._count, act)
        heapq.heappush(self._timers, timer)
        return timer

    def run(self) -> None:
        """Until somebody sets `stopped`."""
        while not self.stopped:
            for key, events in self._selector.select(self._find_wait_s()):
                # What an earlier callback of this round closed is not ready any more.
                if self._selector.get_map().get(key.fd) is key:
                    self._call(key.data, events)
            self._run_timers()

    def close(self) -> None:
        """Give back what the loop itself holds."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _find_wait_s(self) -> float | None:
        while self._timers and self._timers[0].act is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0].at_s - self.now_s()) if self._timers else None

    def _run_timers(self) -> None:
        now_s = self.now_s()
        while self._timers and self._timers[0].at_s <= now_s:
            timer = heapq.heappop(self._timers)
            if timer.act is not None:
                self._call(timer.act)

    def _on_signal(self, _events: int) -> None:
        try:
            while os.read(self._wake_read, 4096):
                continue
        except BlockingIOError:
            self._on_child()

    def _call(self, act: Callable[..., None], *arguments: int) -> None:
        try:
            act(*arguments)
        except Exception as error:
            self._on_error(error)


def _ignore(_number: int, _frame: object) -> None:
    """Who wants a run to end tells its members, not the one who writes down how they ended."""
