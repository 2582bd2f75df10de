"""Stopping: a signal, a grace, and then nothing is left, whatever a member did to stay."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from phalanx.frontends.host import containment
from phalanx.frontends.host.launching import patience

#: A child in a session of its own whose parent is gone, with a clean environment: nothing but a cgroup, or
#: a subreaper, has hold of it.
ESCAPE = "setsid env -i sh -c 'echo $$ > {file}; exec sleep 1000' </dev/null >/dev/null 2>&1 &"
#: The same with its environment.
WANDER = "setsid sh -c 'echo $$ > {file}; exec sleep 1000' </dev/null >/dev/null 2>&1 &"


def read_pid(path: Path) -> int | None:
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None


def test_an_escapee_keeps_the_run_open_and_is_killed_at_stop(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        await world.start(
            launcher, ESCAPE.format(file=tmp_path / "pid") + f" while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done"
        )
        [end] = await world.hear("exit")
        assert end.code == 0
        escapee = read_pid(tmp_path / "pid")
        assert not containment._is_gone(escapee)
        assert containment.read_process(escapee).parent == world.story().pid  # the subreaper has it
        assert world.told("empty") == []
        assert not world.story().done
        await launcher.stop("1.1", None, "TERM", 0.2)
        await world.hear("empty")
        assert containment._is_gone(escapee)
        assert world.story().done

    world.play(scenario)


def test_some_ranks_are_stopped_with_their_escapees_and_others_stay(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        lines = [WANDER.format(file=tmp_path / f"pid{rank}") + " sleep 1000" for rank in range(3)]
        await world.start(launcher, *lines)
        await until(lambda: all(read_pid(tmp_path / f"pid{rank}") for rank in range(3)), "the escapees")
        escapees = [read_pid(tmp_path / f"pid{rank}") for rank in range(3)]
        await launcher.stop("1.1", [1, 2], "TERM", 0.05)
        await world.hear("exit", 2)
        await until(lambda: all(containment._is_gone(pid) for pid in escapees[1:]), "the escapees to end")
        assert not containment._is_gone(escapees[0])
        assert {event.rank for event in world.told("exit")} == {1, 2}
        await launcher.stop("1.1", None, "TERM", 0.05)
        await world.hear("empty")
        assert containment._is_gone(escapees[0])

    world.play(scenario)


def test_an_escapee_of_a_member_that_ended_goes_with_its_rank(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000", WANDER.format(file=tmp_path / "pid"))
        await world.hear("exit")
        await until(lambda: read_pid(tmp_path / "pid"), "the escapee")
        await launcher.stop("1.1", [1], "TERM", 20)  # it obeys SIGTERM, and gets it although its member is gone
        await until(lambda: containment._is_gone(read_pid(tmp_path / "pid")), "the escapee to end")
        assert world.told("empty") == []

    world.play(scenario)


TRAP = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saving", flush=True), sys.exit(7)))
print("up", flush=True)
time.sleep(1000)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(1000)
"""


def test_who_obeys_ends_by_itself_and_who_does_not_is_killed(world, until):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, [sys.executable, "-c", TRAP], [sys.executable, "-c", DEAF])
        logs = [world.path / "1.1" / "logs" / f"rank-{rank}.log" for rank in (0, 1)]
        await until(lambda: all("up" in log.read_text() for log in logs), "both to be up")
        await launcher.stop("1.1", None, "TERM", 1.0)
        await launcher.stop("1.1", None, "TERM", 1000.0)  # puts nothing off, signals nobody twice
        await world.hear("empty")
        ends = {event.rank: event for event in world.told("exit")}
        assert (ends[0].code, ends[0].signal, ends[0].tail) == (7, None, "up\nsaving\n")
        assert (ends[1].code, ends[1].signal) == (None, 9)

    world.play(scenario)


def test_a_second_order_brings_the_kill_forward(world, until):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, [sys.executable, "-c", DEAF])
        await until(lambda: "up" in (world.path / "1.1/logs/rank-0.log").read_text(), "it to be up")
        await launcher.stop("1.1", None, "TERM", 1000.0)
        await launcher.stop("1.1", None, "TERM", 0.0)
        [end] = await world.hear("exit")
        assert end.signal == 9

    world.play(scenario)


def test_a_stopped_member_gets_its_grace_too(world, until):
    async def scenario():
        launcher = world.launcher()
        ready = await world.start(launcher, [sys.executable, "-c", TRAP], [sys.executable, "-c", DEAF])
        logs = [world.path / "1.1" / "logs" / f"rank-{rank}.log" for rank in (0, 1)]
        await until(lambda: all("up" in log.read_text() for log in logs), "both to be up")
        for pid, _ in ready.pids.values():
            os.kill(pid, signal.SIGSTOP)
        await until(lambda: all(containment.read_process(pid).state == "T" for pid, _ in ready.pids.values()), "a halt")
        await launcher.stop("1.1", None, "TERM", 2.0)
        await world.hear("empty")
        assert {event.rank: event.code for event in world.told("exit")} == {0: 7, 1: None}

    world.play(scenario)


def test_signal_only_signals_the_ranks_it_names(world, until):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "trap 'exit 5' USR1; while :; do sleep 0.02; done", "sleep 1000")
        await until(lambda: len(world.left()) >= 2, "both to be up")
        pid = world.story().members[0][0]
        mask = 1 << (signal.SIGUSR1 - 1)
        await until(lambda: int(_status(pid, "SigCgt"), 16) & mask, "the trap to be set")
        await launcher.signal("1.1", [0], "USR1")
        [end] = await world.hear("exit")
        assert (end.rank, end.code) == (0, 5)
        await launcher.signal("1.1", None, "KILL")
        assert (await world.hear("exit", 2))[1].signal == 9

    world.play(scenario)


def _status(pid, word):
    lines = containment.read_file(f"/proc/{pid}/status").decode().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(word))


BOMB = "b() { b | b & }; b; b; b; sleep 1000"


@pytest.mark.parametrize("kind", ["cgroup2", "cgroup1"])
def test_a_fork_bomb_is_bounded_and_ended(world_of, kind, until):
    world = world_of(kind)

    async def scenario():
        launcher = world.launcher()
        ground = launcher._maker.ground
        if ground.pids_base is None and not containment.read_file(f"{ground.base}/pids.max"):
            pytest.skip("no pids controller")
        order = world.order(["/bin/bash", "-c", BOMB], "sleep 1000", pids_max=60)
        await launcher.prepare(order)
        await launcher.go("1.1", 1)
        group = containment.open_group(kind, f"{launcher._maker.ground.base}/1.1")
        await until(lambda: len(group.list_pids()) >= 30 or world.told("exit"), "the bomb to go off")
        assert len(group.list_pids()) <= 60
        await launcher.stop("1.1", None, "TERM", 0.0)
        await world.hear("empty")
        assert group.list_pids() == set()

    world.play(scenario)


def test_those_who_fork_all_the_time_are_swept_without_a_cgroup(world, until):
    async def scenario():
        launcher = world.launcher()
        # Each lives for an instant, and its child goes on: nobody who is looked up is still there to be killed.
        relay = "import os, time\nwhile True:\n    time.sleep(0.002)\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
        await world.start(launcher, [sys.executable, "-c", relay], [sys.executable, "-c", relay])
        await world.hear("exit", 2)
        await launcher.stop("1.1", None, "TERM", 0.0)
        await world.hear("empty")
        assert world.left() == set()

    world.play(scenario)


def test_what_does_not_die_is_reported_and_waited_for(world_of, until):
    world = world_of("cgroup1")

    async def scenario():
        launcher = world.launcher(kill_stuck_s=0.3)
        ready = await world.start(launcher, "exec sleep 1000")
        above = Path(launcher._maker.ground.base) / "freezer.state"
        above.write_text("FROZEN")  # as if it slept in a driver: no signal reaches it
        try:
            await launcher.stop("1.1", None, "TERM", 0.0)
            [stuck] = await world.hear("stuck")
            assert stuck.message["pids"] == [ready.pids[0][0]]
            assert world.told("empty") == []
        finally:
            above.write_text("THAWED")
        await world.hear("empty")
        assert len(world.told("stuck")) == 1

    world.play(scenario)


def test_nobody_is_signalled_who_only_has_the_number():
    start = containment.read_start(os.getpid())
    assert containment.send_signal(os.getpid(), 0, lambda process: process.start == start)
    assert not containment.send_signal(os.getpid(), 0, lambda process: process.start == start + 1)
    assert not containment.kill_identified(os.getpid(), start + 1, os.getuid())
    assert not containment.kill_identified(1 << 22, 1, os.getuid())


def test_the_name_of_a_process_cannot_lie_about_it(tmp_path):
    pid = os.fork()
    if pid == 0:
        Path("/proc/self/comm").write_text("x) R 1 1 1")
        signal.pause()
    try:
        while b"x) R" not in containment.read_file(f"/proc/{pid}/comm"):
            pass
        process = containment.read_process(pid)
        assert (process.parent, process.pid) == (os.getpid(), pid)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("ranks", [None, [1]])
def test_a_stopped_shim_keeps_nothing_much_longer_than_the_grace(held_world, until, ranks):
    """Whoever stops it has the devices for as long, so it must not be for as long as SIGKILL may take."""
    world = held_world
    if world.kind == "weak" and ranks is not None:
        pytest.skip("nobody but the shim knows who came from which member")

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, [sys.executable, "-c", DEAF], [sys.executable, "-c", DEAF])
        logs = [world.path / "1.1" / "logs" / f"rank-{rank}.log" for rank in (0, 1)]
        await until(lambda: all("up" in log.read_text() for log in logs), "both to be up")
        members = world.story().members
        os.kill(world.story().pid, signal.SIGSTOP)
        began = time.monotonic()
        await launcher.stop("1.1", ranks, "TERM", 0.3)
        await until(lambda: containment._is_gone(members[1][0]), "its end")
        assert time.monotonic() - began < 0.3 + 4
        if ranks is None:
            await world.hear("lost")
            assert time.monotonic() - began < 0.3 + 6
            assert world.left() == set()
        else:
            assert not containment._is_gone(members[0][0]), "nobody wants its end"

    world.play(scenario)


def test_a_shim_that_does_what_it_is_told_is_not_killed_for_its_members(held_world, until, monkeypatch):
    """After the grace they are killed from here as well, and it still tells how each ended."""
    world = held_world

    async def scenario():
        monkeypatch.setattr(patience, "LATE_S", -0.4)  # before the shim does it
        launcher = world.launcher()
        await world.start(launcher, [sys.executable, "-c", DEAF])
        await until(lambda: "up" in (world.path / "1.1/logs/rank-0.log").read_text(), "it to be up")
        await launcher.stop("1.1", None, "TERM", 0.5)
        await world.hear("empty")
        assert [event.signal for event in world.told("exit")] == [9]
        assert world.told("lost") == []
        assert world.story().done

    world.play(scenario)
