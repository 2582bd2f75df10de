"""A job that sits in its shim's place: it harms nobody else, and it keeps nothing after it was told to go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from people import ADA
from realdaemon import MARK, until

from phalanx.frontends.host import containment
from phalanx.frontends.host.messages import ENDED

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
#: What people wait for in earnest is too long for a test.
SOON = """
import phalanx.frontends.host.launching.launcher as launcher
import phalanx.frontends.host.launching.patience as patience
patience.FOUND_WITHIN_S, patience.ANSWER_WITHIN_S, patience.LATE_S = 2.0, 1.5, 0.5
launcher.HostLauncher.__init__.__kwdefaults__["kill_stuck_s"] = 1.0
"""
#: It listens where the shim did, and hands the socket to a child: the kernel goes on naming the pid that is gone.
LISTEN = """
import json, os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told = sys.argv[1]
os.chdir(os.path.dirname(os.environ["PHALANX_KEY_FILE"]))
ready = json.loads(open("journal", "rb").read().split(b"\\n")[1])
rank, pid, start = ready["members"][0]
while not os.path.exists("control.sock"):
    time.sleep(0.01)

def answer(door):
    while True:
        line, _ = door.accept()
        try:
            if line.recv(65536):
                member = dict(rank=rank, generation=1, pid=pid, start=start, code=None, signal=None, exited=False)
                state = dict(v=1, event="state", generation=1, went=True, members=[member], spoke=[])
                line.sendall(json.dumps(state | dict(contained="cgroup2", empty=False, stuck=[])).encode() + b"\\n")
                while line.recv(65536):
                    pass  # told to stop, and does not
        except OSError:
            pass

def take_place():
    os.unlink("control.sock")
    door = socket.socket(socket.AF_UNIX)
    door.bind("control.sock")
    door.listen(8)
    return door
"""
REUSE = (
    LISTEN
    + """
listener = os.fork()
if listener == 0:
    door = take_place()
    if os.fork() == 0:
        answer(door)
    os._exit(0)
os.waitpid(listener, 0)
open(told + ".new", "w").write(str(listener))
os.rename(told + ".new", told)
time.sleep(1000)
"""
)
#: It takes a copy of the lock out of its shim (438 is pidfd_getfd), kills it, and answers for it from then on.
STEAL = (
    LISTEN
    + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
shim = json.loads(open("journal", "rb").read().split(b"\\n")[0])["pid"]
held = os.pidfd_open(shim)
copies = []
for name in os.listdir(f"/proc/{shim}/fd"):
    try:
        is_lock = os.readlink(f"/proc/{shim}/fd/{name}").endswith("/lock")
    except OSError:
        continue
    if is_lock:
        copies.append(libc.syscall(438, held, int(name), 0))
assert copies and min(copies) >= 0, copies
door = take_place()
for _ in range(3):  # whoever of them is killed, others are left
    if os.fork() == 0:
        os.setsid()
        answer(door)
os.kill(shim, signal.SIGKILL)
open(told, "w").close()
time.sleep(1000)
"""
)


def submit(daemon, code):
    told = daemon.homes[ADA] / "told"
    env = {"PATH": os.environ["PATH"], MARK: daemon.mark, "STARTS": str(daemon.by(ADA).starts_file)}
    job = daemon.by(ADA).submit([sys.executable, "-c", code, str(told)], 1, run={"env": env, "grace_s": 0.2})
    until(told.exists, lambda: f"the decoy:\n{daemon.log()}")
    return job, told


def start_as(pid: int) -> subprocess.Popen:
    """A process of root's that has this number, which nobody has any more."""
    for _ in range(200):
        LAST_PID.write_text(str(pid - 1), encoding="ascii")
        process = subprocess.Popen(["sleep", "1000"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    pytest.skip("others take the numbers faster than this test does")


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="pids cannot be chosen here")
def test_a_process_that_was_given_a_decoys_number_survives(make_shared):
    """Root's process has the number that the kernel names at the other end of a control socket; ada's job has the rest."""
    daemon = make_shared(gpus=1, before=SOON).start()
    job, told = submit(daemon, REUSE)
    victim = start_as(int(told.read_text(encoding="ascii")))
    try:
        daemon.restart()  # only a daemon that comes back asks who is there
        assert daemon.act(job, "cancel").status == 200
        ended = lambda: victim.poll() is not None or daemon.row(job)["state"] in ENDED  # noqa: E731
        until(ended, lambda: f"the end:\n{daemon.log()}")
        assert victim.poll() is None, "the daemon killed a process of root's for a job of ada's"
        daemon.check_quiet()
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize("kind", ["cgroup2", "cgroup1"])
def test_a_decoy_with_the_lock_of_its_shim_keeps_no_device_after_a_cancel(make_shared, kind):
    """It holds the lock, answers, and ignores whatever it is told; its control group is emptied all the same."""
    daemon = make_shared(
        gpus=1, before=f"{SOON}\nlauncher.HostLauncher.__init__.__kwdefaults__['contain'] = ({kind!r},)"
    ).start()
    if daemon.get("/v1/status")["containment"] != kind:
        pytest.skip(f"no {kind} here")
    job, _ = submit(daemon, STEAL)
    until(lambda: not daemon.shims(), "the shim to be gone")
    next_one = daemon.by(ADA).submit("true", 1)
    assert daemon.act(job, "cancel").status == 200
    until(lambda: daemon.row(job)["state"] in ENDED, lambda: f"the end:\n{daemon.log()}")
    assert daemon.marked(job) == {}, "its device is somebody else's, and it still runs"
    assert daemon.wait(next_one)["state"] == "completed"
    daemon.check_quiet()


def test_nobody_is_killed_below_a_process_that_has_only_the_number_of_a_shim():
    root = subprocess.Popen(["/bin/sh", "-c", "sleep 1000; true"])
    try:
        (child,) = until(lambda: containment.find_descendants(root.pid), "its child")
        start = containment.read_start(root.pid)
        assert containment.kill_descendants(root.pid, (start + 1, os.getuid())) == set()
        assert containment.kill_descendants(root.pid, (start, os.getuid() + 1)) == set()
        assert containment.read_start(child) is not None
        assert containment.kill_descendants(root.pid, (start, os.getuid())) == {child}
        assert root.wait() == 0
    finally:
        root.kill()
        root.wait()
