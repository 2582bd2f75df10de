"""Queues, the machine, shares, where the time went, how good estimates were, gauges, and the picture of it all."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from telling_world import Watched, World, at_utc, caller  # noqa: F401

from phalanx.frontends.host.core import gantts, reports
from phalanx.frontends.host.core.jobs import ResizeUnderWay
from phalanx.frontends.host.ports import DeviceReading, Use
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.host.store import EstimateRecord
from phalanx.frontends.host.stranger_watch import Stranger
from phalanx.model.queue import Queue

QUEUES = [
    Queue("research", weight=2, guarantee={"gpu": 4000}),
    Queue("nlp", parent="research", limit={"gpu": 2500, "cpu": 8000}),
]


# ---------------------------------------------------------------------- queues


def test_queues_tell_rights_usage_and_jobs_and_a_parent_has_what_its_children_use():
    world = World(queues=QUEUES)
    world.submit("a", "1 gpu=1 cpu=2", queue="nlp", walltime=60)
    world.submit("b", "2 gpu=0.5", queue="research", walltime=60)
    world.plan()
    world.submit("c", "8 gpu=1", walltime=60)
    found = {row.name: row for row in world.teller.queues()}
    assert set(found) == {"default", "research", "nlp"}  # the root is nobody's
    research, nlp = found["research"], found["nlp"]
    assert (research.parent, research.weight, research.guarantee, research.limit) == ("root", 2.0, {"gpu": 4}, {})
    assert research.used == {"gpu": 2, "cpu": 2}
    assert (nlp.parent, nlp.limit, nlp.used) == ("research", {"gpu": 2.5, "cpu": 8}, {"gpu": 1, "cpu": 2})
    assert [(row.pending, row.running) for row in (found["default"], research, nlp)] == [(1, 0), (0, 1), (0, 1)]


# ---------------------------------------------------------------------- the machine


def test_every_device_says_who_has_it():
    world = World(gpus=6)
    job = world.submit("train", "2 gpu=1", walltime=60)
    world.plan()
    world.known.occupancy.closed = {
        2: "python (pid 7) of eve",
        3: "quarantined after job 9",
        4: "it is gone from the bus",
    }
    watched = Watched(
        {
            1: DeviceReading(uses=(Use(5011, "ada", 1 << 30),), utilization=0.9, memory_used_bytes=1 << 30),
            2: DeviceReading(uses=(Use(7, "eve", 1 << 30),)),
            4: DeviceReading(present=False),
        },
        {2: Stranger("process", "eve", (7,), "python (pid 7) of eve")},
    )
    (node,) = world.teller.nodes(watched)
    assert [each.state for each in node.devices] == ["busy", "busy", "stranger", "quarantined", "gone", "free"]
    assert [each.job for each in node.devices] == [job.id, job.id, None, None, None, None]
    assert [(each.rank, each.user, each.pids) for each in node.devices[:3]] == [
        (0, "ada", [5010]),
        (1, "ada", [5011]),
        (None, "eve", [7]),
    ]
    assert (node.devices[1].utilization, node.devices[1].memory_used_bytes) == (0.9, 1 << 30)
    assert (node.name, node.open, node.containment) == ("box", True, "weak")
    assert (node.resources, node.free) == ({"gpu": 6, "cpu": 64}, {"gpu": 4, "cpu": 64})


def test_everybody_on_a_shared_device_is_told():
    # Two jobs of `-g 0.5`: `nodes` and `top` showed one of them.
    world = World(gpus=1)
    first = world.submit("one", "1 gpu=0.5", walltime=60)
    second = world.submit("two", "1 gpu=0.25", user="bob", walltime=60)
    world.plan()
    (device,) = world.teller.nodes(Watched({}))[0].devices
    assert [(use.job, use.rank, use.user, use.share, use.pid) for use in device.uses] == [
        (first.id, 0, "ada", 0.5, 5010),
        (second.id, 0, "bob", 0.25, 5020),
    ]
    assert (device.job, device.user, device.pids) == (first.id, "ada", [5010, 5020])


# ---------------------------------------------------------------------- shares


def test_how_somebody_stands_is_a_sentence():
    world = World()
    assert world.teller.share(caller("ada"))["sentence"] == "You hold 0 of 8 GPUs in 0 jobs; queue default uses 0 GPUs."
    world.submit("a", "4 gpu=1", walltime=60)
    world.plan()
    world.submit("b", "8 gpu=1", walltime=60)
    world.submit("c", "1 gpu=1", user="bob", walltime=60)
    told = world.teller.share(caller("ada"))
    assert told["user"] == "ada"
    assert told["sentence"] == ("You hold 4 of 8 GPUs in 1 job, and 1 job waits for 8 more; queue default uses 4 GPUs.")


def test_among_several_queues_it_says_whose_turn_that_makes_it():
    world = World("fair", queues=[Queue("a", guarantee={"gpu": 4000}), Queue("b")])
    world.submit("x", "6 gpu=1", queue="b", walltime=60)
    world.plan()
    world.submit("y", "4 gpu=1", queue="a", user="bob", walltime=60)
    world.submit("z", "4 gpu=1", queue="b", walltime=60)
    above, below = (world.teller.share(caller(user)) for user in ("ada", "bob"))
    assert above["sentence"].endswith(
        "queue b uses 6 GPUs of the 4 that it is entitled to now: "
        "it is above its share, so others come first, and it may have to give some back."
    )
    assert "queue a uses 0 GPUs of the 4 that it is entitled to now: it is below its share" in below["sentence"]
    assert [(row["name"], row["share"], row["guarantee"]) for row in above["queues"]] == [("b", 1.5, {})]
    assert [(row["name"], row["share"], row["guarantee"]) for row in below["queues"]] == [("a", 0.0, {"gpu": 4})]


# ---------------------------------------------------------------------- where the time went


def spent(**parts):
    return {name: float(value) for name, value in parts.items()}


def busy_world():
    """Two ended jobs of ada's, one running of bob's, one that never began."""
    world = World(settings=Settings(gpu_hour_price=2.0))
    good = world.submit("good", "4 gpu=1", walltime=60)
    bad = world.submit("bad", "2 gpu=1", walltime=60)
    world.plan()
    world.tick(1800)
    world.end(good, exit_code=0, ledger=spent(productive=7100, startup=200))
    world.tick(1800)
    world.end(bad, "failed", ledger=spent(productive=1800, lost=5300))
    running = world.submit("runs", "2 gpu=1", user="bob", walltime=60)
    world.plan()
    world.submit("waits", "8 gpu=1", walltime=60)
    world.tick(100)
    running.live.first_step_us = world.clock.us - 75_000_000
    return world, good, bad, running


def test_goodput_is_what_was_progress_of_all_device_time():
    world, *_ = busy_world()
    told = world.teller.report(None, ["user"], None)
    assert told["by"] == ["user"]
    ada, bob = told["rows"]
    assert (ada["user"], ada["jobs"], ada["gpu_s"], ada["gpu_hours"], ada["cost"]) == ("ada", 2, 14_400.0, 4.0, 8.0)
    assert ada["goodput"] == round(8900 / 14_400, 4)
    assert ada["ledger_gpu_s"] == spent(productive=8900, startup=200, lost=5300)
    # A running attempt counts as far as it is; before its first step it only started up.
    assert (bob["user"], bob["jobs"]) == ("bob", 1)
    assert bob["ledger_gpu_s"] == pytest.approx(spent(startup=50, productive=150), abs=0.01)


def test_a_report_can_be_by_several_things_and_of_late_only():
    world, good, bad, running = busy_world()
    told = world.teller.report(None, ["queue", "job"], None)
    assert [(row["queue"], row["job"], row["name"]) for row in told["rows"]] == [
        ("default", good.id, "good"),
        ("default", bad.id, "bad"),
        ("default", running.id, "runs"),
    ]
    late = world.teller.report(None, ["job"], 1000.0)
    assert [row["job"] for row in late["rows"]] == [bad.id, running.id]


def test_a_machine_without_a_price_names_none_and_an_unknown_word_is_by_user():
    world = World()
    job = world.submit("a", "1 gpu=1")
    world.plan()
    world.tick(10)
    told = world.teller.report(None, ["nonsense"], None)
    assert [(row["user"], row["cost"]) for row in told["rows"]] == [("ada", None)]
    assert job.ledger == {}  # nothing was booked by looking


def test_nobody_ran_anything():
    assert World().teller.report(None, ["user"], None)["rows"] == []


def test_a_report_of_too_many_jobs_says_that_it_left_some_out(monkeypatch):
    monkeypatch.setattr(reports, "RECORDS_MOST", 1)
    world, *_ = busy_world()
    assert "only the last 1 jobs were read" in world.teller.report(None, ["user"], None)["warning"]


# ---------------------------------------------------------------------- estimates


def estimate(job, at_s, low_s, high_s, actual_s, *, made_s=0, predicted=False):
    us = [None if s is None else round(s * 1e6) for s in (made_s, at_s, low_s, high_s, actual_s)]
    return EstimateRecord(job, us[0], us[1], us[2], us[3], predicted, us[4])


def test_estimates_are_held_to_what_happened():
    world = World()
    world.store.estimated = [
        estimate(1, 100, 50, 120, 110),
        estimate(2, 100, 90, 120, 60),
        estimate(3, 100, 50, 500, 400, predicted=True),
        estimate(4, 100, 50, 120, None),
    ]
    told = world.teller.report_eta()
    assert (told["count"], told["open"]) == (3, 1)
    assert told["within_range"] == round(2 / 3, 4)
    assert told["error_s"] == {"p50": 40.0, "p90": 300.0}
    assert told["bias_s"] == 90.0  # on average it started so much later than expected
    first = told["rows"][0]
    assert (first["job"], first["ahead_s"], first["error_s"], first["within_range"]) == (1, 100.0, 10.0, True)
    assert first["actual"] == "2026-11-10T09:01:50+00:00"
    assert [row["predicted"] for row in told["rows"]] == [False, False, True]


def test_without_estimates_there_is_nothing_to_judge():
    told = World().teller.report_eta()
    assert told == {
        "count": 0,
        "open": 0,
        "within_range": None,
        "error_s": {"p50": None, "p90": None},
        "bias_s": None,
        "rows": [],
    }


# ---------------------------------------------------------------------- gauges


def test_gauges_count_gangs_reasons_waits_devices_and_goodput():
    world = World(queues=[Queue("research")])
    good = world.submit("good", "4 gpu=1", walltime=60)
    world.plan()
    world.tick(50)
    good.ledger = spent(lost=200)
    world.submit("held", "1 gpu=1", queue="research", gates={"hold"})
    world.tick(10)
    world.submit("big", "8 gpu=1", queue="research", walltime=60)
    world.tick(40)
    world.known.occupancy.closed[7] = "quarantined after job 3"
    gauges = world.teller.figures().gauges

    def gauge(name, **labels):
        return gauges.get((f"phalanx_{name}", tuple(sorted(labels.items()))))

    assert gauge("gangs", queue="default", state="running") == 1
    assert gauge("gangs", queue="research", state="pending") == 2
    assert gauge("pending_gangs", queue="research", reason="Capacity") == 1
    assert gauge("pending_gangs", queue="research", reason="Held") == 1
    assert gauge("head_of_queue_wait_seconds", queue="research") == pytest.approx(40, abs=0.1)  # not the held one's
    assert gauge("head_of_queue_wait_seconds", queue="default") == 0
    assert [gauge("gpus", state=state) for state in ("free", "stranger", "quarantined")] == [3, 0, 1]
    assert gauge("gpus", queue="default", state="allocated") == 4
    assert gauge("goodput_ratio", queue="default") == pytest.approx(400 / 600, abs=0.001)
    assert gauge("goodput_ratio", queue="research") is None  # nobody has spent anything there
    assert all(name.startswith("phalanx_") for name, _ in gauges)


# ---------------------------------------------------------------------- the picture


def picture(world, past_s=3600.0):
    return asyncio.run(world.teller.gantt(past_s))


def spans(told, kind):
    return [
        (bar["job"], bar["device"], bar["start"][11:19], bar["end"] and bar["end"][11:19])
        for bar in told["bars"]
        if bar["kind"] == kind
    ]


def test_past_present_and_forecast_are_on_one_axis():
    world = World(gpus=2)
    first = world.submit("first", "2 gpu=1", walltime=600)
    world.plan()
    world.tick(300)
    world.end(first)
    second = world.submit("second", "1 gpu=1", user="bob", walltime=600)
    world.plan()
    third = world.submit("third", "2 gpu=1", walltime=600)
    world.plan()
    world.tick(60)
    told = picture(world)
    assert told["now"] == "2026-11-10T09:22:40+00:00"
    assert [each["index"] for each in told["devices"]] == [0, 1]
    assert spans(told, "past") == [(1, 0, "09:16:40", "09:21:40"), (1, 1, "09:16:40", "09:21:40")]
    assert spans(told, "running") == [(second.id, 0, "09:21:40", "09:31:40")]
    assert spans(told, "forecast") == [(third.id, 0, "09:31:40", "09:41:40"), (third.id, 1, "09:31:40", "09:41:40")]
    assert {bar["user"] for bar in told["bars"] if bar["kind"] == "running"} == {"bob"}


def test_the_past_is_cut_where_the_picture_begins():
    world = World(gpus=1)
    early = world.submit("early", "1 gpu=1", walltime=600)
    world.plan()
    world.tick(100)
    world.end(early)
    world.tick(5000)
    late = world.submit("late", "1 gpu=1", walltime=600)
    world.plan()
    world.tick(1000)
    world.end(late)
    told = picture(world, 400.0)
    assert spans(told, "past") == [(late.id, 0, "10:51:40", "10:58:20")]


def test_attempts_that_ended_are_read_from_the_events_also_of_a_job_that_runs_again():
    world = World(gpus=2)
    job = world.submit("flaky", "1 gpu=1", walltime=600)
    world.plan()
    world.tick(100)
    world.happen(job, "restart", why="rank 0 exited with code 1")
    job.live.started_us = world.clock.us
    told = picture(world)
    assert spans(told, "past") == [(job.id, 0, "09:16:40", "09:18:20")]
    assert [bar[:3] for bar in spans(told, "running")] == [(job.id, 0, "09:18:20")]
    world.tick(300)
    assert spans(picture(world, 200.0), "past") == []


def test_an_attempt_that_never_began_was_never_there():
    world = World()
    job = world.submit("never", "1 gpu=1")
    world.happen(job, "bind", devices=["GPU-0"], attempt=1)
    world.happen(job, "gone", why="the daemon stopped before it began")
    world.happen(job, "bind", devices=["GPU-1"], attempt=2)
    world.happen(job, "start", attempt=2)
    world.happen(job, "cancel")
    assert [devices for _, _, devices in gantts.read_attempts(world.store.events(job=job.id))] == [["GPU-1"]]


def test_a_device_that_is_gone_has_no_row_and_members_on_their_way_in_no_bar():
    world = World(gpus=2)
    job = world.submit("old", "2 gpu=1", walltime=60)
    world.plan()
    job.live.resizing = ResizeUnderWay("r1.2", 2, frozenset(), frozenset({1}), 0)
    gone = world.submit("gone", "1 gpu=1")
    world.happen(gone, "bind", devices=["GPU-of-yore"], attempt=1)
    world.happen(gone, "start")
    world.end(gone, "cancelled")
    told = picture(world)
    assert [bar[:2] for bar in spans(told, "running")] == [(job.id, 0)]
    assert spans(told, "past") == []
