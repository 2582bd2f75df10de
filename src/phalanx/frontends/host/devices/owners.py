"""Whose process a process is."""

from __future__ import annotations

import pwd
from functools import lru_cache
from typing import Final

#: The process cannot be seen: another container's, hidden, or on its way out.
UNKNOWN_USER: Final = "?"


def read_owner(pid: int) -> tuple[str, str]:
    """User and name of a process."""
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            uid, name = process.uids().real, process.name()
    except (psutil.Error, OSError):
        return UNKNOWN_USER, ""
    # Anybody may call a process anything, also what a terminal would obey.
    return find_user_name(uid), "".join(char if char.isprintable() else "?" for char in name)


@lru_cache(maxsize=1024)
def find_user_name(uid: int) -> str:
    """The name of a user, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
