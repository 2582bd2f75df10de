"""Distributions, entitlements and the words for numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.frontends.sim.report.cdf import find_shares
from phalanx.frontends.sim.report.comparison import (
    PARTS,
    compare,
    ledger_lines,
    say_number,
    say_s,
    seeds_sheet,
    share_out,
)
from phalanx.frontends.sim.report.facts import ReportFacts
from phalanx.frontends.sim.report.heading import describe_cluster, describe_seeds
from phalanx.frontends.sim.report.stays import Meter
from phalanx.frontends.sim.report.tenant_totals import TenantTotals, divide, read_tree
from phalanx.frontends.sim.result import GangResult
from phalanx.model.queue import Queue

SECOND = 1_000_000

# ---- distributions


def test_shares_count_all_who_have_at_most_so_much():
    curve = find_shares([0, 0, 5, 60], 5, 100)
    assert curve.x == [0, 5, 60]
    assert curve.y == [0.4, 0.6, 0.8], "the fifth never got there"
    assert find_shares([], 5, 100).x == []


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=600))
def test_few_points_are_still_true(values):
    curve = find_shares([float(value) for value in values], len(values), 40)
    assert len(curve.x) <= 40
    assert curve.x[0] == min(values)
    assert curve.x[-1] == max(values)
    for x, y in zip(curve.x, curve.y, strict=True):
        assert y == sum(value <= x for value in values) / len(values)


# ---- queues


def test_what_a_ceiling_keeps_goes_to_the_others():
    assert divide(90, {"a": 1, "b": 2}, {"a": 999, "b": 999}) == {"a": 30, "b": 60}
    assert divide(90, {"a": 1, "b": 2}, {"a": 999, "b": 20}) == {"a": 70, "b": 20}
    assert divide(90, {"a": 1, "b": 2}, {"a": 10, "b": 20}) == {"a": 10, "b": 20}


def test_entitlements_go_down_the_tree():
    queues = [
        Queue("research", weight=2, guarantee={"gpu": 30}),
        Queue("vision", parent="research", weight=1),
        Queue("text", parent="research", weight=2),
        Queue("product", limit={"gpu": 15}),
    ]
    tree = read_tree(queues, "gpu", 100)
    assert tree.entitlements == {
        "research": 85,
        "vision": pytest.approx(85 / 3),
        "text": pytest.approx(170 / 3),
        "product": 15,
    }
    assert tree.above["vision"] == ("vision", "research")
    assert (tree.guarantees, tree.limits) == ({"research": 30}, {"product": 15})


def test_a_standing_counts_as_the_metrics_do():
    standing = TenantTotals("ada")
    standing.add(
        GangResult("A", "ada", "completed", 0, None, 30 * SECOND, 31 * SECOND, 1, {}, None, duration_us=SECOND), 1
    )
    standing.add(GangResult("B", "ada", "running", 0, 10 * SECOND, 20 * SECOND, None, 1, {}, None), 5)
    standing.add(GangResult("C", "ada", "pending", 0, None, None, None, 0, {}, None), 0)
    assert (standing.gangs, standing.started, standing.completed, standing.device_s) == (3, 2, 1, 6)
    assert standing.wait_s_mean == 20
    assert standing.slowdown_mean == pytest.approx(3.1), "a second counts as ten"


# ---- words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (0.25, "0.25s"), (12.34, "12.3s"), (59.97, "60s"), (60, "1m"), (725, "12m 5s"), (3600, "1h"), (5400, "1h 30m"),
     (86_399, "1d"), (90_000, "1d 1h"), (864_000, "10d"), (3_599.6, "1h")],
)  # fmt: skip
def test_times_in_two_units(seconds, words):
    assert say_s(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (1234, "1,234"), (0.5, "0.5"), (12.345, "12.3"), (1234.56, "1,234.6")]
)
def test_numbers(value, words):
    assert say_number(value) == words


def test_seeds_and_clusters(read_scenario):
    assert describe_seeds([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    text = "cluster: {nodes: [{name: 'a[0-2]', resources: {gpu: 8}}, {name: b, resources: {gpu: 1}}]}\ngangs: [{name: A, members: 1, each: {gpu: 1}, duration: 60}]\n"
    scenario = read_scenario(text)
    assert describe_cluster(scenario, Meter(scenario)) == "3 nodes of 8 GPUs and 1 node of 1 GPU, 25 in all"


# ---- tables


def facts(policy, seed=0, **metrics):
    ledger = metrics.pop("ledger", {"capacity": 10, "productive": 6, "free": 4})
    return ReportFacts(
        policy,
        seed,
        10,
        metrics.pop("completed", 10),
        metrics.pop("deadlines", 0),
        {**metrics, "ledger_gpu_s": ledger},
        (0, 1),
    )


def cells(lines, label):
    return [(cell.text, cell.best) for line in lines if line.label == label for cell in line.cells]


def test_the_best_is_marked_whichever_way_is_better():
    lines = compare([facts("a", goodput=0.5, wait_s_mean=60), facts("b", goodput=0.4, wait_s_mean=30)], "GPU")
    assert cells(lines, "goodput") == [("50.0 %", True), ("40.0 %", False)]
    assert cells(lines, "wait, mean") == [("1m", False), ("30s", True)]
    assert cells(lines, "gangs completed") == [("all 10", False), ("all 10", False)], "equals have no best"


def test_several_seeds_are_a_mean_and_its_spread():
    runs = [
        facts("a", 0, goodput=0.4),
        facts("a", 1, goodput=0.6),
        facts("b", 0, goodput=0.2),
        facts("b", 1, goodput=0.2),
    ]
    assert cells(compare(runs, "GPU"), "goodput") == [("50.0 % ± 14.1 %", True), ("20.0 %", False)]
    sheet = seeds_sheet(runs, "GPU")
    assert sheet.headers == ("", "a", "b")
    assert ("goodput", "50.0 % ± 14.1 %", "20.0 %") in sheet.rows


def test_deadlines_are_told_where_there_are_any():
    assert cells(compare([facts("a", deadlines_met=0)], "GPU"), "deadlines met") == []
    assert cells(compare([facts("a", deadlines_met=0, deadlines=4)], "GPU"), "deadlines met") == [("0 of 4", False)]


def test_metrics_and_parts_that_nobody_knew_are_shown_too():
    run = facts("a", evictions_in_vain=3, ledger={"capacity": 4, "productive": 3, "thermal_limit": 1})
    assert cells(compare([run], "GPU"), "evictions in vain") == [("3", False)]
    assert cells(ledger_lines([run]), "thermal limit") == [("25.0 %", False)]


@given(st.dictionaries(st.sampled_from(PARTS), st.floats(0, 1e15, allow_nan=False), min_size=1))
def test_printed_shares_sum_to_a_whole(ledger):
    shares = share_out(ledger)
    assert sum(shares.values()) == (1000 if math.fsum(ledger.values()) else 0)
    total = math.fsum(ledger.values())
    for part, share in shares.items():
        assert not total or abs(share - 1000 * ledger[part] / total) < 1
