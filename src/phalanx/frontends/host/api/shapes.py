"""What crosses the API besides the jobs themselves: queries, the bodies of verbs, the envelopes of answers.

Requests forbid unknown fields, so that a misspelt one is an error and not a wish unheard. Answers may
gain fields within one version of the API; readers skip what they do not know.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from phalanx.frontends.host.messages import JOBS_SCHEMA, STATUS_SCHEMA, Accepted, NodeRow, QueueRow, Refusal, Row, State

QUEUES_SCHEMA: Final = "phalanx.queues/1"
NODES_SCHEMA: Final = "phalanx.nodes/1"

LOG_BYTES_MAX: Final = 1 << 20
WAIT_S_MAX: Final = 300.0
#: A century, and no number that a clock in microseconds could not hold.
PAST_S_MAX: Final = 100 * 366 * 86400.0
NUMBER_MAX: Final = (1 << 63) - 1

Count = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Span = str | float | None  # "2h", or seconds; null takes it back

# ---------------------------------------------------------------------- queries


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing can be asked for."""


class SubmitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are taken in."""

    dry_run: bool = False


class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to list; `state` holds words with commas between them."""

    all: bool = False
    state: str = ""
    queue: str = ""
    user: str = ""
    name: str = ""
    limit: Count = 0
    finished: bool = False


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which piece of which log."""

    rank: Count = 0
    attempt: Count | None = None
    offset: Count = 0
    limit: Annotated[int, Meta(ge=1, le=LOG_BYTES_MAX)] = 65536
    tail: Count | None = None


class DetailQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the environment is wanted as well; it holds secrets, and what prints a job is often pasted somewhere."""

    env: bool = False


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait before the answer is that it has not ended."""

    timeout_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 30.0


class ReportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a report is grouped; `by` holds user, queue and job with commas between them."""

    by: str = "user"
    since_s: Annotated[float, Meta(ge=0, le=PAST_S_MAX)] | None = None


class GanttQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the past to draw."""

    past_s: Annotated[float, Meta(ge=0, le=366 * 86400.0)] = 3600.0


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events after this one, 0: all that are kept, -1: only new ones; the header Last-Event-ID goes before it."""

    since: Annotated[int, Meta(ge=-1, le=NUMBER_MAX)] = 0


# ---------------------------------------------------------------------- bodies


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A verb that needs no further words; an empty body says the same."""


class Refs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by id, name, range of ids (`36-39`) or elements of an array (`sweep[0-3]`)."""

    jobs: list[str]


class Resize(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A size that somebody wants, or `auto` to take the wish back."""

    members: Annotated[int, Meta(ge=1, le=1 << 20)] | Literal["auto"]
    min: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None


class Preempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take everything from a running job; a drill gives it back at once."""

    drill: bool = False


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What changes of a pending job."""

    priority: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)] | UnsetType = UNSET
    walltime: Span | UnsetType = UNSET
    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    topology: dict[str, Any] | UnsetType | None = UNSET
    deadline: Span | UnsetType = UNSET
    kill_after: Span | UnsetType | None = UNSET
    preemptible: bool | UnsetType = UNSET
    members: int | dict[str, Any] | UnsetType = UNSET


# ---------------------------------------------------------------------- answers


class StoreState(msgspec.Struct, frozen=True):
    """Whether the daemon can write."""

    ok: bool
    problem: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon about itself."""

    schema: str = STATUS_SCHEMA
    pid: int
    socket: str
    version: str
    uptime_s: float
    mode: Literal["user", "system"]
    policy: str
    containment: str
    store: StoreState
    jobs: dict[str, int]
    gpus: dict[str, float]
    fake: bool
    state_dir: str = ""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """A listing."""

    schema: str = JOBS_SCHEMA
    jobs: list[Row]


class AcceptedBatch(msgspec.Struct, frozen=True):
    """Jobs that were taken in together, in the order of the request."""

    jobs: list[Accepted]


class Waited(msgspec.Struct, frozen=True):
    """How a job stands when the wait is over."""

    id: int
    state: State
    ended: bool
    exit_code: int | None = None


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """All queues."""

    schema: str = QUEUES_SCHEMA
    queues: list[QueueRow]


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, as a list because the engine knows many."""

    schema: str = NODES_SCHEMA
    nodes: list[NodeRow]


class Share(msgspec.Struct, frozen=True):
    """How the caller stands."""

    user: str
    sentence: str
    queues: list[dict[str, Any]]


class Report(msgspec.Struct, frozen=True):
    """Where the GPU time went."""

    by: list[str]
    rows: list[dict[str, Any]]
    since_s: float | None = None


class EtaReport(msgspec.Struct, frozen=True):
    """How good the estimates were."""

    count: int
    within_range: float | None
    error_s: dict[str, float | None]
    bias_s: float | None
    rows: list[dict[str, Any]]
    open: int = 0  # estimates of jobs that have not started


class Gantt(msgspec.Struct, frozen=True):
    """Past, present and forecast."""

    now: str
    devices: list[Any]
    bars: list[dict[str, Any]]


class Setting(msgspec.Struct, frozen=True):
    """One setting and where it came from."""

    key: str
    value: Any
    origin: str


class Config(msgspec.Struct, frozen=True):
    """All settings."""

    values: list[Setting]


class Stopping(msgspec.Struct, frozen=True):
    """The daemon goes; what runs goes on."""

    stopping: bool = True


class Failure(msgspec.Struct, frozen=True):
    """Every answer that is not the one asked for."""

    error: Refusal
