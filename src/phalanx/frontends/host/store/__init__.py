"""What the daemon must not forget: SQLite with a log, one writing thread and a group commit."""

from phalanx.frontends.host.store.faults import StoreBroken, StoreFull
from phalanx.frontends.host.store.store import Store, open_store
from phalanx.frontends.host.store.stored_rows import (
    VOID_US,
    AddEstimate,
    AddEvents,
    Change,
    CloseEstimate,
    DropRun,
    EstimateRecord,
    EventRecord,
    InsertJobs,
    JobRecord,
    PutMeta,
    PutRun,
    RunRecord,
    UpdateJob,
)

__all__ = [
    "VOID_US",
    "AddEstimate",
    "AddEvents",
    "Change",
    "CloseEstimate",
    "DropRun",
    "EstimateRecord",
    "EventRecord",
    "InsertJobs",
    "JobRecord",
    "PutMeta",
    "PutRun",
    "RunRecord",
    "Store",
    "StoreBroken",
    "StoreFull",
    "UpdateJob",
    "open_store",
]
