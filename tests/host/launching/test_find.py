"""Daemons come and go: runs are found again, adopted, or cleared away, and no exit is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from phalanx.frontends.host import containment
from phalanx.frontends.host.launching import patience, shims
from phalanx.frontends.host.launching.directory import RunFacts
from phalanx.frontends.host.launching.line import connect
from phalanx.frontends.host.launching.run_ends import tell_shim_loss
from phalanx.frontends.host.launching.shim_link import ShimLink
from phalanx.frontends.host.ports import CannotStart


async def change_daemons(world, first):
    """The first is gone, the second has looked around."""
    for run in list(first.shims.links):
        world.shims.add(world.launchers[-1]._runs.read_story(run).pid)
    await first.detach()
    second = world.launcher()
    return second, {found.run: found for found in await second.find()}


def test_a_running_run_is_adopted(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        first = world.launcher()
        ready = await world.start(first, f"while [ ! -e {tmp_path}/stop ]; do sleep 0.02; done; exit 4", "sleep 1000")
        second, found = await change_daemons(world, first)
        [run] = found.values()
        assert (run.alive, run.went, run.done, run.lost, run.same_boot) == (True, True, False, False, True)
        assert (run.generation, dict(run.members), run.exits) == (1, dict(ready.pids), {})
        (tmp_path / "stop").touch()
        [end] = await world.hear("exit")
        assert (end.rank, end.code, end.generation) == (0, 4, 1)
        await second.stop("1.1", None, "TERM", 5.0)
        await world.hear("empty")
        await second.forget("1.1")
        await until(lambda: not second._runs.is_locked("1.1"), "the shim to go")
        assert await second.find() == []

    world.play(scenario)


def test_exits_while_no_daemon_was_there(world, tmp_path, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, "exit 3", "kill -KILL $$", "sleep 1000")
        world.shims.add(world.story().pid)
        await first.detach()
        await until(lambda: len(world.story().exits) == 2, "two exits in the journal")
        second = world.launcher()
        [found] = await second.find()
        assert found.alive
        assert found.exits == {0: (3, None), 1: (None, 9)}
        assert sorted(found.members) == [0, 1, 2]
        heard = len(world.told("exit"))
        await second.stop("1.1", [2], "KILL", 0)
        await world.hear("empty")
        assert [event.rank for event in world.told("exit")[heard:]] == [2]  # the others are not news

    world.play(scenario)


def test_a_run_that_ended_while_no_daemon_was_there(world, tmp_path, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, f"while [ ! -e {tmp_path}/stop ]; do sleep 0.02; done; exit 6")
        world.shims.add(world.story().pid)
        await first.detach()
        (tmp_path / "stop").touch()
        await until(lambda: world.story().done, "the run to end")
        second = world.launcher()
        [found] = await second.find()
        assert (found.alive, found.done, found.lost, found.exits) == (True, True, False, {0: (6, None)})
        await second.forget("1.1")
        await until(lambda: not second._runs.is_locked("1.1"), "the shim to go")
        assert world.events == []  # all of it was in what was found

    world.play(scenario)


def test_the_journal_speaks_for_a_shim_that_has_gone(world, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, "sleep 0.05; exit 6")
        world.shims.add(pid := world.story().pid)
        await first.detach()
        await until(lambda: world.story().done, "the run to end")
        os.kill(pid, signal.SIGKILL)
        second = world.launcher()
        [found] = await second.find()
        assert (found.alive, found.went, found.done, found.lost) == (False, True, True, False)
        assert found.exits == {0: (6, None)}

    world.play(scenario)


def test_a_shim_killed_under_the_daemon_is_lost_with_all_it_held(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        escape = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' </dev/null >/dev/null 2>&1 & sleep 1000"
        await world.start(launcher, escape, "exit 9")
        await until((tmp_path / "pid").exists, "the escapee")
        await world.hear("exit")
        os.kill(world.story().pid, signal.SIGKILL)
        [lost] = await world.hear("lost")
        assert lost.run == "1.1"
        assert world.left() == set()
        assert [event.rank for event in world.told("exit")] == [1]
        assert world.told("empty") == []
        await launcher.stop("1.1", None, "TERM", 1.0)  # nobody to stop, and no error
        await launcher.forget("1.1")
        assert launcher._maker.ground is None or launcher._maker.ground.list_runs() == []

    world.play(scenario)


def test_an_exit_that_only_the_journal_knows_is_told_before_lost(world, monkeypatch, until):
    async def scenario():
        launcher = world.launcher()
        ready = await world.start(launcher, "sleep 1000", "echo last words; exit 5")
        await world.hear("exit")
        # As if the shim had died between writing the exit down and sending it.
        world.events.clear()
        launcher.shims.links["1.1"]._exits.clear()
        os.kill(world.story().pid, signal.SIGKILL)
        await world.hear("lost")
        assert [(event.kind, event.rank, event.code, event.tail) for event in world.events] == [
            ("exit", 1, 5, "last words\n"),
            ("lost", None, None, ""),
        ]
        assert containment._is_gone(ready.pids[0][0])

    world.play(scenario)


def test_a_shim_that_died_while_no_daemon_was_there(held_world, until):
    world = held_world

    async def scenario():
        first = world.launcher()
        await world.start(first, "sleep 1000", "sleep 1000")
        world.shims.add(pid := world.story().pid)
        await until(lambda: len(world.left()) >= 2, "both to be up")
        await first.detach()
        os.kill(pid, signal.SIGKILL)
        second = world.launcher()
        [found] = await second.find()
        assert (found.alive, found.went, found.done, found.lost) == (False, True, True, True)
        assert world.left() == set()

    world.play(scenario)


def test_nothing_of_another_boot_is_signalled(held_world, until, monkeypatch):
    world = held_world

    async def scenario():
        first = world.launcher()
        ready = await world.start(first, "sleep 1000", "exit 2")
        await world.hear("exit")
        world.shims.add(world.story().pid)
        await first.detach()
        os.kill(world.story().pid, signal.SIGKILL)
        monkeypatch.setenv("PHALANX_BOOT_ID", "another")
        second = world.launcher()
        [found] = await second.find()
        assert (found.alive, found.went, found.done, found.lost, found.same_boot) == (False, True, True, True, False)
        assert found.exits == {1: (2, None)}
        assert containment.read_process(ready.pids[0][0]) is not None
        assert not containment._is_gone(ready.pids[0][0])
        monkeypatch.delenv("PHALANX_BOOT_ID")

    world.play(scenario)


def test_after_a_boot_the_directories_are_believed_not_the_list(world, monkeypatch, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, "exit 2")
        await world.hear("empty")
        world.shims.add(pid := world.story().pid)
        await first.detach()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not first._runs.is_locked("1.1"), "the shim to go")
        (world.path / ".live" / "1.1").write_text("{")  # the power went while it was written
        monkeypatch.setenv("PHALANX_BOOT_ID", "another")
        second = world.launcher()
        [found] = await second.find()
        assert (found.exits, found.same_boot) == ({0: (2, None)}, False)
        assert await world.launcher().find() == []  # once is enough

    world.play(scenario)


@pytest.mark.parametrize("shim", ["lives", "was killed"])
def test_a_list_that_was_removed_makes_nobody_dead(held_world, until, shim):
    """Not even one whose shim was killed counts as of another boot: what it left is ended."""
    world = held_world

    async def scenario():
        first = world.launcher()
        ready = await world.start(first, "sleep 1000", "sleep 1000")
        world.shims.add(pid := world.story().pid)
        await until(lambda: len(world.left()) >= 2, "both to be up")
        kept = first._runs.list_live()
        await first.detach()
        if shim == "was killed":
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(world.path / ".live")
        second = world.launcher()
        [found] = await second.find()
        if shim == "was killed":
            assert (found.alive, found.went, found.lost, found.same_boot) == (False, True, True, True)
        else:
            assert (found.alive, found.lost, found.members) == (True, False, ready.pids)
            assert second._runs.list_live() == kept, "with the process of its shim"
            await second.stop("1.1", None, "KILL", 0)
            await world.hear("empty")
        assert world.left() == set()
        await second.forget("1.1")

    world.play(scenario)


def spoil(path):
    path.write_bytes(b"\xb4" + path.read_bytes()[1:])


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [spoil, replace_by_folder])
def test_a_note_of_the_boot_that_makes_no_sense_keeps_nobody_from_starting(world, harm):
    async def scenario():
        first = world.launcher()
        await first.find()
        await world.start(first, "sleep 1000")
        world.shims.add(world.story().pid)
        await first.detach()
        harm(world.path / ".live" / "boot")
        [found] = await world.launcher().find()
        assert found.alive

    world.play(scenario)


def test_runs_that_were_over_when_the_list_was_removed_are_over(world, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, "exit 2")
        await world.hear("empty")
        world.shims.add(world.story().pid)
        await first.forget("1.1")
        await until(lambda: not first._runs.is_locked("1.1"), "the shim to go")
        await first.detach()
        shutil.rmtree(world.path / ".live")
        [found] = await world.launcher().find()
        assert (found.done, found.exits, found.same_boot) == (True, {0: (2, None)}, True)

    world.play(scenario)


def test_members_join_at_a_gate_of_their_own(held_world, tmp_path, until):
    world = held_world

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000", "sleep 1000")
        with pytest.raises(CannotStart, match=r"ranks \[1\] are still there"):
            await launcher.add("1.1", 2, [world.member(1, "true")])
        ready = await launcher.add("1.1", 2, [world.member(2, f"echo here > {tmp_path}/joined; exit 8")])
        assert (ready.generation, sorted(ready.pids), ready.contained) == (2, [2], world.kind)
        with pytest.raises(CannotStart, match="cannot join now"):
            await launcher.add("1.1", 3, [world.member(3, "true")])
        assert not (tmp_path / "joined").exists()
        await launcher.go("1.1", 2)
        [end] = await world.hear("exit")
        assert (end.rank, end.generation, end.code) == (2, 2, 8)
        assert (tmp_path / "joined").exists()
        # The same rank again, in the same log.
        await launcher.add("1.1", 3, [world.member(2, "echo again; sleep 1000")])
        await launcher.go("1.1", 3)
        await until(lambda: "again" in (world.path / "1.1/logs/rank-2.log").read_text(), "the second of rank 2")
        second, found = await change_daemons(world, launcher)
        assert (found["1.1"].generation, found["1.1"].exits) == (3, {})
        await second.stop("1.1", None, "KILL", 0)
        await world.hear("empty")

    world.play(scenario)


def test_members_that_wait_go_home_with_the_daemon_that_called_them(world, tmp_path, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, "sleep 1000")
        ready = await first.add("1.1", 2, [world.member(1, f"echo here > {tmp_path}/never")])
        second, found = await change_daemons(world, first)
        assert (found["1.1"].generation, sorted(found["1.1"].members)) == (1, [0])
        await until(lambda: containment._is_gone(ready.pids[1][0]), "the one that waited to go")
        assert not (tmp_path / "never").exists()
        ready = await second.add("1.1", 2, [world.member(1, f"echo here > {tmp_path}/never")])
        await second.abort("1.1")
        await until(lambda: containment._is_gone(ready.pids[1][0]), "the one that waited to go")
        assert world.told("exit") == []
        assert not (tmp_path / "never").exists()
        assert (await second.add("1.1", 2, [world.member(1, "exit 1")])).generation == 2

    world.play(scenario)


def test_a_line_that_is_cut_is_taken_up_again(world, until, monkeypatch):
    allowed = []

    def connect_when_allowed(*arguments):
        if not allowed:
            raise OSError
        return connect(*arguments)

    monkeypatch.setattr(shims, "connect", connect_when_allowed)

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, f"while [ ! -e {world.path}/stop ]; do sleep 0.02; done; echo bye", "sleep 1000")
        with socket.socket(socket.AF_UNIX) as stranger:  # of the right user: it takes the daemon's place
            stranger.connect(str(world.path / "1.1" / "control.sock"))
            await until(lambda: launcher.shims.links["1.1"].line is None, "the line to be cut")
            (world.path / "stop").touch()
            await until(lambda: world.story().exits, "an exit that the daemon does not hear of")
            await launcher.stop("1.1", [1], "KILL", 0)  # said to nobody yet
            assert world.events == []
            allowed.append(True)
            await world.hear("empty")
        ends = [(event.rank, event.code, event.signal, event.tail) for event in world.told("exit")]
        assert ends == [(0, 0, None, "bye\n"), (1, None, 9, "")]

    world.play(scenario)


def test_a_shim_that_hangs_up_all_the_time_is_ended(world, until, monkeypatch):
    monkeypatch.setattr(patience, "CUTS_MAX", 3)

    async def scenario():
        launcher = world.launcher()
        ended_at, send_signal = [], containment.send_signal

        def note(pid, *rest):
            ended_at.append(launcher.shims.links["1.1"].cuts)
            return send_signal(pid, *rest)

        monkeypatch.setattr(containment, "send_signal", note)
        await world.start(launcher, "sleep 1000")
        while not world.told("lost"):
            line = launcher.shims.links["1.1"].line
            if line is not None:
                line.abort()
            await asyncio.sleep(0.01)
        # Killed is not yet dead: on a busy machine there are more lines, and cuts, until it is.
        assert ended_at[0] == 4
        assert world.left() == set()

    world.play(scenario)


def test_a_shim_that_holds_its_lock_and_does_not_answer_is_killed(world, monkeypatch):
    async def scenario():
        first = world.launcher()
        await world.start(first, "sleep 1000")
        world.shims.add(pid := world.story().pid)
        await first.detach()
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(patience, "ANSWER_WITHIN_S", 0.2)
        monkeypatch.setattr(patience, "FOUND_AT_FIRST_S", 0.2)
        monkeypatch.setattr(patience, "FOUND_WITHIN_S", 0.5)
        second = world.launcher()
        [found] = await second.find()
        assert (found.alive, found.went, found.lost, found.done) == (True, True, False, False), "nobody waits for it"
        await world.hear("lost")
        assert world.left() == set()

    world.play(scenario)


def remove(path):
    path.unlink()


def empty(path):
    os.truncate(path, 0)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("lock", remove),
        ("journal", remove),
        ("journal", empty),
        pytest.param("control.sock", remove, marks=pytest.mark.long),
    ],
)
def test_a_shim_that_lives_is_found_without_one_of_its_files(world, tmp_path, name, harm):
    async def scenario():
        first = world.launcher()
        ready = await world.start(first, "sleep 1000", f"while [ ! -e {tmp_path}/stop ]; do sleep 0.02; done; exit 3")
        world.shims.add(world.story().pid)
        await first.detach()
        harm(world.path / "1.1" / name)
        second = world.launcher()
        [found] = await second.find()
        assert (found.alive, found.went, found.lost) == (True, True, False)
        assert found.members == ready.pids
        (tmp_path / "stop").touch()
        [end] = await world.hear("exit")
        assert (end.rank, end.code) == (1, 3)
        await second.stop("1.1", None, "KILL", 0)
        await world.hear("empty")
        await second.forget("1.1")

    world.play(scenario)


@pytest.mark.long
def test_who_killed_a_shim_that_could_not_be_reached_is_said(world, monkeypatch):
    """It was stopped, so it does not make its socket anew."""

    async def scenario():
        first = world.launcher()
        await world.start(first, "sleep 1000")
        world.shims.add(pid := world.story().pid)
        await first.detach()
        os.kill(pid, signal.SIGSTOP)
        for name in ("control.sock", "journal"):
            (world.path / "1.1" / name).unlink()
        monkeypatch.setattr(patience, "FOUND_AT_FIRST_S", 0.2)
        monkeypatch.setattr(patience, "FOUND_WITHIN_S", 0.5)
        [found] = await world.launcher().find()
        assert (found.alive, found.done) == (True, False)
        [lost] = await world.hear("lost")
        why = tell_shim_loss(**lost.message)
        assert "somebody removed control.sock from its run directory, so the daemon killed it" in why

    world.play(scenario)


@pytest.mark.parametrize(("said", "told"), [(b'{"a":1}\n', "cannot mean"), (b'{"event":"new"}\n', "does not know")])
def test_who_plays_shim_and_talks_nonsense_is_hung_up_on_and_told_of_once(until, caplog, said, told):
    """However often it has the line again, and however much it says."""
    caplog.set_level("INFO")
    heard, take = [], ShimLink._take

    class Listened(ShimLink):
        def _take(self, message):
            heard.append(message)
            take(self, message)

    async def scenario():
        facts = RunFacts("1.1", os.getuid(), "boot", "PHALANX_MARK=x:1.1:", "weak")
        link = Listened(facts, *[lambda _: None] * 3)
        for _ in range(5):
            here, there = socket.socketpair()
            with there:
                there.sendall(said * 2000)
                await asyncio.get_running_loop().create_connection(link.make_line, sock=here)
                await until(lambda: link.line is None, "the end of the line")
        assert len(heard) < 1100, "what stands behind it is not read"

    asyncio.run(scenario())
    assert [told in record.message for record in caplog.records][:1] == [True]
    assert len(caplog.records) <= 2


def test_a_cgroup_that_an_earlier_daemon_made_elsewhere_goes_too(world_of, monkeypatch):
    world = world_of("cgroup2")

    async def scenario():
        first = world.launcher()
        first._maker._name = "elsewhere." + first._maker._name  # as if it had been started in another session
        await world.start(first, "sleep 1000")
        second, _ = await change_daemons(world, first)
        group = containment.open_group("cgroup2", f"{first._maker.ground.base}/1.1")
        assert group.list_pids() != set()
        await second.stop("1.1", None, "KILL", 0)
        await world.hear("empty")
        await second.forget("1.1")
        assert not containment.read_file(f"{group.path}/cgroup.events")
        first._maker.ground.close()

    world.play(scenario)


def test_many_runs_at_once(world):
    async def scenario():
        first = world.launcher()
        jobs = range(1, 13)
        await asyncio.gather(*(first.prepare(world.order("sleep 1000", job=job)) for job in jobs))
        await asyncio.gather(*(first.go(f"{job}.1", 1) for job in jobs))
        second, found = await change_daemons(world, first)
        assert sorted(found) == sorted(f"{job}.1" for job in jobs)
        assert all(run.alive for run in found.values())
        await asyncio.gather(*(second.stop(run, None, "KILL", 0) for run in found))
        await world.hear("empty", 12)
        await asyncio.gather(*(second.forget(run) for run in found))

    world.play(scenario)


CRASHING = """
import asyncio, os, sys
from pathlib import Path
from phalanx.frontends.host.launching import HostLauncher
from phalanx.frontends.host.ports import MemberOrder, Order
member = MemberOrder(0, ["/bin/sh", "-c", "echo here > never"], {"PATH": "/bin"}, sys.argv[2])
order = Order(1, 1, 1, os.getuid(), os.getgid(), "", [member], 1 << 20)
asyncio.run(HostLauncher(Path(sys.argv[1]), drop_privileges=False).prepare(order))
"""


def test_the_daemon_killed_right_after_the_shim_was_forked(world, tmp_path):
    async def scenario():
        env = {**os.environ, "PHALANX_CRASH": "start.shims_forked", "PHALANX_CRASH_LOG": str(tmp_path / "passed")}
        command = [sys.executable, "-c", CRASHING, str(world.path), str(tmp_path)]
        ended = await asyncio.to_thread(subprocess.run, command, env=env, check=False)
        assert ended.returncode == -signal.SIGKILL
        assert (tmp_path / "passed").read_text() == "start.shims_forked\n"
        second = world.launcher()
        [found] = await second.find()  # may come before the shim has read a line
        assert (found.alive, found.went, found.done, found.lost) == (False, False, True, False)
        assert not second._runs.is_locked("1.1")
        assert not (tmp_path / "never").exists()
        await second.abort("1.1")
        assert not second._runs.exists("1.1")

    world.play(scenario)
