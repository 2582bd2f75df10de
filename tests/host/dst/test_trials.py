"""Random days with random faults: the daemon's core on a made-up machine, with every rule checked at every instant.

PHALANX_TRIALS  how many seeds (200)
PHALANX_SEED    the first of them (0)

One seed by hand: `python -m phalanx.testing.hosts.trials SEED` prints its trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest
from selection import rest_long

from phalanx.frontends.host.crashpoints import LABELS
from phalanx.testing.hosts.trials import TROUBLES, draw_troubles, run_trial

COUNT = int(os.environ.get("PHALANX_TRIALS", "200"))
FIRST = int(os.environ.get("PHALANX_SEED", "0"))
AT_ONCE = 20


@pytest.mark.parametrize("first", rest_long(range(FIRST, FIRST + COUNT, AT_ONCE), short=3))
def test_nothing_is_lost_started_twice_or_left_behind(first):
    for seed in range(first, min(first + AT_ONCE, FIRST + COUNT)):
        run_trial(seed)


def test_the_daemon_dies_at_every_label():
    """Each of these seeds kills it at labels that are hard to reach; the rest is reached by any few seeds."""
    died: set[str] = set()
    for seed in range(0, 240, 3):
        died |= set(run_trial(seed).crashes)
        if died >= set(LABELS):
            return
    assert died >= set(LABELS), f"never died at {sorted(set(LABELS) - died)}"


def test_every_kind_of_trouble_is_drawn():
    drawn = set().union(*(draw_troubles(Random(seed), seed) for seed in range(40)))
    assert drawn == set(TROUBLES)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_seed_gives_the_same_trace(hash_seed):
    """Also in a process that orders its sets differently."""
    seeds = [3, 4, 5, 6]
    command = [sys.executable, "-m", "phalanx.testing.hosts.trials", "--digest", *map(str, seeds)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.split()
    assert told == [run_trial(seed).digest for seed in seeds]
