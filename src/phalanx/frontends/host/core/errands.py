"""What is still to be done: when to look again, who waits for an end, work beside everything else, and when to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from phalanx.frontends.host.core.agenda import Agenda
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.store import StoreBroken

log = logging.getLogger("phalanx")


@dataclass(slots=True)
class Errands:
    """One daemon's."""

    agenda: Agenda = field(default_factory=Agenda)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    dirty: bool = True  # something happened that could change the plan
    broken: asyncio.Event = field(default_factory=asyncio.Event)  # the store failed: stop, and let the next one look
    ends: dict[int, asyncio.Event] = field(default_factory=dict)  # jobs that somebody waits for
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def stir(self) -> None:
        """Plan again soon."""
        self.dirty = True
        self.wake.set()

    def stop_broken(self, why: StoreBroken) -> None:
        """After a failed write nobody knows what is on the disk: say so once, and let the next daemon look."""
        if not self.broken.is_set():
            log.critical("the store can be trusted no more, and the daemon stops; running jobs go on: %s", why)
        self.broken.set()
        self.wake.set()

    def tell_end(self, job: Job) -> None:
        """Wake whoever waits for this end."""
        event = self.ends.pop(job.id, None)
        if event is not None:
            event.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside everything else; what goes wrong in it is written to the log and nowhere swallowed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, StoreBroken):
            self.stop_broken(failure)
        elif failure is not None:
            log.error("a task of the core failed", exc_info=failure)
