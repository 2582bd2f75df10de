"""A real daemon in a directory of its own: started, killed, restarted, and judged by what the kernel says.

Every member that it starts carries a mark in its environment and notes its start in a file with one append, so that
a test need not believe a word of the daemon. `close` ends everything: the daemon, shims (who hold a file of the state
directory open), members (by their mark and by their cgroup), whatever the test did or did not do before.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.frontends.host import containment
from phalanx.frontends.host.launching.directory import Runs

LIMIT_S = 30.0
MARK = "REAL_DAEMON_MARK"
ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "examples" / "elastic_toy.py"
STEADY = Path(__file__).with_name("steady_member.py")
#: Members wait for this file, so that a test decides when they end.
HELD = 'while [ ! -e "$STARTS.open" ]; do sleep 0.02; done; '
#: What a member does first: one line, one write, to a file opened for appending.
NOTE = 'echo "$PHALANX_JOB $PHALANX_ATTEMPT $PHALANX_RANK $$ $PHALANX_GENERATION" >> "$STARTS"; '

_nap = threading.Event()


def pause(seconds: float) -> None:
    _nap.wait(seconds)


def until(condition, what="it", limit_s=LIMIT_S, nap_s_max=0.05):
    """Poll for something; its truth is the answer."""
    limit = time.monotonic() + limit_s
    nap_s = 0.001
    while not (answer := condition()):
        assert time.monotonic() < limit, f"waited {limit_s:.0f} s for {what() if callable(what) else what}"
        pause(nap_s)
        nap_s = min(nap_s_max, nap_s * 1.5)
    return answer


@dataclass(frozen=True)
class Start:
    """A line of the start file: a member that runs code of its own."""

    job: int
    attempt: int
    rank: int
    pid: int
    generation: int


@dataclass
class Reply:
    """What the daemon answered."""

    status: int
    body: object
    headers: dict = field(default_factory=dict)

    def __getitem__(self, key):
        return self.body[key]


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class RealDaemon:
    """One state directory, and the daemons that have it one after the other."""

    def __init__(
        self, folder: Path, *, gpus: int = 4, env: dict | None = None, config: str = "", state=None, weak: bool = False
    ) -> None:
        """`weak`: in a mount namespace without cgroups, which takes root to make."""
        self.folder, self.gpus, self.weak = folder, gpus, weak
        self.state = state or folder / "state"
        self.starts_file = folder / "starts"
        self.mark = f"{os.getpid()}.{os.urandom(8).hex()}"
        self.socket = str(self.state / "phalanx.sock")
        self.process: subprocess.Popen | None = None
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        self.env = {**kept, "HOME": str(folder), "PHALANX_CONFIG": "none", **(env or {})}
        self.lives = 0
        self.state.mkdir(mode=0o700, exist_ok=True)
        if config:
            (folder / "config.toml").write_text(config, encoding="utf-8")
            self.env["PHALANX_CONFIG"] = str(folder / "config.toml")

    # ------------------------------------------------------------------ the daemon

    def spawn(self, **env: str) -> subprocess.Popen:
        """A daemon that nobody has spoken to yet."""
        self.lives += 1
        command = [sys.executable, "-m", "phalanx.frontends.host", "--state", str(self.state)]
        command += ["--fake-gpus", str(self.gpus), "--foreground"]
        if self.weak:
            command = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                'mount -t tmpfs no /sys/fs/cgroup && exec "$@"',
                "sh",
                *command,
            ]
        with (self.folder / f"daemon-{self.lives}.log").open("wb") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start(self, **env: str) -> RealDaemon:
        """A daemon that answers; `env` is its own for this life (a crash point, another boot)."""
        assert self.process is None, "there is one already"
        self.process = self.spawn(**env)
        until(self._answers, lambda: f"the daemon to answer:\n{self.log()}")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.log()}"
        try:
            return self.call("GET", "/v1/status")["pid"] == self.process.pid
        except OSError:
            return False

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        assert self.process is not None
        self.process.kill()
        self.bury()

    def bury(self) -> int:
        """Wait for the end of a daemon that is dying; its exit status."""
        assert self.process is not None
        process, self.process = self.process, None
        return process.wait(LIMIT_S)

    def stop(self) -> int:
        """As `phalanx down` does it: runs go on."""
        self.call("POST", "/v1/down", {})
        return self.bury()

    def restart(self, **env: str) -> RealDaemon:
        """Killed if it is there, and another one in its place."""
        if self.process is not None:
            self.kill()
        return self.start(**env)

    def log(self) -> str:
        """What the newest daemon wrote."""
        path = self.folder / f"daemon-{self.lives}.log"
        return path.read_text(encoding="utf-8", errors="replace")[-8000:] if path.exists() else ""

    # ------------------------------------------------------------------ asking it

    def call(self, method: str, path: str, body=None, headers=None, timeout=LIMIT_S) -> Reply:
        """One request; OSError or HTTPException if nobody answers."""
        connection = _Connection(self.socket, timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as bad:
            raise ConnectionError(str(bad)) from bad
        finally:
            connection.close()
        is_json = (answer.headers.get("Content-Type") or "").startswith("application/json")
        return Reply(answer.status, json.loads(text) if is_json else text.decode(), dict(answer.headers))

    def get(self, path: str):
        reply = self.call("GET", path)
        assert reply.status == 200, (path, reply)
        return reply.body

    def submission(self, script: str | list[str], members=2, *, gpu=1, run=None, **gang) -> dict:
        """A job whose members note their start and then run a line of shell (a list is run as it is)."""
        command = ["/bin/sh", "-c", NOTE + script] if isinstance(script, str) else script
        env = {"PATH": os.environ["PATH"], MARK: self.mark, "STARTS": str(self.starts_file)}
        given = {"command": command, "cwd": str(self.folder), "env": env, "grace_s": 0.5, **(run or {})}
        return {"gang": {"members": members, "each": {"gpu": gpu}, **gang}, "run": given}

    def post(self, submission: dict, key: str | None = None, **options) -> Reply:
        """Hand in a submission as it is."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.call("POST", "/v1/jobs", {**submission, **options}, headers)

    def submit(self, script: str | list[str], members=2, *, key: str | None = None, name="job", **options) -> int:
        """Submit, and the id that was acknowledged."""
        reply = self.post(self.submission(script, members, **options), key, name=name)
        assert reply.status in (200, 201), reply
        return reply["id"]

    def toy(self, work: Path, members, *, items=40, seconds=0.05, **options) -> dict:
        """A submission of the elastic example, with its start noted."""
        line = shlex.join([sys.executable, str(TOY), str(work), "--items", str(items), "--seconds", str(seconds)])
        return self.submission(f"exec {line}", members, **options)

    def steady(self, members, **options) -> dict:
        """A submission of elastic members who stay until `let_end`, and note what they are told."""
        return self.submission(f"exec {shlex.join([sys.executable, str(STEADY)])}", members, **options)

    def let_end(self) -> None:
        """Whoever waits for the file may end."""
        Path(f"{self.starts_file}.open").touch()

    def hold_again(self) -> None:
        """Whoever starts from now on waits for it anew."""
        Path(f"{self.starts_file}.open").unlink(missing_ok=True)

    def changes(self) -> list[tuple[str, ...]]:
        """What steady members were told: attempt, member, kind, id, members."""
        path = Path(f"{self.starts_file}.changes")
        return [tuple(line.split()) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []

    def act(self, job: int, verb: str, body=None) -> Reply:
        return self.call("POST", f"/v1/jobs/{job}/{verb}", body or {})

    def row(self, job: int) -> dict:
        return self.get(f"/v1/jobs/{job}")["job"]

    def rows(self) -> dict[int, dict]:
        return {row["id"]: row for row in self.get("/v1/jobs?all=1&finished=1&limit=100000")["jobs"]}

    def wait(self, job: int, limit_s: float = LIMIT_S) -> dict:
        """Until it has ended; how."""
        limit = time.monotonic() + limit_s
        while True:
            answer = self.get(f"/v1/jobs/{job}/wait?timeout_s=10")
            if answer["ended"]:
                return answer
            assert time.monotonic() < limit, (answer, self.log())

    def wait_state(self, job: int, *states: str) -> dict:
        """Until the daemon says that it is in one of these states."""
        return until(lambda: (row := self.row(job))["state"] in states and row, f"job {job} to be {states}")

    def gpus_free(self) -> int:
        return self.get("/v1/status")["gpus"]["free"]

    def devices(self) -> list[dict]:
        (node,) = self.get("/v1/nodes")["nodes"]
        return node["devices"]

    # ------------------------------------------------------------------ what is the case

    def starts(self) -> list[Start]:
        """Every member that ever ran a line of its own."""
        if not self.starts_file.exists():
            return []
        lines = self.starts_file.read_text(encoding="ascii").splitlines()
        return [Start(*map(int, line.split())) for line in lines]

    def started(self, job: int, attempt: int | None = None) -> list[Start]:
        return [start for start in self.starts() if start.job == job and attempt in (None, start.attempt)]

    def wait_started(self, job: int, members: int, attempt: int | None = None) -> list[Start]:
        """Until so many members of a job run."""
        return until(
            lambda: len(found := self.started(job, attempt)) >= members and found,
            lambda: f"{members} members of job {job}: {self.starts()}\n{self.log()}",
        )

    def marked(self, job: int | None = None) -> dict[int, tuple[int, int]]:
        """Living processes of members by pid, escapees included: job and attempt."""
        found = {}
        for pid in containment.list_pids():
            environ = containment.read_file(f"/proc/{pid}/environ")
            if f"{MARK}={self.mark}".encode() not in environ:
                continue
            told = dict(entry.split(b"=", 1) for entry in environ.split(b"\0") if b"=" in entry)
            of = int(told.get(b"PHALANX_JOB", b"0")), int(told.get(b"PHALANX_ATTEMPT", b"0"))
            process = containment.read_process(pid)
            if process is not None and not process.is_gone and job in (None, of[0]):
                found[pid] = of
        return found

    def shims(self) -> set[int]:
        """Processes that hold a file of a run directory open and are not the daemon."""
        own = {os.getpid(), self.process.pid if self.process is not None else 0}
        found = set()
        for pid in containment.list_pids():
            if pid in own or b"shim/__main__.py" not in containment.read_file(f"/proc/{pid}/cmdline"):
                continue
            with contextlib.suppress(OSError):
                links = [fd.readlink() for fd in Path(f"/proc/{pid}/fd").iterdir()]
                if any(self.state in link.parents for link in links) and self._lives(pid):
                    found.add(pid)
        return found

    @staticmethod
    def _lives(pid: int) -> bool:
        process = containment.read_process(pid)
        return process is not None and not process.is_gone

    def story(self, job: int, attempt: int = 1):
        """What the shim of an attempt has written down, or None."""
        return Runs(self.state / "runs").read_story(f"{job}.{attempt}")

    def shim_of(self, job: int, attempt: int = 1) -> int:
        """The pid of a shim that lives."""
        return until(
            lambda: (story := self.story(job, attempt)) is not None and self._lives(story.pid) and story.pid,
            f"the shim of {job}.{attempt}",
        )

    # ------------------------------------------------------------------ invariants

    def check_starts(self) -> None:
        """No member was started twice for one attempt, ever."""
        counts = Counter((start.job, start.attempt, start.rank) for start in self.starts())
        twice = {key: count for key, count in counts.items() if count > 1}
        assert not twice, f"started twice (job, attempt, rank): {twice}"

    def check_one_attempt(self) -> None:
        """Of no job do two attempts live at once, and on no device do two attempts of anybody."""
        users: dict[object, dict[int, tuple[int, int, int]]] = {}
        for pid, (job, attempt) in self.marked().items():
            process = containment.read_process(pid)
            entries = containment.read_file(f"/proc/{pid}/environ").split(b"\0")
            names = next((entry for entry in entries if entry.startswith(b"PHALANX_DEVICES=")), b"=")
            for what in (job, *filter(None, names.decode().partition("=")[2].split(","))):
                users.setdefault(what, {})[pid] = (job, attempt, process.start if process is not None else 0)
        for what, found in users.items():
            # A look takes its time: only those that live now were there together.
            alive = {of[:2] for pid, of in found.items() if self._is_still(pid, of[2])}
            assert len(alive) <= 1, f"{what} has the attempts {alive}"

    @staticmethod
    def _is_still(pid: int, start: int) -> bool:
        process = containment.read_process(pid)
        return process is not None and not process.is_gone and process.start == start

    def check_logs(self) -> None:
        """No daemon met anything that it did not expect."""
        for number in range(1, self.lives + 1):
            text = (self.folder / f"daemon-{number}.log").read_text(encoding="utf-8", errors="replace")
            assert "Traceback" not in text, text[max(0, text.index("Traceback") - 500) :][:4000]

    def check_devices(self) -> None:
        """A device is busy exactly if somebody has it, and status says the same as nodes."""
        devices, gpus = self.devices(), self.get("/v1/status")["gpus"]
        assert len(devices) == gpus["total"] == self.gpus
        assert sum(device["state"] == "free" for device in devices) == gpus["free"], (devices, gpus)

    def check_whole(self, job: int, attempt: int, members: int) -> None:
        """All of the gang's members ran a line of their own, or none did."""
        ranks = {start.rank for start in self.started(job, attempt)}
        assert ranks in (set(), set(range(members))), f"a partial gang: {job}.{attempt} had ranks {ranks} of {members}"

    def check_told_once(self) -> None:
        """However often a daemon asks, a member does a change once."""
        counts = Counter(change[:2] + change[3:4] for change in self.changes())
        assert all(count == 1 for count in counts.values()), counts

    def check_quiet(self) -> None:
        """Nothing runs, nothing is held, nobody is left: neither member nor shim."""
        until(lambda: not self.marked(), lambda: f"members to be gone: {self.marked()}")
        until(lambda: not self.shims(), lambda: f"shims to be gone: {self.shims()}")
        until(lambda: self.gpus_free() == self.gpus, lambda: f"free devices: {self.devices()}\n{self.log()}")
        assert all(device["state"] == "free" and device["job"] is None for device in self.devices()), self.devices()
        self.check_starts()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """End everything that was started from here."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        name = "phalanx." + hashlib.sha256(os.fsencode(self.state / "runs")).hexdigest()[:12]
        ground = containment.find_ground(name)
        limit = time.monotonic() + LIMIT_S
        while True:
            groups = [] if ground is None else [containment.open_group(ground.kind, ground.base)]
            left = {*self.shims(), *self.marked(), *(pid for group in groups for pid in group.list_pids())}
            for group in groups:
                group.kill()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not any(map(self._lives, left)):
                break
            assert time.monotonic() < limit, f"these do not end: {left}"
            pause(0.02)
        if ground is not None:
            for run in ground.list_runs():
                until(lambda run=run: ground.remove(run), f"the cgroup of {run} to go")
            ground.close()
