"""How many jobs of one person run at once."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import Day

from phalanx.frontends.host.settings import Bounds


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
