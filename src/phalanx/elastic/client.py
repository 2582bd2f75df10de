"""The job's side of the protocol: one object, polled between steps.

Nothing here blocks a step and nothing raises into the training because of the scheduler: a
scheduler that is away, old or wrong is logged, counted in `warnings`, and tried again. What a
callback of the job's own raises does go through.
"""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from phalanx.elastic.asked_changes import GROW, KIND_BY_TYPE, KINDS, YIELD, Change, Membership, read_change
from phalanx.elastic.link import Link
from phalanx.elastic.seat import Seat, read_seat
from phalanx.wire.vocabulary import FROM_JOB, TABLES

LOGGER = logging.getLogger("phalanx.elastic")

VERSION: Final = 1
#: Answers that are remembered, for requests that come again.
ANSWERS_MAX: Final = 256
#: Requests that may wait; a scheduler has a handful at most.
OPEN_MAX: Final = 64
STATUS_EVERY_S: Final = 1.0
WATCH_EVERY_S: Final = 0.2
#: How long an answer or the last status may be held up on its way out of the process.
FLUSH_S: Final = 1.0

P = ParamSpec("P")
R = TypeVar("R")
_Self = TypeVar("_Self", bound="Job")


def _quiet(method: Callable[Concatenate[_Self, P], R]) -> Callable[Concatenate[_Self, P], R | None]:
    """Run it in the process that joined, under the lock, with failures counted instead of raised."""

    @functools.wraps(method)
    def run(self: _Self, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        # Before the lock: in a forked child it may be held by a thread that does not exist there.
        if os.getpid() != self._pid:
            return None
        with self._lock:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a training must not end because its scheduler does
                self._warn(f"{method.__name__.strip('_')}: {type(error).__name__}: {error}")
                return None

    return run


class Job:
    """This process as a member of its gang; `elastic.join()` makes it.

    Outside Phalanx it has the rank and the world of RANK and WORLD_SIZE, and its methods do nothing.
    """

    def __init__(
        self, seat: Seat, *, speaks: Sequence[str] = KINDS, accept: Callable[[int], bool] | None = None
    ) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._seat, self._speaks, self._accept = seat, tuple(speaks), accept
        # A scheduler that numbers its members from zero need not say so.
        names = tuple(range(seat.world)) if seat.name == seat.rank else ()
        self._world = Membership(seat.generation, seat.world, names)
        self._open: OrderedDict[str, Change] = OrderedDict()
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._callbacks: list[Callable[[Change], object]] = []
        self._called: set[str] = set()
        self._status: dict[str, Any] = {}
        self._status_at = -math.inf
        self._status_due = False
        self._saved_at = 0.0
        self._paces: deque[tuple[float, int]] = deque(maxlen=16)
        self._paced = 0  # the generation they were measured in
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.warnings = 0  # what went wrong with the scheduler and was not raised
        hello = {"type": "hello", "rank": seat.name, "pid": self._pid, "speaks": list(speaks), "version": VERSION}
        self._link = Link(seat, hello, self._warn) if seat.socket else None

    # ------------------------------------------------------------------ who and where

    @property
    def active(self) -> bool:
        """Whether there is a scheduler to speak with; it may be away at times."""
        return self._link is not None

    @property
    def connected(self) -> bool:
        """Whether the scheduler answered on the connection of now."""
        return self._link is not None and self._link.heard

    @property
    def rank(self) -> int:
        """The place of this member among those of now, without gaps; moves up when one before it has left."""
        names = self._world.names
        return names.index(self.member) if self.member in names and not self._seat.nested else self._seat.rank

    @property
    def member(self) -> int:
        """What the scheduler calls this member, for life: what stands in `leaving` and `joining` of a change."""
        return self._seat.name

    @property
    def world(self) -> int:
        """How many members there are."""
        return self._world.members

    @property
    def generation(self) -> int:
        """Which membership this is; grows with every resize that was answered `done`."""
        return self._world.generation

    @property
    def names(self) -> tuple[int, ...]:
        """The members by name, in the order of their ranks; empty where the scheduler has not said them."""
        return self._world.names

    # ------------------------------------------------------------------ what the job says

    def progress(
        self,
        step: int,
        total: int | None = None,
        saved_step: int | None = None,
        loss: float | None = None,
        phase: str | None = None,
    ) -> None:
        """Say how far it is; cheap enough for every step, sent once a second. What is None stays as it was."""
        if self._link is not None:
            self._note(step, total, saved_step, loss, phase)
            self._call_back()

    def pending(self) -> Change | None:
        """What the scheduler wants and has no answer to; the same change until `done` or `refuse`."""
        if self._link is None:
            return None
        self._poll()
        self._call_back()
        return self._first_open()

    def done(self, change: Change, step: int | None = None) -> None:
        """It is so; the world is the one of the change from now on. `step`: what was saved."""
        self._answer(change, "done", None, step)

    def refuse(self, change: Change, why: str) -> None:
        """It will not be; the scheduler need not wait for the deadline."""
        self._answer(change, "refuse", why, None)

    def on_change(self, callback: Callable[[Change], object]) -> Callable[[Change], object]:
        """Call this for every change, from `progress` and `pending` (or the thread, if there is one).

        It answers by what it returns: False or a text refuses, everything else is done, unless it
        has answered itself. Usable as a decorator.
        """
        self._callbacks.append(callback)
        return callback

    def close(self) -> None:
        """Say the last status and hang up; at exit this happens by itself."""
        if os.getpid() != self._pid:
            return
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(FLUSH_S)
        self._hang_up()

    # ------------------------------------------------------------------ inside

    @_quiet
    def _note(
        self, step: int, total: int | None, saved_step: int | None, loss: float | None, phase: str | None
    ) -> None:
        now = time.monotonic()
        status = self._status
        if saved_step is not None and saved_step != status.get("saved_step"):
            self._saved_at = now
        for name, value in (("step", step), ("total", total), ("saved_step", saved_step)):
            if value is not None:
                status[name] = int(value)
        if phase is not None:
            status["phase"] = phase
        self._status_due = True
        is_last = status["step"] == status.get("total")
        if now - self._status_at >= STATUS_EVERY_S or is_last:
            # Only here: the float of a tensor on a GPU waits for that GPU.
            status["loss"] = None if loss is None or not math.isfinite(number := float(loss)) else number
            self._take_in()
            self._send_status()
        else:
            self._take_in()

    @_quiet
    def _poll(self) -> None:
        self._take_in()
        if self._status_due and time.monotonic() - self._status_at >= STATUS_EVERY_S:
            self._send_status()

    @_quiet
    def _first_open(self) -> Change | None:
        urgent = (change for change in self._open.values() if change.kind == YIELD)
        return next(urgent, next(iter(self._open.values()), None))

    @_quiet
    def _answer(self, change: Change, verdict: str, why: str | None, step: int | None) -> None:
        if self._link is None or self._open.pop(change.id, None) is None:
            return  # answered before, or never asked
        self._called.discard(change.id)
        if verdict == "done" and change.generation is not None and not change.leaves:
            self._move_to(change.generation, change.members or self.world, change.names)
        self._say(change.id, verdict, why, None if step is None else int(step))
        self._flush()

    @_quiet
    def _hang_up(self) -> None:
        if self._link is not None:
            if self._status_due:
                self._send_status()
            self._flush()
            self._link.close()

    def _take_in(self) -> None:
        assert self._link is not None
        for message in self._link.poll():
            self._on_message(message)

    def _on_message(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "welcome":
            if not self._seat.nested:
                self._move_to(message["generation"], message["members"], tuple(message.get("ranks", ())))
        elif kind == "status":
            self._send_status(message["id"])
        elif (answer := self._answers.get(message["id"])) is not None:
            self._send(answer)
        elif kind == "offer":
            wanted = GROW in self._speaks and (self._accept is None or self._accept(message["members"]))
            self._say(message["id"], "accept" if wanted else "refuse", None if wanted else "the job does not want to")
        elif kind in KIND_BY_TYPE:
            self._on_request(message)

    def _on_request(self, message: dict[str, Any]) -> None:
        # A resize counts on from the one before it, which may not have been answered here yet.
        names = next((change.names for change in reversed(self._open.values()) if change.names), self.names)
        change = read_change(message, self.member, names, time.monotonic())
        known = self._open.get(change.id)
        if known is not None:
            # It comes again with what is left; a slow way must not make the deadline later.
            self._open[change.id] = replace(known, deadline=min(known.deadline, change.deadline))
        elif change.kind not in self._speaks:
            self._say(change.id, "refuse", f"the job does not speak {change.kind}")
        elif len(self._open) >= OPEN_MAX:
            self._say(change.id, "refuse", f"{OPEN_MAX} requests wait already")
        else:
            self._open[change.id] = change

    def _move_to(self, generation: int, members: int, names: tuple[int, ...]) -> None:
        # Generations only grow, and one has one membership: of the same, a welcome may only say who they are. That
        # it counts fewer when somebody has died is for the scheduler to mend, in the next.
        is_same = generation == self.generation and members == self.world
        if generation > self.generation or (is_same and len(names) == members):
            self._world = Membership(generation, members, names if len(names) == members else ())

    def _say(self, request: str, verdict: str, why: str | None, step: int | None = None) -> None:
        answer = {"type": "answer", "id": request, "verdict": verdict, "generation": self.generation}
        answer |= {"why": None if why is None else why[:1000], "step": step}
        self._answers[request] = answer
        while len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        self._send(answer)

    def _send(self, message: Mapping[str, Any]) -> bool:
        return self._link is not None and self._link.send(message)

    def _send_status(self, asked: str | None = None) -> None:
        now = time.monotonic()
        status = {"type": "status", "id": asked, "generation": self.generation, **self._status}
        if "saved_step" in status:
            status["saved_age_s"] = round(now - self._saved_at, 3)
        status["rate"] = self._measure_rate(now)
        for name, field in TABLES[FROM_JOB]["status"].items():
            if status.get(name) is not None and not field.fits(status[name]):
                self._warn(f"progress: '{name}' must be: {field.says}; left out")
                status[name] = None
                self._status.pop(name, None)  # said once; the rest goes on being told
        if self._send(status):
            self._status_at, self._status_due = now, False

    def _measure_rate(self, now: float) -> float | None:
        """Steps a second over the last statuses; a step that went back, or another size, starts a new measure."""
        step = self._status.get("step")
        if step is None:
            return None
        if self._paced != self.generation or (self._paces and self._paces[-1][1] > step):
            self._paces.clear()
            self._paced = self.generation
        if not self._paces or now - self._paces[-1][0] >= STATUS_EVERY_S / 2:
            self._paces.append((now, step))
        then, old = self._paces[0]
        return round((step - old) / (now - then), 6) if now > then else None

    def _flush(self) -> None:
        """Give what was said a moment to leave the process, which may be about to end."""
        assert self._link is not None
        until = time.monotonic() + FLUSH_S
        while self._link.is_open and not self._link.is_idle and (left := until - time.monotonic()) > 0:
            self._link.wait(left)
            self._take_in()

    def _call_back(self) -> None:
        """Hand each change to the callbacks once; without the lock, since they may take long or wait for a step."""
        while self._callbacks and (change := self._next_call()) is not None:
            verdicts = [callback(change) for callback in list(self._callbacks)]
            refusals = [verdict for verdict in verdicts if verdict is False or isinstance(verdict, str)]
            if refusals:
                self.refuse(change, str(refusals[0] or "the job refused"))
            else:
                self.done(change)

    @_quiet
    def _next_call(self) -> Change | None:
        for change in self._open.values():
            if change.id not in self._called:
                self._called.add(change.id)
                return change
        return None

    # ------------------------------------------------------------------ coming in, and the thread

    @_quiet
    def greet(self, seconds: float) -> None:
        """Connect, and give the scheduler this long to answer: it should know us before a long first step."""
        assert self._link is not None
        until = time.monotonic() + seconds
        self._take_in()
        while not self._link.heard and (left := until - time.monotonic()) > 0:
            self._link.wait(left)
            self._take_in()

    def watch(self) -> None:
        """Look at the socket from a thread of our own, for jobs with long steps."""
        if self._link is not None and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="phalanx-elastic", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_EVERY_S):
            self._poll()
            try:
                self._call_back()
            except Exception as error:  # noqa: BLE001 - nobody is above a thread; the scheduler should know, though
                self._warn(f"a callback failed: {type(error).__name__}: {error}")
                for change in [c for c in self._open.values() if c.id in self._called]:
                    self.refuse(change, f"{type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        self.warnings += 1
        # The first, the second, the fourth …: a scheduler that is gone for a night must not fill a disk.
        if self.warnings & (self.warnings - 1) == 0:
            LOGGER.warning("phalanx: %s (%d such)", text, self.warnings)


_joining = threading.Lock()
_joined: Job | None = None


def join(
    *,
    speaks: Sequence[str] = KINDS,
    accept: Callable[[int], bool] | None = None,
    thread: bool = False,
    wait_s: float = 2.0,
) -> Job:
    """This process as a member of its gang: one object per process, whoever asks first says how.

    `speaks`: what it will act on. `accept(members)`: whether it would like to grow to that many.
    `thread`: watch the socket also while no method is called. `wait_s`: how long a scheduler that
    does not answer may hold up the start.
    """
    global _joined  # noqa: PLW0603 - a process has one seat
    with _joining:
        if _joined is not None and _joined._pid == os.getpid():  # noqa: SLF001 - our own object
            return _joined
        seat, problem = read_seat(os.environ, os.getpid())
        job = _joined = Job(seat, speaks=speaks, accept=accept)
        if problem:
            job._warn(problem)  # noqa: SLF001 - the same
        if job.active:
            # Inherited by whatever the job starts: a data loader must not take its parent's place.
            os.environ["PHALANX_JOINED"] = str(os.getpid())
            atexit.register(job.close)
            job.greet(wait_s)
            if thread:
                job.watch()
        return job


def progress(step: int, total: int | None = None, saved_step: int | None = None, loss: float | None = None) -> None:
    """Say how far the job is, for scripts that want to say nothing else."""
    join().progress(step, total, saved_step, loss)
