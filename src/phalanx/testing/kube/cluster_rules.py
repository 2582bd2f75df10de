"""What must be true of a cluster at every instant, by what the API server has, never by what a scheduler thinks.

The names are those of the reliability notes. I2 nobody is bound to a node that the scheduler knew to be full; I3 nobody
is bound twice, moved, or bound as somebody else's successor; I5 no part of a gang outlives its time; I16 nothing of a
gang is bound or evicted that was not written down before; I17 nobody binds for a gang after a later leader has judged
it; I18 nobody touches what is not theirs. What must be true once nothing goes wrong any more is in `find_unrest`: L1
whoever fits is bound, L2 every gang is whole or absent, L4 one leads, I12 what a leader sees is what there is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from phalanx.frontends.kube.flights import RANK, read_intent
from phalanx.frontends.kube.leadership import LEASE_S, RETRY_S
from phalanx.testing.hosts.machine_rules import BrokenRule
from phalanx.testing.kube.api_kinds import NATIVE_GROUPS
from phalanx.testing.kube.cluster_people import ClusterPeople, WantedGang, holds_seat, name_gang
from phalanx.testing.kube.fake_api import ApiAnswer, ApiCall
from phalanx.testing.kube.fake_etcd import StoredChange, Tree
from phalanx.testing.kube.kube_world import HOME, KubeWorld, Replica
from phalanx.testing.kube.kubelets import gpus_of, has_node, list_on, room_of

#: Before a scheduler asks for a seat it has known of everybody there for so long that it must have thought of them.
HINDSIGHT_US: Final = 1_000_000
#: What a part of a gang may last beyond its deadline when nothing goes wrong any more: a lease that has to run out, and
#: the next to try for it (17 s), a take-over and the last round of a flight with their naps (4 s), clocks of two
#: machines that differ (3 s each), a page of the new leader's list that is never answered (15 s), a kubelet that ends
#: what was evicted (3 s).
BEYOND_DEADLINE_S: Final = LEASE_S + RETRY_S + 4 + 2 * 3 + 15 + 3
_LATEST: Final = 1 << 60


@dataclass(slots=True)
class _BoundPod:
    """Who bound a pod, and when."""

    node: str
    user: str
    revision: int
    in_gang: bool


class ClusterRules:
    """Watches one world."""

    def __init__(self, world: KubeWorld, people: ClusterPeople) -> None:
        """Put ourselves where things happen."""
        self.world, self.people = world, people
        self.trace: list[str] = []
        self.broken: BrokenRule | None = None
        self.troubled_until_us = 0  # by then nothing goes wrong any more
        self.happened: Counter[str] = Counter()  # by kind of trouble
        self.counts: dict[str, int] = {"bound": 0, "evicted": 0, "undone": 0, "taken up": 0}
        self._plans: dict[str, list[tuple[str, int]]] = {}  # by uid: nodes that it was to have, in whose epoch
        self._flights: list[set[str]] = []  # uids of each that was ever written down
        self._lying: dict[str, set[str]] = {}  # by shelf place: uids that are written there
        self._epochs: dict[str, int] = {}  # by user
        self._judged: dict[str, int] = {}  # by gang: the latest epoch that has done something about it
        self._bound: dict[str, _BoundPod] = {}
        self._rooms: dict[str, list[tuple[int, int]]] = {}  # by node: revision, and what it has from there on
        self._made: dict[str, int] = {}  # by uid: the revision in which a pod came to be
        self._asked_us: dict[int, int] = {}  # when a binding was sent
        self._parts_us: dict[str, int] = {}  # by gang: since when a part of it is bound
        self._whole: set[str] = set()
        self._ever_whole: set[str] = set()
        world.listen(self._on_change)
        world.on_word = self._on_word
        world.server.on_step = self._on_step

    def note(self, words: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.world.now_us:>11} {words}")

    def note_trouble(self, kind: str, words: str = "") -> None:
        """Something goes wrong."""
        self.happened[kind] += 1
        self.note(f"TROUBLE {kind} {words}")
        self.trouble_for(0)

    def trouble_for(self, for_us: int) -> None:
        """And is not well again before then."""
        self.troubled_until_us = max(self.troubled_until_us, self.world.now_us + for_us)

    def breach(self, rule: str, story: str) -> None:
        """Something is wrong; the first is what counts."""
        self.note(f"BROKEN {rule}: {story}")
        if self.broken is None:
            self.broken = BrokenRule(rule, story, self.world.now_us)

    # ------------------------------------------------------------------ what happens

    def _on_word(self, user: str, word: str, fields: dict[str, Any]) -> None:
        self.note(f"{user} says {word} {' '.join(f'{key}={value}' for key, value in fields.items())}")
        if word in ("undone", "take-up"):
            self.counts["undone" if word == "undone" else "taken up"] += 1

    def _on_step(self, step: str, call: ApiCall, answer: ApiAnswer | None) -> None:
        if step == "sent" and call.path.endswith("/binding"):
            self._asked_us[id(call)] = self.world.now_us
        if step == "done" and answer is not None and answer.code >= 400:
            self.note(f"{call.user} {call.method} {call.path} {answer.code}")

    def _on_change(self, change: StoredChange) -> None:
        call = self.world.api.doing
        user = call.user if call is not None else ""
        kind, _, name = change.key
        if kind != "leases" or change.type != "MODIFIED":  # signs of life
            where = " ".join(filter(None, change.key))
            self.note(f"r{change.revision} {change.type} {where} by {user}{_tell_pod(change)}")
        if kind == "pods":
            self._on_pod(change, call)
            self._look_at_parts(name_gang((change.new or change.old).tree))  # type: ignore[union-attr]
        elif kind == "nodes":
            room = 0 if change.new is None else room_of(change.new.tree)
            self._rooms.setdefault(name, []).append((change.revision, room))
        elif kind == "configmaps" and change.new is not None and change.key[1] == HOME:
            self._on_plan(name, change.new.tree, user)

    def _on_plan(self, name: str, tree: Tree, user: str) -> None:
        flight = read_intent((tree.get("data") or {}).get("flight", ""))
        berths = flight.berths if flight is not None else ()
        self._lying[name] = {berth.uid for berth in berths}
        epoch = self._epochs[user] = int((tree.get("data") or {}).get("epoch", 0))
        if berths:
            self._flights.append({berth.uid for berth in berths})
        for berth in berths:
            self._plans.setdefault(berth.uid, []).append((berth.node, epoch))

    # ------------------------------------------------------------------ pods

    def _on_pod(self, change: StoredChange, call: ApiCall | None) -> None:
        old = None if change.old is None else change.old.tree
        new = None if change.new is None else change.new.tree
        there = new or old
        assert there is not None
        uid = there["metadata"]["uid"]
        if old is None:
            self._made[uid] = change.revision
        part = call.path.rpartition("/")[2] if call is not None and call.method == "POST" else ""
        is_ours = call is not None and call.user not in ("people", "kubelet", "others", "")
        if is_ours and there["spec"]["schedulerName"] != "phalanx":
            self.breach("I18", f"{uid} is none of ours, and {call.user} wrote to it")  # type: ignore[union-attr]
        if (
            new is not None
            and has_node(new)
            and (old is None or new["spec"]["nodeName"] != old["spec"].get("nodeName"))
        ):
            if old is not None and has_node(old):
                self.breach("I3", f"{uid} was moved from {old['spec']['nodeName']} to {new['spec']['nodeName']}")
            in_gang = RANK in (new["metadata"].get("annotations") or {})
            bound = _BoundPod(new["spec"]["nodeName"], "" if call is None else call.user, change.revision, in_gang)
            self._bound[uid] = bound
            if part == "binding" and call is not None and call.user != "others":
                self.counts["bound"] += 1
                self._judge_binding(new, bound, call)
        elif part == "eviction" and call is not None:
            self.counts["evicted"] += 1
            self._judge_eviction(there, call)

    def _judge_binding(self, pod: Tree, bound: _BoundPod, call: ApiCall) -> None:
        uid, gang = pod["metadata"]["uid"], name_gang(pod)
        asked_us = self._asked_us.get(id(call), self.world.now_us)
        known = self.world.server.find_known(bound.user, "pods", asked_us)
        if self._made.get(uid, 0) > known:
            self.breach("I3", f"{bound.user} bound {uid}, of which nobody had told it")
        epoch = self._epochs.get(bound.user, 0)
        if bound.in_gang:
            planned = [each for node, each in self._plans.get(uid, ()) if node == bound.node]
            if not planned or min(planned) > epoch:
                self.breach("I16", f"{uid} was bound to {bound.node}, which nobody had written down")
            self._judge_epoch(gang, epoch, f"{bound.user} bound {uid}")
        self._judge_room(pod, bound, asked_us)

    def _judge_epoch(self, gang: str, epoch: int, what: str) -> None:
        if epoch < self._judged.get(gang, 0):
            self.breach("I17", f"{what} of {gang} in epoch {epoch}, which {self._judged[gang]} has judged")
        self._judged[gang] = max(epoch, self._judged.get(gang, 0))

    def _judge_room(self, pod: Tree, bound: _BoundPod, asked_us: int) -> None:
        """Of pods of others, what it had been told; of its own, and of members of gangs, all that is true."""
        thought_us = asked_us - HINDSIGHT_US
        known = self.world.server.find_known(bound.user, "pods", thought_us)
        taken = 0
        for each in list_on(self.world.list("pods"), bound.node):
            who = self._bound.get(each["metadata"]["uid"])
            if who is None or who.revision <= known or who.user == bound.user or (who.in_gang and bound.in_gang):
                taken += gpus_of(each)
        rooms = self._rooms.get(bound.node, [])
        told = self.world.server.find_known(bound.user, "nodes", thought_us)
        # A node that shrank a moment ago, or has grown since: by the roomier of what it was and what it is.
        room = max([*[room for revision, room in rooms if revision <= told][-1:], *[room for _, room in rooms[-1:]], 0])
        if taken > room:
            self.breach("I2", f"{pod['metadata']['uid']} is bound to {bound.node}: {taken} of {room}")

    def _judge_eviction(self, pod: Tree, call: ApiCall) -> None:
        uid, gang = pod["metadata"]["uid"], name_gang(pod)
        if not any(uid in uids for uids in self._lying.values()):
            self.breach("I16", f"{uid} was evicted by {call.user}, and is in nobody's plan")
        self._judge_epoch(gang, self._epochs.get(call.user, 0), f"{call.user} evicted {uid}")

    # ------------------------------------------------------------------ gangs

    def _look_at_parts(self, name: str) -> None:
        gang = self.people.gangs.get(name)
        if gang is None:
            return
        pods = self.people.list_pods(name)
        held = sum(map(holds_seat, pods))
        uids = {pod["metadata"]["uid"] for pod in pods if holds_seat(pod)}
        # All of a plan were bound, if not at one instant: one of the first had failed when the last came.
        has_landed = any(flight & uids and flight <= self._bound.keys() for flight in self._flights)
        if not held:
            self._whole.discard(name)
        if held >= gang.least or has_landed:
            self._whole.add(name)
            self._ever_whole.add(name)
        # Those that are done count, and hold nothing any more.
        sitting = any(holds_seat(pod) and pod["status"]["phase"] != "Succeeded" for pod in pods)
        if sitting and held < gang.least and name not in self._whole:
            self._parts_us.setdefault(name, self.world.now_us)
        else:
            self._parts_us.pop(name, None)
        self.judge_parts()

    def judge_parts(self) -> None:
        """Whether some gang has been there in part for too long."""
        leading = {replica.user for replica in self.world.find_leaders()}
        if any(watch.stalled and watch.user in leading for watch in self.world.server.watches):
            # Whoever leads does not know yet; how long that may last is the reflector's to say.
            self.troubled_until_us = self.world.now_us
        limit_us = int((self.world.settings.bind_deadline_s + BEYOND_DEADLINE_S) * 1e6)
        for name, since_us in self._parts_us.items():
            lasted_us = self.world.now_us - max(since_us, self.troubled_until_us)
            if lasted_us > limit_us:
                self.breach("I5", f"a part of {name} is bound since {since_us / 1e6:.3f} s")

    # ------------------------------------------------------------------ when nothing goes wrong any more

    def find_unrest(self) -> tuple[str, str] | None:
        """What is not yet as it must be in the end: the rule and the story."""
        leaders = self.world.find_leaders()
        if len(leaders) != 1:
            return "L4", f"{len(leaders)} lead"
        if self._parts_us:
            return "L2", f"there are parts of {sorted(self._parts_us)}"
        littered = sorted(name for name, uids in self._lying.items() if uids)
        if littered:
            return "L2", f"plans lie on {littered}"
        return self._find_blindness(leaders[0]) or self._find_idleness() or self._find_untold()

    def _find_blindness(self, leader: Replica) -> tuple[str, str] | None:
        """Whether it sees something else than there is, or believes that somebody is still on the way."""
        controller = leader.controller
        assert controller is not None
        mirror, etcd = controller.mirror, self.world.etcd
        sights: list[tuple[str, Any]] = [("pods", mirror.pods), ("nodes", mirror.nodes)]
        sights += [(NATIVE_GROUPS, sight) for dialect, sight in mirror.groups.items() if dialect.value == "native"]
        for kind, sight in sights:
            seen = {name: each.metadata.resource_version for name, each in sight.objects.items()}
            real = {name: str(each.revision) for name, each in etcd.list_all(kind)}
            if seen != real:
                differ = sorted(name for name in seen.keys() | real.keys() if seen.get(name) != real.get(name))
                return "I12", f"{leader.user} sees {kind} {differ} otherwise than they are"
        aloft = sorted(str(key) for key, count in controller.aloft.items() if count)
        return ("I12", f"{aloft} are still on their way") if aloft else None

    def list_waiting(self) -> list[WantedGang]:
        """Gangs that are all there, and of which too few are bound."""
        found = []
        for gang in self.people.gangs.values():
            pods = self.people.list_pods(gang.name)
            if len(pods) == gang.size and sum(map(holds_seat, pods)) < gang.least:
                found.append(gang)
        return found

    def _find_idleness(self) -> tuple[str, str] | None:
        """L1: everybody who waits would fit. Where one does not, the others may have to wait behind its reservation."""
        waiting, free = self.list_waiting(), self.list_free()
        if waiting and all(self.fits_with_mates(gang, free) for gang in waiting):
            return "L1", f"{[gang.name for gang in waiting]} wait, and {free} are free"
        return None

    def fits_with_mates(self, gang: WantedGang, free: dict[str, int]) -> bool:
        """Whether there is room for it, and for those with which it has to start."""
        mates = [self.people.gangs[name] for name in gang.together] or [gang]
        return fits([(each, self._count_lacking(each)) for each in mates], free)

    def _count_lacking(self, gang: WantedGang) -> int:
        return max(0, gang.least - sum(map(holds_seat, self.people.list_pods(gang.name))))

    def list_free(self) -> dict[str, int]:
        """Room by node, of nodes that take pods."""
        pods, found = self.world.list("pods"), {}
        for node in self.world.list("nodes"):
            if not node.get("spec", {}).get("unschedulable") and not node.get("spec", {}).get("taints"):
                name = node["metadata"]["name"]
                found[name] = room_of(node) - sum(map(gpus_of, list_on(pods, name)))
        return found

    def _find_untold(self) -> tuple[str, str] | None:
        """Whether what is said of gangs and pods is true."""
        waiting = self.list_waiting()
        for group in self.world.list(NATIVE_GROUPS):
            name = group["metadata"]["name"]
            conditions = {each["type"]: each["status"] for each in (group.get("status") or {}).get("conditions", ())}
            said = conditions.get("PodGroupInitiallyScheduled")
            # By the words of the API it never reverts.
            gang = self.people.gangs[name]
            if sum(map(holds_seat, self.people.list_pods(name))) >= gang.least and said != "True":
                return "L2", f"{name} is said to be {said}, and is whole"
            if said == "True" and name not in self._ever_whole:
                return "L2", f"{name} is said to be whole, and never was"
        free = self.list_free()
        for gang in waiting:
            if fits([(gang, self._count_lacking(gang))], free):
                continue  # it waits for something else, or for its mates
            for pod in self.people.list_pods(gang.name):
                conditions = {each["type"]: each.get("reason") for each in pod["status"].get("conditions", ())}
                if not has_node(pod) and conditions.get("PodScheduled") != "Unschedulable":
                    return "L1", f"nobody told {pod['metadata']['name']} that there is no room"
        return None


def fits(gangs: list[tuple[WantedGang, int]], free: dict[str, int]) -> bool:
    """Whether there is room for what each lacks: members of a gang are alike, so counting is exact for one."""
    left = dict(free)
    for gang, lacks in sorted(gangs, key=lambda each: -each[0].gpus):
        for node, room in left.items():
            here = max(0, min(lacks, room // gang.gpus))
            left[node] -= here * gang.gpus
            lacks -= here  # noqa: PLW2901 - what is left of it
        if lacks:
            return False
    return True


def _tell_pod(change: StoredChange) -> str:
    if change.key[0] != "pods" or change.new is None:
        return ""
    tree = change.new.tree
    going = " going" if tree["metadata"].get("deletionTimestamp") else ""
    return f" {tree['metadata']['uid']} {tree['status']['phase']} on {tree['spec'].get('nodeName', '-')}{going}"
