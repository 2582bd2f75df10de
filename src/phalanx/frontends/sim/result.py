"""What a run has to tell: per gang what happened when and where, and the numbers over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.model.plan import DateVerdict

#: States a gang can be in when a run is over.
COMPLETED = "completed"
RUNNING = "running"
DEADLOCKED = "deadlocked"
INFEASIBLE = "infeasible"
PENDING = "pending"


@dataclass(slots=True)
class Entry:
    """One change in a gang's life, with the members and places *after* it."""

    at_us: int
    event: str
    members: int
    placement: dict[str, int]
    held: dict[str, int] | None = None  # seats kept while too few members run
    units: dict[str, int] | None = None  # of the ledger's kind by node, seats held included; only if roles differ
    cause: str | None = None  # why a plan changed its size: a word, and a sentence
    because: str | None = None


@dataclass(slots=True)
class GangResult:
    """One gang at the end of a run."""

    name: str
    user: str
    state: str
    submit_us: int
    eligible_us: int | None  # the later of submit and the last dependency's end
    start_us: int | None  # of the first bind
    end_us: int | None
    members: int  # the last that were not none, as the places
    placement: dict[str, int]
    reason: tuple[str, str, int, int] | None  # code word, message, needed, available
    history: list[Entry] = field(default_factory=list)
    duration_us: int = 0
    deadline_us: int | None = None  # from submit, as asked
    date: DateVerdict | None = None  # what was said of it, under a policy that promises dates
    queue: str = ""
    wait_reason: tuple[str, str, int, int] | None = None  # what mostly kept it from its first start, if asked

    @property
    def wait_us(self) -> int | None:
        """From eligibility to the first start."""
        if self.start_us is None:
            return None
        return self.start_us - (self.submit_us if self.eligible_us is None else self.eligible_us)


@dataclass(slots=True)
class SimResult:
    """One policy's run."""

    policy: str
    seed: int
    gangs: list[GangResult]
    metrics: dict[str, object]
    dropped: int = 0  # jobs of the log that were not simulated
    passes: int = 0  # how often the engine was asked
    outages: list[tuple[str, int, int | None]] | None = None  # node, from, to in µs (None: for good)
