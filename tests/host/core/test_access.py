"""Which job a caller means, whether it is theirs, and what they see of others'."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from telling_world import World, caller

from phalanx.frontends.host.core.access import Access
from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.happenings import follow
from phalanx.frontends.host.messages import Happening
from phalanx.frontends.host.ports import Refused


def access(world):
    return Access(world.known, Admission(world.means, world.predictions))


def test_everybody_may_know_of_a_job_and_its_owner_or_an_administrator_act_on_it():
    world = World()
    job = world.submit("train", "1 gpu=1", user="ada")
    door = access(world)
    assert door.find(caller("bob"), "1") is job
    assert door.find_own(caller("ada"), "1") is job
    assert door.find_own(caller("bob", admin=True), "1") is job
    with pytest.raises(Refused, match="belongs to ada") as refused:
        door.find_own(caller("bob"), "1")
    assert refused.value.refusal.code == "forbidden"


def test_a_job_that_ended_long_ago_is_found_on_disk_and_is_still_its_owners():
    world = World()
    job = world.submit("train", "1 gpu=1", user="ada")
    world.plan()
    world.end(job, "failed", exit_code=3, reason=("Failed", "rank 0 exited with code 3"), ledger={"useful": 1.0})
    world.known.register.forget(job)
    found = access(world).find(caller("bob"), "1")
    assert found is not job
    assert (found.state, found.exit_code, found.reason) == ("failed", 3, ("Failed", "rank 0 exited with code 3"))
    assert (found.end_us, found.ledger) == (job.end_us, {"useful": 1.0})
    with pytest.raises(Refused, match="belongs to ada"):
        access(world).find_own(caller("bob"), "1")


@pytest.mark.parametrize("ref", ["7", "nobody", "9" * 30])
def test_a_job_that_never_was_is_not_found(ref):
    with pytest.raises(Refused, match="there is no job") as refused:
        access(World()).find(caller("ada"), ref)
    assert refused.value.refusal.code == "not_found"


def test_of_others_jobs_one_sees_that_something_happened_and_not_what_their_logs_say():
    world = World()
    job = world.submit("train", "1 gpu=1", user="ada")
    world.happen(job, "fail", attempt=1, why="secret")

    async def read(who):
        stream = follow(world.known, world.pen, who, 0)
        stored = await anext(stream)
        for listener in world.pen.listeners:  # the first is known from the store, and not told again
            listener(Happening(1, "", job.id, "fail", {"attempt": 1}))
            listener(Happening(2, "", job.id, "end", {"cause": "person", "why": "secret"}))
        told = await anext(stream)
        await stream.aclose()
        assert world.pen.listeners == []
        return [(each.seq, each.data) for each in (stored, told)]

    whole = [(1, {"attempt": 1, "why": "secret"}), (2, {"cause": "person", "why": "secret"})]
    assert asyncio.run(read(caller("ada"))) == whole
    assert asyncio.run(read(caller("bob", admin=True))) == whole
    assert asyncio.run(read(caller("bob"))) == [(1, {"attempt": 1}), (2, {"cause": "person"})]
