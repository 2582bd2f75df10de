"""Answers that were wrong: estimates of jobs that somebody held, rests that an edit ended, attempts that never were."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import ADA, Day
from telling_world import WALL, World, at_utc  # noqa: F401

from phalanx.frontends.host.core.happenings import seen_by
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.service import Listing


def test_begin_and_holds_are_no_misses_of_the_forecast():
    with Day(1) as day:
        day.submit(0, "run", "1 gpu=1", 100, walltime=100)
        day.submit(1, "held", "1 gpu=1", 10, walltime=10)
        day.submit(1, "next", "1 gpu=1", 10, walltime=10)
        day.submit(2, "later", "1 gpu=1", 10, walltime=10, options={"begin": "+300s"})
        day.until(5)
        day.tell(lambda core: core.rows(ADA, Listing()))  # everybody is foreseen
        day.act(20, "held", "hold")
        day.act(500, "held", "release")
        day.until(600)
        assert [day.row(name).state for name in ("held", "next", "later")] == ["completed"] * 3
        told = day.tell(lambda core: core.report_eta(ADA))
        assert {row["job"] for row in told["rows"]} == {day.ids["next"]}
        assert told["open"] == 0


def test_an_edit_does_not_end_a_rest_and_nothing_is_said_to_start_it_sooner():
    world = World()
    job = world.submit("flaky", "1 gpu=1", walltime=60)
    for _ in range(4):
        world.tick(45)
        world.plan()
        world.planner.requeue(world.clock.us, job.number, failed=True)
    job.live, job.state = None, "pending"
    told = asyncio.run(world.teller.why(job, None))
    assert (told.reason.code, told.sooner_if) == ("Backoff", [])
    until_us = world.planner.state.rest_of(job.number)
    number = world.planner.replace(world.clock.us, job.number, job.gang, held=False)
    world.known.register.number(job, number)
    assert world.planner.state.rest_of(number) == until_us > world.clock.us
    world.plan()
    assert asyncio.run(world.teller.why(job, None)).reason.code == "Backoff"
    world.clock.us = until_us
    world.plan()
    assert job.live is not None


def test_logs_of_an_attempt_that_never_was_name_those_that_were():
    with Day(1) as day:
        day.submit(0, "once", "1 gpu=1", 10, walltime=10)
        day.until(5)
        refused = day.tell(lambda core: core.logs(ADA, "1", rank=0, attempt=3, offset=0, limit=100, tail=None))
        assert isinstance(refused, Refused)
        assert str(refused) == "job 1 has no attempt 3: it had 1 attempt"


def test_an_instant_to_begin_is_told_as_it_was_asked_for():
    world = World()
    later = world.submit("later", "1 gpu=1", gates={"begin"}, walltime=60)
    # 09:30, as it comes back through the clocks: a little short of it.
    later.begin_us = world.clock.us + round((WALL + 1800 - world.clock.wall_s()) * 1e6) - 300
    assert asyncio.run(world.teller.why(later, None)).reason.message == "begins at 09:30"


@pytest.mark.parametrize("reads", [True, False])
def test_what_everybody_may_know_is_one_list(reads):
    data = {"members": 4, "devices": ["GPU-0"], "because": "idle", "lines": ["password"], "why": "rank 2: password"}
    public = {"members": 4, "devices": ["GPU-0"], "because": "idle"}
    assert seen_by(data, reads=reads) == (data if reads else public)


def test_a_job_that_has_ended_is_not_told_that_it_is_not_on_hold():
    with Day(1) as day:
        day.submit(0, "done", "1 gpu=1", 5, walltime=10)
        day.until(20)
        assert day.row("done").state == "completed"
        told = day.act(23, "done", "release")
        day.until(25)
        assert f"job {day.ids['done']} has ended: completed" in str(told[0])
