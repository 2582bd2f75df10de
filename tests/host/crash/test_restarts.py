"""What a daemon finds when it comes back: everything as it was left, whatever happened meanwhile, and after a reboot too."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import struct

import msgspec
import pytest
from realdaemon import HELD, until

# ---------------------------------------------------------------------- meanwhile


@pytest.mark.long
def test_members_that_end_while_a_daemon_recovers(make_daemon):
    """Every instant of a recovery is the one at which somebody ends; none may fall between two chairs."""
    daemon = make_daemon(gpus=32).start()
    jobs = [daemon.submit(HELD + f"sleep {0.3 + 0.05 * at:.2f}; exit {at % 2}", 1) for at in range(32)]
    for job in jobs:
        daemon.wait_started(job, 1)
    daemon.kill()
    daemon.let_end()
    daemon.start()
    assert [daemon.wait(job)["exit_code"] for job in jobs] == [0, 1] * 16
    daemon.check_quiet()
    daemon.check_logs()


def test_kill_after_counts_from_the_start_of_the_attempt(daemon):
    """A job whose first attempt began an hour ago, and whose second has just begun."""
    daemon.start()
    job = daemon.submit(HELD, run={"on_preempt": "requeue"}, kill_after="30m")
    daemon.wait_started(job, 2)
    until(lambda: daemon.act(job, "preempt").status == 200, "it to be running")
    daemon.wait_started(job, 2, attempt=2)
    daemon.wait_state(job, "running")
    daemon.kill()
    with contextlib.closing(sqlite3.connect(daemon.state / "phalanx.db")) as database, database:
        database.execute("UPDATE job SET start_us = start_us - 3600000000")
    daemon.start()
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed", daemon.row(job)


@pytest.mark.long
def test_a_stopped_shim_holds_up_nobody_else_and_is_taken_up_when_it_wakes(daemon):
    daemon.start()
    asleep, awake = daemon.submit(HELD + "exit 6"), daemon.submit(HELD)
    for job in (asleep, awake):
        daemon.wait_started(job, 2)
    shim = daemon.shim_of(asleep)
    os.kill(shim, signal.SIGSTOP)
    daemon.restart()
    assert daemon.row(asleep)["state"] == "running"
    assert daemon.gpus_free() == 0
    daemon.let_end()
    assert daemon.wait(awake)["state"] == "completed"
    os.kill(shim, signal.SIGCONT)
    assert daemon.wait(asleep)["exit_code"] == 6
    daemon.check_quiet()


@pytest.mark.long
@pytest.mark.parametrize("asleep", [False, True], ids=["awake", "stopped"])
def test_a_lost_journal_costs_a_running_job_neither_its_devices_nor_its_end(daemon, asleep):
    """Where the shim does not answer at once either, what the daemon wrote down itself tells who sits where."""
    daemon.start()
    job = daemon.submit(HELD + "exit 6", 3)
    daemon.wait_started(job, 3)
    shim = daemon.shim_of(job)
    if asleep:
        os.kill(shim, signal.SIGSTOP)
    daemon.kill()
    (daemon.state / "runs" / f"{job}.1" / "journal").unlink()
    daemon.start()
    row = daemon.row(job)
    assert (row["state"], row["gpus"], len(row["devices"])) == ("running", 3, 3)
    assert daemon.gpus_free() == 1
    daemon.check_devices()
    os.kill(shim, signal.SIGCONT)
    daemon.let_end()
    assert daemon.wait(job)["exit_code"] == 6
    daemon.check_quiet()


@pytest.mark.long
def test_a_warning_is_given_once_however_often_the_daemon_restarts(daemon):
    daemon.start()
    script = f"""trap 'echo warned >> "$STARTS.warned"' USR1; {HELD}"""
    warning = {"signal": "USR1", "before_s": 3599}
    job = daemon.submit(script, 1, kill_after="1h", run={"kill_after_warning": warning})
    warned = daemon.folder / "starts.warned"
    until(warned.exists, "the warning")
    daemon.restart()
    again = daemon.submit(script, 1, kill_after="1h", run={"kill_after_warning": warning})
    until(lambda: len(warned.read_text().split()) >= 2, "that of the second job")
    daemon.let_end()
    for each in (job, again):
        assert daemon.wait(each)["state"] == "completed"
    assert warned.read_text().split() == ["warned"] * 2


def test_what_waits_for_a_job_hears_of_its_end_from_the_next_daemon(daemon):
    daemon.start()
    well, badly = daemon.submit(HELD, 1), daemon.submit(HELD + "exit 3", 1)
    after = [daemon.submit("true", 1, after=[str(job)]) for job in (well, badly)]
    for job in (well, badly):
        daemon.wait_started(job, 1)
    daemon.kill()
    daemon.let_end()
    until(lambda: all(daemon.story(job).done for job in (well, badly)), "both ends")
    daemon.start()
    assert [daemon.wait(job)["state"] for job in after] == ["completed", "cancelled"]
    assert daemon.started(after[1]) == []
    daemon.restart()
    assert [daemon.row(job)["state"] for job in (well, badly, *after)] == [
        "completed",
        "failed",
        "completed",
        "cancelled",
    ]


def test_cancel_of_a_waiting_job_outlives_the_daemon(daemon):
    daemon.start()
    held = daemon.submit(HELD, 4)
    daemon.wait_started(held, 4)
    job = daemon.submit("true", 1)
    assert daemon.act(job, "cancel")["state"] == "cancelled"
    daemon.restart()
    daemon.let_end()
    daemon.wait(held)
    daemon.wait(daemon.submit("true", 4))
    assert daemon.row(job)["state"] == "cancelled"
    assert daemon.started(job) == []


def test_eviction_by_the_plan_gives_the_seats_to_whom_they_were_promised(daemon):
    daemon.start(PHALANX_CRASH="evict.after_commit")
    low = daemon.submit('[ "$PHALANX_ATTEMPT" = 2 ] || ' + HELD, 4, preemptible=True)
    daemon.wait_started(low, 4)
    high = daemon.submit("true", 4, priority=10)
    assert daemon.bury() == -signal.SIGKILL
    daemon.start()
    assert daemon.wait(low)["state"] == "completed"
    assert [start.job for start in daemon.starts()] == [low] * 4 + [high] * 4 + [low] * 4
    daemon.check_quiet()


@pytest.mark.parametrize("speaks", [False, True], ids=["by a signal", "by a word"])
def test_evicted_saved_and_gone_while_no_daemon_was_there_it_runs_again(daemon, speaks):
    """It exits with 0, as who saves does, and nobody but its shim sees that."""
    daemon.start()
    wait = 'while [ ! -e "$STARTS.saved" ]; do sleep 0.02; done; exit 0'
    saves = f"""[ "$PHALANX_ATTEMPT" = 2 ] && exit 0; trap '{wait}' TERM; while :; do sleep 0.02; done"""
    run = {"on_preempt": "requeue", "grace_s": 30}
    job = daemon.post(daemon.steady({"min": 1, "max": 2}, run=run))["id"] if speaks else daemon.submit(saves, run=run)
    daemon.wait_started(job, 2)
    if speaks:
        until(lambda: daemon.act(job, "resize", {"members": 2}).status == 200, "all to speak")
    until(lambda: daemon.act(job, "preempt").status == 200, "it to be running")
    daemon.kill()
    (daemon.folder / "starts.saved").touch()
    until(lambda: daemon.story(job).done, "its end")
    assert {end[1:] for end in daemon.story(job).exits.values()} == {(0, None)}
    daemon.start()
    daemon.wait_started(job, 2, attempt=2)
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    daemon.check_quiet()


def test_fewer_devices_than_before_do_not_end_a_running_job(daemon):
    daemon.start()
    job = daemon.submit(HELD, 4)
    daemon.wait_started(job, 4)
    daemon.kill()
    daemon.gpus = 2
    daemon.start()
    assert daemon.row(job)["state"] == "running"
    assert daemon.gpus_free() == 0
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    daemon.check_quiet()


@pytest.mark.long
def test_the_list_of_runs_was_removed_and_everybody_runs_on(daemon):
    daemon.start()
    jobs = [daemon.submit(HELD, 1, run={"on_preempt": "requeue"}), daemon.submit(HELD, 1)]
    for job in jobs:
        daemon.wait_started(job, 1)
    daemon.kill()
    shutil.rmtree(daemon.state / "runs" / ".live")
    daemon.start()
    assert [daemon.row(job)["state"] for job in jobs] == ["running"] * 2
    assert daemon.gpus_free() == daemon.gpus - 2
    assert daemon.act(jobs[0], "cancel")["state"] == "stopping"
    daemon.wait(jobs[0])
    daemon.let_end()
    assert daemon.wait(jobs[1])["state"] == "completed"
    assert [start.attempt for start in daemon.starts()] == [1, 1]
    daemon.check_quiet()


# ---------------------------------------------------------------------- the database lost its end


def cut_record(state, told):
    """The database is gone, and the second record ends behind the first of its records that is `told`."""
    path, at = state / "redo" / "000000.redo", 0
    data = path.read_bytes()
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        record = msgspec.msgpack.decode(data[at + 8 : at + 8 + size])
        at += 8 + size
        if told(record):
            break
    os.truncate(path, at)
    for name in ("phalanx.db", "phalanx.db-wal", "phalanx.db-shm"):
        (state / name).unlink(missing_ok=True)


def is_submitted(record):
    return record[0] == "jobs"


def is_starting(record):
    return record[0] == "run" and record[1][4] == "starting"


def is_running(record):
    return record[0] == "run" and record[1][4] == "running"


@pytest.mark.long
@pytest.mark.parametrize("told", [is_submitted, lambda each: each[0] == "update"], ids=["the job", "its attempt"])
def test_an_attempt_that_nothing_tells_of_is_ended_and_never_begun_again(daemon, told):
    daemon.start()
    job = daemon.submit('[ "$PHALANX_ATTEMPT" = 2 ] || ' + HELD, 4)
    daemon.wait_started(job, 4)
    daemon.wait_state(job, "running")
    daemon.kill()
    cut_record(daemon.state, told)
    daemon.start()
    problem = daemon.get("/v1/status")["store"]["problem"]
    assert f"runs {job}.1" in problem
    assert "may be lost" in problem
    assert daemon.wait(job)["state"] == "completed", daemon.log()
    assert {start.attempt for start in daemon.started(job)} == {1, 2}
    whys = [each["data"].get("why", "") for each in daemon.get(f"/v1/jobs/{job}")["history"]]
    assert any("attempt 1 is lost" in why for why in whys), whys
    daemon.check_quiet()


@pytest.mark.long
@pytest.mark.parametrize("told", [is_starting, is_running])
def test_an_end_that_only_the_journal_tells_is_believed(daemon, told):
    daemon.start()
    job = daemon.submit("true", 1)
    assert daemon.wait(job)["state"] == "completed"
    daemon.kill()
    cut_record(daemon.state, told)
    daemon.start()
    assert daemon.wait(job)["exit_code"] == 0
    assert len(daemon.started(job)) == 1
    daemon.check_quiet()


@pytest.mark.long
def test_an_attempt_that_is_over_and_nothing_tells_of_is_not_begun_in_its_place(daemon):
    daemon.start()
    job = daemon.submit("true", 1)
    assert daemon.wait(job)["state"] == "completed"
    daemon.kill()
    cut_record(daemon.state, is_submitted)
    daemon.start()
    assert daemon.wait(job)["exit_code"] == 0
    assert [start.attempt for start in daemon.started(job)] == [1, 2]
    daemon.check_quiet()


# ---------------------------------------------------------------------- another boot


def test_reboot_signals_nobody_and_requeues_whoever_asked_for_it(make_daemon):
    daemon = make_daemon(gpus=5)
    daemon.start(PHALANX_BOOT_ID="one")
    held = '[ "$PHALANX_ATTEMPT" = 2 ] || ' + HELD
    plain = daemon.submit(held, 1, name="plain")
    requeued = daemon.submit(held, 1, name="requeued", run={"on_preempt": "requeue"})
    preemptible = daemon.submit(held, 1, name="preemptible", preemptible=True)
    restarted = daemon.submit(held, 1, name="restarted", run={"restarts": 1})
    ended = daemon.submit('while [ ! -e "$STARTS.early" ]; do sleep 0.02; done; exit 0', 1, name="ended")
    jobs = [plain, requeued, preemptible, restarted, ended]
    for job in jobs:
        daemon.wait_started(job, 1)
    daemon.kill()
    (daemon.folder / "starts.early").touch()
    until(lambda: daemon.story(ended).done, "its exit, in the journal of the last boot")
    before = {start.pid for start in daemon.starts() if start.job != ended}
    shims = daemon.shims()

    daemon.start(PHALANX_BOOT_ID="two")
    assert daemon.wait(plain)["state"] == "failed"
    assert "restarted" in daemon.get(f"/v1/jobs/{plain}")["failure"]["why"]
    assert daemon.wait(ended) == {"id": ended, "state": "completed", "exit_code": 0, "ended": True}
    for job in (requeued, preemptible, restarted):
        assert daemon.wait(job)["state"] == "completed"
        assert [start.attempt for start in daemon.started(job)] == [1, 2]
    assert before <= set(daemon.marked()), "a recorded pid was signalled in another boot"
    assert shims - {daemon.story(ended).pid} <= daemon.shims()
    until(lambda: daemon.gpus_free() == daemon.gpus, "all devices")
    daemon.check_devices()


def test_reboot_in_the_middle_of_a_start(daemon):
    daemon.start(PHALANX_BOOT_ID="one", PHALANX_CRASH="start.before_go")
    job = daemon.submit("true")
    assert daemon.bury() == -signal.SIGKILL
    daemon.start(PHALANX_BOOT_ID="two")
    assert daemon.wait(job)["state"] == "completed"
    assert {start.attempt for start in daemon.started(job)} == {2}
    daemon.check_quiet()
