"""The test's end of the line to the warden: while it is held, the programs live."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from phalanx.testing.controlplane import warden

END_LIMIT_S: Final = 20.0


class WardenLostError(Exception):
    """The warden is gone, and the programs with it: somebody killed it."""


class Tether:
    """Starts a warden; `end` ends it and all that it owns."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """`folders` are removed at the end."""
        self._folders = [*folders]
        command = [sys.executable, "-I", "-S", warden.__file__, str(os.getpid()), *map(str, self._folders)]
        # A session of its own: Ctrl-C at the terminal reaches the test, which then lets go of the line.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._lock = threading.Lock()
        self.pid = self._process.pid

    def ask(self, **request: object) -> Any:
        """One request and its answer; requests from several threads take turns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except (OSError, ValueError) as error:
                raise WardenLostError(str(error)) from error
        if not line:
            raise WardenLostError(f"exit code {self._process.poll()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ChildProcessError(f"{request.get('name')}: {answer['error']}")
        return answer

    def end(self) -> None:
        """Let go, and wait until everything is gone."""
        with self._process as process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # of a request that a dead warden did not read
                process.stdin.close()
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()  # its children have asked to die with it
                raise
            finally:
                for folder in self._folders:  # somebody killed the warden before us
                    shutil.rmtree(folder, ignore_errors=True)
