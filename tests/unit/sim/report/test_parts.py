"""When time was productive, worked out from histories, against the ledger that knows only totals."""

from pathlib import Path

import numpy as np
import pytest

from phalanx.frontends.sim.report.facts import collect_facts
from phalanx.frontends.sim.report.parts import split_story
from phalanx.frontends.sim.report.stays import Stretch
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import read_scenario as read_file
from phalanx.model.gang import Gang, SnapshotHabit

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def run(start, end, event="bind", ended_by="", after=0, units=1000):
    return Stretch(start, end, "run", 1, {"n0": units}, event, ended_by, after)


def parts(gang, *story):
    found: dict[str, int] = {}
    for part, start, end, units in split_story(gang, story):
        assert start < end
        found[part] = found.get(part, 0) + (end - start) * units // 1000
    return found


PLAIN = Gang("A", (), startup_us=5, resize_pause_us=3)
SAVES = Gang("A", (), snapshot=SnapshotHabit(every_us=90, stall_us=10, restore_us=7), preemptible=True)


def test_start_up_then_work():
    assert parts(PLAIN, run(0, 100, ended_by="complete")) == {"startup": 5, "productive": 95}
    assert parts(PLAIN, run(0, 4)) == {"startup": 4}


def test_a_resize_pauses_and_loses_nothing():
    story = run(0, 50, ended_by="grow", after=2), run(50, 100, "grow", "complete")
    assert parts(PLAIN, *story) == {"startup": 5, "productive": 45 + 47, "resize": 3}


def test_without_snapshots_an_eviction_loses_the_attempt():
    found = parts(
        PLAIN, run(0, 50, ended_by="grow", after=2), run(50, 60, "grow", "evict"), run(80, 100, "bind", "complete")
    )
    assert found == {"startup": 10, "resize": 3, "lost": 45 + 7, "productive": 15}


def test_with_snapshots_what_came_after_the_last():
    # Two cycles of 90 + 10, then 30 that nobody saved; the next attempt restores.
    found = parts(SAVES, run(0, 230, ended_by="lose"), run(300, 350, "restart", "complete"))
    assert found == {"productive": 180 + 43, "snapshot": 20, "lost": 30, "restore": 7}


def test_members_lost_while_enough_remain_lose_no_work():
    found = parts(PLAIN, run(0, 50, ended_by="lose", after=1), run(50, 100, "lose", "complete"))
    assert "lost" not in found


def test_a_turn_saves_and_owes_the_stall():
    found = parts(SAVES, run(0, 50, ended_by="yield"), run(60, 100, "bind", "complete"))
    assert found == {"productive": 50 + 23, "snapshot": 10, "restore": 7}


def test_holding_is_not_running():
    degraded = Stretch(50, 60, "hold", 0, {"n0": 500}, "lose", "repair", 1)
    assert parts(PLAIN, degraded) == {"idle_allocated": 5}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
@pytest.mark.parametrize("policy", ["pod-fifo", "easy", "goodput", "rotate"])
def test_the_curve_agrees_with_the_ledger(file, policy):
    scenario = read_file(file)
    result = simulate(scenario, policy)
    facts = collect_facts(scenario, result, policy, 100)
    usage, ledger = facts.pictures.usage, result.metrics["ledger_gpu_s"]
    lengths = np.diff(usage.at_s)
    capacity = float(lengths @ np.array(usage.capacity))
    assert capacity == pytest.approx(ledger["capacity"], rel=1e-6)
    assert usage.differs < 0.002
    assert float(lengths @ np.array(usage.productive)) == pytest.approx(ledger["productive"], abs=0.002 * capacity)
    assert float(lengths @ np.array(usage.busy)) == pytest.approx(
        result.metrics["utilization"] * capacity, abs=0.003 * capacity
    )


def test_there_are_examples():
    assert len(EXAMPLES) >= 5
