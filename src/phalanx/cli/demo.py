"""`phalanx demo`: a private daemon with eight made-up GPUs, six jobs, and what becomes of them, line by line."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from phalanx.cli.failure import CommandFailure

if TYPE_CHECKING:
    from phalanx.client.daemon import Daemon

GPUS: Final = 8
#: The whole show; whatever goes wrong, nobody waits longer.
LONGEST_S: Final = 55
_LINES: Final = {
    "start": "starts whole, {members} ranks",
    "shrink": "gives GPUs up and goes on with {members}, no item lost",
    "grow": "takes idle GPUs and goes on with {members}",
    "restart": "{why}; the gang starts again",
    "complete": "completed",
    "fail": "failed: {why}",
    "cancel": "cancelled",
}
_TOY: Final = [sys.executable, "-m", "phalanx.elastic.toy"]


@dataclass(frozen=True, slots=True)
class Act:
    """One job of the show."""

    name: str
    why: str  # what it is there to show
    gang: dict[str, Any]
    command: list[str]
    restarts: int = 0


def acts(folder: Path) -> list[Act]:
    """The six jobs, in the order in which they are submitted."""
    toy = [*_TOY, str(folder / "items"), "--items", "260", "--seconds", "0.2"]
    return [
        Act(
            "train",
            "elastic, 2 to 4 GPUs",
            {"members": {"min": 2, "max": 4}, "each": {"gpu": 1}, "walltime": "25s"},
            toy,
        ),
        Act("eval", "3 GPUs, 8 s", {"members": 3, "each": {"gpu": 1}, "walltime": "8s"}, ["sleep", "7"]),
        Act(
            "big",
            "6 GPUs, 5 s: more than are free",
            {"members": 6, "each": {"gpu": 1}, "walltime": "5s"},
            ["sleep", "4"],
        ),
        Act("probe", "1 GPU, 3 s", {"members": 1, "each": {"gpu": 1}, "walltime": "3s"}, ["sleep", "2"]),
        Act(
            "healer",
            "2 GPUs; one of its ranks will be killed",
            {"members": 2, "each": {"gpu": 1}, "walltime": "6s"},
            ["sleep", "4"],
            1,
        ),
        Act("whole", "all 8 GPUs, 2 s", {"members": 8, "each": {"gpu": 1}, "walltime": "2s"}, ["sleep", "1"]),
    ]


@click.command()
def demo() -> None:
    """Run six small jobs on eight made-up GPUs and tell what happens; leaves nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="phalanx-demo-"))
    os.environ["PHALANX_HOME"] = str(folder / "state")
    os.environ.pop("PHALANX_SOCKET_PATH", None)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_S)
    try:
        with _private_daemon() as (watch, speak):
            _Show(folder, watch, speak).run()
    finally:
        signal.alarm(0)
        shutil.rmtree(folder, ignore_errors=True)


def _too_long(number: int, frame: object) -> None:
    raise CommandFailure(f"the demo was not over after {LONGEST_S} s; this machine is busy: try it again")


@contextlib.contextmanager
def _private_daemon() -> Iterator[tuple[Daemon, Daemon]]:
    """A daemon of its own, asked over two connections: one listens, one speaks. Both it and its jobs end here."""
    from phalanx.client.daemon import open_daemon
    from phalanx.client.daemon_places import find_place
    from phalanx.client.daemon_starting import start_daemon, wait_until_gone

    place = start_daemon(find_place().state, ["--fake-gpus", str(GPUS)])
    watch, speak = open_daemon(), open_daemon()
    try:
        yield watch, speak
    finally:
        signal.alarm(0)
        for row in speak.get("/v1/jobs", {"all": 1})["jobs"]:
            if row["state"] not in ("completed", "failed", "cancelled"):
                speak.post(f"/v1/jobs/{row['id']}/cancel", {})
                speak.get(f"/v1/jobs/{row['id']}/wait", {"timeout_s": 20})
        speak.post("/v1/down", {})
        wait_until_gone(place)


@dataclass(slots=True)
class _Show:
    folder: Path
    watch: Daemon
    speak: Daemon
    names: dict[int, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    killed: bool = False

    def run(self) -> None:
        """Submit, watch, and end when all six have ended."""
        click.echo(f"A daemon of our own, {GPUS} made-up GPUs, six jobs. Everything below really happens.\n")
        waiting = acts(self.folder)
        for act in waiting[:4]:
            self._submit(act)
        for event in self.watch.events(0):
            self._tell(event)
            self._direct(event, waiting)
            if len(self.ended) == len(waiting):
                break
        self._close()

    def _submit(self, act: Act) -> None:
        env = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "PYTHONPATH") if key in os.environ}
        run = {"command": act.command, "cwd": str(self.folder), "env": env, "restarts": act.restarts, "grace_s": 2}
        body = {"name": act.name, "gang": act.gang, "run": run}
        (accepted,) = self.speak.submit([body], f"demo-{act.name}")
        self.ids[act.name] = accepted["id"]
        self.names[accepted["id"]] = act.name
        self._say(act.name, f"submitted: {act.why}")
        if act.name != "big":
            self._until_started(accepted["id"])

    def _until_started(self, number: int) -> None:
        """Wait a moment, so that the next one finds this one running."""
        for _ in range(40):
            if self.speak.get(f"/v1/jobs/{number}")["job"]["state"] != "pending":
                return
            time.sleep(0.05)

    def _why(self, name: str) -> str:
        told = self.speak.get(f"/v1/jobs/{self.ids[name]}/why")
        reason = told["reason"]["message"] if told["reason"] else "it does not"
        eta = told["eta"]
        return reason + (f"; starts {eta['hangs_on']}" if eta and eta["hangs_on"] else "")

    # ------------------------------------------------------------------ what happens

    def _direct(self, event: dict[str, Any], waiting: list[Act]) -> None:
        """The rest of the show follows what happened so far."""
        job, what = self.names.get(event["job"], ""), event["event"]
        if what in ("complete", "fail", "cancel"):
            self.ended.add(event["job"])
        if job == "probe" and what == "complete":
            self._say("", f"why does big wait? It {self._why('big')}")
        elif job == "big" and what == "complete":
            self._submit(waiting[4])
        elif job == "healer" and what == "start" and not self.killed:
            self.killed = True
            self._kill_rank(event["job"])
        elif job == "healer" and what == "complete":
            self._submit(waiting[5])

    def _kill_rank(self, number: int) -> None:
        time.sleep(0.5)
        members = self.speak.get(f"/v1/jobs/{number}")["members"]
        victim = next(member["pid"] for member in members if member["rank"] == 1)
        os.kill(victim, signal.SIGKILL)
        self._say("healer", "(we kill its rank 1 with SIGKILL)")

    def _tell(self, event: dict[str, Any]) -> None:
        name, data, what = self.names.get(event["job"], str(event["job"])), event["data"], event["event"]
        if what not in _LINES:
            return
        line = _LINES[what].format(members=data.get("members"), why=data.get("why"))
        extra = ""
        if name == "probe" and what == "start":
            extra = ": it fits into the gap and ends before big could start anyway"
        elif name == "big" and what == "start":
            extra = ": train made room for it"
        self._say(name, line + extra)

    def _say(self, name: str, text: str) -> None:
        click.echo(f"{time.monotonic() - self.began:5.1f} s  {name:<7} {text}")

    def _close(self) -> None:
        log = self.speak.raw("GET", f"/v1/jobs/{self.ids['train']}/logs", {"rank": 0, "tail": 1})
        last = log.body.decode("utf-8", "replace").strip().splitlines()
        click.echo(f"\ntrain's own count: {last[-1] if last else 'none'}")
        us = how_to_type_us()
        click.echo(f"Next: {us} submit -g 1 -- python train.py, with a daemon of your own ({us} up --fake-gpus 8).")


def how_to_type_us() -> str:
    """What a shell in this folder finds us by: after `make demo` the environment is not on its PATH."""
    program = Path(sys.argv[0])
    if program.name != "phalanx" or shutil.which("phalanx") is not None:
        return "phalanx"
    path = program.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
