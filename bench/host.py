"""A private daemon to measure, and clients that cost little.

They speak raw HTTP over the unix socket from one process, so that what is measured is the daemon and not them.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast


@contextmanager
def daemon(state: Path) -> Iterator[tuple[int, str]]:
    """A private daemon with eight made-up GPUs, all of them busy."""
    process = _start(state)
    path = str(state / "phalanx.sock")
    try:
        _call(path, _request(hold=False, members=8, command=["sleep", "600"]))
        yield process.pid, path
    finally:
        _call(path, b"POST /v1/jobs/1/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _start(state: Path) -> subprocess.Popen[bytes]:
    state.mkdir(exist_ok=True, mode=0o700)
    env = {**os.environ, "PHALANX_MAX_QUEUED_PER_USER": "1000000"}
    command = [sys.executable, "-m", "phalanx.frontends.host", "--state", str(state), "--fake-gpus", "8"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not _answers(str(state / "phalanx.sock")):
        if process.poll() is not None:
            raise RuntimeError((state / "daemon.log").read_text()[-2000:])
        time.sleep(0.02)
    return process


def _answers(path: str) -> bool:
    try:
        _call(path, b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    except OSError:
        return False
    return True


def fsyncs_per_s(folder: Path) -> float:
    """How often this disk can promise something."""
    handle = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    began = time.perf_counter()
    for _ in range(500):
        os.write(handle, b"x" * 4096)
        os.fdatasync(handle)
    os.close(handle)
    return 500 / (time.perf_counter() - began)


def _job(*, hold: bool, members: int, command: list[str]) -> dict[str, object]:
    env = {f"VARIABLE_{at}": "some value of a usual length" for at in range(20)}
    return {
        "gang": {"members": members, "each": {"gpu": 1}, "walltime": "1h"},
        "run": {"command": command, "cwd": "/tmp", "env": env},
        "hold": hold,
    }


def _request(*, hold: bool, members: int = 4, command: list[str] | None = None) -> bytes:
    return _post(_job(hold=hold, members=members, command=command or ["python", "train.py"]))


def _post(body: object) -> bytes:
    text = json.dumps(body).encode()
    return b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def _call(path: str, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(path)
        one.sendall(request)
        return _answer(one)


def _answer(one: socket.socket) -> bytes:
    data = b""
    while True:
        piece = one.recv(1 << 20)
        if not piece:
            raise ConnectionError("the daemon hung up")
        data += piece
        head, gap, body = data.partition(b"\r\n\r\n")
        if gap:
            wanted = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(body) >= wanted:
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(data[:500].decode())
                return body


def submits_per_s(path: str, clients: int, count: int) -> float:
    """Submits a second, each client waiting for its answer before it sends the next."""
    request, chooser, sent = _request(hold=False), selectors.DefaultSelector(), 0
    for _ in range(clients):
        one = socket.socket(socket.AF_UNIX)
        one.connect(path)
        chooser.register(one, selectors.EVENT_READ)
    began = time.perf_counter()
    open_ = [key.fileobj for key in chooser.get_map().values()]
    for one in open_:
        one.sendall(request)  # type: ignore[union-attr]
        sent += 1
    answered = 0
    while answered < count:
        for key, _ in chooser.select():
            one = key.fileobj
            assert isinstance(one, socket.socket)
            _answer(one)
            answered += 1
            if sent < count:
                one.sendall(request)
                sent += 1
    took = time.perf_counter() - began
    for one in open_:
        one.close()  # type: ignore[union-attr]
    return count / took


def batch_s(path: str, count: int) -> float:
    """One request with so many jobs."""
    body = {"jobs": [_job(hold=False, members=4, command=["python", "train.py", str(at)]) for at in range(count)]}
    request = _post(body)
    began = time.perf_counter()
    _call(path, request)
    return time.perf_counter() - began


def fill_mixed(path: str, count: int) -> None:
    """So many waiting jobs of many sizes and times, some of them preemptible: alike ones would flatter every plan."""
    jobs = []
    for at in range(count):
        job = _job(hold=False, members=(1, 1, 1, 2, 2, 4, 8)[at % 7], command=["python", "train.py"])
        job["gang"] = {
            **cast("dict[str, object]", job["gang"]),
            "walltime": f"{1 + at % 97}m",
            "preemptible": at % 5 == 0,
        }
        jobs.append(job)
    _call(path, _post({"jobs": jobs}))
    _settle(path)


def _settle(path: str) -> None:
    """Until the daemon has told everybody's place once, and knows them all."""
    _call(path, b"GET /v1/jobs?all=1&limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(2)


def cancels_s(path: str, first: int, count: int) -> float:
    """So many jobs cancelled one after the other, on one connection."""
    began = time.perf_counter()
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
        for job in range(first, first + count):
            one.sendall(b"POST /v1/jobs/%d/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}" % job)
            _answer(one)
    return time.perf_counter() - began


def why_s(path: str, pid: int, job: int) -> float:
    """Processor time of the daemon for one `why`."""
    before = cpu_s(pid)
    _call(path, b"GET /v1/jobs/%d/why HTTP/1.1\r\nHost: localhost\r\n\r\n" % job)
    return cpu_s(pid) - before


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ps_s(state: Path) -> tuple[float, float, int]:
    """CPU time and wall time of `phalanx ps -a`, and how many lines it had."""
    before, began = os.times(), time.perf_counter()
    command = [str(Path(sys.executable).with_name("phalanx")), "ps", "-a", "--no-headers", "-o", "wide"]
    done = subprocess.run(command, env={**os.environ, "PHALANX_HOME": str(state)}, capture_output=True, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu, time.perf_counter() - began, len(done.stdout.splitlines())


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def restart_s(state: Path) -> float:
    """From the start of the process until it answers."""
    began = time.perf_counter()
    process = _start(state)
    took = time.perf_counter() - began
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    return took
