"""The judge of results finds each defect in a hand-made result, and nothing in a clean one."""

from __future__ import annotations

from copy import deepcopy

import pytest

from phalanx.frontends.sim.metrics import find_horizon
from phalanx.frontends.sim.result import Entry, GangResult, SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.testing.judge import RULES, Book, judge
from phalanx.testing.twins import TWINS, compare, find_unlike
from phalanx.testing.whole_worlds import MOODS, POLICIES, draw_run, read_tree, shrink

SECOND = 1_000_000
ENDS = {"complete": "completed", "cancel": "cancelled"}
WAITS = ("Capacity", "needs 4, 3 are free", 4, 3)

TWO = {"nodes": [{"name": "a", "resources": {"gpu": 2}}, {"name": "b", "resources": {"gpu": 2}}]}
RACKS = {
    "topology": ["rack"],
    "nodes": [
        {"name": "a", "resources": {"gpu": 2}, "labels": {"rack": "r0"}},
        {"name": "b", "resources": {"gpu": 2}, "labels": {"rack": "r1"}, "taints": ["spot"]},
    ],
}


def gang(name, members=1, **more):
    return {"name": name, "duration": 100, "members": members, "each": {"gpu": 1}, **more}


def tell(scenario, policy, stories, reasons=(), ledger=None):
    """A result in which each gang has this story: (second, event, members by node)."""
    gangs = []
    for each, truth in zip(scenario.gangs, scenario.true_runs, strict=True):
        story = stories.get(each.name, [])
        history = [Entry(at * SECOND, event, sum(places.values()), places) for at, event, places in story]
        state = ENDS.get(story[-1][1], "running") if story else "pending"
        reason = dict(reasons).get(each.name, WAITS) if not story else None
        state = "infeasible" if reason and reason[0] in ("Infeasible", "DeadlineUnreachable") else state
        starts = [entry.at_us for entry in history if entry.event == "bind"]
        end_us = history[-1].at_us if state in ENDS.values() else None
        gangs.append(
            GangResult(
                *(each.name, each.user, state, each.submit_us, each.submit_us if starts else None),
                *(starts[0] if starts else None, end_us, 0, {}, reason, history, truth.duration_us),
            )
        )
    result = SimResult(policy, 0, gangs, {})
    book = Book(scenario, result)
    first, last = find_horizon(gangs, scenario.until_us)
    spans = [
        (min(last, stay.end_us) - max(first, stay.start_us), sum(book.amount(stay, n, "gpu") for n in stay.places))
        for stay in book.stays
    ]
    held = sum(max(0, span) * units for span, units in spans) / 1e9
    capacity = sum(node.resources["gpu"] for node in scenario.nodes) * (last - first) / 1e9
    parts = (
        "startup",
        "snapshot",
        "restore",
        "resize",
        "lost",
        "idle_allocated",
        "reserved_idle",
        "fragmented",
        "down",
    )
    told = {"capacity": capacity, "productive": held, "free": capacity - held, **dict.fromkeys(parts, 0)}
    result.metrics["ledger_gpu_s"] = told | (ledger or {})
    return result


def run(at, places, length=100):
    return [(at, "bind", places), (at + length, "complete", {})]


ELASTIC = {"min": 1, "max": 2}
EACH_2 = {"each": {"gpu": 2}}

#: what the judge should say → world, policy, stories, more for `tell`
DEFECTS = {
    "overfull": (
        {"cluster": TWO, "gangs": [gang("x", 2), gang("y")]},
        "fcfs",
        {"x": run(0, {"a": 2}), "y": run(50, {"a": 1})},
    ),
    "seat-in-pause": (
        {"cluster": TWO, "gangs": [gang("wide", ELASTIC, resize_pause=20, **EACH_2), gang("thief", submit=101)]},
        "fair",
        {
            "wide": [(0, "bind", {"a": 1, "b": 1}), (100, "shrink", {"a": 1}), (300, "complete", {})],
            "thief": run(101, {"b": 1}),
        },
    ),
    "together": (
        {"cluster": TWO, "gangs": [gang("x", together="w"), gang("y", together="w")]},
        "fcfs",
        {"x": run(0, {"a": 1}), "y": run(10, {"a": 1})},
    ),
    "unwhole": ({"cluster": TWO, "gangs": [gang("x", 2)]}, "fcfs", {"x": run(0, {"a": 1})}),
    "misplaced": ({"cluster": RACKS, "gangs": [gang("x")]}, "fcfs", {"x": run(0, {"b": 1})}),
    "apart": (
        {"cluster": RACKS, "gangs": [gang("x", 2, tolerate=["spot"], topology={"require": "rack"})]},
        "fcfs",
        {"x": run(0, {"a": 1, "b": 1})},
    ),
    "untimely": (
        {"cluster": TWO, "gangs": [gang("x"), gang("y", after=["x"])]},
        "fcfs",
        {"x": run(0, {"a": 1}), "y": run(50, {"b": 1})},
    ),
    "length": ({"cluster": TWO, "gangs": [gang("x")]}, "fcfs", {"x": run(0, {"a": 1}, length=99)}),
    "undone-start": (
        {"cluster": TWO, "gangs": [gang("x", preemptible=True)]},
        "fair",
        {"x": [(0, "bind", {"a": 1}), (0, "evict", {}), *run(10, {"a": 1})]},
    ),
    "reason": (
        {"cluster": TWO, "gangs": [gang("x", hold=True)], "until": 10},
        "fcfs",
        {},
        {"reasons": {"x": ("None", "starts in this cycle", 0, 0)}},
    ),
    "hopeless": (
        {"cluster": TWO, "gangs": [gang("x", walltime=100, deadline=50)]},
        "deadline",
        {"x": run(0, {"a": 1})},
    ),
    "refused": (
        {"cluster": TWO, "gangs": [gang("x", walltime=100, deadline=100)]},
        "deadline",
        {},
        {"reasons": {"x": ("DeadlineUnreachable", "", 1, 1)}},
    ),
    "on-failed": (
        {"cluster": TWO, "gangs": [gang("x")], "events": [{"at": 50, "fail": "a"}]},
        "fcfs",
        {"x": run(0, {"a": 1})},
    ),
    "on-closed": (
        {"cluster": TWO, "gangs": [gang("x", submit=60)], "events": [{"at": 50, "cordon": "a"}]},
        "fcfs",
        {"x": run(60, {"a": 1})},
    ),
    "in-window": (
        {"cluster": TWO, "gangs": [gang("x")], "maintenance": [{"nodes": "a", "at": 50, "for": 10}]},
        "fcfs",
        {"x": run(0, {"a": 1})},
    ),
    "pause-in-window": (
        {
            "cluster": TWO,
            "gangs": [gang("wide", ELASTIC, resize_pause=20)],
            "maintenance": [{"nodes": "b", "at": 50, "for": 10}],
        },
        "fair",
        {"wide": [(0, "bind", {"a": 1, "b": 1}), (50, "shrink", {"a": 1}), (150, "complete", {})]},
    ),
    "limit": (
        {"cluster": TWO, "gangs": [gang("x", 3, queue="q")], "queues": [{"name": "q", "limit": {"gpu": 3}}]},
        "fcfs",
        {"x": run(0, {"a": 2, "b": 1})},
    ),
    "ledger": ({"cluster": TWO, "gangs": [gang("x")]}, "fcfs", {"x": run(0, {"a": 1})}, {"ledger": {"lost": 1}}),
    "needless-evict": (
        {"cluster": TWO, "gangs": [gang("g", preemptible=True), gang("x", submit=10, priority=1)]},
        "fair",
        {"g": [(0, "bind", {"a": 1}), (10, "evict", {}), *run(10, {"b": 1})], "x": run(10, {"a": 1})},
    ),
    "needless-shrink": (
        {"cluster": TWO, "gangs": [gang("u", ELASTIC), gang("v", ELASTIC), gang("x", submit=10)]},
        "fair",
        {
            "u": [(0, "bind", {"a": 2}), (10, "shrink", {"a": 1}), (190, "complete", {})],
            "v": [(0, "bind", {"b": 2}), (10, "shrink", {"b": 1}), (190, "complete", {})],
            "x": run(10, {"a": 1}),
        },
    ),
    "head-late": (
        {
            "cluster": TWO,
            "gangs": [gang("run", 2, walltime=100), gang("head", 4, submit=10), gang("y", 2, submit=20, walltime=100)],
        },
        "easy",
        {"run": run(0, {"a": 2}), "y": run(20, {"b": 2}), "head": run(120, {"a": 2, "b": 2})},
    ),
    "forgotten": ({"cluster": TWO, "gangs": [gang("x"), gang("y", 4)]}, "fcfs", {"x": run(0, {"a": 1})}),
}

#: The same worlds as they should be; and where the judge must not guess.
CLEAN = {
    "a seat is taken when the pause is over": (
        DEFECTS["seat-in-pause"][0],
        "fair",
        DEFECTS["seat-in-pause"][2] | {"thief": run(120, {"b": 1})},
    ),
    "a limit that is just reached": (
        {"cluster": TWO, "gangs": [gang("x", 3, queue="q")], "queues": [{"name": "q", "limit": {"gpu": 4}}]},
        "fcfs",
        {"x": run(0, {"a": 2, "b": 1})},
    ),
    "an overrun into a window": (
        {"cluster": TWO, "gangs": [gang("x", walltime=10)], "maintenance": [{"nodes": "a", "at": 50, "for": 10}]},
        "fcfs",
        {"x": run(0, {"a": 1})},
    ),
    "everybody leaves the window in time": (
        DEFECTS["pause-in-window"][0],
        "fair",
        {"wide": [(0, "bind", {"a": 1, "b": 1}), (30, "shrink", {"a": 1}), (150, "complete", {})]},
    ),
    "an eviction that is needed": (
        {"cluster": TWO, "gangs": [gang("g", preemptible=True), gang("x", 4, submit=10, priority=1)]},
        "fair",
        {"g": [(0, "bind", {"a": 1}), (10, "evict", {}), *run(110, {"b": 1})], "x": run(10, {"a": 2, "b": 2})},
    ),
    "two shrinks that are needed": (
        DEFECTS["needless-shrink"][0]
        | {"gangs": [*DEFECTS["needless-shrink"][0]["gangs"][:2], gang("x", 2, submit=10)]},
        "fair",
        DEFECTS["needless-shrink"][2] | {"x": run(10, {"a": 1, "b": 1})},
    ),
    "a head that waits for its turn": (
        DEFECTS["head-late"][0],
        "easy",
        {"run": run(0, {"a": 2}), "head": run(100, {"a": 2, "b": 2}), "y": run(200, {"b": 2})},
    ),
    "a head behind somebody who overruns": (
        {"cluster": TWO, "gangs": [gang("run", 2, walltime=50), gang("head", 4, submit=10), gang("y", 2, submit=20)]},
        "easy",
        {"run": run(0, {"a": 2}), "head": run(150, {"a": 2, "b": 2}), "y": run(50, {"b": 2})},
    ),
    "an eviction at the very end": (
        {"cluster": TWO, "gangs": [gang("g", preemptible=True), gang("x", 4, submit=10, priority=1)], "until": 10},
        "fair",
        {"g": [(0, "bind", {"a": 1}), (10, "evict", {})], "x": [(10, "bind", {"a": 2, "b": 2})]},
    ),
    "a start on vacated seats that somebody new undoes": (
        {
            "cluster": TWO,
            "gangs": [gang("wide", ELASTIC, resize_pause=20, **EACH_2), gang("x", preemptible=True, submit=10)],
        },
        "fair",
        {
            "wide": [(0, "bind", {"a": 1, "b": 1}), (10, "shrink", {"a": 1}), (200, "complete", {})],
            "x": [(30, "bind", {"b": 1}), (30, "evict", {}), *run(200, {"b": 1})],
        },
    ),
}


def find(world, policy, stories, more=None):
    world = deepcopy(world)
    for queue in {each.get("queue") for each in world["gangs"]} - {None}:
        assert queue in {each["name"] for each in world["queues"]}
    scenario = read_tree(world)
    return judge(scenario, tell(scenario, policy, stories, **(more or {})))


@pytest.mark.parametrize("kind", [kind for kind in DEFECTS if kind != "limit"])
def test_a_defect_is_found_and_nothing_else(kind):
    assert {finding.kind for finding in find(*DEFECTS[kind])} == {kind}


def test_a_limit_is_held_when_somebody_begins():
    world, policy, stories = deepcopy(DEFECTS["limit"])
    assert find(world, policy, stories) == []
    world["queues"][0]["limit"] = {"gpu": 2}
    assert {finding.kind for finding in find(world, policy, stories)} == {"limit"}


@pytest.mark.parametrize("name", CLEAN)
def test_what_has_another_explanation_is_not_found(name):
    assert find(*CLEAN[name]) == []


def test_every_rule_has_a_defect_that_it_alone_finds():
    seen = set()
    for drawn, policy, stories, *more in DEFECTS.values():
        world = deepcopy(drawn)
        for queue in world.get("queues", ()):
            queue["limit"] = {"gpu": 2}
        scenario = read_tree(world)
        book = Book(scenario, tell(scenario, policy, stories, **(more[0] if more else {})))
        seen |= {rule.__name__ for rule in RULES if [*rule(book)]}
    assert seen == {rule.__name__ for rule in RULES}


def test_a_finding_reads_as_one_line():
    (finding,) = find(*DEFECTS["unwhole"])
    assert str(finding) == "unwhole at 0: x: bind: 1 members, 1 seats"


# ---------------------------------------------------------------------- twins and drawing


def test_a_seed_is_a_world_and_every_policy_is_drawn():
    runs = [draw_run(seed) for seed in range(200)]
    assert runs[:20] == [draw_run(seed) for seed in range(20)]
    assert {policy for _, policy, _ in runs} == set(POLICIES)
    assert all(read_tree(tree).gangs for tree, _, _ in runs)


def test_every_twin_is_made_of_some_worlds_and_reads_as_a_file():
    made = dict.fromkeys(TWINS, 0)
    for seed in range(120):
        tree, _, _ = draw_run(seed)
        before = deepcopy(tree)
        for name, twin_of in TWINS.items():
            twin = twin_of(tree)
            if twin is not None:
                made[name] += 1
                assert read_tree(twin.tree).gangs
        assert tree == before
    assert min(made.values()) > 0, made


WORLD = {"cluster": TWO, "gangs": [gang("x", 2, walltime=100), gang("y", 3, submit=10, walltime=100)]}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_that_fares_otherwise_is_found(name):
    result = simulate(read_tree(WORLD), "easy")
    assert [*find_unlike(WORLD, result, {}, (name,))] == []
    twin = TWINS[name](WORLD)
    other = simulate(read_tree(twin.tree), "easy")
    assert compare(result, other, twin, "twin") is None
    other.gangs[1].history[0].at_us += 1
    assert compare(result, other, twin, "twin").gang == "y"


def test_a_world_is_cut_down_to_what_matters():
    tree = deepcopy(WORLD) | {"until": 1000}
    small = shrink(tree, lambda scenario: any(each.members_max == 3 for each in scenario.gangs))
    assert [each["name"] for each in small["gangs"]] == ["y"]
    assert "until" not in small
    assert len(small["cluster"]["nodes"]) <= 1


def test_the_moods_name_features_that_exist():
    known = set(MOODS["anything"].features) | {"pinned", "in-line", "bursts", "spread"}
    assert all(set(mood.features) <= known for mood in MOODS.values())
