"""The elastic toy job as real processes: resized, killed, stopped and started again, it loses no item."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import subprocess
import sys

import psutil
import pytest

ITEM = re.compile(rb"(claim|done) (\d+) (\d+)\.(\d+)\.(\d+)\.[0-9a-f]{8}\n")


class Gang:
    """Members of one toy job, started and ended by hand; none survives the test."""

    def __init__(self, script, folder, items, seconds):
        self.script, self.work = script, folder / "work"
        self.items, self.seconds = items, seconds
        self.processes = {}

    def start(self, rank, world=4, attempt=1, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "TORCHELASTIC_"))}
        seat = {"RANK": str(rank), "WORLD_SIZE": str(world), "PHALANX_ATTEMPT": str(attempt)}
        command = [sys.executable, self.script, self.work, "--items", str(self.items), "--seconds", str(self.seconds)]
        with (self.work.parent / "out").open("ab") as out:
            process = subprocess.Popen(command, env=clean | seat | environment, stdout=out, stderr=out)
        self.processes[process.pid] = process
        return process

    def ledger(self):
        """What stands in the ledger: (claim or done, item, rank, pid)."""
        try:
            text = (self.work / "ledger").read_bytes()
        except FileNotFoundError:
            return []
        return [(what.decode(), int(item), int(rank), int(pid)) for what, item, _, rank, pid in ITEM.findall(text)]

    def holds(self, process):
        """The item that this member has claimed and not done, or None."""
        held = None
        for what, item, _, pid in self.ledger():
            if pid == process.pid:
                held = item if what == "claim" else None
        return held

    def is_unlocked(self):
        """Whether nobody is reading or writing the ledger now."""
        with (self.work / "ledger").open("rb") as ledger:
            try:
                fcntl.flock(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def done(self):
        return [item for what, item, _, _ in self.ledger() if what == "done"]

    def output(self):
        return (self.work.parent / "out").read_text()

    def verify(self):
        command = [sys.executable, self.script, self.work, "--verify"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def make_gang(repo_root, tmp_path):
    gangs = []

    def make(items=20, seconds=0.01):
        gangs.append(Gang(repo_root / "examples" / "elastic_toy.py", tmp_path, items, seconds))
        return gangs[-1]

    yield make
    for gang in gangs:
        gang.end()


def all_gone(*processes):
    return lambda: all(process.poll() is not None for process in processes)


def check_books(gang):
    """Every item done, once: by the job's own count, and by ours."""
    answer = gang.verify()
    assert answer.stdout == f"items {gang.items} done {gang.items} lost 0 twice 0\n", answer.stderr
    assert answer.returncode == 0
    assert sorted(gang.done()) == list(range(gang.items))


def test_alone_outside_phalanx(make_gang, until):
    gang = make_gang()
    process = gang.start(0, world=1)
    until(all_gone(process), "the end")
    assert gang.output().splitlines()[-1] == "items 20 done 20 lost 0 twice 0"
    assert process.returncode == 0
    check_books(gang)
    assert list((gang.work / "members").iterdir()) == [], "nobody is left behind"


def test_four_plain_processes_share_the_items_and_rank_0_counts(make_gang, until):
    gang = make_gang(items=40, seconds=0.03)
    members = [gang.start(rank) for rank in range(4)]
    until(all_gone(*members), "the end")
    assert [m.returncode for m in members] == [0, 0, 0, 0]
    assert gang.output().count("items 40 done 40 lost 0 twice 0") == 1
    check_books(gang)


def test_killed_and_added_members_lose_nothing(make_gang, until):
    """Each kill hits a member that holds an item; the item is done by somebody else."""
    gang = make_gang(items=80, seconds=0.05)
    dice = random.Random(5)
    members = [gang.start(rank) for rank in range(3)]
    hit = 0
    while hit < 6:
        busy = until(lambda: [m for m in members if gang.holds(m) is not None], "somebody at work")
        victim = dice.choice(busy)
        victim.kill()
        victim.wait()
        hit += gang.holds(victim) is not None  # else it was quicker than we
        members.remove(victim)
        members.append(gang.start(dice.randrange(4), attempt=2 + hit))
    until(all_gone(*members), "the end")
    assert {m.returncode for m in members} == {0}
    check_books(gang)


def test_a_job_killed_whole_goes_on_where_it_was(make_gang, until):
    gang = make_gang(items=12, seconds=0.05)
    for attempt in (1, 2):
        members = [gang.start(rank, world=2, attempt=attempt) for rank in range(2)]
        goal = 3 * attempt
        until(lambda goal=goal: len(gang.done()) >= goal, "some items")
        for member in members:
            member.kill()
            member.wait()
    before = gang.done()
    last = gang.start(0, world=1, attempt=3)
    until(all_gone(last), "the end")
    assert gang.done()[: len(before)] == before
    check_books(gang)


def test_a_stopped_member_keeps_its_item_until_it_is_dead(make_gang, until):
    gang = make_gang(items=20, seconds=0.2)
    stopped = gang.start(1, world=2)

    def stop_at_work():
        if gang.holds(stopped) is None:
            return False
        stopped.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(stopped.pid).status() == psutil.STATUS_STOPPED, "it to stop")
        if gang.holds(stopped) is not None and gang.is_unlocked():
            return True
        stopped.send_signal(signal.SIGCONT)  # it was stopped at the ledger, or had just finished
        return False

    until(stop_at_work, "a member that stands still with an item")
    item = gang.holds(stopped)
    gang.seconds = 0.01
    other = gang.start(0, world=2)
    until(lambda: len(gang.done()) == 19, "all other items")
    assert item not in gang.done()
    assert other.poll() is None, "it waits for what is in another's hands"
    stopped.kill()
    until(all_gone(other), "the end")
    check_books(gang)


def test_a_line_whose_writer_died_in_the_middle_is_cut_off(make_gang, until):
    gang = make_gang(items=3)
    process = gang.start(0, world=1)
    until(all_gone(process), "the end")
    with (gang.work / "ledger").open("ab") as ledger:
        ledger.write(b"done 2 1.0.1")
    again = gang.start(0, world=1, attempt=2)
    until(all_gone(again), "the end")
    check_books(gang)
    assert (gang.work / "ledger").read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text + text.splitlines(keepends=True)[-1], "items 3 done 3 lost 0 twice 1"),
        (lambda text: "".join(text.splitlines(keepends=True)[:-1]), "items 3 done 2 lost 1 twice 0"),
    ],
)
def test_the_count_can_fail(make_gang, until, spoil, says):
    gang = make_gang(items=3)
    until(all_gone(gang.start(0, world=1)), "the end")
    ledger = gang.work / "ledger"
    ledger.write_text(spoil(ledger.read_text()))
    answer = gang.verify()
    assert (answer.stdout.strip(), answer.returncode) == (says, 1)


def test_another_number_of_items_in_the_same_folder_is_refused(make_gang, until):
    gang = make_gang(items=3)
    until(all_gone(gang.start(0, world=1)), "the end")
    gang.items = 4
    process = gang.start(0, world=1)
    until(all_gone(process), "the end")
    assert process.returncode == 1
    assert "holds a job of 3 items, not 4" in gang.output()


# --- with a scheduler ------------------------------------------------------------------------------


@pytest.fixture
def scheduled(make_gang, shim, until):
    """A gang whose members have all said hello, and a function that waits while the scheduler's end goes on."""

    def start(items, ranks):
        gang = make_gang(items=items, seconds=0.05)
        members = {rank: gang.start(rank, **shim.environment(rank)) for rank in ranks}

        def settle(condition, what):
            return until(lambda: shim.pump() or condition(), what)

        settle(lambda: {m["rank"] for m in shim.heard("hello")} == set(ranks), "every hello")
        settle(lambda: len(gang.done()) > 2, "some work")
        return gang, members, settle

    return start


def verdicts(shim, request):
    return {c.end.rank: m["verdict"] for c in shim.connections for m in c.heard if m.get("id") == request}


def test_a_shrink_lets_those_go_that_are_named_and_the_rest_ends_it(scheduled, shim):
    gang, members, settle = scheduled(120, [0, 1, 2, 3])
    for rank in members:
        shrink = {"type": "shrink", "id": "s1", "generation": 2, "members": 2, "leaving": [0, 2], "deadline_s": 30}
        shim.say(shrink, rank)
    settle(all_gone(members[0], members[2]), "those that leave")
    assert (members[0].returncode, members[2].returncode) == (0, 0)
    assert len(gang.done()) < 120
    assert gang.holds(members[0]) is gang.holds(members[2]) is None, "they finished what they had"
    settle(all_gone(*members.values()), "the end")
    assert verdicts(shim, "s1") == dict.fromkeys(range(4), "done")
    assert {rank for what, _, rank, _ in gang.ledger()[-6:] if what == "done"} <= {1, 3}
    assert gang.output().splitlines().count("items 120 done 120 lost 0 twice 0") == 1, "rank 1 is the lowest now"
    check_books(gang)


def test_a_growth_is_answered_and_the_new_members_just_join(scheduled, shim):
    gang, members, settle = scheduled(120, [0, 1])
    shim.world = 2
    for rank in members:
        prepare = {"type": "prepare", "id": "p1", "generation": 2, "members": 4, "joining": [2, 3], "deadline_s": 30}
        shim.say(prepare, rank)
    settle(lambda: verdicts(shim, "p1") == {0: "done", 1: "done"}, "both to be ready")
    shim.members |= {2: 2, 3: 2}
    shim.generation, shim.world = 2, 4
    members |= {rank: gang.start(rank, **shim.environment(rank, generation=2)) for rank in (2, 3)}
    settle(all_gone(*members.values()), "the end")
    assert {rank for what, _, rank, _ in gang.ledger() if what == "done"} == {0, 1, 2, 3}
    assert shim.heard("status")[-1]["total"] == 120
    check_books(gang)


def test_a_yield_ends_all_after_their_item_and_the_next_attempt_goes_on(scheduled, shim):
    gang, members, settle = scheduled(120, [0, 1, 2])
    for rank in members:
        shim.say({"type": "yield", "id": "y1", "deadline_s": 30, "why": "someone more urgent"}, rank)
    settle(all_gone(*members.values()), "all to leave")
    assert {m.returncode for m in members.values()} == {0}
    assert len(gang.done()) < 120
    assert all(gang.holds(member) is None for member in members.values())
    assert "lost" not in gang.output(), "nobody counts what is not over"
    gang.seconds = 0.001
    last = gang.start(0, world=1, attempt=2)
    settle(all_gone(last), "the end")
    check_books(gang)


def test_a_resize_while_members_are_killed_and_the_scheduler_breaks(scheduled, shim):
    gang, members, settle = scheduled(120, [0, 1, 2, 3])
    members[3].kill()
    shim.drop()
    settle(lambda: len(shim.heard("hello")) >= 7, "three members to come back")
    for rank in (0, 1, 2):
        shrink = {"type": "shrink", "id": "s1", "generation": 2, "members": 2, "leaving": [2], "deadline_s": 30}
        shim.say(shrink, rank)
    settle(all_gone(members[2]), "the one that leaves")
    assert members[2].returncode == 0
    members[1].kill()
    settle(all_gone(*members.values()), "the end")
    check_books(gang)
