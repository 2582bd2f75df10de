"""What ElasticFlow and Sia reach on their own jobs, and what is wanted here: the data of `bench.elastic_peers`.

The peers' figures come from their own simulators (pkusys/ElasticFlow @ 04a0109, siasosp23/artifacts @ aaf7a0d), run
on the jobs that the five files of `elastic-peers` were made from; its SOURCE.md has how, and how the models differ.
ElasticFlow charges every running job 2 s at every event and decides in slots of a minute; Sia learns throughput while
it runs, where the files hold one average for each size. Gaps below a tenth mean little there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: The figures of a run that somebody may want something of.
Figure = Literal["met", "completion_s", "makespan_s"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of the jobs of a set; None where nobody said."""

    name: str
    met: int | None = None  # ended by their date, of all jobs
    ended: int | None = None  # those that the mean is over
    completion_s: float | None = None  # mean, submit to end
    p99_s: float | None = None
    makespan_s: float | None = None
    resizes: int | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bound on one figure of `goodput`: as many dates, or as short a time."""

    figure: Figure
    bound: float

    def is_met(self, figures: Figures) -> bool:
        """Whether this run keeps to it."""
        value = getattr(figures, self.figure)
        return value is not None and (value >= self.bound if self.figure == "met" else value <= self.bound)


@dataclass(frozen=True, slots=True)
class PeerSet:
    """A public set: whose it is, what the peers make of it, what is wanted."""

    name: str
    cluster: str
    peers: tuple[Figures, ...]
    wanted: tuple[Wanted, ...]


SETS: Final = (
    PeerSet(
        "elasticflow-fig8a",
        "16x4",
        (
            Figures("ElasticFlow", met=127, ended=145, completion_s=74_736),
            Figures("… without admission", met=130),
            Figures("EDF", met=23),
            Figures("Gandiva", met=18),
            Figures("Tiresias", met=56),
        ),
        (Wanted("met", 140),),
    ),
    PeerSet(
        "elasticflow-fig8b",
        "32x8",
        (
            Figures("ElasticFlow", met=797, ended=799, completion_s=23_211),
            Figures("EDF", met=382),
            Figures("Gandiva", met=362),
            Figures("Tiresias", met=408),
        ),
        (Wanted("met", 812),),
    ),
    PeerSet(
        "elasticflow-philly-16x8",
        "16x8",
        (Figures("ElasticFlow", met=798, ended=800, completion_s=26_467), Figures("Tiresias", met=408)),
        (Wanted("met", 805),),
    ),
    PeerSet(
        "elasticflow-fig10",
        "16x8",
        (
            Figures("ElasticFlow", met=100, ended=100, completion_s=23_807),
            Figures("EDF", met=92),
            Figures("Gandiva", met=79),
            Figures("Tiresias", met=100),
        ),
        (Wanted("met", 100),),
    ),
    PeerSet(
        "sia-philly-1",
        "16x4",
        (
            Figures("Sia", completion_s=6_044, p99_s=58_555, makespan_s=86_078),
            Figures("Gavel (rigid)", completion_s=12_026, p99_s=89_619, makespan_s=116_298),
        ),
        (Wanted("completion_s", 6_350), Wanted("makespan_s", 92_000)),
    ),
)
