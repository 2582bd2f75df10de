"""A job's own socket and the shim's: for its members and its daemon, however wide its user opens the door."""

from __future__ import annotations

import os
import sys

import pytest
from people import ADA, BOB
from realdaemon import HELD, MARK, until

from phalanx.wire.channel import GREETING_BYTES

#: Connects, says something, and tells what came back: nothing at all, a greeting, or more than that.
SPEAK = """
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.settimeout(20)
try:
    line.connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
    sys.exit()
heard = b""
try:
    if sys.argv[2] == "garbage":
        line.sendall(os.urandom(64))
    elif sys.argv[2] == "opening":
        line.sendall(b"PHALANX\\x01" + (1).to_bytes(4, "big") + bytes(4) + bytes(16) + bytes(32))
    elif sys.argv[2] == "orders":
        line.sendall(b'{"v":1,"do":"hello"}\\n{"v":1,"do":"stop","ranks":null,"signal":"KILL","grace_s":0}\\n')
    while part := line.recv(65536):
        heard += part
except OSError as error:
    heard += b""
print(len(heard))
"""


@pytest.fixture(scope="module")
def open_job(shared):
    """A job of ada's that speaks the protocol, with a run directory that she has opened to everybody."""
    ada = shared.by(ADA)
    job = ada.post(ada.steady(1))["id"]
    ada.wait_started(job, 1)
    run = shared.state / "runs" / f"{job}.1"
    until(lambda: (run / "control.sock").exists() and (run / "job.sock").exists(), "its sockets")
    yield job, run
    ada.act(job, "cancel")
    ada.wait(job)


def speak(person, path, what):
    done = person.run(sys.executable, "-I", "-S", "-c", SPEAK, str(path), what)
    assert done.returncode == 0, done
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["job.sock", "control.sock"])
def test_another_user_does_not_reach_it(shared, open_job, name):
    _, run = open_job
    assert speak(shared.by(BOB), run / name, "opening") == "PermissionError"


@pytest.mark.parametrize("what", ["garbage", "opening", "orders"])
@pytest.mark.parametrize("name", ["job.sock", "control.sock"])
def test_nor_when_every_door_is_open(shared, open_job, name, what):
    """Not even a greeting: the kernel says who connects, and it is nobody of this job."""
    job, run = open_job
    shared.by(ADA).run("chmod", "777", str(run), str(run / name))
    try:
        assert speak(shared.by(BOB), run / name, what) == "0"
    finally:
        shared.by(ADA).run("chmod", "700", str(run), str(run / name))
    assert shared.row(job)["state"] == "running"


@pytest.mark.parametrize("what", ["garbage", "opening"])
def test_the_owner_without_the_key_hears_no_more_than_a_greeting(shared, open_job, what):
    job, run = open_job
    assert speak(shared.by(ADA), run / "job.sock", what) == str(GREETING_BYTES)
    assert shared.row(job)["state"] == "running"


def test_the_owner_gives_no_orders_to_the_shim(shared, open_job):
    """Only whoever started it: root, or the daemon's user."""
    job, run = open_job
    assert speak(shared.by(ADA), run / "control.sock", "orders") == "0"
    assert shared.row(job)["state"] == "running"


def test_the_key_of_one_job_opens_no_other(shared, open_job):
    """Two jobs of one user: each has its own key, and a member of one is nobody to the other."""
    ada = shared.by(ADA)
    _, run = open_job
    code = (
        "import os\nfrom phalanx import elastic\n"
        f"os.environ['PHALANX_SOCKET'] = {str(run / 'job.sock')!r}\n"
        "job = elastic.join()\nprint('connected' if job.connected else 'alone')"
    )
    env = {"PATH": os.environ["PATH"], MARK: shared.mark}
    other = ada.submit([sys.executable, "-c", code], 1, run={"env": env})
    ada.wait(other)
    assert ada.call("GET", f"/v1/jobs/{other}/logs").body.splitlines()[-1] == "alone"
    notes = (run / "shim.log").read_text(encoding="utf-8")
    assert "a connection of a member was closed" in notes, notes


def test_each_job_has_a_key_of_its_own(shared):
    ada = shared.by(ADA)
    jobs = [ada.submit(HELD, 1) for _ in range(2)]
    for job in jobs:
        ada.wait_started(job, 1)
    keys = {(shared.state / "runs" / f"{job}.1" / "key").read_bytes() for job in jobs}
    assert {len(key.strip()) for key in keys} == {64}
    assert len(keys) == 2
    for job in jobs:
        environ = shared.by(BOB).run("cat", f"/proc/{ada.started(job)[0].pid}/environ")
        assert environ.returncode != 0, "bob reads ada's environment"
        ada.act(job, "cancel")
        ada.wait(job)
