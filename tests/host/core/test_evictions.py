"""Whoever was told to make room runs again, however politely it left and whoever was there to see it.

A daemon in virtual time, evicted at every moment of a start and killed at every moment of an eviction. The job saves and
exits 0 when it is told to go, as a good job does; taken for its end, that would be an hour of work thrown away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
import pytest

from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.ports import Caller, Order, Refused
from phalanx.model.gang import Gang
from phalanx.testing.builders import make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, make_submission, small_node
from phalanx.testing.hosts.made_up_machine import Machine, MadeUpProcess, MadeUpRun
from phalanx.testing.hosts.scripts import hello_of

MILLISECOND = 1000
SECOND = 1000 * MILLISECOND
ADA = Caller(1000, "ada")
WORK = 60 * SECOND
END = 300 * SECOND
#: When somebody wants its seats.
AT = 10 * SECOND


class SavingScript:
    """Works for a minute, and leaves with 0 as soon as it is told to."""

    def __init__(self, machine: Machine, *, speaks: bool, saves_us: int) -> None:
        self.machine, self.speaks, self.saves_us = machine, speaks, saves_us
        self.told: set[str] = set()

    def refusal(self, order: Order) -> None: ...

    def share(self, role: str) -> int:
        return 1000

    def begin(self, run: MadeUpRun, members: Sequence[MadeUpProcess]) -> None:
        for member in members:
            if self.speaks:
                self.machine.say(run, member, hello_of(member))
            self.machine.after(WORK, lambda member=member: self.machine.end(run, member, 0))

    def hear(self, run: MadeUpRun, member: MadeUpProcess, message: Mapping[str, Any]) -> None:
        if message["type"] == "yield":  # its answer is lost with whoever would have heard it
            self._leave(run, member)

    def feel(self, run: MadeUpRun, member: MadeUpProcess, signal: str) -> None:
        if signal == "TERM":
            self._leave(run, member)

    def _leave(self, run: MadeUpRun, member: MadeUpProcess) -> None:
        self.told.add(run.name)
        self.machine.after(self.saves_us, lambda: self.machine.end(run, member, 0))


class Eviction:
    """One job of four members on four devices, and somebody who wants them."""

    def __init__(self, *, speaks: bool = False, saves_us: int = 0, delay_us: int = MILLISECOND) -> None:
        self.world = HostWorld(Setup(small_node(4)), lambda what: delay_us)
        self.script = SavingScript(self.world.machine, speaks=speaks, saves_us=saves_us)
        self.world.machine.scripts = lambda order: self.script
        self.replies: list[Any] = []

    def submit(self, gang: Gang, **run: Any) -> None:
        submission = make_submission(gang, {}, {"grace_s": 5.0, **run})
        self.world.ask(lambda core: core.submit(ADA, [submission], None, dry_run=False))

    def preempt(self) -> None:
        async def say(core: Core) -> None:
            self.replies.append(await core.act(ADA, "1", "preempt", {}))

        self.world.ask(say)

    def crash(self, at_us: int) -> None:
        self.world.at(at_us, self.world.crash)
        self.world.at(at_us + 20 * SECOND, self.world.boot)

    def play(self) -> None:
        self.world.boot()
        self.world.run_until(END)
        assert self.world.errors == []

    def attempts(self) -> int:
        """Attempts of the first job that ran, until it was completed."""
        record = self.world.store.job(1)
        assert record is not None
        assert record.state == "completed", record
        return len({process.attempt for _, process in self.world.machine.execs if process.job == 1})


@pytest.mark.parametrize("speaks", [False, True], ids=["by a signal", "by a word"])
@pytest.mark.parametrize("saves_us", [0, 5 * MILLISECOND, SECOND], ids=["at once", "soon", "later"])
def test_whoever_was_told_to_go_runs_again_whenever_the_daemon_dies(speaks, saves_us):
    seen = set()
    for crash_us, kept in product(range(AT + 500, AT + 12 * MILLISECOND, MILLISECOND), (0, 1)):
        eviction = Eviction(speaks=speaks, saves_us=saves_us)
        eviction.world.kept = lambda waiting, kept=kept: waiting * kept
        with eviction.world as world:
            world.at(SECOND, lambda it=eviction: it.submit(make_gang("a", "4 gpu=1"), on_preempt="requeue"))
            world.at(AT, eviction.preempt)
            eviction.crash(crash_us)
            eviction.play()
            told = "1.1" in eviction.script.told
            seen.add((told, bool(eviction.replies)))
            if told:
                assert eviction.attempts() == 2, f"killed {crash_us - AT} us after the word"
            else:  # nobody heard of it, and nobody was promised anything
                assert not eviction.replies
                assert eviction.attempts() == 1
    assert {(True, True), (False, False)} <= seen, "some crashes come before the word, some after the answer"


def test_a_word_of_a_person_that_comes_with_that_of_a_plan_is_a_conflict():
    """A plan is ahead of the processes: between its word and what is done about it anybody may ask."""
    told: list[Refused] = []

    async def ask(core: Core) -> None:
        known = core.known
        known.planner.requeue(known.now_us(), known.register.by_id[1].number)
        with pytest.raises(Refused) as refused:
            await core.act(ADA, "1", "preempt", {})
        told.append(refused.value)

    eviction = Eviction()
    with eviction.world as world:
        world.at(SECOND, lambda: eviction.submit(make_gang("a", "4 gpu=1"), on_preempt="requeue"))
        world.at(AT, lambda: world.ask(ask))
        world.boot()
        world.run_until(AT + MILLISECOND)
    assert [each.refusal.code for each in told] == ["conflict"]
    assert "is making way already" in told[0].refusal.message


@pytest.mark.parametrize("delay_us", [MILLISECOND, 300])
def test_whoever_is_evicted_while_its_gate_opens_runs_again(delay_us):
    told = set()
    for later_us in range(0, 12 * delay_us, delay_us // 3):
        eviction = Eviction(delay_us=delay_us)
        with eviction.world as world:
            low, high = make_gang("a", "4 gpu=1", preemptible=True), make_gang("b", "4 gpu=1", priority=10)
            world.at(SECOND, lambda it=eviction, gang=low: it.submit(gang))
            world.at(SECOND + later_us, lambda it=eviction, gang=high: it.submit(gang))
            eviction.play()
            if "1.1" in eviction.script.told:
                assert eviction.attempts() == 2, f"evicted {later_us} us after it was submitted"
            told.add("1.1" in eviction.script.told)
    assert told == {True, False}


# ---------------------------------------------------------------------- a person's word


@pytest.mark.parametrize("members", ["4 gpu=1", "1-4 gpu=1"], ids=["rigid", "elastic"])
@pytest.mark.parametrize(
    ("speaks", "options", "words"),
    [
        (False, {}, "would begin again from zero, 9s of work lost"),
        (True, {}, None),
        (False, {"preemptible": True}, "what it does not save on SIGTERM is lost, of up to 9s of work"),
        (True, {"preemptible": True}, None),
    ],
)
def test_only_who_could_be_evicted_can_be_drilled(members, speaks, options, words):
    """A drill shows what an eviction would do; to a job that nobody evicts it would only do harm."""
    eviction = Eviction(speaks=speaks)
    gang = make_gang("a", members, **options)
    refused = []

    async def say(core: Core) -> None:
        try:
            eviction.replies.append(await core.act(ADA, "1", "preempt", {"drill": True}))
        except Refused as bad:
            refused.append(bad.refusal)

    with eviction.world as world:
        world.at(SECOND, lambda: eviction.submit(gang))
        world.at(AT, lambda: world.ask(say))
        eviction.play()
        if not speaks and not options:
            assert words in refused[0].message
            assert "--preemptible" in refused[0].hint
            assert eviction.attempts() == 1
        else:
            (row,) = eviction.replies
            assert words in row.warnings[0] if words else row.warnings is msgspec.UNSET
            assert eviction.attempts() == 2
