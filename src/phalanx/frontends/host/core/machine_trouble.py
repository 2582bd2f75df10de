"""What is the matter with the machine, while nothing can be started on it, and when somebody tries again.

An environment that is being upgraded, a disk without inodes, no descriptors left: nobody's job is to blame, and none
fails of it. One start at a time tries whether it is over, less and less often; the first that comes to life frees
everybody. A job that failed twice in a row steps aside for a while: perhaps it is the only one, and whoever is first in
the order would be tried for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The first pause of everybody; each further one in a row is twice as long. The last is short: whoever mends a machine
#: watches it.
PAUSE_FIRST_US: Final = 1_000_000
PAUSE_LAST_US: Final = 15_000_000
#: How long one job steps aside, likewise.
ASIDE_FIRST_US: Final = 5_000_000
ASIDE_LAST_US: Final = 60_000_000


@dataclass(slots=True)
class Aside:
    """A job that could not be started the last time."""

    times: int = 0
    went: int = 0  # how many starts had gone well by then
    alone: bool = False  # others have come to life between two of its failures: it may well be its own doing


class MachineTrouble:
    """One machine's; `why` is empty while all is well."""

    def __init__(self) -> None:
        """All is well."""
        self.why = ""
        self.until_us = 0  # nobody is started before
        self._times = 0
        self._asides: dict[int, Aside] = {}
        self._went = 0

    def note_fault(self, job: int, why: str, now_us: int) -> int:
        """A start failed; how long this job should step aside. Without a `why` it is nothing to the others."""
        if why:
            self.why, self._times = why, self._times + 1
            self.until_us = now_us + min(PAUSE_FIRST_US << min(self._times - 1, 20), PAUSE_LAST_US)
        aside = self._asides.setdefault(job, Aside(went=self._went))
        aside.alone = aside.alone or aside.went != self._went
        aside.times, aside.went = aside.times + 1, self._went
        return min(ASIDE_FIRST_US << min(aside.times - 2, 20), ASIDE_LAST_US) if aside.times > 1 else 0

    def note_start(self, job: int) -> list[int]:
        """A gang came to life; who need not stand aside any longer, since it was not their fault."""
        self._asides.pop(job, None)
        self._went += 1
        if not self.why:
            return []
        self.why, self._times = "", 0
        return [number for number, aside in self._asides.items() if not aside.alone]

    def forget(self, job: int) -> None:
        """It has ended; with the last that could not be started goes what was said of the machine."""
        if self._asides.pop(job, None) is not None and not self._asides:
            self.why, self._times = "", 0
