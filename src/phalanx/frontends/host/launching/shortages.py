"""What a machine has run out of, in words, with the command that shows it."""

from __future__ import annotations

import errno
from typing import Final

_RAN_OUT: Final = {
    errno.ENOSPC: "the disk has no room or no inodes left; look at df -h and df -i",
    errno.EDQUOT: "the disk quota is used up; look at quota -s",
    errno.EMFILE: "the daemon has no file descriptors left; start it with a higher limit (ulimit -Hn)",
    errno.ENFILE: "this machine has no file descriptors left; look at /proc/sys/fs/file-nr",
    errno.EAGAIN: "no more processes may be started here; look at ulimit -u and /proc/sys/kernel/pid_max",
    errno.ENOMEM: "this machine has no memory left; look at free -h",
    errno.EROFS: "the file system is read-only; look at dmesg",
}


def is_shortage(error: OSError) -> bool:
    """Whether it would have worked on the same machine at another time."""
    return error.errno in _RAN_OUT


def explain_shortage(error: OSError) -> str:
    """The kernel's words, and what they mean here where that is known."""
    told, meaning = error.strerror or str(error), _RAN_OUT.get(error.errno or 0)
    told = f"{told}: {meaning}" if meaning else told
    return f"{told} ({error.filename})" if error.filename else told
