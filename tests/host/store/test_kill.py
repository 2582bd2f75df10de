"""kill -9 while it writes, triggered by acknowledgements: whatever was acknowledged is there, whole and once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from selection import rest_long

from phalanx.frontends.host.store import open_store

CHILD = Path(__file__).with_name("writing_child.py")
CYCLES = 32
JOBS_PER_WRITE = 3


def kill_after(home: Path, cycle: int, clients: int, acks: int) -> list[list[str]]:
    """Let a child write, and kill it when it has acknowledged so many writes; all it had acknowledged by then."""
    with subprocess.Popen([sys.executable, CHILD, home, str(cycle), str(clients)], stdout=subprocess.PIPE) as child:
        try:
            lines = [child.stdout.readline() for _ in range(acks)]
            assert all(lines), "the child ended by itself"
        finally:
            os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().splitlines(keepends=True)
    assert child.returncode == -signal.SIGKILL
    return [line.decode().split() for line in [*lines, *rest] if line.endswith(b"\n")]


@pytest.mark.parametrize("clients", rest_long([8, 1], 1))
def test_nothing_acknowledged_is_lost_and_nothing_is_half_there(home, clock, clients):
    dice = random.Random(clients)
    first_by_key: dict[str, int] = {}
    running: set[str] = set()
    unacknowledged: set[str] = set()
    for cycle in range(CYCLES // 2):
        for key, word in kill_after(home, cycle, clients, dice.randint(1, 60)):
            if word == "running":
                running.add(key)
            else:
                first_by_key[key] = int(word)
        store = open_store(home, clock=clock)
        try:
            assert store.restored is None
            jobs = defaultdict(list)
            for record in store.jobs():
                jobs[record.name].append(record)
            events = {event.event for event in store.events(limit=1_000_000)}
            blobs = {record.id: store.load_run(record.id) for found in jobs.values() for record in found}
        finally:
            store.close_now()
        # Not earlier: this would put the log away before the store has seen it.
        with closing(sqlite3.connect(home / "phalanx.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for key, first in first_by_key.items():
            assert [record.id for record in jobs[key]] == [first, first + 1, first + 2]
        for key in running:
            assert jobs[key][0].state == "running"
        # A write is all there or not at all: its jobs, what they run, its event.
        assert {len(found) for found in jobs.values()} == {JOBS_PER_WRITE}
        assert events == set(jobs)
        assert all(
            blobs[record.id].startswith(b'{"name":"%s' % name.encode())
            for name, found in jobs.items()
            for record in found
        )
        # Beyond what was acknowledged there is at most what was under way: one write of each client.
        new = jobs.keys() - first_by_key.keys() - unacknowledged
        assert len(new) <= clients
        unacknowledged |= new
    assert len(first_by_key) > CYCLES
