"""How many jobs of one person run at once."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

import pytest
from days import ADA, Day, ask_why, since_midnight
from telling_world import World

from phalanx.control.queue_view import KEPT_MOST
from phalanx.frontends.host.messages import ArrayPart
from phalanx.frontends.host.service import Listing
from phalanx.frontends.host.settings import Bounds, Settings
from phalanx.testing.builders import make_gang
from phalanx.testing.hosts.host_world import caller_of, make_submission


def test_no_more_jobs_of_a_person_run_than_may_and_the_reason_has_the_numbers():
    with Day(8, max_running_per_user=2) as day:
        for at, name in enumerate(("a", "b", "c")):
            day.submit(at, name, "1 gpu=1", 60, walltime=60)
        day.submit(5, "other", "1 gpu=1", 60, "bob", walltime=60)
        day.until(10)
        assert [day.row(name).state for name in ("a", "b", "c", "other")] == [
            "running",
            "running",
            "pending",
            "running",
        ]
        reason = day.row("c").reason
        assert (reason.code, reason.needed, reason.available) == ("UserLimit", 1, 0)
        assert reason.message == "at most 2 jobs of ada may run at once, now 1 (a), 2 (b)"
        day.until(62)
        assert day.row("c").state == "running"


def test_a_person_has_a_ceiling_of_their_own_and_priority_goes_before_age():
    with Day(8, max_running_per_user=5, user_bounds={"bob": Bounds(max_running=1)}) as day:
        day.submit(0, "first", "1 gpu=1", 30, "bob", walltime=30)
        day.submit(1, "second", "1 gpu=1", 30, "bob", walltime=30)
        day.submit(2, "third", "1 gpu=1", 30, "bob", walltime=30, priority=1)
        day.until(40)
        assert [day.row(name).state for name in ("first", "second", "third")] == ["completed", "pending", "running"]


def test_whoever_is_kept_back_by_something_else_takes_nobodys_place():
    with Day(8, max_running_per_user=1) as day:
        day.submit(0, "held", "1 gpu=1", 30, walltime=30, hold=True)
        day.submit(1, "next", "1 gpu=1", 30, walltime=30)
        day.until(5)
        assert [day.row(name).state for name in ("held", "next")] == ["pending", "running"]
        assert day.row("held").reason.code == "Held"


def test_changed_settings_hold_from_the_next_daemon_on():
    with Day(8, max_running_per_user=1) as day:
        for name in ("a", "b", "c"):
            day.submit(0, name, "1 gpu=1", 600, walltime=600)
        day.until(5)
        assert [day.row(name).state for name in ("a", "b", "c")] == ["running", "pending", "pending"]
        day.crash()
        day.change_settings(max_running_per_user=2)
        day.boot()
        day.until(20)
        assert [day.row(name).state for name in ("a", "b", "c")] == ["running", "running", "pending"]
        day.crash()
        day.change_settings(max_running_per_user=None)
        day.boot()
        day.until(40)
        assert day.row("c").state == "running"


def test_those_who_start_together_start_together_or_wait():
    with Day(8, max_running_per_user=2) as day:
        day.submit(0, "one", "1 gpu=1", 30, walltime=30)
        day.submit(1, "left", "1 gpu=1", 30, walltime=30, together=("pair", 2))
        day.submit(2, "right", "1 gpu=1", 30, walltime=30, together=("pair", 2))
        day.submit(3, "small", "1 gpu=1", 100, walltime=100)
        day.until(10)
        assert [day.row(name).state for name in ("left", "right", "small")] == ["pending", "pending", "running"]
        day.until(120)
        assert [day.row(name).state for name in ("left", "right")] == ["running", "running"]


# ---------------------------------------------------------------------- what is foreseen of those who wait for a ceiling


def test_whoever_waits_for_a_ceiling_is_told_when_it_starts_and_whose_end_lets_it():
    # `why` said "nobody can say", and whoever was not there yet was told that it starts at once.
    with Day(8, max_running_per_user=1) as day:
        for at, name in enumerate(("p1", "p2", "p3")):
            day.submit(at / 10, name, "1 gpu=1", 20, walltime=20)
        day.until(5)
        told = ask_why(day, "p2")
        assert told.reason.message == "at most 1 job of ada may run at once, now 1 (p1)"
        assert told.eta.hangs_on == "when 1 (p1) ends"
        assert 19 <= since_midnight(day, told.eta.at) <= 21
        third = day.row("p3")
        assert third.eta.hangs_on == "when 2 (p2), which starts before it, ends"
        assert 39 <= since_midnight(day, third.eta.at) <= 41
        assert third.info.startswith("starts in about 3")
        bars = day.tell(lambda core: core.gantt(ADA, 0))["bars"]
        assert [bar["name"] for bar in bars if bar["kind"] == "forecast"] == ["p2", "p3"]


def test_those_who_go_before_it_under_a_ceiling_are_ahead_of_it():
    # AHEAD was 0 for everybody who was told UserLimit.
    with Day(8, max_running_per_user=1) as day:
        for at, name in enumerate(("run", "low", "last")):
            day.submit(at / 10, name, "1 gpu=1", 20, walltime=20)
        day.submit(1, "high", "2 gpu=1", 20, walltime=20, priority=1)
        day.submit(1, "held", "1 gpu=1", 20, walltime=20, priority=1, hold=True)
        day.submit(1, "other", "1 gpu=1", 90, "bob", walltime=90)
        day.until(5)
        ahead = {name: ask_why(day, name).ahead for name in ("high", "low", "last")}
        told = {name: ([each["name"] for each in found.jobs], found.gangs) for name, found in ahead.items()}
        assert told == {"high": ([], 0), "low": (["high"], 1), "last": (["high", "low"], 2)}
        assert ahead["last"].gpus == 3


def test_a_job_that_is_not_there_yet_is_held_to_the_ceiling_as_well():
    with Day(8, max_running_per_user=1) as day:
        day.submit(0, "p1", "1 gpu=1", 20, walltime=20)
        day.until(5)
        submission = make_submission(make_gang("new", "4 gpu=1", user="ada", walltime=60), {}, None)
        (told,) = day.tell(lambda core: core.submit(ADA, [submission], None, dry_run=True))
        assert told.reason.code == "UserLimit"
        assert told.eta.hangs_on == "when 1 (p1) ends"
        (other,) = day.tell(lambda core: core.submit(caller_of("bob"), [submission], None, dry_run=True))
        assert since_midnight(day, other.eta.at) < 10


def test_elements_of_an_array_and_jobs_of_one_name_are_foreseen_in_their_line():
    with Day(8) as day:
        for index in range(5):
            options = {"array": ArrayPart(index, "ev", 2, "k")}
            day.submit(index / 100, f"ev{index}", "1 gpu=1", 10, walltime=10, options=options)
        for at in range(2):
            day.submit(0.1 + at / 10, "only", "1 gpu=1", 30, walltime=30, options={"singleton": True})
        day.until(4)
        last = ask_why(day, "ev4")
        assert last.reason.message == "at most 2 of ev run at once"
        assert 19 <= since_midnight(day, last.eta.at) <= 21
        assert ask_why(day, "only").eta.hangs_on == f"when {day.ids['only'] - 1} (only) ends"


def test_the_line_of_the_look_ahead_is_that_of_the_daemon():
    # Priorities and groups among them: every start that was foreseen comes at that second.
    with Day(8, max_running_per_user=2) as day:
        for at, (name, more) in enumerate(WAITING.items()):
            day.submit(at / 10, name, "1 gpu=1", 10 + at, walltime=10 + at, **more)
        day.until(5)
        rows = day.tell(lambda core: core.rows(ADA, Listing()))
        foreseen = {row.name: row.eta for row in rows if row.state == "pending"}
        assert len(foreseen) == len(WAITING) - 2
        assert None not in foreseen.values()
        day.until(150)
        for name, eta in foreseen.items():
            started = datetime.fromisoformat(day.row(name).started)
            assert abs((datetime.fromisoformat(eta.at) - started).total_seconds()) <= 2, name


WAITING = {
    "one": {},
    "two": {},
    "left": {"together": ("pair", 2)},
    "right": {"together": ("pair", 2)},
    "low": {"priority": -1},
    "high": {"priority": 1},
    "last": {},
}


# ---------------------------------------------------------------------- with more waiting than are looked at


def crowd(*priorities):
    """One job runs and no other may beside it; the rest waits for that, so many of each priority."""
    world = World("goodput", settings=Settings(max_running_per_user=1))
    world.submit("run", "1 gpu=1", walltime=10)
    world.plan()
    return world, [
        [
            world.submit(f"p{priority}-{at}", "1 gpu=1", walltime=10, priority=priority, gates={"running"})
            for at in range(many)
        ]
        for priority, many in priorities
    ]


def looked_at(world, *jobs):
    return set(world.forecaster.prepare([job.number for job in jobs]).kept)


def test_those_are_looked_at_whose_turn_is_next_and_not_the_oldest():
    # 400 of priority 0 and then 50 of priority 1: the first was told 2 s, and none of the 50 anything.
    world, (low, high) = crowd((0, 300), (1, 20))
    told = [job.number for job in (*high, *low[:100])]
    assert looked_at(world) == set(told), "by priority and then by age"


def test_nobody_is_told_the_start_of_those_who_go_before_them():
    """The oldest have their turn after all the others, further back than is looked at."""
    world, (low, high) = crowd((0, 200), (1, 200))
    first = {job.number for job in high[:KEPT_MOST]}
    assert looked_at(world) == first
    assert looked_at(world, low[0]) == first, "nor if they ask"
    assert looked_at(world, high[100]) == first


@pytest.mark.long
def test_of_a_crowd_under_a_ceiling_starts_are_told_in_its_order():
    world, (low, high) = crowd((0, 300), (1, 20))
    found = asyncio.run(world.forecaster.at_hand(None))
    told = {job: round((each.at_us - world.clock.us) / 1e6) for job, each in found.items()}
    assert [told[job.id] for job in high] == [10 * at for at in range(1, 21)]
    assert [told[job.id] for job in low[:90]] == [10 * at for at in range(21, 111)]
    assert not any(job.id in told for job in low[150:]), "too far back for anybody to say"
