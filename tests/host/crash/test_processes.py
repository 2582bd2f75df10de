"""The shim or a member dies, or somebody sleeps, at the moments that the crash points name."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from realdaemon import HELD, STEADY, until

from phalanx.frontends.host.messages import ENDED

#: Leaves the session, the process group and its parent behind.
ESCAPE = "setsid sh -c 'setsid sleep 300 & setsid sleep 300' >/dev/null 2>&1 & "


@pytest.fixture(params=["best", "weak"])
def held(make_daemon, request):
    """A daemon with the best containment that there is here, and one with none but the shim's own."""
    if request.param == "weak" and os.geteuid() != 0:
        pytest.skip("the best is weak already where this is not root")
    return make_daemon(weak=request.param == "weak")


def pid_of(daemon, job, rank, attempt=1):
    return next(start.pid for start in daemon.started(job, attempt) if start.rank == rank)


def hold_at_gate(daemon):
    """A job whose members stand at the gate while the daemon is stopped, and what its shim has written down so far."""
    for _ in range(20):
        job = daemon.submit("sleep 0.1")
        until(lambda job=job: daemon.story(job) is not None, "the shim", nap_s_max=0.001)
        os.kill(daemon.process.pid, signal.SIGSTOP)
        story = until(lambda job=job: (told := daemon.story(job)) and (told.waiting or told.went) and told, "the gate")
        if not story.went:
            return job, story
        os.kill(daemon.process.pid, signal.SIGCONT)  # it was faster
        daemon.wait(job)
    pytest.fail("the daemon could not be stopped in time")


# ---------------------------------------------------------------------- the shim


def test_shim_killed_while_its_job_runs_takes_everything_with_it(held):
    daemon = held.start()
    job = daemon.submit(ESCAPE + "trap '' TERM; " + HELD)
    daemon.wait_started(job, 2)
    until(lambda: len(daemon.marked(job)) >= 6, "escapees")
    os.kill(daemon.shim_of(job), signal.SIGKILL)
    assert daemon.wait(job)["state"] == "failed"
    assert "shim" in daemon.get(f"/v1/jobs/{job}")["failure"]["why"]
    daemon.check_quiet()


def test_shim_killed_while_no_daemon_is_there(held):
    daemon = held.start()
    job = daemon.submit(ESCAPE + HELD)
    daemon.wait_started(job, 2)
    until(lambda: len(daemon.marked(job)) >= 6, "escapees")
    daemon.kill()
    os.kill(daemon.shim_of(job), signal.SIGKILL)
    daemon.start()
    assert daemon.wait(job)["state"] == "failed", "never assume that it went well"
    assert "shim" in daemon.get(f"/v1/jobs/{job}")["failure"]["why"]
    daemon.check_quiet()


def test_cancel_ends_whoever_left_session_group_and_parent(held):
    daemon = held.start()
    assert daemon.get("/v1/status")["containment"] == "weak" or not held.weak
    job = daemon.submit(ESCAPE + "trap '' TERM; " + HELD)
    until(lambda: len(daemon.marked(job)) >= 6, "escapees")
    assert daemon.act(job, "cancel").status == 200
    assert daemon.wait(job)["state"] == "cancelled"
    assert daemon.marked(job) == {}, "cancelled means that nothing is left"
    daemon.check_quiet()


def test_shim_killed_at_the_gate_nobody_ran_and_it_waits_again(daemon):
    daemon.start()
    job, story = hold_at_gate(daemon)
    os.kill(story.pid, signal.SIGKILL)
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert daemon.wait(job)["state"] == "completed"
    assert {start.attempt for start in daemon.started(job)} == {2}
    daemon.check_quiet()


def test_shim_killed_in_the_grace_of_a_cancel(daemon):
    daemon.start()
    job = daemon.submit("trap '' TERM; " + HELD, run={"grace_s": 60})
    daemon.wait_started(job, 2)
    assert daemon.act(job, "cancel").status == 200
    os.kill(daemon.shim_of(job), signal.SIGKILL)
    assert daemon.wait(job)["state"] == "cancelled"
    daemon.check_quiet()


def test_shim_killed_after_the_last_exit_loses_no_exit(daemon):
    """The journal is on disk before anybody hears of it."""
    daemon.start()
    job = daemon.submit(HELD + "exit 3")
    daemon.wait_started(job, 2)
    shim = daemon.shim_of(job)
    daemon.kill()
    daemon.let_end()
    until(lambda: len(daemon.story(job).exits) == 2 and daemon.story(job).done, "both exits")
    os.kill(shim, signal.SIGKILL)
    daemon.start()
    assert daemon.wait(job) == {"id": job, "state": "failed", "exit_code": 3, "ended": True}
    daemon.check_quiet()


# ---------------------------------------------------------------------- a member


def test_member_killed_takes_the_gang_with_it(daemon):
    daemon.start()
    job = daemon.submit("trap '' TERM; " + HELD, 3)
    daemon.wait_started(job, 3)
    os.kill(pid_of(daemon, job, 1), signal.SIGKILL)
    assert daemon.wait(job) == {"id": job, "state": "failed", "exit_code": 137, "ended": True}
    failure = daemon.get(f"/v1/jobs/{job}")["failure"]
    assert (failure["rank"], failure["signal"]) == (1, 9)
    daemon.check_quiet()


def test_member_killed_while_no_daemon_is_there(daemon):
    daemon.start()
    job = daemon.submit('echo "here is $RANK"; ' + HELD, 3)
    log = daemon.state / "runs" / f"{job}.1" / "logs" / "rank-1.log"
    until(lambda: log.exists() and log.read_text() == "here is 1\n", "its log")
    daemon.kill()
    os.kill(pid_of(daemon, job, 1), signal.SIGKILL)
    until(lambda: daemon.story(job).exits, "the shim to write it down")
    daemon.start()
    assert daemon.wait(job)["exit_code"] == 137
    failure = daemon.get(f"/v1/jobs/{job}")["failure"]
    assert (failure["rank"], failure["signal"], failure["lines"]) == (1, 9, ["here is 1"])
    daemon.check_quiet()


def test_member_killed_at_the_gate_leaves_no_partial_gang(daemon):
    """Whoever stands at the gate beside a dead one must not be let through alone."""
    daemon.start()
    job, story = hold_at_gate(daemon)
    (members,) = story.waiting.values()
    os.kill(members[1][0], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{members[1][0]}").exists(), "its end")
    os.kill(daemon.process.pid, signal.SIGCONT)
    daemon.wait(job)
    for attempt in (1, 2):
        daemon.check_whole(job, attempt, 2)
    daemon.check_quiet()


@pytest.mark.parametrize("alive", [True, False], ids=["daemon there", "daemon away"])
def test_elastic_member_killed_is_a_shrink(daemon, alive):
    daemon.start()
    job = daemon.post(daemon.steady({"min": 1, "max": 3}))["id"]
    daemon.wait_started(job, 3)
    until(lambda: daemon.act(job, "resize", {"members": 3}).status == 200, "all to speak")
    if not alive:
        daemon.kill()
    os.kill(pid_of(daemon, job, 0), signal.SIGKILL)
    if not alive:
        until(lambda: daemon.story(job).exits, "the shim to write it down")
        daemon.start()
    # The other two are told, and then somebody comes in the place of the dead one.
    until(lambda: len(daemon.started(job)) == 4, lambda: f"a fourth: {daemon.row(job)} {daemon.changes()}")
    until(lambda: daemon.row(job)["members"] == 3, "three members")
    assert {change[2] for change in daemon.changes()} == {"shrink", "grow"}
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    assert {start.attempt for start in daemon.started(job)} == {1}
    daemon.check_told_once()
    daemon.check_quiet()


def test_elastic_member_killed_while_the_size_changes(daemon):
    """Rank 2 is asked to leave and does not listen; rank 0 dies; rank 1 is enough."""
    daemon.start()
    deaf = f"{sys.executable} -c 'from phalanx import elastic; job = elastic.join(); import time; time.sleep(300)'"
    steady = f"{sys.executable} {STEADY}"
    job = daemon.submit(f'[ "$RANK" = 2 ] && exec {deaf}; exec {steady}', {"min": 1, "max": 3})
    daemon.wait_started(job, 3)
    until(lambda: daemon.act(job, "resize", {"members": 2}).status == 200, "all to speak")
    until(lambda: len(daemon.changes()) == 2, "the others to be told")
    os.kill(pid_of(daemon, job, 0), signal.SIGKILL)
    until(lambda: 0 in daemon.story(job).exits, "the shim to write it down")
    os.kill(pid_of(daemon, job, 2), signal.SIGKILL)
    # It may be told to grow again right after, so the third word is asked for, and not that there are three.
    until(lambda: len(daemon.changes()) >= 3 or daemon.row(job)["state"] in ENDED, "rank 1 to be told that it is alone")
    assert daemon.changes()[2][1:] == ("1", "shrink", "r1.3", "1")
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed", daemon.get(f"/v1/jobs/{job}")
    daemon.check_quiet()


def test_device_is_not_given_away_while_an_escapee_lives(make_daemon):
    daemon = make_daemon(gpus=1).start()
    line = 'echo "$PHALANX_JOB $PHALANX_ATTEMPT 99 $$ 1" >> "$STARTS"'  # the last thing that the escapee does
    job = daemon.submit(f"(setsid sh -c '{HELD}{line}' >/dev/null 2>&1 &)", 1)
    after = daemon.submit("true", 1)
    until(lambda: (story := daemon.story(job)) is not None and story.exits, "the member to exit")
    assert daemon.submit("true", 1)  # so that there was a planning pass since
    assert daemon.row(after)["state"] in ("pending", "starting")
    assert daemon.gpus_free() == 0
    daemon.restart()
    assert daemon.gpus_free() == 0
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    assert daemon.wait(after)["state"] == "completed"
    assert [(start.job, start.rank) for start in daemon.starts()][:3] == [(job, 0), (job, 99), (after, 0)]


# ---------------------------------------------------------------------- sleepers


def test_daemon_stopped_sees_everything_when_it_wakes(daemon):
    daemon.start()
    jobs = [daemon.submit(HELD + f"exit {code}") for code in (0, 5)]
    for job in jobs:
        daemon.wait_started(job, 2)
    os.kill(daemon.process.pid, signal.SIGSTOP)
    daemon.let_end()
    until(lambda: all(daemon.story(job).done for job in jobs), "the shims to go on alone")
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert [daemon.wait(job)["exit_code"] for job in jobs] == [0, 5]
    daemon.check_quiet()


def test_member_stopped_is_cancelled_all_the_same(daemon):
    daemon.start()
    job = daemon.submit(HELD)
    daemon.wait_started(job, 2)
    for start in daemon.started(job):
        os.kill(start.pid, signal.SIGSTOP)
    assert daemon.act(job, "cancel").status == 200
    assert daemon.wait(job)["state"] == "cancelled"
    daemon.check_quiet()


def test_shim_stopped_delays_a_cancel_and_loses_nothing(daemon):
    daemon.start()
    job = daemon.submit(HELD)
    daemon.wait_started(job, 2)
    shim = daemon.shim_of(job)
    os.kill(shim, signal.SIGSTOP)
    assert daemon.act(job, "cancel").status == 200
    assert daemon.row(job)["state"] == "stopping"
    assert daemon.gpus_free() == daemon.gpus - 2, "not free while its processes live"
    os.kill(shim, signal.SIGCONT)
    assert daemon.wait(job)["state"] == "cancelled"
    daemon.check_quiet()
