"""Where a daemon keeps its state and where it listens."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any, Final, NamedTuple

from phalanx.client.daemon_errors import UnreachableError

SYSTEM_STATE: Final = Path("/var/lib/phalanx")
SYSTEM_SOCKET: Final = Path("/run/phalanx/phalanx.sock")


class Place(NamedTuple):
    """A daemon that may be running: its state directory and socket, and what it wrote about itself."""

    state: Path
    socket: str
    system: bool = False
    pid: int | None = None
    version: str | None = None


def find_state() -> Path:
    """The user's own state directory; it need not exist."""
    named = os.environ.get("PHALANX_HOME")
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    # The specification of these variables tells to ignore relative ones.
    return (Path(base) if base and base.startswith("/") else Path("~/.local/state").expanduser()) / "phalanx"


def find_place() -> Place:
    """The daemon to talk to: the named one, else one's own if it runs, else the machine's, else one's own to be."""
    own = read_place(find_state())
    named = os.environ.get("PHALANX_HOME") or os.environ.get("PHALANX_SOCKET_PATH")
    if named or not SYSTEM_SOCKET.exists() or answers(own.socket):
        return own
    return read_place(SYSTEM_STATE, system=True)


def read_place(state: Path, *, system: bool = False) -> Place:
    """What a state directory says of its daemon."""
    told = _read_told(state / "daemon.json", system=system)
    usual = str(SYSTEM_SOCKET) if system else str(state / "phalanx.sock")
    listens = os.environ.get("PHALANX_SOCKET_PATH") if not system else None
    pid, version = told.get("pid"), told.get("version")
    return Place(
        state,
        listens or str(told.get("socket") or usual),
        system,
        pid if isinstance(pid, int) else None,
        version if isinstance(version, str) else None,
    )


def answers(path: str) -> bool:
    """Whether anybody listens there."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(probe):
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _read_told(file: Path, *, system: bool) -> dict[str, Any]:
    try:
        told = json.loads(file.read_bytes())
    except PermissionError:
        if system:
            return {}  # the machine's state is its own affair; its socket is for everybody
        why = f"the state directory {file.parent} is not yours"
        raise UnreachableError(why, "unset PHALANX_HOME, or set it to a directory of yours") from None
    except (OSError, ValueError):
        return {}  # none, or one that is being written
    return told if isinstance(told, dict) else {}
