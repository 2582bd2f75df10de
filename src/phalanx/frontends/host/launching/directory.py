"""Run directories on disk, and the list of those that nobody has written off yet.

In system mode a run directory belongs to the job's user, so nothing in it is believed or followed: files
are opened from a descriptor of the directory, never through a link, and must be plain files of the right
owner. What the daemon itself must rely on later (whose run, which cgroup, which boot) it keeps beside
them in `.live`, which nobody else can write. A run that is over is not in there any more, so that a
daemon with ten thousand finished jobs looks at the few that matter.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from phalanx.frontends.host.ports import CannotStart
from phalanx.frontends.host.shim.journal import Story, load_story

_log = logging.getLogger(__name__)
_LIVE = ".live"
_BOOT = "boot"  # in that folder
_NOTES_BYTES = 1000
_CANNOT_LOOK = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the daemon knows of a run without asking anybody who could lie."""

    run: str
    uid: int
    boot_id: str
    mark: str  # how the environment of its members begins a line that names the run
    containment: str
    cgroup: str | None = None
    # As the daemon saw it when it forked the shim; 0 where a daemon of an earlier version did not write it down.
    shim_pid: int = 0
    shim_start: int = 0


@dataclass(slots=True)
class MadeRun:
    """A run directory fresh from the press, with what its shim is handed."""

    dir_fd: int
    lock_fd: int
    log_fd: int

    def close(self) -> None:
        """The daemon's copies; the lock stays taken for as long as the shim has its own."""
        for fd in (self.dir_fd, self.lock_fd, self.log_fd):
            os.close(fd)


class Runs:
    """All run directories of one daemon."""

    def __init__(self, path: Path) -> None:
        """Touches nothing yet."""
        self.path = path
        self._live = path / _LIVE

    def make(self, facts: RunFacts, gid: int, launch: dict[str, Any], *, chown: bool) -> MadeRun:
        """A new run directory with its lock taken; raises OSError, and then nothing is left."""
        # Others pass through it to their own runs, and cannot list it.
        self.path.mkdir(mode=0o711 if chown else 0o700, parents=True, exist_ok=True)
        self._live.mkdir(mode=0o700, exist_ok=True)
        self.write_facts(facts)
        path = self.path / facts.run
        try:
            path.mkdir(mode=0o700)
            dir_fd = os.open(path, _DIRECTORY_FLAGS)
        except OSError:
            self.strike(facts.run)
            raise
        fds = [dir_fd]
        try:
            return self._fill(dir_fd, fds, facts.uid if chown else -1, gid, launch)
        except BaseException:
            for fd in fds:
                os.close(fd)
            self.remove(facts.run)
            raise

    def _fill(self, dir_fd: int, fds: list[int], uid: int, gid: int, launch: dict[str, Any]) -> MadeRun:
        key = os.urandom(32).hex().encode()
        files = {"launch.json": json.dumps(launch).encode("ascii"), "key": key, "shim.log": b""}
        log_fd = -1
        for name, content in files.items():
            fd = _create(dir_fd, name)
            fds.append(fd)
            _write_all(fd, content)
            if uid >= 0:
                os.fchown(fd, uid, gid)
            log_fd = fd
        for fd in fds[1:-1]:
            os.close(fd)
        del fds[1:-1]
        # The lock stays the daemon's: the shim has it by descriptor, and the job can neither take nor free it.
        lock_fd = _create(dir_fd, "lock")
        fds.append(lock_fd)
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if uid >= 0:
            os.fchown(dir_fd, uid, gid)  # last: from here on the user can change what is inside
        return MadeRun(dir_fd, lock_fd, log_fd)

    def write_facts(self, facts: RunFacts) -> None:
        """Write down what is known of a run, in place of what was; raises OSError."""
        temporary = self._live / f"{facts.run}.new"
        try:
            temporary.write_text(json.dumps(asdict(facts)), encoding="ascii")
            temporary.replace(self._live / facts.run)
        except OSError:
            temporary.unlink(missing_ok=True)  # on a full disk there would be more of them with every try
            raise

    def list_live(self) -> list[RunFacts]:
        """The runs that nobody has written off. What is no such thing goes, and that is told."""
        found = []
        for path in sorted(self._live.glob("*")):
            if path.name == _BOOT:
                continue
            if path.name.endswith(".new"):
                path.unlink(missing_ok=True)  # of a daemon that was killed while it wrote: nothing was started
                continue
            try:
                found.append(_read_facts(path))
            except OSError as error:
                _log.warning("%s cannot be read: %s", path, error)
            except (ValueError, TypeError, AttributeError):
                # Half written when the power went, or nothing of ours. Whoever runs under this name is still found by
                # its control group and its mark, and after a boot by its directory.
                _log.warning("%s is no record of a run, and is removed", path)
                with contextlib.suppress(OSError):  # a folder, of whomever
                    path.unlink(missing_ok=True)
        return found

    def list_names(self) -> list[str]:
        """Every run that has a directory."""
        if not self.path.is_dir():
            return []
        return [entry.name for entry in os.scandir(self.path) if not entry.name.startswith(".") and entry.is_dir()]

    def list_owners(self) -> dict[str, int]:
        """The user of every run that has a directory."""
        return {run: uid for run in self.list_names() if (uid := self.read_owner(run)) is not None}

    def read_owner(self, run: str) -> int | None:
        """Whose run it is, as the daemon made it; None if it has no directory."""
        try:
            about = (self.path / run).lstat()
        except OSError:
            return None
        return about.st_uid if stat.S_ISDIR(about.st_mode) else None

    def read_boot(self) -> str:
        """The boot in which somebody last looked through everything."""
        try:
            return (self._live / _BOOT).read_text(encoding="ascii")
        except (OSError, ValueError):  # a bad byte is no boot, and then everything is looked through
            return ""

    def write_boot(self, boot_id: str) -> None:
        """Everything has been looked through in this boot."""
        try:
            self._live.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._live / _BOOT).write_text(boot_id, encoding="ascii")
        except OSError as error:
            _log.warning(
                "%s cannot be written; the next daemon looks through everything again: %s", self._live / _BOOT, error
            )

    def exists(self, run: str) -> bool:
        """Whether there is such a directory."""
        return (self.path / run).is_dir()

    @contextlib.contextmanager
    def open(self, run: str) -> Iterator[int | None]:
        """A descriptor of a run directory, or None if it is gone."""
        try:
            fd = os.open(self.path / run, _DIRECTORY_FLAGS)
        except OSError:
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def read_story(self, run: str) -> Story | None:
        """What the journal of a run says."""
        with self.open(run) as fd:
            return load_story(fd, os.fstat(fd).st_uid) if fd is not None else None

    def is_locked(self, run: str) -> bool:
        """Whether a shim of this run lives. If nobody can look now it counts as alive: the dead are cleared away."""
        try:
            fd = os.open(self.path / run, _DIRECTORY_FLAGS)
        except OSError as error:
            return error.errno in _CANNOT_LOOK
        try:
            return _is_locked(fd)
        finally:
            os.close(fd)

    def lacks(self, run: str, name: str) -> bool:
        """Whether there is the directory, and this file in it is not; not so if nobody can look."""
        with self.open(run) as dir_fd:
            try:
                if dir_fd is not None:
                    os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            except OSError as error:
                return error.errno == errno.ENOENT
        return False

    def read_notes(self, run: str) -> str:
        """The last that a shim wrote about itself, ready to stand behind an error; empty if it wrote nothing."""
        with self.open(run) as dir_fd:
            if dir_fd is None:
                return ""
            try:
                fd = os.open("shim.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
            except OSError:
                return ""
            try:
                size = os.fstat(fd).st_size
                text = os.pread(fd, _NOTES_BYTES, max(0, size - _NOTES_BYTES)).decode(errors="replace").strip()
            except OSError:
                return ""
            finally:
                os.close(fd)
        return f"; its shim wrote: {text}" if text else ""

    def strike(self, run: str) -> None:
        """The run is written off."""
        (self._live / run).unlink(missing_ok=True)

    def remove(self, run: str) -> None:
        """Remove everything of a run. Links in it are removed, never followed."""
        try:
            shutil.rmtree(self.path / run, ignore_errors=True)
        except RecursionError:  # nested on purpose, and deeper than anybody walks: out of the way, for a person to see
            (self.path / run).rename(self.path / f"{run}.too-deep")
        self.strike(run)

    def clear_place(self, run: str) -> None:
        """Make sure that a run of this name can be made; raises CannotStart if it has been, and ran."""
        if not self.exists(run):
            return
        story = self.read_story(run)
        if story is not None and story.went:
            raise CannotStart(f"run {run} has been started before; an attempt is never started twice")
        if self.is_locked(run):
            raise CannotStart(f"the shim of an earlier start of run {run} has not ended yet")
        self.remove(run)


def _read_facts(path: Path) -> RunFacts:
    """What was written down of a run; raises ValueError, TypeError or AttributeError if that makes no sense."""
    known = {field.name for field in fields(RunFacts)}
    read = json.loads(path.read_text(encoding="ascii"))
    facts = RunFacts(**{name: value for name, value in read.items() if name in known})
    numbers = facts.uid, facts.shim_pid, facts.shim_start
    words = facts.boot_id, facts.mark, facts.containment, facts.cgroup or ""
    sound = all(type(each) is int for each in numbers) and all(isinstance(each, str) for each in words)
    if facts.run != path.name or not sound:
        raise ValueError("it says what nobody here has written")
    return facts


def _create(dir_fd: int, name: str) -> int:
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=dir_fd)


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def _is_locked(dir_fd: int) -> bool:
    try:
        fd = os.open("lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as error:
        return error.errno in _CANNOT_LOOK
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            return False  # not the one we made: whatever holds it is no shim
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
