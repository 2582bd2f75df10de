"""SWF logs, the archive format of batch systems: one job a line, 18 numbers, -1 where nothing is known.

Conventions, as everybody who publishes numbers from these logs uses them: jobs without a run time
are dropped and counted; processors are those requested; the run is cut at the request; order is
by job number. Each processor is one member that needs one slot.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from phalanx.control.spec.errors import BadInput, show
from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.spec.quantity import SECOND_US, TIME_US_MAX
from phalanx.control.spec.sizes import MEMBERS_MAX, sizes_between
from phalanx.frontends.sim.scenario import Scenario, Truth
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, Shape
from phalanx.model.resources import MILLI, SLOT_KIND

Estimate = Literal["requested", "actual", "rounded"]

#: Fields of a line, counted from 0.
_ID, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_S, _USER = 0, 1, 3, 4, 7, 8, 11

#: What people type when asked how long it will take.
_USUAL_S: Final = (3_600, 4 * 3_600, 12 * 3_600, 86_400, 2 * 86_400, 7 * 86_400)

_TIME_S_MAX: Final = TIME_US_MAX // SECOND_US


class _Job(NamedTuple):
    """The fields of one line that matter, times in seconds. A tuple, because a log has many."""

    id: int
    submit: float
    run: float
    requested: float  # time; not above 0 if unknown
    members: int
    user: str


def read_swf(path: Path, estimate: Estimate, nodes: tuple[Node, ...]) -> Scenario:
    """The jobs of a log as a scenario on these nodes."""
    jobs, dropped = _read_jobs(path)
    believe = _BELIEVE[estimate]
    gangs: list[Gang] = []
    truths: list[Truth] = []
    roles: dict[int, tuple[Role, ...]] = {}  # equal sizes share one object: a log has few sizes and many jobs
    truth_by_us: dict[int, Truth] = {}
    for job in jobs:
        role = roles.get(job.members)
        if role is None:
            role = roles[job.members] = _roles_of(job.members)
        run = min(job.run, job.requested) if job.requested > 0 else job.run
        run_us = _us(run)
        gangs.append(Gang(str(job.id), role, _us(job.submit), user=job.user, walltime_us=_us(believe(job, run))))
        truth = truth_by_us.get(run_us)
        if truth is None:
            truth = truth_by_us[run_us] = Truth(run_us)
        truths.append(truth)
    if not gangs:
        raise BadInput(f"holds no job that ran ({dropped} without a run time)", file=str(path))
    return Scenario(nodes, (), tuple(gangs), tuple(truths), dropped=dropped)


_BELIEVE: Final[dict[str, Callable[[_Job, float], float]]] = {
    "requested": lambda job, run: job.requested if job.requested > 0 else run,
    "actual": lambda _, run: run,
    "rounded": lambda _, run: next((usual for usual in _USUAL_S if usual >= run), run),
}


def _roles_of(members: int) -> tuple[Role, ...]:
    return (Role(SOLE_ROLE, sizes_between(members, members, 1), Shape(((SLOT_KIND, MILLI),))),)


def _us(seconds: float) -> int:
    return seconds * SECOND_US if isinstance(seconds, int) else round(seconds * SECOND_US)


def _read_jobs(path: Path) -> tuple[list[_Job], int]:
    jobs: list[_Job] = []
    seen: set[int] = set()
    dropped = 0
    for number, line in enumerate(_lines(path), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(b";"):
            continue
        try:
            job = _parse_job(fields)
        except ValueError as bad:
            raise BadInput(_explain(fields, bad), file=str(path), line=number) from None
        if job is None:
            dropped += 1
            continue
        if job.id in seen:
            raise BadInput(f"job {job.id} stands twice", file=str(path), line=number)
        seen.add(job.id)
        jobs.append(job)
    jobs.sort(key=lambda job: job.id)
    return jobs, dropped


def _parse_job(fields: list[bytes]) -> _Job | None:
    """The job of a line, or None if it never ran."""
    if len(fields) <= _USER:
        raise ValueError
    members = int(fields[_REQUESTED])
    if members <= 0:
        members = int(fields[_ALLOCATED])
    run = _seconds(fields[_RUN])
    submit = _seconds(fields[_SUBMIT])
    requested = _seconds(fields[_REQUESTED_S])
    if run <= 0 or members <= 0:
        return None
    if members > MEMBERS_MAX or submit < 0 or max(submit, run, requested) > _TIME_S_MAX:
        raise ValueError("out of bounds")
    return _Job(int(fields[_ID]), submit, run, requested, members, f"u{int(fields[_USER])}")


def _seconds(field: bytes) -> float:
    try:
        return int(field)
    except ValueError:
        value = float(field)
        if not -1.0 <= value <= _TIME_S_MAX:  # also where it is no number at all
            raise ValueError("out of bounds") from None
        return value


def _explain(fields: list[bytes], bad: ValueError) -> str:
    if len(fields) <= _USER:
        return f"has {len(fields)} fields, and a job of an SWF log has 18"
    if str(bad) == "out of bounds":
        return "has a time or a number of processors out of bounds (submit from 0 on, less than 100 years)"
    return f"is not all numbers (starts {show(b' '.join(fields)[:40].decode(errors='replace'))})"


def _lines(path: Path) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as bad:
        raise BadInput(f"is not a whole gzip file: {bad}", file=str(path)) from None
    except OSError as bad:
        raise BadInput(f"cannot be read: {bad.strerror or bad}", file=str(path)) from None
    return iter(data.splitlines())
