"""The made-up shims behave as the real ones: the same orders, given to both, lead to the same answers and events.

Only what the core relies on is compared: who is there, what is told, and what is found again. Times are not.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextvars import copy_context
from pathlib import Path

import pytest

from phalanx.frontends.host.launching import HostLauncher
from phalanx.frontends.host.launching.directory import Runs
from phalanx.frontends.host.ports import CannotStart, MemberOrder, Order
from phalanx.frontends.host.shim.journal import Story
from phalanx.testing.hosts.made_up_machine import SIGNALS, Machine
from phalanx.testing.hosts.virtual_launcher import FakeLauncher
from phalanx.testing.hosts.virtual_loop import Life, VirtualLoop

LIMIT_S = 30.0
#: What a member does, as a line for a shell.
LINES = {
    "good": "sleep 0.2",
    "bad": "sleep 0.2; exit 3",
    "stay": "exec sleep 60",
    "deaf": "trap '' TERM; while :; do sleep 0.1; done",
}
RUN = "7.1"


class Rig:
    """A machine, and what its launchers are told."""

    def __init__(self) -> None:
        self.events: list[tuple] = []

    async def hear(self, event) -> None:
        self.events.append((event.kind, event.rank, event.generation, event.code, event.signal))

    def member(self, rank: int, deed: str) -> MemberOrder:
        env = {"PATH": os.environ["PATH"], "PHALANX_ROLE": deed, "PHALANX_NAME": "x"}
        return MemberOrder(rank, ["/bin/sh", "-c", LINES[deed]], env, "/")

    def order(self, *deeds: str) -> Order:
        members = [self.member(rank, deed) for rank, deed in enumerate(deeds)]
        return Order(7, 1, 1, os.getuid(), os.getgid(), "", members, 1 << 20)

    async def start(self, *deeds: str):
        launcher = self.launcher()
        assert await launcher.find() == []
        ready = await launcher.prepare(self.order(*deeds))
        assert (ready.generation, sorted(ready.pids)) == (1, list(range(len(deeds))))
        await launcher.go(RUN, 1)
        return launcher

    async def until(self, kind: str, count: int = 1) -> None:
        await self.wait_for(lambda: sum(event[0] == kind for event in self.events) >= count)

    async def wait_for(self, condition) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - both kinds of time
                await asyncio.sleep(0.02)

    def told(self) -> list[tuple]:
        """Ends of members in order of rank: which comes first is chance."""
        return sorted(self.events, key=lambda event: (event[0] != "exit", event[1] if event[1] is not None else -1))


class RealRig(Rig):
    """This machine."""

    def __init__(self, folder) -> None:
        super().__init__()
        self.folder, self.launchers = folder, []

    def launcher(self):
        launcher = HostLauncher(self.folder, drop_privileges=False, contain=())
        launcher.on_event(self.hear)
        self.launchers.append(launcher)
        return launcher

    def find_shim(self) -> int:
        return self.launchers[-1].shims.links[RUN].facts.shim_pid

    def kill_shim(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def is_deaf(self, rank: int) -> bool:
        """Whether a member has come as far as ignoring SIGTERM."""
        pid, _ = self._read_story().members[rank]
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), 16)
        return bool(ignored >> (signal.SIGTERM - 1) & 1)

    def is_over(self) -> bool:
        """Whether its shim has written down that nothing is left."""
        return self._read_story().done

    def _read_story(self) -> Story:
        story = Runs(self.folder).read_story(RUN)
        assert story is not None
        return story

    async def close(self) -> None:
        """Whatever the test did, nothing of it is left."""
        for launcher in self.launchers:
            await launcher.detach()
        launcher = self.launcher()
        for found in await launcher.find():
            if found.alive and not found.done:
                self.events.clear()
                await launcher.stop(found.run, None, "KILL", 0.0)
                await self.until("empty")
            await launcher.forget(found.run)
        await launcher.detach()


class Doer:
    """Does what its roles are called."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def refusal(self, order: Order) -> None:
        return None

    def share(self, role: str) -> int:
        return 1000

    def begin(self, run, members) -> None:
        for member in members:
            if member.role in ("good", "bad"):
                code = 0 if member.role == "good" else 3
                self.machine.after(200_000, lambda member=member, code=code: self.machine.end(run, member, code))

    def hear(self, run, member, message) -> None: ...

    def feel(self, run, member, name: str) -> None:
        if member.role != "deaf":
            self.machine.end(run, member, signal=SIGNALS[name])


class FakeRig(Rig):
    """A made-up machine."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.machine = Machine(loop, copy_context(), lambda what: 1000)
        self.machine.scripts = lambda order: Doer(self.machine)

    def launcher(self):
        launcher = FakeLauncher(self.machine, lambda label: None, Life("daemon"))
        launcher.on_event(self.hear)
        return launcher

    def find_shim(self):
        return self.machine.runs[RUN]

    def kill_shim(self, run) -> None:
        ear = run.daemon
        self.machine.kill_shim(run)
        if ear is not None:
            ear.lose_shim(run)

    def is_deaf(self, rank: int) -> bool:
        return self.machine.runs[RUN].members[rank].role == "deaf"

    def is_over(self) -> bool:
        return self.machine.runs[RUN].done

    async def close(self) -> None: ...


def seen(found) -> list[tuple]:
    return [
        (each.run, each.alive, each.went, each.done, each.lost, sorted(each.members), dict(each.exits))
        for each in found
        if each.went
    ]


# ---------------------------------------------------------------------- what is ordered


async def live_and_end(rig):
    launcher = await rig.start("good", "bad")
    await rig.until("empty")
    await launcher.forget(RUN)
    return seen(await launcher.find())


async def give_up_at_the_gate(rig):
    launcher = rig.launcher()
    await launcher.prepare(rig.order("good", "good"))
    await launcher.abort(RUN)
    return seen(await launcher.find())


async def prepare_twice(rig):
    launcher = rig.launcher()
    await launcher.prepare(rig.order("good"))
    try:
        await launcher.prepare(rig.order("good"))
    except CannotStart:
        await launcher.abort(RUN)
        return "cannot"
    return "can"


async def stop_all(rig):
    launcher = await rig.start("stay", "deaf")
    await rig.wait_for(lambda: rig.is_deaf(1))
    await launcher.stop(RUN, None, "TERM", 0.3)
    await rig.until("empty")


async def stop_some(rig):
    launcher = await rig.start("stay", "stay")
    await launcher.stop(RUN, [1], "KILL", 0.0)
    await rig.until("exit")
    before = rig.told()
    await launcher.stop(RUN, None, "KILL", 0.0)
    await rig.until("empty")
    return before


async def join_and_go(rig):
    launcher = await rig.start("stay")
    ready = await launcher.add(RUN, 2, [rig.member(1, "good")])
    await launcher.go(RUN, 2)
    await rig.until("exit")
    before = rig.told()
    await launcher.stop(RUN, None, "KILL", 0.0)
    await rig.until("empty")
    return ready.generation, sorted(ready.pids), before


async def join_and_be_called_off(rig):
    launcher = await rig.start("stay")
    await launcher.add(RUN, 2, [rig.member(1, "good")])
    await launcher.abort(RUN)
    ready = await launcher.add(RUN, 3, [rig.member(2, "good")])
    await launcher.go(RUN, 3)
    await rig.until("exit")
    await launcher.stop(RUN, None, "KILL", 0.0)
    await rig.until("empty")
    return sorted(ready.pids)


async def two_at_a_gate(rig):
    """A stop of members does not reach those at the gate, and there is one gate."""
    launcher = await rig.start("stay")
    await launcher.add(RUN, 2, [rig.member(1, "good")])
    await launcher.stop(RUN, [1], "KILL", 0.0)
    try:
        await launcher.add(RUN, 3, [rig.member(2, "good")])
        told = "joined"
    except CannotStart:
        told = "cannot"
    await launcher.stop(RUN, None, "KILL", 0.0)
    await rig.until("empty")
    return told


async def daemon_dies_at_the_gate(rig):
    launcher = rig.launcher()
    await launcher.prepare(rig.order("good", "good"))
    await launcher.detach()
    return seen(await rig.launcher().find())


async def daemon_dies_beyond_it(rig):
    launcher = await rig.start("stay", "stay")
    await launcher.detach()
    second = rig.launcher()
    found = seen(await second.find())
    await second.stop(RUN, None, "TERM", 5.0)
    await rig.until("empty")
    return found


async def end_while_nobody_listens(rig):
    launcher = await rig.start("good", "bad")
    await launcher.detach()
    await rig.wait_for(rig.is_over)
    second = rig.launcher()
    found = seen(await second.find())
    await second.forget(RUN)
    return found


async def members_that_wait_when_the_daemon_dies(rig):
    launcher = await rig.start("stay")
    await launcher.add(RUN, 2, [rig.member(1, "good")])
    await launcher.detach()
    second = rig.launcher()
    found = seen(await second.find())
    await second.stop(RUN, None, "KILL", 0.0)
    await rig.until("empty")
    return found


async def shim_dies(rig):
    await rig.start("stay", "stay")
    rig.kill_shim(rig.find_shim())
    await rig.until("lost")


async def shim_dies_while_nobody_listens(rig):
    launcher = await rig.start("stay", "bad")
    await rig.until("exit")
    shim = rig.find_shim()
    await launcher.detach()
    rig.kill_shim(shim)
    second = rig.launcher()
    found = seen(await second.find())
    await second.forget(RUN)
    return found


ORDERS = (
    live_and_end, give_up_at_the_gate, prepare_twice, stop_all, stop_some, join_and_go, join_and_be_called_off,
    two_at_a_gate, daemon_dies_at_the_gate, daemon_dies_beyond_it, end_while_nobody_listens,
    members_that_wait_when_the_daemon_dies, shim_dies, shim_dies_while_nobody_listens,
)  # fmt: skip


def give_to_real(orders, folder):
    async def run():
        rig = RealRig(folder)
        try:
            answer = await orders(rig)
            return answer, rig.told()
        finally:
            await rig.close()

    return asyncio.run(run())


def give_to_fake(orders):
    loop = VirtualLoop()
    try:
        rig = FakeRig(loop)

        async def run():
            return await orders(rig), rig.told()

        told = loop.run_until_complete(run())
        for task in asyncio.all_tasks(loop):
            task.get_coro().close()
        return told
    finally:
        loop.close()


@pytest.mark.parametrize("orders", ORDERS, ids=lambda orders: orders.__name__)
def test_both_answer_alike(tmp_path, orders):
    assert give_to_fake(orders) == give_to_real(orders, tmp_path / "runs")
