"""When the daemon plans: after something happened or is due, and not so often that nobody else gets a word in.

What a plan means for jobs and their attempts is told to `attempts`; this knows only when the next one is made, and who
waits for one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from phalanx.frontends.host.core.admission import Admission
from phalanx.frontends.host.core.attempts import Attempts
from phalanx.frontends.host.core.ceilings import Ceilings
from phalanx.frontends.host.core.errands import Errands
from phalanx.frontends.host.core.knowledge import Knowledge

#: The loop looks at the clock at least so often: a machine that slept has timers that are due.
NAP_S: Final = 5.0
#: The shortest and the longest rest between two passes. A client that submits one job after the other must not wait
#: for a pass after each of them; who sees a job start a fiftieth of a second later sees no difference.
REST_LEAST_S: Final = 0.02
REST_MOST_S: Final = 0.25
#: Whoever asks waits so long for a pass that sees what they did.
SETTLE_S: Final = 0.5


class Pacing:
    """Naps, passes and rests; everything happens in the one task that calls `turn` again and again."""

    def __init__(self, known: Knowledge, errands: Errands, admission: Admission, attempts: Attempts) -> None:
        """No pass yet."""
        self.known, self.errands = known, errands
        self.admission, self.attempts = admission, attempts
        self.ceilings = Ceilings(self.known, admission)
        self._planned = asyncio.Condition()
        self._passes = 0
        self._wake_at_us: int | None = None
        self._rest_until_s = 0.0
        self.errands.agenda.on_sooner = self.errands.wake.set  # the nap was measured by what was due before

    async def turn(self) -> None:
        """Nap until something happens or is due, do what is due, and plan if that could change the plan."""
        due = [at for at in (self.errands.agenda.next_us(), self._wake_at_us) if at is not None]
        nap_s = NAP_S if not due else min(NAP_S, max(0.0, (min(due) - self.known.now_us()) / 1e6))
        if not self.errands.wake.is_set():
            try:
                async with asyncio.timeout(nap_s):
                    await self.errands.wake.wait()
            except TimeoutError:
                pass
        self.errands.wake.clear()
        self.errands.agenda.run_due(self.known.now_us())
        woken = self._wake_at_us is not None and self._wake_at_us <= self.known.now_us()
        self.admission.drain()
        if self.errands.dirty or woken:
            rest_s = self._rest_until_s - asyncio.get_running_loop().time()
            if rest_s > 0:
                await self.known.clock.sleep(rest_s)
                self.admission.drain()
            await self._plan()

    async def _plan(self) -> None:
        """One planning pass, and everything that follows from it."""
        loop = asyncio.get_running_loop()
        # Before the pass and not after it: what happens while it is carried out is for the next one.
        self.errands.dirty = False
        began = loop.time()
        self.ceilings.keep()
        self.known.planner.taken = self.known.occupancy.taken()
        acts = self.known.planner.plan(self.known.now_us())
        self._wake_at_us = acts.wake_at_us
        took_s = loop.time() - began
        self.known.meters.count_cycle(took_s, "decided" if acts.done else "settled")
        doomed, self.admission.doomed = self.admission.doomed, []
        await self.attempts.on_plan(acts, doomed)
        self.attempts.starting.reseat()
        self._passes += 1
        async with self._planned:
            self._planned.notify_all()
        # Planning may take a fifth of the time, and no more while others want to speak. A pass that took none, in
        # virtual time, needs no rest: there everything happens at the instants at which it does in the simulator.
        if took_s > 0:
            self._rest_until_s = loop.time() + min(REST_MOST_S, max(REST_LEAST_S, 4 * took_s))

    async def settle(self) -> None:
        """Until a pass has seen everything that happened before now."""
        self.admission.drain()
        if not self.errands.dirty:
            return
        target = self._passes + 1
        try:
            async with asyncio.timeout(SETTLE_S), self._planned:
                await self._planned.wait_for(lambda: self._passes >= target)
        except TimeoutError:
            pass
