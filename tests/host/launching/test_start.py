"""Two phases: everybody at the gate, nobody through it, until one word lets all through or nobody."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from phalanx.frontends.host import containment
from phalanx.frontends.host.launching import patience, read_log, spawning
from phalanx.frontends.host.ports import CannotStart


def test_nobody_passes_the_gate_before_go(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        ready = await launcher.prepare(world.order(*(f"echo here > {tmp_path}/{rank}" for rank in range(3))))
        assert ready.generation == 1
        assert ready.contained == world.kind == launcher.containment
        for pid, start in ready.pids.values():
            assert containment.read_start(pid) == start
            await until(lambda pid=pid: containment.read_process(pid).session == pid, "a session of its own")
        assert world.story().went is False
        assert not any((tmp_path / str(rank)).exists() for rank in range(3))
        await launcher.go("1.1", 1)
        assert world.story().went is True
        await world.hear("empty")
        assert {event.rank: event.code for event in world.told("exit")} == {0: 0, 1: 0, 2: 0}
        assert all((tmp_path / str(rank)).exists() for rank in range(3))
        await launcher.forget("1.1")
        await until(lambda: not launcher._runs.is_locked("1.1"), "the shim to go")
        assert world.left() == set()

    world.play(scenario)


def test_members_are_in_their_cgroups_before_go(world_of):
    world = world_of("cgroup2")

    async def scenario():
        launcher = world.launcher()
        ready = await launcher.prepare(world.order("sleep 100", "sleep 100"))
        base = launcher._maker.ground.base
        for rank, (pid, _) in ready.pids.items():
            assert containment.open_group("cgroup2", f"{base}/1.1/1.{rank}").list_pids() == {pid}

    world.play(scenario)


def test_abort_leaves_nothing(held_world, tmp_path):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        ready = await launcher.prepare(world.order(f"echo here > {tmp_path}/never"))
        await launcher.abort("1.1")
        assert not (tmp_path / "never").exists()
        assert not (world.path / "1.1").exists()
        assert containment._is_gone(ready.pids[0][0])
        assert launcher._maker.ground is None or launcher._maker.ground.list_runs() == []
        await launcher.abort("1.1")
        assert await launcher.find() == []

    world.play(scenario)


def test_the_end_of_the_daemon_before_go_is_the_end_of_the_run(held_world, tmp_path):
    world = held_world

    async def scenario():
        first = world.launcher()
        ready = await first.prepare(world.order(f"echo here > {tmp_path}/never", "sleep 100"))
        world.shims.add(world.story().pid)
        await first.detach()
        second = world.launcher()
        [found] = await second.find()
        assert (found.run, found.alive, found.went, found.done, found.lost) == ("1.1", False, False, True, False)
        assert all(containment._is_gone(pid) for pid, _ in ready.pids.values())
        assert not (tmp_path / "never").exists()
        assert world.story().never_started
        # The same attempt may be prepared again: nobody has run.
        assert (await second.prepare(world.order("true"))).generation == 1

    world.play(scenario)


def test_a_shim_killed_before_go_takes_its_members_along(world, until):
    async def scenario():
        launcher = world.launcher()
        ready = await launcher.prepare(world.order("sleep 100", "sleep 100"))
        os.kill(world.story().pid, 9)
        await world.hear("lost")
        assert all(containment._is_gone(pid) for pid, _ in ready.pids.values())
        with pytest.raises(CannotStart, match="before anybody was let go"):
            await launcher.go("1.1", 1)
        await launcher.abort("1.1")  # nothing is left of it, and that is no error
        assert not world.launchers[-1]._runs.exists("1.1")

    world.play(scenario)


def test_a_gang_that_lost_somebody_at_the_gate_does_not_go(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        ready = await launcher.prepare(world.order("sleep 1000", f"echo here > {tmp_path}/never"))
        os.kill(ready.pids[0][0], 9)
        await until(lambda: containment._is_gone(ready.pids[0][0]), "it to die")
        with pytest.raises(CannotStart, match="a member died at the gate"):
            await launcher.go("1.1", 1)
        assert not (tmp_path / "never").exists()
        assert not launcher._runs.exists("1.1")
        assert containment._is_gone(ready.pids[1][0])
        assert (await launcher.prepare(world.order("true"))).generation == 1

    world.play(scenario)


def test_a_run_is_never_started_twice(world):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 100")
        with pytest.raises(CannotStart, match="looked after already"):
            await launcher.prepare(world.order("true"))
        await launcher.stop("1.1", None, "KILL", 0)
        await world.hear("empty")
        await launcher.forget("1.1")
        with pytest.raises(CannotStart, match="never started twice"):
            await launcher.prepare(world.order("true"))
        await launcher.discard("1.1")
        await launcher.prepare(world.order("true"))

    world.play(scenario)


def test_sixteen_members_go_at_once(world, tmp_path):
    async def scenario():
        launcher = world.launcher()
        ready = await world.start(launcher, *(f"echo $RANK{rank}; exit {rank}" for rank in range(16)))
        assert len({pid for pid, _ in ready.pids.values()}) == 16
        await world.hear("empty")
        assert {event.rank: event.code for event in world.told("exit")} == {rank: rank for rank in range(16)}
        assert [event.kind for event in world.events][-1] == "empty"

    world.play(scenario)


def test_how_members_end(world, tmp_path):
    not_executable = tmp_path / "data"
    not_executable.write_text("x")

    async def scenario():
        launcher = world.launcher()
        await launcher.prepare(
            world.order(
                "echo some words; exit 3",
                "kill -TERM $$; sleep 100",
                ["no-such-program-anywhere", "x"],
                [str(not_executable)],
                "ulimit -c 0; kill -SEGV $$; sleep 100",
                ["printf", "a\0b"],
            )
        )
        await launcher.go("1.1", 1)
        await world.hear("empty")
        ends = {event.rank: event for event in world.told("exit")}
        assert (ends[0].code, ends[0].signal, ends[0].tail) == (3, None, "some words\n")
        assert (ends[1].code, ends[1].signal) == (None, 15)
        assert ends[2].code == 127
        assert ends[2].tail == "phalanx: cannot start 'no-such-program-anywhere': No such file or directory\n"
        assert ends[3].code == 126
        assert "Permission denied" in ends[3].tail
        assert ends[4].signal == 11
        assert ends[5].code == 126
        assert "null" in ends[5].tail
        assert {rank: (code, number) for rank, (_, code, number) in world.story().exits.items()} == {
            rank: (event.code, event.signal) for rank, event in ends.items()
        }

    world.play(scenario)


def test_a_working_directory_that_is_gone(world, tmp_path):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "true", cwd=tmp_path / "gone")
        [end] = await world.hear("exit")
        assert end.code == 125
        assert f"cannot start in the working directory '{tmp_path}/gone'" in end.tail

    world.play(scenario)


def test_what_a_member_is_born_with(world, tmp_path):
    script = "ls -l /proc/self/fd | sed 's/.*[0-9] \\([0-9]* -> \\)/\\1/' | grep -v '/proc/' ; umask; pwd; cat /proc/self/status | grep Sig"

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, script, cwd=tmp_path, umask=0o027)
        await world.hear("exit")
        text = read_log(world.path / "1.1", 0)[0].decode()
        fds = sorted(line.split()[0] for line in text.splitlines() if "->" in line)
        assert fds == ["0", "1", "2"]
        assert "0 -> /dev/null" in text
        assert f"0027\n{tmp_path}\n" in text
        status = dict(line.split(":") for line in text.splitlines() if line.startswith("Sig"))
        theirs = ~(3 << 31)  # 32 and 33 are the C library's, and nobody can give them back
        assert int(status["SigBlk"], 16) & theirs == int(status["SigIgn"], 16) & theirs == 0

    world.play(scenario)


def test_the_shim_has_a_clean_environment_and_the_member_its_own(world, monkeypatch, until):
    monkeypatch.setenv("LD_PRELOAD_CANARY", "1")
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "env; sleep 100", env={"LD_LIBRARY_PATH": "/x", "PYTHONSTARTUP": "/y"})
        environ = containment.read_file(f"/proc/{world.story().pid}/environ").decode().split("\0")
        assert {entry.split("=")[0] for entry in environ if entry} <= {"PATH", "LANG", "LC_CTYPE"}
        member, _ = world.story().members[0]
        await until(lambda: member in world.left(), "the member to be itself")
        mine = containment.read_file(f"/proc/{member}/environ").decode().split("\0")
        assert "LD_LIBRARY_PATH=/x" in mine
        assert "PYTHONSTARTUP=/y" in mine
        assert "PHALANX_RUN=1.1" in mine
        assert f"PHALANX_SOCKET={world.path}/1.1/job.sock" in mine
        assert f"PHALANX_KEY_FILE={world.path}/1.1/key" in mine
        assert not any(entry.startswith("LD_PRELOAD_CANARY") for entry in mine)

    world.play(scenario)


def test_the_run_directory(world):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 100")
        path = world.path / "1.1"
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        for name in ("launch.json", "key", "lock", "journal", "shim.log", "logs/rank-0.log"):
            assert stat.S_IMODE((path / name).stat().st_mode) == 0o600, name
        assert len(bytes.fromhex((path / "key").read_text())) == 32
        launch = json.loads((path / "launch.json").read_text())
        assert (launch["version"], launch["run"], launch["job"], launch["attempt"]) == (1, "1.1", 1, 1)
        assert launcher._runs.is_locked("1.1")

    world.play(scenario)


def test_a_shim_that_cannot_run_is_an_error_with_its_words(world, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no libraries here >&2\nexit 1\n")
    broken.chmod(0o755)

    async def scenario():
        launcher = world.launcher(python=str(broken))
        with pytest.raises(CannotStart, match=r"ended before it answered.*no libraries here"):
            await launcher.prepare(world.order("true"))
        assert launcher._runs.list_names() == []
        missing = world.launcher(python=str(tmp_path / "none"))
        with pytest.raises(CannotStart, match="No such file or directory; install phalanx where"):
            await missing.prepare(world.order("true"))
        assert launcher._runs.list_names() == []
        assert launcher._runs.list_live() == []

    world.play(scenario)


@pytest.mark.parametrize(
    "says",
    [
        "not json",
        "[1]",
        '{"event":"ready"}',
        '{"event":"ready","generation":1,"members":7}',
        '{"event":"exit","rank":null}',
        '{"event":"failed","why":"no room"}',
    ],
)
def test_a_shim_that_talks_nonsense_is_ended(world, tmp_path, says, monkeypatch):
    monkeypatch.setattr(patience, "ANSWER_WITHIN_S", 0.2)
    impostor = tmp_path / "python"
    impostor.write_text(f"#!/bin/bash\necho '{says}' >&$5\nexec sleep 1000\n")
    impostor.chmod(0o755)

    async def scenario():
        launcher = world.launcher(python=str(impostor))
        with pytest.raises((CannotStart, TypeError, KeyError)):
            await launcher.prepare(world.order("true"))
        assert launcher._runs.list_names() == []

    world.play(scenario)


def test_a_job_is_not_spared_when_memory_runs_out_because_its_daemon_is(world, tmp_path, monkeypatch):
    """The unit gives the daemon a score of -500, and jobs had it too."""
    told = tmp_path / "told"
    told.write_text("-500\n", encoding="ascii")  # only a machine's own root may have such a score in earnest
    monkeypatch.setattr(spawning, "OWN_OOM_SCORE", str(told))
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text(encoding="ascii")

    async def scenario():
        await world.start(world.launcher(), "cat /proc/self/oom_score_adj")
        await world.hear("empty")

    try:
        own.write_text("300", encoding="ascii")  # what is inherited without our doing anything
        world.play(scenario)
    finally:
        own.write_text(before, encoding="ascii")
    assert read_log(world.path / "1.1", 0)[0] == b"0\n"


def test_a_shim_that_says_nothing_is_ended(world, tmp_path, monkeypatch, until):
    monkeypatch.setattr(patience, "READY_WITHIN_S", 0.3)
    monkeypatch.setattr(patience, "ANSWER_WITHIN_S", 0.2)
    impostor = tmp_path / "python"
    impostor.write_text(f"#!/bin/bash\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    impostor.chmod(0o755)

    async def scenario():
        launcher = world.launcher(python=str(impostor))
        with pytest.raises(CannotStart, match="was not ready in"):
            await launcher.prepare(world.order("true"))
        assert launcher._runs.list_names() == []
        await until(lambda: not launcher.shims.reaper._children, "the impostor to be waited for")

    world.play(scenario)


def test_descriptors_are_closed_on_forget(held_world, until):
    world = held_world

    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    async def scenario():
        launcher = world.launcher()
        before = None
        for job in range(1, 6):
            await world.start(launcher, "true", job=job)
            await world.hear("empty", run=f"{job}.1")
            await launcher.forget(f"{job}.1")
            await until(lambda: not launcher.shims.reaper._children, "the shim to be waited for")
            before = before or count()
        assert count() <= before
        assert launcher.shims.links == {}
        assert launcher._runs.list_live() == []
        assert launcher._maker.ground is None or launcher._maker.ground.list_runs() == []
        assert len(launcher._runs.list_names()) == 5  # for their logs

    world.play(scenario)
