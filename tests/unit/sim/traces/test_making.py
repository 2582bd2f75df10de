"""Jobs made up from a seed: the same every time, and like the models they are named after."""

import math
import statistics
from collections import Counter

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.scenario import Scenario, read_cluster
from phalanx.frontends.sim.traces.arrivals import daily_weights, lay_over_days
from phalanx.frontends.sim.traces.lublin import ALL, BATCH
from phalanx.frontends.sim.traces.making import MODELS, Breakage, make_workload
from phalanx.frontends.sim.traces.shares import TraitShares, apply_shares
from phalanx.frontends.sim.traces.summary import summarise

SECOND = 1_000_000
DAY = 86_400
NODES = read_cluster("64x8", "gpu")
EVERYTHING = {"shares": TraitShares(0.4, 0.5, 0.1), "breakage": Breakage(20 * DAY * SECOND, 3600 * SECOND)}


def place_seconds(scenario: Scenario, chosen=lambda gang: True) -> int:
    pairs = zip(scenario.gangs, scenario.true_runs, strict=True)
    return sum(gang.members_max * truth.duration_us for gang, truth in pairs if chosen(gang))


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_makes_the_same_jobs_and_another_makes_others(model):
    first = make_workload(model, 200, 7, NODES, load=0.9, **EVERYTHING)
    assert make_workload(model, 200, 7, NODES, load=0.9, **EVERYTHING) == first
    other = make_workload(model, 200, 8, NODES, load=0.9, **EVERYTHING)
    assert [gang.submit_us for gang in other.gangs] != [gang.submit_us for gang in first.gangs]
    assert other.events != first.events


def test_known_jobs_of_a_known_seed():
    """If this changes, every table of results that names a seed has to be made again."""
    found = make_workload("llm", 5, 1, NODES)
    shown = [
        (gang.submit_us // SECOND, gang.members_max, truth.duration_us // SECOND)
        for gang, truth in zip(found.gangs, found.true_runs, strict=True)
    ]
    assert shown == [(101, 32, 594), (112, 4, 931), (139, 1, 329), (148, 1, 710), (153, 1, 58)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("load", [0.3, 1.2])
def test_the_load_is_the_one_asked_for(model, load):
    found = make_workload(model, 2_000, 3, NODES, load=load)
    assert summarise(found).load == pytest.approx(load, rel=1e-3)


def test_jobs_come_in_order_and_fit_the_cluster():
    for model in MODELS:
        found = make_workload(model, 1_000, 3, NODES, load=1.0)
        submits = [gang.submit_us for gang in found.gangs]
        assert submits == sorted(submits)
        assert all(1 <= gang.members_max <= 512 for gang in found.gangs)
        assert all(truth.duration_us > 0 for truth in found.true_runs)
        assert all(gang.walltime_us >= t.duration_us for gang, t in zip(found.gangs, found.true_runs, strict=True))


@pytest.mark.parametrize("cluster", ["1x1", "1x2", "3x1", "1x3", "2x5"])
@pytest.mark.parametrize("model", MODELS)
def test_tiny_clusters(model, cluster):
    nodes = read_cluster(cluster, "gpu")
    found = make_workload(model, 50, 0, nodes)
    most = sum(node.resources["gpu"] for node in nodes) // 1000
    assert {gang.members_max for gang in found.gangs} <= set(range(1, most + 1))


def test_one_job():
    assert len(make_workload("llm", 1, 0, NODES, load=0.5).gangs) == 1


def test_beliefs():
    rounded = make_workload("llm", 300, 2, NODES)
    actual = make_workload("llm", 300, 2, NODES, estimate="actual")
    asked = make_workload("llm", 300, 2, NODES, estimate="requested")
    assert rounded.true_runs == actual.true_runs == asked.true_runs
    assert [gang.walltime_us for gang in actual.gangs] == [truth.duration_us for truth in actual.true_runs]
    assert all(r.walltime_us >= a.walltime_us for r, a in zip(rounded.gangs, asked.gangs, strict=True))
    over = sum(a.walltime_us > t.duration_us for a, t in zip(asked.gangs, asked.true_runs, strict=True))
    assert 0.3 < over / 300 < 0.6, "those that fail or are cancelled would have run for longer"


# ---- Lublin


def test_sizes_are_as_published():
    """Shares of serial and power-of-two sizes follow from the fitted numbers; 4,000 draws stray by a percent or two."""
    for model, numbers in (("lublin", BATCH), ("lublin-all", ALL)):
        sizes = [gang.members_max for gang in make_workload(model, 4_000, 1, read_cluster("1x256", "gpu")).gangs]
        assert sizes.count(1) / 4_000 == pytest.approx(numbers.serial, abs=0.03)
        powers = sum(size > 1 and size & (size - 1) == 0 for size in sizes) / 4_000
        assert numbers.power_of_two <= powers + 0.03
        assert powers == pytest.approx(numbers.power_of_two, abs=0.08), "some others are rounded to one by chance"


def test_large_jobs_run_longer():
    found = make_workload("lublin-all", 6_000, 1, read_cluster("1x256", "gpu"))
    pairs = list(zip(found.gangs, found.true_runs, strict=True))
    small = statistics.median(truth.duration_us for gang, truth in pairs if gang.members_max <= 4)
    large = statistics.median(truth.duration_us for gang, truth in pairs if gang.members_max >= 64)
    assert large > 2 * small


def test_the_day_has_a_busy_and_a_quiet_half():
    weights = daily_weights(*ALL.day)
    assert math.fsum(weights) / 48 == pytest.approx(1)
    assert max(range(48), key=weights.__getitem__) // 2 in range(12, 16), "early afternoon"
    assert min(range(48), key=weights.__getitem__) // 2 in range(3, 7), "before dawn"
    hours = Counter(gang.submit_us // SECOND // 3600 % 24 for gang in make_workload("llm", 4_000, 1, NODES).gangs)
    assert sum(hours[h] for h in range(10, 18)) > 3 * sum(hours[h] for h in range(8))


def test_even_time_covers_a_day_in_a_day():
    weights = daily_weights(*BATCH.day)
    at_s = lay_over_days([0.0, DAY / 2, DAY, 2 * DAY, 2.5 * DAY], weights)
    assert [at_s[0], at_s[2], at_s[3]] == pytest.approx([0, DAY, 2 * DAY])
    assert at_s[4] - at_s[3] == pytest.approx(at_s[1])
    assert at_s[1] > DAY / 2, "the morning is quiet, so half of the jobs are in later"


# ---- language models


def test_language_models_are_like_kalos():
    """The published lines: median 1 GPU and 124 s, mean 26.8 GPUs and 1,260 s; 3.2 % of the jobs are 94 % of the time."""
    found = make_workload("llm", 20_000, 11, read_cluster("302x8", "gpu"))
    sizes = [gang.members_max for gang in found.gangs]
    runs = [truth.duration_us / SECOND for truth in found.true_runs]
    assert statistics.median(sizes) == 1
    assert statistics.median(runs) == pytest.approx(124, rel=0.1)
    assert statistics.mean(sizes) == pytest.approx(26.8, rel=0.2)
    assert statistics.mean(runs) == pytest.approx(1_260, rel=0.25)
    assert max(sizes) == pytest.approx(1_024, rel=0.05)
    huge = [size for size in sizes if size >= 256]
    assert len(huge) / 20_000 == pytest.approx(0.032, abs=0.005)
    share = place_seconds(found, lambda gang: gang.members_max >= 256) / place_seconds(found)
    assert share == pytest.approx(0.94, abs=0.05)


def test_jobs_that_train_save_their_work_and_take_whole_nodes():
    found = make_workload("llm", 500, 1, NODES)
    assert all(gang.snapshot is not None for gang in found.gangs if gang.members_max > 8)
    assert all(gang.snapshot is None for gang in found.gangs if gang.members_max < 8)
    assert {gang.members_max % 8 for gang in found.gangs if gang.members_max > 8} == {0}


# ---- shares


def test_shares_are_shares():
    found = make_workload("llm", 4_000, 1, NODES, shares=TraitShares(0.4, 0.5, 0.1))
    several = [gang for gang in found.gangs if gang.members_max > 1]
    assert sum(gang.elastic for gang in several) / len(several) == pytest.approx(0.4, abs=0.05)
    assert sum(gang.preemptible for gang in found.gangs) / 4_000 == pytest.approx(0.5, abs=0.03)
    assert sum(gang.deadline_us is not None for gang in found.gangs) / 4_000 == pytest.approx(0.1, abs=0.02)
    assert all(gang.snapshot is not None for gang in found.gangs if gang.preemptible)
    assert all(gang.resize_pause_us > 0 for gang in found.gangs if gang.elastic)
    for gang, truth in zip(found.gangs, found.true_runs, strict=True):
        assert gang.deadline_us is None or gang.deadline_us >= 1.2 * truth.duration_us


def test_elastic_gangs_keep_what_was_asked_for_as_their_largest_size():
    before = make_workload("llm", 1_000, 1, NODES)
    after = apply_shares(before, TraitShares(elastic=1.0), 1)
    assert [gang.members_max for gang in after.gangs] == [gang.members_max for gang in before.gangs]
    allowed = {gang.members_max: gang.roles[0].sizes.allowed for gang in after.gangs}
    assert allowed[1] == (1,)
    assert allowed[2] == (1, 2)
    assert allowed[8] == (2, 4, 8)
    assert allowed[128] == (32, 64, 128)


def test_one_share_does_not_move_another():
    before = make_workload("lublin", 500, 1, NODES)
    some = apply_shares(before, TraitShares(elastic=0.3, preemptible=0.3), 9)
    more = apply_shares(before, TraitShares(elastic=0.6, preemptible=0.3), 9)
    assert [gang.preemptible for gang in some.gangs] == [gang.preemptible for gang in more.gangs]
    assert all(m.elastic for s, m in zip(some.gangs, more.gangs, strict=True) if s.elastic)


def test_no_share_changes_nothing():
    before = make_workload("lublin", 5, 1, NODES)
    assert apply_shares(before, TraitShares(), 9) is before


# ---- what cannot be made


@pytest.mark.parametrize(
    ("model", "jobs", "how", "why"),
    [
        ("zipf", 5, {}, "there is no model 'zipf'; valid: lublin, lublin-all, llm"),
        ("llm", 0, {}, "--jobs must be from 1 to 10,000,000"),
        ("llm", 5, {"load": 0.0}, "--load must be from 0.01 to 100"),
        ("llm", 5, {"load": math.nan}, "--load must be from 0.01 to 100"),
        ("llm", 5, {"load": math.inf}, "--load must be from 0.01 to 100"),
    ],
)
def test_what_cannot_be_made(model, jobs, how, why):
    with pytest.raises(BadInput, match=why):
        make_workload(model, jobs, 1, NODES, **how)


def test_more_failures_than_anybody_wants():
    with pytest.raises(BadInput, match=r"--mtbf is so short that some .* failures would follow"):
        make_workload("llm", 50, 1, NODES, breakage=Breakage(1, 1))


def test_a_cluster_without_gpus():
    with pytest.raises(BadInput, match="--cluster has no GPU"):
        make_workload("llm", 5, 1, read_cluster("1x4", "slot"))
