"""Jobs as rows and in detail: where they stand, one column that says what matters, and who may read what."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from telling_world import WALL, World, at_utc, caller  # noqa: F401

from phalanx.control import amounts
from phalanx.frontends.host.core.attempt_phases import AttemptPhase
from phalanx.frontends.host.core.jobs import EVICT, ArrayPlace, Live, Member, ResizeUnderWay
from phalanx.frontends.host.messages import Reason
from phalanx.testing.builders import make_gang

LAST_WORDS = "password is hunter2"


def rows(world, *jobs, with_eta=True, who=None):
    found = asyncio.run(
        world.teller.rows(list(jobs or world.known.register), with_eta=with_eta, caller=who)
    )  # fmt: skip
    return found if len(jobs) != 1 else found[0]


def fail(world, job):
    failure = {
        "rank": 2,
        "exit_code": 1,
        "signal": None,
        "lines": ["loading", LAST_WORDS],
        "why": "rank 2 exited with code 1",
    }
    reason = ("Failed", f"rank 2 exited with code 1: {LAST_WORDS}")
    world.end(job, "failed", exit_code=1, failure=failure, reason=reason)
    world.happen(job, "restart", **failure)


# ---------------------------------------------------------------------- the INFO column


def test_a_waiting_job_says_when_it_is_expected_to_start_and_what_that_hangs_on():
    world = World()
    first = world.submit("train", "8 gpu=1", walltime=7200)
    world.plan()
    next_ = world.submit("next", "4 gpu=1", walltime=60)
    row = rows(world, next_)
    # 09:16:40, and two hours on; people may be done much sooner, or a little later.
    assert row.info == f"starts about 11:16 (80%: 09:25 - 11:37) when {first.id} (train) ends"
    assert row.reason == Reason("Capacity", "needs room for 4 members, free resources hold 0", 4, 0)
    assert row.eta.at == "2026-11-10T11:16:40+00:00"
    assert (row.state, row.members, row.gpus, row.placement) == ("pending", 0, 4.0, {})


def test_a_start_that_is_near_is_told_as_a_length():
    world = World()
    world.submit("train", "8 gpu=1", walltime=100)
    world.plan()
    next_ = world.submit("next", "4 gpu=1", walltime=60)
    assert rows(world, next_).info == "starts in about 1m40s (80%: 7s - 1m58s) when 1 (train) ends"


def test_a_prediction_is_told_as_one():
    world = World()
    for ran_s in (100, 100):
        world.predictions.note("ada", "train", ran_s, None)
    world.submit("train", "8 gpu=1", walltime=120, predicted=True)
    world.plan()
    next_ = world.submit("next", "4 gpu=1", walltime=60)
    assert (
        rows(world, next_).info == "starts in about 1m40s (80%: 1m15s - 2m24s) when 1 (train) ends, from earlier runs"
    )
    assert rows(world, next_).eta.predicted


def test_without_an_expected_start_the_reason_stands_there():
    world = World()
    world.submit("train", "8 gpu=1", walltime=100)
    world.plan()
    next_ = world.submit("next", "4 gpu=1", walltime=60)
    assert rows(world, next_, with_eta=False).info == "needs room for 4 members, free resources hold 0"


def test_a_running_job_says_where_it_is():
    world = World()
    job = world.submit("train", "4 gpu=1", walltime=60)
    world.plan()
    world.tick(30)
    row = rows(world, job)
    assert row.info == "gpu 0-3"
    assert (row.members, row.gpus, row.placement) == (4, 4.0, {"box": 4})
    assert row.devices == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert (row.ran_s, row.eta, row.reason) == (30.0, None, None)


def test_a_job_without_devices_says_on_which_node_it_is():
    world = World()
    job = world.submit("cpu", "2 cpu=4", walltime=60)
    world.plan()
    assert rows(world, job).info == "on box"


def test_an_attempt_on_its_way_in_or_out_says_so():
    world = World()
    job = world.submit("train", "2 gpu=1", walltime=60)
    world.plan()
    job.live.phase = AttemptPhase.PREPARING
    assert rows(world, job).info == "starting on gpu 0-1"
    job.live.phase, job.live.purpose, job.live.by = AttemptPhase.ASKED, EVICT, "preempt for 12"
    assert rows(world, job).info == "gpu 0-1, making way (preempt for 12)"
    job.live.purpose = "cancel"
    assert rows(world, job).info == "gpu 0-1, stopping"


def test_members_on_their_way_in_are_not_there_yet():
    world = World()
    job = world.submit("train", "2-4 gpu=1", walltime=60)
    world.plan()
    live = job.live
    assert len(live.members) == 4
    live.resizing = ResizeUnderWay("r1.2", 2, frozenset(), frozenset({2, 3}), 0)
    assert rows(world, job).info == "gpu 0-1, growing to 4"
    assert rows(world, job).members == 2
    live.resizing = ResizeUnderWay("r1.3", 3, frozenset({3}), frozenset(), 0)
    live.members[3].leaving = True
    assert rows(world, job).info == "gpu 0-3, shrinking to 3"


def test_an_ended_job_says_how_it_ended():
    world = World()
    good, bad, unwanted = (world.submit(name, "2 gpu=1", walltime=60) for name in ("good", "bad", "unwanted"))
    world.plan()
    world.tick(75)
    world.end(good, exit_code=0)
    fail(world, bad)
    world.end(unwanted, "cancelled", reason=("Cancelled", "cancelled by ada"))
    assert [row.info for row in rows(world)] == [
        "exit 0 after 1m15s",
        f"exit 1: rank 2 exited with code 1: {LAST_WORDS}",
        "cancelled by ada",
    ]


# ---------------------------------------------------------------------- reasons that only the core knows


def test_gates_of_the_core_come_before_what_the_engine_says():
    world = World()
    held = world.submit("held", "1 gpu=1", gates={"hold", "begin"})
    begin = world.submit("begin", "1 gpu=1", gates={"begin", "array"})
    begin.begin_us = world.clock.us + 3600_000_000
    part = world.submit("sweep", "1 gpu=1", gates={"array"})
    part.array = ArrayPlace("sweep", 3, 8)
    first = world.submit("only", "1 gpu=1")
    second = world.submit("only", "1 gpu=1", gates={"singleton"})
    third = world.submit("only", "1 gpu=1", gates={"singleton"})
    found = {row.id: row for row in rows(world)}
    assert found[held.id].reason == Reason("Held", f"on hold; phalanx release {held.id}")
    assert found[begin.id].reason == Reason("Held", "begins at 10:16")
    assert found[part.id].reason == Reason("Held", "at most 8 of sweep run at once")
    assert found[part.id].array == "sweep[3]"
    assert found[second.id].reason == Reason("Held", f"waits for {first.id} of the same name")
    assert found[third.id].reason == Reason("Held", f"waits for {first.id} of the same name")
    assert all(found[job.id].info == found[job.id].reason.message for job in (held, begin))


def test_a_singleton_does_not_wait_for_somebody_elses_job_of_that_name():
    world = World()
    world.submit("only", "1 gpu=1", user="bob")
    own = world.submit("only", "1 gpu=1")
    second = world.submit("only", "1 gpu=1", gates={"singleton"})
    assert rows(world, second).info == f"waits for {own.id} of the same name"
    world.end(own, "cancelled")
    assert rows(world, second).info == "waits for another of the same name"


def test_seats_that_somebody_still_sits_on_are_named():
    world = World()
    first = world.submit("first", "4 gpu=1", walltime=60)
    world.plan()
    next_ = world.submit("next", "2 gpu=1", walltime=60)
    members = {rank: Member(rank, "member", ((rank, 1000),), rank=rank) for rank in range(2)}
    next_.next, next_.state = Live(next_.id, 1, members), "starting"
    assert rows(world, next_).reason == Reason("Starting", f"has its seats; waits until {first.id} has left them")
    assert rows(world, next_).info == f"has its seats; waits until {first.id} has left them"
    world.known.occupancy.give(first.live, first.live.members.values())
    world.known.occupancy.closed[0] = "python (pid 7) of eve"
    assert rows(world, next_).info == "has its seats; waits until python (pid 7) of eve has left them"


def test_a_job_that_can_never_run_says_so():
    world = World()
    job = world.submit("huge", "99 gpu=1")
    job.infeasible = "can never run here: the cluster holds 8 of 99 members even when empty"
    assert rows(world, job).reason == Reason("Infeasible", job.infeasible)


def test_an_attempt_that_could_not_be_prepared_is_remembered_while_the_job_waits_again():
    world = World()
    world.submit("run", "8 gpu=1", walltime=60)
    world.plan()
    job = world.submit("odd", "1 gpu=1")
    job.reason = ("CannotStart", "uid 7 is nobody")
    told = rows(world, job).reason.message
    assert told.endswith("; the last attempt could not be started: uid 7 is nobody")


def test_who_starts_with_the_next_pass_has_no_reason():
    world = World()
    job = world.submit("now", "1 gpu=1", walltime=60)
    row = rows(world, job)
    assert row.reason is None
    assert row.info == "starts any moment"


def test_a_job_that_has_its_seats_is_not_expected_to_start_any_more():
    world = World()
    world.submit("run", "8 gpu=1", walltime=600)
    world.plan()
    jobs = [world.submit(f"j{at}", "8 gpu=1", walltime=60) for at in range(25)]
    assert rows(world)[1].eta is not None
    jobs[0].next, jobs[0].state = Live(jobs[0].id, 1, {}), "starting"
    found = rows(world)
    assert (found[1].eta, found[1].info) == (None, "has its seats; starts any moment")
    assert found[2].eta is not None


def test_everybody_is_explained_by_one_pass_until_something_happens():
    world = World()
    world.submit("run", "8 gpu=1", walltime=600)
    world.plan()
    waiting = [world.submit(f"j{at}", "8 gpu=1", walltime=60) for at in range(5)]
    rows(world)
    told = world.teller.rows_of.explained()
    rows(world, *waiting)
    assert world.teller.rows_of.explained() is told
    late = world.submit("late", "8 gpu=1", walltime=60)
    assert rows(world, late).reason.code == "Capacity"
    assert world.teller.rows_of.explained() is not told


# ---------------------------------------------------------------------- who may read what


@pytest.mark.parametrize(("who", "reads"), [("ada", True), ("bob", False)])
def test_what_a_job_wrote_is_its_owners(who, reads):
    world = World()
    job = world.submit("bad", "4 gpu=1", walltime=60)
    world.plan()
    world.tick(5)
    fail(world, job)
    row = rows(world, job, who=caller(who))
    detail = asyncio.run(world.teller.detail(job, caller(who)))
    why = asyncio.run(world.teller.why(job, caller(who)))
    record_row = world.teller.row_of_record(world.store.records[job.id], caller(who))
    told = [msgspec.json.encode(each) for each in (row, detail, why, record_row)]
    assert [LAST_WORDS.encode() in each for each in told] == [reads] * 4
    assert all(
        b"rank 2" in each or b'"rank":2' in each for each in told
    )  # that it failed, and which rank, is no secret
    assert (b"s3cret" in told[1]) is reads
    assert (detail.command == ["python", "bad.py"]) is reads
    assert (detail.cwd, detail.env, detail.run_dir) == (
        ("/data", {"SECRET": "s3cret"}, f"runs/{job.id}.1") if reads else (None, None, None)
    )


def test_an_administrator_reads_everything():
    world = World()
    job = world.submit("bad", "4 gpu=1")
    assert asyncio.run(world.teller.detail(job, caller("bob", admin=True))).command == ["python", "bad.py"]


# ---------------------------------------------------------------------- details


def test_the_detail_names_members_history_and_where_the_time_went():
    world = World()
    job = world.submit("train", "2 gpu=2", walltime=60)
    world.plan()
    world.tick(10)
    job.ledger = {"lost": 5.0}
    detail = asyncio.run(world.teller.detail(job, caller("ada")))
    assert [(each.rank, each.devices, each.pid) for each in detail.members] == [
        (0, ["GPU-0", "GPU-1"], 5010),
        (1, ["GPU-2", "GPU-3"], 5011),
    ]
    assert detail.gang == {"members": 2, "each": {"gpu": 2.0}}
    assert [each.event for each in detail.history] == ["bind", "start"]
    assert detail.ledger_gpu_s == {"lost": 5.0, "productive": 40.0}
    assert detail.job.info == "gpu 0-3"


def test_a_job_whose_command_is_gone_is_told_without_it():
    world = World()
    job = world.submit("train", "1 gpu=1")
    del world.store.runs_by_job[job.id]
    assert asyncio.run(world.teller.detail(job, caller("ada"))).command is None


# ---------------------------------------------------------------------- rows of old


def test_the_row_of_a_job_on_disk_is_the_row_it_had_in_memory():
    world = World()
    job = world.submit("train", "4 gpu=1", walltime=60)
    world.plan()
    world.tick(75)
    world.end(job, exit_code=0)
    now, then = rows(world, job), world.teller.row_of_record(world.store.records[job.id])
    # How often it was tried is not in the made-up store.
    assert msgspec.structs.replace(then, attempt=now.attempt) == now


def test_a_job_of_a_queue_that_is_gone_can_still_be_listed():
    world = World()
    job = world.submit("train", "4 gpu=1")
    world.end(job, "cancelled")
    record = world.store.records[job.id]
    record.gang = msgspec.json.encode({"members": 4, "each": {"gpu": 1}, "queue": "closed-down"})
    record.options = msgspec.json.encode({"array": {"of": "sweep", "index": 4}})
    row = world.teller.row_of_record(record)
    assert (row.state, row.members_max, row.array, row.info) == ("cancelled", 0, "sweep[4]", "cancelled")


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("lines", "topology", "text"),
    [
        (["4 gpu=1"], "", "4 GPUs as 4 x 1"),
        (["1 gpu=1"], "", "1 GPU as 1 x 1"),
        (["2 gpu=8"], ">node", "16 GPUs as 2 x 8, in one node"),
        (["2-8 gpu=1"], "", "8 GPUs (min 2) as 8 x 1"),
        (["1 gpu=0.5"], "", "0.5 GPUs as 1 x 0.5"),
        (["2 gpu=4", "1 cpu=4"], "", "8 GPUs as 2 x 4 and 1 member without a GPU"),
        (["1-3 cpu=4"], "", "1:3 members without a GPU"),
    ],
)
def test_what_a_gang_needs(lines, topology, text):
    assert amounts.needs_text(make_gang("x", *lines, topology=topology)) == text


@pytest.mark.parametrize(
    ("kind", "units", "text", "bare"),
    [
        ("gpu", 1000, "1 GPU", "1"),
        ("gpu", 2500, "2.5 GPUs", "2.5"),
        ("cpu", 8000, "8 cpu", "8"),
        ("memory", 3 << 29, "1.5Gi memory", "1.5Gi"),
        ("memory", 1 << 40, "1Ti memory", "1Ti"),
    ],
)
def test_amounts(kind, units, text, bare):
    assert (amounts.amount(kind, units), amounts.amount(kind, units, bare=True)) == (text, bare)


def test_rows_are_equal_whatever_their_order():
    world = World()
    jobs = [world.submit(f"j{at}", "3 gpu=1", walltime=60) for at in range(6)]
    world.plan()
    there, back = rows(world, *jobs), rows(world, *reversed(jobs))
    assert there == back[::-1]
