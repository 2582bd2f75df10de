"""What the shim asks of the kernel beyond the standard library, and how it makes sure who it is."""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


def become_subreaper() -> None:
    """Whatever members leave behind becomes a child of this process, and can be waited for."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def give_up_privileges(uid: int, gid: int) -> None:
    """Make sure that this process is the job's user, cannot become anybody else, and that nobody after it can."""
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3:
        raise PermissionError(f"the shim runs as {os.getresuid()}, {os.getresgid()} and not as user {uid}, group {gid}")
    try:
        os.setuid(0)
    except PermissionError:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        return
    raise PermissionError(f"user {uid} can become root again")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
