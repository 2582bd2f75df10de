"""What whoever begins to lead finds: pods that are bound, and gangs that somebody before us was binding.

Nothing is remembered but what is written down. First every binding that may still be on its way is made too old, then
what is bound is looked at, and each gang goes on from there: forward if the rest still fits, back if not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.frontends.kube.assembling import find_kill_after
from phalanx.frontends.kube.binder import Binder
from phalanx.frontends.kube.companies import Name
from phalanx.frontends.kube.expressing import Terrain, express_shape
from phalanx.frontends.kube.flights import Berth, BerthFate, Flight, Word
from phalanx.frontends.kube.gang_view import GangKey, PodMember
from phalanx.frontends.kube.intents import IntentShelf, ShelfPlace
from phalanx.frontends.kube.kube_clock import read_stamp_us
from phalanx.frontends.kube.kube_planner import KubePlanner
from phalanx.frontends.kube.mirror import Mirror, holds_seat
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.sights import name_of
from phalanx.frontends.kube.translating import choose_membership
from phalanx.model.gang import Gang, Role, Shape, Sizes


@dataclass(frozen=True, slots=True)
class Findings:
    """What is there, and who is to know of it."""

    mirror: Mirror
    planner: KubePlanner
    terrain: Terrain
    scheduler: str


@dataclass(frozen=True, slots=True)
class Boarded:
    """A flight that goes on."""

    numbers: tuple[int, ...]  # of its gangs in the engine; none if they have no seats
    flight: Flight
    place: ShelfPlace  # where it is written down
    words: Mapping[str, Word]  # what is known of it


async def take_over(found: Findings, shelf: IntentShelf, binder: Binder, epoch: int) -> list[Boarded]:
    """Everything that is there has its seats when this returns; the answer is what has to be bound on, or undone."""
    going_on: list[tuple[Flight, ShelfPlace, dict[str, Word]]] = []
    for place, flight in await shelf.take_over(epoch):
        said = await asyncio.gather(*(_look(found, binder, berth) for berth in flight.berths))
        words = dict(zip((berth.uid for berth in flight.berths), said, strict=True))
        fates = {word.fate for word in words.values()}
        if fates == {BerthFate.BOUND} or BerthFate.BOUND not in fates:
            # Whole, or nothing of it has happened: it waits, and is planned anew.
            shelf.leave(place)
        else:
            going_on.append((flight, place, words))
    flying = {berth.uid for flight, _, _ in going_on for berth in flight.berths}
    _adopt(found, flying)
    return [Boarded(_board(found, flight, words), flight, place, words) for flight, place, words in going_on]


async def _look(found: Findings, binder: Binder, berth: Berth) -> Word:
    word = await binder.fence(berth)
    if word.fate is BerthFate.BOUND:
        found.mirror.assume((berth.namespace, berth.name), berth.uid, berth.node)
    return word


def _adopt(found: Findings, flying: set[str]) -> None:
    """Gangs of ours that are bound sit where they are; what others hold is an amount of their node."""
    mirror, planner = found.mirror, found.planner
    seated: dict[GangKey, list[Pod]] = {}
    for pod in mirror.pods.objects.values():
        is_ours = isinstance(pod, Pod) and pod.spec.scheduler_name == found.scheduler
        if is_ours and isinstance(pod, Pod) and holds_seat(pod) and pod.metadata.uid not in flying:
            seated.setdefault(choose_membership(pod).key, []).append(pod)
    room = {node.name: dict(node.resources) for node in planner.state.fleet.nodes}
    for key in sorted(seated, key=lambda key: key.unique):
        members = [
            (member, shape)
            for pod in sorted(seated[key], key=lambda pod: pod.metadata.name)
            if (fitting := _fit(found.terrain, name_of(pod), mirror.read(pod), room)) is not None
            for member, shape in (fitting,)
        ]
        if members:
            since_us = max((at for pod in seated[key] if (at := find_bound_us(pod)) is not None), default=None)
            most_s = find_kill_after(seated[key])
            walltime_us = None if most_s is None else most_s * 1_000_000
            planner.seat(key, f"{key.unique}/seated", members, since_us=since_us, walltime_us=walltime_us)
    for name in mirror.list_nodes():
        planner.set_others(name, mirror.sum_tenants(name, lambda uid: planner.find_party(uid) is None))
    # Everybody is looked at in the first pass.
    mirror.changes.gangs |= mirror.list_gangs()


def find_bound_us(pod: Pod) -> int | None:
    """When a pod got its node, as its condition tells; None if nothing does."""
    told = (each for each in pod.status.conditions or () if (each.type, each.status) == ("PodScheduled", "True"))
    stamps = (each.last_transition_time for each in told if each.last_transition_time)
    return next((at for stamp in stamps if (at := read_stamp_us(stamp)) is not None), None)


def _fit(
    terrain: Terrain, name: Name, member: PodMember, room: dict[str, dict[str, int]]
) -> tuple[PodMember, Shape] | None:
    """With its shape, if its node has that much: more than there is cannot be seated, only counted with the others."""
    left = room.get(member.node)
    if member.shape is None or left is None:
        return None
    shape, _ = express_shape(member.shape, terrain, name)
    if any(left.get(kind, 0) < units for kind, units in shape.need):
        return None
    for kind, units in shape.need:
        left[kind] -= units
    return member, shape


def _board(found: Findings, flight: Flight, words: Mapping[str, Word]) -> tuple[int, ...]:
    """Give a flight that goes on its seats, if it has any chance; one that has none is undone without them."""
    if any(words[berth.uid].fate is BerthFate.LOST for berth in flight.berths):
        return ()
    by_gang: dict[str, list[Berth]] = {}
    for berth in flight.berths:
        by_gang.setdefault(berth.gang, []).append(berth)
    numbers = []
    for name, berths in by_gang.items():
        gang = _make_gang(found, name, berths)
        if gang is None:
            return ()
        key = next(key for key in flight.keys if name == key.unique or name.startswith(f"{key.unique}/"))
        numbers.append(found.planner.board(key, gang, berths))
    for berth in flight.berths:
        if words[berth.uid].has_ended:
            found.planner.lose_pod(berth.uid)  # before we came; nobody will tell of it
    return tuple(numbers)


def _make_gang(found: Findings, name: str, berths: Sequence[Berth]) -> Gang | None:
    by_role: dict[str, list[Berth]] = {}
    for berth in berths:
        by_role.setdefault(berth.role, []).append(berth)
    roles = []
    for role, some in by_role.items():
        place = some[0].namespace, some[0].name
        pod = found.mirror.find_pod(place)
        shape = found.mirror.read(pod).shape if pod is not None else None
        if shape is None or any(berth.node not in found.terrain.nodes for berth in some):
            return None
        roles.append(Role(role, Sizes((len(some),)), express_shape(shape, found.terrain, place)[0]))
    return Gang(name=name, roles=tuple(roles), user=berths[0].namespace)
