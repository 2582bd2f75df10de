"""A fault of the machine fails nobody: the queue waits until it is mended, and says what is the matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from phalanx.frontends.host.core.machine_trouble import PAUSE_LAST_US, MachineTrouble
from phalanx.frontends.host.ports import Caller, NotStartable, Order, Ready, UserUnknown
from phalanx.frontends.host.service import Listing
from phalanx.testing.builders import make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, make_submission, small_node
from phalanx.testing.hosts.made_up_machine import MadeUpProcess, MadeUpRun, name_of

SECOND = 1_000_000
ADA = Caller(1000, "ada")


class Upgrade:
    """Nothing can be prepared from `from_us` until `until_us`, and jobs of this name never."""

    def __init__(self, world: HostWorld, from_us: int = 0, until_us: int = 0, never: str = "") -> None:
        self.world, self.from_us, self.until_us, self.never = world, from_us, until_us, never
        self.tries_us: list[int] = []

    def refusal(self, order: Order) -> str | None:
        now_us = self.world.now_us
        if name_of(order) == self.never:
            return "its directory cannot be made"
        if self.from_us <= now_us < self.until_us:
            self.tries_us.append(now_us)
            return "the environment is gone"
        return None

    def share(self, role: str) -> int:
        return 1000

    def begin(self, run: MadeUpRun, members: Sequence[MadeUpProcess]) -> None:
        for member in members:
            self.world.machine.after(5 * SECOND, lambda member=member: self.world.machine.end(run, member, 0))

    def hear(self, run: MadeUpRun, member: MadeUpProcess, message: Mapping[str, Any]) -> None: ...

    def feel(self, run: MadeUpRun, member: MadeUpProcess, signal: str) -> None: ...


@pytest.fixture
def world():
    with HostWorld(Setup(small_node(4)), lambda what: 1000) as made:
        made.boot()
        yield made


def submit(world: HostWorld, name: str, gpus: int = 1) -> None:
    submission = make_submission(make_gang(name, f"{gpus} gpu=1"), {})
    world.ask(lambda core: core.submit(ADA, [submission], None, dry_run=False))


def rows(world: HostWorld) -> list[Any]:
    found: list[Any] = []
    world.ask(lambda core: core.rows(ADA, Listing(finished=True)), found.extend)
    world.run_until(world.now_us + SECOND)
    return found


def test_an_environment_that_is_gone_for_a_while_fails_nobody(world):
    upgrade = Upgrade(world, 5 * SECOND, 120 * SECOND)
    world.machine.scripts = lambda order: upgrade
    for number in range(12):
        world.at(10 * SECOND, lambda number=number: submit(world, f"j{number}"))
    world.run_until(60 * SECOND)
    seen = rows(world)
    assert {row.state for row in seen} == {"pending"}
    assert {row.reason.code for row in seen} == {"MachineFault"}
    assert all("the environment is gone" in row.info for row in seen)
    world.run_until(120 * SECOND + PAUSE_LAST_US + 20 * SECOND)
    assert {row.state for row in rows(world)} == {"completed"}, "soon after it is back"
    # The first instant may meet as many as fit; from then on one at a time looks whether the machine is well again.
    later = [at_us for at_us in upgrade.tries_us if at_us > 12 * SECOND]
    assert len(later) <= 115 // 15 + 5
    assert world.errors == []


def test_why_names_the_machine(world):
    upgrade = Upgrade(world, 0, 120 * SECOND)
    world.machine.scripts = lambda order: upgrade
    world.at(SECOND, lambda: submit(world, "j"))
    told: list[Any] = []
    world.at(30 * SECOND, lambda: world.ask(lambda core: core.why(ADA, "1"), told.append))
    world.run_until(40 * SECOND)
    assert told[0].state == "pending"
    assert told[0].reason.code == "MachineFault"
    assert told[0].reason.message.startswith("nothing can be started on this machine: the environment is gone")


def test_one_that_never_starts_holds_up_nobody_for_long(world):
    upgrade = Upgrade(world, never="bad")
    world.machine.scripts = lambda order: upgrade
    world.at(SECOND, lambda: submit(world, "bad", 4))
    for number in range(8):
        world.at(2 * SECOND, lambda number=number: submit(world, f"j{number}"))
    world.run_until(90 * SECOND)
    seen = {row.name: row.state for row in rows(world)}
    assert seen.pop("bad") == "pending"
    assert set(seen.values()) == {"completed"}


def test_what_is_wrong_with_the_job_itself_fails_in_the_end(world, monkeypatch):
    """As in system mode, if the number of its user belongs to somebody else by now."""
    world.run_until(SECOND)
    core = world.core
    assert core is not None

    async def refuse(order: Order) -> Ready:
        raise NotStartable("uid 1000 was ada at submit and is eve now")

    monkeypatch.setattr(core.processes.launcher, "prepare", refuse)
    submit(world, "j")
    world.run_until(120 * SECOND)
    (row,) = rows(world)
    assert (row.state, row.reason.code) == ("failed", "CannotStart")
    assert "is eve now" in row.reason.message


def test_with_the_last_that_could_not_be_started_goes_what_was_said_of_the_machine(world):
    """Nobody else has tried: a listing must not speak for ever of what was wrong with somebody who is gone."""
    upgrade = Upgrade(world, never="bad")
    world.machine.scripts = lambda order: upgrade
    world.at(SECOND, lambda: submit(world, "bad", 4))
    world.run_until(20 * SECOND)
    assert world.core is not None
    assert world.core.known.trouble.why
    world.ask(lambda core: core.act(ADA, "1", "cancel", {}))
    world.run_until(30 * SECOND)
    assert not world.core.known.trouble.why


def test_a_user_whom_nobody_knows_holds_up_nobody_and_does_not_fail(world, monkeypatch):
    """As when the directory of users does not answer for a while."""
    upgrade = Upgrade(world)
    world.machine.scripts = lambda order: upgrade
    world.run_until(SECOND)
    assert world.core is not None
    prepare = world.core.processes.launcher.prepare

    async def refuse(order: Order) -> Ready:
        if name_of(order) == "lost" and world.now_us < 100 * SECOND:
            raise UserUnknown("user ada (uid 1000) does not exist any more")
        return await prepare(order)

    monkeypatch.setattr(world.core.processes.launcher, "prepare", refuse)
    submit(world, "lost", 4)
    submit(world, "other", 4)
    world.run_until(60 * SECOND)
    lost, other = rows(world)
    assert (lost.state, other.state) == ("pending", "completed")
    assert "user ada (uid 1000) does not exist any more" in lost.info
    assert not world.core.known.trouble.why
    world.run_until(200 * SECOND)
    assert rows(world)[0].state == "completed"


def test_pauses_grow_and_end_with_the_first_start():
    trouble = MachineTrouble()
    pauses = []
    for at_us in range(0, 8 * SECOND, SECOND):
        aside_us = trouble.note_fault(1, "no inodes", at_us)
        pauses.append(((trouble.until_us - at_us) // SECOND, aside_us // SECOND))
    assert pauses == [(1, 0), (2, 5), (4, 10), (8, 20), (15, 40), (15, 60), (15, 60), (15, 60)]
    assert trouble.note_start(2) == [1]
    assert (trouble.why, trouble.note_start(3)) == ("", [])
    trouble.note_fault(1, "no inodes", 0)
    assert trouble.note_start(2) == [], "others have come to life between its failures"
