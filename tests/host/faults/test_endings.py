"""A daemon that has to stop, or to start, in bad times: it says what happened and what comes next, and no traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing

import pytest
from realdaemon import HELD, until
from selection import rest_long

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and owners are root's to change")
#: A disk that cannot sync any more, for as long as a file is there.
DYING = """
import os, sqlite3
from phalanx.frontends.host.store import writer
apply_group = writer.apply_group
def fail(connection, writes):
    if os.path.exists({flag!r}):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC"
        raise error
    return apply_group(connection, writes)
writer.apply_group = fail
"""


def test_a_disk_that_cannot_sync_ends_the_daemon_with_a_reason(make_daemon, tmp_path):
    flag = tmp_path / "dying"
    (tmp_path / "sitecustomize.py").write_text(DYING.format(flag=str(flag)), encoding="utf-8")
    daemon = make_daemon(env={"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}).start()
    running = daemon.submit(HELD)
    daemon.wait_started(running, 2)
    flag.touch()
    reply = daemon.post(daemon.submission("true", 1))
    assert reply.status == 503, reply
    assert "SQLITE_IOERR_FSYNC" in reply["error"]["message"]
    assert "The daemon stops" in reply["error"]["message"]
    assert "dmesg" in reply["error"]["hint"]
    assert daemon.bury() == 1, "whoever watches over it starts it again"
    daemon.check_logs()
    assert "the store can be trusted no more, and the daemon stops" in daemon.log()
    flag.unlink()
    daemon.start()
    assert daemon.row(running)["state"] == "running"
    daemon.let_end()
    assert daemon.wait(running)["state"] == "completed"


@pytest.mark.parametrize("restart", [False, True])
@ROOT_ONLY
def test_weak_containment_does_not_claim_more_than_it_knows(make_daemon, restart):
    """A process that left its session and its environment is nobody's once the shim is gone."""
    daemon = make_daemon(weak=True).start()
    job = daemon.submit("env -i setsid sleep 300 & wait", 1)
    daemon.wait_started(job, 1)
    shim = daemon.shim_of(job)
    if restart:
        daemon.kill()
    os.kill(shim, signal.SIGKILL)
    if restart:
        daemon.start()
    daemon.wait(job)
    why = daemon.get(f"/v1/jobs/{job}")["failure"]["why"]
    assert "what could be found of it has been killed" in why
    assert "may still run" in why


def test_nothing_half_written_stays_in_the_list_of_runs(daemon):
    daemon.start()
    daemon.kill()
    half = daemon.state / "runs" / ".live" / "7.1.new"
    half.parent.mkdir(exist_ok=True)
    half.write_text("{", encoding="ascii")
    daemon.start()
    assert not half.exists()


@pytest.mark.parametrize("weak", [False, pytest.param(True, marks=ROOT_ONLY)], ids=["best", "weak"])
def test_rubbish_in_the_list_of_runs_goes_and_is_told(make_daemon, weak):
    daemon = make_daemon(weak=weak).start()
    job = daemon.submit(HELD)
    daemon.wait_started(job, 2)
    daemon.wait_state(job, "running")
    daemon.kill()
    live = daemon.state / "runs" / ".live"
    rubbish = {"x": "?", "5.1": "?", "6.1": "[]", "7.1": '{"run":"7.1","uid":"root"}', f"{job}.1": "{"}
    for name, text in rubbish.items():
        (live / name).write_text(text, encoding="ascii")
    daemon.start()
    assert {path.name for path in live.iterdir()} & rubbish.keys() == {f"{job}.1"}
    assert json.loads((live / f"{job}.1").read_text())["run"] == f"{job}.1", "written down again"
    for name in rubbish:
        assert f"{live / name} is no record of a run" in daemon.log()
    assert daemon.row(job)["state"] == "running", "whose record it was is found by what it left in the kernel"
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    daemon.check_quiet()


def test_a_job_that_ran_longer_than_it_may_says_so_as_every_failure_does(daemon):
    daemon.start()
    job = daemon.submit(HELD, 1, kill_after="1s")
    assert daemon.wait(job)["exit_code"] == 124
    failure = daemon.get(f"/v1/jobs/{job}")["failure"]
    assert (failure["rank"], failure["exit_code"]) == (None, 124)
    assert "--kill-after" in failure["why"]


# ---------------------------------------------------------------------- damage


def kill_with_jobs(daemon):
    """One that runs and some that wait; the daemon is dead."""
    daemon.start()
    daemon.submit(HELD, 4)
    waiting = [daemon.submit("true", 1, name=f"waiting-{number}") for number in range(5)]
    daemon.wait_started(1, 4)
    daemon.kill()
    return waiting


def test_a_job_that_makes_no_sense_any_more_costs_no_other_job_its_daemon(daemon):
    """One flipped letter: it is JSON still, and nobody could have submitted it."""
    waiting = kill_with_jobs(daemon)
    with closing(sqlite3.connect(daemon.state / "phalanx.db")) as connection:
        connection.execute("UPDATE job SET gang = replace(gang, 'members', 'mumbers') WHERE id = ?", (waiting[2],))
        connection.commit()
    daemon.start()
    hurt = daemon.row(waiting[2])
    assert hurt["state"] == "failed"
    assert "cannot be read any more" in hurt["reason"]["message"]
    daemon.let_end()
    for job in (1, *waiting):
        assert daemon.wait(job)["state"] == ("failed" if job == waiting[2] else "completed")
    daemon.check_logs()


def spoil_run(daemon, column):
    with closing(sqlite3.connect(daemon.state / "phalanx.db")) as connection:
        connection.execute(f"UPDATE run SET {column} = cast('{{\"broken' as text)")  # noqa: S608
        connection.commit()


@pytest.mark.parametrize("column", ["intent", "members", "devices", "state"])
def test_a_damaged_row_of_an_attempt_is_nothing_to_a_job_that_runs(daemon, column):
    waiting = kill_with_jobs(daemon)
    pids = {start.pid for start in daemon.started(1)}
    spoil_run(daemon, column)
    daemon.start()
    assert f"the record of its attempt 1.1 was damaged ({column})" in daemon.get("/v1/status")["store"]["problem"]
    assert daemon.row(1)["state"] == "running"
    assert pids <= set(daemon.marked(1))
    daemon.let_end()
    for job in (1, *waiting):
        assert daemon.wait(job)["state"] == "completed"
    assert {start.attempt for start in daemon.started(1)} == {1}
    daemon.check_logs()


def test_a_job_of_which_nobody_knows_who_has_what_begins_again_and_says_why(daemon):
    """Row and second record are both lost; until nothing of it is left its devices are nobody else's."""
    waiting = kill_with_jobs(daemon)
    spoil_run(daemon, "devices")
    shutil.rmtree(daemon.state / "redo")
    daemon.start()
    daemon.wait_started(1, 4, attempt=2)
    history = daemon.get("/v1/jobs/1")["history"]
    assert any("record on the disk was damaged" in str(told) for told in history), history
    assert "runs again" in daemon.get("/v1/status")["store"]["problem"]
    daemon.let_end()
    for job in (1, *waiting):
        assert daemon.wait(job)["state"] == "completed"
    daemon.check_one_attempt()
    daemon.check_logs()


@pytest.mark.parametrize("seed", rest_long(range(30), 2))
def test_a_damaged_state_directory_ends_in_a_daemon_or_in_words(daemon, seed):
    kill_with_jobs(daemon)
    dice = random.Random(seed)
    for path in [daemon.state / "phalanx.db", daemon.state / "phalanx.db-wal"]:
        data = bytearray(path.read_bytes())
        for _ in range(dice.choice([0, 1, 30])):
            if data:
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
    process = daemon.spawn()
    until(lambda: process.poll() is not None or " answers at " in daemon.log(), daemon.log)
    daemon.check_logs()
    if process.poll() is not None:
        assert process.returncode == 2
        assert "`" in daemon.log(), "the next command"
    else:
        daemon.process = process
        daemon.rows()
