"""The verbs against the real daemon, as the first minutes of somebody who tries it."""

import contextlib
import http.client
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

sys.path.append(str(Path(__file__).parents[2]))  # import-mode=importlib leaves it out

from selection import rest_long


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
    assert shown.startswith("2 second  pending  4 ranks × 1 GPU  starts ")
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
    end = time.monotonic() + 60
    # It counts as elastic once its members have said so, which is a moment after its start.
    while "\n  SURPLUS     " not in (why := box("why", 2).stdout):
        assert time.monotonic() < end, why
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


def test_logs_and_reports_are_read_while_the_daemon_is_down(box, home):
    box("submit", "-g", 2, "--name", "pair", "--", "sh", "-c", "echo hello $RANK; sleep 0.3")
    box("submit", "-n", 1, "-g", 4, "--name", "long", "--", "sh", "-c", "echo begun; sleep 300")
    box("wait", "pair")
    until(box, "long", "running")
    report, logs = box("report", "--by", "job", "--json").stdout, box("logs", "pair").stdout
    (known,) = (
        [row for row in json.loads(report)["rows"] if row["job"] == 1]
        if "rows" in report
        else [row for row in json.loads(report) if row["job"] == 1]
    )
    box("down")
    before = {path.name: path.stat().st_mtime_ns for path in home.iterdir() if path.name.startswith("phalanx.db")}
    done = box("logs", "pair")
    assert done.stdout == logs
    assert "the daemon is down; this is what" in done.stderr
    assert box("logs", "long").stdout == "begun\n"
    assert box("logs", "1", "--rank", "1", "--tail", "1").stdout == "hello 1\n"
    assert known in json.loads(box("report", "--by", "job", "--json").stdout)
    assert box("report", "eta").returncode == 0
    assert "there is no job 'nobody'" in box("logs", "nobody", code=3).stderr
    assert before == {
        path.name: path.stat().st_mtime_ns for path in home.iterdir() if path.name.startswith("phalanx.db")
    }


#: What somebody does, and what is printed with a next step; every command of it must work then. `{long}` is a job that runs.
WRONG = {
    "hold 1": "a running job cannot be held",
    "edit 1 --priority 3": "a running job cannot be edited",
    "release 2": "it is not on hold",
    "resize 1 2": "it has one size",
    "retry nobody": "there is none",
    "logs 1 --attempt 9": "there was none",
    "submit -q nope true": "there is no such queue",
    "submit -g 99 true": "there are not so many",
    "nodes --columns nope": "there is no such column",
}


@pytest.mark.parametrize("words", rest_long(WRONG, short=2))
def test_the_next_step_that_is_printed_works(box, words):
    """Only those that can be typed as they stand; what is written with a name in capitals is a pattern."""
    box("submit", "-n", 1, "-g", 4, "--requeue", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 300 & wait")
    until(box, 1, "running")
    box("submit", "-g", 2, "--", "sleep", 300)
    refused = subprocess.run(
        [sys.executable, "-m", "phalanx", *words.split()], capture_output=True, text=True, check=False, timeout=60
    )
    assert refused.returncode != 0, words
    (hint,) = [line.removeprefix("  next: ") for line in refused.stderr.splitlines() if line.startswith("  next: ")]
    commands = [each.strip(" .") for each in re.findall(r"phalanx ([a-z]+[^;,()&]*)", hint)]
    assert commands or hint.startswith(("choose of ", "leave it out")), hint
    for command in reversed(commands):  # what ends a job is named first
        done = subprocess.run(
            [sys.executable, "-m", "phalanx", *command.split()], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, (hint, command, done.stderr)


def test_functions_of_scripts_are_run_and_return(box, home):
    script = home.parent / "train.py"
    script.write_text(
        "import os, phalanx\n"
        "def train(lr, steps=1):\n    return {'rank': int(os.environ['RANK']), 'loss': lr * steps}\n"
        "def broken():\n    raise ValueError('no data')\n"
        "if __name__ == '__main__':\n"
        "    job = phalanx.submit(train, gpus=2, args=[0.5], kwargs={'steps': 4})\n"
        "    print(job.result(60), job.result(rank=1)['rank'])\n"
        "    try:\n        phalanx.submit(broken, gpus=1).result(60)\n"
        "    except Exception as bad:\n        print('no data' in str(bad))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("{'rank': 0, 'loss': 2.0} 1\nTrue\n", 0), done.stderr


def test_what_if_of_the_daemon_as_it_stands(box, home):
    box("submit", "-g", 4, "--time", "10m", "--name", "first", "--", "sleep", 300)
    box("submit", "-g", 2, "--time", "5m", "--name", "second", "--", "sleep", 300)
    until(box, "first", "running")
    told = json.loads(box("what-if", "--submit", "-g 1 --time 1m --name quick", "--json").stdout)
    assert [gang["name"] for gang in told["gangs"]] == ["1", "2", "new quick"]
    quick = told["gangs"][-1]["after"]
    assert told["gangs"][-1]["state"] == "new"
    assert quick["end_s"] - quick["start_s"] == 60
    told = json.loads(box("what-if", "--cancel", "first", "--json").stdout)
    assert told["starts_now"] == {"before": [], "after": ["2"]}
    shown = box("what-if", "--add-nodes", "1x4").stdout
    assert shown.startswith("now, policy goodput: add nodes 1x4\n")
    assert re.search(r"^2 second +pending +\+9m\S+ +now ", shown, re.MULTILINE), shown
    file = home.parent / "state.json"
    assert box("what-if", "-o", file).stdout == f"state: {file}\n"
    assert json.loads(box("what-if", file, "--cancel", "1", "--json").stdout)["starts_now"]["after"] == ["2"]
    assert json.loads(box("ps", "--json").stdout)[0]["state"] == "running", "nothing was changed"
    assert "there is no job 'nobody'" in box("what-if", "--cancel", "nobody", code=3).stderr
    assert "no number of GPUs" in box("what-if", "--submit", "-g nix", code=2).stderr


def test_an_array_is_taken_in_whole_or_not_at_all(box, monkeypatch):
    """With 20 KB of environment it was five requests: 8,980 elements were queued, and then the last was refused."""
    monkeypatch.setenv("BIG", "x" * 20_000)
    box("submit", "-g", 1, "--hold", "true")
    done = box("submit", "-g", 1, "--hold", "--name", "arr", "--array", "0-9999", "true", code=1)
    assert "would have 10001 jobs that have not ended, the most is 10000" in done.stderr
    assert [row["id"] for row in json.loads(box("ps", "-a", "--json").stdout)] == [1]
    told = json.loads(
        box("submit", "-g", 1, "--hold", "--name", "arr", "--array", "0-99", "--json", "--", "env").stdout
    )
    assert [job["id"] for job in told] == list(range(2, 102))
    box("release", 2, 101)
    for job in (2, 101):
        box("wait", job)
        lines = box("logs", job).stdout.splitlines()
        assert "BIG=" + "x" * 20_000 in lines
        assert f"PHALANX_ARRAY_INDEX={job - 2}" in lines


def ask(line, home, port, token):
    """What a `curl` of the documents would be answered: the status, and the text."""
    words = shlex.split(line)[1:]
    headers = dict(words[at + 1].split(": ") for at, word in enumerate(words) if word == "-H")
    url = urlsplit(words[-1])
    if "--unix-socket" in words:
        connection = http.client.HTTPConnection(url.netloc, timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(home / "phalanx.sock"))
    else:
        connection = http.client.HTTPConnection(url.hostname, port, timeout=30)
        headers["Authorization"] = f"Bearer {token}"
    with contextlib.closing(connection):
        connection.request("GET", url.path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_requests_and_job_files_in_documents_are_answered(box, home):
    """The first example of the HTTP API was refused for its host, and the file of gangs for a gang without members."""
    docs = Path(__file__).parents[3] / "docs"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    box("down")
    box("up", "--tcp", f"127.0.0.1:{port}")
    token = box("token", "issue", "--scope", "read").stdout.split()[0]
    lines = re.findall(r"^curl .*", (docs / "http-api.md").read_text(), re.MULTILINE)
    assert [ask(line, home, port, token)[0] for line in lines] == [200] * 2
    _, metrics = ask(lines[0].replace("/v1/jobs", "/metrics"), home, port, token)
    row = re.search(r"^\| `phalanx_gpus`.*", (docs / "metrics.md").read_text(), re.MULTILINE)[0]
    states = set(re.findall(r'phalanx_gpus\{.*?state="(\w+)"', metrics))
    assert states | {"allocated"} == set(
        re.findall(r"\w+", row.partition("do:")[2].replace("(to jobs of a queue)", ""))
    )
    text = re.search(r"^```yaml\n(.*?)^```$", (docs / "job-files.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    (home.parent / "jobs.yaml").write_text(text.replace("python", sys.executable).replace("cpu: 4", "cpu: 1"))
    told = json.loads(box("submit", "--dry-run", "--json", "jobs.yaml").stdout)
    assert [(job["name"], job["state"]) for job in told] == [("data", "pending"), ("train", "pending")]
