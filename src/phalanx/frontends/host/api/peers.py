"""Who is at the other end of a unix socket, as the kernel attests it."""

from __future__ import annotations

import functools
import socket
import struct
from pathlib import Path
from typing import Final, Protocol

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid
_NO_UID: Final = (1 << 32) - 1
_EVERY_UID: Final = ["0", "0", str(_NO_UID)]


class _Socket(Protocol):
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def read_peer_uid(sock: _Socket) -> int | None:
    """The uid that connected, or None where the kernel cannot tell one user from another."""
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return None if uid in find_shared_uids() else uid


@functools.cache
def find_shared_uids() -> frozenset[int]:
    """Uids that stand for more than one user.

    Inside a user namespace everybody whom it does not map looks the same (usually 65534): two strangers
    could pass for each other. Outside one, that number is an ordinary user.
    """
    try:
        mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return frozenset({_NO_UID})
    return frozenset({_NO_UID} if mapped == _EVERY_UID else {_NO_UID, overflow})
