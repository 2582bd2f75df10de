"""Named places at which a test may end the daemon, as kill -9 would.

A label is a string that stands in the code where something is half done. Outside tests nothing
happens there. A test names a label in the environment (`PHALANX_CRASH=daemon.start.after_commit`,
with `:3` for the third time); `PHALANX_CRASH_LOG` names a file in which every label that was
passed is noted, so that a test can say which were never reached.
"""

from __future__ import annotations

import os
import signal
from typing import Final

#: Every label there is: S0 to S11 of the start protocol, and what came with it.
LABELS: Final = (
    "submit.before_commit",  # S0
    "submit.before_reply",  # S1
    "start.before_commit",  # S2
    "start.after_commit",  # S3
    "start.shims_forked",  # S4
    "start.before_go",  # S5
    "start.after_go",  # S6, S7
    "exit.before_commit",  # S8
    "cancel.before_signal",  # S9
    "end.before_free",  # S10
    "resize.after_commit",  # S11
    "evict.after_commit",  # S11
    "resize.before_done",  # S11
)

_AIM, _, _COUNT = os.environ.get("PHALANX_CRASH", "").partition(":")
_LOG = os.environ.get("PHALANX_CRASH_LOG", "")
_left = int(_COUNT or 1)


def crashpoint(label: str) -> None:
    """Something is half done here."""
    if not _AIM and not _LOG:
        return
    _reached(label)


def _reached(label: str) -> None:
    global _left  # noqa: PLW0603 - one countdown a process is the point
    assert label in LABELS, label
    if _LOG:
        with open(_LOG, "a", encoding="utf-8") as log:  # noqa: PTH123 - flushed before the end comes
            log.write(label + "\n")
    if label == _AIM:
        _left -= 1
        if _left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
