"""When passes are made: often enough for whoever waits for one, and not after every word."""

from __future__ import annotations

import pytest

from phalanx.frontends.host.ports import Caller
from phalanx.testing.builders import make_gang
from phalanx.testing.hosts.host_world import HostWorld, Setup, make_submission, small_node

MILLISECOND = 1_000
SECOND = 1_000_000
ADA = Caller(1000, "ada")
#: More than the machine has, so that all but the first wait.
JOB = make_submission(make_gang("j", "4 gpu=1", walltime=60), {})


@pytest.fixture
def world():
    with HostWorld(Setup(small_node(4)), lambda what: MILLISECOND) as made:
        made.machine.scripts = lambda order: lambda process: None
        made.boot()
        made.run_until(SECOND)
        plan = made.core.known.planner.plan

        def take_time(now_us):
            made.loop.now_us += 100  # in virtual time a pass would take none
            return plan(now_us)

        made.core.known.planner.plan = take_time
        yield made


def submit_all(world, count):
    """One after the other, as a loop in a shell does it; each takes the disk a millisecond."""
    replies = []

    def submit(reply=None):
        replies.extend([] if reply is None else reply)
        if len(replies) < count:
            world.ask(lambda core: core.submit(ADA, [JOB], None, dry_run=False), submit)

    submit()
    return replies


def test_one_who_submits_job_after_job_does_not_wait_for_a_pass_after_each(world):
    passes = []
    world.core.known.meters.count_cycle = lambda took_s, reason: passes.append(world.now_us)
    replies = submit_all(world, 40)
    world.run_until(2 * SECOND)
    assert len(replies) == 40
    # Forty milliseconds and more, and at most one pass in twenty of them.
    assert len(passes) <= 6
    assert world.core.known.planner.state.count_waiting() == 39


def test_an_only_job_starts_without_a_rest_before_it(world):
    replies = submit_all(world, 1)
    world.run_until(SECOND + 10 * MILLISECOND)
    assert len(replies) == 1
    assert world.core.known.register.by_id[replies[0].id].state != "pending"


def test_a_cancel_is_answered_before_the_next_pass(world):
    replies = submit_all(world, 30)
    world.run_until(2 * SECOND)
    waited, settle = [], world.core.pacing.settle

    async def note():
        waited.append(world.now_us)
        await settle()

    world.core.pacing.settle = note
    rows = []
    for reply in replies[10:]:
        world.ask(lambda core, ref=str(reply.id): core.act(ADA, ref, "cancel", {}), rows.append)
    world.run_until(3 * SECOND)
    assert [row.state for row in rows] == ["cancelled"] * 20
    assert waited == []
    world.ask(lambda core: core.act(ADA, str(replies[5].id), "hold", {}), rows.append)
    world.run_until(4 * SECOND)
    assert len(waited) == 1
    assert rows[-1].reason.code == "Held"
