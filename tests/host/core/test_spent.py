"""Times and sizes of jobs that ran more than once, or at another size than their least."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import ADA, Day

from phalanx.frontends.host.service import Listing


def test_times_of_attempts_add_up_and_the_wait_between_them_is_none_of_them():
    with Day(1) as day:
        day.submit(0, "twice", "1 gpu=1", 40, walltime=60, preemptible=True, run={"on_preempt": "requeue"})
        day.submit(10, "urgent", "1 gpu=1", 50, "bob", walltime=50, priority=1)
        day.until(30)
        row = day.row("twice")
        assert (row.state, round(row.ran_s), round(row.waited_s)) == ("pending", 10, 20)
        day.until(80)
        row = day.row("twice")
        assert (row.state, round(row.ran_s), round(row.waited_s)) == ("running", 30, 50)  # 10 s, and 20
        day.until(150)
        row = day.row("twice")
        assert (row.info, round(row.ran_s), round(row.waited_s)) == ("exit 0 after 50s in 2 attempts", 50, 50)
        day.crash()
        day.boot()
        day.until(155)
        (stored,) = [
            each for each in day.tell(lambda core: core.rows(ADA, Listing(finished=True))) if each.name == "twice"
        ]
        assert (stored.info, round(stored.waited_s)) == ("exit 0 after 50s in 2 attempts", 50)


def test_an_elastic_job_shows_what_it_held_when_it_has_ended():
    with Day(4) as day:
        day.submit(0, "wide", "2-8 gpu=1", 30, walltime=30)
        day.until(20)
        held = day.row("wide").gpus
        day.until(120)
        assert (day.row("wide").state, day.row("wide").gpus) == ("completed", held)
        day.crash()
        day.boot()
        day.until(125)
        (stored,) = day.tell(lambda core: core.rows(ADA, Listing(finished=True)))
        assert stored.gpus == held > 2
