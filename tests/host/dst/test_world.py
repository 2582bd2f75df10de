"""The made-up machine itself: time that jumps, a daemon that can be killed between two steps, a disk that keeps a part."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from phalanx.frontends.host.ports import Caller, Order
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.testing.builders import make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, make_submission, small_node
from phalanx.testing.hosts.made_up_machine import MadeUpProcess, MadeUpRun
from phalanx.testing.hosts.scripts import WorkScript
from phalanx.testing.hosts.virtual_loop import FIRST, LAST, Life, NothingLeft, VirtualLoop, new_context

SECOND = 1_000_000
ADA = Caller(1000, "ada")


@pytest.fixture
def loop():
    made = VirtualLoop()
    yield made
    made.close()


def test_time_jumps_to_the_next_timer(loop):
    async def day():
        await asyncio.sleep(86_400)
        return loop.now_us

    assert loop.run_until_complete(day()) == 86_400 * SECOND


def test_what_happens_at_one_instant_has_an_order(loop):
    seen = []
    done = loop.create_future()
    loop.call_ranked(5, LAST, lambda: (seen.append("last"), done.set_result(None)))
    loop.call_ranked(5, FIRST, lambda: loop.call_soon(seen.append, "soon"))
    loop.call_ranked(5, FIRST, seen.append, "second")
    loop.run_until_complete(done)
    assert seen == ["soon", "second", "last"]


def test_a_limit_runs_out_only_after_everything_else_of_its_instant(loop):
    async def wait():
        event = asyncio.Event()
        loop.call_later(5, event.set)
        async with asyncio.timeout(5):
            await event.wait()

    loop.run_until_complete(wait())


def test_nothing_of_a_dead_life_runs(loop):
    life, seen = Life("daemon"), []

    async def daemon():
        while True:
            await asyncio.sleep(1)
            seen.append(loop.now_us)

    task = loop.create_task(daemon(), context=new_context(life))
    loop.call_ranked(2_500_000, FIRST, lambda: setattr(life, "alive", False))
    done = loop.create_future()
    loop.call_ranked(9 * SECOND, LAST, lambda: done.set_result(None))
    loop.run_until_complete(done)
    assert seen == [1 * SECOND, 2 * SECOND]
    task.get_coro().close()


def test_waiting_for_ever_is_an_error(loop):
    with pytest.raises(NothingLeft):
        loop.run_until_complete(loop.create_future())


# ---------------------------------------------------------------------- a daemon in it


@pytest.fixture
def world():
    with HostWorld(Setup(small_node(4)), lambda what: 1000) as made:
        gangs = {"a": (make_gang("a", "2 gpu=1", walltime=60), 60), "b": (make_gang("b", "4 gpu=1", walltime=5), 5)}
        scripts = {
            name: WorkScript(made.machine, gang, TrueRun(seconds * SECOND)) for name, (gang, seconds) in gangs.items()
        }
        made.gangs = {name: gang for name, (gang, _) in gangs.items()}
        made.machine.scripts = lambda order: scripts[order.members[0].env["PHALANX_NAME"]]
        made.boot()
        yield made


def submit(world: HostWorld, name: str, replies: list, key: str | None = None) -> None:
    submission = make_submission(world.gangs[name], {})
    ask = lambda core: core.submit(ADA, [submission], key, dry_run=False)  # noqa: E731
    world.ask(ask, replies.append, lambda: replies.append("lost"))


def test_a_run_outlives_its_daemon_and_is_found_again(world):
    replies: list = []
    world.at(SECOND, lambda: submit(world, "a", replies))
    world.at(20 * SECOND, world.crash)
    world.at(30 * SECOND, world.boot)
    world.run_until(25 * SECOND)
    assert world.core is None
    assert len(world.processes()) == 2
    world.run_until(90 * SECOND)
    record = world.store.job(replies[0][0].id)
    assert (record.state, record.attempt, len(world.machine.execs)) == ("completed", 1, 2)
    assert world.processes() == []
    assert world.errors == []


def test_members_at_the_gate_do_not_outlive_their_daemon(world):
    replies: list = []
    world.on_label = lambda label: label == "start.before_go" and world.hits[label] == 1
    world.at(SECOND, lambda: submit(world, "a", replies))
    world.run_until(2 * SECOND)
    assert world.core is None
    assert world.processes() == []
    assert world.machine.execs == []
    world.boot()
    world.run_until(90 * SECOND)
    assert world.store.job(replies[0][0].id).state == "completed"
    assert {process.attempt for _, process in world.machine.execs} == {2}


def test_a_client_learns_that_the_line_was_cut(world):
    replies: list = []
    world.on_label = lambda label: label == "submit.before_commit" and world.hits[label] == 1
    world.at(SECOND, lambda: submit(world, "a", replies, "key"))
    world.at(2 * SECOND, world.boot)
    world.at(3 * SECOND, lambda: submit(world, "a", replies, "key"))
    world.run_until(4 * SECOND)
    assert replies[0] == "lost"
    assert [accepted.id for accepted in replies[1]] == [1]


def test_a_crash_leaves_the_first_of_the_writes_that_waited(world):
    world.kept = lambda waiting: waiting - 1
    replies: list = []
    world.at(SECOND, lambda: [submit(world, name, replies) for name in ("a", "b")])
    world.at(SECOND + 500, world.crash)
    world.run_until(2 * SECOND)
    assert replies == ["lost", "lost"]
    assert [record.name for record in world.store.jobs()] == ["a"]


def test_a_reboot_leaves_nobody(world):
    replies: list = []
    world.at(SECOND, lambda: submit(world, "a", replies))
    world.at(10 * SECOND, world.reboot)
    world.at(11 * SECOND, world.boot)
    world.run_until(12 * SECOND)
    record = world.store.job(replies[0][0].id)
    assert record.state == "failed"
    assert "restarted" in msgspec.json.decode(record.failure)["why"]


# ---------------------------------------------------------------------- the machine


class Occupant:
    """Sits there until it is killed."""

    def refusal(self, order: Order) -> None: ...

    def share(self, role: str) -> int:
        return 1000

    def begin(self, run: MadeUpRun, members: list[MadeUpProcess]) -> None: ...

    def hear(self, run: MadeUpRun, member: MadeUpProcess, message: dict) -> None: ...

    def feel(self, run: MadeUpRun, member: MadeUpProcess, signal: str) -> None: ...


def test_a_stop_of_some_members_takes_what_they_left_behind(world):
    replies: list = []
    world.machine.scripts = lambda order: Occupant()
    world.at(SECOND, lambda: submit(world, "a", replies))
    world.run_until(3 * SECOND)
    machine = world.machine
    run = machine.runs["1.1"]
    stray = machine.leave_behind(run, run.members[1])
    machine.stop(run, [0], "KILL", 0.0)
    world.run_until(4 * SECOND)
    assert stray.alive
    machine.stop(run, [1], "TERM", 3.0)
    world.run_until(6 * SECOND)
    assert stray.alive
    world.run_until(8 * SECOND)
    assert not stray.alive
