"""Expected starts of the daemon, held to what became of a log: KTH-SP2, with its users and the times that they stated."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from foretold import Foretelling

from phalanx.frontends.sim.scenario import read_cluster
from phalanx.frontends.sim.traces.swf import read_swf


@pytest.mark.parametrize(
    ("first", "many", "one_in"),
    [
        (0, 400, 2),
        pytest.param(0, 2000, 4, marks=pytest.mark.long),
        pytest.param(12_000, 1500, 4, marks=pytest.mark.long),
        pytest.param(24_000, 1000, 3, marks=pytest.mark.long),
    ],
)
def test_four_starts_in_five_lie_inside_the_range_that_was_told(traces_dir, first, many, one_in):
    log = traces_dir / "kth-sp2" / "KTH-SP2-filtered.swf.gz"
    if not log.is_file():
        pytest.skip("no kth-sp2 log in the folder of traces")
    whole = read_swf(log, "requested", read_cluster("1x100", "slot"))
    part = slice(first, first + many)
    scenario = replace(whole, gangs=whole.gangs[part], true_runs=whole.true_runs[part])
    judged = Foretelling(scenario, one_in=one_in).play()
    assert len(judged) > 50
    assert all(each.low_us < each.at_us < each.high_us for each in judged)
    assert 0.75 <= sum(each.inside for each in judged) / len(judged) <= 0.9
