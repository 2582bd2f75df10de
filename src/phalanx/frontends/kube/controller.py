"""Puts the parts together: what the mirror shows goes to the planner, what it decides to the binder; people are told.

One task at a time, woken by events and by what is due; nothing is polled. What takes long (binding a gang, telling
people) runs beside it and comes back as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from phalanx.control.explain import Told
from phalanx.frontends.kube.answers.cluster_view import ClusterView, take_picture
from phalanx.frontends.kube.answers.kube_replies import AnswerError
from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.api.reflector import Reflector
from phalanx.frontends.kube.binder import Binder
from phalanx.frontends.kube.expressing import (
    Terrain,
    are_hosts_nodes,
    express_node,
    express_ventures,
    find_cluster_taints,
)
from phalanx.frontends.kube.flights import Course, Flight, Judgement
from phalanx.frontends.kube.gang_groups import check_group
from phalanx.frontends.kube.gang_view import GangKey, GangView
from phalanx.frontends.kube.herald import Herald
from phalanx.frontends.kube.intents import IntentShelf
from phalanx.frontends.kube.kube_clock import KubeClock, read_stamp_us
from phalanx.frontends.kube.kube_planner import Departure, KubePlanner
from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.frontends.kube.leadership import Leadership
from phalanx.frontends.kube.marks_told import MarksTold
from phalanx.frontends.kube.mirror import Mirror, Sightings
from phalanx.frontends.kube.surveying import MirrorSurveyor
from phalanx.frontends.kube.taking_over import Findings, take_over

_CLEAR_AFTER_S: Final = 2.0
#: Who has followed for longer than this before it leads looks at everything again.
_FRESH_US: Final = 5_000_000
_TELL_GAP_S: Final = 0.2
#: Who is told in one go has so many pods.
_TELL_PODS_MOST: Final = 500
#: How many times as long as working out reasons takes nobody works them out again.
_TELL_PART: Final = 10
_WAIT_MOST_S: Final = 30.0
#: A pass of this length is followed by a pause as long as itself, up to the other.
_PASS_LONG_S: Final = 0.02
_GAP_MOST_S: Final = 0.5
#: How long the end waits for gangs that are being bound; a pod is given half a minute to end.
_LAND_S: Final = 5.0


class Controller:
    """One replica."""

    def __init__(
        self,
        api: ApiClient,
        settings: KubeSettings,
        clock: KubeClock,
        tell: Callable[..., None],
        leadership: Leadership | None,
    ) -> None:
        """Without a leadership nobody else may run."""
        self.api, self.settings, self._clock, self._tell = api, settings, clock, tell
        self._wake = asyncio.Event()
        self.mirror = Mirror(settings.scheduler_name, self._wake.set)
        namespace = settings.namespace or api.access.namespace
        self.shelf = IntentShelf(api, namespace, settings.scheduler_name)
        self.surveyor = MirrorSurveyor(self.mirror, settings.levels, clock, leadership)
        self.binder = Binder(api, self.shelf, self.surveyor, tell)
        self.herald = Herald(api, self.mirror, clock, tell, settings.scheduler_name)
        self.leadership = leadership
        self.planner: KubePlanner | None = None
        self._marks: MarksTold | None = None
        self.terrain = Terrain(levels=settings.levels)
        self.views: dict[GangKey, GangView] = {}
        self.aloft: Counter[GangKey] = Counter()  # of how many flights a gang is part just now
        self._tasks: set[asyncio.Task[None]] = set()
        self._flights: set[asyncio.Task[None]] = set()  # of them those that bind a gang
        self._reflecting: list[asyncio.Task[None]] = []  # of them those that keep sight
        self._failed: asyncio.Future[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self.is_leading = False

    # ---- life

    async def run(self, stop: asyncio.Event) -> None:
        """Until it is told to stop, or somebody else leads (`FencedError`)."""
        self._failed = asyncio.get_running_loop().create_future()
        self._start_reflectors()
        work = asyncio.create_task(self._work())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((work, stopping, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            if work.done():
                work.result()
            await self._land(work)
        finally:
            for task in (work, stopping, *self._tasks):
                task.cancel()
            await asyncio.gather(work, stopping, *self._tasks, return_exceptions=True)
            if self.leadership is not None:
                with contextlib.suppress(Exception):
                    await self.leadership.release()
            self.api.close()

    async def _land(self, work: asyncio.Task[None]) -> None:
        """Begin nothing any more, and let what is on its way land; what does not is taken up by the next one."""
        work.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAND_S):
                await asyncio.gather(*self._flights, return_exceptions=True)
                if self.is_leading and self.surveyor.may_write():
                    await self.shelf.clear()

    def _start_reflectors(self) -> None:
        for kind, sight in self.mirror.sights.items():
            reflector: Reflector[Any] = Reflector(self.api, kind, sight, self._tell_kind)
            self._reflecting.append(self._spawn(reflector.run()))

    def _tell_kind(self, kind: str, word: str, says: str) -> None:
        self._wake.set()
        self._tell(f"watch-{word}", kind=kind, **({"says": says} if says else {}))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)
        return task

    def _note_done(self, task: asyncio.Task[None]) -> None:
        """What goes wrong beside the main task ends all of it: a restart begins from what the API server has."""
        self._tasks.discard(task)
        bad = None if task.cancelled() else task.exception()
        if bad is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(bad)

    async def _see_all(self) -> None:
        while not self.mirror.is_synced:
            self._wake.clear()
            await self._wake.wait()

    async def _see_anew(self) -> None:
        """List everything once more: a watch may have been silent for two minutes before anybody notices."""
        for task in self._reflecting:
            task.cancel()
        self._reflecting.clear()
        self.mirror.unsync()
        self._start_reflectors()
        await self._see_all()

    async def _work(self) -> None:
        await self._see_all()
        epoch = 0
        if self.leadership is not None:
            began_us = self._clock.boot_us()
            epoch = await self.leadership.win()
            self._spawn(self.leadership.keep())
            if self._clock.boot_us() - began_us > _FRESH_US:
                await self._see_anew()
        self._tell("lead", epoch=epoch)
        self.planner = self._make_planner()
        found = Findings(self.mirror, self.planner, self.terrain, self.settings.scheduler_name)
        boarded = await take_over(found, self.shelf, self.binder, epoch)
        self._marks = MarksTold(self.mirror, self.planner)
        self._marks.tell(self.terrain, self.terrain.nodes)
        self.is_leading = True
        self.api.writes.clear()  # what a start costs is not what a gang costs
        for each in boarded:
            flying = self.binder.take_up(each.flight, each.place, each.words)
            self._fly(each.numbers, each.flight, flying)
            self._tell("take-up", gang=each.flight.title, members=len(each.flight.berths))
        self._tell("ready", nodes=len(self.terrain.nodes), pods=len(self.mirror.pods.objects))
        self._spawn(self._clear_shelf())
        while True:
            self._wake.clear()
            began_us = self._clock.boot_us()
            self._pass()
            took_s = (self._clock.boot_us() - began_us) / 1e6
            await self._wait()
            if took_s > _PASS_LONG_S:
                # Half of the time is for listening and binding: of a gang of thousands whose pods come one by one, each
                # would else be a look at all of them.
                await asyncio.sleep(min(took_s, _GAP_MOST_S))

    async def _wait(self) -> None:
        planner = self.planner
        assert planner is not None
        now_us = self._clock.now_us()
        ahead = [at for at in (planner.next_due_us(), self.herald.next_due_us()) if at is not None]
        # What was due and not done waits for something else; it must not keep us spinning.
        nap_s = min([_WAIT_MOST_S, *(max(_TELL_GAP_S, (at - now_us) / 1e6) for at in ahead)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(nap_s):
                await self._wake.wait()

    # ---- one pass

    def _make_planner(self) -> KubePlanner:
        self._survey()
        nodes = [express_node(node, self.terrain.levels) for node in self.terrain.nodes.values()]
        nodes.sort(key=lambda node: node.name)
        self.mirror.hand_over()
        levels = self.terrain.levels.levels
        return KubePlanner(nodes, levels, self.settings.find_policy(), self._clock.now_us())

    def _survey(self) -> bool:
        """Look at the nodes; whether they have other taints than before, which changes what gangs tolerate."""
        nodes = self.mirror.list_nodes()
        before = self.terrain
        self.terrain = Terrain(
            nodes,
            find_cluster_taints(nodes.values()),
            before.levels,
            self.mirror.companies,
            are_hosts_nodes(nodes.values()),
        )
        return (before.taints, before.hosts_are_nodes) != (self.terrain.taints, self.terrain.hosts_are_nodes)

    def _pass(self) -> None:
        planner = self.planner
        assert planner is not None
        planner.at(self._clock.now_us())
        changes = self.mirror.hand_over()
        keys = changes.gangs | self._take_nodes(changes)
        for uid in changes.gone:
            planner.lose_pod(uid)
        for name in sorted(changes.tenants | changes.nodes):
            planner.set_others(name, self.mirror.sum_tenants(name, lambda uid: planner.find_party(uid) is None))
        if self._marks is not None:
            self._marks.tell_changes(self.terrain, changes)
        # Of whoever is being bound every pod changes, and nobody decides: it is looked at when it has landed.
        for key in self._look_at({key for key in keys if not self.aloft[key]}):
            if not self.aloft[key]:
                self._settle(key)
        departures = planner.plan()
        for departure in departures:
            self._depart(departure)
        if departures or changes.tenants:
            self.herald.review()
        if self._telling is None or self._telling.done():
            due = _cut_due(self.herald.list_due(), self.views)
            if due or self.herald.is_review_due():
                began_us = self._clock.now_us()
                why = planner.explain()
                due = self.herald.add_stale(due, why)
                # Where thousands wait, reasons cost as much as a plan: most of the time is for plans.
                gap_s = max(_TELL_GAP_S, _TELL_PART * (self._clock.now_us() - began_us) / 1e6)
                self._telling = self._spawn(self._tell_people(due, why, gap_s))

    def _take_nodes(self, changes: Sightings) -> set[GangKey]:
        planner = self.planner
        assert planner is not None
        if not changes.nodes:
            return set()
        is_other = self._survey()
        there = [self.terrain.nodes[name] for name in sorted(changes.nodes) if name in self.terrain.nodes]
        planner.put_nodes([express_node(node, self.terrain.levels) for node in there])
        planner.drop_nodes(sorted(changes.nodes - self.terrain.nodes.keys()))
        self.herald.mark(key for key, view in self.views.items() if view.roles)
        return {key for key, view in self.views.items() if view.roles} if is_other else set()

    def _look_at(self, keys: set[GangKey]) -> list[GangKey]:
        """Views of them as they are now, and of those whom they name; all of those, in the order in which they came."""
        looked: set[GangKey] = set()
        todo = [*keys]
        while todo:
            key = todo.pop()
            if key in looked:
                continue
            looked.add(key)
            view = self.mirror.look_at(key)
            if view is None or not (view.members or self.settings.claims_empty_groups):
                self.views.pop(key, None)
                continue
            self.views[key] = view
            # Together they are judged together: this one may be what the others have been waiting for.
            todo += view.said.together
        return sorted(looked, key=lambda key: (self._came(key), key.unique))

    def _came(self, key: GangKey) -> str:
        view = self.views.get(key)
        return "" if view is None else min((member.created for member in view.members), default="")

    def _settle(self, key: GangKey) -> None:
        """After all have been looked at: what of it is to start."""
        planner = self.planner
        assert planner is not None
        view = self.views.get(key)
        if view is None:
            self.herald.forget(key)
            planner.settle(key, (), None)
            return
        mates = [self.views.get(mate) for mate in view.said.together if mate != key]
        # They have started, and will not again: a member that was lost since is replaced without them.
        mates_wait = not all(mate is not None and mate.satisfied for mate in mates)
        ventures, unsaid = express_ventures(view, self.terrain, mates_wait=mates_wait)
        if view.said.together:
            unsaid = (*unsaid, *check_group(view, self.views))
        if unsaid:
            view = self.views[key] = replace(view, remarks=(*view.remarks, *unsaid))
            ventures = ventures if view.startable else ()
        planner.settle(key, ventures, _since_us(view))
        self.herald.mark((key,))
        if not view.members:
            self.herald.hasten((key,))  # its pods are made when somebody has read that it is seen

    # ---- flights

    def _depart(self, departure: Departure) -> None:
        flight = Flight(
            departure.keys,
            departure.berths,
            self.surveyor.now_s() + self.settings.bind_deadline_s,
            {member.uid: member.resource_version for member in departure.members},
        )
        self._fly(departure.numbers, flight, self.binder.fly(flight))

    def _fly(self, numbers: Sequence[int], flight: Flight, flying: Coroutine[Any, Any, Judgement]) -> None:
        # At once and not when the task has its turn: until it has landed, nobody else decides about its pods.
        self.aloft.update(flight.keys)
        task = self._spawn(self._fly_along(numbers, flight, flying))
        self._flights.add(task)
        task.add_done_callback(self._flights.discard)

    async def _fly_along(self, numbers: Sequence[int], flight: Flight, flying: Coroutine[Any, Any, Judgement]) -> None:
        planner = self.planner
        assert planner is not None
        began_us = self._clock.now_us()
        judged = await flying
        took_ms = (self._clock.now_us() - began_us) // 1_000
        planner.at(self._clock.now_us())
        self.aloft -= Counter(flight.keys)  # which keeps nothing of those that are at zero
        keys = set(flight.keys)
        if judged.course is Course.LAND:
            for number in numbers:
                planner.land(number)
            self.herald.hasten(keys)
            self._tell("bound", gang=flight.title, members=len(flight.berths), took_ms=took_ms)
        else:
            for number in numbers:
                keys |= planner.turn_back(number, judged.says)
            # Whoever was evicted holds its seat until it is gone, and is nobody's party any more.
            self.mirror.changes.tenants |= {berth.node for berth in flight.berths}
            self._tell("undone", gang=flight.title, members=len(flight.berths), says=judged.says, took_ms=took_ms)
        self.mirror.changes.gangs |= keys
        self._wake.set()

    async def _clear_shelf(self) -> None:
        said = ""
        while True:
            await asyncio.sleep(_CLEAR_AFTER_S)
            if not (self.shelf.is_littered and self.surveyor.may_write()):
                continue
            try:
                await self.shelf.clear()
            except (ApiRefusedError, ApiSilentError) as bad:
                # What lies there does no harm, and nobody is to wait for tidying.
                if said != (said := str(bad)):
                    self._tell("clear-refused", says=said)

    # ---- telling

    async def _tell_people(self, due: list[GangKey], why: dict[GangKey, Told], gap_s: float) -> None:
        if self.surveyor.may_write():
            await self.herald.tell_some(due, self.views, why)
        await asyncio.sleep(gap_s)
        self._wake.set()

    def take_picture(self) -> ClusterView:
        """Everything as it is now, for whoever answers questions; only the one that leads knows enough."""
        planner = self.planner
        if not self.is_leading or planner is None:
            holder = "" if self.leadership is None else self.leadership.holder
            says = f"this replica follows; {holder} leads" if holder else "this replica does not lead yet"
            raise AnswerError("unavailable", says, "ask that one, or ask again", follows=True, leader=holder)
        planner.at(self._clock.now_us())
        return take_picture(planner, self.settings.policy, self.views, self.terrain, self.mirror)

    @property
    def has_sight(self) -> bool:
        """Whether everything was listed."""
        return self.mirror.is_synced


def _since_us(view: GangView) -> int | None:
    """Since when it waits: of one that was whole since it was made, so that it goes before equal newcomers."""
    if view.regressed:
        stamp = view.said.created or min(member.created for member in view.members)
    else:
        stamp = min((member.created for role in view.roles for member in role.members), default="")
    return read_stamp_us(stamp) if stamp else None


def _cut_due(due: list[GangKey], views: Mapping[GangKey, GangView]) -> list[GangKey]:
    """The first of them, so many that whoever comes next need not wait long, though thousands be told."""
    pods = 0
    for at, key in enumerate(due):
        view = views.get(key)
        pods += 0 if view is None else len(view.members)
        if pods >= _TELL_PODS_MOST:
            return due[: at + 1]
    return due
