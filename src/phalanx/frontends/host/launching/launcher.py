"""The launcher: prepare, go, stop, find.

Everything that takes its time in the kernel (making a directory, starting a process, looking through
/proc) happens in threads of one small pool; there is no thread and no task but one for each run.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.frontends.host import containment
from phalanx.frontends.host.clock import read_boot_id
from phalanx.frontends.host.containment import CGROUP1, CGROUP2, WEAK
from phalanx.frontends.host.crashpoints import crashpoint
from phalanx.frontends.host.launching.clearing import clear_run, describe, is_empty
from phalanx.frontends.host.launching.directory import RunFacts, Runs
from phalanx.frontends.host.launching.line import connect
from phalanx.frontends.host.launching.log_reading import read_log
from phalanx.frontends.host.launching.reaping import Reaper
from phalanx.frontends.host.launching.run_making import Maker, Manner
from phalanx.frontends.host.launching.shim_link import NONSENSE, Listener, ShimLink
from phalanx.frontends.host.ports import CannotStart, FoundRun, Launcher, MemberOrder, Order, Ready
from phalanx.frontends.host.shim.bounds import read_end, read_generation, read_member
from phalanx.frontends.host.shim.journal import Story

_log = logging.getLogger(__name__)
READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 10.0
FOUND_WITHIN_S = 30.0
FOUND_AT_FIRST_S = 3.0
_AT_ONCE = 8
_FOUND_AT_ONCE = 32
_WRITE_OFF_LOOKS = 60
_DISCARD_WAIT_S = 3.0
CUTS_MAX = 20
LATE_S = 5.0
_TAIL_BYTES = 2048


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
        self._attempts: dict[str, ShimLink] = {}
        self._preparing: set[str] = set()
        self._settling: set[str] = set()
        self._clearing: set[str] = set()
        self._listeners: list[Listener] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._finding = asyncio.Semaphore(_FOUND_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reaper = Reaper()

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
        if order.run in self._attempts or order.run in self._preparing:
            raise CannotStart(f"run {order.run} is being looked after already")
        self._preparing.add(order.run)
        try:
            async with self._slots:  # for what is the machine's work; a shim may take its time, and its user's time
                attempt, asked = await self._spawn(order)
            ready = await self._wait_until_ready(attempt, asked)
        finally:
            self._preparing.discard(order.run)
        self._attempts[order.run] = attempt
        attempt.start_telling(self._listeners)
        return ready

    async def _wait_until_ready(self, attempt: ShimLink, asked: asyncio.Future[Mapping[str, Any]]) -> Ready:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                ready = self._admit(attempt, await asked)
            attempt.check_line()
        except TimeoutError:
            await asyncio.shield(self._give_up(attempt))
            raise CannotStart(f"the shim of run {attempt.run} was not ready in {READY_WITHIN_S:.0f} s") from None
        except CannotStart as error:
            notes = self._runs.read_notes(attempt.run)
            await asyncio.shield(self._give_up(attempt))
            raise CannotStart(f"run {attempt.run} could not be prepared: {error}{notes}") from None
        except BaseException:
            await asyncio.shield(self._give_up(attempt))
            raise
        return ready

    async def _spawn(self, order: Order) -> tuple[ShimLink, asyncio.Future[Mapping[str, Any]]]:
        _ = self._maker.ground  # found out here, not by several threads at once
        made, facts, spawned = await asyncio.to_thread(self._maker.make, order)
        crashpoint("start.shims_forked")
        try:
            attempt = ShimLink(facts, self._on_cut, self._on_empty, self._on_stuck)
            asked = attempt.ask("ready", order.generation)
            attempt.shim_pid = spawned.process.pid
            self._reaper.watch(spawned.process)
            await asyncio.get_running_loop().create_connection(attempt.make_line, sock=spawned.line)
        finally:
            made.close()
        return attempt, asked

    def _admit(self, attempt: ShimLink, ready: Mapping[str, Any]) -> Ready:
        generation = read_generation(ready["generation"])
        pids = dict(read_member(m["rank"], m["pid"], m["start"]) for m in ready["members"])
        left_out = self._maker.admit(attempt.facts, attempt.shim_pid, generation, pids)
        if left_out:
            _log.warning("run %s: ranks %s are not in their cgroup; containment is weak", attempt.run, left_out)
            attempt.contained = WEAK
        return Ready(generation, pids, attempt.contained)

    async def _give_up(self, attempt: ShimLink) -> None:
        """End a run that was not let go, and leave nothing of it."""
        attempt.send("abort")
        attempt.leave()
        self._attempts.pop(attempt.run, None)
        story = await self._wait_for_end(attempt, ANSWER_WITHIN_S)
        await clear_run(attempt.facts, story, self._kill_stuck_s, lambda _: None, wait=False)
        if story is None or not story.went:
            self._runs.remove(attempt.run)
        self._maker.remove_group(attempt.run)

    async def go(self, run: str, generation: int) -> None:
        """Let the members of this generation through the gate; returns when the shim has written that down."""
        attempt = self._attempts.get(run)
        if attempt is None:
            raise CannotStart(f"run {run} is not there any more")
        if attempt.line is None:
            await self._judge_go(attempt, generation, "its shim died before anybody was let go")
            return
        gone = attempt.ask("gone", generation)
        attempt.send("go", generation=generation)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await gone
        except TimeoutError:
            self._end_shim(attempt)  # it was let go, or not: once it is dead its journal says which
            await self._judge_go(attempt, generation, "the shim does not answer")
            return
        except CannotStart as error:
            await self._judge_go(attempt, generation, str(error))
            return
        attempt.went = True

    async def _judge_go(self, attempt: ShimLink, generation: int, why: str) -> None:
        """Nobody was let through, and then nothing is left; else `lost` or `empty` tells what became of the run."""
        story = await self._wait_for_end(attempt, ANSWER_WITHIN_S) if attempt.line is None else None
        if story is not None and story.generation >= generation:
            attempt.went = True
            return
        if not attempt.went:
            await self._give_up(attempt)
        raise CannotStart(why)

    def _end_shim(self, attempt: ShimLink) -> None:
        """A shim that does not do what it is told: with it gone, the run is ended from here."""
        _log.warning("run %s: its shim does not do what it is told; it is killed", attempt.run)
        if attempt.shim_pid is not None:
            containment.send_signal(attempt.shim_pid, signal.SIGKILL, lambda _: self._runs.is_locked(attempt.run))

    async def abort(self, run: str) -> None:
        """Give up a run that was prepared and not let go, or members that were added and not let go."""
        attempt = self._attempts.get(run)
        if attempt is not None and attempt.went:
            attempt.send("abort")
        elif attempt is not None:
            await self._give_up(attempt)
        elif self._runs.exists(run) and not self._runs.is_locked(run):
            story = self._runs.read_story(run)
            if story is None or not story.went:
                self._runs.remove(run)
                self._maker.remove_group(run)

    async def add(self, run: str, generation: int, members: Sequence[MemberOrder]) -> Ready:
        """Further members of a living run, at a gate of their own."""
        attempt = self._attempts.get(run)
        if attempt is None or attempt.line is None:
            raise CannotStart(f"run {run} has no shim any more")
        ready = attempt.ask("ready", generation)
        orders = self._maker.make_members(attempt.facts, generation, members)
        attempt.send("add", generation=generation, members=orders)
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                return self._admit(attempt, await ready)
        except TimeoutError:
            attempt.send("abort")
            raise CannotStart(f"the shim of run {run} did not answer within {READY_WITHIN_S:.0f} s") from None

    # ------------------------------------------------------------------ orders

    async def stop(self, run: str, ranks: Sequence[int] | None, signal: str, grace_s: float) -> None:
        """Signal these members (None: all), and kill what is left of them after the grace."""
        chosen = None if ranks is None else list(ranks)
        self._send(run, "stop", ranks=chosen, signal=signal, grace_s=grace_s)
        attempt = self._attempts.get(run)
        if attempt is not None and not attempt.is_over(chosen):
            self._start(self._insist(attempt, chosen, grace_s + self._kill_stuck_s + LATE_S))

    async def _insist(self, attempt: ShimLink, ranks: list[int] | None, after_s: float) -> None:
        """In system mode a shim is its user's, who may have stopped it: nobody holds on to devices that way."""
        await asyncio.sleep(after_s)
        if not attempt.left and attempt.line is not None and not attempt.is_over(ranks) and not attempt.is_stuck:
            self._end_shim(attempt)

    async def signal(self, run: str, ranks: Sequence[int] | None, signal: str) -> None:
        """Only signal."""
        self._send(run, "signal", ranks=None if ranks is None else list(ranks), signal=signal)

    async def tell(self, run: str, ranks: Sequence[int] | None, message: Mapping[str, Any]) -> None:
        """A message of the job protocol."""
        self._send(run, "tell", ranks=None if ranks is None else list(ranks), message=dict(message))

    def _send(self, run: str, verb: str, **fields: Any) -> None:
        attempt = self._attempts.get(run)
        if attempt is not None:
            attempt.send(verb, **fields)

    async def forget(self, run: str) -> None:
        """The core has written down how it ended; the shim may go."""
        attempt = self._attempts.pop(run, None)
        if attempt is not None:
            attempt.send("bye")
            attempt.leave()
        cgroup = attempt.facts.cgroup if attempt is not None else None
        if self._maker.remove_group(run, cgroup):
            self._runs.strike(run)
        else:
            self._start(self._write_off(run, cgroup))

    async def _write_off(self, run: str, cgroup: str | None) -> None:
        """The kernel is a moment behind, or something does not die; the latter is found by the next daemon."""
        for _ in range(_WRITE_OFF_LOOKS):
            await asyncio.sleep(1.0)
            if self._maker.remove_group(run, cgroup):
                self._runs.strike(run)
                return

    async def discard(self, run: str) -> bool:
        """Remove the directory of a run that was forgotten, logs and all; False if its shim is still there."""
        if run in self._attempts:
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
        for attempt in self._attempts.values():
            attempt.leave()
        self._attempts.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reaper.close()
        self._maker.close()
        await asyncio.sleep(0)  # transports close in the next turn of the loop

    # ------------------------------------------------------------------ finding

    async def find(self) -> list[FoundRun]:
        """Look at every run directory: connect to living shims, kill what dead ones left."""
        boot_id = read_boot_id()
        live = {facts.run: facts for facts in await asyncio.to_thread(self._runs.list_live)}
        if self._runs.read_boot() != boot_id:
            # After a power loss the list itself may have holes. Nothing of another boot lives, so it is quick.
            for run in self._runs.list_names():
                live.setdefault(run, RunFacts(run, -1, "", "", WEAK))
            self._runs.write_boot(boot_id)
        wanted = [facts for run, facts in live.items() if run not in self._attempts]
        found = await asyncio.gather(*(self._find_safely(facts, boot_id) for facts in wanted))
        self._maker.remove_groups_but({*live, *self._attempts, *self._preparing})
        for attempt in self._attempts.values():
            attempt.start_telling(self._listeners)
        return [one for one in found if one is not None]

    async def _find_safely(self, facts: RunFacts, boot_id: str) -> FoundRun | None:
        """One run that cannot be understood must not keep the daemon from the others."""
        try:
            return await self._find_one(facts, boot_id)
        except Exception:  # noqa: BLE001
            _log.exception("run %s cannot be understood; what is left of it is ended", facts.run)
            cleared = await clear_run(facts, None, self._kill_stuck_s, lambda _: None, wait=False)
            return FoundRun(facts.run, False, True, cleared, 1, {}, {}, lost=True)  # noqa: FBT003

    async def _find_one(self, facts: RunFacts, boot_id: str) -> FoundRun | None:
        async with self._finding:
            if not self._runs.exists(facts.run):
                self._runs.strike(facts.run)
                return None
            if facts.boot_id != boot_id:
                return describe(facts.run, self._runs.read_story(facts.run), done=True, same_boot=False)
            attempt = ShimLink(facts, self._on_cut, self._on_empty, self._on_stuck)
            state = await self._reach(attempt, FOUND_AT_FIRST_S, kill=False)
            if state is not None:
                self._attempts[facts.run] = attempt
                return self._adopt(attempt, state)
            if self._runs.is_locked(facts.run):  # nobody waits for it; it is looked after while everybody else goes on
                self._attempts[facts.run] = attempt
                self._on_cut(attempt)
                return replace(
                    describe(facts.run, self._runs.read_story(facts.run), done=False), alive=True, lost=False
                )
            return await self._bury(attempt)

    def _adopt(self, attempt: ShimLink, state: Mapping[str, Any]) -> FoundRun:
        members = attempt.read_state(state)
        exits = {rank: read_end(m["code"], m["signal"]) for rank, m in members.items() if m["exited"]}
        for rank in exits:
            attempt.know_exit(rank, int(members[rank]["generation"]))
        done = bool(state.get("empty")) and is_empty(attempt.facts)
        if done:
            attempt.know_end()
        attempt.tell_state(state, lambda _: "")
        return FoundRun(
            attempt.run,
            alive=True,
            went=attempt.went,
            done=done,
            generation=int(state["generation"]),
            members={rank: (int(m["pid"]), int(m["start"])) for rank, m in members.items()},
            exits=exits,
            spoke=[(said["rank"], said["message"]) for said in state.get("spoke", ())],
        )

    async def _bury(self, attempt: ShimLink) -> FoundRun:
        """The shim is dead: end what is left. What does not end in time is looked after until it does."""
        story = self._runs.read_story(attempt.run)
        cleared = await clear_run(attempt.facts, story, self._kill_stuck_s, attempt.tell_stuck, wait=False)
        found = describe(attempt.run, story, done=cleared)
        if not cleared:
            for rank, (generation, _, _) in (story or Story()).exits.items():
                attempt.know_exit(rank, generation)
            self._attempts[attempt.run] = attempt
            self._on_cut(attempt)
        return found

    async def _reach(self, attempt: ShimLink, within_s: float, *, kill: bool = True) -> Mapping[str, Any] | None:
        """Connect to the shim of a run and ask for its state; None if it is dead, or (with `kill`) then made so."""
        clock = asyncio.get_running_loop().time
        until_s, wait_s = clock() + within_s, 0.01
        while self._runs.is_locked(attempt.run):
            story = self._runs.read_story(attempt.run)
            # One that nobody was let through by sees that its daemon is gone, and ends by itself.
            if story is not None and story.went:
                state = await self._connect(attempt, min(within_s, ANSWER_WITHIN_S))
                if state is not None:
                    return state
            if clock() > until_s and not kill:
                return None
            if clock() > until_s:
                _log.warning("run %s: its shim holds the lock and does not answer; it is killed", attempt.run)
                if story is not None and story.boot_id == attempt.facts.boot_id:
                    containment.kill_identified(story.pid, story.start, attempt.facts.uid)
                return None
            await asyncio.sleep(wait_s)
            wait_s = min(0.5, wait_s * 2)
        return None

    async def _connect(self, attempt: ShimLink, within_s: float) -> Mapping[str, Any] | None:
        with self._runs.open(attempt.run) as dir_fd:
            if dir_fd is None:
                return None
            try:
                line, attempt.shim_pid = connect(dir_fd, attempt.facts.uid)
            except OSError:
                return None
        await asyncio.get_running_loop().create_connection(attempt.make_line, sock=line)
        asked = attempt.ask("state")
        attempt.send("hello")
        try:
            async with asyncio.timeout(within_s):
                state = await asked
                attempt.read_state(state)
                attempt.check_line()
        except (TimeoutError, CannotStart, *NONSENSE):
            if attempt.line is not None:
                attempt.line.abort()
            return None
        attempt.flush()
        return state

    # ------------------------------------------------------------------ endings that nobody ordered

    def _on_cut(self, attempt: ShimLink) -> None:
        # While it is being found, whoever looks for it deals with that.
        if self._attempts.get(attempt.run) is attempt and attempt.run not in self._settling:
            self._settling.add(attempt.run)
            task = self._start(self._settle(attempt))
            task.add_done_callback(lambda _: self._settling.discard(attempt.run))

    def _on_empty(self, attempt: ShimLink) -> None:
        """The shim runs as the job's user, who may therefore play shim; the cgroup has the last word."""
        if is_empty(attempt.facts):
            attempt.tell_end("empty")
        else:
            _log.warning("run %s: its shim says that nothing is left, and that is not so", attempt.run)
            self._start(self._empty(attempt))

    def _on_stuck(self, attempt: ShimLink) -> None:
        """The shim's word alone takes no device away from anybody: what is stuck survives us too."""
        if not attempt.is_stuck and attempt.run not in self._clearing:
            self._clearing.add(attempt.run)
            task = self._start(self._empty(attempt))
            task.add_done_callback(lambda _: self._clearing.discard(attempt.run))

    async def _empty(self, attempt: ShimLink) -> None:
        story = self._runs.read_story(attempt.run)
        await clear_run(attempt.facts, story, self._kill_stuck_s, attempt.tell_stuck)
        attempt.tell_end("empty")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _settle(self, attempt: ShimLink) -> None:
        """The line was cut: take it up again if the shim lives, else tell how the run ended once nothing is left."""
        attempt.cuts += 1
        if attempt.cuts > CUTS_MAX:
            self._end_shim(attempt)  # it answers, and then it does not; that can go on for ever
        while not attempt.left and (state := await self._reach(attempt, FOUND_WITHIN_S)) is not None:
            attempt.tell_state(state, lambda rank: self._read_tail(attempt.run, rank))
            if attempt.line is not None:
                return
        if attempt.left:
            return
        story = self._runs.read_story(attempt.run)
        await clear_run(attempt.facts, story, self._kill_stuck_s, attempt.tell_stuck)
        if story is not None:
            for rank, (generation, code, number) in story.exits.items():
                end = {"rank": rank, "generation": generation, "code": code, "signal": number}
                attempt.tell_exit(end, self._read_tail(attempt.run, rank))
        attempt.tell_end("empty" if story is not None and story.done else "lost")

    async def _wait_for_end(self, attempt: ShimLink, within_s: float) -> Story | None:
        """Until the shim has let go of its lock, by itself or killed; what it wrote."""
        clock = asyncio.get_running_loop().time
        until_s, wait_s = clock() + within_s, 0.005
        while self._runs.is_locked(attempt.run):
            if clock() > until_s + within_s:
                break  # not even SIGKILL ends it
            if clock() > until_s and attempt.shim_pid is not None:
                self._reaper.kill(attempt.shim_pid)
            await asyncio.sleep(wait_s)
            wait_s = min(0.2, wait_s * 2)
        return self._runs.read_story(attempt.run)

    def _read_tail(self, run: str, rank: int) -> str:
        data, _, _ = read_log(self._runs.path / run, rank, tail_bytes=_TAIL_BYTES)
        return data.decode(errors="replace")


_: Callable[..., Launcher] = HostLauncher
