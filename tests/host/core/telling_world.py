"""A daemon of memory for tests of what is told: real planner and register, a made-up clock, store and launcher."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from phalanx.control.forecasting.predictions import Predictions
from phalanx.frontends.host.core.attempt_phases import AttemptPhase
from phalanx.frontends.host.core.forecast import Forecaster
from phalanx.frontends.host.core.intake import Intake
from phalanx.frontends.host.core.jobs import Job, Live, Member, remember
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.means import Means
from phalanx.frontends.host.core.planner import Begin, Leave, Planner
from phalanx.frontends.host.core.seatmap import split_seats
from phalanx.frontends.host.core.telling import Telling
from phalanx.frontends.host.ports import Caller, Device
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.host.store import EstimateRecord, EventRecord, JobRecord
from phalanx.model.fleet import Fleet
from phalanx.policy import POLICIES
from phalanx.testing.builders import make_gang, make_nodes, make_role

#: 10 November 2026, 09:00 UTC.
WALL = 1_794_301_200.0
UIDS = {"ada": 1001, "bob": 1002, "eve": 1003}


@pytest.fixture(autouse=True)
def at_utc():
    """Times of day are told in the zone of the machine; here that is always the same one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


class FakeClock:
    def __init__(self) -> None:
        self.us = 1_000_000_000

    def now_us(self) -> int:
        return self.us

    def wall_s(self) -> float:
        return WALL + self.us / 1e6

    async def sleep(self, seconds: float) -> None:
        self.us += round(seconds * 1e6)


class FakeStore:
    """What the tellers read, from lists."""

    def __init__(self) -> None:
        self.records: dict[int, JobRecord] = {}
        self.runs_by_job: dict[int, bytes] = {}
        self.told: list[EventRecord] = []
        self.estimated: list[EstimateRecord] = []
        self.reads = 0
        self.full = False

    def job(self, job: int) -> JobRecord | None:
        return self.records.get(job)

    def load_run(self, job: int) -> bytes:
        return self.runs_by_job[job]

    def ended(self, since_us=0, user=None, limit=1000, *, name=None, **_):
        found = [
            record
            for record in self.records.values()
            if record.state in ("completed", "failed", "cancelled", "infeasible")
            and (record.end_us or record.submit_us) >= since_us
            and user in (None, record.user)
            and name in (None, record.name)
        ]
        return sorted(found, key=lambda record: -(record.end_us or 0))[:limit]

    def events(self, job=None, since=0, limit=1000):
        self.reads += 1
        return [each for each in self.told if each.seq > since and job in (None, each.job)][:limit]

    def estimates(self, since_us=0):
        return self.estimated


class FakeLauncher:
    containment = "weak"


class Watched:
    """Devices as they were read last: nobody on them."""

    def __init__(self, readings=None, strangers=None) -> None:
        self.readings, self.strangers = readings or {}, strangers or {}

    def stranger(self, device):
        return self.strangers.get(device)


def caller(user: str, *, admin: bool = False) -> Caller:
    return Caller(UIDS[user], user, admin=admin)


class World:
    """One machine and its jobs; nothing runs, but everybody is told so."""

    def __init__(self, policy="easy", gpus=8, queues=(), users=(), settings=None, meter=lambda: 0.0, **options) -> None:
        self.clock, self.store = FakeClock(), FakeStore()
        node = replace(make_nodes(f"1 gpu={gpus} cpu=64")[0], name="box")
        fleet = Fleet([node], [])
        chosen = replace(POLICIES[policy], **options)
        self.planner = Planner(fleet, chosen, queues, users)
        self.known = Knowledge(
            clock=self.clock,
            store=self.store,
            devices=[
                Device(index, f"GPU-{index}", "Fake", 80 << 30, f"island{index * 2 // gpus}") for index in range(gpus)
            ],
            planner=self.planner,
            intake=Intake(fleet, queues, users, chosen, ()),
            runs=Path("runs"),
            settings=settings or Settings(),
            node="box",
        )
        self.means = Means(self.known, FakeLauncher(), "boot")
        self.pen, self.errands, self.processes = self.means.pen, self.means.errands, self.means.processes
        self.predictions = Predictions()
        self.forecaster = Forecaster(self.known, self.predictions, meter=meter, patience_s=30.0)
        self.teller = Telling(self.known, self.processes, self.forecaster)

    # ------------------------------------------------------------------ what happens

    def submit(self, name, line, user="ada", *, gates=(), predicted=False, **gang) -> Job:
        """A job of one role, such as "4 gpu=1"; times in seconds, `gang` as in `make_gang`."""
        self.clock.us += 1000  # nobody comes at the same instant as somebody else
        number = len(self.known.register.by_id) + 1
        role = make_role(line)
        made = make_gang(str(number), role, submit=self.clock.us / 1e6, user=user, **gang)
        job = Job(
            number,
            UIDS[user],
            UIDS[user],
            user,
            name,
            made,
            "pending",
            self.clock.us,
            self.clock.wall_s(),
            predicted=predicted,
        )
        job.gates = set(gates)
        record = JobRecord(
            id=number,
            uid=job.uid,
            gid=job.gid,
            user=user,
            name=name,
            queue=made.queue,
            state="pending",
            gang=msgspec.json.encode({"members": made.members_min, "each": {"gpu": role.shape.amount("gpu") / 1000}}),
            options=b"",
            submit_us=job.submit_us,
            submit_wall=job.submit_wall,
        )
        self.store.records[number] = record
        self.store.runs_by_job[number] = msgspec.json.encode(
            {"command": ["python", f"{name}.py"], "cwd": "/data", "env": {"SECRET": "s3cret"}}
        )
        self.known.register.add(job)
        engine, _ = self.planner.submit(self.clock.us, made, held=bool(gates))
        self.known.register.number(job, engine)
        return job

    def plan(self) -> None:
        """One pass; whoever has seats runs at once."""
        for act in self.planner.plan(self.clock.us).done:
            job = self.known.register.by_number[act.gang]
            if isinstance(act, Begin):
                self.start(job, act.seats)
            elif isinstance(act, Leave) and job.live is not None:
                self._spend(job)
                self.known.occupancy.give(job.live, job.live.members.values())
                job.live, job.state = None, "pending"

    def start(self, job: Job, seats) -> None:
        places = split_seats(job.gang, seats)
        members = {
            rank: Member(rank, role, devices, rank=rank, pid=5000 + 10 * job.id + rank)
            for rank, (role, devices) in enumerate(places)
        }
        job.attempt += 1
        job.live = Live(job.id, job.attempt, members, phase=AttemptPhase.RUNNING, started_us=self.clock.us)
        job.state, job.start_us, job.start_wall = "running", self.clock.us, self.clock.wall_s()
        self.known.occupancy.take(job.live, members.values())
        self.happen(
            job, "bind", attempt=job.attempt, devices=[f"GPU-{d}" for m in members.values() for d, _ in m.devices]
        )
        self.happen(job, "start", attempt=job.attempt, members=len(members))

    def end(self, job: Job, state="completed", **facts) -> None:
        """It has ended and nothing of it is left."""
        how = {"completed": self.planner.complete, "failed": self.planner.fail, "cancelled": self.planner.cancel}
        how[state](self.clock.us, job.number)
        if job.live is not None:
            self._spend(job)
            self.known.occupancy.give(job.live, job.live.members.values())
        job.live, job.state, job.end_us, job.end_wall = None, state, self.clock.us, self.clock.wall_s()
        for name, value in facts.items():
            setattr(job, name, value)
        record = self.store.records[job.id]
        record.state, record.start_us, record.end_us = state, job.start_us, job.end_us
        record.memory = remember(job, None)
        record.start_wall, record.end_wall, record.exit_code = job.start_wall, job.end_wall, job.exit_code
        record.ledger = msgspec.json.encode(job.ledger) if job.ledger else None
        record.reason = None if job.reason is None else msgspec.json.encode(job.reason)
        record.failure = None if job.failure is None else msgspec.json.encode(job.failure)
        self.happen(job, {"completed": "complete", "failed": "fail", "cancelled": "cancel"}[state])

    def _spend(self, job: Job) -> None:
        job.spent.ran_us += self.clock.us - job.live.started_us
        job.spent.attempts += 1
        job.spent.gpus = sum(milli for m in job.live.present() for _, milli in m.devices) / 1000

    def happen(self, job: Job, event: str, **data) -> None:
        seq = len(self.store.told) + 1
        encoded = msgspec.json.encode(data)
        self.store.told.append(EventRecord(job.id, event, self.clock.us, self.clock.wall_s(), encoded, seq))

    def tick(self, seconds: float) -> None:
        self.clock.us += round(seconds * 1e6)
