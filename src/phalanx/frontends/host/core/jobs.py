"""What the core knows of jobs: one small record each, and the ways to find it.

Commands and environments stay on disk: ten thousand waiting jobs must not fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from phalanx.frontends.host.core.attempt_phases import AttemptEvent, AttemptPhase, Duty, Purpose, advance_attempt
from phalanx.frontends.host.core.refs import ArrayElements, IdRange, read_ref, tell_ids
from phalanx.frontends.host.core.resize_phases import ResizeEvent, ResizePhase, advance_resize
from phalanx.frontends.host.messages import ENDED
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import JobRecord
from phalanx.model.gang import Gang
from phalanx.model.plan import DateVerdict
from phalanx.model.resources import DEVICE_KIND, MILLI

#: Why an attempt is being ended.
CANCEL: Final = Purpose.CANCEL
EVICT: Final = Purpose.EVICT
TIME: Final = Purpose.TIME
FAIL: Final = Purpose.FAIL
MOVE: Final = Purpose.MOVE

#: An ended job stays in memory for so long.
LINGER_US: Final = 600_000_000


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
    phase: ResizePhase = ResizePhase.CLEARING
    done: set[int] = field(default_factory=set)  # keys that answered
    why: Mapping[str, Any] = field(default_factory=dict)  # told when it is done: cause, for whom, a sentence

    def advance(self, event: ResizeEvent) -> bool:
        """Something happens to it; False if that means nothing any more."""
        before = self.phase
        self.phase = advance_resize(before, event, f"change {self.id}")
        return self.phase is not before


@dataclass(slots=True)
class Live:
    """An attempt: planned, at the gate, running or on its way out."""

    job: int
    attempt: int
    members: dict[int, Member]
    phase: AttemptPhase = AttemptPhase.WAITING
    generation: int = 1
    purpose: str | None = None  # why it is being ended
    since_us: int = 0
    started_us: int | None = None
    resizing: ResizeUnderWay | None = None
    failure: dict[str, Any] | None = None  # the first member that failed
    adopted: bool = False  # it ran before this daemon did
    contained: str = ""
    newest: int = 0  # the highest key that a member of this attempt ever had
    first_step_us: int | None = None
    saved_us: int | None = None  # when it last said that it had saved its work
    by: str = ""  # who wanted the end: a name, or the job for whom it leaves

    @property
    def run(self) -> str:
        """Its name, and that of its directory."""
        return f"{self.job}.{self.attempt}"

    def advance(self, event: AttemptEvent) -> tuple[Duty, ...]:
        """Something happens to it; what is to be done about that."""
        self.phase, duties = advance_attempt(self.phase, event, f"run {self.run}")
        return duties

    def present(self) -> list[Member]:
        """Members that have not exited, in order of rank."""
        return sorted((m for m in self.members.values() if not m.exited), key=lambda m: m.rank)


class ArrayPlace(NamedTuple):
    """Which element of which array a job is."""

    word: str
    element: int
    at_most: int = 0
    key: str = ""  # tells it from other arrays of that word


@dataclass(slots=True)
class Spent:
    """What attempts of a job that are over came to."""

    ran_us: int = 0  # from gate to end, of all of them
    attempts: int = 0  # that went through the gate
    gpus: float = 0.0  # that the last of them had at its end
    ledger: dict[str, float] = field(default_factory=dict)  # device time by part, in the words of the simulator


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
    array: ArrayPlace | None = None
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
    spent: Spent = field(default_factory=Spent)
    infeasible: str = ""
    warning: tuple[str, float] | None = None  # a signal, and how long before it is killed for its age
    born: str = ""  # the name under which it is the only one
    regex: str = ""  # how its log tells of progress, if it does

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.state in ENDED

    @property
    def ledger(self) -> dict[str, float]:
        """Where the device time of its attempts went."""
        return self.spent.ledger

    @ledger.setter
    def ledger(self, parts: dict[str, float]) -> None:
        self.spent.ledger = parts

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
    spent = job.spent
    told: dict[str, Any] = {"restarts_left": job.restarts_left, "spent": [spent.ran_us, spent.attempts, spent.gpus]}
    if verdict is not None:
        told["date"] = {"promised": verdict.promised, "earliest_us": verdict.earliest_us, "beside": verdict.beside}
    return msgspec.json.encode(told)


def recall_spent(record: JobRecord) -> Spent:
    """What its attempts came to, by what is remembered of it."""
    told = msgspec.json.decode(record.memory).get("spent") if record.memory else None
    return Spent() if told is None else Spent(*told)


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
        """The one job that a word means; None: none in memory."""
        found = self.find_all(ref, caller)
        if len(found) > 1:
            refuse_several(ref, found)
        return found[0] if found else None

    def find_all(self, ref: str, caller: Caller) -> list[Job]:
        """Jobs by id, range of ids, name or unique prefix of a name, elements of an array; the caller's own come first.

        A name means the newest job that has it, and of an array all elements.
        """
        if ref == "-":
            return [job for job in self if job.uid == caller.uid][-1:]
        if ref.isdecimal() and len(ref) < 19:
            return [job for job in (self.by_id.get(int(ref)),) if job is not None]
        named = self.named(ref)
        read = None if named else read_ref(ref)
        if isinstance(read, IdRange):
            known = (self.by_id.get(number) for ids in read.ids for number in ids)
            return _own(filter(None, known), caller)
        if isinstance(read, ArrayElements):
            return self._find_elements(read, caller)
        return self._newest(named, caller) or self._newest(self._find_prefixed(ref, caller), caller)

    def _find_elements(self, wanted: ArrayElements, caller: Caller) -> list[Job]:
        """Those of the newest array of that word; an index that it has not is refused."""
        found = self._newest([job for job in self.named(wanted.word) if job.array is not None], caller)
        return choose_elements(wanted, found) if found else found

    def _find_prefixed(self, ref: str, caller: Caller) -> list[Job]:
        """Jobs whose name begins so; refuses where several names do."""
        found = [job for name in self._by_name if name.startswith(ref) for job in self.named(name)]
        mine = _own(found, caller)
        open_ = [job for job in mine if not job.ended] or mine
        names = {job.name: job for job in open_}
        if len(names) > 1:
            shown = ", ".join(f"{job.id} ({name}, {job.state})" for name, job in list(names.items())[:5])
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise Refused(
                "ambiguous",
                f"'{ref}' begins {len(names)} names: {shown}{more}",
                f"write the whole name, or an id, for example {open_[0].id}",
                matches=[job.id for job in open_[:100]],
            )
        return open_

    @staticmethod
    def _newest(found: Iterable[Job], caller: Caller) -> list[Job]:
        """The newest of these, with the other elements if it is one of an array."""
        mine = _own(found, caller)
        # Whether it has ended or not: a word that went on to the next older one would, typed twice, cancel two jobs.
        newest = max(mine, key=lambda job: job.id, default=None)
        if newest is None or newest.array is None:
            return [] if newest is None else [newest]
        # Of an element that was submitted again the last one counts: the others have ended, and it has their place.
        mates = {each.array.element: each for each in mine if each.array and each.array.key == newest.array.key}
        return sorted(mates.values(), key=lambda job: job.id)


def is_same_element(one: Job, other: Job) -> bool:
    """Whether both are the same element of one array, of which the later took the place of the earlier."""
    return (
        one.array is not None
        and other.array is not None
        and (one.array.key, one.array.element) == (other.array.key, other.array.element)
    )


def refuse_several(ref: str, found: Sequence[Job]) -> NoReturn:
    """One job is wanted, and the word means more."""
    ids, first = [job.id for job in found], found[0]
    one = f"{first.array.word}[{first.array.element}]" if first.array is not None else str(first.id)
    message = f"{ref!r} means {len(found)} jobs: {tell_ids(ids)}"
    raise Refused("ambiguous", message, f"name one, for example {one}", several=ids)


def choose_elements(wanted: ArrayElements, found: Iterable[Job]) -> list[Job]:
    """Those of an array that were named; an index that it has not is refused."""
    there = {job.array.element: job for job in found if job.array is not None}
    lacking = sorted(wanted.indices - there.keys())
    if lacking:
        raise Refused(
            "not_found",
            f"array {wanted.word!r} has no element {tell_ids(lacking)}: it has {tell_ids(sorted(there))}",
            f"look at them: phalanx ps --finished --name {wanted.word} -o wide",
        )
    return [job for index, job in sorted(there.items()) if index in wanted.indices or not wanted.indices]


def _own(found: Iterable[Job], caller: Caller) -> list[Job]:
    """The caller's own, or all if none is."""
    jobs = list(found)
    return [job for job in jobs if job.uid == caller.uid] or jobs
