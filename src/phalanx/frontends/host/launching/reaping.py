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
        self._children: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for this one when it ends."""
        fd = os.pidfd_open(process.pid)
        self._children[process.pid] = (fd, process)
        asyncio.get_running_loop().add_reader(fd, self._on_end, process.pid)

    def kill(self, pid: int) -> None:
        """End a shim that does not end by itself."""
        if pid in self._children:
            signal.pidfd_send_signal(self._children[pid][0], signal.SIGKILL)

    def close(self) -> None:
        """The daemon stops; they go on."""
        for fd, process in self._children.values():
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
            # Popen would complain that nobody waited. That is so, and meant: they outlive us.
            process.returncode = 0
        self._children.clear()

    def _on_end(self, pid: int) -> None:
        fd, process = self._children.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        process.wait()
