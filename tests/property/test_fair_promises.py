"""Promises between tenants over whole runs: guarantees, shares, and that everybody's turn comes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.result import GangResult, SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import parse_scenario

SECOND_US = 1_000_000


def play(tree: dict[str, Any], policy: str) -> SimResult:
    scenario = parse_scenario(Spot(parse_text(json.dumps(tree), "case.json", ".json"), "case.json"))
    return simulate(scenario, policy, dict(scenario.policies).get(policy, {}))


def stays(gang: GangResult) -> Iterator[tuple[int, int, int]]:
    """From when, until when, with how many members."""
    ends = [*(entry.at_us for entry in gang.history[1:]), 1 << 62]  # whoever still runs goes on
    for entry, end_us in zip(gang.history, ends, strict=True) if gang.history else ():
        if entry.members:
            yield entry.at_us, end_us, entry.members


def members_at(gangs: list[GangResult], at_us: int) -> int:
    return sum(members for gang in gangs for since, until, members in stays(gang) if since <= at_us < until)


def unit(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "members": 1, "each": {"gpu": 1}, **more}


# ---------------------------------------------------------------------- guarantees


@pytest.mark.parametrize("policy", ["fair", "goodput"])
@pytest.mark.parametrize("seed", range(25))
def test_a_guarantee_is_there_whenever_it_is_asked_for(policy: str, seed: int):
    """Borrowers are preemptible and save often, so whoever is within its guarantee starts as it comes.

    The borrower's newest snapshot is at most 30 s old and nothing ends by itself, so no waiting clause applies.
    """
    rng = random.Random(seed)
    gpus, guarantee = rng.randint(4, 12), rng.randint(1, 4)
    gangs: list[dict[str, Any]] = []
    taken, index = 0, 0
    while taken < gpus:
        members = min(rng.randint(1, 3), gpus - taken)
        taken, index = taken + members, index + 1
        gangs.append(
            {"name": f"b{index}", "queue": "borrower", "members": members, "each": {"gpu": 1}, "duration": "10d",
             "walltime": "10d", "preemptible": True, "snapshot": {"every": 30, "stall": 0, "restore": 1}}
        )  # fmt: skip
    asked, number = 0, 0
    while asked < guarantee:
        members = min(rng.randint(1, 3), guarantee - asked)
        asked, number = asked + members, number + 1
        gangs.append(
            {"name": f"o{number}", "queue": "owner", "submit": 1000 + 500 * number, "members": members,
             "each": {"gpu": 1}, "duration": "1d", "walltime": "1d"}
        )  # fmt: skip
    tree = {
        "cluster": {"nodes": [{"name": f"n[0-{gpus - 1}]", "resources": {"gpu": 1}}]},
        "queues": [{"name": "borrower"}, {"name": "owner", "guarantee": {"gpu": guarantee}}],
        "gangs": gangs,
        "until": "12h",
    }
    result = play(tree, policy)
    owners = [gang for gang in result.gangs if gang.name.startswith("o")]
    assert [gang.start_us for gang in owners] == [gang.submit_us for gang in owners]


# ---------------------------------------------------------------------- shares


@pytest.mark.parametrize("policy", ["fair", "goodput"])
@pytest.mark.parametrize("seed", range(8))
def test_long_run_shares_are_within_a_gang_of_the_entitlement(policy: str, seed: int):
    """Every queue has more to do than it may: usage stays within one gang of gpus x weight / weights."""
    rng = random.Random(seed)
    weights = {f"q{n}": rng.randint(1, 3) for n in range(rng.randint(2, 3))}
    gpus = sum(weights.values()) * rng.randint(1, 3)
    gangs = []
    for queue in weights:
        gangs += [
            unit(f"{queue}-{n}", queue=queue, duration=rng.choice([60, 90, 120]), walltime=120)
            for n in range(gpus * 14)
        ]
    rng.shuffle(gangs)
    tree = {
        "cluster": {"nodes": [{"name": f"n[0-{gpus - 1}]", "resources": {"gpu": 1}}]},
        "queues": [{"name": queue, "weight": weight} for queue, weight in weights.items()],
        "gangs": gangs,
        "until": 600,
    }
    result = play(tree, policy)
    for queue, weight in weights.items():
        own = [gang for gang in result.gangs if gang.name.startswith(f"{queue}-")]
        entitled = gpus * weight / sum(weights.values())
        for at_s in range(0, 600, 30):
            assert abs(members_at(own, at_s * SECOND_US) - entitled) <= 1, (queue, at_s)


# ---------------------------------------------------------------------- starvation


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "fair", "deadline", "rotate", "goodput"])
@pytest.mark.parametrize("seed", range(8))
def test_everybody_starts_within_the_time_that_all_work_takes(policy: str, seed: int):
    """Rigid gangs of one priority and queue: whoever waits starts at the latest when all that came has been worked off.

    Bound: the last arrival, plus the sum of all run times, plus what restarts may repeat of them.
    """
    rng = random.Random(f"starve {seed}")
    gpus = rng.randint(3, 8)
    gangs = [
        {"name": f"g{n}", "submit": rng.randint(0, 2000), "members": rng.choice([1, 1, 2, gpus]), "each": {"gpu": 1},
         "duration": (run := rng.randint(10, 600)), "walltime": run + rng.choice([0, 0, 300]),
         "preemptible": rng.random() < 0.5, "snapshot": {"every": 60, "stall": 0, "restore": 1}}
        for n in range(25)
    ]  # fmt: skip
    tree = {"cluster": {"nodes": [{"name": f"n[0-{gpus - 1}]", "resources": {"gpu": 1}}]}, "gangs": gangs}
    result = play(tree, policy)
    assert {gang.state for gang in result.gangs} == {"completed"}
    last_us = max(gang.submit_us for gang in result.gangs)
    work_us = sum(gang.duration_us for gang in result.gangs)
    evictions = sum(entry.event in ("evict", "yield") for gang in result.gangs for entry in gang.history)
    bound_us = last_us + work_us + evictions * 61 * SECOND_US
    for gang in result.gangs:
        assert gang.start_us is not None
        assert gang.start_us <= bound_us, gang.name
