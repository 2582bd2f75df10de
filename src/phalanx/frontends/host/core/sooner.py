"""What would start a job sooner, found by trying it: each way is played forward on a copy of the cluster.

Only what really helps is told, with the command that does it. A job that is not submitted yet is tried out the same
way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from phalanx.control.clone import clone_state
from phalanx.control.explain import explain_all
from phalanx.control.forecasting.outlook import ForecastInput, look
from phalanx.control.gates import GATE_BEGIN, GATE_HOLD, GATE_RUNNING, OPENS_BY_ITSELF, Gates
from phalanx.control.look_ahead import Budget
from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.frontends.host.core.forecast import Forecaster, is_crowded
from phalanx.frontends.host.core.intake import CheckedSubmission
from phalanx.frontends.host.core.jobs import Job
from phalanx.frontends.host.core.knowledge import Knowledge
from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.core.rows import Rows
from phalanx.frontends.host.messages import Accepted, Reason, Sooner
from phalanx.frontends.host.ports import Caller, Refused
from phalanx.model.gang import After, Gang, Sizes
from phalanx.model.plan import Reservation
from phalanx.model.reason import Code
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.topology import Topology
from phalanx.words import gpus, span

#: What `phalanx edit` can change, by option: nobody is told a command that the command line does not know.
EDITS: Final = frozenset({"--time", "--topology", "--priority"})
#: Processor time for one way, and for all of them: what was not tried by then is not told.
TRY_S: Final = 0.15
TRIES_S: Final = 0.6
#: For all of them where thousands wait.
CROWD_TRIES_S: Final = 0.1
#: Less than this, or than a tenth of the wait, is not worth a change.
GAIN_LEAST_US: Final = 60_000_000
#: Pinned jobs that are tried without their pin.
UNPINNED_MOST: Final = 3
_MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Way:
    """A change that might help: what it is, the command, and how it is made on a copy."""

    what: str
    command: str
    change: Callable[[Planner, Gates], int]  # the answer is the gang's number afterwards
    group: str = ""  # of several ways of a group a further one is told only if it is sooner still


class Sooners:
    """Tries changes."""

    def __init__(self, known: Knowledge, forecaster: Forecaster, rows: Rows) -> None:
        """Works on copies only."""
        self.known = known
        self.forecaster, self.rows = forecaster, rows

    async def find(self, job: Job, reason: Reason | None, rivals: int) -> list[Sooner]:
        """Ways that start a waiting job sooner, the soonest first; `rivals`: the highest priority ahead of it."""
        ways = self._list_ways(job, reason, rivals)
        if not ways:
            return []
        ground = self.forecaster.ground({job.number})
        found = await asyncio.to_thread(self._try_all, ground, job.number, ways)
        now_us = self.known.now_us()
        return [Sooner(way.what, way.command, self.known.iso_at(max(at_us, now_us))) for at_us, way in found]

    # ------------------------------------------------------------------ trying

    def _try_all(self, ground: ForecastInput, number: int, ways: list[Way]) -> list[tuple[int, Way]]:
        """In another thread."""
        now_us = ground.state.now_us
        until_s = self.forecaster.meter() + (CROWD_TRIES_S if is_crowded(self.known) else TRIES_S)
        if ground.seen is None:
            as_it_is = self._try(ground, Way("", "", lambda planner, gates: number))
        else:  # the forecast has looked from here already
            as_it_is = ground.seen.starts.get(number, (None,))[0]
        least_us = GAIN_LEAST_US if as_it_is is None else max(GAIN_LEAST_US, (as_it_is - now_us) // 10)
        # A start that comes later than this would not be told, so nobody looks for it.
        until_us = None if as_it_is is None else max(now_us, as_it_is - least_us)
        found: list[tuple[int, Way]] = []
        for way in ways:
            if self.forecaster.meter() >= until_s:
                break
            at_us = self._try(ground, way, until_us)
            if at_us is None or any(way.group and told.group == way.group and at <= at_us for at, told in found):
                continue
            if as_it_is is None or at_us <= now_us < as_it_is or as_it_is - at_us >= least_us:
                found.append((at_us, way))
        return sorted(found, key=lambda entry: entry[0])

    def _try(self, ground: ForecastInput, way: Way, until_us: int | None = None) -> int | None:
        """When the job would start then; None: not within what is looked at."""
        planner, gates = self.known.planner.over(clone_state(ground.state)), ground.gates.clone()
        after = way.change(planner, gates)
        most_s = CROWD_TRIES_S / 2 if is_crowded(self.known) else TRY_S
        budget, runs = Budget(self.forecaster.meter, most_s), ground.lengths.middle()
        # How long it runs itself does not matter: the look ends when it has started.
        seen = look(planner.state, planner.policy, runs, budget, wanted={after}, gates=gates, until_us=until_us)
        start = seen.starts.get(after)
        return None if start is None else start[0]

    # ------------------------------------------------------------------ ways

    def _list_ways(self, job: Job, reason: Reason | None, rivals: int) -> list[Way]:
        number, now_us = job.number, self.known.planner.state.now_us
        if GATE_HOLD in job.gates and job.gates - {GATE_HOLD} <= OPENS_BY_ITSELF:

            def release(planner: Planner, gates: Gates) -> int:
                gates.open(planner.at(now_us).state, job.gang.name, GATE_HOLD)
                return number

            return [Way("it is released", f"phalanx release {job.id}", release)]
        # Who rests does so whatever it asks for: no priority and no size ends that sooner.
        if job.gates or job.infeasible or (reason is not None and reason.code == Code.BACKOFF.word):
            return []
        ways = self._fewer(job, 0 if reason is None else reason.available)
        edits = [self._shorter(job), self._looser(job), self._softer(job), self._higher(job, rivals)]
        edited = (way for each in edits for way in each if way.command.split()[3] in EDITS)
        return [*ways, *edited, *self._unpinned(job)]

    def _unpinned(self, job: Job) -> list[Way]:
        """Jobs of the same person that are kept at a size by their word."""
        pinned = [other for other in self.known.register if other.pin is not None and other.live is not None]
        return [self._unpin(job, other) for other in pinned if other.uid == job.uid][:UNPINNED_MOST]

    def _unpin(self, job: Job, other: Job) -> Way:
        now_us, number, pinned = self.known.planner.state.now_us, job.number, other.number

        def free(planner: Planner, gates: Gates) -> int:
            planner.pin(now_us, pinned, None)
            return number

        what = f"{other.id} ({other.name}) is not kept at {other.pin} members"
        return Way(what, f"phalanx resize {other.id} auto", free)

    def _swap(self, job: Job, gang: Gang) -> Callable[[Planner, Gates], int]:
        """The way in which an edit takes effect: another version takes its place, with its age."""
        number, now_us = job.number, self.known.planner.state.now_us
        return lambda planner, gates: planner.replace(now_us, number, gang, held=False)

    def _fewer(self, job: Job, available: int) -> list[Way]:
        """A smaller least size: what fits now, else half, else one."""
        role, rest = job.gang.roles[0], job.gang.roles[1:]
        # Not of a rigid one: who asks for eight may not work with one, and was told so for every job.
        if rest or role.name != SOLE_ROLE or not role.sizes.elastic:
            return []
        least, most = role.sizes.least, role.sizes.most
        each = role.shape.amount(DEVICE_KIND) / MILLI
        ways = []
        for size in sorted({size for size in (available, least // 2, 1) if 0 < size < least}, reverse=True):
            gang = replace(job.gang, roles=(replace(role, sizes=Sizes(tuple(range(size, most + 1)))),))
            many = gpus(size * each) if each else f"{size} member{'' if size == 1 else 's'}"
            what = f"it may begin with {many}"
            ways.append(Way(what, f"phalanx resize {job.id} --min {size}", self._swap(job, gang), group="fewer"))
        return ways

    def _shorter(self, job: Job) -> list[Way]:
        """A time that ends before somebody's reservation begins."""
        now_us, stated_us = self.known.planner.state.now_us, job.gang.walltime_us
        starts = [each.start_us for each in self._reservations() if job.number not in each.gangs]
        gap_us = _round_down(min(starts, default=now_us) - now_us)
        if gap_us < _MINUTE_US or (stated_us is not None and not job.predicted and stated_us <= gap_us):
            return []
        gang = replace(job.gang, walltime_us=gap_us)
        length = span(gap_us / 1e6)
        what = f"it takes at most {length}"
        return [Way(what, f"phalanx edit {job.id} --time {length}", self._swap(job, gang))]

    def _reservations(self) -> tuple[Reservation, ...]:
        return self.rows.explained().reservations

    def _looser(self, job: Job) -> list[Way]:
        """Members near each other if that is possible, not at any price."""
        wish = job.gang.topology
        if wish.require is None or wish.segment is not None:
            return []
        gang = replace(job.gang, topology=Topology(prefer=wish.prefer or wish.require))
        what = f"one {wish.require} is a wish and no must"
        command = f"phalanx edit {job.id} --topology prefer:{wish.prefer or wish.require}"
        return [Way(what, command, self._swap(job, gang))]

    def _softer(self, job: Job) -> list[Way]:
        """Whoever can be made to leave may begin under somebody's reservation."""
        if job.gang.preemptible:
            return []
        gang = replace(job.gang, preemptible=True)
        return [Way("it may be evicted for others", f"phalanx edit {job.id} --preemptible", self._swap(job, gang))]

    def _higher(self, job: Job, rivals: int) -> list[Way]:
        """A priority above those ahead, if the owner may ask for it."""
        most = self.known.settings.priority_max(job.user, job.queue)
        wanted = rivals + 1
        if wanted <= job.gang.priority or (most is not None and wanted > most):
            return []
        gang = replace(job.gang, priority=wanted)
        command = f"phalanx edit {job.id} --priority {wanted}"
        return [Way(f"its priority is {wanted}", command, self._swap(job, gang))]

    # ------------------------------------------------------------------ jobs that are not there yet

    async def try_out(self, caller: Caller, taken: CheckedSubmission) -> Accepted:
        """What would become of a job if it were submitted now; nothing is written."""
        if taken.infeasible:
            return Accepted(0, taken.name, "pending", None, Reason(Code.INFEASIBLE.word, taken.infeasible))
        now_us = self.known.now_us()
        gang = replace(taken.gang, name="\0", user=caller.user, submit_us=now_us, hold=False)
        gang = replace(gang, after=self._resolve(caller, gang.after))
        guess_us = self.forecaster.predictions.walltime_us(caller.user, taken.name)
        believed = self.known.intake.believe(gang, guess_us)
        job = Job(
            0, caller.uid, 0, caller.user, taken.name, believed, "pending", now_us, 0.0, predicted=believed is not gang
        )
        if taken.gang.hold:
            job.gates.add(GATE_HOLD)
        if taken.begin_us is not None and taken.begin_us > now_us:
            job.gates.add(GATE_BEGIN)
            job.begin_us = taken.begin_us
        ground, number = self._enter(job)
        told = explain_all(ground.state, self.known.planner.policy)[0].get(number)
        looks, _ = await asyncio.to_thread(self.forecaster.look, ground, {number})
        forecast = self.forecaster.tell(ground.lengths, looks).get(number)
        reason = self.rows.reason(job, {} if told is None else {job.number: told})
        eta = None if forecast is None else self.rows.eta(forecast)
        return Accepted(0, job.name, "pending", eta, reason)

    def _enter(self, job: Job) -> tuple[ForecastInput, int]:
        ground = self.forecaster.prepare(())
        planner = self.known.planner.over(ground.state)
        number, _ = planner.submit(ground.state.now_us, job.gang, held=bool(job.gates))
        job.number = number
        self.forecaster.measure_whole(ground.lengths, number, job)
        name = job.gang.name
        if job.gates:
            ground.gates.shut[name] = set(job.gates)
        if GATE_BEGIN in job.gates and job.begin_us is not None:
            ground.gates.begins_us[name] = job.begin_us
        # As before the first pass that sees it: whoever would be one too many is told so.
        ground.gates.keep(ground.state)
        if GATE_RUNNING in ground.gates.shut.get(name, ()):
            job.gates.add(GATE_RUNNING)
        return ground, number

    def _resolve(self, caller: Caller, after: After) -> After:
        """Jobs to wait for, by the names that the engine knows them by; those that have ended well are left out."""
        names = []
        for ref in after.names:
            job = self.known.register.find(ref, caller)
            stored = self.known.store.job(int(ref)) if job is None and ref.isdecimal() and len(ref) < 19 else None
            if job is None and stored is None:
                raise Refused("not_found", f"there is no job {ref!r} to wait for", "look at them: phalanx ps -a")
            if job is not None and not job.ended:
                names.append(str(job.id))
        return After(tuple(names), after.any_end)


def _round_down(us: int) -> int:
    """To what one would write: whole minutes, above a day whole hours."""
    unit_us = _MINUTE_US if us < 1440 * _MINUTE_US else 60 * _MINUTE_US
    return us // unit_us * unit_us
