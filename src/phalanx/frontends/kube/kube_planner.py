"""The control loop in the words of pods: what the mirror shows goes in, flights come out. No IO and no clock.

To the engine a gang is what starts at one instant: the members that make it whole, later a replacement, each extra
member. Here they are called parties, with the pods that sit for each. Pods of others are amounts of their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Final

import numpy as np

from phalanx.control.explain import Told, explain_all
from phalanx.control.instructions import Foresight, Instruction, Remains, Start
from phalanx.control.loop import Loop
from phalanx.control.state import State
from phalanx.engine.policy import Policy
from phalanx.frontends.kube.expressing import Venture
from phalanx.frontends.kube.flights import Berth
from phalanx.frontends.kube.gang_view import GangKey, PodMember
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Cause, Plan, Seats
from phalanx.model.queue import DEFAULT_QUEUE


class Stage(Enum):
    """How far a party is."""

    WAITING = "waiting"
    FLYING = "flying"  # it has its seats, and is being bound
    SEATED = "seated"

    __hash__ = object.__hash__  # members are singletons


@dataclass(slots=True)
class Party:
    """A gang of the engine, and the pods that it stands for."""

    number: int
    key: GangKey
    venture: Venture
    stage: Stage = Stage.WAITING
    seats: dict[str, tuple[int, str]] = field(default_factory=dict)  # role and node by uid


@dataclass(frozen=True, slots=True)
class Departure:
    """Parties that fly together, and their members' places."""

    numbers: tuple[int, ...]
    keys: tuple[GangKey, ...]
    berths: tuple[Berth, ...]
    members: tuple[PodMember, ...]


class NotedStarts:
    """The loop's carrier: starts, noted for whoever binds."""

    def __init__(self) -> None:
        self.starts: list[Start] = []

    def carry_out(self, instruction: Instruction) -> None:
        """A start; nothing else is decided under a policy that touches nobody who runs."""
        assert isinstance(instruction, Start), instruction
        self.starts.append(instruction)

    def list_refused(self, plan: Plan) -> Iterable[tuple[int, str]]:
        """What is refused comes back later."""
        return ()

    def stop(self, number: int, *, saves: bool, holds: tuple[Seats, ...] = ()) -> Remains:
        """Nobody is stopped."""
        return Remains(progressed=False, left_us=None)

    def foresee(self, number: int) -> Foresight | None:
        """Pods do not report."""
        return None


_NOTHING: Final[Mapping[str, int]] = {}


class KubePlanner:
    """The logical cluster."""

    def __init__(self, nodes: Sequence[Node], levels: Sequence[str], policy: Policy, now_us: int) -> None:
        self._noted = NotedStarts()
        state = State(Fleet(nodes, levels))
        self.loop = Loop(state, policy, self._noted, refusable=True)
        self.loop.at(now_us)
        self.parties: dict[int, Party] = {}
        self._by_key: dict[GangKey, dict[int, Party]] = {}
        self._by_uid: dict[str, Party] = {}
        self.others: dict[str, Mapping[str, int]] = {}  # by node, as told
        self._leaving: set[str] = set()  # nodes that are gone, to which somebody is still on the way
        self._lost_meanwhile: set[str] = set()  # pods that are gone while their party flies
        self._short: set[str] = set()  # nodes on which others hold more than there is
        self._shrunk: dict[str, Node] = {}  # nodes as they are, on which ours hold more than there is

    @property
    def state(self) -> State:
        """What the engine is shown."""
        return self.loop.state

    def at(self, now_us: int) -> None:
        """It is this late now."""
        self.loop.at(now_us)

    # ---- nodes, and who else is there

    def put_nodes(self, nodes: Sequence[Node]) -> None:
        """Nodes are new, or described anew; those that say nothing new cost nothing."""
        known = {node.name: node for node in self.state.fleet.nodes}
        for name in self._leaving.intersection(node.name for node in nodes):
            # It is back before those who were on their way there have turned back.
            self._leaving.discard(name)
            self.loop.open_node(self.state.fleet.index_by_name[name], open_=True)
        ours = self._sum_ours({node.name for node in nodes})
        widened = [_with_room(node, ours.get(node.name, _NOTHING)) for node in nodes]
        for node, wide in zip(nodes, widened, strict=True):
            # Until ours leave; then it is described anew, or what they leave would be given away.
            if wide is node:
                self._shrunk.pop(node.name, None)
            else:
                self._shrunk[node.name] = node
        fresh = [each for each in widened if known.get(each.name) != each]
        if not fresh:
            return
        self._forget_others(node.name for node in fresh)
        self.loop.add_nodes(fresh)
        self._tell_others(node.name for node in fresh)

    def drop_nodes(self, names: Sequence[str]) -> None:
        """Nodes are gone. Pods that were there are gone for the engine; their objects follow."""
        index = self.state.fleet.index_by_name
        there: dict[str, list[str]] = {name: [] for name in names if name in index}
        if not there:
            return
        for uid, party in self._by_uid.items():
            if party.seats[uid][1] in there:
                there[party.seats[uid][1]].append(uid)
        empty = []
        for name, uids in there.items():
            if any(self._by_uid[uid].stage is Stage.FLYING for uid in uids):
                # It keeps its room until they have turned back, which they do: nobody is bound to a node that is gone.
                self.loop.open_node(index[name], open_=False)
                self._leaving.add(name)
                continue
            self._leaving.discard(name)
            self._shrunk.pop(name, None)
            for uid in uids:
                self.lose_pod(uid)
            self._forget_others((name,))
            self.others.pop(name, None)
            empty.append(index[name])
        self.loop.remove_nodes(empty)

    def set_others(self, node: str, amounts: Mapping[str, int]) -> None:
        """All that pods take of a node which are no party's."""
        if self.others.get(node, _NOTHING) != amounts:
            self.others[node] = dict(amounts)
            self._tell_others((node,))

    def _sum_ours(self, names: set[str]) -> dict[str, dict[str, int]]:
        """What parties take of these nodes."""
        found: dict[str, dict[str, int]] = {}
        for uid, party in self._by_uid.items():
            role, name = party.seats[uid]
            if name in names:
                ours = found.setdefault(name, {})
                for kind, units in party.venture.gang.roles[role].shape.need:
                    ours[kind] = ours.get(kind, 0) + units
        return found

    def _forget_others(self, names: Iterable[str]) -> None:
        index = self.state.fleet.index_by_name
        for name in names:
            if name in index:
                self.state.crowd(index[name], _NOTHING)

    def _tell_others(self, names: Iterable[str]) -> None:
        index = self.state.fleet.index_by_name
        for name in names:
            fits = name not in index or self.state.crowd(index[name], self.others.get(name, _NOTHING))
            (self._short.discard if fits else self._short.add)(name)

    # ---- gangs

    def find_party(self, uid: str) -> Party | None:
        """For whom a pod sits, or will: then its room is booked already."""
        return self._by_uid.get(uid)

    def settle(self, key: GangKey, ventures: Sequence[Venture], since_us: int | None) -> None:
        """What of a gang is to start, as of now. `since_us`: since when it waits, if longer than we know."""
        wanted = {each.gang.name: each for each in ventures}
        waiting = [party for party in self._by_key.get(key, {}).values() if party.stage is Stage.WAITING]
        for party in waiting:
            venture = wanted.pop(party.venture.gang.name, None)
            if venture is None:
                # Not with those that were to start with it: whether they still wait for it is for their own views.
                self.loop.cancel(party.number, alone=True)
                self._forget(party)
            elif venture.gang == party.venture.gang:
                party.venture = venture  # other pods, the same question
            else:
                number = self.state.replace(party.number, venture.gang, held=False)
                self._forget(party)
                self._remember(Party(number, key, venture))
        for venture in wanted.values():
            number, doomed = self.loop.submit(venture.gang)
            if doomed:
                # Its group has lost somebody since; whoever comes now belongs to the next one of that name.
                number, _ = self.loop.submit(venture.gang)
            if since_us is not None:
                self.state.backdate(number, since_us)
            self._remember(Party(number, key, venture))

    def seat(
        self,
        key: GangKey,
        name: str,
        members: Sequence[tuple[PodMember, Shape]],
        *,
        since_us: int | None = None,
        walltime_us: int | None = None,
    ) -> None:
        """Bound already: found so when we came. Those whose node has no room for them are left to `set_others`.

        `since_us`: since when it sits; whoever waits for its end is told by that and by how long it runs at most.
        """
        by_shape: dict[Shape, list[PodMember]] = {}
        for member, shape in members:
            by_shape.setdefault(shape, []).append(member)
        roles = [Role(f"member-{at}", Sizes((len(some),)), shape) for at, (shape, some) in enumerate(by_shape.items())]
        user = key.namespace
        gang = Gang(name=name, roles=tuple(roles), queue=DEFAULT_QUEUE, user=user, walltime_us=walltime_us)
        number, _ = self.loop.submit(gang)
        party = Party(number, key, Venture(gang, tuple(map(tuple, by_shape.values()))), Stage.SEATED)
        for at, some in enumerate(by_shape.values()):
            party.seats |= {member.uid: (at, member.node) for member in some}
        start_us = self.state.now_us if since_us is None else min(since_us, self.state.now_us)
        self.state.seat_running(number, self._seats_of(party), start_us)
        self._remember(party)

    def board(self, key: GangKey, gang: Gang, berths: Sequence[Berth]) -> int:
        """On its way since before we came: it has its seats, and is to be bound further."""
        number, _ = self.loop.submit(gang)
        role_at = {role.name: at for at, role in enumerate(gang.roles)}
        party = Party(number, key, Venture(gang, tuple(() for _ in gang.roles)), Stage.FLYING)
        party.seats = {each.uid: (role_at[each.role], each.node) for each in berths}
        self.state.seat_running(number, self._seats_of(party), self.state.now_us)
        self._remember(party)
        return number

    def lose_pod(self, uid: str) -> None:
        """A pod holds no seat any more."""
        party = self._by_uid.get(uid)
        if party is None:
            return
        if party.stage is Stage.FLYING:
            # Whoever binds the others has to hear of it first, or finds out.
            self._lost_meanwhile.add(uid)
            return
        del self._by_uid[uid]
        _, node = party.seats.pop(uid)
        if party.seats:
            self.state.sit_on(party.number, self._seats_of(party), Cause.DRAIN)
        else:
            self.loop.complete(party.number)
            self._forget(party)
        if node in self._short:
            self._tell_others((node,))

    # ---- passes

    def plan(self) -> list[Departure]:
        """Plan and fold until nothing changes any more; who is to be bound now."""
        self.drop_nodes(tuple(self._leaving))
        if self._shrunk:
            self.put_nodes(tuple(self._shrunk.values()))
        self._tell_others(tuple(self._short))
        self.loop.run_due()
        self.loop.plan()
        starts, self._noted.starts = self._noted.starts, []
        together: dict[object, list[Party]] = {}
        for start in starts:
            party = self.parties[start.gang]
            self._take_seats(party, start.bind.seats)
            word = party.venture.gang.together
            together.setdefault(word.word if word else party.number, []).append(party)
        return [self._depart(parties) for parties in together.values()]

    def next_due_us(self) -> int | None:
        """When something is due by time alone."""
        return self.state.next_due_us()

    def land(self, number: int) -> None:
        """All of it is bound."""
        party = self.parties.get(number)
        if party is not None:
            self.state.confirm(number)
            party.stage = Stage.SEATED
            for uid in self._lost_meanwhile & party.seats.keys():
                self._lost_meanwhile.discard(uid)
                self.lose_pod(uid)

    def turn_back(self, number: int, words: str) -> set[GangKey]:
        """It was not bound, and nothing of it is left; the answer is whoever has to be looked at again."""
        if number not in self.parties or self.parties[number].stage is not Stage.FLYING:
            return set()  # it fell with another one of its flight
        undone = self.loop.refuse(number, words).undone
        if number not in undone:
            # Too late to make it not have been: somebody else counts on it by now. It gives everything back.
            self.loop.requeue(number)
        keys = set()
        for each in {number, *undone}:
            party = self.parties.get(each)
            if party is not None:
                for uid in party.seats:
                    self._by_uid.pop(uid, None)
                    self._lost_meanwhile.discard(uid)
                party.seats, party.stage = {}, Stage.WAITING
                keys.add(party.key)
        return keys

    def explain(self) -> dict[GangKey, Told]:
        """Why those that wait do so; of several parties of one gang the first."""
        told, _ = explain_all(self.state, self.loop.policy)
        found: dict[GangKey, Told] = {}
        for number, each in told.items():
            party = self.parties.get(number)
            if party is not None:
                found.setdefault(party.key, each)
        return found

    # ---- behind

    def _remember(self, party: Party) -> None:
        self.parties[party.number] = party
        self._by_key.setdefault(party.key, {})[party.number] = party
        self._by_uid.update(dict.fromkeys(party.seats, party))

    def _forget(self, party: Party) -> None:
        """Its number means nobody any more."""
        self.state.forget_ended(party.number)
        self.parties.pop(party.number, None)
        same = self._by_key.get(party.key, {})
        same.pop(party.number, None)
        if not same:
            self._by_key.pop(party.key, None)

    def _take_seats(self, party: Party, seats: Sequence[Seats]) -> None:
        names = self.state.fleet.names
        for each in seats:
            # Seats are in rank order, and so are members: neighbours in rank become neighbours in the network.
            nodes = chain.from_iterable(
                [names[node]] * count for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True)
            )
            members = party.venture.members[each.role]
            party.seats |= {member.uid: (each.role, node) for member, node in zip(members, nodes, strict=True)}
        party.stage = Stage.FLYING
        self._by_uid.update(dict.fromkeys(party.seats, party))

    def _depart(self, parties: Sequence[Party]) -> Departure:
        berths: list[Berth] = []
        members: list[PodMember] = []
        for party in parties:
            gang, first = party.venture.gang, len(berths)
            is_alone = sum(map(len, party.venture.members)) == 1
            for role, some in zip(gang.roles, party.venture.members, strict=True):
                for member in some:
                    node = party.seats[member.uid][1]
                    place = party.key.namespace, member.name, member.uid, node
                    # By its place among all, in each gang from 0 on. One that starts by itself, as for a member
                    # that was lost, has the number that its framework gave it, if any.
                    rank = member.index if is_alone else len(berths) - first
                    berths.append(Berth(*place, gang=gang.name, role=role.name, rank=rank))
                    members.append(member)
        numbers, keys = tuple(party.number for party in parties), tuple(party.key for party in parties)
        return Departure(numbers, keys, tuple(berths), tuple(members))

    def _seats_of(self, party: Party) -> tuple[Seats, ...]:
        index, fleet = self.state.fleet.index_by_name, self.state.fleet
        found = []
        for role in range(len(party.venture.gang.roles)):
            counts: dict[int, int] = {}
            for at, node in party.seats.values():
                if at == role:
                    counts[index[node]] = counts.get(index[node], 0) + 1
            devices = np.zeros((len(counts), fleet.device_capacity.shape[1]), dtype=np.int16)
            nodes, there = np.array([*counts], dtype=np.int64), np.array([*counts.values()], dtype=np.int64)
            found.append(Seats(role, nodes, there, devices))
        return tuple(found)


def _with_room(node: Node, ours: Mapping[str, int]) -> Node:
    """A node that shrank under its pods has nothing left, and not less than nothing."""
    if all(node.resources.get(kind, 0) >= units for kind, units in ours.items()):
        return node
    kinds = dict.fromkeys((*node.resources, *ours))
    widened = {kind: max(node.resources.get(kind, 0), ours.get(kind, 0)) for kind in kinds}
    return Node(node.name, widened, node.labels, node.taints, node.islands, node.spare)
