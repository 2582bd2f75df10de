"""SWF logs, the archive format of batch systems: one job a line, 18 numbers, -1 where nothing is known.

Conventions, as everybody who publishes numbers from these logs uses them: jobs without a run time
are dropped and counted; processors are those requested; the run is cut at the request; order is
by job number. Each processor is one member that needs one slot.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from phalanx.control.spec.errors import BadInput, show
from phalanx.control.spec.quantity import SECOND_US, TIME_US_MAX
from phalanx.control.spec.sizes import MEMBERS_MAX
from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.traces.believed import Estimate
from phalanx.frontends.sim.traces.files import read_bytes
from phalanx.frontends.sim.traces.log_jobs import LogJob, make_scenario
from phalanx.model.fleet import Node
from phalanx.model.resources import SLOT_KIND

FIELDS: Final = 18

#: Fields of a line, counted from 0.
_ID, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_S, _USER = 0, 1, 3, 4, 7, 8, 11

#: What numbers are made of, and what stands between them.
_PLAIN: Final = b"0123456789-. \t\r\n"
_TIME_S_MAX: Final = TIME_US_MAX // SECOND_US


class _Line(NamedTuple):
    """The fields of one line that matter, times in seconds. A tuple, because a log has many."""

    id: int
    submit: float
    run: float
    requested: float  # time; not above 0 if unknown
    members: int
    user: str


def read_swf(path: Path, estimate: Estimate, nodes: tuple[Node, ...]) -> Scenario:
    """The jobs of a log as a scenario on these nodes."""
    return replace(parse_swf(read_bytes(path), str(path), estimate), nodes=nodes)


def parse_swf(data: bytes, file: str, estimate: Estimate) -> Scenario:
    """The jobs of a log as a scenario without nodes."""
    lines, dropped = _parse_lines(data, file)
    jobs = []
    for line in lines:
        requested_us = max(0, _us(line.requested))
        run_us = min(_us(line.run), requested_us) if requested_us else _us(line.run)
        jobs.append(LogJob(_us(line.submit), str(line.id), run_us, line.members, line.user, requested_us))
    return make_scenario(jobs, SLOT_KIND, estimate, dropped, file)


def is_swf(first: str) -> bool:
    """Whether the first line of a file is a comment or a job of such a log."""
    fields = first.split()
    return first.startswith(";") or (len(fields) >= FIELDS and all(_is_number(field) for field in fields))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _us(seconds: float) -> int:
    return seconds * SECOND_US if isinstance(seconds, int) else round(seconds * SECOND_US)


def _parse_lines(data: bytes, file: str) -> tuple[list[_Line], int]:
    jobs: list[_Line] = []
    seen: set[int] = set()
    dropped = 0
    for number, line in enumerate(data.splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(b";"):
            continue
        try:
            if line.translate(None, _PLAIN):  # nearly no line has anything else in it, and a log has many lines
                _check_numbers(fields)
            job = _parse_line(fields)
        except ValueError as bad:
            raise BadInput(_explain(fields, bad), file=file, line=number) from None
        if job is None:
            dropped += 1
            continue
        if job.id in seen:
            raise BadInput(f"job {job.id} stands twice", file=file, line=number)
        seen.add(job.id)
        jobs.append(job)
    jobs.sort(key=lambda job: job.id)
    return jobs, dropped


def _parse_line(fields: list[bytes]) -> _Line | None:
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
    return _Line(int(fields[_ID]), submit, run, requested, members, f"u{int(fields[_USER])}")


def _check_numbers(fields: list[bytes]) -> None:
    """Also of columns that nobody reads: a line with a word in it is no line of such a log, or has slipped."""
    for field in fields:
        if not math.isfinite(float(field)):
            raise ValueError("out of bounds")


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
        return f"has {len(fields)} fields, and a job of an SWF log has {FIELDS}"
    if str(bad) == "out of bounds":
        return "has a time or a number of processors out of bounds (submit from 0 on, less than 100 years)"
    return f"is not all numbers (starts {show(b' '.join(fields)[:40].decode(errors='replace'))})"
