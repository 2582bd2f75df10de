"""Open the doors: a unix socket that nobody can put in our place, and a port that nobody outside can reach."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BACKLOG: Final = 1024


class CannotListen(Exception):  # noqa: N818 - what happened, not a kind of mistake
    """A door stays shut; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class UnixDoor:
    """A listening unix socket and which file it is."""

    sock: socket.socket
    path: Path
    device: int
    inode: int

    def remove(self) -> None:
        """Take the file away, unless somebody put another in its place meanwhile."""
        with contextlib.suppress(OSError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == (self.device, self.inode):
                self.path.unlink()


def open_unix(path: Path, mode: int) -> UnixDoor:
    """Bind and listen; everything is done relative to the folder that was checked."""
    with _open_folder(path.parent) as folder:
        _check_folder(folder, path.parent)
        _clear_way(folder, path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            _bind(sock, folder, path)
            found = _set_mode(folder, path, mode)
            sock.listen(BACKLOG)
            sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
        except BaseException:
            sock.close()
            raise
    return UnixDoor(sock, path, found.st_dev, found.st_ino)


def open_loopback(host: str, port: int) -> socket.socket:
    """Bind and listen on this machine's own interface, and on no other."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise CannotListen(f"'{host}' is not an address", "use 127.0.0.1 or ::1") from None
    if not address.is_loopback:
        what = f"{host} can be reached from other machines, and the API has no encryption"
        raise CannotListen(what, f"use 127.0.0.1:{port}, and ssh -L {port}:127.0.0.1:{port} from elsewhere")
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(address), port))
        sock.listen(BACKLOG)
        sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
    except (OSError, OverflowError) as wrong:
        sock.close()
        raise CannotListen(f"cannot listen on {host}:{port}: {wrong}", "choose another port") from None
    assert ipaddress.ip_address(sock.getsockname()[0]).is_loopback
    return sock


@contextlib.contextmanager
def _open_folder(parent: Path) -> Iterator[int]:
    try:
        folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as wrong:
        raise CannotListen(
            f"the socket's folder {parent} cannot be opened: {wrong.strerror}", "make it first"
        ) from None
    try:
        yield folder
    finally:
        os.close(folder)


def _check_folder(folder: int, parent: Path) -> None:
    status = os.fstat(folder)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (0, os.geteuid()):
        what = f"the socket's folder {parent} belongs to uid {status.st_uid}"
        raise CannotListen(what, "choose a folder of your own with PHALANX_HOME or PHALANX_SOCKET_PATH")
    # In a sticky folder others can add files, but neither remove nor rename ours.
    strangers = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and status.st_gid != os.getegid())
    if strangers and not mode & stat.S_ISVTX:
        what = f"other users can write to the socket's folder {parent} (mode {mode:04o}) and could replace the socket"
        raise CannotListen(what, f"chmod go-w {parent}")


def _clear_way(folder: int, path: Path) -> None:
    """Remove a socket that a dead daemon left; refuse anything else that stands there."""
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(
            f"{path} is there and is not a socket", f"look at it, and move it away: mv {path} {path}.old"
        )
    if found.st_uid not in (0, os.geteuid()):
        raise CannotListen(f"{path} belongs to uid {found.st_uid}", "choose another place with PHALANX_SOCKET_PATH")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the standard library's signature
        answer = probe.connect_ex(_address(folder, path.name))
    if answer == errno.ECONNREFUSED:  # nobody listens; any other answer, and a full backlog, is somebody
        os.unlink(path.name, dir_fd=folder)
    elif answer != errno.ENOENT:
        raise CannotListen(f"a daemon answers on {path} already", "phalanx status says which; phalanx down stops it")


def _bind(sock: socket.socket, folder: int, path: Path) -> None:
    # 077, so that the file is nobody else's business between bind and chmod. The mask belongs to the
    # process: this runs at start-up, before there are threads that create files.
    before = os.umask(0o077)
    try:
        sock.bind(_address(folder, path.name))
    except OSError as wrong:
        what = f"cannot make the socket {path}: {wrong.strerror or wrong}"
        raise CannotListen(what, "choose another place with PHALANX_SOCKET_PATH") from None
    finally:
        os.umask(before)


def _set_mode(folder: int, path: Path, mode: int) -> os.stat_result:
    # chmod by descriptor: fchmod on the socket itself changes another inode than the file's.
    descriptor = os.open(path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise CannotListen(f"somebody replaced {path} while it was made", "choose a folder of your own")
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)
    return found


def _address(folder: int, name: str) -> str:
    # By descriptor: the folder cannot be swapped under us, and a path may be longer than the 107 bytes of sun_path.
    return f"/proc/self/fd/{folder}/{name}"
