"""A place for runs, launchers on it, and an end to everything they started, whatever the test did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from phalanx.frontends.host import containment
from phalanx.frontends.host.launching import HostLauncher
from phalanx.frontends.host.launching.clearing import clear_run
from phalanx.frontends.host.ports import MemberOrder, Order

LIMIT_S = 30.0
KINDS = ("cgroup2", "cgroup1", "weak")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class World:
    """Runs in one directory, seen through one launcher at a time."""

    def __init__(self, path, kind):
        self.path, self.kind = path, kind
        self.events = []
        self.launchers = []
        self.shims = set()

    def launcher(self, **options):
        options.setdefault("drop_privileges", False)
        options.setdefault("contain", [self.kind])
        launcher = HostLauncher(self.path, **options)

        async def hear(event):
            self.events.append(event)

        launcher.on_event(hear)
        self.launchers.append(launcher)
        return launcher

    def order(self, *commands, job=1, attempt=1, cwd="/", cap=1 << 20, env=None, **options):
        """A command is a shell line, or a list; each becomes a rank."""
        members = [
            MemberOrder(
                rank, ["/bin/sh", "-c", line] if isinstance(line, str) else line, {**ENV, **(env or {})}, str(cwd)
            )
            for rank, line in enumerate(commands)
        ]
        user = {"uid": os.getuid(), "gid": os.getgid(), "user": ""}
        return Order(job, attempt, 1, members=members, log_cap_bytes=cap, **{**user, **options})

    def member(self, rank, line):
        return MemberOrder(rank, ["/bin/sh", "-c", line], ENV, "/")

    async def start(self, launcher, *commands, **options):
        order = self.order(*commands, **options)
        ready = await launcher.prepare(order)
        await launcher.go(order.run, 1)
        return ready

    def told(self, kind, run=None):
        return [event for event in self.events if event.kind == kind and run in (None, event.run)]

    async def hear(self, kind, count=1, run=None):
        await until(lambda: len(self.told(kind, run)) >= count, f"{count} x {kind}, heard {self.events}")
        return self.told(kind, run)

    def story(self, run="1.1"):
        return self.launchers[-1]._runs.read_story(run)

    def left(self, run="1.1"):
        """The processes of a run, by its mark and by its cgroup."""
        maker = self.launchers[-1]._maker
        found = containment.find_marked(f"PHALANX_MARK={maker._name}:{run}:", os.getuid())
        if maker.ground is not None:  # detached or not
            found |= containment.open_group(maker.ground.kind, f"{maker.ground.base}/{run}").list_pids()
        return {pid for pid in found if not containment._is_gone(pid)}

    async def clear(self):
        """End everything, as a test may have failed anywhere."""
        for launcher in self.launchers:
            runs = launcher._runs
            for facts in runs.list_live():
                story = runs.read_story(facts.run)
                if story is not None and story.pid:
                    self.shims.add(story.pid)
                    containment.kill_identified(story.pid, story.start, facts.uid)
                await clear_run(facts, story, 5.0, lambda _: None, wait=False)
                launcher._maker.remove_group(facts.run)
            await launcher.detach()

    def sweep(self):
        """Something is broken, perhaps in what clears up: kill whatever has to do with this world."""
        word = str(self.path).encode()
        for pid in containment.list_pids():
            with contextlib.suppress(OSError):
                holds = [str(Path(entry.path).readlink()).encode() for entry in os.scandir(f"/proc/{pid}/fd")]
                if pid != os.getpid() and any(word in what for what in [*holds, _environ(pid)]):
                    os.kill(pid, 9)

    def wait(self):
        """For shims whose launcher was detached: they are still children of this process."""
        for pid in self.shims:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def play(self, scenario):
        """Run a coroutine function, and clear up after it."""

        async def all_of_it():
            try:
                async with asyncio.timeout(4 * LIMIT_S):
                    await scenario()
            finally:
                await self.clear()

        try:
            asyncio.run(all_of_it())
        except BaseException:
            self.sweep()
            raise
        finally:
            self.wait()


def _environ(pid):
    return containment.read_file(f"/proc/{pid}/environ")


async def until(condition, what="it"):
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, f"waited {LIMIT_S} s for {what}"
        await asyncio.sleep(0.01)


def make_world(path, kind):
    if kind != "weak":
        ground = containment.find_ground(f"phalanx.test.{os.getpid()}", [kind])
        if ground is None:
            pytest.skip(f"no {kind} that this process may write")
        ground.close()
    return World(path / "runs", kind)


@pytest.fixture(name="until")
def _until():
    return until


@pytest.fixture
def world(tmp_path):
    """A world without cgroups: what every user has."""
    return make_world(tmp_path, "weak")


@pytest.fixture(params=KINDS)
def held_world(tmp_path, request):
    """A world in each strength of containment."""
    return make_world(tmp_path, request.param)


@pytest.fixture
def world_of(tmp_path):
    return lambda kind, path=tmp_path: make_world(path, kind)
