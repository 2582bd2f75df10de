"""Jobs of a log into gangs. Equal roles and equal true_runs are one object: a log has many jobs and few of those."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.spec.sizes import sizes_between
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.frontends.sim.traces.believed import Estimate, believe_us
from phalanx.model.gang import Gang, Role, Shape
from phalanx.model.resources import MILLI


class LogJob(NamedTuple):
    """One line of a log. A tuple, because a log has many."""

    submit_us: int
    name: str
    run_us: int
    members: int
    user: str = ""
    requested_us: int = 0  # the time asked for; 0 if the log does not say
    deadline_us: int | None = None  # from submit


def rigid_roles(members: int, kind: str) -> tuple[Role, ...]:
    """So many members that need one of a kind each."""
    return (Role(SOLE_ROLE, sizes_between(members, members, 1), _one_of(kind)),)


@cache
def _one_of(kind: str) -> Shape:
    # One object for all sizes: shapes are looked up wherever somebody is seated, and the same object is soon found.
    return Shape(((kind, MILLI),))


def make_scenario(jobs: Sequence[LogJob], kind: str, estimate: Estimate, dropped: int, file: str) -> Scenario:
    """The jobs as gangs of a scenario that has no nodes yet."""
    if not jobs:
        raise BadInput(f"holds no job that ran ({dropped:,} left out)", file=file)
    gangs: list[Gang] = []
    true_runs: list[TrueRun] = []
    roles_by_size: dict[int, tuple[Role, ...]] = {}
    truth_by_us: dict[int, TrueRun] = {}
    for submit_us, name, run_us, members, user, requested_us, deadline_us in jobs:
        roles = roles_by_size.get(members)
        if roles is None:
            roles = roles_by_size[members] = rigid_roles(members, kind)
        truth = truth_by_us.get(run_us)
        if truth is None:
            truth = truth_by_us[run_us] = TrueRun(run_us)
        walltime_us = believe_us(estimate, run_us, requested_us)
        gangs.append(
            Gang(name, roles, submit_us, user=user, walltime_us=walltime_us, deadline_us=deadline_us),
        )
        true_runs.append(truth)
    return Scenario((), (), tuple(gangs), tuple(true_runs), dropped=dropped)
