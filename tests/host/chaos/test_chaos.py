"""Many deaths at the worst moments: right after something was acknowledged.

Every job of a round has a fate: at which acknowledgement of its own (the reply to its submit, its first line in the start
file, the reply to its cancel, resize or preempt, an exit in its journal) who is killed (the daemon, its shim, one of its members), at once
or after a sleep. Rounds follow each other while the jobs of the last still run. At the end nobody is killed any more, and
everything that was promised must hold: see `check_jobs`.

PHALANX_CHAOS_CYCLES  kills of the long run, 200 unless told; a fifth of them hit the daemon
PHALANX_CHAOS_SEED    which jobs and fates
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from dataclasses import dataclass, field

import pytest
from realdaemon import pause, until
from selection import rest_long

from phalanx.frontends.host.messages import ENDED

CYCLES_SHORT = 15
CYCLES = int(os.environ.get("PHALANX_CHAOS_CYCLES", "200"))
SEED = int(os.environ.get("PHALANX_CHAOS_SEED", "5"))
JOBS_A_ROUND = 6
#: A round goes on when its fates are met, or are not going to be.
ROUND_S = 3.0

ESCAPEE = "(setsid sh -c 'setsid sleep {s} & sleep {s}' >/dev/null 2>&1 &); sleep 0.05"
BOMB = f"""exec {sys.executable} -c '
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
'"""

KINDS = ("rigid", "rigid", "failing", "escapee", "stubborn", "elastic", "elastic", "restarting", "requeued")
ACKS = ("submit", "start", "start", "exit", "cancel")
#: Kinds with an acknowledgement of their own.
OWN_ACK = {"stubborn": "cancel", "elastic": "resize", "requeued": "preempt"}


@dataclass
class Subject:
    """One acknowledged job, what it should come to, and what was done to it."""

    id: int
    kind: str
    members: int
    ack: str
    victim: str
    sleeps: bool
    number: int
    done: bool = False
    hit: set[str] = field(default_factory=set)  # shim, member
    cancelled: bool = False  # a cancel was acknowledged while it had not ended


class Chaos:
    """A daemon, its jobs, and who kills them."""

    def __init__(self, daemon, seed):
        self.daemon, self.dice = daemon, random.Random(seed)
        self.subjects = {}
        self.kills = {"daemon": 0, "shim": 0, "member": 0}
        self.made = 0

    @property
    def killed(self):
        return sum(self.kills.values())

    # ------------------------------------------------------------------ jobs

    def submission(self, kind, number):
        dice, daemon = self.dice, self.daemon
        members = dice.randint(1, 3)
        seconds = round(dice.uniform(0.05, 0.3), 2)
        if kind == "elastic":
            toy = daemon.toy(daemon.folder / f"work{number}", {"min": 1, "max": 3}, items=20, seconds=0.03)
            return toy, 0
        script, run = {
            "rigid": (f"sleep {seconds}", {}),
            "failing": (f'sleep {seconds}; [ "$RANK" != 0 ] || exit 3', {}),
            "escapee": (ESCAPEE.format(s=seconds), {}),
            "stubborn": (f"trap '' TERM; sleep {seconds}; sleep 300 & wait; sleep 300", {"grace_s": 0.1}),
            "restarting": (f'sleep {seconds}; [ "$PHALANX_ATTEMPT" != 1 ]', {"restarts": 1}),
            "requeued": (f'[ "$PHALANX_ATTEMPT" != 1 ] || sleep 0.5; sleep {seconds}', {"on_preempt": "requeue"}),
            "bomb": (BOMB, {"grace_s": 0.1}),
        }[kind]
        return daemon.submission(script, members, run=run), members

    def submit(self, kind, ack, victim):
        """Hand a job in; the reply is the first acknowledgement."""
        self.made += 1
        key = f"key-{self.made}"
        submission, members = self.submission(kind, self.made)
        if ack == "submit" and victim == "daemon" and self.dice.random() < 0.5:
            self.shout({**submission, "name": key}, key)
            self.kill_daemon(sleeps=False)
        reply = self.daemon.post(submission, key, name=key)
        assert reply.status in (200, 201), reply
        job = reply["id"]
        sleeps = self.dice.random() < 0.2
        subject = self.subjects[job] = Subject(job, kind, members, ack, victim, sleeps, self.made)
        if ack == "submit":
            self.kill(subject)

    def shout(self, submission, key):
        """A submit whose sender does not live to read the reply: whatever became of it, the key decides."""
        body = json.dumps(submission).encode()
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self.daemon.socket)
            line.sendall(head.encode() + body)
            pause(self.dice.choice((0.0, 0.001, 0.003, 0.01)))

    # ------------------------------------------------------------------ kills

    def kill(self, subject):
        """The fate of a job, if it can still be met."""
        subject.done = True
        if subject.victim == "daemon":
            self.kill_daemon(subject.sleeps)
            return
        pids = self.find_victims(subject)
        if pids and self.end(self.dice.choice(sorted(pids)), subject.sleeps):
            subject.hit.add(subject.victim)
            self.kills[subject.victim] += 1

    def find_victims(self, subject):
        """Of this job, else of any that runs: who was just submitted has nobody yet."""
        daemon = self.daemon
        if subject.victim == "shim":
            stories = (daemon.story(subject.id, attempt) for attempt in (1, 2, 3))
            return {story.pid for story in stories if story is not None and story.pid and daemon._lives(story.pid)}
        return {start.pid for start in daemon.started(subject.id)} & set(daemon.marked(subject.id))

    def end(self, pid, sleeps):
        try:
            if sleeps:
                os.kill(pid, signal.SIGSTOP)
                pause(0.02)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_daemon(self, sleeps):
        daemon = self.daemon
        if sleeps:
            os.kill(daemon.process.pid, signal.SIGSTOP)
            pause(0.02)
        daemon.kill()
        self.kills["daemon"] += 1
        self.meet_fates(daemon_too=False)  # shims and members die while nobody looks, too
        daemon.start()

    # ------------------------------------------------------------------ acknowledgements

    def meet_fates(self, *, daemon_too=True):
        """Whoever has been acknowledged meets its fate."""
        started = {}
        for start in self.daemon.starts():
            started.setdefault(start.job, set()).add(start.attempt)
        for subject in [each for each in self.subjects.values() if not each.done]:
            if subject.victim == "daemon" and not daemon_too:
                continue
            attempts = started.get(subject.id, ())
            if attempts and self.is_acknowledged(subject, attempts, ask=daemon_too):
                self.kill(subject)

    def is_acknowledged(self, subject, attempts, *, ask):
        if subject.ack == "exit":
            stories = [self.daemon.story(subject.id, attempt) for attempt in attempts]
            return any(story is not None and story.exits for story in stories)
        return subject.ack == "start" or (ask and self.ask(subject))

    def ask(self, subject):
        """Cancel, resize or preempt a running job; whether that was acknowledged."""
        if subject.ack == "cancel":
            self.cancel(subject)
            return True
        if subject.ack not in ("resize", "preempt"):
            return False
        body = {"members": self.dice.randint(1, 3)} if subject.ack == "resize" else {}
        reply = self.daemon.act(subject.id, subject.ack, body)
        assert reply.status in (200, 409), reply
        over = reply.status == 409 and self.daemon.row(subject.id)["state"] in ENDED
        subject.done = over  # else it has not started, or has not said yet that it can
        return reply.status == 200

    def cancel(self, subject):
        reply = self.daemon.act(subject.id, "cancel")
        assert reply.status in (200, 409), reply
        subject.cancelled = reply.status == 200 and reply["state"] in ("stopping", "cancelled")

    def play_round(self):
        kinds = [self.dice.choice(KINDS) for _ in range(JOBS_A_ROUND)]
        reaper = self.dice.randrange(JOBS_A_ROUND)  # one of them takes the daemon with it
        for at, kind in enumerate(kinds):
            ack = OWN_ACK.get(kind) if kind == "stubborn" or self.dice.random() < 0.7 else None
            ack = ack or self.dice.choice(ACKS)
            victim = "daemon" if at == reaper else self.dice.choice(("shim", "member"))
            if ack == "submit" and victim != "daemon":
                ack = "start"  # nobody else is there yet
            self.submit(kind, ack, victim)
            self.meet_fates()
        limit = time.monotonic() + ROUND_S
        # Some wait for devices; their fate finds them in the next round.
        while time.monotonic() < limit and not all(each.done for each in self.subjects.values()):
            self.meet_fates()
            pause(0.01)

    # ------------------------------------------------------------------ judgement

    def drain(self):
        """Nobody is killed any more; what would go on for ever is cancelled."""
        for subject in self.subjects.values():
            subject.done = True
            if subject.kind in ("stubborn", "bomb") and not subject.cancelled:
                self.cancel(subject)
        until(
            lambda: all(row["state"] in ENDED for row in self.daemon.rows().values()),
            lambda: f"the end of {[row for row in self.daemon.rows().values() if row['state'] not in ENDED]}",
            limit_s=90.0,
        )

    def check_jobs(self):
        rows = self.daemon.rows()
        assert set(rows) == set(self.subjects), "every acknowledged job is there, and nobody else"
        for subject in self.subjects.values():
            state, code = rows[subject.id]["state"], rows[subject.id]["exit_code"]
            assert state in self.expect(subject), (subject, rows[subject.id])
            assert (code == 0) == (state == "completed"), rows[subject.id]
            if subject.kind == "failing" and not subject.hit and not subject.cancelled:
                assert code == 3, rows[subject.id]
            if subject.members and not subject.hit and not subject.cancelled:
                for attempt in {start.attempt for start in self.daemon.started(subject.id)}:
                    self.daemon.check_whole(subject.id, attempt, subject.members)
            if subject.kind not in ("restarting", "requeued") and not subject.hit:
                assert len({start.attempt for start in self.daemon.started(subject.id)}) <= 1, subject

    def expect(self, subject):
        """The states in which a job may have ended, after what was done to it."""
        if subject.cancelled:
            # One that was on its way to its end may have got there first.
            return {"cancelled"}
        if subject.kind == "failing":
            return {"failed"}
        if subject.kind in ("stubborn", "bomb"):
            return {"failed"}  # it was hit, else the end of this test would have cancelled it
        return {"completed", "failed"} if subject.hit else {"completed"}

    def check_toys(self):
        """No item is done twice, and in a job that went through all are done."""
        rows = self.daemon.rows()
        for subject in self.subjects.values():
            ledger = self.daemon.folder / f"work{subject.number}" / "ledger"
            if not ledger.exists():
                continue
            lines = [line.split() for line in ledger.read_text().splitlines()]
            done = [line[1] for line in lines if line[0] == "done"]
            assert len(done) == len(set(done)), (subject, lines)
            assert len(done) == 20 or rows[subject.id]["state"] != "completed", (subject, lines)


@pytest.fixture
def chaos(make_daemon):
    return Chaos(make_daemon(gpus=8, config="pids_max = 48\n"), SEED)


@pytest.mark.parametrize("cycles", rest_long([CYCLES_SHORT, CYCLES], short=1))
def test_kills_at_acknowledgements_lose_and_double_nothing(chaos, cycles):
    daemon = chaos.daemon
    daemon.start()
    while chaos.killed < cycles or chaos.kills["daemon"] < cycles // 5:
        chaos.play_round()
        daemon.check_one_attempt()
        daemon.check_starts()
    chaos.drain()
    chaos.check_jobs()
    chaos.check_toys()
    daemon.check_quiet()
    daemon.check_logs()
    assert chaos.killed >= cycles
    assert chaos.kills["daemon"] >= cycles // 5


@pytest.mark.long
def test_a_fork_bomb_under_a_limit_ends_with_its_job(chaos):
    daemon = chaos.daemon
    daemon.start()
    if daemon.get("/v1/status")["containment"] == "weak":
        pytest.skip("no cgroups that this process may write: nothing bounds the processes of a run")
    job = daemon.submit(BOMB, 1, run={"grace_s": 0.1})
    until(lambda: len(daemon.marked(job)) >= 20, "the bomb to grow")
    beside = daemon.submit("true")
    assert daemon.wait(beside)["state"] == "completed"
    assert len(daemon.marked(job)) <= 48
    daemon.restart()
    assert daemon.act(job, "cancel").status == 200
    assert daemon.wait(job)["state"] == "cancelled"
    daemon.check_quiet()
