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
_RUNTIME_DIR_MOST: Final = 60


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
    mode = 0o711 if system else 0o700
    _make(state, mode)
    if system:
        _check_way(state.parent)
    _make(state / "runs", mode)
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
    roomy = bool(base) and len(str(base)) < _RUNTIME_DIR_MOST
    # In /tmp anybody may have made it before us: `_make` looks whose it is.
    short = Path(str(base)) / f"phalanx-{word}" if roomy else Path(f"/tmp/phalanx-{os.getuid()}-{word}")  # noqa: S108
    _make(short, 0o700)
    return short


def _make(path: Path, mode: int) -> None:
    """A directory of ours that nobody else may write to; one that is there is checked before it is touched."""
    try:
        _make_parents(path.parent)
        path.mkdir(mode=mode)
    except FileExistsError:
        _check(path)
    except OSError as bad:
        raise _unusable(path, bad) from None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as bad:
        raise _unusable(path, bad) from None
    try:
        os.fchmod(handle, mode)
    except OSError as bad:
        raise _unusable(path, bad) from None
    finally:
        os.close(handle)
    if not os.access(path, os.W_OK | os.X_OK) or os.statvfs(path).f_flag & os.ST_RDONLY:
        raise BadInput(f"{path} is read-only; make it writable, or set PHALANX_HOME to another directory")


def _make_parents(path: Path) -> None:
    """Directories on the way, which everybody may pass through whatever our umask is."""
    if not path.exists():
        _make_parents(path.parent)
        path.mkdir(mode=0o755)
        path.chmod(0o755)


def _unusable(path: Path, bad: OSError) -> BadInput:
    why = f"the directory {path} cannot be made or used: {bad.strerror or bad}"
    return BadInput(f"{why}; set PHALANX_HOME to a directory that you may write to")


def _check(path: Path) -> None:
    """Ours, a directory, and nobody else's to write to."""
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise BadInput(f"{path} is no directory; set PHALANX_HOME to one, or move it away")
    if facts.st_uid != os.getuid():
        raise BadInput(f"{path} belongs to uid {facts.st_uid}, not to you; set PHALANX_HOME to a directory of yours")
    if facts.st_mode & 0o022:
        raise BadInput(f"others may write to {path}, and may have; look at what is in it, then: chmod go-w {path}")


def _check_way(path: Path) -> None:
    """Nobody else may put another directory in the place of one on the way."""
    for each in (path, *path.parents):
        facts = each.lstat()
        open_ = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
        if facts.st_uid not in (0, os.getuid()) or open_:
            raise BadInput(f"{each}, on the way to the state directory, is somebody else's to change; choose another")


def open_ours(path: Path, flags: int, mode: int = 0o600) -> int:
    """A file in the state directory, never through a link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
