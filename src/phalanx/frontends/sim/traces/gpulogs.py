"""Logs of GPU clusters in comma-separated values: Philly, Chronus, ElasticFlow and Tiresias.

In all of them a job asks for a number of GPUs and gets them all or waits: a gang of that many
members with one GPU each. Jobs come out in order of submit, then of the file. Rows that ask for no
GPU or did not run at all are left out and counted; a negative number is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from phalanx.control.spec.errors import BadText, show
from phalanx.control.spec.quantity import TIME_US_MAX
from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.traces.believed import Estimate
from phalanx.frontends.sim.traces.log_jobs import LogJob, make_scenario
from phalanx.frontends.sim.traces.table import (
    Cells,
    CsvTable,
    check_word,
    note_name,
    parse_members,
    parse_minutes_us,
    parse_time_us,
    read_rows,
)
from phalanx.model.resources import DEVICE_KIND

PHILLY: Final = ("timestamp", "duration", "num_gpus", "cluster")
CHRONUS: Final = ("job_id", "user", "num_gpu", "submit_time", "duration", "expect_time_list", "job_type")
ELASTICFLOW: Final = ("job_id", "submit_time", "duration", "num_gpu", "ddl")
TIRESIAS: Final = ("job_id", "submit_time", "duration", "num_gpu")

_CHRONUS_TYPES: Final = ("strict", "soft", "best")
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - only differences are used, in the log's own time
_MICROSECOND: Final = timedelta(microseconds=1)


def read_philly(table: CsvTable, estimate: Estimate) -> Scenario:
    """Microsoft's Philly as its users prepare it: `cluster` is the virtual cluster, and stands in for the user."""
    times, sizes = Cells("duration", parse_time_us), Cells("num_gpus", parse_members)
    users: dict[str, str] = {}

    def job_of(row: tuple[str, ...], number: int) -> LogJob:
        moment, duration, gpus, user = row
        name = users.get(user)
        if name is None:
            name = users[user] = check_word(user, "cluster")
        return LogJob(_parse_moment_us(moment), str(number), times[duration], sizes[gpus], name)

    jobs, dropped = _collect(table, PHILLY, job_of)
    first_us = min((job.submit_us for job in jobs), default=0)
    jobs = [job._replace(submit_us=job.submit_us - first_us) for job in jobs]
    if jobs and jobs[-1].submit_us > TIME_US_MAX:
        raise table.fail("spans more than 100 years between the first and the last timestamp")
    return make_scenario(jobs, DEVICE_KIND, estimate, dropped, table.file)


def read_chronus(table: CsvTable, estimate: Estimate) -> Scenario:
    """Philly jobs with deadlines, in minutes. Soft ones have several; the first is the one with full value."""
    times, sizes = Cells("duration", parse_minutes_us), Cells("num_gpu", parse_members)
    submits, expected = Cells("submit_time", parse_minutes_us), Cells("expect_time_list", _parse_first_minutes_us)

    def job_of(row: tuple[str, ...], _: int) -> LogJob:
        name, user, gpus, submit, duration, expect, sort = row
        if sort not in _CHRONUS_TYPES:
            raise BadText(f"job_type must be strict, soft or best (got {show(sort)})")
        deadline_us = expected[expect] if sort != "best" else 0  # of best effort the list repeats the submit time
        words = check_word(name, "job_id"), check_word(user, "user")
        return LogJob(submits[submit], words[0], times[duration], sizes[gpus], words[1], 0, deadline_us or None)

    jobs, dropped = _collect(table, CHRONUS, job_of)
    return make_scenario(jobs, DEVICE_KIND, estimate, dropped, table.file)


def read_elasticflow(table: CsvTable, estimate: Estimate) -> Scenario:
    """Jobs with a deadline as an instant, in seconds; a job marked as best effort has none."""
    times, sizes = Cells("duration", parse_time_us), Cells("num_gpu", parse_members)
    submits, instants = Cells("submit_time", parse_time_us), Cells("ddl", parse_time_us)
    marked = "best_effort" in table.columns

    def job_of(row: tuple[str, ...], _: int) -> LogJob:
        name, submit, duration, gpus, instant = row[:5]
        deadline_us: int | None = None
        if not (marked and row[5].strip() == "1"):
            deadline_us = instants[instant] - submits[submit]
            if deadline_us <= 0:
                raise BadText(f"ddl {show(instant)} is not after submit_time {show(submit)}")
        return LogJob(submits[submit], check_word(name, "job_id"), times[duration], sizes[gpus], "", 0, deadline_us)

    columns = (*ELASTICFLOW, "best_effort") if marked else ELASTICFLOW
    jobs, dropped = _collect(table, columns, job_of)
    return make_scenario(jobs, DEVICE_KIND, estimate, dropped, table.file)


def read_tiresias(table: CsvTable, estimate: Estimate) -> Scenario:
    """The smallest of them: when, how long and how many GPUs, in seconds."""
    times, sizes = Cells("duration", parse_time_us), Cells("num_gpu", parse_members)
    submits = Cells("submit_time", parse_time_us)

    def job_of(row: tuple[str, ...], _: int) -> LogJob:
        name, submit, duration, gpus = row
        return LogJob(submits[submit], check_word(name, "job_id"), times[duration], sizes[gpus])

    jobs, dropped = _collect(table, TIRESIAS, job_of)
    return make_scenario(jobs, DEVICE_KIND, estimate, dropped, table.file)


def _collect(
    table: CsvTable, columns: tuple[str, ...], job_of: Callable[[tuple[str, ...], int], LogJob]
) -> tuple[list[LogJob], int]:
    """Every job of a table in order of submit, then of the file; and how many rows were left out."""
    jobs: list[LogJob] = []
    seen: set[str] = set()
    dropped = 0
    with table.placing():
        for number, row in enumerate(read_rows(table, columns), start=1):
            job = job_of(row, number)
            note_name(job.name, seen)
            if job.run_us and job.members:
                jobs.append(job)
            else:
                dropped += 1
    jobs.sort(key=lambda job: job.submit_us)  # stable: the order of the file breaks ties
    return jobs, dropped


def _parse_moment_us(text: str) -> int:
    """A date and time of day as microseconds since 1970 on the log's own clock."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadText(f"timestamp must be a date and time such as 2017-10-09 07:01:55 (got {show(text)})") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // _MICROSECOND


def _parse_first_minutes_us(text: str) -> int:
    return parse_minutes_us(text.partition("-")[0])
