"""Why a job is where it is, and what would start it sooner: only what really does."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from telling_world import World, at_utc, caller  # noqa: F401

from phalanx.frontends.host.core import sooner
from phalanx.frontends.host.core.forecast import CROWD
from phalanx.frontends.host.core.jobs import ArrayPlace
from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.core.whys import DECISIONS_MOST
from phalanx.frontends.host.messages import Reason, Submission
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.settings import Bounds, Settings
from phalanx.model.queue import Queue, UserLimit

PATIENT = Settings(priority_ceiling=0)  # nobody may ask for more


def why(world, job, who=None):
    return asyncio.run(world.teller.why(job, who))


def commands(told):
    return [way.command for way in told.sooner_if]


def full_world(**options):
    """Seven of eight devices in use, for an hour and for half of one."""
    world = World(**options)
    train = world.submit("train", "4 gpu=1", "ada", walltime=3600)
    world.submit("eval", "3 gpu=1", "bob", walltime=1800)
    world.plan()
    return world, train


# ---------------------------------------------------------------------- blockers


def test_who_holds_the_devices_is_named_with_numbers():
    world, _ = full_world()
    world.known.occupancy.closed[7] = "python (pid 12) of carol"
    big = world.submit("big", "8 gpu=1", "eve", walltime=60)
    told = why(world, big)
    assert told.reason == Reason(
        "Capacity",
        "needs 8 GPUs at once, 1 of 8 free: 1 (train, ada) holds 4, 2 (eval, bob) holds 3; "
        "gpu 7 is not given away (python (pid 12) of carol)",
        8,
        1,
    )
    assert told.needs == "8 GPUs as 8 x 1"
    assert told.eta.hangs_on == "when 1 (train) ends"


def test_what_is_short_is_named_if_it_is_not_devices():
    world = World()
    world.submit("cpus", "1 cpu=60", walltime=600)
    world.plan()
    job = world.submit("more", "1 gpu=1 cpu=10", walltime=60)
    assert why(world, job).reason.message == "needs 10 cpu at once, 4 of 64 free"


def test_shares_that_lie_in_pieces_are_fragmentation():
    world = World(gpus=2)
    for _ in range(2):
        world.submit("half", "1 gpu=0.6", walltime=600)
    world.plan()
    job = world.submit("more", "1 gpu=0.8", walltime=60)
    told = why(world, job)
    assert told.reason.code == "Fragmentation"
    assert told.reason.message.startswith("needs 0.8 GPUs at once, 0.8 of 2 free: 1 (half, ada) holds 0.6, 2 (half")


def test_a_limit_says_how_much_of_it_is_used_and_what_else_is_in_the_way():
    world = World(queues=[Queue("research", limit={"gpu": 4000})], users=[UserLimit("bob", {"gpu": 2000})])
    world.submit("a", "4 gpu=1", queue="research", walltime=600)
    world.submit("b", "2 gpu=1", user="bob", walltime=600)
    world.plan()
    in_queue = world.submit("c", "4 gpu=1", queue="research", walltime=60)
    of_user = world.submit("d", "1 gpu=1", user="bob", walltime=60)
    told = why(world, in_queue)
    assert told.reason.code == "QueueLimit"
    assert told.reason.message.endswith("(research uses 4 of 4 GPUs)")
    assert [each.code for each in told.blockers] == ["Capacity"]
    assert told.blockers[0].message.startswith("needs 4 GPUs at once, 2 of 8 free: 1 (a, ada) holds 4")
    assert why(world, of_user).reason.message.endswith("(bob uses 2 of 2 GPUs)")


def test_who_would_be_delayed_is_named():
    world, _ = full_world()
    big = world.submit("big", "8 gpu=1", "eve", walltime=600)
    small = world.submit("small", "1 gpu=1", "ada", walltime=7200)
    world.plan()
    told = why(world, small)
    assert told.reason.code == "Reserved"
    assert told.reason.message == (
        f"would fit, but would delay {big.id} (big, eve, 8 GPUs), which is to start at 10:16"
    )


def test_dependencies_are_named_with_where_they_stand():
    world = World()
    first = world.submit("prepare", "1 gpu=1", walltime=600)
    world.plan()
    after = world.submit("train", "1 gpu=1", after=(str(first.id),), walltime=60)
    any_ = world.submit("clean", "1 gpu=1", after_any=(str(first.id),), walltime=60)
    assert why(world, after).reason == Reason("DependencyWaiting", "waits for the success of 1 (prepare, running)")
    assert why(world, any_).reason.message == "waits for the end of 1 (prepare, running)"
    # `ps` said "for the end of 1" of both.
    rows = asyncio.run(world.teller.rows([after, any_], with_eta=False))
    assert [row.reason.message for row in rows] == ["waits for the success of 1", "waits for the end of 1"]


def test_a_rest_after_failures_has_an_end():
    world = World()
    job = world.submit("flaky", "1 gpu=1", walltime=60)
    for _ in range(3):
        world.tick(15)  # longer than its first rest
        world.plan()
        world.planner.requeue(world.clock.us, job.number, failed=True)
    job.live, job.state = None, "pending"
    told = why(world, job)
    assert told.reason.code == "Backoff"
    assert told.reason.message == "failed 3 times without saving anything; it rests, and is tried again in 20s"


# ---------------------------------------------------------------------- who is ahead


def test_those_ahead_are_counted_and_the_first_are_named():
    world = World("fcfs")
    world.submit("run", "8 gpu=1", walltime=600)
    world.plan()
    before = [world.submit(f"j{at}", "2 gpu=1", "bob", walltime=60) for at in range(7)]
    held = world.submit("held", "1 gpu=1", gates={"hold"})
    mine = world.submit("mine", "1 gpu=1", walltime=60)
    world.submit("behind", "1 gpu=1", walltime=60)
    world.plan()
    told = why(world, mine)
    assert (told.ahead.gangs, told.ahead.gpus) == (7, 14.0)
    assert told.ahead.jobs == [{"id": job.id, "name": job.name, "user": "bob", "gpus": 2.0} for job in before[:5]]
    assert why(world, held).ahead.gangs == 0
    assert why(world, before[0]).ahead.gangs == 0


def test_between_queues_those_are_ahead_whose_queue_stands_better():
    world = World("fair", queues=[Queue("a"), Queue("b")])
    world.submit("run", "8 gpu=1", queue="a", walltime=6000)
    world.plan()
    first = world.submit("first", "8 gpu=1", queue="a", walltime=60)
    second = world.submit("second", "8 gpu=1", queue="b", walltime=60)
    world.plan()
    third = world.submit("third", "8 gpu=1", queue="a", walltime=60)
    # Queue a has everything, so whoever came first in it stands behind queue b.
    assert [job["id"] for job in why(world, first).ahead.jobs] == [second.id]
    assert [job["id"] for job in why(world, third).ahead.jobs] == [second.id, first.id]
    assert why(world, second).ahead.gangs == 0


def test_whoever_can_never_run_is_ahead_of_nobody():
    world = World("fcfs")
    world.submit("run", "8 gpu=1", walltime=600)
    world.submit("huge", "99 gpu=1")
    mine = world.submit("mine", "8 gpu=1", walltime=60)
    world.plan()
    assert why(world, mine).ahead.gangs == 0


# ---------------------------------------------------------------------- what would help


def test_a_shorter_time_is_told_if_it_fits_before_the_reservation_and_really_starts_the_job():
    world, _ = full_world(settings=PATIENT)
    world.submit("big", "8 gpu=1", "eve", walltime=600)
    small = world.submit("small", "1 gpu=1", "ada", walltime=7200)
    world.plan()
    told = why(world, small)
    way = next(way for way in told.sooner_if if "--time" in way.command)
    assert way.command == f"phalanx edit {small.id} --time 59m"
    assert way.what == "it takes at most 59m"
    assert way.at == world.known.iso(world.clock.wall_s())
    # And so it is: with that time it starts at once.
    replaced = small.gang.__class__(**{
        **{name: getattr(small.gang, name) for name in small.gang.__slots__}, "walltime_us": 59 * 60_000_000,
    })  # fmt: skip
    number = world.planner.replace(world.clock.us, small.number, replaced, held=False)
    assert number in [begin.gang for begin in world.planner.plan(world.clock.us).done]


def test_no_time_is_told_where_none_would_help():
    world, _ = full_world(settings=PATIENT)
    world.submit("big", "8 gpu=1", "eve", walltime=600)
    two = world.submit("two", "2 gpu=1", "ada", walltime=7200)  # one is free
    world.plan()
    assert not [command for command in commands(why(world, two)) if "--time" in command]


def test_fewer_members_are_told_largest_first_unless_fewer_still_start_sooner():
    world, _ = full_world(settings=PATIENT)
    big = world.submit("big", "8-16 gpu=1", "eve", walltime=3600)
    world.plan()
    told = why(world, big)
    assert [(way.what, way.command) for way in told.sooner_if if "resize" in way.command] == [
        ("it may begin with 1 GPU", f"phalanx resize {big.id} --min 1"),
        ("it may begin with 4 GPUs", f"phalanx resize {big.id} --min 4"),
    ]
    assert told.sooner_if[0].at < told.sooner_if[1].at < told.eta.at


def test_a_rigid_job_is_not_told_to_begin_with_less():
    world, _ = full_world(settings=PATIENT)
    big = world.submit("big", "8 gpu=1", "eve", walltime=3600)
    world.plan()
    assert not [command for command in commands(why(world, big)) if "resize" in command]


def test_a_member_of_many_devices_cannot_be_made_smaller():
    world, _ = full_world(settings=PATIENT)
    one = world.submit("one", "1 gpu=8", "eve", walltime=3600)
    world.plan()
    assert not [command for command in commands(why(world, one)) if "resize" in command]


def test_whoever_may_be_evicted_may_live_under_a_reservation(monkeypatch):
    monkeypatch.setattr(sooner, "EDITS", sooner.EDITS | {"--preemptible"})
    world, _ = full_world(settings=PATIENT)
    world.submit("big", "8 gpu=1", "eve", walltime=600)
    small = world.submit("small", "1 gpu=1", "ada", walltime=7200)
    world.plan()
    assert f"phalanx edit {small.id} --preemptible" in commands(why(world, small))


def test_a_wish_for_one_place_is_loosened_only_where_it_is_in_the_way():
    world, _ = full_world(settings=PATIENT)
    job = world.submit("near", "4 gpu=1", "eve", topology=">node", walltime=60)
    world.plan()
    # There is one node only: the wish costs nothing.
    assert not [command for command in commands(why(world, job)) if "--topology" in command]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (Settings(), True),
        (PATIENT, False),
        (Settings(priority_ceiling=7), False),
        (Settings(priority_ceiling=8), True),
        (Settings(priority_ceiling=99, user_bounds={"ada": Bounds(priority_ceiling=3)}), False),
    ],
)
def test_a_higher_priority_is_told_only_to_whoever_may_have_it(settings, told):
    world = World("fcfs", settings=settings)
    world.submit("run", "8 gpu=1", walltime=600)
    world.plan()
    world.submit("long", "8 gpu=1", "bob", priority=7, walltime=3600)
    mine = world.submit("mine", "8 gpu=1", priority=7, walltime=60)
    world.plan()
    assert (f"phalanx edit {mine.id} --priority 8" in commands(why(world, mine))) is told


def test_a_job_on_hold_is_told_how_to_release_it_and_nothing_else():
    world, _ = full_world()
    held = world.submit("held", "1 gpu=1", gates={"hold"}, walltime=60)
    told = why(world, held)
    assert commands(told) == [f"phalanx release {held.id}"]
    assert told.sooner_if[0].at == world.known.iso(world.clock.wall_s())
    assert told.eta is None


@pytest.mark.parametrize("gates", [{"array"}, {"singleton"}, {"aside"}, {"hold", "aside"}])
def test_nothing_is_told_that_a_person_cannot_do(gates):
    world, _ = full_world()
    job = world.submit("part", "1 gpu=1", gates=gates, walltime=60)
    job.array = ArrayPlace("sweep", 0, 8)
    assert commands(why(world, job)) == []


def test_what_was_not_tried_in_time_is_not_told():
    seconds = iter(range(1_000_000))
    world, _ = full_world(meter=lambda: next(seconds))
    held = world.submit("held", "1 gpu=1", gates={"hold"}, walltime=60)
    assert commands(why(world, held)) == []


def test_an_answer_in_a_crowd_is_cheap(monkeypatch):
    """One copy of the queue for everything that is asked of it, and a bound on the time for playing it forward."""
    ticks = itertools.count()  # the meter is asked once a pass, and a pass takes about two milliseconds
    world, _ = full_world(meter=lambda: next(ticks) * 0.002)
    crowd = [
        world.submit(f"n{at}", f"{1 + at % 8} gpu=1", walltime=600 + 60 * (at % 50), preemptible=at % 5 == 0)
        for at in range(CROWD + 500)
    ]
    world.plan()
    copies, prepare = [], world.forecaster.prepare
    monkeypatch.setattr(world.forecaster, "prepare", lambda *given: copies.append(given) or prepare(*given))
    for job in (crowd[130], crowd[-1]):
        copies.clear()
        world.clock.us += 120_000_000  # what was known is too old
        world.planner.at(world.clock.us)
        before = next(ticks)
        told = why(world, job)
        assert (next(ticks) - before) * 0.002 < 0.45
        assert len(copies) == 1
        assert told.ahead.gangs > 100


def test_what_was_tried_is_what_was_forecast():
    """The forecast's look serves as the one to compare ways with: the same answers with and without it."""
    told = []
    for forget in (False, True):
        world, _ = full_world()
        job = world.submit("big", "8-16 gpu=1", "eve", walltime=3600)
        world.submit("small", "1 gpu=1", "bob", walltime=300)
        world.plan()
        if forget:
            world.teller.whys.sooners.forecaster.ground = world.forecaster.prepare
        told.append([(way.command, way.at) for way in why(world, job).sooner_if])
    assert told[0] == told[1] != []


def test_trying_changes_nothing(monkeypatch):
    world, _ = full_world()
    job = world.submit("big", "8 gpu=1", "eve", walltime=3600)
    world.plan()
    state = world.planner.state
    before = (
        len(state.gangs),
        len(state.pending),
        len(state.running),
        state.nodes.free.tolist(),
        world.planner.version,
    )
    monkeypatch.setattr(Planner, "at", _at_of_copies(world.planner))
    why(world, job)
    after = (len(state.gangs), len(state.pending), len(state.running), state.nodes.free.tolist(), world.planner.version)
    assert after == before


def _at_of_copies(original):
    whole = Planner.at

    def at(self, now_us):
        assert self is not original
        assert self.state is not original.state
        return whole(self, now_us)

    return at


def test_every_command_that_is_told_is_one_the_command_line_knows():
    acting = pytest.importorskip("phalanx.cli.host.acting")
    world, _ = full_world()
    jobs = [
        world.submit("big", "8-16 gpu=1", "eve", walltime=3600),
        world.submit("small", "1 gpu=1", "ada", walltime=7200),
        world.submit("held", "1 gpu=1", gates={"hold"}, walltime=60),
    ]
    world.plan()
    told = {command for job in jobs for command in commands(why(world, job))}
    assert {command.split()[1] for command in told} == {"edit", "resize", "release"}
    for command in told:
        _, verb, *words = command.split()
        getattr(acting, verb).make_context(verb, words)  # raises what it does not understand
    known = {option for parameter in acting.edit.params for option in parameter.opts}
    assert known >= sooner.EDITS


# ---------------------------------------------------------------------- running and ended


def test_a_running_job_says_why_here_why_this_size_and_until_when():
    world, train = full_world()
    told = why(world, train)
    assert told.reason == Reason(
        "Running",
        "runs on gpu 0-3 since 09:16, all in one island; 4 members as asked; until about 10:16, by its --time",
    )
    assert [each.event for each in told.decisions] == ["bind", "start"]
    assert (told.blockers, told.sooner_if, told.eta) == ([], [], None)
    assert told.since == world.known.iso(train.start_wall)


def test_the_size_of_an_elastic_job_has_a_cause():
    world = World()
    job = world.submit("wide", "2-6 gpu=1")
    world.plan()
    assert "6 of 2:6 members, its largest; nobody said how long it runs" in why(world, job).reason.message
    for key in (3, 4, 5):
        job.live.members[key].exited = job.live.members[key].leaving = True
    assert "3 of 2:6 members: its members have not said that they can be resized" in why(world, job).reason.message
    for member in job.live.members.values():
        member.speaks = frozenset({"shrink", "grow"})
    assert "3 of 2:6 members: it grows when GPUs are idle" in why(world, job).reason.message
    job.pin = 3
    assert "since somebody wants 3 (phalanx resize 1 auto takes that back)" in why(world, job).reason.message


def test_the_end_of_a_running_job_is_by_its_own_word_if_it_has_one():
    world, train = full_world()
    train.progress = {"step": 10, "total": 100, "rate": 0.5}
    assert "it says that it needs 3m more" in why(world, train).reason.message
    train.progress = None
    world.tick(7200)
    assert "it should have ended at 10:16, by what was said of it" in why(world, train).reason.message


def test_an_ended_job_says_why_for_whom_it_was_evicted_and_what_was_lost():
    world, train = full_world()
    world.happen(train, "evict", cause="preempt", **{"for": 12})
    world.happen(train, "evict", cause="reclaim", **{"for": 14})
    world.tick(60)
    world.end(train, exit_code=0, ledger={"productive": 100.0, "lost": 90.0})
    told = why(world, train)
    assert told.reason == Reason(
        "Completed",
        "all members exited with code 0; it was evicted 2 times, last for 14; 1m30s of GPU time were lost",
    )
    assert told.since == world.known.iso(train.end_wall)


def test_only_the_last_decisions_are_told_of_a_job_with_thousands():
    world, train = full_world()
    for at in range(2500):
        world.happen(train, "grow", members=at)
    told = why(world, train)
    assert len(told.decisions) == DECISIONS_MOST
    assert told.decisions[-1].data == {"members": 2499}
    assert told.decisions[0].data == {"members": 2480}


# ---------------------------------------------------------------------- jobs that are not there yet


def try_out(world, gang, *, user="ada", **options):
    submission = Submission(
        gang=msgspec.Raw(msgspec.json.encode(gang)),
        run=msgspec.Raw(b'{"command":["python","train.py"]}'),
        name=options.pop("name", "new"),
        **options,
    )
    taken = world.known.intake.take(submission, user, world.clock.us, world.clock.wall_s())
    return asyncio.run(world.teller.try_out(caller(user), taken))


def test_a_dry_run_says_when_a_job_would_start_and_leaves_no_trace():
    world, _ = full_world()
    gangs = len(world.planner.state.gangs)
    now = try_out(world, {"members": 1, "each": {"gpu": 1}, "walltime": "10m"})
    later = try_out(world, {"members": 4, "each": {"gpu": 1}, "walltime": "10m"})
    assert (now.state, now.reason, now.eta.at) == ("pending", None, world.known.iso(world.clock.wall_s()))
    assert later.reason.code == "Capacity"
    assert later.eta.hangs_on == "when 2 (eval) ends"
    assert later.eta.low < later.eta.at
    assert len(world.planner.state.gangs) == gangs
    assert len(world.known.register) == 2


def test_a_dry_run_knows_gates_and_dependencies():
    world, train = full_world()
    gang = {"members": 1, "each": {"gpu": 1}, "walltime": "10m"}
    begin = try_out(world, gang, begin="+30m")
    after = try_out(world, {**gang, "after": [str(train.id)]})
    held = try_out(world, {**gang, "hold": True})
    assert begin.eta.at == world.known.iso(world.clock.wall_s() + 1800)
    assert begin.reason == Reason("Held", "begins at 09:46")
    assert after.eta.hangs_on == "when 1 (train) ends"
    assert after.reason.code == "DependencyWaiting"
    assert held.eta is None
    assert held.reason.code == "Held"
    with pytest.raises(Refused, match="there is no job 'nobody' to wait for"):
        try_out(world, {**gang, "after": ["nobody"]})


def test_a_dry_run_predicts_from_earlier_runs_and_says_what_can_never_run():
    world, _ = full_world()
    never = try_out(world, {"members": 99, "each": {"gpu": 1}}, allow_infeasible=True)
    assert never.eta is None
    assert never.reason.code == "Infeasible"


# ---------------------------------------------------------------------- surplus, and who passes whom


def speak(job):
    """Its members have said that they can be resized."""
    for member in job.live.members.values():
        member.speaks = frozenset({"shrink", "grow"})


def elastic_world(**deadlines):
    """Two elastic jobs on eight devices, an hour each at eight."""
    world = World("goodput", gpus=8)
    jobs = []
    for name in ("left", "right"):
        when = {"deadline_us": deadlines[name] * 1_000_000} if name in deadlines else {}
        jobs.append(world.submit(name, "1-8 gpu=1", walltime=3600, **when))
    world.plan()
    for job in jobs:
        speak(job)
        world.planner.set_manners(world.clock.us, job.number, elastic=True)
    return world, *jobs


def test_a_running_job_says_what_its_date_needs_and_what_the_next_step_is_worth():
    world, left, right = elastic_world(left=9000)
    told = why(world, left).surplus
    assert told.sentences == [
        "its date 11:46 needs 4 members; it has 4",
        "its next step, to 5 members, would save 24 min",
        "nobody is before it",
    ]
    assert (told.members, told.needs, told.coming, told.next_members, told.before) == (4, 4, 0, 5, [])
    assert told.date.startswith("2026-11-10T11:46")
    other = why(world, right).surplus
    assert other.sentences == [
        "it has no date, and so no share of its own",
        "its next step, to 5 members, would save 24 min",
        "1 (left) is before it",
    ]
    assert (other.date, other.needs, other.before) == (None, 0, [left.id])


def test_a_date_that_needs_more_says_what_is_coming_or_that_it_is_out_of_reach():
    world, left, _ = elastic_world(left=7200)
    world.tick(1200)
    at_us = world.clock.us
    world.planner.report(at_us, left.number, at_us + 7000_000_000, None)  # slower than it thought
    assert why(world, left).surplus.sentences[0] == "its date 11:16 needs 6 members; it has 5: 1 is coming"
    world.planner.report(at_us, left.number, at_us + 20_000_000_000, None)
    assert why(world, left).surplus.sentences[0] == "its date 11:16 is out of reach at every size"


def test_whoever_has_a_fixed_size_has_no_surplus():
    world, left, _ = elastic_world()
    world.planner.pin(world.clock.us, left.number, 4)
    assert why(world, left).surplus is None
    rigid, train = full_world()
    assert why(rigid, train).surplus is None


def test_who_will_pass_the_owner_of_a_reservation_is_named_with_the_rule():
    world, _ = full_world(policy="goodput")
    big = world.submit("big", "8 gpu=1", "eve", walltime=7200)
    for name in "bc":
        world.submit(name, "1 gpu=1", walltime=600)
    told = why(world, big)
    message = "4 (b), 5 (c) will pass: shorter, and done before this job's reservation at 10:16 (fill: shortest)"
    assert [(each.jobs, each.rule, each.message) for each in told.passed_by] == [([4, 5], "shortest", message)]
    assert told.fills_after is None


def test_under_arrival_the_rule_is_named_so():
    world, _ = full_world()
    big = world.submit("big", "8 gpu=1", "eve", walltime=600)
    world.submit("b", "1 gpu=1", walltime=1200)
    told = why(world, big)
    assert [each.message for each in told.passed_by] == [
        "4 (b) will pass: done before this job's reservation at 10:16 (fill: arrival)"
    ]


def test_a_longer_one_that_only_fills_is_passed_by_the_shorter():
    world, _ = full_world(policy="goodput")
    world.submit("big", "8 gpu=1", "eve", walltime=7200)
    long = world.submit("long", "1 gpu=1", walltime=3000)
    short = world.submit("short", "1 gpu=1", walltime=600)
    told = why(world, long)
    assert [each.message for each in told.passed_by] == [f"{short.id} (short) will pass: shorter (fill: shortest)"]
    assert why(world, short).passed_by == []


def tenants():
    return [Queue("owner", guarantee={"gpu": 4000}), Queue("guest")]


def tier_world():
    """The owner's queue is below its guarantee, the guests have everything, and one of the owner's has a reservation."""
    world = World("goodput", queues=tenants())
    world.submit("hold", "7 gpu=1", queue="guest", walltime=3600)
    world.plan()
    world.submit("big", "4 gpu=1", queue="owner", walltime=3600)
    return world


def test_a_queue_below_its_guarantee_passes_shorter_ones_and_both_are_told():
    world = tier_world()
    quick = world.submit("quick", "1 gpu=1", queue="guest", walltime=60)
    slow = world.submit("slow", "1 gpu=1", queue="owner", walltime=3000)
    told = why(world, quick)
    assert [(each.rule, each.message) for each in told.passed_by] == [
        ("tier", f"{slow.id} (slow) will pass: queue 'owner' is below its guarantee, and 'guest' is not (fill by tier)")
    ]
    assert told.fills_after is None
    assert why(world, slow).passed_by == []
    assert why(world, slow).fills_after is None


def test_a_filler_is_told_whose_queue_fills_first():
    world = tier_world()
    quick = world.submit("quick", "1 gpu=1", queue="guest", walltime=60)
    wide = world.submit("wide", "2 gpu=1", queue="owner", walltime=300)  # two are not free yet, and one is
    told = why(world, quick)
    assert told.passed_by == []
    assert told.fills_after.message == (
        f"queue 'guest' is not below its guarantee; {wide.id} (wide) of queue 'owner', below its own, fills first"
    )


def test_who_runs_beside_a_reservation_passes_it_and_is_told_so():
    """The big one needs six of eight when the first ends; two are left for somebody long."""
    world = World("goodput")
    world.submit("train", "6 gpu=1", walltime=3600)
    world.plan()
    big = world.submit("big", "6 gpu=1", "eve", walltime=600)
    world.submit("long", "2 gpu=1", walltime=7200)
    assert [each.message for each in why(world, big).passed_by] == [
        "3 (long) will pass: beside this job's reservation at 10:16 (fill: shortest)"
    ]


def test_who_fits_where_another_does_not_passes_under_arrival():
    world, _ = full_world()
    world.submit("big", "8 gpu=1", "eve", walltime=7200)
    wide = world.submit("wide", "2 gpu=1", walltime=1200)
    world.submit("slim", "1 gpu=1", walltime=1200)
    assert [each.message for each in why(world, wide).passed_by] == [
        "5 (slim) will pass: fits where this job does not (fill: arrival)"
    ]


def test_whoever_is_ahead_in_the_order_or_waits_for_a_gate_passes_nobody():
    world, _ = full_world(policy="goodput")
    world.submit("big", "8 gpu=1", "eve", walltime=7200)
    world.submit("first", "1 gpu=1", walltime=600, priority=5)
    late = world.submit("late", "1 gpu=1", walltime=600)
    assert why(world, late).passed_by == []
    held = world.submit("held", "1 gpu=1", walltime=600, gates=("hold",))
    told = why(world, held)
    assert (told.passed_by, told.fills_after) == ([], None)


def test_the_owner_of_a_reservation_is_ahead_and_passes_nobody():
    world = World("goodput", queues=tenants())
    world.submit("hold", "7 gpu=1", queue="guest", walltime=3600)
    world.plan()
    mid = world.submit("mid", "5 gpu=1", queue="guest", walltime=600)
    world.submit("big", "4 gpu=1", queue="owner", walltime=3600)  # came later, and its queue stands better
    told = why(world, mid)
    assert [each["name"] for each in told.ahead.jobs] == ["big"]
    assert (told.passed_by, told.fills_after) == ([], None)


def test_whoever_is_kept_by_a_limit_fills_nothing():
    world = World("goodput", queues=tenants(), users=[UserLimit("bob", {"gpu": 2000})])
    world.submit("hold", "5 gpu=1", queue="guest", walltime=3600)
    world.submit("mine", "2 gpu=1", "bob", queue="guest", walltime=3600)
    world.plan()
    big = world.submit("big", "4 gpu=1", queue="guest", walltime=600)
    slim = world.submit("slim", "1 gpu=1", queue="guest", walltime=7200)
    world.submit("more", "2 gpu=1", "bob", queue="owner", walltime=60)
    assert why(world, big).fills_after is None
    assert why(world, slim).fills_after is None


def test_with_many_reservations_one_behind_passes_at_its_own():
    world, _ = full_world(policy="conservative")
    big = world.submit("big", "8 gpu=1", "eve", walltime=7200)
    small = world.submit("small", "3 gpu=1", walltime=600)  # when the second ends, before the first does
    told = why(world, big)
    assert [(each.jobs, each.message) for each in told.passed_by] == [
        ([small.id], "4 (small) will pass: at a reservation of its own, which delays nobody before it")
    ]
    assert why(world, small).passed_by == []


# ---------------------------------------------------------------------- one story


def test_a_start_that_hangs_on_one_who_waits_says_so():
    world = World(gpus=1)
    world.submit("runs", "1 gpu=1", walltime=600)
    world.plan()
    first = world.submit("first", "1 gpu=1", walltime=600)
    second = world.submit("second", "1 gpu=1", walltime=600)
    told = why(world, second)
    assert told.eta.hangs_on == f"when {first.id} (first), which starts before it, ends"
    assert [job["id"] for job in told.ahead.jobs] == [first.id]


def test_one_that_was_given_a_time_to_begin_passes_and_is_named():
    world, _ = full_world(policy="goodput")
    big = world.submit("big", "8 gpu=1", "eve", walltime=7200)
    later = world.submit("later", "1 gpu=1", gates={"begin"}, walltime=600)
    later.begin_us = world.clock.us + 600_000_000
    assert [each.message for each in why(world, big).passed_by] == [
        "4 (later) will pass: its time to begin comes before this job fits, and it fits then"
    ]


@pytest.mark.parametrize("policy", ["goodput", "easy", "conservative"])
def test_whoever_a_start_hangs_on_is_ahead_or_passes(policy):
    rng = Random(7)
    for _ in range(3):
        world = World(policy, gpus=4)
        for at in range(9):
            name, line = f"j{at}", f"{rng.choice((1, 1, 2, 3, 4))} gpu=1"
            world.submit(name, line, rng.choice(("ada", "bob")), walltime=rng.choice((60, 300, 900, 3600)))
            if at == 2:
                world.plan()
        world.plan()
        waiting = [job for job in world.known.register if job.live is None]
        assert waiting
        for job in waiting:
            told = why(world, job)
            found = re.match(r"when (\d+) .*which starts before it", told.eta.hangs_on)
            before = {other["id"] for other in told.ahead.jobs} | {each for p in told.passed_by for each in p.jobs}
            assert found is None or told.ahead.gangs > 5 or int(found[1]) in before, (job.id, told)


def test_a_stated_time_is_that_of_the_largest_size_and_is_told_so():
    world = World(gpus=4)
    job = world.submit("wide", "2-8 gpu=1", walltime=30)
    world.plan()
    told = why(world, job).reason.message
    assert told.endswith("by its --time of 30s with 8 members, at the size that it has")
    small = world.submit("small", "1 gpu=1", walltime=30)
    world.end(job)
    world.plan()
    assert why(world, small).reason.message.endswith("by its --time")


def test_the_picture_and_the_answer_name_one_start():
    world = World("goodput", gpus=2)
    for at, gpus in enumerate((2, 1, 2, 1, 1)):
        world.submit(f"j{at}", f"{gpus} gpu=1", walltime=100 * (at + 1))
        world.plan()
        world.tick(7)
    bars = [bar for bar in asyncio.run(world.teller.gantt(3600))["bars"] if bar["kind"] == "forecast"]
    for job in world.known.register:
        if job.live is None:
            first = min(bar["start"] for bar in bars if bar["job"] == job.id)
            assert first == why(world, job).eta.at


def test_everything_that_a_job_waits_for_is_listed_whatever_comes_first():
    # Of --after with --begin only the begin was told, and --singleton beside it not at all.
    world, _ = full_world()
    first = world.submit("prep", "1 gpu=1", walltime=60)
    mate = world.submit("only", "1 gpu=1", walltime=60)
    job = world.submit("only", "1 gpu=1", gates={"begin", "singleton"}, after=(str(first.id),), walltime=60)
    job.begin_us, job.singleton = world.clock.us + 3600_000_000, True
    told = why(world, job)
    assert told.reason.message.startswith("begins at ")
    assert [(each.code, each.message) for each in told.blockers] == [
        ("Held", f"waits for {mate.id} of the same name"),
        ("DependencyWaiting", f"waits for the success of {first.id} (prep, pending)"),
    ]
    job.gates.add("hold")
    told = why(world, job)
    assert told.reason.message == f"on hold; phalanx release {job.id}"
    assert len(told.blockers) == 3


def test_show_gives_the_reason_in_the_words_of_why():
    world, _ = full_world()
    job = world.submit("next", "8 gpu=1", walltime=60)
    detail = asyncio.run(world.teller.detail(job, None))
    assert detail.job.reason == why(world, job).reason
    assert "1 (train, ada) holds 4" in detail.job.reason.message


def test_whoever_waits_behind_a_job_of_theirs_that_is_kept_at_a_size_is_told_how_to_let_it_shrink():
    world = World("goodput")
    toy = world.submit("toy", "2-8 gpu=1", walltime=36_000)
    world.plan()
    world.planner.set_manners(world.clock.us, toy.number, elastic=True)
    world.tick(600)
    world.planner.pin(world.clock.us, toy.number, 6)
    toy.pin = 6
    world.plan()
    world.tick(600)
    job = world.submit("next", "4 gpu=1", walltime=60)
    world.plan()
    assert f"phalanx resize {toy.id} auto" in commands(why(world, job))
    other = world.submit("other", "4 gpu=1", "bob", walltime=60)
    assert f"phalanx resize {toy.id} auto" not in commands(why(world, other)), "only its owner may"
