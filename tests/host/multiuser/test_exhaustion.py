"""One user asks for everything at once; another's requests are answered all the same."""

from __future__ import annotations

import contextlib
import json
import socket
import sys

import pytest
from people import ADA, BOB, DEE, SharedDaemon, acting_as
from realdaemon import HELD, LIMIT_S, MARK, until

STORM = r"""
import socket, sys, threading
path, idle, clients, requests = sys.argv[1], *map(int, sys.argv[2:])
held = []
for _ in range(idle):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(30)
    try:
        line.connect(path)
    except OSError:
        break
    held.append(line)
print("connected", flush=True)
sys.stdin.readline()
codes = []
def ask():
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(30)
    try:
        line.connect(path)
        file = line.makefile("rb")
        for _ in range(requests):
            line.sendall(b"GET /v1/jobs?all=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, length = file.readline(), 0
            while (head := file.readline()) not in (b"\r\n", b""):
                if head.lower().startswith(b"content-length"):
                    length = int(head.split(b":")[1])
            file.read(length)
            codes.append(status[9:12].decode())
            if not status:
                return
    except OSError:
        codes.append("cut off")
threads = [threading.Thread(target=ask) for _ in range(clients)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*sorted(set(codes)), len(codes), flush=True)
"""


@pytest.fixture
def storm():
    """Starts processes that storm a daemon as somebody; ended after the test."""
    with contextlib.ExitStack() as stack:

        def start(person, *, idle=0, clients=0, requests=0):
            words = [person.socket, *map(str, (idle, clients, requests))]
            process = stack.enter_context(person.beside(STORM, *words))
            assert process.stdout.readline() == b"connected\n"
            return process

        yield start


def is_served(person):
    """Whether somebody's everyday requests are answered."""
    job = person.submit("true", 1)
    listed = [row["id"] for row in person.get("/v1/jobs")["jobs"]]
    assert job in listed
    assert person.act(job, "cancel").status == 200
    return True


def test_connections_that_say_nothing(shared, storm):
    """200 of ada's leave room for bob, and for root to look."""
    storm(shared.by(ADA), idle=200)
    assert is_served(shared.by(BOB))
    assert shared.call("GET", "/v1/status").status == 200
    assert b"429" in send_raw(shared, ADA, b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")


@pytest.mark.long
def test_thousands_of_requests(shared, storm):
    process = storm(shared.by(ADA), clients=20, requests=250)
    process.stdin.write(b"\n")
    process.stdin.flush()
    bob, served = shared.by(BOB), 0
    while process.poll() is None:
        assert is_served(bob)
        served += 1
    told = process.stdout.read().split()
    assert served
    assert told[-1] == b"5000"
    assert set(told[:-1]) <= {b"200", b"429"}


def send_raw(daemon, uid, head, body=b"", *, times=1):
    """The first line of the answer to bytes as they are, or nothing if the daemon hung up before one."""
    with acting_as(uid):
        line = socket.socket(socket.AF_UNIX)
        line.connect(daemon.socket)
    line.settimeout(LIMIT_S)
    with line:
        try:
            line.sendall(head)
            for _ in range(times):
                line.sendall(body)
        except OSError:
            pass  # it does not want all of that; the answer says why
        try:
            return line.recv(65536).split(b"\r\n")[0]
        except OSError:
            return b""


def test_bodies_without_end(shared):
    """Refused by their size before any of it is kept."""
    line = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
    block = b" " * (1 << 20)
    assert b"413" in send_raw(shared, ADA, line + b"Content-Length: 1000000000000\r\n\r\n", block, times=4)
    chunk = b"100000\r\n" + block + b"\r\n"
    assert b"413" in send_raw(shared, ADA, line + b"Transfer-Encoding: chunked\r\n\r\n", chunk, times=8)
    assert b"413" in send_raw(shared, ADA, b"GET /v1/status HTTP/1.1\r\n", b"X: " + b"x" * 1000 + b"\r\n", times=2000)
    assert is_served(shared.by(BOB))


def test_gangs_of_blanks_are_not_remembered(shared):
    """JSON may hold as much nothing as one likes; the daemon must not."""
    ada = shared.by(ADA)
    plain = ada.submission("true", 1)
    fat = json.dumps(plain["gang"])[:-1] + " " * 900_000 + "}"
    body = ('{"gang":' + fat + ',"run":' + json.dumps(plain["run"]) + "}").encode()
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = send_raw(shared, ADA, head, body)
    assert b" 400 " in answer or b" 413 " in answer, answer


def test_a_job_that_prints_without_end_has_an_end(shared):
    """The cap is the daemon's, whatever the job asks for."""
    ada = shared.by(ADA)
    job = ada.submit("head -c 300000 /dev/zero | tr '\\0' x", 1, run={"log_cap_bytes": 16384})
    assert ada.wait(job)["state"] == "completed"
    folder = shared.state / "runs" / f"{job}.1" / "logs"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000


# ---------------------------------------------------------------------- beside a daemon that may break


@pytest.fixture(scope="module")
def stormed(_able):
    """A daemon for what a broken one would not survive; progress is looked for often."""
    before = "import phalanx.frontends.host.core.progress_reading as reading; reading.READ_EVERY_S = 0.2"
    daemon = SharedDaemon(gpus=6, before=before)
    try:
        yield daemon.start()
    finally:
        daemon.close()


@pytest.mark.long
def test_ten_thousand_jobs(stormed):
    """As many as one may have, and not one more; nobody else has fewer for that."""
    dee, bob = stormed.by(DEE), stormed.by(BOB)
    many = [{**dee.submission("true", 1, hold=True), "name": f"n{number}"} for number in range(10_000)]
    reply = dee.call("POST", "/v1/jobs", {"jobs": many})
    assert reply.status == 200, reply
    assert len(reply["jobs"]) == 10_000
    more = dee.post(many[0])
    assert (more.status, more["error"]["code"]) == (429, "too_many")
    assert is_served(bob)
    job = bob.submit("true", 1)
    assert bob.call("GET", f"/v1/jobs/{job}/why").status == 200
    assert bob.wait(job)["state"] == "completed"
    for path in ("/v1/gantt", "/v1/nodes", "/v1/queues", "/v1/share", "/metrics"):
        assert bob.call("GET", path).status == 200, path


def test_a_pattern_that_takes_for_ever(stormed):
    """Progress is found with the job's own pattern in the job's own words: both may be made to take for ever."""
    ada, bob = stormed.by(ADA), stormed.by(BOB)
    words = f"echo {'a' * 60}b; for n in inf nan 1e999 {'9' * 400}; do echo step $n of $n; done; {HELD}"
    jobs = []
    for pattern in ("(?P<step>(a|a)+)+$", r"step (?P<step>\S+) of (?P<total>\S+)", r"(?P<step>.*)*(?P<total>.*)*!"):
        reply = ada.post(ada.submission(words, 1, run={"progress_regex": pattern}))
        assert reply.status in (200, 400), reply  # a pattern may be refused, and the next one is tried
        if reply.status == 200:
            jobs.append(reply["id"])
            ada.wait_started(reply["id"], 1)
    his = bob.submit(f"echo step 7; {HELD}", 1, run={"progress_regex": r"step (?P<step>\d+)"})
    bob.wait_started(his, 1)
    until(lambda: (bob.row(his)["progress"] or {}).get("step") == 7, lambda: f"bob's progress\n{stormed.log()}")
    assert is_served(bob)
    for job in (*jobs, his):
        assert stormed.act(job, "cancel").status == 200
        stormed.wait(job)


SAY = """
import sys, time
from phalanx import elastic
job = elastic.join()
while True:
    job._send({"type": "status", "step": 1, "total": int(sys.argv[1]), "rate": float(sys.argv[2]), "saved_step": 1, "saved_age_s": 1e9})
    time.sleep(0.05)
"""


def test_progress_beyond_all_bounds(stormed):
    """What a job says of itself goes into everybody's forecast."""
    ada, bob = stormed.by(ADA), stormed.by(BOB)
    for total, rate in ((9_223_372_000_000, 1.0), (2**53 - 1, 1e-300), (2**53 - 1, 1e300)):
        command = [sys.executable, "-c", SAY, str(total), str(rate)]
        mine = ada.submit(command, {"min": 6, "max": 6}, run={"env": {"PATH": "/usr/bin:/bin", MARK: stormed.mark}})
        until(lambda mine=mine: ada.row(mine)["progress"] is not None, "its progress")
        his = bob.submit("true", 1)
        for path in (
            f"/v1/jobs/{his}/why",
            f"/v1/jobs/{mine}/why",
            "/v1/gantt",
            "/v1/jobs?user=bob",
            "/metrics",
            "/v1/share",
        ):
            assert bob.call("GET", path).status == 200, (path, stormed.log())
        ada.act(mine, "cancel")
        assert bob.wait(his)["state"] == "completed"
