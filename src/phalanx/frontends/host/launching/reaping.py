"""Waiting for shims that this daemon started, one descriptor each and no thread.

Those that an earlier daemon started are children of init, which waits for them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess


class Reaper:
    """The shims that are children of this process."""

    def __init__(self) -> None:
        #: By pid and start time: a number alone may be that of a later shim.
        self._children: dict[tuple[int, int], tuple[int, subprocess.Popen[bytes]]] = {}

    def watch(self, process: subprocess.Popen[bytes], start: int) -> None:
        """Wait for this one, which started then, when it ends."""
        fd = os.pidfd_open(process.pid)
        child = process.pid, start
        self._children[child] = (fd, process)
        asyncio.get_running_loop().add_reader(fd, self._on_end, child)

    def kill(self, pid: int, start: int) -> bool:
        """End a shim that does not end by itself; False if this is none of our children."""
        if (pid, start) not in self._children:
            return False
        signal.pidfd_send_signal(self._children[pid, start][0], signal.SIGKILL)
        return True

    def close(self) -> None:
        """The daemon stops; they go on."""
        for fd, process in self._children.values():
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
            # Popen would complain that nobody waited. That is so, and meant: they outlive us.
            process.returncode = 0
        self._children.clear()

    def _on_end(self, child: tuple[int, int]) -> None:
        fd, process = self._children.pop(child)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        process.wait()
