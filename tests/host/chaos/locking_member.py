"""A rank that nobody has to believe: it locks its devices, works in numbered steps, and notes its begin and its end.

    locking_member.py FOLDER STEPS SECONDS MANNER [COMMAND...]

A second holder of a device, or of the same rank, finds the lock taken and notes that. MANNER is what it does at a
SIGTERM: `dies`, or `saves` for a while and exits with 0 as if it had finished; `fails` exits with 3 half way if it is rank 0. With
a COMMAND it becomes that command and keeps its locks.
"""

import fcntl
import os
import signal
import sys
import threading
from pathlib import Path

#: Longer than a start takes, or nobody would ever meet somebody who is still leaving.
SAVING_S = 0.8

folder, steps, seconds, manner, *command = sys.argv[1:]
job, attempt, rank = (os.environ[f"PHALANX_{name}"] for name in ("JOB", "ATTEMPT", "RANK"))
asked_to_go = []
nap = threading.Event().wait


def note(*words):
    """One line, one write: whoever is killed has written all of it or nothing."""
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, f"{' '.join(words)}\n".encode())
    os.close(log)


def hold(what):
    """Take a lock that lasts as long as this process, whatever it becomes."""
    lock = os.open(f"{folder}/lock.{what}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("double", job, attempt, rank, what)
    os.set_inheritable(lock, True)


if manner == "saves":
    signal.signal(signal.SIGTERM, lambda *_: asked_to_go.append(True))
for device in os.environ["PHALANX_DEVICES"].split(","):
    hold(f"device.{device.replace('/', '_')}")
hold(f"rank.{job}.{rank}")
note("begin", job, attempt, rank)
if command:
    os.execv(command[0], command)  # noqa: S606 - it becomes the command, and keeps its locks
with Path(folder, f"work.{job}.{rank}").open("ab", buffering=0) as work:
    while (done := work.tell()) < int(steps):
        if manner == "fails" and rank == "0" and done >= int(steps) // 2:
            sys.exit(3)
        nap(float(seconds))
        if asked_to_go:
            nap(SAVING_S)
            note("saved", job, attempt, rank)
            sys.exit(0)
        work.write(b".")
note("end", job, attempt, rank)
