"""Coming in: inside and outside Phalanx, under torchrun, in children, and with a broken environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from phalanx import elastic
from phalanx.elastic import link
from phalanx.elastic.seat import read_seat


@pytest.fixture
def run(outside):
    """Run Python in a process of its own; killed with the test."""
    processes = []

    def start(code, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=clean | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


# --- outside ---------------------------------------------------------------------------------------


def test_outside_phalanx_everything_does_nothing(outside):
    job = elastic.join()
    assert (job.rank, job.world, job.generation, job.member) == (0, 1, 1, 0)
    assert not job.active
    job.progress(1, total=2, saved_step=1, loss=0.5)
    elastic.progress(2)
    assert job.pending() is None
    change = elastic.Change("a", "yield", 0.0, leaves=True)
    job.done(change)
    job.refuse(change, "no")
    job.watch()
    job.close()
    assert job.warnings == 0
    assert job._thread is None
    assert os.environ["PHALANX_JOINED"] == ""


def test_outside_phalanx_the_rank_is_that_of_any_launcher(outside):
    outside.setenv("RANK", "5")
    outside.setenv("WORLD_SIZE", "8")
    job = elastic.join()
    assert (job.rank, job.world, job.member) == (5, 8, 5)


# --- inside ----------------------------------------------------------------------------------------


def test_a_process_joins_once_and_the_scheduler_knows_it_at_once(outside, shim):
    for name, value in shim.environment(rank=2).items():
        outside.setenv(name, value)
    answering = threading.Event()

    def serve():
        while not answering.is_set():
            shim.pump()
            answering.wait(0.01)

    server = threading.Thread(target=serve)
    server.start()
    try:
        job = elastic.join(wait_s=30)
        assert job.connected
        assert elastic.join() is job
        elastic.progress(1, total=1)
    finally:
        answering.set()
        server.join()
    shim.pump()
    assert [h["rank"] for h in shim.heard("hello")] == [2]
    assert shim.heard("status")[0]["step"] == 1
    assert os.environ["PHALANX_JOINED"] == str(os.getpid())


def test_a_silent_scheduler_holds_up_the_start_no_longer_than_asked(outside, shim):
    for name, value in shim.environment().items():
        outside.setenv(name, value)
    job = elastic.join(wait_s=0.05)  # nobody pumps: it listens, and says nothing
    assert job.active
    assert not job.connected
    assert job.warnings == 0


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "PHALANX_GENERATION", "PHALANX_ATTEMPT", "PHALANX_RANK"])
@pytest.mark.parametrize("value", ["-1", "x", "1.5", "٣", "9" * 30])
def test_a_broken_environment_is_said_and_does_not_end_the_job(outside, name, value, caplog):
    outside.setenv("PHALANX_SOCKET", "/nowhere/job.sock")
    outside.setenv(name, value)
    job = elastic.join()
    assert not job.active
    assert job.warnings == 1
    assert name in caplog.text


def test_children_of_the_job_do_not_take_its_place(outside, shim):
    environment = shim.environment() | {"PHALANX_JOINED": "1"}
    seat, problem = read_seat(environment, pid=77)
    assert (seat.socket, seat.rank, problem) == ("", 1, "")
    seat, _ = read_seat(environment | {"PHALANX_JOINED": "77"}, pid=77)  # the same process after an exec
    assert seat.socket


def test_a_forked_child_says_nothing(shim, talk):
    job, settle = talk()
    shim.say({"type": "checkpoint", "id": "c1", "deadline_s": 60})
    change = settle(job.pending)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        job.progress(9, total=9)
        job.done(change)
        os.write(writing, b"asked" if job.pending() else b"quiet")
        job.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"quiet"
    os.waitpid(child, 0)
    job.done(job.pending())
    settle(lambda: shim.heard("answer"))
    assert shim.heard("status") == []
    assert shim.connections[0].refusal is None, "the child did not write into the stream of its parent"


def test_under_torchrun_local_rank_0_speaks_for_the_member_and_the_world_is_the_launchers(shim):
    environment = shim.environment(rank=1) | {
        "TORCHELASTIC_RUN_ID": "x",
        "RANK": "8",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "1",
    }
    seat, _ = read_seat(environment, pid=1)
    assert (seat.rank, seat.world, seat.name, seat.nested, bool(seat.socket)) == (8, 16, 1, True, True)
    seat, _ = read_seat(environment | {"LOCAL_RANK": "3", "RANK": "11"}, pid=1)
    assert (seat.rank, seat.world, seat.socket) == (11, 16, "")
    seat, _ = read_seat(environment | {"PHALANX_RANK": "2"}, pid=1)
    assert seat.name == 2


def test_under_torchrun_a_welcome_does_not_change_the_world(shim, talk):
    job, _ = talk(shim.seat(rank=8, name=1, world=16, nested=True))
    assert (job.rank, job.world) == (8, 16)
    assert shim.heard("hello")[0]["rank"] == 1


def test_a_job_that_ends_says_its_last_status_by_itself(shim, run, until):
    code = "from phalanx import elastic\nfor i in range(1, 4): elastic.progress(i, total=10)"
    process = run(code, **shim.environment())
    until(lambda: shim.pump() or process.poll() is not None, "the end of the job")
    shim.pump()
    assert process.returncode == 0, process.stderr.read()
    assert shim.heard("status")[-1]["step"] == 3


# --- SIGTERM ---------------------------------------------------------------------------------------

SAVING = """
import sys, threading
from phalanx import elastic
def save():
    print("saved", end="")
    {saves}
elastic.checkpoint_on_sigterm(save)
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("saves", "says"),
    [
        ("pass", ""),
        ("raise OSError('disk full')", "disk full"),
        ("sys.exit(0)", ""),
        ("import os; os.kill(os.getpid(), 15)", ""),
    ],
)
def test_sigterm_saves_once_and_then_ends_the_job_by_the_signal(run, saves, says):
    process = run(SAVING.format(saves=saves))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM, "code 0 would pass for completed"
    assert out == "saved"
    assert says in err


def test_the_handler_can_be_taken_back():
    before = signal.getsignal(signal.SIGTERM)
    undo = elastic.checkpoint_on_sigterm(lambda: None)
    assert signal.getsignal(signal.SIGTERM) is not before
    undo()
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_it_says_that_it_cannot(caplog):
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=elastic.checkpoint_on_sigterm, args=(lambda: None,))
    thread.start()
    thread.join()
    assert "main thread" in caplog.text
    assert signal.getsignal(signal.SIGTERM) == before


def test_whatever_fails_inside_is_counted(shim, talk, monkeypatch):
    job, _ = talk()
    monkeypatch.setattr(link.Link, "poll", lambda self: 1 // 0)
    job.progress(1)
    assert job.pending() is None
    assert job.warnings == 2
