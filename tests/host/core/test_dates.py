"""Dates that are promised by a daemon: told to who asks, written down, and kept by the next daemon too."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import Day, ask_why

from phalanx.cli.host.sending import _line
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, make_submission, small_node
from phalanx.testing.hosts.people import caller_of
from phalanx.testing.hosts.scripts import WorkScript

ADA = caller_of("ada")


def dated(name, shape, seconds, deadline):
    """A gang that runs for as long as it says."""
    return make_gang(name, shape, walltime=seconds, deadline_us=None if deadline is None else deadline * SECOND_US)


GANGS = {
    "run": dated("run", "2 gpu=1", 100, None),
    "big": replace(dated("big", "4 gpu=1", 50, 170), preemptible=True),
    "late": dated("late", "4 gpu=1", 50, 120),
    "early": dated("early", "4 gpu=1", 100, 150),
    "high": make_gang("high", "4 gpu=1", walltime=30, priority=5),
}
#: What is true where it is not what was said.
TRUE_S = {"early": 5}


def play(steps, *, crash_s=None, admit="promised", until_s=20):
    """What the daemon says of every job at an instant; each step is (second, name)."""
    rows: list = []
    with HostWorld(Setup(small_node(4), policy=named("goodput", {"admit": admit})), lambda what: 1000) as world:
        scripts = {
            name: WorkScript(world.machine, gang, TrueRun(TRUE_S.get(name, gang.walltime_us // SECOND_US) * SECOND_US))
            for name, gang in GANGS.items()
        }
        world.machine.scripts = lambda order: scripts[order.members[0].env["PHALANX_NAME"]]
        world.boot()
        for second, name in steps:
            submission = make_submission(GANGS[name], {})
            ask = lambda core, each=submission: core.submit(ADA, [each], None, dry_run=False)  # noqa: E731
            world.at(second * SECOND_US, lambda ask=ask: world.ask(ask))
        if crash_s is not None:
            world.at(crash_s * SECOND_US, world.crash)
            world.at((crash_s + 1) * SECOND_US, world.boot)
        for number in range(1, len(steps) + 1):
            look = lambda core, ref=str(number): core.detail(ADA, ref)  # noqa: E731
            world.at(until_s * SECOND_US, lambda look=look: world.ask(look, rows.append))
        world.run_until((until_s + 1) * SECOND_US)
        assert world.errors == []
    return {detail.job.name: detail.job for detail in rows}


def test_a_promised_date_is_told():
    rows = play([(1, "run"), (2, "big"), (3, "late")])
    assert rows["big"].date.endswith("promised")
    assert "cannot be promised beside another: earliest " in rows["late"].date
    assert rows["late"].date.endswith("(runs as best effort)")


def test_who_submits_reads_it_in_the_answer():
    job = {"id": 7, "name": "big", "state": "running", "date": "date 18:00 promised"}
    assert _line(job).endswith("date 18:00 promised")


def test_what_is_refused_is_told_so():
    rows = play([(1, "run"), (2, "big"), (3, "late")], admit="refuse")
    assert rows["late"].date.endswith("(refused)")


def test_without_the_option_nothing_is_said():
    rows = play([(1, "run"), (2, "big")], admit="any")
    assert isinstance(rows["big"].date, type(rows["run"].date))


@pytest.mark.parametrize("crash_s", [None, 5])
def test_a_promise_outlives_its_daemon(crash_s):
    """It runs already, so that nobody would judge it again; a higher priority may not send it away."""
    rows = play([(1, "big"), (10, "high")], crash_s=crash_s)
    assert (rows["big"].state, rows["high"].state) == ("running", "pending")
    assert rows["big"].date.endswith("promised")


def test_what_was_not_promised_stays_so_with_the_next_daemon():
    """`early` was believed to be in the way, and ended at once: alone with what it sees, the next would know nothing."""
    rows = play([(1, "early"), (2, "late")], crash_s=10)
    assert rows["late"].state == "running"
    assert rows["late"].date.endswith("(runs as best effort)")


# ---- dates beside lengths that nobody stated


@pytest.fixture
def habit():
    """Four jobs of one name have taken 7 s each, so that the next is believed to take 9."""
    with Day(4) as day:
        for at in (0, 10, 20, 30):  # one after the other: a name has one script at a time
            day.submit(at, "train", "1 gpu=1", 7)
            day.until(at + 9)
        yield day


def test_nobody_waits_for_ever_because_of_a_guess(habit):
    # "9 s on an empty cluster, its deadline is 5 s": accepted, and never started.
    again = make_submission(make_gang("train", "1 gpu=1", deadline_us=5 * SECOND_US), {})
    (tried,) = habit.tell(lambda core: core.submit(ADA, [again], None, dry_run=True))
    assert tried.reason is None
    habit.submit(40, "train", "1 gpu=1", 2, deadline_us=5 * SECOND_US)
    habit.until(42)
    assert habit.row("train").state == "running"
    assert habit.tell(lambda core: core.detail(ADA, str(habit.ids["train"]))).asked.time_guessed_s is None
    habit.until(44)
    assert habit.row("train").state == "completed"


def test_a_guess_that_leaves_time_for_the_date_is_believed(habit):
    habit.submit(40, "train", "1 gpu=1", 7, deadline_us=60 * SECOND_US)
    habit.until(42)
    assert habit.tell(lambda core: core.detail(ADA, str(habit.ids["train"]))).asked.time_guessed_s == 9


def test_an_edited_date_is_no_worse_than_one_from_the_start(habit):
    habit.submit(40, "big", "4 gpu=1", 30, walltime=30)
    habit.submit(41, "train", "1 gpu=1", 7)
    habit.until(43)
    asked = lambda: habit.tell(lambda core: core.detail(ADA, str(habit.ids["train"]))).asked  # noqa: E731
    for deadline, guessed_s in (("5s", None), (None, 9)):
        habit.act(habit.now_us / SECOND_US, "train", "edit", deadline=deadline)
        habit.until(habit.now_us / SECOND_US + 1)
        assert asked().time_guessed_s == guessed_s
        assert asked().time_s is None, "nobody has stated one"
        assert "can never" not in ask_why(habit, "train").reason.message


def test_a_stated_time_is_no_guess_any_more_with_the_next_daemon(habit):
    habit.submit(40, "big", "4 gpu=1", 60, walltime=60)
    habit.submit(41, "train", "1 gpu=1", 7)
    habit.until(43)
    habit.act(43, "train", "edit", time="20s")
    habit.until(45)
    habit.crash()
    habit.boot()
    habit.until(47)
    asked = habit.tell(lambda core: core.detail(ADA, str(habit.ids["train"]))).asked
    assert (asked.time_s, asked.time_guessed_s) == (20, None)
