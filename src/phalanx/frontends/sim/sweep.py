"""Several runs of one scenario: policies times seeds, side by side on the cores there are.

Each run is a process of its own that is forked here, so that the scenario is neither read nor sent again, and
speaks over a pipe: how far it is, then what came out. Answers come back in the order of the tasks, whoever is done
first. What is kept of a run is decided by the caller's `work`, in the process of the run: a report of ten runs
need not hold ten histories of all gangs.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, Generic, TypeVar

from phalanx.control.spec.errors import BadInput, show
from phalanx.control.state import State
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario

T = TypeVar("T")

SEEDS_MOST: Final = 10_000

#: A run says how far it is in steps of this much: often enough for a bar, and to notice that nobody listens.
_STEP: Final = 0.01


@dataclass(frozen=True, slots=True)
class Task:
    """One run. The label tells policies apart that differ in their options only."""

    policy: str | Policy
    options: Mapping[str, object]
    seed: int
    label: str


Share = Callable[[float], None]  # told how much is done
Work = Callable[[Task, Share], T]


class RunLost(Exception):  # noqa: N818 - an answer to the user
    """A run ended without an answer, as one does that the system killed."""


class RunBroke(Exception):  # noqa: N818 - carries the story of another process
    """A run failed in a way that is our fault; the text is its traceback."""


def parse_seeds(text: str) -> list[int]:
    """Seeds as people write them: 0-9, or 1,3,5-7. In the order written, each once."""
    found: dict[int, None] = {}
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not _is_seed(low) or (dash and not _is_seed(high)):
            raise BadInput(f"--seeds: {show(part.strip())} is neither a number nor a range; write 0-9 or 1,3,5")
        first, last = int(low), int(high) if dash else int(low)
        if last < first:
            raise BadInput(f"--seeds: the range {show(part.strip())} is reversed; write {last}-{first}")
        if len(found) + last - first >= SEEDS_MOST:
            raise BadInput(f"--seeds: more than {SEEDS_MOST:,} seeds; name fewer")
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)


def _is_seed(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def make_tasks(policies: Sequence[tuple[str, Mapping[str, object]]], seeds: Sequence[int]) -> list[Task]:
    """Every policy with every seed, policies outermost."""
    names = [name for name, _ in policies]
    labels: list[str] = []
    for name, options in policies:
        label = name
        if names.count(name) > 1 and options:
            label = f"{name} ({', '.join(f'{key}: {value}' for key, value in options.items())})"
        while label in labels:
            label += "'"
        labels.append(label)
    return [
        Task(name, options, seed, label)
        for (name, options), label in zip(policies, labels, strict=True)
        for seed in seeds
    ]


def count_cores() -> int:
    """Cores that this process may use, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_sweep(tasks: Sequence[Task], work: Work[T], jobs: int = 1, progress: Share | None = None) -> list[T]:
    """Do the work of all tasks, at most `jobs` at a time; what came out stands in the order of the tasks.

    One at a time stays in this process. If a run is refused, those before it are still awaited: of several
    refusals the first by order is raised, not the first by the clock.
    """
    tell = progress or (lambda _: None)
    if jobs <= 1 or len(tasks) <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        found = []
        for index, task in enumerate(tasks):
            found.append(work(task, _part_of(tell, index, len(tasks))))
            tell((index + 1) / len(tasks))
        return found
    return _Crew(tasks, work, jobs, tell).run()


def _part_of(tell: Share, index: int, count: int) -> Share:
    return lambda share: tell((index + share) / count)


def play(scenario: Scenario, task: Task, tell: Share, watch: Callable[[State], None] | None = None) -> SimResult:
    """One run. `watch` sees the state after every instant."""
    # A run keeps what it makes until it is told: looking for garbage every 700 objects finds none.
    gc.set_threshold(100_000, 50, 100)
    said = 0.0

    def on_progress(done: int, total: int) -> None:
        nonlocal said
        if total and done / total - said >= _STEP:
            said = done / total
            tell(said)

    return simulate(scenario, task.policy, task.options, task.seed, on_progress, watch)


@dataclass(slots=True)
class _Member:
    """One run under way."""

    index: int
    process: BaseProcess


@dataclass(slots=True)
class _Crew(Generic[T]):
    """The runs of one sweep and the processes they are in."""

    tasks: Sequence[Task]
    work: Work[T]
    jobs: int
    tell: Share
    running: dict[Connection, _Member] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)
    products: dict[int, T] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)

    def run(self) -> list[T]:
        """Start, listen, collect. Whatever happens, nobody is left behind."""
        waiting = list(range(len(self.tasks)))[::-1]
        try:
            while self.running or (waiting and not self.failures):
                while waiting and not self.failures and len(self.running) < self.jobs:
                    self._start(waiting.pop())
                for ready in wait(list(self.running)):
                    assert isinstance(ready, Connection)
                    self._hear(ready)
        finally:
            for connection in list(self.running):
                self._stop(connection)
        if self.failures:
            raise self.failures[min(self.failures)]
        return [self.products[index] for index in range(len(self.tasks))]

    def _start(self, index: int) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        what = (theirs, [*self.running, ours], self.tasks[index], self.work)
        process = context.Process(target=_work_apart, args=what, daemon=True)
        # An interrupt is for us: we stop them. Blocked until the child has said that it ignores it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python 3.12 and later warn of threads; those here are NumPy's, which survive a fork.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            self.running[ours] = _Member(index, process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()  # or the end of the child would not be the end of the pipe

    def _hear(self, connection: Connection) -> None:
        member = self.running.get(connection)
        if member is None:
            return  # stopped a moment ago
        try:
            word, content = connection.recv()
        except EOFError:
            word, content = "lost", None
        if word == "share":
            self.shares[member.index] = content
        else:
            self._settle(connection, member, word, content)
        self.tell(sum(self.shares.values()) / len(self.tasks))

    def _settle(self, connection: Connection, member: _Member, word: str, content: object) -> None:
        """A run is over, one way or another."""
        self._stop(connection, kill=word == "lost")
        task = self.tasks[member.index]
        self.shares[member.index] = 1.0
        if word == "done":
            self.products[member.index] = content  # type: ignore[assignment]  # what the work returned
            return
        if isinstance(content, BadInput):
            self.failures[member.index] = content
        elif word == "broke":
            self.failures[member.index] = RunBroke(f"policy {task.label}, seed {task.seed}:\n{content}")
        else:
            self.failures[member.index] = RunLost(_why_lost(task, member.process.exitcode))
        for other, later in list(self.running.items()):
            if later.index > min(self.failures):
                self._stop(other)

    def _stop(self, connection: Connection, *, kill: bool = True) -> None:
        member = self.running.pop(connection)
        connection.close()
        if kill:
            member.process.terminate()
        member.process.join()


def _why_lost(task: Task, code: int | None) -> str:
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return (
        f"the run of policy {task.label} with seed {task.seed} ended {how} and left no result; "
        "if memory ran out, try fewer at a time with --jobs 1"
    )


def _work_apart(connection: Connection, others: Sequence[Connection], task: Task, work: Work[object]) -> None:
    """One run in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in others:
        other.close()  # a copy kept here would hide from another run that nobody listens any more
    gc.freeze()  # what was inherited is never garbage here; looking at it would copy its pages
    try:
        connection.send(("done", work(task, lambda share: connection.send(("share", share)))))
    except BrokenPipeError:
        return  # nobody listens: there is no one to run for
    except BadInput as bad:
        connection.send(("refused", bad))
    except Exception:  # noqa: BLE001 - the end of a process: the story goes to the one who asked
        connection.send(("broke", traceback.format_exc()))
