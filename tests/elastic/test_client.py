"""The client in a job, against a scheduler's end that breaks, repeats itself, lies or is not there."""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
import resource
import signal
import threading
import time

import pytest

from phalanx import elastic
from phalanx.elastic import client, link

SHRINK = {"type": "shrink", "id": "s1", "generation": 2, "members": 3, "leaving": [3], "deadline_s": 60}
PREPARE = {"type": "prepare", "id": "p1", "generation": 2, "members": 5, "joining": [4], "deadline_s": 60}
CHECKPOINT = {"type": "checkpoint", "id": "c1", "deadline_s": 60}
YIELD = {"type": "yield", "id": "y1", "deadline_s": 60, "why": "a higher priority"}


def test_a_job_says_hello_and_learns_its_world(shim, talk):
    shim.generation, shim.world = 3, 6
    job, _ = talk()
    assert shim.heard("hello") == [
        {
            "type": "hello",
            "rank": 1,
            "pid": os.getpid(),
            "speaks": ["shrink", "grow", "yield", "checkpoint"],
            "version": 1,
        }
    ]
    assert (job.rank, job.world, job.generation, job.names) == (1, 6, 3, ())
    assert job.warnings == 0


def test_a_generation_has_one_membership(shim, talk):
    job, settle = talk()
    shim.say({"type": "welcome", "generation": 1, "members": 4, "ranks": [0, 1, 5, 6]})
    settle(lambda: job.names == (0, 1, 5, 6), "the names")
    shim.say({"type": "welcome", "generation": 1, "members": 3, "ranks": [0, 1, 5]})  # rank 6 has died
    shim.say(CHECKPOINT)
    settle(job.pending)
    assert (job.world, job.names) == (4, (0, 1, 5, 6))


# --- changes ---------------------------------------------------------------------------------------


def test_a_shrink_is_pending_until_it_is_done_and_then_the_world_is_smaller(shim, talk):
    job, settle = talk()
    assert job.pending() is None
    shim.say(SHRINK)
    change = settle(job.pending)
    assert (change.kind, change.members, change.generation, change.leaving) == ("shrink", 3, 2, (3,))
    assert not change.leaves
    assert change.names == (0, 1, 2)
    assert job.pending() is change, "the same until it is answered"
    assert (job.world, job.generation) == (4, 1)
    job.done(change, step=7)
    assert job.pending() is None
    assert (job.world, job.generation, job.names) == (3, 2, (0, 1, 2))
    settle(lambda: shim.heard("answer"))
    assert shim.heard("answer") == [{"type": "answer", "id": "s1", "verdict": "done", "generation": 2, "step": 7}]


def test_a_member_in_the_middle_that_leaves_makes_a_gap_in_the_names_and_none_in_the_ranks(shim, talk):
    job, settle = talk(shim.seat(rank=2))
    shim.say(SHRINK | {"leaving": [1]}, rank=2)
    job.done(settle(job.pending))
    assert (job.member, job.names, job.rank, job.world) == (2, (0, 2, 3), 1, 3)


def test_a_resize_counts_on_from_one_that_is_not_answered_yet(shim, talk):
    job, settle = talk()
    shim.say(SHRINK | {"leaving": [0]})
    shim.say(CHECKPOINT)
    shim.say(PREPARE | {"generation": 3, "members": 4, "joining": [4]})
    settle(lambda: len(job._open) == 3)
    while change := job.pending():
        job.done(change)
    assert (job.names, job.rank, job.generation) == ((1, 2, 3, 4), 0, 3)


def test_a_member_that_joined_late_has_a_name_that_is_not_its_rank(shim, talk):
    shim.members[7] = 3
    shim.generation, shim.world = 3, 3
    job, settle = talk(shim.seat(rank=2, generation=3, name=7))
    assert (job.rank, job.world, job.names) == (2, 3, ()), "until it is told, its place is the one it started at"
    shim.say({"type": "welcome", "generation": 3, "members": 3, "ranks": [1, 4, 7]}, rank=7)
    shim.say(SHRINK | {"generation": 4, "members": 2, "leaving": [2], "ranks": [4, 7]}, rank=7)
    change = settle(job.pending)
    assert (job.rank, job.names, change.leaves) == (2, (1, 4, 7), False), "2 is its rank, and somebody else's name"
    job.done(change)
    assert (job.rank, job.world, job.names) == (1, 2, (4, 7))


def test_who_is_named_leaves(shim, talk):
    job, settle = talk()
    shim.say(SHRINK | {"leaving": [1, 2], "members": 2})
    change = settle(job.pending)
    assert change.leaves
    job.done(change)
    settle(lambda: shim.heard("answer"))
    assert shim.heard("answer")[0]["verdict"] == "done"


def test_a_growth_comes_with_the_members_that_wait_at_the_gate(shim, talk):
    job, settle = talk()
    shim.say(PREPARE)
    change = settle(job.pending)
    assert (change.kind, change.members, change.joining, change.names) == ("grow", 5, (4,), (0, 1, 2, 3, 4))
    job.done(change)
    assert (job.world, job.generation) == (5, 2)


def test_a_yield_comes_before_what_waited_longer(shim, talk):
    job, settle = talk()
    for request in (SHRINK, CHECKPOINT, YIELD):
        shim.say(request)
    settle(lambda: len(job._open) == 3)
    kinds = []
    while change := job.pending():
        kinds.append((change.kind, change.leaves))
        job.done(change)
    assert kinds == [("yield", True), ("shrink", False), ("checkpoint", False)]


def test_a_refusal_says_why_and_changes_nothing(shim, talk):
    job, settle = talk()
    shim.say(SHRINK)
    job.refuse(settle(job.pending), "y" * 5000)
    settle(lambda: shim.heard("answer"))
    answer = shim.heard("answer")[0]
    assert (answer["verdict"], answer["why"]) == ("refuse", "y" * 1000)
    assert (job.world, job.generation) == (4, 1)


def test_what_the_job_does_not_speak_is_refused_at_once(shim, talk):
    job, settle = talk(speaks=("yield",))
    assert shim.heard("hello")[0]["speaks"] == ["yield"]
    shim.say(CHECKPOINT)
    shim.say({"type": "offer", "id": "o1", "members": 8, "deadline_s": 5})
    settle(lambda: len(shim.heard("answer")) == 2)
    assert [a["verdict"] for a in shim.heard("answer")] == ["refuse", "refuse"]
    assert job.pending() is None


@pytest.mark.parametrize(
    ("accept", "verdicts"), [(None, ["accept", "accept"]), (lambda n: n <= 8, ["accept", "refuse"])]
)
def test_an_offer_is_answered_by_the_job_s_own_word(shim, talk, accept, verdicts):
    job, settle = talk(accept=accept)
    shim.say({"type": "offer", "id": "o1", "members": 8, "deadline_s": 5})
    shim.say({"type": "offer", "id": "o2", "members": 9, "deadline_s": 5})
    settle(lambda: len(shim.heard("answer")) == 2)
    assert [a["verdict"] for a in shim.heard("answer")] == verdicts
    assert job.pending() is None


def test_deadlines_are_durations_and_never_get_later(shim, talk):
    job, settle = talk()
    before = time.monotonic()
    shim.say(SHRINK)
    change = settle(job.pending)
    assert before + 60 <= change.deadline <= time.monotonic() + 60
    assert 0 < change.left_s <= 60
    shim.say(SHRINK | {"deadline_s": 0})  # again, with what is left: nothing
    shim.say(SHRINK | {"deadline_s": 1000})
    settle(lambda: job.pending().left_s == 0)
    shim.say(CHECKPOINT)
    settle(lambda: len(job._open) == 2)
    assert job.pending().left_s == 0
    assert len(shim.heard("answer")) == 0


def test_the_same_id_is_done_once_and_answered_the_same_each_time(shim, talk):
    job, settle = talk()
    shim.say(SHRINK)
    shim.say(SHRINK)
    job.done(settle(job.pending), step=5)
    job.refuse(elastic.Change("s1", "shrink", 0.0, leaves=False), "too late to change one's mind")
    for _ in range(3):
        shim.say(SHRINK)
    settle(lambda: len(shim.heard("answer")) == 4)
    assert job.pending() is None
    assert all(answer == shim.heard("answer")[0] for answer in shim.heard("answer"))
    assert shim.heard("answer")[0]["verdict"] == "done"
    assert job.world == 3


def test_answers_are_remembered_but_not_for_ever(shim, talk):
    job, settle = talk(speaks=())
    for number in range(client.ANSWERS_MAX + 10):
        shim.say(CHECKPOINT | {"id": f"c{number}"})
    settle(lambda: len(shim.heard("answer")) == client.ANSWERS_MAX + 10)
    assert len(job._answers) == client.ANSWERS_MAX


def test_a_scheduler_that_asks_without_end_is_refused(shim, talk):
    job, settle = talk()
    for number in range(client.OPEN_MAX + 5):
        shim.say(CHECKPOINT | {"id": f"c{number}"})
    settle(lambda: len(shim.heard("answer")) == 5)
    assert len(job._open) == client.OPEN_MAX
    assert {a["verdict"] for a in shim.heard("answer")} == {"refuse"}


# --- callbacks and the thread ----------------------------------------------------------------------


def test_a_callback_gets_each_change_once_and_answers_by_what_it_returns(shim, talk):
    job, settle = talk()
    seen = []

    @job.on_change
    def on_change(change):
        seen.append(change.id)
        return {"s1": None, "c1": "the disk is full", "c2": False}[change.id]

    for request in (SHRINK, CHECKPOINT, CHECKPOINT | {"id": "c2"}):
        shim.say(request)
    settle(lambda: job.pending() is None and len(shim.heard("answer")) == 3)
    assert seen == ["s1", "c1", "c2"]
    assert [(a["verdict"], a.get("why")) for a in shim.heard("answer")] == [
        ("done", None),
        ("refuse", "the disk is full"),
        ("refuse", "the job refused"),
    ]
    assert job.world == 3


def test_one_callback_of_several_can_refuse(shim, talk):
    job, settle = talk()
    job.on_change(lambda change: "not now")
    job.on_change(lambda change: True)
    shim.say(CHECKPOINT)
    settle(lambda: job.pending() is None and shim.heard("answer"))
    assert shim.heard("answer")[0]["why"] == "not now"


def test_a_job_with_many_files_and_a_deadly_sigpipe_lives(shim, talk):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 3000:
        pytest.skip("needs 3000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3000, limits[1]))
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        job, _ = talk()
        assert job._link._socket.fileno() > 1024
        job.greet(0.01)
        job._link.wait(0.01)
        shim.drop()
        job.progress(1, total=1)
        assert job.warnings == 1, "the connection broke, and nothing else"
    finally:
        for handle in taken:
            os.close(handle)
        signal.signal(signal.SIGPIPE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_a_callback_raises_goes_through_to_the_job(shim, talk):
    job, settle = talk()
    job.on_change(lambda change: 1 // 0)
    shim.say(CHECKPOINT)
    settle(lambda: job._open)
    with pytest.raises(ZeroDivisionError):
        job.progress(1)
    assert job.pending().id == "c1", "not answered, and not handed to the callback again"


def test_the_thread_answers_while_the_job_is_busy(shim, until):
    job = elastic.Job(shim.seat())
    where = []
    job.on_change(lambda change: where.append(threading.current_thread().name))
    job.watch()
    try:
        until(lambda: shim.pump() or job.connected, "a welcome")
        shim.say(CHECKPOINT)
        shim.say({"type": "status", "id": "q"})
        until(lambda: shim.pump() or (shim.heard("answer") and shim.heard("status")), "an answer")
    finally:
        job.close()
    assert where == ["phalanx-elastic"]
    assert shim.heard("answer")[0]["verdict"] == "done"
    assert not job._thread.is_alive()


def test_a_callback_that_fails_in_the_thread_refuses(shim, until):
    job = elastic.Job(shim.seat())
    job.on_change(lambda change: 1 // 0)
    job.watch()
    try:
        until(lambda: shim.pump() or job.connected, "a welcome")
        shim.say(CHECKPOINT)
        until(lambda: shim.pump() or shim.heard("answer"), "an answer")
    finally:
        job.close()
    assert "ZeroDivisionError" in shim.heard("answer")[0]["why"]
    assert job.warnings == 1


# --- progress --------------------------------------------------------------------------------------


def test_progress_is_told_at_most_once_a_second_and_the_end_at_once(shim, talk, monkeypatch):
    job, _ = talk()
    now = [100.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    for step in range(1, 1001):
        now[0] += 0.01
        job.progress(step, total=1000, saved_step=step // 100 * 100, loss=1 / step, phase="train")
    shim.pump()
    said = shim.heard("status")
    steps = [status["step"] for status in said]
    assert steps == sorted(steps)
    assert 10 <= len(steps) <= 12, "ten seconds, and the last step"
    last = said[-1]
    assert (last["step"], last["total"], last["saved_step"], last["saved_age_s"]) == (1000, 1000, 1000, 0)
    assert (last["loss"], last["phase"], last["generation"]) == (0.001, "train", 1)
    assert last["rate"] == pytest.approx(100, rel=0.02)
    assert all(0 <= status["saved_age_s"] <= 1 for status in said)


def test_a_status_that_is_asked_for_comes_with_the_id(shim, talk):
    job, settle = talk()
    shim.say({"type": "status", "id": "q1"})
    settle(lambda: shim.heard("status"))
    assert shim.heard("status")[-1] == {"type": "status", "id": "q1", "generation": 1}
    job.progress(5, total=10)
    shim.say({"type": "status", "id": "q2"})
    settle(lambda: [s for s in shim.heard("status") if s.get("id") == "q2"])
    assert shim.heard("status")[-1]["step"] == 5


class Tensor:
    """Says how often somebody waited for the GPU."""

    def __init__(self):
        self.waits = 0

    def __float__(self):
        self.waits += 1
        return 0.5


def test_a_loss_on_a_gpu_is_waited_for_only_when_it_is_told(shim, talk, monkeypatch):
    job, _ = talk()
    now = time.monotonic()
    monkeypatch.setattr(client.time, "monotonic", lambda: now)
    loss = Tensor()
    for step in range(100):
        job.progress(step, loss=loss)
    shim.pump()
    assert (loss.waits, len(shim.heard("status"))) == (1, 1)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_left_out(shim, talk, loss):
    job, settle = talk()
    job.progress(1, total=1, loss=loss)
    settle(lambda: shim.heard("status"))
    assert "loss" not in shim.heard("status")[0]
    assert job.warnings == 0


@pytest.mark.parametrize("step", [-1, 2**60, "many", None, object()])
def test_nonsense_is_counted_and_does_not_end_the_training(shim, talk, step, caplog):
    job, settle = talk()
    job.progress(step)
    assert job.warnings == 1
    shim.say({"type": "checkpoint", "id": "c1", "deadline_s": 1})
    settle(job.pending)


def test_a_field_that_does_not_fit_is_left_out_and_the_rest_is_told(shim, talk):
    job, settle = talk()
    job.progress(5, total=5, phase="Training Loop")
    settle(lambda: shim.heard("status"))
    assert (shim.heard("status")[0]["step"], "phase" in shim.heard("status")[0]) == (5, False)
    assert job.warnings == 1
    job.progress(5, total=5)
    assert job.warnings == 1


def test_the_last_status_is_said_when_the_job_ends(shim, talk):
    job, _ = talk()
    for step in range(1, 6):
        job.progress(step, total=10)
    job.close()
    job.progress(6)
    shim.pump()
    assert shim.heard("status")[-1]["step"] == 5
    assert len(shim.connections) == 1, "closed is closed"


# --- when the scheduler fails ----------------------------------------------------------------------


def test_a_broken_connection_is_made_again_and_nothing_is_lost(shim, talk):
    job, settle = talk()
    shim.say(SHRINK)
    settle(job.pending)
    shim.drop()
    job.done(job.pending(), step=3)  # into the void
    assert job.world == 3
    settle(lambda: len(shim.heard("hello")) == 2 and job.connected, "the second hello")
    shim.say(SHRINK)  # it never heard the answer
    settle(lambda: shim.heard("answer"))
    assert shim.heard("answer") == [{"type": "answer", "id": "s1", "verdict": "done", "generation": 2, "step": 3}]
    assert job.pending() is None
    assert job.warnings >= 1


def test_once_it_is_heard_again_the_next_break_is_a_new_one(shim, talk):
    job, settle = talk()
    for breaks in (1, 2, 3):
        shim.drop()
        settle(lambda breaks=breaks: len(shim.heard("hello")) == 1 + breaks and job.connected, "the next hello")
        assert job._link._retry_s == link.RETRY_S_MIN


def test_the_wait_before_the_next_try_doubles_up_to_a_limit(shim, talk, monkeypatch):
    job, _ = talk()
    shim.close()
    now = [time.monotonic()]
    monkeypatch.setattr(link.time, "monotonic", lambda: now[0])
    tries = []

    def refuse(_path):
        tries.append(now[0])
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(link, "open_socket", refuse)
    for _ in range(4000):
        job.pending()
        now[0] += 0.01
    gaps = [round(b - a, 1) for a, b in itertools.pairwise(tries)]
    assert gaps[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert job.warnings == len(tries) + 1
    assert not job.connected


def test_a_scheduler_that_is_not_there_is_logged_a_few_times_only(shim, caplog):
    shim.close()
    job = elastic.Job(shim.seat())
    with caplog.at_level(logging.WARNING, "phalanx.elastic"):
        for _ in range(100):
            job._link._retry_at = 0.0
            job.progress(1)
            assert job.pending() is None
    assert job.warnings == 100
    assert [record.args[1] for record in caplog.records] == [1, 2, 4, 8, 16, 32, 64]
    assert "trying again" in caplog.records[0].message


def test_a_scheduler_without_the_key_is_not_believed(shim, talk):
    job, settle = talk()
    connection = shim.connections[-1]
    connection.line.sendall(bytes(36) + b"{}" * 50)
    settle(lambda: len(shim.heard("hello")) == 2, "a new connection")
    assert job.warnings >= 1


def test_a_key_file_that_is_wrong_or_gone_leaves_the_job_alone(shim):
    shim.key_file.write_text("not a key")
    job = elastic.Job(shim.seat())
    assert job.pending() is None
    shim.key_file.unlink()
    job._link._retry_at = 0.0
    assert job.pending() is None
    assert job.warnings == 2


def test_a_member_that_the_run_does_not_have_stays_outside(shim):
    job = elastic.Job(shim.seat(rank=9))
    for _ in range(20):
        shim.pump()
        job.progress(1)
    assert [type(c.refusal).__name__ for c in shim.connections] == ["Stale"]
    assert shim.heard("hello") == []
    assert not job.connected
    job.close()


def test_a_scheduler_that_reads_nothing_costs_bounded_memory_and_no_time(shim, talk):
    job, _ = talk()
    for number in range(40_000):
        job._send({"type": "answer", "id": f"a{number}", "verdict": "done", "why": "x" * 100})
        assert len(job._link._outbox) <= link.OUTBOX_BYTES_MAX + 1000
    assert job.warnings >= 1
    assert not job.connected


def test_a_path_longer_than_an_address_works(make_shim, until):
    shim = make_shim("/".join("d" * 60 for _ in range(3)))
    assert len(str(shim.path)) > 150
    job = elastic.Job(shim.seat())
    until(lambda: job.pending() or shim.pump() or job.connected, "a welcome")
    job.close()


def test_many_messages_in_one_read_and_unknown_ones_are_taken(shim, talk):
    job, settle = talk()
    connection = shim.connections[-1]
    codec = connection.end.codec
    payload = b'{"type":"sing","song":1}'
    frame = len(payload).to_bytes(4, "big") + codec.seal(codec._sent + 1, payload) + payload
    codec._sent += 1
    connection.line.sendall(frame + codec.encode(CHECKPOINT))
    assert settle(job.pending).kind == "checkpoint"
    assert job.warnings == 0


def test_the_loop_in_the_documents_does_what_it_says(shim, talk, repo_root, monkeypatch):
    page = (repo_root / "docs" / "protocol.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    job, settle = talk()
    monkeypatch.setattr(elastic, "join", lambda: job)
    requests = {2: CHECKPOINT, 4: SHRINK, 6: YIELD}
    did = []

    def train(step):
        did.append(step)
        if step in requests:
            shim.say(requests[step])
            settle(lambda: job._open, "the request")

    names = {"start": 1, "steps": 100, "saved": 0, "train": train}
    names |= {"save": lambda: did.append("save"), "rebuild": lambda members: did.append(f"rebuild {members}")}
    exec(code, names)  # noqa: S102 - our own page
    assert did == [1, 2, "save", 3, 4, "rebuild 3", 5, 6, "save"]
    settle(lambda: len(shim.heard("answer")) == 3)
    assert [a["verdict"] for a in shim.heard("answer")] == ["done"] * 3
