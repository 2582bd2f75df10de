"""Whoever starts is not seated where somebody is still leaving, if as many seats are free of everybody."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import Day, Reluctant


def leave_slowly(day, at_s=5):
    """A job on the first device is cancelled, and has ten minutes to go."""
    day.submit(0, "slow", "1 gpu=1", 3600, script=Reluctant, run={"grace_s": 600}, walltime=3600)
    day.act(at_s, "slow", "cancel")


def test_a_job_begins_on_free_devices_and_not_on_one_that_is_being_left():
    with Day(8) as day:
        leave_slowly(day)
        day.submit(10, "next", "1 gpu=1", 30, "bob", walltime=30)
        day.submit(11, "more", "4 gpu=1", 30, "bob", walltime=30)
        day.until(15)
        assert day.row("slow").state == "stopping"
        assert (day.row("next").state, day.row("next").devices) == ("running", ["GPU-fake-1"])
        assert (day.row("more").state, len(day.row("more").devices)) == ("running", 4)
        assert "GPU-fake-0" not in day.row("more").devices


def test_whoever_needs_every_device_waits_for_the_one_that_is_being_left():
    with Day(2) as day:
        leave_slowly(day)
        day.submit(10, "both", "2 gpu=1", 30, "bob", walltime=30)
        day.until(300)
        assert day.row("both").state == "starting"
        day.until(620)
        assert day.row("both").state == "running"


def test_whoever_was_given_such_a_seat_takes_a_free_one_when_there_is_one():
    with Day(2) as day:
        leave_slowly(day)
        day.submit(1, "short", "1 gpu=1", 60, "bob", walltime=60)
        day.submit(10, "next", "1 gpu=1", 30, "bob", walltime=30)
        day.until(30)
        assert day.row("next").state == "starting"
        day.until(70)
        assert (day.row("next").state, day.row("next").devices) == ("running", ["GPU-fake-1"])
