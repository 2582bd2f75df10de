"""Sizes that elastic gangs get when they start together, against the best there is.

What is shared out is worth the sum of what `engine.worth` says of everybody. Giving the next member to whoever gains most
by it is the best there is for steps of one, since worth is concave there; with coarser sizes it may miss, by no more
than half of what can be gained over everybody's least (the worst of the first 1,000 coarse draws gains 0.525 of it; 49 of
them less than all).
"""

from __future__ import annotations

import json
import random
from itertools import product

import pytest

from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.engine.worth import weigh_paced
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import parse_scenario
from phalanx.perfmodel.speedup import Amdahl, speedup_at

FACTOR = 0.5
Drawn = tuple[tuple[int, ...], float, int]  # allowed sizes, serial fraction, seconds at the largest


def draw(rng: random.Random, *, coarse: bool) -> tuple[int, list[Drawn]]:
    """GPUs and gangs."""
    gangs = []
    for _ in range(rng.randint(1, 3)):
        least = rng.randint(1, 2)
        if coarse:
            sizes = tuple(sorted({least, *(least * 2**n for n in range(1, rng.randint(1, 3) + 1))}))
        else:
            sizes = tuple(range(least, least + rng.randint(0, 6) + 1))
        gangs.append((sizes, rng.choice([0.0, 0.02, 0.1, 0.3]), rng.choice([100, 1000, 1000, 9000])))
    least_all = sum(sizes[0] for sizes, _, _ in gangs)
    return least_all + rng.randint(0, 6), gangs


def worth(gangs: list[Drawn], given: tuple[int, ...]) -> float:
    total = 0.0
    for (sizes, serial, seconds), size in zip(gangs, given, strict=True):
        work_us = seconds * 1e6 * speedup_at(Amdahl(serial), sizes[-1])
        least_us = work_us / speedup_at(Amdahl(serial), sizes[0])
        total += weigh_paced(work_us / speedup_at(Amdahl(serial), size), least_us)
    return total


def found_sizes(gpus: int, gangs: list[Drawn]) -> tuple[int, ...]:
    tree = {
        "cluster": {"nodes": [{"name": f"n[0-{gpus - 1}]", "resources": {"gpu": 1}}]},
        "gangs": [
            {"name": f"g{at}", "members": {"sizes": list(sizes)} if len(sizes) > 1 else sizes[0], "each": {"gpu": 1},
             "duration": seconds, "walltime": seconds, "speedup": {"amdahl": serial}}
            for at, (sizes, serial, seconds) in enumerate(gangs)
        ],
        "until": 1,
    }  # fmt: skip
    scenario = parse_scenario(Spot(parse_text(json.dumps(tree), "case.json", ".json"), "case.json"))
    return tuple(gang.members for gang in simulate(scenario, "goodput").gangs)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("batch", range(3))
def test_surplus_goes_where_it_is_worth_most(batch: int, coarse: bool):
    for seed in range(batch * 60, batch * 60 + 60):
        gpus, gangs = draw(random.Random(f"{seed} {coarse}"), coarse=coarse)
        sizes = found_sizes(gpus, gangs)
        assert sum(sizes) <= gpus
        least = worth(gangs, tuple(sizes[0] for sizes, _, _ in gangs))
        best = max(worth(gangs, some) for some in product(*(sizes for sizes, _, _ in gangs)) if sum(some) <= gpus)
        part = FACTOR if coarse else 1 - 1e-9
        assert worth(gangs, sizes) - least >= part * (best - least) * (1 - 1e-9), (seed, gpus, gangs, sizes)
