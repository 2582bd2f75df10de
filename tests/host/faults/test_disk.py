"""A state directory that is full, damaged, read-only, somebody else's, or taken.

A wall clock that jumps cannot be made here without setting that of the machine; the daemon's own clock counts from boot, and
the tests of the core drive it through a fake.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess

import pytest
from realdaemon import HELD, until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and owners are root's to change")


def write_for_ever(file, size):
    while True:
        file.write(b"x" * size)


def make_for_ever(folder):
    for number in itertools.count():
        (folder / str(number)).touch()


class Disk:
    """A small file system of its own, with nothing on it but one state directory."""

    def __init__(self, path, size):
        self.path = path
        path.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700,nr_inodes=400", "phalanx-test", str(path)],
            check=False,
            capture_output=True,
        )
        if made.returncode:
            pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
        (path / "state").mkdir(mode=0o700)

    def fill(self):
        """Not a byte is left."""
        with (self.path / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                with pytest.raises(OSError, match="No space left"):
                    write_for_ever(filler, size)

    def use_up_inodes(self):
        """Room there is, and nothing can be made in it."""
        (self.path / "many").mkdir()
        with pytest.raises(OSError, match="No space left"):
            make_for_ever(self.path / "many")

    def give_inodes_back(self):
        shutil.rmtree(self.path / "many")

    def make_room(self):
        (self.path / "filler").unlink()

    def make_readonly(self):
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)

    def close(self):
        subprocess.run(["umount", str(self.path)], check=False, capture_output=True)
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)


@pytest.fixture
def disk(tmp_path_factory):
    made = Disk(tmp_path_factory.mktemp("disk") / "m", "40m")
    yield made
    made.close()


@pytest.fixture
def small(disk, make_daemon):
    """A daemon on the small disk; it is closed before the disk is."""
    daemon = make_daemon(state=disk.path / "state")
    yield daemon
    daemon.close()


def refuse_full(daemon, members=1):
    """A submit is refused in words; None while the disk still has some room for it."""
    reply = daemon.post(daemon.submission("true", members))
    if reply.status == 200:
        return None
    assert reply.status == 503, reply
    error = reply["error"]
    assert "full" in error["message"]
    assert error["hint"]
    return error


# ---------------------------------------------------------------------- full


@ROOT_ONLY
def test_full_disk_refuses_submits_and_records_exits(disk, small):
    daemon = small.start()
    failing = daemon.submit(HELD + "exit 4")
    other = daemon.submit('while [ ! -e "$STARTS.later" ]; do sleep 0.02; done')
    waiting = daemon.submit("true", 4)
    for job in (failing, other):
        daemon.wait_started(job, 2)
    disk.fill()
    until(lambda: refuse_full(daemon), "a refusal")
    accepted = set(daemon.rows())
    until(lambda: not daemon.get("/v1/status")["store"]["ok"], "status to say so")
    assert "full" in daemon.get("/v1/status")["store"]["problem"]
    assert len(daemon.marked(other)) >= 2, "who runs goes on"
    daemon.let_end()
    assert daemon.wait(failing)["exit_code"] == 4, "what happens is still written down"
    assert refuse_full(daemon), "and submits are still refused"

    disk.make_room()
    (daemon.folder / "starts.later").touch()
    for job in accepted - {failing}:
        assert daemon.wait(job)["state"] == "completed"
    assert waiting in accepted
    until(lambda: refuse_full(daemon) is None, "submits to be accepted again")
    until(lambda: daemon.get("/v1/status")["store"]["ok"], "status to say so")
    daemon.restart()
    assert daemon.row(failing)["exit_code"] == 4
    assert accepted <= set(daemon.rows())
    for job in daemon.rows():
        daemon.wait(job)
    daemon.check_quiet()


def fill_up(daemon, disk):
    """Until submits are refused."""
    disk.fill()
    until(lambda: daemon.post(daemon.submission("true", 1)).status == 503, "a refusal")


@ROOT_ONLY
@pytest.mark.parametrize("how", ["verb", "signal"])
def test_a_stop_on_a_full_disk_is_a_stop(disk, small, how):
    daemon = small.start()
    running = daemon.submit(HELD)
    daemon.wait_started(running, 2)
    fill_up(daemon, disk)
    if how == "verb":
        assert daemon.stop() == 0
    else:
        daemon.process.terminate()
        assert daemon.bury() == 0
    daemon.check_logs()
    assert "no backup was made at the end" in daemon.log()
    disk.make_room()
    daemon.start()
    assert daemon.row(running)["state"] == "running"
    daemon.let_end()
    assert daemon.wait(running)["state"] == "completed"


@ROOT_ONLY
def test_who_waits_starts_by_itself_once_a_full_disk_has_room(disk, small):
    """Nobody submits and nothing ends meanwhile: nothing is written that would notice."""
    daemon = small.start()
    running, waiting = daemon.submit(HELD, 4), daemon.submit("true", 4)
    daemon.wait_started(running, 4)
    fill_up(daemon, disk)
    daemon.let_end()
    assert daemon.wait(running)["state"] == "completed"
    for answer in (daemon.row(waiting), daemon.get(f"/v1/jobs/{waiting}/why")):
        assert (answer["state"], answer["reason"]["code"]) == ("pending", "MachineFault"), answer
        assert f"the disk under {daemon.state} is full" in answer["reason"]["message"]
        assert answer["eta"] is None, "nobody knows when there is room"
    assert "is full" in daemon.row(waiting)["info"]
    disk.make_room()
    until(lambda: daemon.started(waiting), lambda: f"the start:\n{daemon.row(waiting)}\n{daemon.log()}", limit_s=20)


@ROOT_ONLY
def test_full_disk_and_a_killed_daemon_lose_no_exit(disk, small):
    """The shim has taken the room for its journal when it began."""
    daemon = small.start()
    job = daemon.submit(HELD + "exit 4")
    daemon.wait_started(job, 2)
    disk.fill()
    daemon.kill()
    daemon.let_end()
    until(lambda: daemon.story(job).done, "the journal")
    daemon.start()  # in the room of the ballast
    assert daemon.wait(job)["exit_code"] == 4
    until(lambda: refuse_full(daemon), "a refusal")
    disk.make_room()
    until(lambda: refuse_full(daemon) is None, "submits to be accepted again")


@ROOT_ONLY
def test_full_disk_does_not_stop_a_job_that_writes(disk, small):
    """Its log loses lines, and says how many; the job itself is none the worse."""
    daemon = small.start()
    job = daemon.submit(
        HELD + "i=0; while [ $i -lt 2000 ]; do echo a line of some length, number $i; i=$((i+1)); done", 1
    )
    daemon.wait_started(job, 1)
    disk.fill()
    daemon.let_end()
    assert daemon.wait(job)["exit_code"] == 0


@ROOT_ONLY
def test_no_inodes_left_is_said_and_waited_for(disk, small):
    daemon = small.start()
    held = daemon.submit(HELD, 1)
    daemon.wait_started(held, 1)
    disk.use_up_inodes()
    jobs = [daemon.submit("true", 1) for _ in range(5)]
    told = until(lambda: daemon.get(f"/v1/jobs/{jobs[0]}/why")["reason"], "a reason")
    until(lambda: "inodes" in daemon.get(f"/v1/jobs/{jobs[0]}/why")["reason"]["message"], lambda: f"the cause: {told}")
    assert {daemon.row(job)["state"] for job in jobs} == {"pending"}
    disk.give_inodes_back()
    daemon.let_end()
    for job in (held, *jobs):
        assert daemon.wait(job)["state"] == "completed"


# ---------------------------------------------------------------------- damaged


def damage(daemon):
    for path in daemon.state.glob("phalanx.db*"):
        path.write_bytes(b"this is no database " * 500)


def test_damaged_database_of_which_nothing_else_tells_is_refused_in_words(daemon):
    daemon.start()
    first = daemon.submit(HELD)
    daemon.wait_started(first, 2)
    daemon.kill()
    damage(daemon)
    shutil.rmtree(daemon.state / "redo")
    process = daemon.spawn()
    assert process.wait(30) == 2
    text = daemon.log()
    assert "damaged" in text
    assert "no good backup" in text
    assert "recover" in text, "the next command"
    assert "Traceback" not in text
    advice = re.findall("`(mkdir .*?)`", text)[0]
    subprocess.run(["sh", "-c", advice], check=True)
    daemon.start()
    assert daemon.rows() == {}
    assert daemon.submit("true") == first + 1, "its run directory is still there"
    assert f"of jobs {first}" in daemon.get("/v1/status")["store"]["problem"]
    daemon.let_end()


def remove(daemon):
    for path in daemon.state.glob("phalanx.db*"):
        path.unlink()


@pytest.mark.parametrize("harm", [damage, remove])
def test_on_its_first_day_a_database_can_be_lost_without_anybody_noticing(daemon, harm):
    """No backup has been made yet: what runs runs on, what waits waits, and no number is given twice."""
    daemon.start()
    running = daemon.submit(HELD, 4)
    pids = {start.pid for start in daemon.wait_started(running, 4)}
    daemon.wait_state(running, "running")
    waiting = daemon.submit("true", 4, key="k")
    daemon.kill()
    assert not list(daemon.state.glob("backups/*"))
    harm(daemon)
    daemon.start()
    assert f"{running}, {waiting}" in daemon.get("/v1/status")["store"]["problem"]
    assert daemon.row(running)["state"] == "running"
    assert pids <= set(daemon.marked(running)), "nobody was killed"
    assert daemon.submit("true", 4, key="k") == waiting, "its key still stands for it"
    assert daemon.submit("true", 1) > waiting + 1000
    daemon.let_end()
    for job in daemon.rows():
        assert daemon.wait(job)["state"] == "completed"
    daemon.check_quiet()


def test_damaged_database_is_restored_from_the_last_backup(daemon):
    daemon.start()
    ended = daemon.submit("true")
    daemon.wait(ended)
    running = daemon.submit(HELD)
    daemon.wait_started(running, 2)
    assert daemon.stop() == 0  # which makes one
    assert list((daemon.state / "backups").glob("*.db"))
    damage(daemon)
    daemon.start()
    assert "damaged" in daemon.get("/v1/status")["store"]["problem"]
    assert daemon.row(ended)["state"] == "completed"
    assert daemon.row(running)["state"] == "running"
    assert daemon.submit("true", 1) > running + 1000, "an id that was given after the backup is not given twice"
    daemon.let_end()
    assert daemon.wait(running)["state"] == "completed"
    daemon.check_quiet()


def test_what_was_accepted_since_the_backup_survives_a_damaged_database(make_daemon):
    """Jobs that started since run on, jobs that wait still wait, and ends that nobody saw are counted."""
    daemon = make_daemon(gpus=5).start()
    old = daemon.submit(HELD, 1)
    daemon.wait_started(old, 1)
    assert daemon.stop() == 0  # which makes a backup
    daemon.start()
    running = daemon.submit("trap '' TERM; " + HELD, 3)
    (pids,) = [{start.pid for start in daemon.wait_started(running, 3)}]
    daemon.wait_state(running, "running")
    ended = daemon.submit("exit 3", 1)
    daemon.wait(ended)
    waiting = daemon.submit("true", 5, key="k")
    daemon.kill()
    for path in daemon.state.glob("phalanx.db*"):
        path.write_bytes(b"this is no database " * 500)
    daemon.start()
    problem = daemon.get("/v1/status")["store"]["problem"]
    assert "damaged" in problem
    assert f"{running}, {ended}, {waiting}" in problem
    assert {daemon.row(job)["state"] for job in (old, running)} == {"running"}
    assert pids <= set(daemon.marked(running)), "nobody was killed"
    assert daemon.row(waiting)["state"] == "pending"
    assert daemon.row(ended)["exit_code"] == 3
    assert daemon.submit("true", 5, key="k") == waiting, "its key still stands for it"
    daemon.let_end()
    for job in (old, running, waiting):
        assert daemon.wait(job)["state"] == "completed"
    daemon.check_quiet()


@pytest.mark.parametrize("weak", [False, pytest.param(True, marks=ROOT_ONLY)], ids=["best", "weak"])
@pytest.mark.parametrize("gone", ["its own", "all of them"])
def test_run_directories_that_vanish_under_a_running_job(make_daemon, gone, weak):
    """Its ranks run on, and their devices must be nobody else's until they do not."""
    daemon = make_daemon(weak=weak).start()
    job = daemon.submit("trap '' TERM; " + HELD, 4)
    ranks = {start.pid for start in daemon.wait_started(job, 4)}
    after = daemon.submit(f"for pid in {' '.join(map(str, ranks))}; do [ ! -e /proc/$pid/exe ] || exit 9; done", 4)
    daemon.kill()
    shutil.rmtree(daemon.state / "runs" / (f"{job}.1" if gone == "its own" else ""))
    daemon.start()
    answer = daemon.wait(job)
    assert answer["state"] == "failed"
    assert "run directory is gone" in daemon.get(f"/v1/jobs/{job}")["failure"]["why"]
    assert daemon.wait(after)["state"] == "completed", "nobody of the first is left when the second starts"
    assert daemon.marked(job) == {}


# ---------------------------------------------------------------------- not ours


def refused(daemon):
    """A daemon that does not start, and what it says."""
    process = daemon.spawn()
    assert process.wait(30) == 2
    text = daemon.log()
    assert "Traceback" not in text
    assert str(daemon.state) in text
    assert "phalanx: error:" in text
    return text


def test_state_directory_that_others_may_write_to(daemon):
    daemon.state.chmod(0o777)
    process = daemon.spawn()
    # Ours, so it is made private; or refused. Never used as it is.
    until(lambda: process.poll() is not None or (daemon.state.stat().st_mode & 0o022) == 0, "either")
    process.kill()
    process.wait()


@ROOT_ONLY
def test_state_directory_of_somebody_else(daemon):
    os.chown(daemon.state, 65534, 65534)
    assert "PHALANX_HOME" in refused(daemon)


def test_state_directory_that_is_a_file(daemon):
    daemon.state.rmdir()
    daemon.state.write_text("")
    refused(daemon)
    assert daemon.state.read_text() == ""


@pytest.mark.long
def test_folder_in_place_of_the_file_by_which_clients_find_the_daemon(daemon):
    (daemon.state / "daemon.json").mkdir()
    message = refused(daemon)
    assert f"{daemon.state}/daemon.json cannot be written" in message
    assert "move it away" in message


@ROOT_ONLY
def test_state_directory_on_a_read_only_file_system(disk, small):
    disk.make_readonly()
    assert "read-only" in refused(small).lower()


@ROOT_ONLY
def test_read_only_after_it_was_used_keeps_everything(disk, small):
    daemon = small.start()
    job = daemon.submit("true")
    daemon.wait(job)
    daemon.stop()
    disk.make_readonly()
    assert "read-only" in refused(daemon).lower()
    subprocess.run(["mount", "-o", "remount,rw", str(disk.path)], check=True)
    daemon.start()
    assert daemon.row(job)["state"] == "completed"


def test_second_daemon_ends_at_once_and_leaves_the_first_alone(daemon):
    daemon.start()
    job = daemon.submit(HELD)
    daemon.wait_started(job, 2)
    assert daemon.spawn().wait(30) == 0
    assert daemon.get("/v1/status")["pid"] == daemon.process.pid
    assert daemon.row(job)["state"] == "running"
    assert (daemon.state / "daemon.json").exists(), "clients still find the first"
    daemon.let_end()
    daemon.wait(job)
