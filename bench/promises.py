"""What it costs to promise dates: hundreds of elastic gangs with dates that come at one instant (`admit: promised`)."""

from __future__ import annotations

import time
from random import Random

from bench.measure import Measured
from phalanx.frontends.sim.run import simulate
from phalanx.testing.whole_worlds import Tree, read_tree

NAME = "promises"
WHAT = "elastic gangs with dates that come at one instant for 256 devices, `admit: promised`: CPU-s of the first pass"
GANGS, QUICK_GANGS = (150, 300, 600), (100, 150)
CPU_S_MOST, AIM_GANGS = 10.0, 300


def run(*, quick: bool) -> Measured:
    """The first pass of ever more gangs; of the fewest the whole run, and whether every promise was kept."""
    sizes = QUICK_GANGS if quick else GANGS
    took = {count: time_first_pass(count) for count in sizes}
    played = simulate(read_tree(make_burst(sizes[0])), "goodput", {"admit": "promised"})
    promised, kept = played.metrics["dates_promised"], played.metrics["dates_kept"]
    aim = min(AIM_GANGS, sizes[-1])
    note = ", ".join(f"{count} {cpu_s:.1f}" for count, cpu_s in took.items())
    return Measured(
        f"{took[aim]:.1f} CPU-s",
        f"≤ {CPU_S_MOST:.0f} CPU-s, all kept",
        took[aim] <= CPU_S_MOST and promised == kept,
        f"by gangs: {note}; of {sizes[0]} played to the end {promised} were promised and {kept} kept",
    )


def time_first_pass(count: int) -> float:
    """CPU-seconds until everybody has an answer and whoever may start has started."""
    world = read_tree(make_burst(count) | {"until": 1})
    begun_s = time.process_time()
    simulate(world, "goodput", {"admit": "promised"})
    return time.process_time() - begun_s


def make_burst(count: int) -> Tree:
    """Dates from hopeless to loose."""
    rng, gangs = Random(1), []
    for index in range(count):
        length = rng.choice([600, 1800, 3600, 7200])
        members = {"min": rng.choice([1, 2]), "max": rng.choice([4, 8, 16])}
        gang = {"name": f"g{index}", "duration": length, "walltime": length, "members": members, "each": {"gpu": 1}}
        gang |= {"resize_pause": 10, "startup": 5, "deadline": int(length * rng.choice([1.5, 2, 4, 10, 20, 50]))}
        gangs.append(gang)
    return {"cluster": {"nodes": [{"name": "n[0-31]", "resources": {"gpu": 8}}]}, "gangs": gangs}
