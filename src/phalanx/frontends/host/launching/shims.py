"""Shims as processes: reached by their sockets, known to live by their locks, killed where nothing else helps.

What they say goes through their links (`shim_link`). What becomes of a run whose shim is gone is decided elsewhere
(`finding` when the daemon starts, `run_ends` after that).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from phalanx.frontends.host import containment
from phalanx.frontends.host.containment import WEAK
from phalanx.frontends.host.launching import patience
from phalanx.frontends.host.launching.directory import RunFacts, Runs
from phalanx.frontends.host.launching.line import connect
from phalanx.frontends.host.launching.reaping import Reaper
from phalanx.frontends.host.launching.shim_link import NONSENSE, ShimLink
from phalanx.frontends.host.ports import CannotStart
from phalanx.frontends.host.shim.journal import Story

_log = logging.getLogger(__name__)


class Shims:
    """Those that this daemon has to do with.

    A run has its link in `links` from when it is ready, or found, until it is given up or forgotten. A link that is
    not there is somebody's who still prepares or looks for the run, and deals with what happens to it.
    """

    def __init__(self, runs: Runs) -> None:
        """None yet."""
        self.runs = runs
        self.links: dict[str, ShimLink] = {}
        self.reaper = Reaper()

    def is_alive(self, facts: RunFacts) -> bool:
        """By the lock that it holds; where somebody removed that, by the process that a daemon forked."""
        if self.runs.is_locked(facts.run):
            return True
        lives = containment.is_identified(facts.shim_pid, facts.shim_start, facts.uid)
        return lives and self.runs.lacks(facts.run, "lock")

    async def reach(self, link: ShimLink, within_s: float, *, kill: bool = True) -> Mapping[str, Any] | None:
        """Connect to the shim of a run and ask for its state; None if it is dead, or (with `kill`) then made so."""
        clock = asyncio.get_running_loop().time
        until_s, wait_s = clock() + within_s, 0.01
        # Whatever its journal says, which may be lost: one that nobody was let through by sees that its daemon is gone,
        # ends by itself and answers nobody.
        while self.is_alive(link.facts):
            state = await self._connect(link, min(within_s, patience.ANSWER_WITHIN_S))
            if state is not None:
                return state
            if clock() > until_s and not kill:
                return None
            if clock() > until_s:
                gone = self.runs.lacks(link.run, "control.sock")
                why = "somebody removed control.sock from its run directory" if gone else "its shim does not answer"
                self.kill(link, why)
                return None
            await asyncio.sleep(wait_s)
            wait_s = min(0.5, wait_s * 2)
        return None

    async def _connect(self, link: ShimLink, within_s: float) -> Mapping[str, Any] | None:
        with self.runs.open(link.run) as dir_fd:
            if dir_fd is None:
                return None
            try:
                line = connect(dir_fd, link.facts.uid)
            except OSError:
                return None
        await asyncio.get_running_loop().create_connection(link.make_line, sock=line)
        asked = link.ask("state")
        link.send("hello")
        try:
            async with asyncio.timeout(within_s):
                state = await asked
                link.read_state(state)
                link.check_line()
        except (TimeoutError, CannotStart, *NONSENSE):
            if link.line is not None:
                link.line.abort()
            return None
        link.flush()
        return state

    def kill(self, link: ShimLink, why: str = "its shim does not do what it is told") -> None:
        """With it gone, the run is ended from here."""
        _log.warning("run %s: %s; it is killed", link.run, why)
        link.blame = why
        self._end(link)

    def _end(self, link: ShimLink) -> None:
        """Kill the process that a daemon forked as this shim, and never another that has its number or its place."""
        facts = link.facts
        if facts.containment == WEAK:
            # With their shim gone nobody could tell any more which processes without a mark were of this run.
            containment.kill_descendants(facts.shim_pid, (facts.shim_start, facts.uid))
        if not self.reaper.kill(facts.shim_pid, facts.shim_start):
            containment.kill_identified(facts.shim_pid, facts.shim_start, facts.uid)

    async def wait_for_end(self, link: ShimLink, within_s: float) -> Story | None:
        """Until the shim has let go of its lock, by itself or killed; what it wrote."""
        clock = asyncio.get_running_loop().time
        until_s, wait_s = clock() + within_s, 0.005
        while self.is_alive(link.facts):
            if clock() > until_s + within_s:
                break  # not even SIGKILL ends it
            if clock() > until_s:
                self._end(link)
            await asyncio.sleep(wait_s)
            wait_s = min(0.2, wait_s * 2)
        return self.runs.read_story(link.run)
