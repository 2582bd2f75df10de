"""The daemon dies at every crash point, and the next one does what the table in docs/one-machine.md says.

Each test names the label, the state that the crash leaves as the kernel and the start file show it, and the state after
recovery. That every label is among them, and is really passed, is checked at the end of the file.
"""

from __future__ import annotations

import ast
import signal
from pathlib import Path

import pytest
from realdaemon import HELD, until

from phalanx.frontends.host.crashpoints import LABELS


class Crash:
    """A daemon that is to die at a label, and its successor."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.log = daemon.folder / "labels"

    def begin(self, label, times=1):
        self.label = label
        self.daemon.start(PHALANX_CRASH=f"{label}:{times}", PHALANX_CRASH_LOG=str(self.log))

    def happen(self):
        """Wait for the crash, which must have come where it was ordered."""
        status = self.daemon.bury()
        assert status == -signal.SIGKILL, (status, self.daemon.log())
        assert self.log.read_text().splitlines()[-1] == self.label

    def recover(self):
        self.daemon.start()
        return self.daemon


@pytest.fixture
def crash(daemon):
    return Crash(daemon)


def ran(daemon, job):
    """Attempts that ran code of their own: attempt → ranks."""
    found = {}
    for start in daemon.started(job):
        found.setdefault(start.attempt, []).append(start.rank)
    return {attempt: sorted(ranks) for attempt, ranks in found.items()}


def submit_into_crash(daemon, submission, key):
    with pytest.raises(OSError):  # noqa: PT011 - refused, reset or cut off: nobody answered
        daemon.post(submission, key)


# ---------------------------------------------------------------------- submits


def test_s0_submit_before_commit_knows_nothing_and_takes_it_again(crash):
    crash.begin("submit.before_commit")
    submission = crash.daemon.submission("sleep 0.1")
    submit_into_crash(crash.daemon, submission, "k1")
    crash.happen()
    daemon = crash.recover()
    assert daemon.rows() == {}
    first = daemon.post(submission, "k1")["id"]
    assert daemon.wait(first)["state"] == "completed"
    assert daemon.post(submission, "k1")["id"] == first
    assert list(daemon.rows()) == [first]
    assert ran(daemon, first) == {1: [0, 1]}
    daemon.check_quiet()


def test_s1_submit_before_reply_same_key_same_id(crash):
    crash.begin("submit.before_reply")
    submission = crash.daemon.submission("sleep 0.1")
    submit_into_crash(crash.daemon, submission, "k1")
    crash.happen()
    assert crash.daemon.starts() == []
    daemon = crash.recover()
    (job,) = daemon.rows()
    assert daemon.post(submission, "k1")["id"] == job
    assert daemon.wait(job)["state"] == "completed"
    assert daemon.post(submission, "k1")["id"] == job
    assert daemon.post(submission, "k2")["id"] != job
    assert ran(daemon, job) == {1: [0, 1]}


def test_s1_a_key_of_an_ended_job_starts_nothing_after_a_restart(daemon):
    """The job that ended last is not the one with the highest id."""
    daemon.start()
    submissions = {key: daemon.submission(script) for key, script in (("long", HELD), ("short", "true"))}
    jobs = {key: daemon.post(submission, key)["id"] for key, submission in submissions.items()}
    daemon.wait(jobs["short"])
    daemon.let_end()
    daemon.wait(jobs["long"])
    daemon.restart()
    assert {key: daemon.post(submission, key)["id"] for key, submission in submissions.items()} == jobs
    probe = daemon.submit("true", 4)  # needs every device: whoever was started again is before it, or beside it
    daemon.wait(probe)
    assert [ran(daemon, job) for job in jobs.values()] == [{1: [0, 1]}, {1: [0, 1]}]


# ---------------------------------------------------------------------- starts


@pytest.mark.parametrize("label", ["start.before_commit", "start.after_commit"])
def test_s2_s3_nothing_was_started_and_it_waits_again(crash, label):
    crash.begin(label)
    job = crash.daemon.submit("sleep 0.1")
    crash.happen()
    assert crash.daemon.starts() == []
    assert crash.daemon.shims() == set()
    daemon = crash.recover()
    assert daemon.wait(job)["state"] == "completed"
    (ranks,) = ran(daemon, job).values()
    assert ranks == [0, 1]
    daemon.check_quiet()


@pytest.mark.parametrize("label", ["start.shims_forked", "start.before_go"])
def test_s4_s5_members_at_the_gate_go_home_and_it_waits_again(crash, label):
    crash.begin(label)
    job = crash.daemon.submit("sleep 0.1")
    crash.happen()
    daemon = crash.daemon
    if label == "start.before_go":
        story = daemon.story(job)
        assert story.waiting or story.never_started, "all were at the gate, and written down"
    until(lambda: not daemon.shims(), "the shim to see that nobody is there")
    assert daemon.starts() == [], "nobody was let through, so nobody ran a line"
    crash.recover()
    assert daemon.wait(job)["state"] == "completed"
    assert ran(daemon, job) == {2: [0, 1]}, "the first attempt never was"
    daemon.check_quiet()


def test_s5_a_daemon_that_is_back_at_once_starts_it_once(crash):
    """Nobody waits for the old shim to be gone before the next daemon is there."""
    crash.begin("start.before_go")
    jobs = [crash.daemon.submit("sleep 0.1", 4) for _ in range(2)]
    crash.happen()
    daemon = crash.recover()
    for job in jobs:
        assert daemon.wait(job)["state"] == "completed"
        (ranks,) = ran(daemon, job).values()
        assert ranks == [0, 1, 2, 3]
    daemon.check_quiet()


def test_s6_s7_start_after_go_is_adopted_as_it_runs(crash):
    crash.begin("start.after_go")
    job = crash.daemon.submit(HELD + "exit $((RANK * 0))")
    crash.happen()
    daemon = crash.daemon
    members = {start.pid for start in daemon.wait_started(job, 2)}
    crash.recover()
    row = daemon.row(job)
    assert (row["state"], row["attempt"], row["members"]) == ("running", 1, 2)
    assert {device["job"] for device in daemon.devices() if device["state"] == "busy"} == {job}
    assert {member["pid"] for member in daemon.get(f"/v1/jobs/{job}")["members"]} == members
    daemon.check_devices()
    daemon.let_end()
    assert daemon.wait(job) == {"id": job, "state": "completed", "exit_code": 0, "ended": True}
    assert ran(daemon, job) == {1: [0, 1]}
    daemon.check_quiet()


# ---------------------------------------------------------------------- ends


@pytest.mark.parametrize(("script", "state", "code"), [("true", "completed", 0), ("exit 7", "failed", 7)])
def test_s8_exit_before_commit_the_journal_tells_how_once(crash, script, state, code):
    crash.begin("exit.before_commit")
    job = crash.daemon.submit(script)
    crash.happen()
    assert crash.daemon.story(job).done
    daemon = crash.recover()
    assert daemon.wait(job) == {"id": job, "state": state, "exit_code": code, "ended": True}
    # The first that fails ends the other, perhaps before it has said a word.
    assert ran(daemon, job) in ([{1: [0, 1]}] if code == 0 else [{1: [0, 1]}, {1: [0]}, {1: [1]}])
    daemon.check_quiet()
    ends = [each for each in daemon.get(f"/v1/jobs/{job}")["history"] if each["event"] in ("complete", "fail")]
    assert len(ends) == 1, ends


def test_s8_the_first_failing_rank_is_told_though_two_daemons_saw_it(crash):
    """The first daemon writes down that it ends the gang, and dies; whose fault it was must not die with it."""
    crash.begin("evict.after_commit")
    job = crash.daemon.submit('[ "$RANK" = 1 ] || sleep 60; echo the last words; exit 7', run={"grace_s": 5})
    crash.happen()
    daemon = crash.recover()
    assert daemon.wait(job)["exit_code"] == 7
    failure = daemon.get(f"/v1/jobs/{job}")["failure"]
    assert (failure["rank"], failure["exit_code"]) == (1, 7)
    assert failure["lines"][-1:] == ["the last words"]
    daemon.check_quiet()


def test_s9_cancel_before_signal_is_sent_again(crash):
    crash.begin("cancel.before_signal")
    daemon = crash.daemon
    job = daemon.submit("trap '' TERM; " + HELD)
    members = {start.pid for start in daemon.wait_started(job, 2)}
    with pytest.raises(OSError):  # noqa: PT011 - it dies before it answers
        daemon.act(job, "cancel")
    crash.happen()
    assert members <= set(daemon.marked(job)), "nobody was signalled yet"
    crash.recover()
    assert daemon.wait(job)["state"] == "cancelled"
    daemon.check_quiet()
    assert ran(daemon, job) == {1: [0, 1]}
    assert daemon.act(job, "cancel").status == 200, "of one that has ended this is true already"


def test_s10_end_before_free_leaves_no_device_taken(crash):
    crash.begin("end.before_free")
    job = crash.daemon.submit("true", 4)
    crash.happen()
    daemon = crash.recover()
    assert daemon.row(job)["state"] == "completed"
    daemon.check_devices()
    again = daemon.submit("true", 4)  # wants every device there is
    assert daemon.wait(again)["state"] == "completed"
    assert ran(daemon, job) == {1: [0, 1, 2, 3]}
    daemon.check_quiet()


# ---------------------------------------------------------------------- changes


def begin_elastic(daemon):
    """An elastic job of three, all of whom speak and stay."""
    job = daemon.post(daemon.steady({"min": 1, "max": 3}), name="steady")["id"]
    daemon.wait_started(job, 3)
    return job


def resize(daemon, job, members):
    """A job is only asked once its members have said that they understand."""

    def accepted():
        reply = daemon.act(job, "resize", {"members": members})
        assert reply.status in (200, 409), reply
        return reply.status == 200

    try:
        until(accepted, "the members to speak")
    except OSError:
        return  # it died of it, as it should


def has_size(daemon, job, members):
    """The daemon, the kernel and the devices agree on a size."""

    def agree():
        return daemon.row(job)["members"] == members == len(daemon.marked(job)) == daemon.gpus - daemon.gpus_free()

    until(agree, lambda: f"{members} members: {daemon.row(job)} {daemon.marked(job)}\n{daemon.log()}")
    daemon.check_devices()


@pytest.mark.parametrize("label", ["resize.after_commit", "resize.before_done"])
def test_s11_a_shrink_is_finished_by_the_next_daemon(crash, label):
    crash.begin(label)
    daemon = crash.daemon
    job = begin_elastic(daemon)
    resize(daemon, job, 1)
    crash.happen()
    crash.recover()
    has_size(daemon, job, 1)
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    assert ran(daemon, job) == {1: [0, 1, 2]}, "nobody was started again for it"
    daemon.check_told_once()
    daemon.check_quiet()


@pytest.mark.parametrize("label", ["resize.after_commit", "resize.before_done"])
def test_s11_a_growth_is_finished_by_the_next_daemon(crash, label):
    crash.begin(label, times=2)
    daemon = crash.daemon
    job = begin_elastic(daemon)
    resize(daemon, job, 1)
    has_size(daemon, job, 1)
    resize(daemon, job, 3)
    crash.happen()
    crash.recover()
    has_size(daemon, job, 3)
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    assert list(ran(daemon, job)) == [1]
    daemon.check_told_once()
    daemon.check_quiet()


def preempt_into_crash(daemon, job):
    """Accepted or cut off: a member may run before the daemon has heard that it does."""
    try:
        until(lambda: daemon.act(job, "preempt").status == 200, "the job to be running")
    except OSError:
        return


def test_s11_eviction_after_commit_is_told_again(crash):
    crash.begin("evict.after_commit")
    daemon = crash.daemon
    job = daemon.submit('[ "$PHALANX_ATTEMPT" = 2 ] || ' + HELD, run={"on_preempt": "requeue"})
    daemon.wait_started(job, 2)
    preempt_into_crash(daemon, job)
    crash.happen()
    assert len(daemon.marked(job)) >= 2, "nobody was signalled yet"
    crash.recover()
    assert daemon.wait(job)["state"] == "completed"
    assert ran(daemon, job) == {1: [0, 1], 2: [0, 1]}
    daemon.check_quiet()


def test_s11_eviction_of_a_job_that_speaks_is_a_word_and_no_signal(crash):
    crash.begin("evict.after_commit")
    daemon = crash.daemon
    job = daemon.post(daemon.steady({"min": 1, "max": 2}, run={"on_preempt": "requeue"}))["id"]
    daemon.wait_started(job, 2)
    resize(daemon, job, 2)  # accepted once both have spoken
    preempt_into_crash(daemon, job)
    crash.happen()
    assert daemon.changes() == []
    crash.recover()
    daemon.wait_started(job, 2, attempt=2)
    assert sorted(change[:3] for change in daemon.changes()) == [("1", "0", "yield"), ("1", "1", "yield")]
    assert all(code == 0 and number is None for _, code, number in daemon.story(job).exits.values())
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"
    daemon.check_quiet()


# ---------------------------------------------------------------------- every label


def test_every_label_has_a_test_that_dies_there():
    words = {node.value for node in ast.walk(ast.parse(Path(__file__).read_text())) if isinstance(node, ast.Constant)}
    assert {label for label in LABELS if label not in words} == set()


def test_one_life_passes_every_label(daemon):
    """What the tests above aim at is really there: a daemon that is not told to die notes every label."""
    log = daemon.folder / "labels"
    daemon.start(PHALANX_CRASH_LOG=str(log))
    job = begin_elastic(daemon)
    resize(daemon, job, 1)
    has_size(daemon, job, 1)
    held = daemon.submit(HELD, 1)
    daemon.wait_started(held, 1)
    daemon.act(held, "cancel")
    evicted = daemon.submit('[ "$PHALANX_ATTEMPT" = 2 ] || ' + HELD, 1, run={"on_preempt": "requeue"})
    daemon.wait_started(evicted, 1)
    assert until(lambda: daemon.act(evicted, "preempt").status == 200, "it to be running")
    daemon.wait_started(evicted, 1, attempt=2)
    daemon.let_end()
    for each in (job, held, evicted):
        daemon.wait(each)
    passed = set(log.read_text().split())
    assert passed == set(LABELS)
    daemon.check_quiet()
