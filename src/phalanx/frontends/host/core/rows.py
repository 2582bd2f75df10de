"""Jobs as rows of a listing: where each stands, why, and one column that says what matters there.

Reasons come from one explaining pass over everybody, kept until something happens. What a member wrote to its log is
its owner's: of others' jobs one reads that a rank failed, not its last words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from phalanx.control.amounts import least_devices
from phalanx.control.explain import Told, explain_all
from phalanx.control.gates import (
    GATE_ARRAY,
    GATE_ASIDE,
    GATE_BEGIN,
    GATE_HOLD,
    GATE_RUNNING,
    GATE_SINGLETON,
    OPENED_BY_OTHERS,
)
from phalanx.control.sentences import Scene
from phalanx.frontends.host.core.ceilings import is_up
from phalanx.frontends.host.core.forecast import PAUSE_FACTOR, Forecast, Forecaster
from phalanx.frontends.host.core.jobs import (
    EVICT,
    MOVE,
    Job,
    Live,
    Member,
    Spent,
    recall_spent,
)
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.messages import Eta, Progress, Reason, Row
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.frontends.host.store import JobRecord
from phalanx.model.gang import Gang
from phalanx.model.plan import Reservation
from phalanx.model.reason import Code
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.words import devices_text, due, listing, moment, span, start_text

#: An explanation may be told again for so many times what it cost, and not for longer than this.
EXPLAINED_MOST_US: Final = 2_000_000
#: In the order in which they are told; `GATE_RUNNING` has numbers, and is told by itself.
_GATES: Final = (GATE_HOLD, GATE_ASIDE, GATE_BEGIN, GATE_ARRAY, GATE_SINGLETON)


@dataclass(slots=True)
class Explained:
    """Why everybody waits, as one pass says it."""

    reasons: dict[int, Told] = field(default_factory=dict)  # by gang number
    reservations: tuple[Reservation, ...] = ()
    version: int = -1
    at_us: int = 0
    cost_us: int = 0


def may_read(caller: Caller | None, uid: int) -> bool:
    """Whether somebody may read what a job's members wrote, and how they were started; None: the daemon itself."""
    return caller is None or caller.may_act_on(uid)


@dataclass(frozen=True, slots=True)
class JobNames:
    """What jobs are called in sentences."""

    known: Knowledge

    @property
    def word(self) -> str:
        """What one of them is."""
        return "job"

    def call(self, number: int) -> str | None:
        """By number and name."""
        job = self.known.register.by_number.get(number)
        return None if job is None else f"{job.id} ({job.name})"

    def describe(self, number: int, *more: str) -> str | None:
        """With its owner."""
        job = self.known.register.by_number.get(number)
        return None if job is None else f"{job.id} ({', '.join([job.name, job.user, *more])})"

    def due(self, at_us: int) -> str:
        """By the wall clock."""
        return due(self.known.wall_at(at_us), self.known.clock.wall_s())


class Rows:
    """Tells where jobs stand."""

    def __init__(self, known: Knowledge, forecaster: Forecaster, meter: Callable[[], float] = time.thread_time) -> None:
        """Nothing was explained yet."""
        self.known = known
        self.forecaster, self._meter = forecaster, meter
        self.names = JobNames(known)
        self._explained = Explained()
        self._mates: dict[tuple[int, str], Job] = {}  # whom singletons wait for

    # ------------------------------------------------------------------ reasons

    def explained(self, wanted: Sequence[int] = ()) -> Explained:
        """Everybody's reasons; `wanted`: gangs that must be among them if they wait."""
        known, planner = self._explained, self.known.planner
        now_us = self.known.now_us()
        if known.version == planner.version:
            return known
        young = now_us - known.at_us < min(EXPLAINED_MOST_US, PAUSE_FACTOR * known.cost_us)
        if young and all(number in known.reasons for number in wanted):
            return known
        began_s = self._meter()
        reasons, reservations = explain_all(planner.state, planner.policy)
        cost_us = round((self._meter() - began_s) * 1e6)
        self._explained = Explained(reasons, reservations, planner.version, now_us, cost_us)
        return self._explained

    def scene(self) -> Scene:
        """The machine with everybody's reasons, for sentences about one of them."""
        told, planner = self.explained(), self.known.planner
        return Scene(planner.state, planner.policy, told.reasons, told.reservations, self.names, DEVICE_KIND)

    def reason(self, job: Job, told: Mapping[int, Told], *, reads: bool = True) -> Reason | None:
        """Why a job is where it is, in a sentence; None: there is nothing to say."""
        if job.ended:
            return self._reason_ended(job, reads=reads)
        at_gate = job.live is not None and job.live.phase.at_gate and self.known.store.full  # it cannot be written down
        if at_gate or (job.next is not None and job.live is None and self.known.in_trouble):
            return Reason("MachineFault", self.say_trouble())
        if job.next is not None:
            return Reason("Starting", self._say_claim(job, job.next))
        return self._reason_waiting(job, told) if job.live is None else None

    def _reason_waiting(self, job: Job, told: Mapping[int, Told]) -> Reason | None:
        if GATE_ASIDE in job.gates:
            return Reason("MachineFault", self.say_trouble() if self.known.in_trouble else self.say_gate(job))
        if gate := self.say_gate(job):
            return Reason(Code.HELD.word, gate)
        if GATE_RUNNING in job.gates:
            return self._say_ceiling(job)
        return Reason(Code.INFEASIBLE.word, job.infeasible) if job.infeasible else self._reason_in_line(job, told)

    def _reason_in_line(self, job: Job, told: Mapping[int, Told]) -> Reason | None:
        found = told.get(job.number)
        if found is None or found[0] is Code.NONE:
            return None
        code, sentence, needed, available = found
        if self.known.in_trouble:  # whatever else it waits for, this comes first
            return Reason("MachineFault", f"{self.say_trouble()}; besides: {sentence}", needed, available)
        if job.reason is not None and job.reason[0] == "CannotStart":
            sentence = f"{sentence}; the last attempt could not be started: {job.reason[1]}"
        return Reason(code.word, sentence, needed, available)

    def _reason_ended(self, job: Job, *, reads: bool) -> Reason | None:
        if job.state == "infeasible":
            return Reason(Code.INFEASIBLE.word, job.infeasible or "can never run here")
        if job.reason is None:
            return None
        code, sentence = job.reason
        return Reason(code, sentence if reads else _without_log(job.failure, code, sentence))

    def _say_date(self, job: Job, now_wall: float) -> str | msgspec.UnsetType:
        """What was said of its date: promised, or which could be."""
        verdict = self.known.planner.state.date_of(job.number)
        if verdict is None or job.gang.deadline_us is None:
            return msgspec.UNSET
        asked = moment(self.known.wall_at(job.gang.submit_us + job.gang.deadline_us), now_wall)
        if verdict.promised:
            return f"date {asked} promised"
        others = f" beside {verdict.beside} others" if verdict.beside > 1 else " beside another" * verdict.beside
        if verdict.earliest_us is None:
            return f"date {asked} not promised: nobody has said how long it runs (runs as best effort)"
        refused = self.known.planner.state.is_judged(job.number)
        rest = "refused" if refused else "runs as best effort"
        # Up to the minute that is shown: the one before it would be refused.
        earliest = moment(-(-self.known.wall_at(verdict.earliest_us) // 60) * 60, now_wall)
        return f"date {asked} cannot be promised{others}: earliest {earliest} ({rest})"

    def say_trouble(self) -> str:
        """What keeps everybody from being started."""
        trouble = self.known.trouble
        if self.known.store.full:
            folder = self.known.runs.parent
            return (
                f"nothing can be started on this machine: the disk under {folder} is full (df -h {folder}); it goes on "
                "by itself as soon as there is room, and no job fails of it"
            )
        left_us = trouble.until_us - self.known.now_us()
        when = f"in {span(left_us / 1e6)}" if left_us > 0 else "with the next start"
        return (
            f"nothing can be started on this machine: {trouble.why}; it is tried again {when}, and no job fails of it"
        )

    def say_gate(self, job: Job) -> str:
        """What keeps a job from its turn that the engine knows nothing of; empty if nothing does."""
        return next((words for gate in _GATES if (words := self._say_gate(job, gate))), "")

    def gate_reasons(self, job: Job) -> list[Reason]:
        """The same of every gate that it is behind, that of a person first."""
        told = [(gate, self._say_gate(job, gate)) for gate in _GATES]
        held = [
            Reason("MachineFault" if gate == GATE_ASIDE else Code.HELD.word, words) for gate, words in told if words
        ]
        return [*held, *([self._say_ceiling(job)] if GATE_RUNNING in job.gates else [])]

    def _say_gate(self, job: Job, gate: str) -> str:
        words = ""
        if gate not in job.gates:
            return words
        if gate == GATE_HOLD:
            words = f"on hold; phalanx release {job.id}"
        elif gate == GATE_ASIDE:
            last = job.reason[1] if job.reason is not None else "nobody knows why"
            words = f"the last attempt could not be started: {last}; it is tried again soon, and does not fail of it"
        elif gate == GATE_BEGIN and job.begin_us is not None:
            words = f"begins at {moment(self.known.wall_at(job.begin_us), self.known.clock.wall_s())}"
        elif gate == GATE_ARRAY and job.array is not None:
            words = f"at most {job.array[2]} of {job.array[0]} run at once"
        elif gate == GATE_SINGLETON:
            mate = self._find_mate(job)
            words = f"waits for {mate.id if mate else 'another'} of the same name"
        return words

    def _say_ceiling(self, job: Job) -> Reason:
        """Of one that waits for another of its owner to end, since only so many run at once."""
        most = self.known.settings.running_max(job.user) or 0
        up = [other for other in self.known.register if other.user == job.user and is_up(other)]
        named = listing([f"{other.id} ({other.name})" for other in up])
        rest = f", now {named}" if up else ", and others come first" if most else ""
        many = "1 job" if most == 1 else f"{most} jobs"
        words = f"at most {many} of {job.user} may run at once{rest}"
        return Reason(Code.USER_LIMIT.word, words, 1, max(0, most - len(up)))

    def _find_mate(self, job: Job) -> Job | None:
        """The one of the same name and user whose end a singleton waits for; thousands may wait for one."""
        known = self._mates.get((job.uid, job.name))
        if known is not None and _leads(known) and known.name == job.name:
            return known
        mates = (mate for mate in self.known.register.named(job.name) if mate.uid == job.uid and mate.id != job.id)
        found = next((mate for mate in mates if _leads(mate)), None)
        if found is not None:
            self._mates[job.uid, job.name] = found
        return found

    def _say_claim(self, job: Job, live: Live) -> str:
        if job.live is not None:
            return "has other seats; begins there when it has left the present ones"
        ways = self.known.occupancy.blockers(live.members.values())
        who = [way.partition(".")[0] if way.partition(".")[0].isdecimal() else way for way in ways]
        if not who:
            return "has its seats; starts any moment"
        return f"has its seats; waits until {listing(who)} {'has' if len(who) == 1 else 'have'} left them"

    # ------------------------------------------------------------------ rows

    async def rows(self, jobs: Sequence[Job], *, with_eta: bool, caller: Caller | None = None) -> list[Row]:
        """Rows in the order of the jobs."""
        waiting = [job for job in jobs if job.state == "pending"]
        etas: Mapping[int, Forecast] = {}
        if with_eta and waiting:
            few = len(waiting) <= 20
            etas = await self.forecaster.at_hand([job.id for job in waiting] if few else None)
        told: Mapping[int, Told] = {}
        if waiting:
            told = self.explained([job.number for job in waiting if not job.gates]).reasons
        now_us, now_wall = self.known.now_us(), self.known.clock.wall_s()
        return [self._row(job, told, etas.get(job.id), (now_us, now_wall), caller) for job in jobs]

    def _row(
        self, job: Job, told: Mapping[int, Told], eta: Forecast | None, now: tuple[int, float], caller: Caller | None
    ) -> Row:
        gang = job.gang
        reads = may_read(caller, job.uid)
        reason = self.reason(job, told, reads=reads)
        if job.state != "pending":
            eta = None
        present = [] if job.live is None else seated(job.live)
        devices = sorted({device for member in present for device, _ in member.devices})
        held = sum(milli for member in present for _, milli in member.devices) / MILLI
        ran_us = _ran_us(job, now[0])
        until_us = job.end_us if job.end_us is not None else now[0]
        return Row(
            id=job.id,
            name=job.name,
            user=job.user,
            queue=gang.queue,
            state=job.state,  # type: ignore[arg-type]
            members=len(present),
            members_min=gang.members_min,
            members_max=gang.members_max,
            placement={self.known.node: len(present)} if present else {},
            reason=reason,
            eta=None if eta is None or self.known.store.full else self.eta(eta),
            gpus=held if present else job.spent.gpus if job.ended and job.spent.attempts else job.gpus(),
            devices=[self.known.devices[device].uuid for device in devices],
            priority=gang.priority,
            submitted=self.known.iso(job.submit_wall),
            started=self.known.iso(job.start_wall) or None,
            ended=self.known.iso(job.end_wall) or None,
            waited_s=max(0, until_us - job.submit_us - ran_us) / 1e6,
            ran_s=ran_us / 1e6,
            exit_code=job.exit_code,
            attempt=job.attempt,
            progress=_progress(job.progress),
            array=None if job.array is None else f"{job.array[0]}[{job.array[1]}]",
            array_key=None if job.array is None else job.array.key,
            info=self._info(job, reason, eta, devices, now[1]),
            date=self._say_date(job, now[1]),
        )

    def eta(self, forecast: Forecast) -> Eta:
        """An expected start in people's time."""
        at, low, high = (self.known.iso_at(us) for us in (forecast.at_us, forecast.low_us, forecast.high_us))
        return Eta(at, low, high, forecast.hangs_on, forecast.predicted)

    # ------------------------------------------------------------------ the INFO column

    def _info(self, job: Job, reason: Reason | None, eta: Forecast | None, devices: list[int], now: float) -> str:
        """The expected start while it waits, the places once it runs, how it ended afterwards."""
        if job.ended:
            return _info_ended(job.state, job.exit_code, reason, job.spent)
        if job.live is not None:
            return self._info_live(job, job.live, devices)
        # A time that a person named is no forecast, and says more than one.
        if eta is None or not job.gates <= OPENED_BY_OTHERS or self.known.in_trouble:
            return reason.message if reason is not None else "starts in this cycle"
        at, low, high = (self.known.wall_at(us) for us in (eta.at_us, eta.low_us, eta.high_us))
        hangs_on = f" {eta.hangs_on}" if eta.hangs_on else ""
        return f"starts {start_text(at, low, high, now)}{hangs_on}{', from earlier runs' if eta.predicted else ''}"

    def _info_live(self, job: Job, live: Live, devices: list[int]) -> str:
        where = devices_text(devices) or f"on {self.known.node}"
        if live.phase.at_gate:
            return self.say_trouble() if self.known.store.full else f"starting on {where}"
        if live.purpose in (EVICT, MOVE):
            return f"{where}, making way ({live.by})"
        if live.purpose is not None:
            return f"{where}, stopping"
        if live.resizing is not None:
            after = sum(not member.leaving for member in live.present())
            return f"{where}, {'growing' if live.resizing.joining else 'shrinking'} to {after}"
        return where

    # ------------------------------------------------------------------ rows of old

    def row_of_record(self, record: JobRecord, caller: Caller | None = None) -> Row:
        """The row of a job that is only on disk."""
        gang = self._read_gang(record.gang)
        reason = self._record_reason(record, reads=may_read(caller, record.uid))
        options: Mapping[str, Any] = msgspec.json.decode(record.options) if record.options else {}
        part = options.get("array")
        ended_us = record.end_us if record.end_us is not None else record.submit_us
        spent = recall_spent(record)
        if not spent.attempts and record.start_us is not None:  # of a daemon that did not add attempts up
            spent = Spent(max(0, ended_us - record.start_us), 1, 0.0 if gang is None else least_devices(gang))
        return Row(
            id=record.id,
            name=record.name,
            user=record.user,
            queue=record.queue,
            state=record.state,  # type: ignore[arg-type]
            members=0,
            members_min=0 if gang is None else gang.members_min,
            members_max=0 if gang is None else gang.members_max,
            placement={},
            reason=reason,
            eta=None,
            gpus=spent.gpus if spent.attempts else 0.0 if gang is None else least_devices(gang),
            priority=0 if gang is None else gang.priority,
            submitted=self.known.iso(record.submit_wall),
            started=self.known.iso(record.start_wall) or None,
            ended=self.known.iso(record.end_wall) or None,
            waited_s=max(0, ended_us - record.submit_us - spent.ran_us) / 1e6,
            ran_s=spent.ran_us / 1e6,
            exit_code=record.exit_code,
            attempt=record.attempt,
            progress=_progress(msgspec.json.decode(record.progress) if record.progress else None),
            array=None if part is None else f"{part['of']}[{part['index']}]",
            array_key=None if part is None else f"{record.uid}/{part.get('key') or part['of']}",
            info=_info_ended(record.state, record.exit_code, reason, spent),
        )

    def _read_gang(self, text: bytes) -> Gang | None:
        try:
            return self.known.intake.read_gang(text)
        except Refused:  # its queue is gone from the settings, for example
            return None

    @staticmethod
    def _record_reason(record: JobRecord, *, reads: bool) -> Reason | None:
        if not record.reason:
            return None
        code, sentence = msgspec.json.decode(record.reason)[:2]
        failure = msgspec.json.decode(record.failure) if record.failure else None
        return Reason(str(code), str(sentence) if reads else _without_log(failure, str(code), str(sentence)))


def _ran_us(job: Job, now_us: int) -> int:
    """How long it has run, in all its attempts; the time between them is none of it."""
    started_us = None if job.live is None else job.live.started_us
    return job.spent.ran_us + (0 if started_us is None else max(0, now_us - started_us))


def _info_ended(state: str, exit_code: int | None, reason: Reason | None, spent: Spent) -> str:
    after = f"after {span(spent.ran_us / 1e6)}{f' in {spent.attempts} attempts' if spent.attempts > 1 else ''}"
    if state == "completed":
        return f"exit 0 {after}"
    if state == "failed":
        code = "failed" if exit_code is None else f"exit {exit_code}"
        return f"{code}: {reason.message}" if reason is not None else f"{code} {after}"
    return reason.message if reason is not None else state


def _leads(job: Job) -> bool:
    return not job.ended and GATE_SINGLETON not in job.gates


def _without_log(failure: Mapping[str, Any] | None, code: str, sentence: str) -> str:
    """How a job ended, without anything that its members wrote."""
    if code not in ("Failed", "CannotStart"):
        return sentence
    why = str((failure or {}).get("why", ""))
    return why if why and code == "Failed" else "failed"


def seated(live: Live) -> list[Member]:
    """Members that are there, without those who are still on their way in."""
    coming = frozenset() if live.resizing is None else live.resizing.joining
    return [member for member in live.present() if member.key not in coming]


def _progress(told: Mapping[str, Any] | None) -> Progress | None:
    if not told or told.get("step") is None:
        return None
    return Progress(told["step"], told.get("total"), told.get("rate"))
