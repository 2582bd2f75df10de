"""Every date that is promised is met, on drawn worlds, as far as the counting behind a promise goes.

What it takes for granted, and these worlds therefore have: no node fails, walltimes are the truth, one queue and one
priority (so that surplus can be called back), members of one device each (so that what is free in all is free in
place), nobody cancels, holds or resizes by hand. Undated gangs, stated run times or not, and dates that are refused
come and go as they like.
"""

from random import Random

import pytest
from selection import rest_long

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


def draw_burst(seed, count=20, nodes=2):
    """Elastic gangs that come at one instant and ask for more than there is, with all that a change of size costs."""
    rng, gangs = Random(f"burst {seed}"), []
    for index in range(count):
        duration = rng.choice([600, 1800, 3600, 7200])
        members = {"min": rng.choice([1, 2]), "max": rng.choice([4, 8, 16])}
        gang = {"name": f"g{index}", "duration": duration, "walltime": duration, "members": members, "each": {"gpu": 1}}
        gang |= {"resize_pause": 10, "startup": 5, "deadline": int(duration * rng.choice([1.5, 2, 4, 10, 20, 50]))}
        gangs.append(gang)
    return {"cluster": {"nodes": [{"name": f"n[0-{nodes - 1}]", "resources": {"gpu": 8}}]}, "gangs": gangs}


def play(seed, policy, admit="promised", draw=draw_world):
    """The gangs of a drawn world at the end of a run."""
    return simulate(read_tree(draw(seed)), policy, {"admit": admit}).gangs


def in_time(gang):
    """Whether it ended by its date."""
    return gang.end_us is not None and gang.end_us <= gang.submit_us + gang.deadline_us


def find_late(seeds, policy, draw):
    """Promises among the gangs of these worlds, and what is to be said of those that were broken."""
    promised, late = 0, []
    for seed in seeds:
        for gang in play(seed, policy, draw=draw):
            if gang.date is not None and gang.date.promised:
                promised += 1
                if not in_time(gang):
                    late.append(f"seed {seed}: {gang.name} ended at {gang.end_us}, {gang.date}")
    return promised, late


# Seeds 5, 26 and 38 are in the first part: the least that met a date fell as gangs got on and lasted longer than it had
# been counted, lenders gave what others' promises rested on, and pauses of those who had not begun were not counted.
@pytest.mark.parametrize("policy", ["goodput", "deadline"])
@pytest.mark.parametrize("first", rest_long(range(0, 200, 40), 1))
def test_every_promised_date_is_met_where_everybody_comes_at_once(first, policy):
    promised, late = find_late(range(first, first + 40), policy, draw_burst)
    assert promised > 400
    assert late == []


#: Of 15 worlds in which sixty come for 32 devices these are late: what is left of their slack is used up by others
#: who start, and a course that was counted with it is not found again. The list may only shrink.
KNOWN_LATE = {"seed 2: g12", "seed 11: g29"}


@pytest.mark.long
def test_nearly_every_promised_date_is_met_where_very_many_come_at_once():
    promised, late = find_late(range(15), "goodput", lambda seed: draw_burst(seed, 60, 4))
    assert promised > 690
    assert {each.split(" ended")[0] for each in late} == KNOWN_LATE


@pytest.mark.parametrize("policy", ["goodput", "deadline"])
@pytest.mark.parametrize("first", rest_long(range(0, 720, 30), 4))
def test_every_promised_date_is_met(first, policy):
    promised, late = find_late(range(first, first + 30), policy, draw_world)
    assert promised
    assert late == []
