"""The small client inside a job: say how it goes, hear what the scheduler wants, answer.

    job = elastic.join()                  # does nothing outside Phalanx
    job.progress(step, total=steps)
    if change := job.pending(): ...       # shrink, grow, yield or checkpoint; never blocks
    job.done(change)

Standard library and `phalanx.wire` only. docs/protocol.md says what goes over the socket.
"""

from __future__ import annotations

from phalanx.elastic.asked_changes import CHECKPOINT, GROW, SHRINK, YIELD, Change
from phalanx.elastic.client import Job, join, progress
from phalanx.elastic.signals import checkpoint_on_sigterm

__all__ = ["CHECKPOINT", "GROW", "SHRINK", "YIELD", "Change", "Job", "checkpoint_on_sigterm", "join", "progress"]
