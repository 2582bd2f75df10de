"""The launcher: prepare, go, stop, find.

The daemon's orders come in here. How shims are reached and killed is in `shims`, what an earlier daemon left in
`finding`, and ends that nobody ordered in `run_ends`.

Everything that takes its time in the kernel (making a directory, starting a process, looking through
/proc) happens in threads of one small pool; there is no thread and no task but one for each run.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.frontends.host.containment import CGROUP1, CGROUP2, WEAK
from phalanx.frontends.host.crashpoints import crashpoint
from phalanx.frontends.host.launching import patience
from phalanx.frontends.host.launching.clearing import clear_overdue, clear_run
from phalanx.frontends.host.launching.directory import Runs
from phalanx.frontends.host.launching.finding import Finder, list_runs
from phalanx.frontends.host.launching.run_ends import RunEnds
from phalanx.frontends.host.launching.run_making import Maker, Manner
from phalanx.frontends.host.launching.shim_link import Listener, ShimLink
from phalanx.frontends.host.launching.shims import Shims
from phalanx.frontends.host.launching.tasks import Tasks
from phalanx.frontends.host.ports import CannotStart, FoundRun, Launcher, MemberOrder, Order, Ready
from phalanx.frontends.host.shim.bounds import read_generation, read_member

_log = logging.getLogger(__name__)
_AT_ONCE = 8
_WRITE_OFF_LOOKS = 60
_DISCARD_WAIT_S = 3.0
#: A shim that says that something does not die says it a moment later than we would.
_STUCK_TOLD_S = 3.0


class HostLauncher:
    """Starts shims and keeps the line to them."""

    def __init__(
        self,
        runs: Path,
        *,
        drop_privileges: bool,
        python: str = sys.executable,
        contain: Iterable[str] = (CGROUP2, CGROUP1),
        kill_stuck_s: float = 30.0,
        log_rate_bytes_s: int = 16 << 20,
    ) -> None:
        """`contain`: the kinds of containment to try, best first; nothing is tried before it is needed."""
        self._runs = Runs(runs.absolute())
        self._kill_stuck_s = kill_stuck_s
        self._maker = Maker(self._runs, Manner(drop_privileges, python, tuple(contain), kill_stuck_s, log_rate_bytes_s))
        self._preparing: set[str] = set()
        self._listeners: list[Listener] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()
        self.shims = Shims(self._runs)
        self._ends = RunEnds(self.shims, self._tasks, kill_stuck_s)
        self._finder = Finder(self.shims, self._ends, kill_stuck_s)

    @property
    def containment(self) -> str:
        """How well runs are held together here: cgroup2, cgroup1 or weak."""
        return self._maker.ground.kind if self._maker.ground is not None else WEAK

    def on_event(self, listener: Listener) -> None:
        """Who is told of events, in order for each run. Those of found runs flow once `find` has returned."""
        self._listeners.append(listener)

    # ------------------------------------------------------------------ starting

    async def prepare(self, order: Order) -> Ready:
        """Run directory, shim, members at the gate. Raises CannotStart, and then nothing is left."""
        if order.run in self.shims.links or order.run in self._preparing:
            raise CannotStart(f"run {order.run} is being looked after already")
        self._preparing.add(order.run)
        try:
            async with self._slots:  # for what is the machine's work; a shim may take its time, and its user's time
                link, asked = await self._spawn(order)
            ready = await self._wait_until_ready(link, asked)
        finally:
            self._preparing.discard(order.run)
        self.shims.links[order.run] = link
        link.start_telling(self._listeners)
        return ready

    async def _wait_until_ready(self, link: ShimLink, asked: asyncio.Future[Mapping[str, Any]]) -> Ready:
        try:
            async with asyncio.timeout(patience.READY_WITHIN_S):
                ready = self._admit(link, await asked)
            link.check_line()
        except TimeoutError:
            await asyncio.shield(self._give_up(link))
            raise CannotStart(f"the shim of run {link.run} was not ready in {patience.READY_WITHIN_S:.0f} s") from None
        except CannotStart as error:
            notes = self._runs.read_notes(link.run)
            await asyncio.shield(self._give_up(link))
            raise CannotStart(f"run {link.run} could not be prepared: {error}{notes}") from None
        except BaseException:
            await asyncio.shield(self._give_up(link))
            raise
        return ready

    async def _spawn(self, order: Order) -> tuple[ShimLink, asyncio.Future[Mapping[str, Any]]]:
        _ = self._maker.ground  # found out here, not by several threads at once
        made, facts, spawned = await asyncio.to_thread(self._maker.make, order)
        crashpoint("start.shims_forked")
        try:
            link = self._ends.make_link(facts)
            asked = link.ask("ready", order.generation)
            self.shims.reaper.watch(spawned.process, facts.shim_start)
            await asyncio.get_running_loop().create_connection(link.make_line, sock=spawned.line)
        finally:
            made.close()
        return link, asked

    def _admit(self, link: ShimLink, ready: Mapping[str, Any]) -> Ready:
        generation = read_generation(ready["generation"])
        pids = dict(read_member(m["rank"], m["pid"], m["start"]) for m in ready["members"])
        left_out = self._maker.admit(link.facts, generation, pids)
        if left_out:
            _log.warning("run %s: ranks %s are not in their cgroup; containment is weak", link.run, left_out)
            link.contained = WEAK
        return Ready(generation, pids, link.contained)

    async def _give_up(self, link: ShimLink) -> None:
        """End a run that was not let go, and leave nothing of it."""
        link.send("abort")
        link.leave()
        self.shims.links.pop(link.run, None)
        story = await self.shims.wait_for_end(link, patience.ANSWER_WITHIN_S)
        await clear_run(link.facts, story, self._kill_stuck_s, lambda _: None, wait=False)
        if story is None or not story.went:
            self._runs.remove(link.run)
        self._maker.remove_group(link.run)

    async def go(self, run: str, generation: int) -> None:
        """Let the members of this generation through the gate; returns when the shim has written that down."""
        link = self.shims.links.get(run)
        if link is None:
            raise CannotStart(f"run {run} is not there any more")
        if link.line is None:
            await self._judge_go(link, generation, "its shim died before anybody was let go")
            return
        gone = link.ask("gone", generation)
        link.send("go", generation=generation)
        try:
            async with asyncio.timeout(patience.ANSWER_WITHIN_S):
                await gone
        except TimeoutError:
            self.shims.kill(link)  # it was let go, or not: once it is dead its journal says which
            await self._judge_go(link, generation, "the shim does not answer")
            return
        except CannotStart as error:
            await self._judge_go(link, generation, str(error))
            return
        link.went = True

    async def _judge_go(self, link: ShimLink, generation: int, why: str) -> None:
        """Nobody was let through, and then nothing is left; else `lost` or `empty` tells what became of the run."""
        story = await self.shims.wait_for_end(link, patience.ANSWER_WITHIN_S) if link.line is None else None
        if story is not None and story.generation >= generation:
            link.went = True
            return
        if not link.went:
            await self._give_up(link)
        raise CannotStart(why)

    async def abort(self, run: str) -> None:
        """Give up a run that was prepared and not let go, or members that were added and not let go."""
        link = self.shims.links.get(run)
        if link is not None and link.went:
            link.send("abort")
        elif link is not None:
            await self._give_up(link)
        elif self._runs.exists(run) and not self._runs.is_locked(run):
            story = self._runs.read_story(run)
            if story is None or not story.went:
                self._runs.remove(run)
                self._maker.remove_group(run)

    async def add(self, run: str, generation: int, members: Sequence[MemberOrder]) -> Ready:
        """Further members of a living run, at a gate of their own."""
        link = self.shims.links.get(run)
        if link is None or link.line is None:
            raise CannotStart(f"run {run} has no shim any more")
        ready = link.ask("ready", generation)
        orders = self._maker.make_members(link.facts, generation, members)
        link.send("add", generation=generation, members=orders)
        try:
            async with asyncio.timeout(patience.READY_WITHIN_S):
                return self._admit(link, await ready)
        except TimeoutError:
            link.send("abort")
            raise CannotStart(f"the shim of run {run} did not answer within {patience.READY_WITHIN_S:.0f} s") from None

    # ------------------------------------------------------------------ orders

    async def stop(self, run: str, ranks: Sequence[int] | None, signal: str, grace_s: float) -> None:
        """Signal these members (None: all), and kill what is left of them after the grace."""
        chosen = None if ranks is None else list(ranks)
        self._send(run, "stop", ranks=chosen, signal=signal, grace_s=grace_s)
        link = self.shims.links.get(run)
        if link is not None and not link.is_over(chosen):
            self._tasks.start(self._insist(link, chosen, grace_s))

    async def _insist(self, link: ShimLink, ranks: list[int] | None, grace_s: float) -> None:
        """In system mode a shim is its user's, who may have stopped it, or taken its place and its lock.

        Nobody holds on to devices that way: after the grace members are killed from here, which does an honest shim no
        harm. One that does not tell of it then is to blame, and only what the kernel says of the run counts.
        """

        def is_settled() -> bool:
            return link.left or link.is_over(ranks) or link.is_stuck

        await asyncio.sleep(grace_s + patience.LATE_S)
        emptied = is_settled() or await clear_overdue(link.facts, ranks, self._kill_stuck_s + _STUCK_TOLD_S, is_settled)
        if emptied and not is_settled():
            await asyncio.sleep(patience.SILENT_S if ranks is None else patience.ANSWER_WITHIN_S)
        if not is_settled():
            await self._ends.end(link)

    async def signal(self, run: str, ranks: Sequence[int] | None, signal: str) -> None:
        """Only signal."""
        self._send(run, "signal", ranks=None if ranks is None else list(ranks), signal=signal)

    async def tell(self, run: str, ranks: Sequence[int] | None, message: Mapping[str, Any]) -> None:
        """A message of the job protocol."""
        self._send(run, "tell", ranks=None if ranks is None else list(ranks), message=dict(message))

    def _send(self, run: str, verb: str, **fields: Any) -> None:
        link = self.shims.links.get(run)
        if link is not None:
            link.send(verb, **fields)

    async def forget(self, run: str) -> None:
        """The core has written down how it ended; the shim may go."""
        link = self.shims.links.pop(run, None)
        if link is not None:
            link.send("bye")
            link.leave()
        cgroup = link.facts.cgroup if link is not None else None
        if self._maker.remove_group(run, cgroup):
            self._runs.strike(run)
        else:
            self._tasks.start(self._write_off(run, cgroup))

    async def _write_off(self, run: str, cgroup: str | None) -> None:
        """The kernel is a moment behind, or something does not die; the latter is found by the next daemon."""
        for _ in range(_WRITE_OFF_LOOKS):
            await asyncio.sleep(1.0)
            if self._maker.remove_group(run, cgroup):
                self._runs.strike(run)
                return

    async def discard(self, run: str) -> bool:
        """Remove the directory of a run that was forgotten, logs and all; False if its shim is still there."""
        if run in self.shims.links:
            return False
        wait_s = 0.005
        while self._runs.is_locked(run):  # it was told `bye` a moment ago
            if wait_s > _DISCARD_WAIT_S:
                return False
            await asyncio.sleep(wait_s)
            wait_s *= 2
        await asyncio.to_thread(self._runs.remove, run)
        return True

    async def detach(self) -> None:
        """The daemon stops; runs go on."""
        for link in self.shims.links.values():
            link.leave()
        self.shims.links.clear()
        await self._tasks.cancel()
        self.shims.reaper.close()
        self._maker.close()
        await asyncio.sleep(0)  # transports close in the next turn of the loop

    # ------------------------------------------------------------------ finding

    async def find(self, named: Collection[str] = ()) -> list[FoundRun]:
        """Look at every run directory: connect to living shims, kill what dead ones left; and at those of `named`."""
        links = self.shims.links
        _ = self._maker.ground  # found out here, as in a start
        listed = await list_runs(self._maker.traces, {*links, *self._preparing}, named)
        found = await self._finder.find([facts for run, facts in listed.items() if run not in links])
        self._maker.remove_groups_but({*listed, *links, *self._preparing})
        for link in links.values():
            link.start_telling(self._listeners)
        return found


_: Callable[..., Launcher] = HostLauncher
