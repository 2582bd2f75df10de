"""Lines for shim.log, which is the stderr of a shim: what went wrong, for whoever looks into a run directory."""

from __future__ import annotations

import os

_BYTES_MAX = 65536


class Notes:
    """Not more than anybody wants to read: a member can make its shim complain as often as it likes."""

    def __init__(self) -> None:
        """Nothing went wrong yet."""
        self._bytes_left = _BYTES_MAX

    def write(self, line: str) -> None:
        """Say this, or nothing once too much was said."""
        if self._bytes_left > 0:
            data = line.encode(errors="backslashreplace") + b"\n"
            self._bytes_left -= len(data)
            complain(data)


def complain(line: bytes) -> None:
    """Into shim.log; if not even that can be written, so be it."""
    try:
        os.write(2, line)
    except OSError:
        return
