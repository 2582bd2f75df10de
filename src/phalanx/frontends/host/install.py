"""The daemon as a service of systemd: for all users of the machine, or for one.

What would be done is worked out first (`plan_install`), so that `--print` shows exactly what is then carried
out. Running jobs survive all of this: systemd ends the daemon only, never the shims beside it.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import phalanx
from phalanx.frontends.host.containment import OWN_LEAF
from phalanx.frontends.host.places import SYSTEM_STATE

UNIT_NAME: Final = "phalanx.service"
SYSTEM_UNIT: Final = Path("/etc/systemd/system") / UNIT_NAME
ADMIN_GROUP: Final = "phalanx"

_MARK: Final = "# Written by `phalanx install`; changes belong into `systemctl edit phalanx`."

Run = Callable[[Sequence[str]], None]


class CannotInstall(Exception):  # noqa: N818 - an answer to the user
    """It will not be done: why, and what to do instead."""

    def __init__(self, message: str, hint: str) -> None:
        """`hint` is a command, or nearly."""
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Installation:
    """What will be done, in order: a file written or taken away, then commands."""

    unit: Path
    text: str | None  # None: the file goes
    before: tuple[tuple[str, ...], ...]  # commands before the file changes
    commands: tuple[tuple[str, ...], ...]  # and after
    notes: tuple[str, ...]  # what the user should know then

    def describe(self) -> str:
        """All of it as a person would type it."""
        lines = [shlex.join(command) for command in self.before]
        if self.text is None:
            lines.append(f"rm {shlex.quote(str(self.unit))}")
        else:
            lines += [f"cat > {shlex.quote(str(self.unit))} <<'END'", self.text.rstrip("\n"), "END"]
        lines += [shlex.join(command) for command in self.commands]
        return "\n".join([*lines, *(f"# {note}" for note in self.notes), ""])


# ---------------------------------------------------------------------- the units


def write_system_unit(python: str) -> str:
    """One daemon for all users: jobs run as whoever submitted them."""
    return f"""{_MARK}
[Unit]
Description=Phalanx: gangs of jobs on this machine's GPUs
After=network.target nvidia-persistenced.service
RequiresMountsFor={SYSTEM_STATE}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={_word(python, program=True)} -I -m phalanx.frontends.host --system --state {SYSTEM_STATE} --foreground
Restart=always
RestartSec=1
# Jobs outlive the daemon: only its own process is ended, and the next one finds them again.
KillMode=process
TimeoutStopSec=30
# Out of memory, the kernel should take a job and not the one that looks after jobs.
OOMScoreAdjust=-500
# Runs get control groups of their own beside the daemon's; a systemd before 254 passes over the second line.
Delegate=yes
DelegateSubgroup={OWN_LEAF}
TasksMax=infinity
LimitMEMLOCK=infinity
StateDirectory=phalanx
StateDirectoryMode=0711
RuntimeDirectory=phalanx
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def write_user_unit(python: str, state_dir: Path) -> str:
    """The daemon of one user, in control groups of its own, which a plain process does not get."""
    return f"""{_MARK}
[Unit]
Description=Phalanx: gangs of jobs on this machine's GPUs
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={_word(python, program=True)} -m phalanx.frontends.host --state {_word(str(state_dir))} --foreground
Restart=on-failure
RestartSec=1
KillMode=process
TimeoutStopSec=30
Delegate=yes
DelegateSubgroup={OWN_LEAF}
TasksMax=infinity

[Install]
WantedBy=default.target
"""


def _word(text: str, *, program: bool = False) -> str:
    """A path as one word of a unit file."""
    # systemd refuses programs with such names; nothing else deserves them either.
    if any(not char.isprintable() or char in "\"'\\" for char in text):
        raise CannotInstall(f"the path {text!r} cannot stand in a unit file", "use one without quotes and backslashes")
    word = text.replace("%", "%%")
    # Variables are put in everywhere but into the program's own path, where a doubled sign stays doubled.
    word = word if program else word.replace("$", "$$")
    return f'"{word}"' if " " in word else word


# ---------------------------------------------------------------------- plans


@dataclass(frozen=True, slots=True)
class Here:
    """Who asks, and with which program."""

    state_dir: Path  # of the user's own daemon
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: int = field(default_factory=os.geteuid)
    python: Path = Path(sys.executable)
    package: Path = Path(phalanx.__file__).parent
    command: str = "phalanx"  # how the user called it
    root: Path = Path("/")

    def full_command(self) -> str:
        """As sudo finds it, which does not look into virtual environments."""
        beside = self.python.parent / self.command  # a command that is a whole path stays as it is
        return shlex.quote(str(beside) if beside.exists() else self.command)

    def find_unit(self, *, system: bool) -> Path:
        """Where the unit is, or will be."""
        return self.root / SYSTEM_UNIT.relative_to("/") if system else find_user_unit(self.env)


def plan_install(here: Here, *, system: bool, only_print: bool = False) -> Installation:
    """What installing means here. Raises `CannotInstall` where it cannot be done; what is only shown can always be."""
    unit = here.find_unit(system=system)
    if not only_print:
        _check_user(here, "install --system", system=system)
        _check_systemd(here)
        _check_foreign(unit)
    if not system:
        notes = ("after log-out and after a reboot it runs on only if you linger: loginctl enable-linger",)
        text = write_user_unit(str(here.python), here.state_dir)
        return Installation(unit, text, (), _start("systemctl", "--user"), notes)
    if not only_print:
        _check_trusted(here.python)
        _check_trusted(here.package)
    notes_for_all = (
        f"who may see and change everybody's jobs: members of the group {ADMIN_GROUP}, if there is one:",
        f"  sudo groupadd --system {ADMIN_GROUP}; sudo usermod -aG {ADMIN_GROUP} ada",
        "settings for everybody: /etc/phalanx/config.toml",
        "check it with: phalanx status; phalanx doctor",
    )
    return Installation(unit, write_system_unit(str(here.python)), (), _start("systemctl"), notes_for_all)


def plan_uninstall(here: Here, *, system: bool, only_print: bool = False) -> Installation:
    """The reverse; state and running jobs stay."""
    unit = here.find_unit(system=system)
    if not only_print:
        _check_user(here, "install --system --uninstall", system=system)
        if not unit.exists():
            hint = f"look for it: systemctl status {UNIT_NAME}"
            raise CannotInstall(f"nothing is installed: there is no {unit}", hint)
        _check_foreign(unit)
    control = ("systemctl",) if system else ("systemctl", "--user")
    kept = SYSTEM_STATE if system else here.state_dir
    notes = (f"running jobs go on, and {kept} is kept; when nothing runs any more: rm -r {shlex.quote(str(kept))}",)
    return Installation(unit, None, ((*control, "disable", "--now", UNIT_NAME),), ((*control, "daemon-reload"),), notes)


def find_user_unit(env: Mapping[str, str]) -> Path:
    """Where a user's own units are."""
    base = env.get("XDG_CONFIG_HOME") or ""
    folder = Path(base) if base.startswith("/") else Path(env.get("HOME") or "~").expanduser() / ".config"
    return folder / "systemd" / "user" / UNIT_NAME


def _start(*control: str) -> tuple[tuple[str, ...], ...]:
    # restart, not start: a daemon that runs already is of the old version; jobs do not notice.
    return (
        (*control, "daemon-reload"),
        (*control, "enable", UNIT_NAME),
        (*control, "restart", UNIT_NAME),
    )


def _check_systemd(here: Here) -> None:
    if not (here.root / "run/systemd/system").is_dir():
        raise CannotInstall(
            "this machine does not run systemd, and only its services can be installed",
            "let your own init run: python -m phalanx.frontends.host --state DIR --foreground",
        )


def _check_user(here: Here, verb: str, *, system: bool) -> None:
    if system and here.uid != 0:
        raise CannotInstall("only root can change the services of all users", f"sudo {here.full_command()} {verb}")


def _check_foreign(unit: Path) -> None:
    try:
        text = unit.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if not text.startswith(_MARK):
        raise CannotInstall(f"{unit} is there and was not written by phalanx", f"look at it: systemctl cat {UNIT_NAME}")


def _check_trusted(path: Path) -> None:
    """What root runs must not be somebody else's to change: nobody but root may write it, or a folder above it."""
    named, real = path.absolute(), path.resolve()
    for place in (named, *named.parents, real, *real.parents):
        about = place.lstat()
        # In a folder like /tmp everybody may write, and nobody may touch what is another's.
        shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
        if about.st_uid != 0 or (shared and not stat.S_ISLNK(about.st_mode)):
            raise CannotInstall(
                f"root would run {path}, which others can change ({place})",
                "install it where only root writes: sudo python3 -m venv /opt/phalanx && "
                "sudo /opt/phalanx/bin/pip install phalanx && sudo /opt/phalanx/bin/phalanx install --system",
            )


# ---------------------------------------------------------------------- carrying it out


def run_command(command: Sequence[str]) -> None:
    """Run one command of a plan; what it says goes to the user."""
    try:
        done = subprocess.run(command, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as bad:
        raise CannotInstall(f"{shlex.join(command)} could not be run: {bad}", "do it by hand, then again") from None
    if done.returncode:
        hint = f"see: systemctl status {UNIT_NAME}; journalctl -u {UNIT_NAME} -n 50"
        raise CannotInstall(f"{shlex.join(command)} failed with {done.returncode}", hint)


def apply_installation(plan: Installation, run: Run = run_command) -> None:
    """Do it. Doing it twice does no harm."""
    for command in plan.before:
        run(command)
    try:
        if plan.text is None:
            plan.unit.unlink(missing_ok=True)
        else:
            plan.unit.parent.mkdir(parents=True, exist_ok=True)
            # Beside it and then in its place: a unit that is half written would be read half.
            fresh = plan.unit.with_name(f".{plan.unit.name}.new")
            fresh.write_text(plan.text, encoding="utf-8")
            fresh.chmod(0o644)
            fresh.replace(plan.unit)
    except OSError as bad:
        raise CannotInstall(f"{plan.unit} cannot be written: {bad.strerror}", f"ls -ld {plan.unit.parent}") from None
    for command in plan.commands:
        run(command)
