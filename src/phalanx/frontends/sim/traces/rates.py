"""Logs that say what a job does but not how long that takes: Sia and Gavel, with a table of rates beside them.

Their run times came from throughput tables of the machines they were made for. Without such a
table nothing here guesses: the log is refused with the words the table would have to contain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput, BadText, list_words, show
from phalanx.control.spec.quantity import SECOND_US, TIME_US_MAX, number
from phalanx.frontends.sim.scenario import Scenario
from phalanx.frontends.sim.traces.believed import Estimate
from phalanx.frontends.sim.traces.files import decode, read_bytes
from phalanx.frontends.sim.traces.log_jobs import LogJob, make_scenario
from phalanx.frontends.sim.traces.table import (
    CsvTable,
    check_word,
    note_name,
    parse_members,
    parse_named,
    parse_time_us,
    parse_whole,
    read_rows,
)
from phalanx.model.resources import DEVICE_KIND

SIA: Final = ("name", "time", "application", "num_replicas")

#: What a table of rates may measure; exactly one of these columns.
MEASURES: Final = ("seconds", "gpu_seconds", "steps_per_s")

_GAVEL_FIELDS: Final = 7
_APPLICATIONS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """A job of which only the work is known."""

    submit_us: int
    name: str
    application: str
    members: int
    line: int
    steps: int = 0  # 0: the log does not say


@dataclass(frozen=True, slots=True)
class Rates:
    """How long applications take, by application and number of members; None stands for any number."""

    measure: str
    value_by_case: dict[tuple[str, int | None], float]
    file: str

    def run_us(self, asked: Asked) -> int:
        """The run time of one job with the members it asks for."""
        value = self.value_by_case.get((asked.application, asked.members))
        if value is None:
            value = self.value_by_case.get((asked.application, None))
        if value is None:
            of = f"{show(asked.application)} with {asked.members} members"
            raise BadText(f"is a job of {of}, and {self.file} has no row for that")
        if self.measure == "steps_per_s":
            if not asked.steps:
                raise BadText(f"says no number of steps, so steps_per_s in {self.file} is no help; write seconds there")
            seconds = asked.steps / value
        else:
            seconds = value / asked.members if self.measure == "gpu_seconds" else value
        run_us = round(seconds * SECOND_US)
        if not 0 < run_us <= TIME_US_MAX:
            raise BadText(f"would run for {seconds:g} s by {self.file}")
        return run_us


def read_rates(path: Path) -> Rates:
    """A table with the columns application, one of `MEASURES`, and members where it matters."""
    table = CsvTable(decode(read_bytes(path), str(path)), str(path))
    table.need(("application",))
    measures = [name for name in MEASURES if name in table.columns]
    if len(measures) != 1:
        raise table.fail(f"needs exactly one of the columns {', '.join(MEASURES)} (it has {len(measures)} of them)")
    counted = "members" in table.columns
    values: dict[tuple[str, int | None], float] = {}
    with table.placing():
        for row in read_rows(table, ("application", measures[0], *(("members",) if counted else ()))):
            members = parse_named("members", row[2], parse_members) if counted and row[2].strip() else None
            case = check_word(row[0], "application"), members
            if case in values:
                raise BadText(f"there is already a row for {show(case[0])}")
            values[case] = _parse_rate(row[1], measures[0])
    return Rates(measures[0], values, str(path))


def read_sia(table: CsvTable, estimate: Estimate, rates: Rates | None) -> Scenario:
    """Arrival, application and replicas of elastic jobs; one GPU a replica."""
    asked: list[Asked] = []
    seen: set[str] = set()
    with table.placing():
        for row in read_rows(table, SIA):
            name = note_name(check_word(row[0], "name"), seen)
            members = parse_named("num_replicas", row[3], parse_members)
            application = check_word(row[2], "application")
            asked.append(Asked(parse_named("time", row[1], parse_time_us), name, application, members, table.line))
    return _timed(asked, estimate, rates, table.file, "seconds or gpu_seconds")


def read_gavel(text: str, file: str, estimate: Estimate, rates: Rates | None) -> Scenario:
    """Lines of seven fields with tabs between them: type, command, …, steps, arrival, scale factor."""
    asked: list[Asked] = []
    for line, row in enumerate(text.splitlines(), start=1):
        if not row.strip():
            continue
        try:
            asked.append(_parse_gavel(row.split("\t"), str(len(asked) + 1), line))
        except BadText as bad:
            raise BadInput(str(bad), file=file, line=line) from None
    return _timed(asked, estimate, rates, file, "steps_per_s")


def _parse_gavel(fields: list[str], name: str, line: int) -> Asked:
    if len(fields) != _GAVEL_FIELDS:
        raise BadText(f"has {len(fields)} fields, and a job of a Gavel trace has {_GAVEL_FIELDS}")
    return Asked(
        submit_us=parse_named("arrival_time", fields[5], parse_time_us),
        name=name,
        application=check_word(fields[0], "job_type"),
        members=parse_named("scale_factor", fields[6], parse_members),
        line=line,
        steps=parse_named("total_steps", fields[4], parse_whole),
    )


def is_gavel(first: str) -> bool:
    """Whether the first line of a file is a job of a Gavel trace."""
    fields = first.rstrip("\r\n").split("\t")
    return len(fields) == _GAVEL_FIELDS and fields[4].strip().isdecimal()


def _timed(asked: list[Asked], estimate: Estimate, rates: Rates | None, file: str, measure: str) -> Scenario:
    if rates is None:
        raise BadInput(_missing(measure, (job.application for job in asked)), file=file)
    jobs: list[LogJob] = []
    for job in asked:
        if not job.members:
            continue
        try:
            jobs.append(LogJob(job.submit_us, job.name, rates.run_us(job), job.members))
        except BadText as bad:
            raise BadInput(str(bad), file=file, line=job.line) from None
    jobs.sort(key=lambda job: job.submit_us)
    return make_scenario(jobs, DEVICE_KIND, estimate, len(asked) - len(jobs), file)


def _missing(measure: str, applications: Iterable[str]) -> str:
    words = list(dict.fromkeys(applications))
    named = list_words([show(word) for word in words[:_APPLICATIONS_SHOWN]])
    more = f" and {len(words) - _APPLICATIONS_SHOWN} more" if len(words) > _APPLICATIONS_SHOWN else ""
    return (
        "does not say how long its jobs run; add --rates FILE, a table with the columns application and "
        f"{measure} (and members, where it matters), for {named}{more}"
    )


def _parse_rate(text: str, measure: str) -> float:
    try:
        value = float(number(text))
    except BadText as bad:
        raise BadText(f"{measure} {bad}") from None
    if value <= 0:
        raise BadText(f"{measure} must be more than 0 (got {show(text)})")
    return value
