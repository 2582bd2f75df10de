"""Jobs that cannot start, that drown everybody in output, or that come by the thousand."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from realdaemon import HELD, until


@pytest.fixture
def up(daemon):
    return daemon.start()


def end_of(daemon, job):
    return daemon.wait(job), daemon.get(f"/v1/jobs/{job}")["failure"]


# ---------------------------------------------------------------------- starts that fail


def test_command_that_does_not_exist(up):
    answer, failure = end_of(up, up.submit(["/no/such/program", "-x"]))
    assert (answer["state"], answer["exit_code"]) == ("failed", 127)
    assert failure["lines"] == ["phalanx: cannot start '/no/such/program': No such file or directory"]
    up.check_quiet()


def test_command_that_may_not_be_executed(up):
    script = up.folder / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    answer, failure = end_of(up, up.submit([str(script)]))
    assert (answer["state"], answer["exit_code"]) == ("failed", 126)
    assert "Permission denied" in failure["lines"][-1]


def test_working_directory_that_is_gone(up):
    held = up.submit(HELD, 4)
    folder = up.folder / "cwd"
    folder.mkdir()
    job = up.submit("true", run={"cwd": str(folder)})
    folder.rmdir()
    up.let_end()
    up.wait(held)
    answer, failure = end_of(up, job)
    assert (answer["state"], answer["exit_code"]) == ("failed", 125)
    assert str(folder) in failure["lines"][-1]


def test_first_failing_rank_is_told_with_its_last_lines(up):
    script = '[ "$RANK" = 2 ] || { sleep 30; exit 9; }; for i in 1 2 3; do echo "line $i of rank $RANK"; done; exit 5'
    job = up.submit(script, 4)
    answer, failure = end_of(up, job)
    assert (answer["state"], answer["exit_code"]) == ("failed", 5)
    assert (failure["rank"], failure["exit_code"]) == (2, 5)
    assert failure["lines"] == [f"line {i} of rank 2" for i in (1, 2, 3)]
    reason = up.row(job)["reason"]["message"]
    assert "rank 2 exited with code 5" in reason
    assert "line 3 of rank 2" in reason
    up.restart()
    assert up.get(f"/v1/jobs/{job}")["failure"] == failure, "and it is not forgotten"


def test_no_more_descriptors_is_waited_for(up):
    """The start fails before anybody runs, and is tried again."""
    held = up.submit(HELD, 4)
    up.wait_started(held, 4)
    job = up.submit("true", 4)
    pid = up.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 2, limits[1]))
    up.let_end()
    until(lambda: up.story(held).done, "the end of the first")
    until(lambda: "cannot be started" in up.log(), "a start that fails")
    assert "no file descriptors left" in up.log(), "and not the installation"
    assert up.row(job)["state"] == "pending"
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert up.wait(job)["state"] == "completed"
    assert len({start.attempt for start in up.started(job)}) == 1
    up.check_quiet()


def limits_of(pid):
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


def test_a_daemon_takes_all_descriptors_it_can_get_and_members_get_what_was_usual(daemon):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        daemon.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    job = daemon.submit(HELD, 1)
    (start,) = daemon.wait_started(job, 1)
    assert limits_of(daemon.process.pid) == (before[1], before[1])
    assert limits_of(daemon.shim_of(job))[0] == before[1], "it needs some for each of its members"
    assert limits_of(start.pid) == (256, before[1])
    daemon.let_end()
    assert daemon.wait(job)["state"] == "completed"


def test_a_program_that_does_not_exist_is_the_jobs_own_fault(up):
    assert up.wait(up.submit(["/no/such/program"], 1))["exit_code"] == 127


# ---------------------------------------------------------------------- ends that cross


@pytest.mark.long
def test_elastic_jobs_that_complete_while_seats_come_free_for_them(make_daemon):
    """A growth begins for a job whose members are leaving: it has completed, whoever was to come."""
    daemon = make_daemon(gpus=8).start()
    for _ in range(4):
        daemon.hold_again()
        rigid = daemon.submit(HELD, 5)
        daemon.wait_started(rigid, 5)
        jobs = [daemon.post(daemon.steady({"min": 1, "max": 4}))["id"] for _ in range(3)]
        for job in jobs:
            daemon.wait_started(job, 1)
            until(lambda job=job: daemon.act(job, "resize", {"members": 1}).status == 200, "it to speak")
            assert daemon.act(job, "resize", {"members": "auto"}).status == 200
        daemon.let_end()
        assert [daemon.wait(job)["state"] for job in jobs] == ["completed"] * 3
        daemon.wait(rigid)
    daemon.check_quiet()
    daemon.check_logs()


# ---------------------------------------------------------------------- floods


def test_log_flood_is_capped_and_says_so(up):
    cap = 1 << 20
    job = up.submit("yes a flood of words | head -c 20000000; echo; echo the end", 1, run={"log_cap_bytes": cap})
    beside = up.submit("true", 1)
    assert up.wait(beside)["state"] == "completed", "others are not held up"
    assert up.wait(job)["state"] == "completed"
    logs = up.state / "runs" / f"{job}.1" / "logs"
    assert sum(path.stat().st_size for path in logs.iterdir()) <= 2 * cap + 65536
    assert (logs / "rank-0.log").read_bytes().startswith(b"[phalanx: "), "it says what is not there"
    tail = up.call("GET", f"/v1/jobs/{job}/logs?rank=0&tail=1").body
    assert tail == "the end\n"


@pytest.mark.long
def test_ten_thousand_submits_in_one_batch(make_daemon):
    daemon = make_daemon(config="max_queued_per_user = 10001\n").start()
    held = daemon.submit(HELD, 4)
    daemon.wait_started(held, 4)
    batch = [{**daemon.submission("true", 1), "name": f"n{number}"} for number in range(10_000)]
    reply = daemon.call("POST", "/v1/jobs", {"jobs": batch}, {"Idempotency-Key": "all"}, timeout=120)
    assert reply.status in (200, 201), reply
    ids = [accepted["id"] for accepted in reply["jobs"]]
    assert len(set(ids)) == 10_000
    rows = daemon.get("/v1/jobs?all=1&limit=100000")["jobs"]
    assert set(ids) | {held} == {row["id"] for row in rows}
    refusal = daemon.post(daemon.submission("true", 1))
    assert refusal.status == 429
    assert "10001" in refusal["error"]["message"]
    daemon.restart()
    again = daemon.call("POST", "/v1/jobs", {"jobs": batch}, {"Idempotency-Key": "all"}, timeout=120)
    assert again.status in (200, 201), again
    assert [accepted["id"] for accepted in again["jobs"]] == ids
    assert len(daemon.get("/v1/jobs?all=1&limit=100000")["jobs"]) == 10_001
    assert daemon.row(held)["state"] == "running"
