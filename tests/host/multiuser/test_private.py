"""What others learn of a job: that it is there, not how it was started or what it wrote.

Every readable thing is looked through for words that only ada knows: all routes, the stream of events, the commands,
the files of the state directory; before and after the daemon has forgotten everything but the disk.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import sys
from pathlib import Path

import pytest
from people import ADA, BOB, CAI, acting_as
from realdaemon import HELD, LIMIT_S, until

from phalanx.frontends.host.api.routes import ROUTES

ARGUMENT, VARIABLE, FOLDER, PRINTED = "argument-canary", "variable-canary", "folder-canary", "printed-canary"
SECRETS = (ARGUMENT, VARIABLE, FOLDER, PRINTED)
JOB_FIELDS = ("command", "cwd", "env", "run_dir")
QUERIES = {
    "/v1/jobs": ["?all=1&finished=1", "?user=ada&finished=1", "?all=1&state=failed,running&finished=1"],
    "/v1/report": ["?by=user,queue,job"],
    "/v1/gantt": ["?past_s=86400"],
    "/v1/jobs/{ref}": ["?env=1"],
    "/v1/jobs/{ref}/wait": ["?timeout_s=0"],
}
CLI = str(Path(sys.executable).with_name("phalanx"))


def submit_secret(ada, script, **options):
    folder = ada.homes[ADA] / FOLDER
    env = {"PATH": os.environ["PATH"], "TOKEN": VARIABLE, "REAL_DAEMON_MARK": ada.mark, "STARTS": str(ada.starts_file)}
    run = {"cwd": str(folder), "env": env, **options.pop("run", {})}
    return ada.submit(f"# {ARGUMENT}\n{script}", 1, name="visible", run=run, **options)


@pytest.fixture(scope="module")
def house(_able):
    """A daemon with a job of ada's of each kind, and the ids of those."""
    from people import SharedDaemon

    daemon = SharedDaemon(gpus=4)
    try:
        daemon.start()
        ada = daemon.by(ADA)
        (daemon.homes[ADA] / FOLDER).mkdir(mode=0o700)
        os.chown(daemon.homes[ADA] / FOLDER, ADA, ADA)
        failing = f"echo {PRINTED}; exit 3"
        jobs = [submit_secret(ada, failing), submit_secret(ada, failing, run={"restarts": 1})]
        jobs.append(submit_secret(ada, f"echo {PRINTED}; kill -9 $$"))
        for job in jobs:
            assert ada.wait(job)["state"] == "failed"
        running = submit_secret(ada, f"echo {PRINTED}; {HELD}")
        ada.wait_started(running, 1)
        held = submit_secret(ada, "true", hold=True)
        until(lambda: PRINTED in ada.call("GET", f"/v1/jobs/{running}/logs").body, "its log")
        yield daemon, [*jobs, running, held]
    finally:
        daemon.close()


def read_everything(person, jobs):
    """Answer by path, of every route that can be read."""
    found = {}
    for route in ROUTES:
        if route.method != "GET" or route.path == "/v1/events":
            continue
        refs = [str(job) for job in jobs] if "{ref}" in route.path else [""]
        for ref in refs:
            for query in ["", *QUERIES.get(route.path, [])]:
                if route.path.endswith("/wait") and not query:
                    continue
                path = route.path.replace("{ref}", ref) + query
                found[path] = json.dumps(person.call("GET", path).body)
    found["events"] = read_events(person, jobs)
    return found


def read_events(person, jobs):
    """The stream of events from the beginning, up to the last that happened to these jobs."""
    last = max(each["seq"] for job in jobs for each in person.get(f"/v1/jobs/{job}")["history"] or [{"seq": 0}])
    with acting_as(person.uid):
        line = socket.socket(socket.AF_UNIX)
        line.connect(person.socket)
    with line:
        line.sendall(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        line.settimeout(LIMIT_S)
        text = b""
        while b"id: %d\n" % last not in text or not text.endswith(b"\n\n\r\n"):
            text += line.recv(65536)
    return text.decode()


def find_secrets(found):
    return {path: [word for word in SECRETS if word in text] for path, text in found.items()}


def check_nothing_private(daemon, jobs, uid):
    found = read_everything(daemon.by(uid), jobs)
    assert len(found) > 30
    leaks = {path: words for path, words in find_secrets(found).items() if words}
    assert not leaks, leaks
    for job in jobs:
        detail = json.loads(found[f"/v1/jobs/{job}?env=1"])
        assert {field: detail[field] for field in JOB_FIELDS} == dict.fromkeys(JOB_FIELDS)


def test_another_user_reads_nothing_private(house):
    daemon, jobs = house
    check_nothing_private(daemon, jobs, BOB)


@pytest.mark.parametrize("uid", [ADA, CAI, 0])
def test_the_owner_and_administrators_read_it_all(house, uid):
    """The other half: were the words not to be found at all, nobody would learn anything from the test above."""
    daemon, jobs = house
    told = find_secrets(read_everything(daemon.by(uid), jobs))
    assert set(told[f"/v1/jobs/{jobs[0]}?env=1"]) == set(SECRETS)
    assert set(told[f"/v1/jobs/{jobs[0]}"]) == {*SECRETS} - {VARIABLE}, "an environment is for who asks for it"
    assert PRINTED in told[f"/v1/jobs/{jobs[0]}/logs"]
    assert PRINTED in told["/v1/jobs?all=1&finished=1"]
    assert PRINTED in told[f"/v1/jobs/{jobs[0]}/why"]
    assert PRINTED in told["events"]


@pytest.mark.parametrize(
    "words", ["ps -a", "ps -a --finished", "show {}", "why {}", "report", "share", "gantt", "nodes"]
)
def test_commands_show_nothing_private(house, words):
    daemon, jobs = house
    bob = daemon.by(BOB)
    for job in (jobs[1], jobs[3]) if "{}" in words else jobs[:1]:
        done = bob.run(CLI, *words.format(job).split(), PHALANX_HOME=str(daemon.state))
        assert done.returncode == 0, done
        told = done.stdout + done.stderr
        assert not [word for word in SECRETS if word in told], told


def test_commands_of_another_user_do_nothing(house):
    daemon, jobs = house
    bob = daemon.by(BOB)
    for words in ("cancel {}", "logs {}", "hold {}", "preempt --drill {}"):
        done = bob.run(CLI, *words.format(jobs[3]).split(), PHALANX_HOME=str(daemon.state))
        assert done.returncode == 1, done
        assert "belongs to ada" in done.stderr
        assert not [word for word in SECRETS if word in done.stdout + done.stderr]
    assert daemon.row(jobs[3])["state"] == "running"


# ---------------------------------------------------------------------- files

LOOK = """
import json, os, socket, sys
told = {"read": [], "written": [], "listed": [], "connected": []}
for path in sys.stdin.read().splitlines():
    for key, work in {
        "read": lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)),
        "written": lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)),
        "listed": lambda: os.listdir(path),
        "connected": lambda: socket.socket(socket.AF_UNIX).connect(path),
    }.items():
        try:
            work()
        except OSError:
            continue
        told[key].append(path)
print(json.dumps(told))
"""


def list_files(folder):
    return [str(folder), *map(str, sorted(folder.rglob("*")))]


def look(person, paths):
    done = person.run(sys.executable, "-I", "-S", "-c", LOOK, text="\n".join(paths))
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_files_of_the_daemon_are_nobodys(house):
    """Database, backups, keys, logs, journals: bob opens the socket and the note that says where it is, nothing else."""
    daemon, _ = house
    daemon.stop()
    daemon.start()  # leaves a backup, and a run that was adopted
    paths = list_files(daemon.state)
    names = {Path(path).name for path in paths}
    assert {"phalanx.db", "backups", "key", "launch.json", "journal", "rank-0.log", "control.sock", "job.sock"} <= names
    assert any(re.fullmatch(r"\d+-.*\.db", name) for name in names), names
    assert stat.S_IMODE((daemon.state / "backups").stat().st_mode) == 0o700
    assert look(daemon.by(BOB), paths) == {
        "read": [str(daemon.state / "daemon.json")],
        "written": [],
        "listed": [],
        "connected": [str(daemon.state / "phalanx.sock")],
    }


def test_the_owner_has_the_run_directory_and_no_more(house):
    daemon, jobs = house
    runs = daemon.state / "runs"
    paths = list_files(daemon.state)
    told = look(daemon.by(ADA), paths)
    mine = [path for path in paths if re.match(rf"{runs}/({'|'.join(map(str, jobs))})\.\d+", path)]
    assert set(told["read"]) - set(mine) == {str(daemon.state / "daemon.json")}
    assert set(told["written"]) <= set(mine)
    assert f"{runs}/{jobs[0]}.1/key" in told["read"]
    assert f"{runs}/{jobs[0]}.1/lock" not in told["read"]  # else she could pass for a living shim


def test_modes_and_owners(house):
    daemon, jobs = house
    state = daemon.state

    def facts(*names):
        about = state.joinpath(*names).lstat()
        return oct(stat.S_IMODE(about.st_mode)), about.st_uid

    assert facts() == ("0o711", 0)
    assert facts("runs") == ("0o711", 0)
    assert facts("runs", ".live") == ("0o700", 0)
    assert facts("phalanx.sock") == ("0o666", 0)
    assert facts("daemon.json") == ("0o644", 0)
    for name in ("phalanx.db", "lock", "ballast"):
        assert facts(name) == ("0o600", 0), name
    run = f"{jobs[0]}.1"
    assert facts("runs", run) == ("0o700", ADA)
    for name in ("key", "launch.json", "journal", "shim.log", "logs/rank-0.log"):
        assert facts("runs", run, name) == ("0o600", ADA), name
    assert facts("runs", run, "lock") == ("0o600", 0)


def test_nothing_private_after_the_daemon_has_forgotten(house):
    """What ended before a restart comes from the disk, by another way than what is in memory."""
    daemon, jobs = house
    daemon.restart()
    check_nothing_private(daemon, jobs, BOB)
    told = find_secrets(read_everything(daemon.by(ADA), jobs))
    assert PRINTED in told["/v1/jobs?all=1&finished=1"]
