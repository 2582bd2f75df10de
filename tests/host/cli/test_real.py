"""The verbs against the real daemon, as the first minutes of somebody who tries it."""

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest


@pytest.fixture
def box(home):
    """A command line with a daemon of four fake GPUs; whatever was started is gone afterwards."""

    def run(*words, code=0, text=None):
        done = subprocess.run(
            [sys.executable, "-c", "from phalanx.cli import main; main(prog_name='phalanx')", *map(str, words)],
            capture_output=True, text=True, check=False, timeout=120, input=text, cwd=home.parent,
        )  # fmt: skip
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    try:
        run("up", "--fake-gpus", "4")
        yield run
    finally:
        end_everything(str(home))


def end_everything(home):
    """Kill the daemon, its shims and their members: whoever speaks of this state directory."""
    for _ in range(100):
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                words = [*process.cmdline(), *process.environ().values(), process.cwd()]
                if process.pid != os.getpid() and process.ppid() != os.getpid() and any(home in word for word in words):
                    found.append(process)
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)  # noqa: TID251 - the kernel needs a moment to bury them


def until(run, job, *states):
    """The job's row once it is in one of these states."""
    end = time.monotonic() + 60
    while True:
        row = json.loads(run("show", job, "-o", "json").stdout)["job"]
        if row["state"] in states:
            return row
        assert time.monotonic() < end, row


def test_the_first_minutes(box):
    assert json.loads(box("submit", "-o", "json", "-g", 4, "--", "sleep", 300).stdout)["id"] == 1
    shown = box("submit", "-g", 4, "--time", "1m", "--name", "second", "--", "sleep", 300).stdout
    assert shown.startswith("2 second  pending  starts ")
    until(box, 1, "running")
    lines = box("ps").stdout.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATE", "GPUS", "MEMBERS", "TIME", "INFO"]
    assert [line.split()[:3] for line in lines[1:]] == [["1", "sleep", "running"], ["2", "second", "pending"]]
    why = box("why", "sec").stdout
    assert "  BLOCKED BY  Capacity\n" in why
    assert "  STARTS      " in why
    told = json.loads(box("why", 2, "-o", "json").stdout)
    assert {"id", "state", "reason", "blockers", "ahead", "eta", "sooner_if"} <= set(told)
    assert told["reason"]["code"] == "Capacity"
    assert json.loads(box("submit", "--dry-run", "-o", "json", "-g", 1, "true").stdout)["state"] == "pending"
    refused = box("submit", "-g", 99, "--", "true", code=4)
    assert "phalanx: error: " in refused.stderr
    assert "  next: " in refused.stderr
    assert "no queue 'nope'" in box("submit", "-q", "nope", "true", code=2).stderr
    assert box("why", 77, code=3).stdout == ""
    box("hold", 2)
    box("edit", 2, "--priority", 3, "--time", "2m")
    box("release", 2)
    box("cancel", 1)
    assert until(box, 2, "running")["priority"] == 3
    for verb in ("nodes", "queues", "share", "report", "gantt", "top", "status", "config show", "report eta"):
        assert box(*verb.split()).stdout
    box("cancel", "second")
    assert until(box, 2, "cancelled")["ended"]
    assert box("wait", 2, code=1).stdout == ""


def test_a_date_takes_what_it_needs_and_everybody_is_told_why(box, tmp_path):
    """Twenty minutes of work for one, in nine: three of four do it, and the other job had all of them."""
    toy = [sys.executable, "-m", "phalanx.elastic.toy"]
    box(
        "submit",
        "-g",
        "1:4",
        "--name",
        "sweep",
        "--time",
        "20m",
        "--",
        *toy,
        tmp_path / "a",
        "--items",
        4800,
        "--seconds",
        1,
    )
    until_said(box, 1, "start")
    paper = ["--time", "5m", "--deadline", "9m", "--", *toy, tmp_path / "b", "--items", 1200, "--seconds", 1]
    box("submit", "-g", "1:4", "--name", "paper", *paper)
    # At its share from the first: what it takes to start it, and what its date needs, is called back in one plan.
    assert until_said(box, 2, "start")["members"] == 3
    given = [each["data"] for each in decisions(box, 1) if each["event"] == "shrink"]
    assert [(each["cause"], each["for"], each["because"]) for each in given] == [
        ("loan", 2, "gives 3 back so that job 2 can start"),
    ]
    why = box("why", 2).stdout
    assert "\n  SURPLUS     its date " in why
    assert " needs 3 members; it has 3\n" in why
    told = json.loads(box("why", 1, "-o", "json").stdout)["surplus"]
    assert told["sentences"][0] == "it has no date, and so no share of its own"


def decisions(run, job):
    return json.loads(run("why", job, "-o", "json").stdout)["decisions"]


def until_said(run, job, event):
    """What was said of this event once it has happened."""
    end = time.monotonic() + 60
    while True:
        told = [each["data"] for each in decisions(run, job) if each["event"] == event]
        if told:
            return told[0]
        assert time.monotonic() < end, (job, event)


#: Rank 1 fails when rank 0 has printed, and not before: the first failure ends the whole gang.
RANKS = """
import os, pathlib, sys, time
rank, told = int(os.environ["RANK"]), pathlib.Path(os.environ["PHALANX_JOB"])
while rank == 1 and not told.exists():
    time.sleep(0.05)
print(rank, os.environ["WORLD_SIZE"], flush=True)
told.touch()
sys.exit(rank * 3)
"""


def test_output_and_exit_codes(box):
    code = RANKS
    done = box("run", "-g", 2, "--", sys.executable, "-c", code, code=3)
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2", "[1] 1 2"]
    assert "rank 1 failed first (exit code 3)" in done.stderr
    assert sorted(box("logs", 1).stdout.splitlines()) == ["[0] 0 2", "[1] 1 2"]
    assert "rank 1" in box("why", 1).stdout
    accepted = json.loads(box("retry", 1, "-o", "json").stdout)
    assert box("wait", accepted["id"], code=3).stdout == ""
    array = json.loads(
        box("submit", "-o", "json", "--array", "4-6%2", "--", "sh", "-c", "echo $PHALANX_ARRAY_INDEX").stdout
    )
    assert box("wait", *(job["id"] for job in array)).stdout.count("completed") == 3
    assert [box("logs", job["id"]).stdout for job in array] == ["4\n", "5\n", "6\n"]
    each = json.loads(box("submit", "-o", "json", "-g", "0.5", "--each", text="echo one\nfalse\n").stdout)
    assert box("wait", *(job["id"] for job in each), code=1)


def test_a_job_survives_its_daemon_and_who_follows_it_does_too(box, home):
    box("submit", "-g", 1, "--name", "long", "--", "sh", "-c", "echo begun; sleep 2; echo done")
    until(box, "long", "running")
    follower = subprocess.Popen(
        [sys.executable, "-c", "from phalanx.cli import main; main()", "logs", "-f", "long"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "begun\n"
        assert box("down").stdout == "down; running jobs go on\n"
        box("ps", code=5)
        box("up", "--fake-gpus", "4")
        assert follower.communicate(timeout=60)[0] == "done\n"
        assert follower.returncode == 0
    finally:
        follower.kill()
        follower.wait(30)
        if follower.stdout is not None:
            follower.stdout.close()
    assert box("wait", "long").stdout == "1 long completed\n"


def test_logs_of_a_job_that_has_not_started_are_waited_for(box):
    box("submit", "-g", "4", "--", "sleep", "2")
    box(
        "submit",
        "-g",
        "2",
        "--",
        sys.executable,
        "-c",
        'import os; print(os.environ["RANK"], os.environ["WORLD_SIZE"])',
    )
    done = box("logs", "2")
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2", "[1] 1 2"]
    assert "2 has not started" in done.stderr


def test_made_up_gpus_are_remembered_until_the_real_ones_are_wanted(box):
    for words, fake in ((("up",), True), (("up", "--real-gpus"), False), (("up",), False)):
        box("down")
        box(*words)
        assert json.loads(box("status", "-o", "json").stdout)["fake"] is fake


def test_tokens_are_issued_once_listed_without_their_text_and_revoked(box):
    issued = box("token", "issue", "--scope", "submit", "--life", "8h", "--note", "notebook")
    text = issued.stdout.strip()
    assert text.startswith("phx_")
    listed = box("token", "list").stdout
    assert "submit" in listed
    assert "notebook" in listed
    assert text not in listed
    identifier = listed.split()[0]
    assert identifier in issued.stderr
    box("token", "revoke", identifier)
    assert not box("token", "list").stdout
    box("token", "revoke", identifier, code=3)
    box("token", "issue", "--life", "soon", code=2)
