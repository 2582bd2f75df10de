"""The state directory, and the daemon that uses it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from phalanx import __version__
from phalanx.frontends.host.devices.owners import find_user_name
from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings
from phalanx.frontends.host.places import SYSTEM_SOCKET

#: SQLite's log and our locks need one machine; the type is what `mount` says.
NETWORK_FILESYSTEMS: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p", "ncpfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "pvfs2", "orangefs", "panfs", "wekafs",
})  # fmt: skip

_FREE_BYTES_LOW: Final = 1 << 30
_FREE_BYTES_MIN: Final = 100 << 20
_INODES_LOW: Final = 10_000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


# ---------------------------------------------------------------------- the directory


def check_state_directory(around: Surroundings) -> list[Diagnosis]:
    """Whose it is, where it lies, and how much room is left."""
    place = around.state_dir
    there = next(path for path in (place, *place.parents) if path.exists())
    found = list(_check_mode(around, place)) if there == place else list(_check_makeable(around, there))
    kind = _find_filesystem(around, there)
    if kind in NETWORK_FILESYSTEMS:
        message = f"{place} lies on a network filesystem ({kind}); the store could be damaged there"
        found.append(Diagnosis("state", "fail", message, "set PHALANX_HOME to a folder on a local disk"))
    elif kind == "tmpfs":
        message = f"{place} lies in memory (tmpfs); jobs are forgotten when the machine restarts"
        found.append(Diagnosis("state", "warn", message, "set PHALANX_HOME to a folder on a disk"))
    found += _check_room(around, there)
    return found or [Diagnosis("state", "ok", f"{place} is fine")]


def _check_mode(around: Surroundings, place: Path) -> Iterator[Diagnosis]:
    about = place.stat()
    if not stat.S_ISDIR(about.st_mode):
        yield Diagnosis("state", "fail", f"{place} is no directory", f"mv {place} {place}.old")
    elif about.st_uid != around.uid and not around.system:
        message = f"{place} belongs to {find_user_name(about.st_uid)}"
        yield Diagnosis("state", "fail", message, "set PHALANX_HOME to a directory of yours")
    elif about.st_mode & (_OTHERS & ~0o011 if around.system else _OTHERS):
        message = f"{place} is open to others (mode {stat.S_IMODE(about.st_mode):o})"
        yield Diagnosis("state", "warn", message, f"chmod {'711' if around.system else '700'} {place}")
    elif not around.can_write(place):
        yield Diagnosis("state", "fail", f"{place} cannot be written to", f"ls -ld {place}; mount | grep ' ro,'")


def _check_makeable(around: Surroundings, there: Path) -> Iterator[Diagnosis]:
    if not there.is_dir() or not around.can_write(there):
        message = f"{around.state_dir} is not there and cannot be made in {there}"
        yield Diagnosis("state", "fail", message, "set PHALANX_HOME to a directory of yours")


def _check_room(around: Surroundings, there: Path) -> Iterator[Diagnosis]:
    room = around.space(there)
    free = room.f_bavail * room.f_frsize
    fix = f"df -h {there}; logs of old runs: du -sh {around.state_dir / 'runs'}"
    if free < _FREE_BYTES_LOW:
        yield Diagnosis("state", "fail" if free < _FREE_BYTES_MIN else "warn", f"{free >> 20} MiB free at {there}", fix)
    # Some filesystems count no inodes and say 0 of 0.
    if room.f_files and room.f_favail < _INODES_LOW:
        yield Diagnosis("state", "warn", f"{room.f_favail:,} inodes free at {there}", fix.replace("df -h", "df -i"))


def _find_filesystem(around: Surroundings, path: Path) -> str:
    """The type of the mount that this path is on."""
    best, kind = "", ""
    real = str(path.resolve())
    for line in around.text("proc/self/mounts").splitlines():
        _, where, what, *_ = [*line.split(" "), "", ""]
        where = where.encode().decode("unicode_escape")  # blanks are written as \040
        inside = where == "/" or real == where or real.startswith(f"{where}/")
        if inside and len(where) >= len(best):  # the later of two mounts on one place hides the earlier
            best, kind = where, what
    return kind


# ---------------------------------------------------------------------- the daemon


def check_running(around: Surroundings) -> list[Diagnosis]:
    """Lock, socket and what the daemon says of itself must tell one story."""
    told = read_told(around.state_dir)
    path = find_socket(around, told)
    locked, heard = _is_locked(around), _answers(path)
    pid = told.get("pid")
    if locked and not heard:
        message = f"a daemon (pid {pid}) holds the lock and does not answer at {path}"
        return [Diagnosis("daemon", "fail", message, f"see {around.state_dir / 'daemon.log'}; then: kill {pid}")]
    if not heard:
        if path.exists():
            message = f"no daemon runs; {path} was left behind, and the next start takes it away"
            return [Diagnosis("daemon", "ok", message)]
        return [Diagnosis("daemon", "ok", "no daemon runs; the first submit starts one")]
    if told.get("version") not in (None, __version__):
        message = f"the daemon is version {told['version']}, this command {__version__}"
        return [Diagnosis("daemon", "warn", message, "phalanx down && phalanx up; running jobs go on")]
    found = [Diagnosis("daemon", "ok", f"a daemon answers at {path}" + (f" (pid {pid})" if pid else ""))]
    if told.get("restored"):  # said for as long as this daemon lives: whoever lost something must be able to find out
        found.append(
            Diagnosis("daemon", "warn", str(told["restored"]), "compare with what was submitted: phalanx ps -a")
        )
    return found


def read_told(state_dir: Path) -> dict[str, Any]:
    """What a daemon wrote about itself."""
    try:
        told = json.loads((state_dir / "daemon.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def find_socket(around: Surroundings, told: dict[str, Any]) -> Path:
    """Where the daemon of this directory listens, or would."""
    usual = SYSTEM_SOCKET if around.system else around.state_dir / "phalanx.sock"
    return around.socket_path or Path(str(told.get("socket") or usual))


def _answers(path: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(5.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _is_locked(around: Surroundings) -> bool:
    """From the kernel's list: trying the lock could make a daemon that starts just now give up."""
    try:
        inode = (around.state_dir / "lock").stat().st_ino
    except OSError:
        return False
    return any(" FLOCK " in line and f":{inode} " in line for line in around.text("proc/locks").splitlines())


# ---------------------------------------------------------------------- ports


def check_ports(around: Surroundings) -> list[Diagnosis]:
    """Ranks of a gang meet on a loopback port, and the daemon may listen on one."""
    why = _try_port("127.0.0.1", 0)
    if why is not None:
        message = f"no port can be opened on 127.0.0.1 ({why}); ranks of a gang could not meet"
        return [Diagnosis("ports", "fail", message, "ip link set lo up")]
    wanted = around.settings.tcp
    if wanted is None or _answers(find_socket(around, read_told(around.state_dir))):
        return [Diagnosis("ports", "ok", "ports of the loopback can be opened")]
    why = _try_port(*wanted)
    if why is not None:
        fix = f"see who has it: ss -ltnp 'sport = :{wanted[1]}'; or set tcp to another port"
        return [Diagnosis("ports", "fail", f"{wanted[0]}:{wanted[1]} cannot be opened: {why}", fix)]
    return [Diagnosis("ports", "ok", f"{wanted[0]}:{wanted[1]} is free")]


def _try_port(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as bad:
            return "somebody listens there" if bad.errno == errno.EADDRINUSE else bad.strerror or os.strerror(0)
    return None
