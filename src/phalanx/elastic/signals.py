"""For a job that can only save: SIGTERM saves, and then ends it as SIGTERM does."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

LOGGER = logging.getLogger("phalanx.elastic")


def checkpoint_on_sigterm(save: Callable[[], object]) -> Callable[[], None]:
    """Call `save` once when SIGTERM comes, then die of it; returns what takes that back.

    `save` runs in the main thread between two of its instructions, perhaps in the middle of a step:
    it saves what it would save there. Further SIGTERMs wait for it; SIGKILL does not. The process
    ends with the signal and not with code 0, or a job that was stopped would pass for completed.
    """
    if threading.current_thread() is not threading.main_thread():
        LOGGER.warning("checkpoint_on_sigterm works in the main thread only; SIGTERM will not save")
        return lambda: None

    def on_sigterm(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        try:
            save()
        except Exception:  # noqa: BLE001 - whatever went wrong with saving is shown, and the signal still ends it
            traceback.print_exc()
        finally:
            _die_of(number)

    previous = signal.signal(signal.SIGTERM, on_sigterm)
    return lambda: _restore(previous)


def _die_of(number: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # a death by signal does not
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container cannot be killed by its own SIGTERM


def _restore(previous: object) -> None:
    # None: set by code that is not Python's, and cannot be put back.
    signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)  # type: ignore[arg-type]
