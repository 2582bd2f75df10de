"""FCFS, EASY and conservative backfilling as the papers have them: one pool of processors, no places.

Written from the definitions (Lifka 1995; Mu'alem and Feitelson 2001), in seconds and plain lists, to hold
the engine to on clusters where places do not matter. A job past its estimate is expected to go on for
max(60 s, a tenth of its age), as in SEMANTICS rule 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle that is known only by its estimate until it ends."""

    submit: int
    size: int
    duration: int
    estimate: int


class Pool:
    """Processors, what runs on them since when, and who waits in order of arrival."""

    def __init__(self, jobs: Sequence[Rectangle], processors: int) -> None:
        """Nobody has arrived yet."""
        self.jobs, self.processors = jobs, processors
        self.now = 0
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.starts: dict[int, int] = {}
        self.promises: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Processors that nobody uses now."""
        return self.processors - sum(self.jobs[job].size for job in self.running)

    def start(self, job: int) -> None:
        """Take a job out of the queue and run it."""
        self.waiting.remove(job)
        self.running.append(job)
        self.starts[job] = self.now

    def expected_end(self, job: int) -> int:
        """When planning believes that a running job ends."""
        end = self.starts[job] + self.jobs[job].estimate
        return end if end > self.now else self.now + max(60, (self.now - self.starts[job]) // 10)

    def play(self, decide: Callable[[Pool], None]) -> list[int]:
        """Starts of all jobs, in their order; at each instant ends come before arrivals, and then one decision."""
        while True:
            ends = [self.starts[job] + self.jobs[job].duration for job in self.running]
            arrivals = [job.submit for index, job in enumerate(self.jobs) if index not in self.starts]
            ahead = [*ends, *(submit for submit in arrivals if submit > self.now)]
            if self.now or self.waiting or self.starts:
                if not ahead:
                    return [self.starts[index] for index in range(len(self.jobs))]
                self.now = min(ahead)
            else:
                self.now = min(arrivals)
            self.running = [job for job in self.running if self.starts[job] + self.jobs[job].duration > self.now]
            known = {*self.waiting, *self.starts}
            self.waiting += [i for i, job in enumerate(self.jobs) if job.submit <= self.now and i not in known]
            self.waiting.sort(key=lambda index: (self.jobs[index].submit, index))
            decide(self)


def run_fcfs(jobs: Sequence[Rectangle], processors: int) -> list[int]:
    """Nobody overtakes."""
    return Pool(jobs, processors).play(_start_in_order)


def _start_in_order(pool: Pool) -> None:
    while pool.waiting and pool.jobs[pool.waiting[0]].size <= pool.free:
        pool.start(pool.waiting[0])


def run_easy(jobs: Sequence[Rectangle], processors: int, *, shortest: bool = False) -> list[int]:
    """The head has a shadow time; others start if they end by it or use only what the head leaves then."""

    def decide(pool: Pool) -> None:
        _start_in_order(pool)
        if not pool.waiting:
            return
        shadow, extra = _find_shadow(pool)
        behind = pool.waiting[1:]
        for index in sorted(behind, key=lambda i: pool.jobs[i].estimate) if shortest else behind:
            job = pool.jobs[index]
            in_time = pool.now + job.estimate <= shadow
            if job.size <= pool.free and (in_time or job.size <= extra):
                extra -= 0 if in_time else job.size
                pool.start(index)

    return Pool(jobs, processors).play(decide)


def _find_shadow(pool: Pool) -> tuple[int, int]:
    """When the head can start, and how many processors are then left over."""
    needed, free = pool.jobs[pool.waiting[0]].size, pool.free
    for end in sorted({pool.expected_end(job) for job in pool.running}):
        free = pool.free + sum(pool.jobs[job].size for job in pool.running if pool.expected_end(job) <= end)
        if free >= needed:
            return end, free - needed
    raise ValueError("the head is larger than the cluster")


def run_conservative(jobs: Sequence[Rectangle], processors: int) -> list[int]:
    """Everybody has a start; each decision moves it earlier, in order, if the others' starts leave room."""

    def decide(pool: Pool) -> None:
        for index in list(pool.waiting):
            pool.promises.pop(index, None)
            start = _find_gap(pool, pool.jobs[index])
            if start == pool.now:
                pool.start(index)
            else:
                pool.promises[index] = start

    return Pool(jobs, processors).play(decide)


def _find_gap(pool: Pool, job: Rectangle) -> int:
    """The first instant from which enough processors are free for the whole estimate."""
    busy = list(_list_busy(pool))
    for start in sorted({pool.now, *(end for _, end, _ in busy)}):
        instants = {start, *(begin for begin, _, _ in busy if start < begin < start + job.estimate)}
        if all(_used(busy, at) + job.size <= pool.processors for at in instants):
            return start
    raise ValueError("the job is larger than the cluster")


def _list_busy(pool: Pool) -> Iterator[tuple[int, int, int]]:
    for job in pool.running:
        yield pool.now, pool.expected_end(job), pool.jobs[job].size
    for job, start in pool.promises.items():
        yield start, start + pool.jobs[job].estimate, pool.jobs[job].size


def _used(busy: Sequence[tuple[int, int, int]], at: int) -> int:
    return sum(size for begin, end, size in busy if begin <= at < end)
