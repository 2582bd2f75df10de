"""What the core knows of jobs: one small record each, and the ways to find it.

Commands and environments stay on disk: ten thousand waiting jobs must not fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from phalanx.frontends.host.messages import ENDED
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import JobRecord
from phalanx.model.gang import Gang
from phalanx.model.plan import DateVerdict
from phalanx.model.resources import DEVICE_KIND, MILLI

#: Why an attempt is being ended: by a person, by the plan, by its age, because a member failed, or to begin elsewhere.
CANCEL: Final = "cancel"
EVICT: Final = "evict"
TIME: Final = "time"
FAIL: Final = "fail"
MOVE: Final = "move"

#: Gates that only the core knows; the engine sees them as a hold.
GATE_HOLD: Final = "hold"
GATE_BEGIN: Final = "begin"
GATE_ARRAY: Final = "array"
GATE_SINGLETON: Final = "singleton"


@dataclass(slots=True)
class Member:
    """One process slot of an attempt. The key is its number for life; the rank may move when others leave."""

    key: int
    role: str
    devices: tuple[tuple[int, int], ...]  # device and the thousandths of it
    rank: int = 0
    pid: int | None = None
    start: int | None = None
    exited: bool = False
    code: int | None = None
    signal: int | None = None
    leaving: bool = False
    joined: int = 1  # the generation it came with
    speaks: frozenset[str] | None = None  # what it said it understands; None: it said nothing


@dataclass(slots=True)
class ResizeUnderWay:
    """A change of size under way."""

    id: str
    generation: int
    leaving: frozenset[int]  # keys
    joining: frozenset[int]
    since_us: int
    told: bool = False
    let_in: bool = False
    done: set[int] = field(default_factory=set)  # keys that answered
    why: Mapping[str, Any] = field(default_factory=dict)  # told when it is done: cause, for whom, a sentence


@dataclass(slots=True)
class Live:
    """An attempt: planned, at the gate, running or on its way out."""

    job: int
    attempt: int
    members: dict[int, Member]
    phase: str = "waiting"  # waiting (for seats), preparing, running, stopping, gone
    generation: int = 1
    purpose: str | None = None  # why it is being ended
    since_us: int = 0
    started_us: int | None = None
    resizing: ResizeUnderWay | None = None
    failure: dict[str, Any] | None = None  # the first member that failed
    told_to_stop: bool = False
    adopted: bool = False  # it ran before this daemon did
    yielded: bool = False  # it answered that it saves and leaves
    over_early: bool = False  # nothing of it is left already, before we knew that it had begun
    contained: str = ""
    newest: int = 0  # the highest key that a member of this attempt ever had
    first_step_us: int | None = None
    saved_us: int | None = None  # when it last said that it had saved its work
    by: str = ""  # who wanted the end: a name, or the job for whom it leaves

    @property
    def run(self) -> str:
        """Its name, and that of its directory."""
        return f"{self.job}.{self.attempt}"

    def is_unwanted(self) -> bool:
        """Whether somebody has changed their mind since it was planned."""
        return self.purpose is not None

    def present(self) -> list[Member]:
        """Members that have not exited, in order of rank."""
        return sorted((m for m in self.members.values() if not m.exited), key=lambda m: m.rank)


@dataclass(slots=True)
class Job:
    """A job, from submit to end."""

    id: int
    uid: int
    gid: int
    user: str
    name: str
    gang: Gang
    state: str
    submit_us: int
    submit_wall: float
    number: int = -1  # in the engine's state
    attempt: int = 0
    restarts_left: int = 0
    grace_s: float = 10.0
    on_preempt: str = "kill"
    gates: set[str] = field(default_factory=set)
    begin_us: int | None = None
    array: tuple[str, int, int] | None = None  # word, index, at most
    singleton: bool = False
    allow_infeasible: bool = False
    predicted: bool = False  # its walltime is our guess from earlier runs
    pin: int | None = None
    live: Live | None = None  # the attempt that has processes
    next: Live | None = None  # the attempt that waits for seats, or for the last one to go
    start_us: int | None = None
    start_wall: float | None = None
    end_us: int | None = None
    end_wall: float | None = None
    exit_code: int | None = None
    failure: dict[str, Any] | None = None
    reason: tuple[str, str] | None = None  # why it ended as it did, or what was last said of it
    progress: dict[str, Any] | None = None
    ledger: dict[str, float] = field(default_factory=dict)
    infeasible: str = ""
    warning: tuple[str, float] | None = None  # a signal, and how long before it is killed for its age
    born: str = ""  # the name under which it is the only one
    regex: str = ""  # how its log tells of progress, if it does

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.state in ENDED

    @property
    def queue(self) -> str:
        """Where it waits."""
        return self.gang.queue

    def gpus(self, members: int | None = None) -> float:
        """Devices that it asks for at its least, or that so many members of its first role have."""
        roles = self.gang.roles
        if members is not None and len(roles) == 1:
            return members * roles[0].shape.amount(DEVICE_KIND) / MILLI
        return sum(role.sizes.least * role.shape.amount(DEVICE_KIND) for role in roles) / MILLI


def remember(job: Job, verdict: DateVerdict | None) -> bytes:
    """What the next daemon must know of a job beside what it asked for."""
    told: dict[str, Any] = {"restarts_left": job.restarts_left}
    if verdict is not None:
        told["date"] = {"promised": verdict.promised, "earliest_us": verdict.earliest_us, "beside": verdict.beside}
    return msgspec.json.encode(told)


def recall_date(record: JobRecord, number: int) -> DateVerdict | None:
    """What was said of the date of a job, by what is remembered of it."""
    told = msgspec.json.decode(record.memory).get("date") if record.memory else None
    return None if told is None else DateVerdict(number, told["promised"], told["earliest_us"], told["beside"])


class Register:
    """All jobs in memory: those that have not ended, and those that ended a short while ago."""

    def __init__(self) -> None:
        """Empty."""
        self.by_id: dict[int, Job] = {}
        self.by_number: dict[int, Job] = {}
        self._by_name: dict[str, dict[int, None]] = {}

    def __iter__(self) -> Iterator[Job]:
        """In order of arrival."""
        return iter(self.by_id.values())

    def __len__(self) -> int:
        """How many are in memory."""
        return len(self.by_id)

    def add(self, job: Job) -> None:
        """A job that is on disk."""
        self.by_id[job.id] = job
        self._by_name.setdefault(job.name, {})[job.id] = None

    def number(self, job: Job, number: int) -> None:
        """The engine knows it by this number."""
        self.by_number.pop(job.number, None)
        job.number = number
        self.by_number[number] = job

    def rename(self, job: Job, name: str) -> None:
        """People call it differently from now on."""
        self._drop_name(job)
        job.name = name
        self._by_name.setdefault(name, {})[job.id] = None

    def forget(self, job: Job) -> None:
        """It ended long enough ago to be looked up on disk."""
        self.by_id.pop(job.id, None)
        self.by_number.pop(job.number, None)
        self._drop_name(job)

    def _drop_name(self, job: Job) -> None:
        ids = self._by_name.get(job.name)
        if ids is not None:
            ids.pop(job.id, None)
            if not ids:
                del self._by_name[job.name]

    def named(self, name: str) -> list[Job]:
        """Jobs of exactly this name."""
        return [self.by_id[each] for each in self._by_name.get(name, ())]

    def find(self, ref: str, caller: Caller) -> Job | None:
        """A job by id, name or unique prefix of a name; the caller's own come first. None: not in memory."""
        if ref == "-":
            mine = [job for job in self if job.uid == caller.uid]
            return mine[-1] if mine else None
        if ref.isdecimal() and len(ref) < 19:
            return self.by_id.get(int(ref))
        found = self._choose(self.named(ref), ref, caller)
        if found is None:
            prefixed = [job for name in self._by_name if name.startswith(ref) for job in self.named(name)]
            found = self._choose(prefixed, ref, caller)
        return found

    def _choose(self, found: Iterable[Job], ref: str, caller: Caller) -> Job | None:
        jobs = list(found)
        mine = [job for job in jobs if job.uid == caller.uid] or jobs
        # A name used again and again means the one that has not ended.
        open_ = [job for job in mine if not job.ended] or mine
        if len(open_) > 1:
            shown = ", ".join(f"{job.id} ({job.name}, {job.state})" for job in open_[:5])
            more = f" and {len(open_) - 5} more" if len(open_) > 5 else ""
            raise Refused(
                "ambiguous",
                f"'{ref}' matches {len(open_)} jobs: {shown}{more}",
                f"name one by its id, for example {open_[0].id}",
                matches=[job.id for job in open_[:100]],
            )
        return open_[0] if open_ else None
