"""Every date that is promised is met, on drawn worlds, as far as the counting behind a promise goes.

What it takes for granted, and these worlds therefore have: no node fails, walltimes are the truth, one queue and one
priority (so that surplus can be called back), members of one device each (so that what is free in all is free in
place), nobody cancels, holds or resizes by hand. Undated gangs, stated run times or not, and dates that are refused
come and go as they like.
"""

from random import Random

import pytest

from phalanx.frontends.sim.run import simulate
from phalanx.testing.whole_worlds import read_tree


def draw_world(seed):
    """A small cluster, and gangs of which half have dates: some loose, some tight, some out of reach."""
    rng = Random(f"promised {seed}")
    devices = rng.choice([4, 8, 12])
    pause = rng.choice([0, 0, 1, 5, 20])
    gangs = []
    for index in range(rng.randint(3, 14)):
        duration = rng.choice([10, 40, 100, 300, 1000])
        gang = {"name": f"g{index}", "submit": rng.randint(0, 600), "duration": duration, "each": {"gpu": 1}}
        if rng.random() < 0.6:
            least = rng.randint(1, devices // 2)
            gang["members"] = {"min": least, "max": rng.randint(least + 1, devices)}
            gang |= {"resize_pause": pause} if pause else {}
            if rng.random() < 0.5:
                gang["speedup"] = {"amdahl": rng.choice([0.02, 0.1, 0.3])}
        else:
            gang["members"] = rng.randint(1, devices)
        if rng.random() < 0.3:
            gang["startup"] = rng.choice([2, 15])
        if rng.random() < 0.9:
            gang["walltime"] = duration
        if rng.random() < 0.6:
            gang["deadline"] = int(duration * rng.choice([1, 1.1, 1.5, 2, 4, 10])) + rng.choice([0, 1, 30])
        if rng.random() < 0.2:
            gang["preemptible"] = True
        gangs.append(gang)
    nodes = [{"name": f"n{at}", "resources": {"gpu": 4}} for at in range(devices // 4)]
    return {"cluster": {"nodes": nodes}, "gangs": sorted(gangs, key=lambda gang: gang["submit"])}


def play(seed, policy, admit="promised"):
    """The gangs of a drawn world at the end of a run."""
    return simulate(read_tree(draw_world(seed)), policy, {"admit": admit}).gangs


def in_time(gang):
    """Whether it ended by its date."""
    return gang.end_us is not None and gang.end_us <= gang.submit_us + gang.deadline_us


@pytest.mark.parametrize("policy", ["goodput", "deadline"])
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_every_promised_date_is_met(first, policy):
    promised = 0
    for seed in range(first, first + 30):
        for gang in play(seed, policy):
            if gang.date is not None and gang.date.promised:
                promised += 1
                assert in_time(gang), f"seed {seed}: {gang.name} ended at {gang.end_us}, {gang.date}"
    assert promised
