"""What the checks look at, in one place, so that a test can put another machine under them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from phalanx.frontends.host.devices import Inventory, NoDevices
from phalanx.frontends.host.devices.owners import find_user_name
from phalanx.frontends.host.settings import Settings

Run = Callable[[Sequence[str], float], str | None]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at."""

    name: str
    level: Literal["ok", "warn", "fail"]
    message: str
    fix: str = ""  # what to do; "" only if nothing needs doing


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine."""

    pid: int
    name: str
    user: str


def run_program(command: Sequence[str], limit_s: float) -> str | None:
    """What a program prints; None if it is not there, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=limit_s,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",  # Python would import what lies about in the current folder
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def list_processes() -> Iterator[Process]:
    """Everything that runs here and can be seen."""
    import psutil

    for process in psutil.process_iter():
        try:
            with process.oneshot():
                yield Process(process.pid, process.name(), find_user_name(process.uids().real))
        except (psutil.Error, OSError):
            continue


def read_started_s(pid: int) -> float | None:
    """When a process started, by the wall clock as it is now."""
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except (psutil.Error, OSError):
        return None


def read_wall_s() -> float:
    """The wall clock."""
    from phalanx.frontends.host.clock import HostClock

    return HostClock().wall_s()


def read_containment() -> str:
    """What the daemon would get; the group that is made to find out is taken away again."""
    from phalanx.frontends.host.containment import WEAK, find_ground

    ground = find_ground("phalanx-doctor")
    if ground is None:
        return WEAK
    ground.close()
    return ground.kind


def _can_write(path: Path) -> bool:
    return os.access(path, os.W_OK)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine as the checks see it."""

    state_dir: Path
    devices: Inventory = field(default_factory=lambda: NoDevices("nobody has looked for GPUs"))
    system: bool = False  # a daemon for all users
    socket_path: Path | None = None  # where nobody said otherwise: in the state directory
    settings: Settings = field(default_factory=Settings)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: int = field(default_factory=os.geteuid)
    root: Path = Path("/")
    run: Run = run_program
    processes: Callable[[], Iterator[Process]] = list_processes
    started_s: Callable[[int], float | None] = read_started_s
    wall_s: Callable[[], float] = read_wall_s
    contains: Callable[[], str] = read_containment
    can_write: Callable[[Path], bool] = _can_write
    space: Callable[[Path], os.statvfs_result] = os.statvfs

    @property
    def user(self) -> str:
        """Who asks."""
        return find_user_name(self.uid)

    def text(self, path: str) -> str:
        """A small file below the root; "" if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
