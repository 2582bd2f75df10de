"""Room on the disk that is kept for the day on which there is none.

The ballast is a file that holds nothing. When the disk is full it is removed, and what must still be written down
(exits, ends) goes where it was.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

BALLAST_BYTES: Final = 4 << 20
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Ballast:
    """The file, which is there or not."""

    def __init__(self, path: Path, size: int = BALLAST_BYTES) -> None:
        self._path = path
        self._size = size

    @property
    def held(self) -> bool:
        """Whether there is room in reserve."""
        return self._path.exists()

    def release(self) -> bool:
        """Give the room back; says whether there was any. Never raises: something is wrong already."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def make(self) -> bool:
        """Take the room, if as much again is left for others; says whether the disk has it.

        Twice the size is asked for and half of it kept: else the room that was just released would look like space
        that has come back. Asking is the only honest way to find out, because a user's limit on a disk and blocks
        reserved for root are not in the numbers of `statvfs`.
        """
        if self.held:
            return True
        taking = self._path.with_name(self._path.name + ".new")
        try:
            descriptor = os.open(taking, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, 2 * self._size)
                os.ftruncate(descriptor, self._size)
            finally:
                os.close(descriptor)
            taking.rename(self._path)
        except OSError as error:
            with suppress(OSError):
                taking.unlink()
            # A file system that cannot allocate ahead has no ballast; that does not make it full.
            return error.errno not in _NO_ROOM
        return True


def has_room(directory: Path, size: int = BALLAST_BYTES) -> bool:
    """Whether a file of this size could be written here now."""
    probe = Ballast(directory / "probe", size)
    try:
        return probe.make()
    finally:
        probe.release()
