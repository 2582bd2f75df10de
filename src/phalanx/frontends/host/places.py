"""The daemon's places on disk, made if they are not there and refused if they are not safe."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput

SYSTEM_STATE: Final = Path("/var/lib/phalanx")
SYSTEM_SOCKET: Final = Path("/run/phalanx/phalanx.sock")
#: What fits into the address of a unix socket, with room for a suffix.
SOCKET_PATH_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything lies."""

    state: Path
    socket: Path

    @property
    def runs(self) -> Path:
        """A directory for every attempt."""
        return self.state / "runs"

    @property
    def lock_file(self) -> Path:
        """Held by the daemon for life."""
        return self.state / "lock"

    @property
    def daemon_file(self) -> Path:
        """Where clients read who answers, and where."""
        return self.state / "daemon.json"

    @property
    def log_file(self) -> Path:
        """What the daemon says."""
        return self.state / "daemon.log"


def find_places(state: Path, *, system: bool) -> Places:
    """The places of a state directory; raises BadInput where it cannot be used."""
    state = state.expanduser().absolute()
    _make(state, 0o711 if system else 0o700)
    _check(state)
    _make(state / "runs", 0o711 if system else 0o700)
    told = os.environ.get("PHALANX_SOCKET_PATH")
    if told:
        return Places(state, Path(told).absolute())
    if system and state == SYSTEM_STATE:
        _make(SYSTEM_SOCKET.parent, 0o755)
        return Places(state, SYSTEM_SOCKET)
    socket = state / "phalanx.sock"
    if len(os.fsencode(socket)) > SOCKET_PATH_MOST:
        socket = _short(state) / "phalanx.sock"
    return Places(state, socket)


def _short(state: Path) -> Path:
    """A directory with a short name, for a state directory whose name is too long for a socket."""
    word = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    base = os.environ.get("XDG_RUNTIME_DIR")
    short = Path(base) / f"phalanx-{word}" if base and len(base) < 60 else Path(f"/tmp/phalanx-{os.getuid()}-{word}")  # noqa: S108 - owner and mode are checked
    _make(short, 0o700)
    _check(short)
    return short


def _make(path: Path, mode: int) -> None:
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        if path.stat().st_uid == os.getuid():
            path.chmod(mode)
    except OSError as bad:
        why = f"the directory {path} cannot be made or used: {bad.strerror or bad}"
        raise BadInput(f"{why}; set PHALANX_HOME to a directory that you may write to") from None


def _check(path: Path) -> None:
    """Ours, nobody else's to write to, and writable at all."""
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise BadInput(f"{path} is no directory; set PHALANX_HOME to one, or move it away")
    if facts.st_uid != os.getuid():
        raise BadInput(f"{path} belongs to uid {facts.st_uid}, not to you; set PHALANX_HOME to a directory of yours")
    if facts.st_mode & 0o022:
        raise BadInput(f"others may write to {path}; forbid it with: chmod go-w {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadInput(f"{path} is read-only; make it writable, or set PHALANX_HOME to another directory")
    flags = os.statvfs(path).f_flag
    if flags & os.ST_RDONLY:
        raise BadInput(f"{path} lies on a read-only filesystem; set PHALANX_HOME to a directory on another")
