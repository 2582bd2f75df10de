"""Give a share of the gangs of a log what logs lack: a range of sizes, snapshots, deadlines.

Which gangs are chosen depends on the seed and on nothing else, so that a run with more elastic
gangs differs from one with fewer only where it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.control.spec.sizes import sizes_between
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.gang import Gang, Sizes, SnapshotHabit
from phalanx.perfmodel.speedup import Amdahl

#: An elastic gang may shrink to a quarter; a fiftieth of its work gains nothing from more members.
SHRINK: Final = 4
SERIAL: Final = 0.02
RESIZE_PAUSE_US: Final = 10 * SECOND_US

#: A preemptible gang saves its work every ten minutes.
HABIT: Final = SnapshotHabit(every_us=600 * SECOND_US, stall_us=SECOND_US, restore_us=30 * SECOND_US)

#: A deadline is this many times what planning believes, drawn evenly between the two.
_SLACK: Final = (1.2, 3.0)


@dataclass(frozen=True, slots=True)
class TraitShares:
    """Fractions from 0 to 1 of the gangs that get something."""

    elastic: float = 0.0  # of those with more than one member
    preemptible: float = 0.0
    deadlines: float = 0.0

    @property
    def any(self) -> bool:
        """Whether anybody gets anything."""
        return bool(self.elastic or self.preemptible or self.deadlines)


def apply_shares(scenario: Scenario, shares: TraitShares, seed: int, shrink: int | None = SHRINK) -> Scenario:
    """The same scenario with some gangs changed; `shrink` None lets elastic ones go down to one member."""
    if not shares.any:
        return scenario
    streams = {name: Random(f"{name} {seed}") for name in ("elastic", "preemptible", "deadlines", "slack")}
    gangs: list[Gang] = []
    true_runs: list[TrueRun] = []
    for before, truth in zip(scenario.gangs, scenario.true_runs, strict=True):
        gang = before
        # Every stream is drawn from for every gang: one share then never shifts who gets another.
        chosen = {name: streams[name].random() for name in ("elastic", "preemptible", "deadlines")}
        slack = streams["slack"].uniform(*_SLACK)
        after = truth
        if chosen["elastic"] < shares.elastic and _can_shrink(gang):
            gang, after = _make_elastic(gang, shrink), TrueRun(truth.duration_us, Amdahl(SERIAL))
        if chosen["preemptible"] < shares.preemptible:
            gang = replace(gang, preemptible=True, snapshot=gang.snapshot or HABIT)
        if chosen["deadlines"] < shares.deadlines:
            believed_us = gang.walltime_us or truth.duration_us
            gang = replace(gang, deadline_us=_whole_seconds(max(believed_us, truth.duration_us) * slack))
        gangs.append(gang)
        true_runs.append(after)
    return replace(scenario, gangs=tuple(gangs), true_runs=tuple(true_runs))


def _can_shrink(gang: Gang) -> bool:
    return len(gang.roles) == 1 and not gang.elastic and gang.members_max > 1


def _make_elastic(gang: Gang, shrink: int | None) -> Gang:
    """The size that was asked for is the largest. Powers of two shrink by halves, others one by one."""
    role = gang.roles[0]
    most = role.sizes.most
    least = 1 if shrink is None else -(-most // shrink)
    sizes = _halves(least, most) if shrink is not None and most & (most - 1) == 0 else sizes_between(least, most, 1)
    pause_us = gang.resize_pause_us or RESIZE_PAUSE_US
    return replace(gang, roles=(replace(role, sizes=sizes),), resize_pause_us=pause_us)


def _whole_seconds(us: float) -> int:
    return -(-int(us) // SECOND_US) * SECOND_US


def _halves(least: int, most: int) -> Sizes:
    found = [most]
    while found[-1] // 2 >= least:
        found.append(found[-1] // 2)
    return Sizes(tuple(reversed(found)))
