"""Rows of the store, and the changes that may be asked of it.

A record is a copy: changing one changes nothing on disk. Bytes are JSON that the core understands and the store does
not look into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec


class JobRecord(msgspec.Struct, kw_only=True, gc=False):
    """A job. What its members run is a second table, because it is large and needed once: see `Store.load_run`."""

    # The first and the last field have places of their own in the SQL: `id` is given by the store, `run` lies apart.
    id: int = 0
    uid: int
    gid: int
    user: str
    name: str
    queue: str
    state: str
    gang: bytes  # as submitted
    options: bytes  # begin, array, singleton and the like
    submit_us: int
    submit_wall: float
    attempt: int = 0
    generation: int = 0
    held: bool = False
    pin: int | None = None
    seats: bytes | None = None
    memory: bytes | None = None  # what the scheduler remembers of it
    reason: bytes | None = None
    start_us: int | None = None
    start_wall: float | None = None
    end_us: int | None = None
    end_wall: float | None = None
    exit_code: int | None = None
    failure: bytes | None = None
    progress: bytes | None = None
    ledger: bytes | None = None
    run: bytes | None = None  # only on the way in


class RunRecord(msgspec.Struct, gc=False):
    """An attempt that has, or may have, a shim: starting, running, stopping or done."""

    run: str
    job: int
    attempt: int
    generation: int
    state: str
    boot_id: str
    devices: bytes
    members: bytes | None = None
    intent: bytes | None = None


class EventRecord(msgspec.Struct, gc=False):
    """Something that happened; `seq` is given by the store and never given twice."""

    job: int | None
    event: str
    at_us: int
    wall: float
    data: bytes
    seq: int = 0


class EstimateRecord(msgspec.Struct, gc=False):
    """When a job was expected to start, and when it did."""

    job: int
    made_us: int
    at_us: int
    low_us: int
    high_us: int
    predicted: bool
    actual_us: int | None = None


# --------------------------------------------------------------------- changes


@dataclass(slots=True)
class InsertJobs:
    """New jobs. The result is their ids, in order; a key that this user has used before gives the ids of then.

    The records are read when the change is applied, so they stay as they are until the write is answered.
    """

    uid: int
    key: str | None
    jobs: list[JobRecord]


#: What `UpdateJob` may set.
JOB_COLUMNS: Final = frozenset(JobRecord.__struct_fields__) - {"id", "run"}


@dataclass(init=False, slots=True)
class UpdateJob:
    """New values for some columns of a job. A job that is not there fails the write with LookupError."""

    id: int
    columns: dict[str, Any]

    def __init__(self, id: int, **columns: Any) -> None:  # noqa: A002 - the name of the column
        """Refuses unknown columns here, where the caller's stack says who asked."""
        if not columns or not columns.keys() <= JOB_COLUMNS:
            raise TypeError(f"job {id}: no such columns to set: {sorted(columns.keys() - JOB_COLUMNS)}")
        self.id = id
        self.columns = columns


@dataclass(slots=True)
class PutRun:
    """Write down a run, in place of what was known of it."""

    record: RunRecord


@dataclass(slots=True)
class DropRun:
    """Forget a run; one that is not known is no error."""

    run: str


@dataclass(slots=True)
class AddEvents:
    """Append events. The result is their sequence numbers."""

    events: list[EventRecord]


@dataclass(slots=True)
class PutMeta:
    """Remember something about the daemon itself."""

    key: str
    value: bytes


@dataclass(slots=True)
class AddEstimate:
    """Remember when a job was expected to start."""

    job: int
    made_us: int
    at_us: int
    low_us: int
    high_us: int
    predicted: bool


#: Instead of the instant of a start: somebody held the job, and its estimates can never be judged.
VOID_US: Final = -1


@dataclass(slots=True)
class CloseEstimate:
    """The job started, or `VOID_US`: all open estimates of it can be judged now."""

    job: int
    actual_us: int


@dataclass(slots=True)
class Forget:
    """Remove what is older than retention allows, at most `limit` rows of a kind. The result is how many went."""

    events_before_us: int
    jobs_before_us: int
    limit: int


Change = InsertJobs | UpdateJob | PutRun | DropRun | AddEvents | PutMeta | AddEstimate | CloseEstimate | Forget
