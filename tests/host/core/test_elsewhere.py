"""Changes of size of which only the last is carried out, and together they leave nobody where they were."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from days import Day

from phalanx.control.instructions import SeatChange
from phalanx.model.plan import Cause, Seats

SLOTS = 4


def sit(*devices):
    """One role, a whole device a member."""
    row = np.zeros((1, SLOTS), dtype=np.int16)
    row[0, list(devices)] = 1000
    return (Seats(0, np.array([0]), np.array([len(devices)]), row),)


def change_seats(day, name, *devices):
    """As a plan does that has just been made, with everything before it folded already."""

    async def change(core):
        job = core.known.register.by_id[day.ids[name]]
        core.known.planner.resize_to(core.known.now_us(), job.number, sit(*devices), Cause.LOAN)
        core.resizing.plan(job, SeatChange(job.number, (), sit(*devices), Cause.LOAN))

    day.tell(change)


def test_a_job_that_is_to_sit_on_other_devices_alone_goes_on_there():
    """It grew to one more and gave the first back, both before it could do either: it ended as a failure."""
    with Day(SLOTS, policy="fair") as day:
        day.submit(0, "job", "1-2 gpu=1", 60, walltime=60)
        day.until(5)
        assert (day.row("job").devices, day.row("job").attempt) == (["GPU-fake-0", "GPU-fake-1"], 1)
        change_seats(day, "job", 3)
        day.until(20)
        row = day.row("job")
        assert (row.state, row.devices, row.attempt) == ("running", ["GPU-fake-3"], 2)
        day.until(400)
        assert day.row("job").state == "completed"
