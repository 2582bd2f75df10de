"""A glance decides what the long way decides: whole runs with the short cuts and without, gang by gang and in the ledger.

Drawn worlds have something in most of them that no short cut is for, so they are made plainer first: rigid gangs that
all ask for the same, now and then one that can be made to leave. What is left is what logs of real clusters are like:
priorities, dates, queues, missing and wrong walltimes, holds, dependencies, nodes that come and go.
"""

from random import Random

import pytest

from phalanx.engine import cycle
from phalanx.frontends.sim.run import simulate
from phalanx.testing.whole_worlds import draw_run, read_tree

POLICIES = ["fcfs", "easy", "fair", "deadline", "rotate", "goodput"]
#: Wishes about places and sizes, which are for the general walk.
PLACED = ("select", "topology", "tolerate", "roles", "speedup", "resize_pause", "together")


def make_plain(tree, seed):
    """The same world with gangs of one shape, more of them, and some with dates."""
    rng = Random(f"plain {seed}")
    kind = "slot" if "slot" in tree["cluster"]["nodes"][0]["resources"] else "gpu"
    total = sum(node["resources"][kind] for node in tree["cluster"]["nodes"])
    each = rng.choice([1, 1, 1, 2])
    tree["cluster"].pop("topology", None)
    for node in tree["cluster"]["nodes"]:
        node["resources"] = {kind: node["resources"][kind]}
        node.pop("taints", None)
    for index in range(rng.choice([0, 8])):
        duration = rng.choice([5, 20, 100, 400])
        gang = {"name": f"more{index}", "submit": rng.randint(0, 300), "duration": duration}
        tree["gangs"].append(gang if rng.random() < 0.2 else gang | {"walltime": duration * rng.choice([1, 1, 2])})
        if tree.get("queues"):
            tree["gangs"][-1]["queue"] = rng.choice(tree["queues"])["name"]
    soft, dated = rng.random() < 0.2, rng.random() < 0.5
    for gang in tree["gangs"]:
        for key in PLACED:
            gang.pop(key, None)
        gang |= {"members": rng.randint(1, max(1, total // each)), "each": {kind: each}}
        if not soft:
            gang.pop("preemptible", None)
        if dated and rng.random() < 0.2:
            gang["deadline"] = rng.choice([200, 700, 2000, 10000])
    tree["events"] = [event for event in tree.get("events", ()) if "resize" not in event]
    return tree


def tell(result):
    """What becomes of everybody, and the books."""
    fates = [(g.name, g.state, [(e.at_us, e.event, e.members, e.placement) for e in g.history]) for g in result.gangs]
    return fates, result.metrics


#: (seed, policy) of worlds in which a glance once decided otherwise, and why.
ONCE = {
    (414, "goodput"): "a date came after the last plan was settled",
    (9, "goodput"): "the same, in the ledger",
    (413, "easy"): "a filler of no stated length counts for longer when it is let in than afterwards",
}


def play_both(scenario, policy, monkeypatch, glance=cycle.decide_at_once):
    """The run with short cuts, and the run without."""
    monkeypatch.setattr(cycle, "decide_at_once", glance)
    quick = tell(simulate(scenario, policy, {}))
    monkeypatch.setattr(cycle, "decide_at_once", lambda *_, **__: None)
    return quick, tell(simulate(scenario, policy, {}))


@pytest.mark.parametrize("first", range(0, 240, 24))
def test_the_same_run_with_short_cuts_and_without(monkeypatch, first):
    answered, real = 0, cycle.decide_at_once

    def glance(*args, **more):
        nonlocal answered
        found = real(*args, **more)
        answered += isinstance(found, cycle.Plan)
        return found

    for seed in range(first, first + 24):
        scenario = read_tree(make_plain(draw_run(seed)[0], seed))
        quick, slow = play_both(scenario, POLICIES[seed % len(POLICIES)], monkeypatch, glance)
        assert quick == slow, (seed, POLICIES[seed % len(POLICIES)])
    assert answered > 100


@pytest.mark.parametrize(("seed", "policy"), ONCE)
def test_what_a_glance_got_wrong_once_is_right(monkeypatch, seed, policy):
    quick, slow = play_both(read_tree(make_plain(draw_run(seed)[0], seed)), policy, monkeypatch)
    assert quick == slow
