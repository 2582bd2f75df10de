"""Ends that nobody ordered: a line that was cut, and what a shim says of what is left of its run.

A shim runs as the job's user, who may play shim. So its word that nothing is left, or that something does not die, is
looked into before anybody hears of it; and a run whose shim is gone is over only when nothing of it is there.
"""

from __future__ import annotations

import logging

from phalanx.frontends.host.containment import WEAK
from phalanx.frontends.host.launching import patience
from phalanx.frontends.host.launching.clearing import clear_run, is_empty
from phalanx.frontends.host.launching.directory import RunFacts
from phalanx.frontends.host.launching.log_reading import read_log
from phalanx.frontends.host.launching.shim_link import ShimLink
from phalanx.frontends.host.launching.shims import Shims
from phalanx.frontends.host.launching.tasks import Tasks

_log = logging.getLogger(__name__)
_TAIL_BYTES = 2048


class RunEnds:
    """Looks after each run in one task for each kind of trouble, however often it is told."""

    def __init__(self, shims: Shims, tasks: Tasks, kill_stuck_s: float) -> None:
        """Nothing happened yet."""
        self._shims, self._tasks, self._kill_stuck_s = shims, tasks, kill_stuck_s
        self._cut: set[str] = set()
        self._clearing: set[str] = set()

    def make_link(self, facts: RunFacts) -> ShimLink:
        """A link to the shim of a run whose troubles come here."""
        return ShimLink(facts, self.on_cut, self._on_empty, self._on_stuck)

    def on_cut(self, link: ShimLink) -> None:
        """Its line has ended and nobody here wanted that."""
        # While it is being found, whoever looks for it deals with that.
        if self._shims.links.get(link.run) is link and link.run not in self._cut:
            self._cut.add(link.run)
            task = self._tasks.start(self._take_up_again(link))
            task.add_done_callback(lambda _: self._cut.discard(link.run))

    def _on_empty(self, link: ShimLink) -> None:
        """The shim runs as the job's user, who may therefore play shim; the cgroup has the last word."""
        if is_empty(link.facts):
            link.tell_end("empty")
        else:
            _log.warning("run %s: its shim says that nothing is left, and that is not so", link.run)
            self._tasks.start(self._clear(link))

    def _on_stuck(self, link: ShimLink) -> None:
        """The shim's word alone takes no device away from anybody: what is stuck survives us too."""
        if not link.is_stuck and link.run not in self._clearing:
            self._clearing.add(link.run)
            task = self._tasks.start(self._clear(link))
            task.add_done_callback(lambda _: self._clearing.discard(link.run))

    async def end(self, link: ShimLink) -> None:
        """End a run whose shim does not, whoever answers for that: its control group is emptied from here.

        Again and again until nothing is in it, and only then anybody hears of the end. Where there is no group, the
        same is done to what the run's mark and its shim's children show.
        """
        self._shims.kill(link)
        await self._end_from_here(link)

    async def _clear(self, link: ShimLink) -> None:
        story = self._shims.runs.read_story(link.run)
        await clear_run(link.facts, story, self._kill_stuck_s, link.tell_stuck)
        link.tell_end("empty")

    async def _take_up_again(self, link: ShimLink) -> None:
        """The line was cut: take it up again if the shim lives, else tell how the run ended once nothing is left."""
        link.cuts += 1
        if link.cuts > patience.CUTS_MAX:
            self._shims.kill(link, "its shim hangs up again and again")  # that can go on for ever
        while not link.left and (state := await self._shims.reach(link, patience.FOUND_WITHIN_S)) is not None:
            link.tell_state(state, lambda rank: self._read_tail(link.run, rank))
            if link.line is not None:
                return
        if not link.left:
            await self._end_from_here(link)

    async def _end_from_here(self, link: ShimLink) -> None:
        """Tell how a run ended once nothing of it is left."""
        story = self._shims.runs.read_story(link.run)
        await clear_run(link.facts, story, self._kill_stuck_s, link.tell_stuck)
        if story is not None:
            for rank, (generation, code, number) in story.exits.items():
                end = {"rank": rank, "generation": generation, "code": code, "signal": number}
                link.tell_exit(end, self._read_tail(link.run, rank))
        link.tell_end("empty" if story is not None and story.done else "lost")

    def _read_tail(self, run: str, rank: int) -> str:
        data, _, _ = read_log(self._shims.runs.path / run, rank, tail_bytes=_TAIL_BYTES)
        return data.decode(errors="replace")


def tell_shim_loss(contained: str, blame: str = "") -> str:
    """Why an attempt is over whose shim was killed; `contained` is how well its processes were held together.

    `blame`: why the daemon did that; empty if it was somebody else.
    """
    who = f"{blame}, so the daemon killed it" if blame else "its shim was killed"
    if contained == WEAK:
        return (
            f"{who}; what could be found of it has been killed, but without control groups a process that "
            "left its session and its environment may still run (phalanx doctor)"
        )
    return f"{who}; what was left of it has been killed too"
