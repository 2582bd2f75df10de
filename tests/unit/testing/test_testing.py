"""The public testing package: lines become nodes and gangs, seeds become worlds, papers become starts."""

import random

import pytest

from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import check_snapshot
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.gang import After, Together
from phalanx.model.topology import Segment, Topology
from phalanx.policy import named
from phalanx.testing.builders import make_gang, make_nodes, make_role, make_state, occupy, seat
from phalanx.testing.checking import BrokenPromise, TransitionCheck, freeze, play, schedule_checked
from phalanx.testing.textbook import Rectangle, run_conservative, run_easy, run_fcfs
from phalanx.testing.worlds import Taste, draw_world


def test_a_line_is_a_batch_of_nodes():
    nodes = make_nodes("2 gpu=4 cpu=1.5 rack:r0", "1 memory=7 !spot")
    assert [node.name for node in nodes] == ["n0", "n1", "n2"]
    assert nodes[1].resources == {"gpu": 4000, "cpu": 1500}
    assert nodes[1].labels == {"rack": "r0"}
    assert nodes[2].resources == {"memory": 7}
    assert nodes[2].taints == ("spot",)
    with pytest.raises(ValueError, match="no whole number"):
        make_nodes("1 gpu=0.0001")


def test_a_line_is_a_role():
    role = make_role("2-4 gpu=0.5 cpu=1 >rack ~node /2:node model:h|a !spot")
    assert role.sizes.allowed == (2, 3, 4)
    assert role.shape.need == (("cpu", 1000), ("gpu", 500))
    assert role.shape.select == (("model", ("h", "a")),)
    assert role.shape.tolerate == ("spot",)
    assert role.topology == Topology("rack", "node", Segment(2, "node"))
    assert make_role("2|4|8 gpu=1").sizes.allowed == (2, 4, 8)


def test_a_gang_is_its_lines_and_its_words():
    gang = make_gang(
        "A", "2 gpu=1", "1 cpu=1", topology=">rack", walltime=1.5, after=("B",), together=("p", 2), user="ada"
    )
    assert [role.name for role in gang.roles] == ["r0", "r1"]
    assert gang.topology.require == "rack"
    assert gang.walltime_us == 1_500_000
    assert gang.after == After(("B",))
    assert gang.together == Together("p", 2)
    assert gang.user == "ada"
    assert make_gang("A", "1 gpu=1", after_any=("B",)).after == After(("B",), any_end=True)


def test_a_state_can_be_filled_by_hand():
    state = make_state("1 gpu=2 cpu=4", gangs=[make_gang("A", "1 gpu=1")])
    occupy(state, 0, [300, 0], cpu=3)
    seat(state, 0, {0: 1})
    assert state.nodes.device_free.tolist() == [[700, 0]]
    assert state.nodes.free.tolist() == [[700, 1000]]
    assert check_snapshot(state.snapshot()) == []


def test_a_seed_is_a_world():
    one, other = draw_world(random.Random(7)), draw_world(random.Random(7))
    assert isinstance(one, Scenario)
    assert one == other
    assert any(draw_world(random.Random(seed)) != one for seed in range(3))


def test_a_taste_is_kept():
    plain = Taste(shares=False, topology=False, labels=False, ties=False, limits=False, failures=False, cancels=False,
                  holds=False, exact=True)  # fmt: skip
    for seed in range(30):
        world = draw_world(random.Random(seed), plain)
        assert world.levels == ()
        assert world.events == world.users == world.windows == ()
        for gang, truth in zip(world.gangs, world.true_runs, strict=True):
            assert gang.walltime_us == truth.duration_us
            assert gang.topology == Topology()
            assert not gang.elastic
            assert all(role.shape.amount("gpu") % 1000 == 0 for role in gang.roles)


def test_worlds_meet_every_feature():
    """Otherwise the properties would say less than they seem to."""
    worlds = [draw_world(random.Random(seed), Taste(windows=True)) for seed in range(200)]
    gangs = [gang for world in worlds for gang in world.gangs]
    assert {len(world.levels) for world in worlds} == {0, 1, 2}
    assert {event.verb for world in worlds for event in world.events} >= {"fail", "repair", "cordon", "drain", "uncordon",
                                                                         "remove", "add", "cancel", "release"}  # fmt: skip
    assert any(node.islands for world in worlds for node in world.nodes)
    assert any(gang.together for gang in gangs)
    assert any(gang.after.any_end for gang in gangs)
    assert any(gang.topology.segment for gang in gangs)
    assert any(0 < role.shape.amount("gpu") < 1000 for gang in gangs for role in gang.roles)
    assert any(window.users for world in worlds for window in world.windows)


def test_what_changed_in_a_snapshot_is_seen():
    state = make_state("1 gpu=2", gangs=[make_gang("A", "1 gpu=1")])
    snapshot = state.borrow()
    before = freeze(snapshot)
    assert freeze(snapshot) == before
    snapshot.nodes.free[0, 0] -= 1
    assert freeze(snapshot) != before


def test_the_chronicle_sees_the_dead_rise_and_the_early_start():
    state = make_state("1 gpu=2", gangs=[make_gang("A", "1 gpu=1"), make_gang("B", "1 gpu=1", after=("A",))])
    chronicle = TransitionCheck()
    state.apply(schedule_checked(state.snapshot(), named("easy")))
    chronicle.look(state)
    ended = state.records[0].phase
    state.complete(0)
    state.apply(schedule(state.snapshot(), named("easy")))
    chronicle.look(state)
    state.records[0].phase = ended
    with pytest.raises(BrokenPromise, match="A was completed and is running"):
        chronicle.look(state)
    with pytest.raises(BrokenPromise, match="B runs, and A, which it comes after"):
        TransitionCheck().look(state)


def test_a_world_can_be_played():
    result = play(draw_world(random.Random(1)), "easy")
    assert {gang.state for gang in result.gangs} <= {"completed", "cancelled", "infeasible"}


def test_the_papers_on_five_jobs():
    """Three processors: a head that waits, one that fits beside it, and one that would delay it."""
    jobs = [
        Rectangle(0, 2, 10, 10),
        Rectangle(1, 3, 10, 10),
        Rectangle(2, 1, 8, 8),
        Rectangle(3, 1, 20, 20),
        Rectangle(4, 2, 5, 5),
    ]
    assert run_fcfs(jobs, 3) == [0, 10, 20, 20, 28]
    assert run_easy(jobs, 3) == [0, 10, 2, 20, 20]
    assert run_easy(jobs, 3, shortest=True) == [0, 10, 2, 20, 20]
    assert run_conservative(jobs, 3) == [0, 10, 2, 20, 20]
    late = [Rectangle(0, 3, 100, 10), Rectangle(5, 3, 10, 10)]
    assert run_easy(late, 3) == run_fcfs(late, 3) == [0, 100]
    with pytest.raises(ValueError, match="larger than the cluster"):
        run_easy([Rectangle(0, 4, 1, 1)], 3)
