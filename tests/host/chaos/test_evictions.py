"""Deaths in the middle of everything that moves jobs about: evictions, drills, resizes, requeues, cancels.

Every rank locks its devices and notes its begin and its end (`locking_member`), so that nothing here rests on a word of
the daemon. A cycle is a death: of the daemon (also while it recovers, several in a row), of a shim or of a member. At
the end nobody is killed any more, and everything that was promised must hold: see `judge`.

PHALANX_CHAOS_CYCLES  deaths of each long run, 100 unless told
PHALANX_CHAOS_SEED    added to the seeds of all runs
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from realdaemon import TOY, pause, until

sys.path.append(str(Path(__file__).parents[1] / "multiuser"))  # import-mode=importlib leaves it out

from people import ADA, SharedDaemon, find_missing

from phalanx.frontends.host import containment
from phalanx.frontends.host.messages import ENDED

CYCLES_SHORT = 6
CYCLES = int(os.environ.get("PHALANX_CHAOS_CYCLES", "100"))
SEED = int(os.environ.get("PHALANX_CHAOS_SEED", "0"))

GPUS = 8
LIVE_LEAST = 7  # jobs that have not ended, so that there is always somebody to kill and somebody who waits
ITEMS = 15
MEMBER = Path(__file__).with_name("locking_member.py")
KINDS = ("work", "requeued", "requeued", "requeued", "requeued", "elastic", "elastic", "failing")
DEATHS = ("daemon", "daemon", "shim", "member", "member")
ACTS = ("rush", "rush", "rush", "drill", "drill", "preempt", "resize", "resize", "cancel", "hold")
#: A run in which nobody was evicted, and no daemon died while it recovered, has shown nothing of the kind.
WANTED = ("evicted", "drill", "resize", "recovering daemon", "shim", "member")


@dataclass
class Subject:
    """One acknowledged job and what was done to it."""

    id: int
    kind: str
    members: int
    manner: str
    number: int
    restarts: int = 0
    hit: bool = False  # its shim or one of its members was killed
    cancelled: bool = False  # a cancel was acknowledged while it had not ended
    asked: list[str] = field(default_factory=list)


class Turmoil:
    """A daemon, its jobs, and everything that happens to them."""

    def __init__(self, daemon, place, seed):
        self.daemon, self.place, self.seed = daemon, place, seed
        self.dice = random.Random(seed)
        self.subjects, self.counts, self.told = {}, Counter(), []
        self.start_s, self.made = 0.5, 0
        self.member = place / MEMBER.name
        self.member.write_bytes(MEMBER.read_bytes())
        self.member.chmod(0o644)

    def tell(self, what, job=None):
        self.counts[what] += 1
        self.told.append((len(self.told), what, job))

    # ------------------------------------------------------------------ jobs

    def submit(self, kind):
        """Hand one in; what is acknowledged must come to its end."""
        dice = self.dice
        self.made += 1
        members = {"urgent": dice.randint(5, GPUS), "elastic": 0}.get(kind) or dice.randint(1, 3)
        steps, manner, restarts = dice.randint(10, 50), dice.choice(("dies", "saves")), dice.choice((0, 0, 2))
        command, gang, run = [], {}, {}
        if kind == "elastic":
            steps, manner, members = 0, "dies", {"min": 1, "max": 4}
            work = str(self.place / f"toy{self.made}")
            command = [sys.executable, str(TOY), work, "--items", str(ITEMS), "--seconds", "0.03"]
        if kind == "failing":
            manner = "fails"
        if kind in ("requeued", "elastic"):
            run["on_preempt"] = "requeue"
        if kind == "urgent":
            gang["priority"], steps = 10, 3
        words = [sys.executable, "-I", "-S", str(self.member), str(self.place), str(steps), "0.03", manner, *command]
        given = {**run, "restarts": restarts, "grace_s": 2.0, "cwd": str(self.place)}
        submission = self.daemon.submission(words, members, run=given, walltime="10s", **gang)
        reply = self.daemon.post(submission, f"key-{self.made}", name=kind)
        assert reply.status in (200, 201), reply
        many = members if isinstance(members, int) else 0
        self.subjects[reply["id"]] = Subject(reply["id"], kind, many, manner, self.made, restarts)
        self.tell("submit", reply["id"])

    def act(self):
        """Somebody wants something of a job that may or may not be able to do it."""
        dice, act = self.dice, self.dice.choice(ACTS)
        if act == "rush":
            self.submit("urgent")
            return
        rows = [row for row in self.daemon.get("/v1/jobs?all=1")["jobs"] if row["state"] not in ENDED]
        fit = [row for row in rows if self._suits(act, row)]
        if not fit or (act == "cancel" and dice.random() < 0.6):
            return
        subject = self.subjects[dice.choice(fit)["id"]]
        verb = {"drill": "preempt"}.get(act, act)
        body = {"drill": {"drill": True}, "resize": {"members": dice.choice([1, 2, 3, 4, "auto"])}}.get(act, {})
        reply = self.daemon.act(subject.id, verb, body)
        assert reply.status in (200, 409), (subject, act, reply)
        if reply.status != 200:
            return
        self.tell(act, subject.id)
        subject.asked.append(act)
        subject.cancelled |= act == "cancel" and reply["state"] in ("stopping", "cancelled")
        if act == "hold":
            assert self.daemon.act(subject.id, "release").status in (200, 409)

    def _suits(self, act, row):
        kind = self.subjects[row["id"]].kind
        if act == "hold":
            return row["state"] == "pending"
        if act == "resize":
            return kind == "elastic"
        return act == "cancel" or (row["state"] == "running" and kind in ("requeued", "elastic"))

    # ------------------------------------------------------------------ deaths

    def kill(self):
        """One death, or several of daemons in a row."""
        victim = self.dice.choice(DEATHS)
        if victim == "daemon":
            self.kill_daemon()
        else:
            self.kill_process(victim)

    def kill_daemon(self):
        daemon, dice = self.daemon, self.dice
        if dice.random() < 0.2:
            os.kill(daemon.process.pid, signal.SIGSTOP)
            pause(0.02)
        daemon.kill()
        self.tell("daemon")
        for _ in range(dice.choice((0, 0, 1, 2))):
            if dice.random() < 0.3:
                self.kill_process(dice.choice(("shim", "member")))
            daemon.process = daemon.spawn()
            # Most of its start is imports; recovery is the rest.
            pause(self.start_s * dice.uniform(0.5, 1.05))
            daemon.kill()
            self.tell("recovering daemon")
        began = time.monotonic()
        daemon.start()
        self.start_s = 0.5 * self.start_s + 0.5 * (time.monotonic() - began)

    def kill_process(self, victim):
        """A shim or a member, of whoever has one."""
        jobs = dict(self.daemon.marked()) if victim == "member" else self.find_shims()
        if not jobs:
            return
        pid = self.dice.choice(sorted(jobs))
        subject = self.subjects[jobs[pid][0]]
        with contextlib.suppress(ProcessLookupError):
            # Noted before: it is hit even if nobody notices any more.
            subject.hit = True
            os.kill(pid, signal.SIGKILL)
            self.tell(victim, subject.id)

    def find_shims(self):
        """Shims that live, with job and attempt."""
        found = {}
        for folder in sorted((self.daemon.state / "runs").glob("[0-9]*.[0-9]*")):
            job, _, attempt = folder.name.partition(".")
            story = self.daemon.story(int(job), int(attempt))
            if story is not None and story.pid and self.daemon._lives(story.pid) and int(job) in self.subjects:
                found[story.pid] = (int(job), int(attempt))
        return found

    @property
    def deaths(self):
        return sum(self.counts[who] for who in ("daemon", "recovering daemon", "shim", "member"))

    def has_shown_all(self):
        self.counts["evicted"] = sum(map(self.was_evicted, self.subjects.values()))
        return all(self.counts[what] for what in WANTED)

    def run(self, cycles):
        """So many deaths, and more of them until everything that is wanted has happened: when it does is up to the machine."""
        while self.deaths < cycles or (cycles >= CYCLES and self.deaths < 2 * cycles and not self.has_shown_all()):
            ended = sum(row["state"] in ENDED for row in self.daemon.rows().values())
            while len(self.subjects) - ended < LIVE_LEAST:
                self.submit(self.dice.choice(KINDS))
            for _ in range(self.dice.randint(1, 3)):
                pause(self.dice.choice((0.0, 0.01, 0.05, 0.15)))
                self.act()
            self.kill()
            self.check_log()

    # ------------------------------------------------------------------ judgement

    def lines(self):
        log = self.place / "log"
        return [line.split() for line in log.read_text(encoding="ascii").splitlines()] if log.exists() else []

    def check_log(self):
        double = [line for line in self.lines() if line[0] == "double"]
        assert not double, f"in two hands (job, attempt, rank, what): {double}"

    def judge(self):
        """Nobody is killed any more: what was promised must hold."""
        for row in self.daemon.rows().values():
            assert row["id"] in self.subjects, f"nobody was told of {row}"
        until(
            lambda: all(row["state"] in ENDED for row in self.daemon.rows().values()),
            lambda: f"the end of {[row for row in self.daemon.rows().values() if row['state'] not in ENDED]}",
            limit_s=90.0,
        )
        self.check_log()
        self.has_shown_all()  # whoever was evicted last is counted too
        rows, ranks = self.daemon.rows(), {"begin": {}, "end": {}}
        assert set(rows) == set(self.subjects), "every acknowledged job is there, and nobody else"
        for what, job, attempt, rank in (line for line in self.lines() if line[0] in ranks):
            ranks[what].setdefault((int(job), int(attempt)), set()).add(int(rank))
        for subject in self.subjects.values():
            self.check_end(subject, rows[subject.id], ranks)
        self.daemon.check_quiet()
        self.check_groups()
        self.daemon.check_logs()

    def check_end(self, subject, row, ranks):
        """How one job may have ended, after what was done to it."""
        state, evicted = row["state"], self.was_evicted(subject)
        self.counts[f"{subject.kind} {state}"] += 1
        if subject.cancelled:
            assert state == "cancelled", (subject, row)
            return
        expected = {"failed"} if subject.kind == "failing" else {"completed"}
        assert state in expected | ({"failed"} if subject.hit else set()), (subject, row)
        if state == "completed":
            self.check_finished(subject, row, ranks["end"])
        if subject.members and subject.kind != "failing" and not subject.hit and not evicted:
            for (job, attempt), begun in ranks["begin"].items():
                whole = begun == set(range(subject.members))
                assert whole or job != subject.id, f"a partial gang: {job}.{attempt} had ranks {begun}: {subject}"

    def check_finished(self, subject, row, ends):
        if subject.kind == "elastic":
            lines = (self.place / f"toy{subject.number}" / "ledger").read_text(encoding="ascii").split("\n")
            done = [line.split()[1] for line in lines if line.startswith("done ")]
            assert len(done) == len(set(done)) == ITEMS, f"completed with {len(done)} of {ITEMS} items: {subject}"
        else:
            ended = ends.get((subject.id, row["attempt"]), set())
            assert ended == set(range(subject.members)), f"completed, but only ranks {ended} did all: {subject}, {row}"

    def was_evicted(self, subject):
        told = self.daemon.get(f"/v1/jobs/{subject.id}/why")["decisions"]
        return any(event["event"] == "evict" for event in told) or bool({"drill", "preempt"} & set(subject.asked))

    def check_groups(self):
        """No control group is left of anybody."""
        name = "phalanx." + hashlib.sha256(os.fsencode(self.daemon.state / "runs")).hexdigest()[:12]
        ground = containment.find_ground(name)
        if ground is not None:
            until(lambda: not ground.list_runs(), lambda: f"groups to go: {ground.list_runs()}")

    @contextlib.contextmanager
    def telling(self):
        """What goes wrong is told with the seed, and with the story of the first job that it names."""
        try:
            yield
        except BaseException as wrong:
            named = re.search(r"Subject\(id=(\d+)|\['double', '(\d+)'|'id': (\d+)", str(wrong))
            if named is not None:
                wrong.add_note(self.write_story(int(named[named.lastindex])))
            with contextlib.suppress(OSError):
                _, traced, last = (self.daemon.state / "daemon.log").read_text().rpartition("Traceback")
                wrong.add_note("\n".join(["where the daemon failed last:", *last.split("\n")[:60]]) if traced else "")
            wrong.add_note(f"seed {self.seed}; so far {dict(self.counts)}")
            raise

    def write_story(self, job):
        """A job as the daemon has it, as its members have it, and what was done to it."""
        text = [f"job {job} as the daemon has it:"]
        with contextlib.suppress(OSError, AssertionError):
            why = self.daemon.get(f"/v1/jobs/{job}/why")
            text += [f"  {each['at']} {each['event']} {each['data']}" for each in why["decisions"]]
            text += ["the end of rank 0's log:", self.daemon.get(f"/v1/jobs/{job}/logs?rank=0&tail=30")]
        text += ["as its members have it:", *("  " + " ".join(line) for line in self.lines() if line[1] == str(job))]
        text += [
            "done to it, and to daemons:",
            *(f"  {at} {what}" for at, what, whom in self.told if whom in (job, None)),
        ]
        return "\n".join(text)


@pytest.fixture
def own_daemon(make_daemon):
    """As whoever runs the tests."""
    daemon = make_daemon(gpus=GPUS)
    return daemon, daemon.folder


@pytest.fixture
def daemon_of_ada():
    """As an ordinary user, which takes root to become."""
    why = find_missing()
    if why:
        pytest.skip(why)
    daemon = SharedDaemon(gpus=GPUS, owner=ADA)
    yield daemon, daemon.homes[ADA]
    daemon.close()


def play(daemon, place, seed, cycles):
    turmoil = Turmoil(daemon, place, SEED + seed)
    with turmoil.telling():
        daemon.start()
        turmoil.run(cycles)
        turmoil.judge()
    return turmoil.counts


def test_a_few_deaths_among_evictions_lose_and_double_nothing(own_daemon):
    play(*own_daemon, 11, CYCLES_SHORT)


def test_a_few_deaths_among_evictions_as_an_ordinary_user(daemon_of_ada):
    play(*daemon_of_ada, 12, CYCLES_SHORT)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_deaths_among_evictions_lose_and_double_nothing(own_daemon, seed):
    counts = play(*own_daemon, seed, CYCLES)
    assert min(counts[what] for what in WANTED) > 0, counts


@pytest.mark.long
def test_deaths_among_evictions_as_an_ordinary_user(daemon_of_ada):
    counts = play(*daemon_of_ada, 3, CYCLES)
    assert min(counts[what] for what in WANTED) > 0, counts
