"""One story of one start, whoever is asked: why, ps, gantt, and a what-if from the daemon's own state."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import ADA, Day, ask_what_if, ask_why, since_midnight

from phalanx.frontends.host.service import Listing
from phalanx.testing.builders import make_gang


def test_what_if_keeps_the_ceiling_and_says_what_why_says():
    # It said "on hold; release it", started a newcomer at once, and found that a cancel helps nobody.
    with Day(8, max_running_per_user=1) as day:
        for at, name in enumerate(("p1", "p2", "p3")):
            day.submit(at / 10, name, "1 gpu=1", 20, walltime=20)
        day.submit(0.5, "later", "1 gpu=1", 5, walltime=5, user="bob", options={"begin": "+30s"})
        day.until(5)
        new = make_gang("new", "4 gpu=1", user="ada", walltime=60)
        starts, _ = ask_what_if(day, new)
        assert starts["1"] == starts["2"] - 20 == starts["3"] - 40 == starts["new"] - 60
        told = ask_why(day, "p2")
        assert abs(starts["2"] - starts["1"] - since_midnight(day, told.eta.at)) <= 1
        assert 30 <= starts["4"] - starts["1"] <= 31
        _, seen = ask_what_if(day, cancel=("1",))
        assert seen.fates["2"].start_us == seen.now_us


def test_what_if_believes_the_lengths_that_why_believes():
    # `why` said "in about 1s" and what-if a day, of one job.
    with Day(2) as day:
        for at in range(3):
            day.submit(at * 20, f"train{at}", "1 gpu=1", 12, options={})
        day.submit(60, "mute", "2 gpu=1", 300)
        day.submit(61, "next", "2 gpu=1", 10, walltime=10)
        day.until(65)
        rows = {row.name: row for row in day.tell(lambda core: core.rows(ADA, Listing()))}
        _, seen = ask_what_if(day)
        left_s = (seen.fates[str(day.ids["next"])].start_us - seen.now_us) / 1e6
        assert left_s < 6 * 3600
        asked_s = since_midnight(day, rows["next"].eta.at) - (seen.now_us / 1e6 - 0.2)
        assert abs(left_s - asked_s) < 5 + 0.2 * left_s


def test_after_an_overrun_everybody_says_the_same_and_that_it_is_one():
    with Day(2) as day:
        day.submit(0, "late", "2 gpu=1", 300, walltime=10)
        day.submit(1, "w1", "2 gpu=1", 10, walltime=10)
        day.until(3)
        assert ask_why(day, "w1").eta.hangs_on == "when 1 (late) ends"
        for at_s in (14, 25, 60):
            day.until(at_s)
            eta = ask_why(day, "w1").eta
            assert eta.hangs_on == "when 1 (late) ends (it has outlived its --time of 10s)"
            assert eta.low < eta.at < eta.high
            row = day.row("w1")
            assert eta.hangs_on in row.info
            (bar,) = {bar["start"] for bar in day.tell(lambda core: core.gantt(ADA, 0))["bars"] if bar["job"] == 2}
            starts, seen = ask_what_if(day)
            told = [since_midnight(day, each) for each in (eta.at, row.eta.at, bar)]
            assert max(told) - min(told) <= 7, told
            assert abs(starts["2"] - told[0]) <= 12
            assert 55 <= starts["2"] - seen.now_us / 1e6 <= 61
