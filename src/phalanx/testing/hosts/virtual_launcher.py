"""The daemon's side of made-up shims: what `frontends.host.launching` does, in virtual time.

One of these belongs to one life of the daemon. It tells events as the real one does: in order for each
run, from a task of the run, which ends when the run is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from phalanx.frontends.host.ports import CannotStart, FoundRun, Launcher, MemberOrder, Order, Ready, RunEvent
from phalanx.testing.hosts.made_up_machine import Machine, MadeUpRun
from phalanx.testing.hosts.virtual_loop import Life, new_context

Listener = Callable[[RunEvent], Awaitable[None]]

_LOOK_S = 0.05
_BURY_S = 0.5


class FakeLauncher:
    """Implements `ports.Launcher` on a `Machine`."""

    def __init__(self, machine: Machine, crashpoint: Callable[[str], None], life: Life) -> None:
        """Connected to nobody."""
        self._machine, self._crashpoint, self._life = machine, crashpoint, life
        self._listeners: list[Listener] = []
        self._queues: dict[str, asyncio.Queue[RunEvent]] = {}
        self._tellers: dict[str, asyncio.Task[None]] = {}
        self._told: set[tuple[str, int | None, int]] = set()
        self._burying: set[str] = set()
        self._context = new_context(life)

    def on_event(self, listener: Listener) -> None:
        """Who is told of events."""
        self._listeners.append(listener)

    def owns(self, run: str, pid: int) -> bool:
        """Whether a process belongs to a run."""
        found = self._machine.runs.get(run)
        return found is not None and any(process.pid == pid for process in found.living())

    # ------------------------------------------------------------------ events

    def deliver(self, event: RunEvent) -> None:
        """From the machine; nobody hears it who is dead."""
        queue = self._queues.get(event.run)
        if queue is None or not self._life.alive:
            return
        if event.kind in ("exit", "empty", "lost"):
            what = (event.run, event.rank, event.generation)  # an end is told once, however it is learnt of
            if what in self._told:
                return
            self._told.add(what)
        queue.put_nowait(event)

    def _hold(self, run: str) -> None:
        if run not in self._queues:
            self._queues[run] = asyncio.Queue()

    def _start_telling(self, run: str) -> None:
        if run in self._queues and run not in self._tellers:
            self._tellers[run] = asyncio.get_running_loop().create_task(self._tell_all(run, self._queues[run]))

    async def _tell_all(self, run: str, queue: asyncio.Queue[RunEvent]) -> None:
        while True:
            event = await queue.get()
            for listener in self._listeners:
                await listener(event)

    def _leave(self, run: str) -> None:
        self._queues.pop(run, None)
        teller = self._tellers.pop(run, None)
        if teller is not None:
            teller.cancel()

    async def _take(self, what: str) -> None:
        delay_us = self._machine.delay_us(what)
        if delay_us:
            await asyncio.sleep(delay_us / 1e6)

    # ------------------------------------------------------------------ starting

    async def prepare(self, order: Order) -> Ready:
        """Run directory, shim, members at the gate. Raises CannotStart, and then nothing is left."""
        machine = self._machine
        if order.run in self._queues or order.run in machine.runs:
            raise CannotStart(f"run {order.run} is being looked after already")
        await self._take("spawn")
        why = machine.scripts(order).refusal(order)
        if why is not None:
            raise CannotStart(why)
        run = machine.prepare(order, self)
        self._hold(order.run)
        self._crashpoint("start.shims_forked")
        await self._take("ready")
        if not run.shim:
            self._leave(order.run)
            machine.runs.pop(order.run, None)
            raise CannotStart("the shim ended before it answered")
        self._start_telling(order.run)
        return self._ready(run)

    @staticmethod
    def _ready(run: MadeUpRun) -> Ready:
        assert run.waiting is not None
        generation, members = run.waiting
        return Ready(generation, {m.key: (m.pid, m.start) for m in members}, "weak")

    async def go(self, run: str, generation: int) -> None:
        """Let the members of this generation through the gate; CannotStart if nobody went."""
        found = self._machine.runs.get(run)
        if run not in self._queues or found is None:
            raise CannotStart(f"run {run} is not there any more")
        await self._ask(run, lambda at: self._machine.go(at, generation))
        if found.generation >= generation:
            return
        if not found.went:
            self._leave(run)
            self._machine.runs.pop(run, None)
        raise CannotStart("a member died at the gate")

    async def _ask(self, run: str, obey: Callable[[MadeUpRun], None]) -> None:
        """Send an order and wait for the answer; returns too if there is none any more."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(found: MadeUpRun) -> None:
            obey(found)
            self._machine.after(self._machine.delay_us("event"), lambda: _answer(answered))

        self._machine.order(run, answer)
        while not answered.done():
            found = self._machine.runs.get(run)
            if found is None or not found.shim:
                return
            await asyncio.wait([answered], timeout=_LOOK_S)

    async def abort(self, run: str) -> None:
        """Give up a run that was prepared and not let go, or members that were added and not let go."""
        found = self._machine.runs.get(run)
        if found is None:
            return
        if found.went:
            self._machine.order(run, self._machine.abort)
            return
        await self._ask(run, self._machine.abort)
        if not found.went:
            self._leave(run)
            self._machine.runs.pop(run, None)

    async def add(self, run: str, generation: int, members: Sequence[MemberOrder]) -> Ready:
        """Further members of a living run, at a gate of their own."""
        found = self._machine.runs.get(run)
        if run not in self._queues or found is None or not found.shim:
            raise CannotStart(f"run {run} has no shim any more")
        answers: list[str | None] = []
        await self._take("spawn")
        order = Order(found_job(run), 0, generation, 0, 0, "", members, 0)
        why = found.script.refusal(order)
        await self._ask(run, lambda at: answers.append(why or self._machine.add(at, generation, members)))
        if not answers or answers[0] is not None or found.waiting is None:
            raise CannotStart(answers[0] if answers and answers[0] else "the shim ended before it answered")
        return self._ready(found)

    # ------------------------------------------------------------------ orders

    async def stop(self, run: str, ranks: Sequence[int] | None, signal: str, grace_s: float) -> None:
        """Signal these members (None: all), and kill what is left of them after the grace."""
        chosen = None if ranks is None else list(ranks)
        if run in self._queues:
            self._machine.order(run, lambda found: self._machine.stop(found, chosen, signal, grace_s))

    async def signal(self, run: str, ranks: Sequence[int] | None, signal: str) -> None:
        """Only signal."""
        chosen = None if ranks is None else list(ranks)
        if run in self._queues:
            self._machine.order(run, lambda found: self._machine.signal(found, chosen, signal))

    async def tell(self, run: str, ranks: Sequence[int] | None, message: Mapping[str, Any]) -> None:
        """A message of the job protocol."""
        chosen, said = None if ranks is None else list(ranks), dict(message)
        if run in self._queues:
            self._machine.order(run, lambda found: self._machine.hear(found, chosen, said))

    async def forget(self, run: str) -> None:
        """The core has written down how it ended; the shim may go."""
        self._leave(run)
        self._machine.forget(run)

    async def discard(self, run: str) -> bool:
        """Remove the directory of a run that was forgotten."""
        if run in self._queues:
            return False
        self._machine.runs.pop(run, None)
        return True

    async def detach(self) -> None:
        """The daemon stops; runs go on."""
        for run in list(self._queues):
            self._leave(run)
        self._machine.lose_daemon(self)

    # ------------------------------------------------------------------ finding

    async def find(self, named: Collection[str] = ()) -> list[FoundRun]:
        """Look at every run directory: connect to living shims, kill what dead ones left."""
        await self._take("find")
        found = [self._find_one(run) for run in list(self._machine.runs.values())]
        for run in list(self._queues):
            self._start_telling(run)
        return found

    def _find_one(self, run: MadeUpRun) -> FoundRun:
        machine = self._machine
        if run.boot_id != machine.boot_id:
            return _describe(run, alive=False, done=True, lost=run.went and not run.done, same_boot=False)
        if run.shim:
            self._hold(run.name)
            run.daemon = self
            machine.drop_waiting(run)
            for (key, _), message in list(run.spoken.items()):
                self.deliver(RunEvent(run.name, "job", rank=key, message=message))
            self._told |= {(run.name, key, m.generation) for key, m in run.members.items() if m.noted}
            if run.done:
                self._told.add((run.name, None, 0))
            return _describe(run, alive=True, done=run.done, lost=False)
        cleared = machine.clear(run)
        if not cleared:
            self._hold(run.name)
            self.bury(run)
        return _describe(run, alive=False, done=cleared, lost=run.went and not run.done)

    def lose_shim(self, run: MadeUpRun) -> None:
        """The line was cut: end what is left, and then tell of it."""
        if run.name in self._queues and self._life.alive:
            self._machine.clear(run)
            self.bury(run)

    def bury(self, run: MadeUpRun) -> None:
        """Wait until nothing of a run without a shim is left."""
        if run.name not in self._burying:
            self._burying.add(run.name)
            asyncio.get_running_loop().create_task(self._bury(run), context=self._context)

    async def _bury(self, run: MadeUpRun) -> None:
        while not self._machine.clear(run):  # noqa: ASYNC110 - nobody tells when the kernel lets go
            await asyncio.sleep(_BURY_S)
        for key, member in run.members.items():
            if member.noted:
                self.deliver(RunEvent(run.name, "exit", key, member.generation, member.code, member.signal))
        self.deliver(RunEvent(run.name, "empty" if run.done else "lost"))


def _answer(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


def found_job(run: str) -> int:
    """The job of a run, by its name."""
    return int(run.partition(".")[0])


def _describe(run: MadeUpRun, *, alive: bool, done: bool, lost: bool, same_boot: bool = True) -> FoundRun:
    exits = {key: (m.code, m.signal) for key, m in run.members.items() if m.noted}
    return FoundRun(
        run.name,
        alive=alive,
        went=run.went,
        done=done,
        generation=run.generation,
        members={key: (member.pid, member.start) for key, member in run.members.items()},
        exits=exits,
        lost=lost,
        same_boot=same_boot,
    )


_: Callable[..., Launcher] = FakeLauncher
