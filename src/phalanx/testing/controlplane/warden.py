"""Owns the programs of one control plane and ends them, in order or not: run as a process of its own.

Reads one JSON request a line from standard input and answers each with one line:

    {"do": "start", "name": ..., "command": [...], "log": path}  →  {"pid": n}
    {"do": "signal", "name": ..., "signal": n, "wait_s": s}      →  {"ended": bool}
    {"do": "look"}                                               →  {name: exit code or null}

When standard input ends, or whoever started it is gone, it kills what still runs, removes the folders named on its
command line and exits. So an orderly stop and a test that was killed take the same way out. The programs die with the
warden too (PR_SET_PDEATHSIG). The test itself could not ask for that: the signal comes when the *thread* that made the
child ends, and a test may start a control plane from any thread. The warden has one.

Standard library only, and run with `-I -S`: it is up in 30 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Wards:
    """The programs by name: at most one of each lives."""

    def __init__(self) -> None:
        self._all: dict[str, subprocess.Popen[bytes]] = {}
        self._me = os.getpid()

    def start(self, name: str, command: list[str], log: str) -> dict[str, Any]:
        """Run a program, its output appended to the log."""
        with open(log, "ab") as output:  # noqa: PTH123 - pathlib costs a third of the start
            self._all[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=self._die_with_me,  # noqa: PLW1509 - there is one thread
            )
        return {"pid": self._all[name].pid}

    def _die_with_me(self) -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._me:  # it died before it could be asked for
            os._exit(1)

    def signal(self, name: str, number: int, wait_s: float) -> dict[str, Any]:
        """Send a signal, which cannot hit a stranger: a child that nobody has waited for keeps its number."""
        program = self._all[name]
        program.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(wait_s)
        return {"ended": program.returncode is not None}

    def look(self) -> dict[str, Any]:
        """Who lives (null), and how the others ended."""
        return {name: program.poll() for name, program in self._all.items()}

    def end(self) -> None:
        """Kill all at once: what they have on disk goes too, so nothing is gained by asking them."""
        for program in self._all.values():
            program.kill()
        for program in self._all.values():
            program.wait()


def read_requests(parent: int) -> Iterator[dict[str, Any]]:
    """Requests until the input ends or the parent does; a fork of the parent may hold the other end open for long."""
    watch = os.pidfd_open(parent)
    rest = b""
    while os.getppid() == parent:
        ready, _, _ = select.select([0, watch], [], [])
        if 0 not in ready or not (part := os.read(0, 65_536)):
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from map(json.loads, lines)


def main(parent: int, folders: list[str]) -> None:
    """Serve until the end, then clear up."""
    # A terminal's Ctrl-C is for the test, which then closes our input; a plain kill is an end like any other.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    wards = Wards()
    try:
        for request in read_requests(parent):
            try:
                answer = getattr(wards, request.pop("do"))(**request)
            except (OSError, KeyError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            os.write(1, json.dumps(answer).encode() + b"\n")
    finally:
        wards.end()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
