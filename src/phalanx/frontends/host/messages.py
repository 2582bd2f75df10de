"""What crosses the daemon's API: one set of shapes for the server, its document and its tests.

Instants are ISO-8601 text with an offset, because people read them; durations are seconds.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

JOBS_SCHEMA: Final = "phalanx.jobs/1"
STATUS_SCHEMA: Final = "phalanx.status/1"

State = Literal["pending", "starting", "running", "stopping", "completed", "failed", "cancelled", "infeasible"]
ENDED: Final = frozenset({"completed", "failed", "cancelled", "infeasible"})


class Forewarning(msgspec.Struct, frozen=True):
    """A signal some time before a job is killed for its age."""

    signal: str = "TERM"
    before_s: float = 60.0


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the members of a job are started."""

    command: list[str]
    cwd: str = ""
    env: dict[str, str] = {}
    kill_after_warning: Forewarning | None = None
    grace_s: float = 10.0  # between SIGTERM and SIGKILL
    restarts: int = 0  # further attempts after a member failed
    on_preempt: Literal["kill", "requeue"] = "kill"  # requeue: SIGTERM means "save yourself", and the job waits again
    progress_regex: str = ""
    umask: int = 0o022
    commands: dict[str, list[str]] = {}  # by role, where roles run different programs
    log_cap_bytes: int = 0  # 0: the daemon's own


class ArrayPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One element of an array of jobs."""

    index: int
    of: str  # the word that all elements share
    at_most: int = 0  # so many of them run at once; 0: no bound
    key: str = ""  # what tells it from other arrays of that word; else all of one request are one array


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job as somebody hands it in. `gang` is the schema of gang files; `run` is a `Run`."""

    gang: msgspec.Raw
    run: msgspec.Raw
    name: str = ""
    begin: str | None = None  # "+10m", or an instant
    array: ArrayPart | None = None
    singleton: bool = False  # not beside another job of the same name and user
    allow_infeasible: bool = False
    hold: bool = False


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many jobs in one durable write. `run`: what they have in common; what a job says in its own goes before it."""

    jobs: list[Submission]
    run: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Reason(msgspec.Struct, frozen=True):
    """A blocker: closed code, sentence, numbers."""

    code: str
    message: str
    needed: int = 0
    available: int = 0


class Eta(msgspec.Struct, frozen=True):
    """An expected start: never a bare time."""

    at: str
    low: str
    high: str
    hangs_on: str = ""
    predicted: bool = False  # from earlier runs, since somebody stated no time


class Progress(msgspec.Struct, frozen=True):
    """How far a job says it is."""

    step: float
    total: float | None = None
    rate: float | None = None  # steps a second


class Row(msgspec.Struct, frozen=True):
    """One job in a listing."""

    id: int
    name: str
    user: str
    queue: str
    state: State
    members: int
    members_min: int
    members_max: int
    placement: dict[str, int]
    reason: Reason | None
    eta: Eta | None
    gpus: float = 0.0  # it holds now, or asks for at least
    devices: list[str] = []
    priority: int = 0
    submitted: str = ""
    started: str | None = None
    ended: str | None = None
    waited_s: float = 0.0
    ran_s: float = 0.0
    exit_code: int | None = None
    attempt: int = 0
    progress: Progress | None = None
    array: str | None = None  # "sweep[3]"
    array_key: str | None = None  # the same for all elements of one array, and for no other's
    info: str = ""  # the expected start while it waits, the places once it runs, how it ended afterwards
    date: str | msgspec.UnsetType = msgspec.UNSET  # whether its date is promised, under a policy that promises dates
    warnings: list[str] | msgspec.UnsetType = msgspec.UNSET  # of what was just done to it


class Happening(msgspec.Struct, frozen=True):
    """Something that happened to a job."""

    seq: int
    at: str
    job: int
    event: str
    data: dict[str, Any] = {}


class MemberRow(msgspec.Struct, frozen=True):
    """One member of a job's newest attempt."""

    rank: int
    role: str
    devices: list[str]
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None


class JobWishes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked for beside the shape; what is not there was not asked for."""

    time_s: float | None = None
    time_guessed_s: float | None = None  # nobody stated one: what earlier runs of that name took
    kill_after_s: float | None = None
    warn: str = ""  # "USR1 60 s before"
    deadline: str = ""
    begin: str = ""
    after: list[int] = []
    after_any: bool = False  # after any end of theirs, not only a good one
    restarts: int = 0
    restarts_left: int = 0
    grace_s: float = 10.0
    preemptible: bool = False
    requeue: bool = False
    singleton: bool = False
    progress_regex: str = ""
    topology: dict[str, Any] = {}


class Detail(msgspec.Struct, frozen=True):
    """Everything about one job that its owner may see; others see it without command, cwd and env."""

    job: Row
    gang: dict[str, Any]
    command: list[str] | None
    cwd: str | None
    env: dict[str, str] | None
    members: list[MemberRow]
    attempts: int
    history: list[Happening]
    failure: dict[str, Any] | None = None  # {rank, exit_code, signal, lines: [...]} of the first failing rank
    ledger_gpu_s: dict[str, float] = {}
    run_dir: str | None = None
    asked: JobWishes | None = None


class Ahead(msgspec.Struct, frozen=True):
    """Who has its turn before a job."""

    gangs: int
    gpus: float
    jobs: list[dict[str, Any]]  # id, name, user, gpus of the first few


class Sooner(msgspec.Struct, frozen=True):
    """Something that would start a job sooner, with the command for it."""

    what: str
    command: str
    at: str | None = None


class Passing(msgspec.Struct, frozen=True):
    """Jobs that start before one that came first, and by which rule of filling."""

    jobs: list[int]
    rule: Literal["shortest", "arrival", "tier"]
    message: str


class SurplusTold(msgspec.Struct, frozen=True):
    """How a running elastic job stands where surplus is divided."""

    members: int
    sentences: list[str]
    date: str | None = None
    needs: int = 0  # members that its date needs; 0: it has none, or it is out of reach at every size
    coming: int = 0  # of those that it lacks
    next_members: int | None = None  # None: no larger size would be worth it
    next_saves_s: float | None = None
    before: list[int] = []  # jobs whose next step is worth more


class Why(msgspec.Struct, frozen=True):
    """Why a job is where it is."""

    id: int
    name: str
    state: State
    reason: Reason | None
    blockers: list[Reason]
    ahead: Ahead
    eta: Eta | None
    sooner_if: list[Sooner]
    needs: str = ""  # "4 GPUs as 4 x 1"
    queue: str = ""
    since: str = ""
    decisions: list[Happening] = []
    passed_by: list[Passing] = []
    fills_after: Passing | None = None  # whose queue lets others fill first
    surplus: SurplusTold | None = None


class Refusal(msgspec.Struct, frozen=True):
    """What an error says: what, why and what to do next."""

    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = {}


class RefusedRef(msgspec.Struct, frozen=True):
    """A job to which something could not be done, as it was named."""

    ref: str
    error: Refusal


class ActedOn(msgspec.Struct, frozen=True):
    """What became of several jobs: those to which it was done, and the others."""

    jobs: list[Row]
    refused: list[RefusedRef] = []


class Accepted(msgspec.Struct, frozen=True):
    """A submit that is on disk."""

    id: int
    name: str
    state: State
    eta: Eta | None = None
    reason: Reason | None = None
    warnings: list[str] = []


class DeviceUse(msgspec.Struct, frozen=True):
    """One member of a job on a GPU, which others may share."""

    job: int
    rank: int | None
    user: str
    share: float  # of the GPU
    pid: int | None = None


class DeviceRow(msgspec.Struct, frozen=True):
    """One GPU of the machine."""

    index: int
    uuid: str
    model: str
    memory_bytes: int
    island: str
    state: Literal["free", "busy", "stranger", "quarantined", "gone"]
    job: int | None = None  # of several the first; all of them are in `uses`
    rank: int | None = None
    user: str | None = None  # whose job, or whose stranger's process
    pids: list[int] = []
    utilization: float | None = None
    memory_used_bytes: int | None = None
    uses: list[DeviceUse] = []


class NodeRow(msgspec.Struct, frozen=True):
    """The machine as the engine sees it."""

    name: str
    resources: dict[str, Any]
    free: dict[str, Any]
    labels: dict[str, str]
    open: bool
    containment: str
    devices: list[DeviceRow]


class QueueRow(msgspec.Struct, frozen=True):
    """A queue with its rights and what it uses."""

    name: str
    parent: str
    weight: float
    guarantee: dict[str, Any]
    limit: dict[str, Any]
    used: dict[str, Any]
    pending: int
    running: int


#: Error code → HTTP status. The command line turns them into exit codes.
HTTP_STATUS: Final[dict[str, int]] = {
    "usage": 400,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "ambiguous": 409,
    "conflict": 409,
    "too_large": 413,
    "misdirected": 421,
    "infeasible": 422,
    "too_many": 429,
    "internal": 500,
    "unavailable": 503,
}
