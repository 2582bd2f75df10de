"""Start the user's own daemon and wait until it answers."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from phalanx.client.connection import Connection
from phalanx.client.daemon_errors import UnreachableError
from phalanx.client.daemon_places import Place, answers, read_place

ANSWER_S_MAX: Final = 60.0
GONE_S_MAX: Final = 60.0
_PAUSE_S: Final = 0.03
_TAIL_LINES: Final = 12
_STANDARD: Final = 2  # the last of standard input, output and error
_WORD: Final = "phalanx: error: "
_TAIL_BYTES: Final = 8192
#: How an error about settings begins: with the file or the variable.
_OF_SETTINGS: Final = re.compile(r"\S+\.toml:|environment PHALANX_")


def start_daemon(state: Path, flags: Sequence[str] = ()) -> Place:
    """Start one, detached from this process and its terminal; where two do so at once, one of them wins."""
    prepare_state(state)
    log = state / "daemon.log"
    try:
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as bad:
        raise _unusable(state, bad) from None
    try:
        already = os.fstat(handle).st_size
        pid = spawn_daemon(command_of(state, flags), handle)
    except OSError as bad:
        # An interpreter in somebody's home, or in a folder that is gone.
        why = f"the daemon cannot be started: {sys.executable}: {bad.strerror or bad}"
        raise UnreachableError(why, "install phalanx where you may run it: docs/install.md") from None
    finally:
        os.close(handle)
    return _wait_for(state, pid, log, already)


def command_of(state: Path, flags: Sequence[str] = ()) -> list[str]:
    """The daemon's command line. -P: modules of whatever directory we are in are not the daemon's."""
    return [sys.executable, "-P", "-m", "phalanx.frontends.host", "--state", str(state), *flags]


def prepare_state(state: Path) -> None:
    """Make the state directory, or say why it cannot be used."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = state.stat().st_uid
    except OSError as bad:
        raise _unusable(state, bad) from None
    if owner != os.geteuid():
        # Also for root: it would leave files there that their owner can neither write nor remove.
        why = f"the state directory {state} belongs to {_name_of(owner)}, and you are {_name_of(os.geteuid())}"
        raise UnreachableError(why, "set PHALANX_HOME to a directory of yours, or leave out sudo")
    if not os.access(state, os.W_OK | os.X_OK):
        raise _unusable(state, PermissionError(13, "it is not writable"))


def wait_until_gone(place: Place) -> bool:
    """Whether the daemon stopped answering, and its process ended, within a while."""
    until = time.monotonic() + GONE_S_MAX
    while time.monotonic() < until:
        if not answers(place.socket) and not _is_there(place):
            return True
        time.sleep(_PAUSE_S)
    return False


def tail_of(log: Path, after: int = 0) -> str:
    """The last lines of a log that were written after a position."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(after, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(line for line in text.splitlines()[-_TAIL_LINES:] if line.strip())


def spawn_daemon(command: list[str], log: int) -> int:
    """A process of its own session, with nothing of ours but its log: it outlives us, and perhaps our pipes."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        actions: list[tuple[int, ...]] = [
            (os.POSIX_SPAWN_DUP2, source, to) for source, to in ((nothing, 0), (log, 1), (log, 2))
        ]
        # What a shell or make handed to us would be held open for as long as the daemon lives, and whoever reads
        # the other end would wait for ever.
        open_now = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
        actions += [(os.POSIX_SPAWN_CLOSE, handle) for handle in open_now if handle > _STANDARD]
        # A shell starts what ends in & with SIGINT ignored; daemon and jobs would inherit that.
        defaults = [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD]
        return os.posix_spawn(
            command[0], command, os.environ, file_actions=actions, setsid=True, setsigmask=(), setsigdef=defaults
        )
    finally:
        os.close(nothing)


def _wait_for(state: Path, pid: int, log: Path, already: int) -> Place:
    """Until somebody answers for this state directory: the daemon we started, or the one that was quicker."""
    until = time.monotonic() + ANSWER_S_MAX
    running = True
    while time.monotonic() < until:
        place = read_place(state)
        if place.pid is not None and _is_ready(place):
            return place
        if running and (code := _exit_code(pid)) is not None:
            running = False
            if code != 0:
                raise _failed(log, already, f"the daemon could not start (exit code {code})")
        time.sleep(_PAUSE_S)
    raise _failed(log, already, f"the daemon did not answer within {ANSWER_S_MAX:.0f} s")


def _is_ready(place: Place) -> bool:
    if not answers(place.socket):
        return False
    connection = Connection(place.socket)
    with contextlib.closing(connection):
        try:
            return bool(connection.request("GET", "/v1/status", timeout_s=5.0).status)
        except UnreachableError:
            return False


def _exit_code(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0  # somebody else has waited for it; whether a daemon answers is what counts
    return os.waitstatus_to_exitcode(status) if ended else None


def _failed(log: Path, already: int, what: str) -> UnreachableError:
    """The daemon's own last word if it had one, else the end of its log."""
    lines = tail_of(log, already).splitlines()
    word = next((line for line in reversed(lines) if line.startswith(_WORD)), None)
    if word is not None:
        said = word.removeprefix(_WORD)
        # The settings say themselves where they are wrong, and nothing else would help.
        hint = "mend it where it stands, then phalanx up" if _OF_SETTINGS.match(said) else "phalanx doctor"
        return UnreachableError(f"{what}: {said}", f"{hint}; its log is {log}")
    told = "".join(f"\n  | {line}" for line in lines)
    return UnreachableError(f"{what}{':' + told if told else '; it said nothing'}", f"phalanx doctor; its log is {log}")


def _is_there(place: Place) -> bool:
    """Whether the process of a daemon is still there; a child of ours that has ended is not."""
    if place.pid is None:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(place.pid, os.WNOHANG)
    try:
        os.kill(place.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _unusable(state: Path, bad: OSError) -> UnreachableError:
    why = f"the state directory {state} cannot be used: {bad.strerror or bad}"
    return UnreachableError(why, "set PHALANX_HOME to a directory that you can write")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
