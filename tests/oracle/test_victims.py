"""Whom the engine evicts, against every permitted set of victims on tiny clusters.

The rule: the lowest highest priority first, then the least total cost, then fewer gangs, then later
ones; nobody who is not needed. One node per GPU, so that a set is enough if it is large enough.
"""

from __future__ import annotations

import json
import random
from itertools import combinations

import pytest

from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import parse_scenario

LONG = 1_000_000
ASKED_AT = 5_000


def draw(rng: random.Random) -> tuple[int, list[dict[str, object]], dict[str, object]]:
    """A full cluster of soft and hard gangs, and one that wants in."""
    gangs: list[dict[str, object]] = []
    total = 0
    for index in range(rng.randint(2, 6)):
        members = rng.randint(1, 3)
        total += members
        gang: dict[str, object] = {
            "name": f"g{index}", "submit": index * rng.randint(1, 600), "members": members, "each": {"gpu": 1},
            "priority": rng.randint(0, 2), "duration": LONG, "walltime": LONG, "preemptible": rng.random() < 0.8,
            "startup": rng.choice([0, 0, 30]),
        }  # fmt: skip
        if rng.random() < 0.5:
            gang["snapshot"] = {"every": rng.choice([60, 600, 3600]), "stall": 0, "restore": rng.choice([0, 5, 100])}
        gangs.append(gang)
    asker = {
        "name": "asker", "submit": ASKED_AT, "members": rng.randint(1, total), "each": {"gpu": 1},
        "priority": rng.randint(1, 3), "duration": 10, "walltime": 10,
    }  # fmt: skip
    return total, gangs, asker


def cost_of(gang: dict[str, object]) -> int:
    """Work since the newest snapshot, and starting again, times its size; submits are starts, since all fit."""
    age = ASKED_AT - int(str(gang["submit"]))
    habit = gang.get("snapshot")
    if isinstance(habit, dict):
        return (min(age, habit["every"]) + habit["restore"] + int(str(gang["startup"]))) * int(str(gang["members"]))
    return (age + int(str(gang["startup"]))) * int(str(gang["members"]))


def best_set(gangs: list[dict[str, object]], asker: dict[str, object]) -> set[str] | None:
    """All subsets, the plain way."""
    soft = [(at, gang) for at, gang in enumerate(gangs) if gang["preemptible"] and gang["priority"] < asker["priority"]]  # type: ignore[operator]
    found = []
    for count in range(1, len(soft) + 1):
        for some in combinations(soft, count):
            sizes = [int(str(gang["members"])) for _, gang in some]
            if sum(sizes) < int(str(asker["members"])):
                continue
            highest = max(int(str(gang["priority"])) for _, gang in some)
            later = tuple(sorted((-at for at, _ in some)))
            names = {str(gang["name"]) for _, gang in some}
            found.append((highest, sum(cost_of(gang) for _, gang in some), count, later, names))
    return min(found, key=lambda each: each[:4])[4] if found else None


@pytest.mark.parametrize("batch", range(8))
def test_the_engine_evicts_the_best_permitted_set(batch: int):
    evicting = 0
    for seed in range(batch * 40, batch * 40 + 40):
        total, gangs, asker = draw(random.Random(seed))
        nodes = [{"name": f"n[0-{total - 1}]", "resources": {"gpu": 1}}]
        tree = {"cluster": {"nodes": nodes}, "gangs": [*gangs, asker], "until": ASKED_AT + 1}
        scenario = parse_scenario(Spot(parse_text(json.dumps(tree), "case.json", ".json"), "case.json"))
        result = simulate(scenario, "fair")
        evicted = {g.name for g in result.gangs if any(entry.event == "evict" for entry in g.history)}
        wanted = best_set(gangs, asker) or set()
        assert evicted == wanted, (seed, asker, gangs)
        started = next(gang for gang in result.gangs if gang.name == "asker").start_us is not None
        assert started == bool(wanted), seed
        evicting += bool(wanted)
    assert evicting > 10, "most draws should have somebody to evict"
