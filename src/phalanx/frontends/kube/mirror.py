"""What the API server has, as far as we were told: pods, nodes, gangs' objects, and who belongs to whom.

Fed by the reflectors, asked by the controller. It decides nothing; what changed since it was last asked is gathered
here, so that a hundred events of one gang are one question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from phalanx.frontends.kube.api.reflector import WatchedKind
from phalanx.frontends.kube.companies import Companies, Name
from phalanx.frontends.kube.constraints import PodShape, Surrounding
from phalanx.frontends.kube.expressing import names_nodes
from phalanx.frontends.kube.gang_view import Dialect, GangKey, GangView, PodMember
from phalanx.frontends.kube.neighbours import selects_namespaces
from phalanx.frontends.kube.objects.decode import Unreadable
from phalanx.frontends.kube.objects.groups import GroupObject, NativePodGroup, PluginsPodGroup, VolcanoPodGroup
from phalanx.frontends.kube.objects.node import NodeObject
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.pod_readings import PodReadings, says_the_same
from phalanx.frontends.kube.referred import Referred
from phalanx.frontends.kube.requests import takes_host_ports
from phalanx.frontends.kube.sights import KindSight
from phalanx.frontends.kube.translating import choose_membership, group_key, translate_gang

PODS: Final = WatchedKind("pods", "/api/v1/pods", Pod)
NODES: Final = WatchedKind("nodes", "/api/v1/nodes", NodeObject)
#: The gang objects of each dialect that has any.
GROUPS: Final[Mapping[Dialect, WatchedKind[Any]]] = {
    Dialect.NATIVE: WatchedKind(
        "podgroups.scheduling.k8s.io",
        "/apis/scheduling.k8s.io/v1beta1/podgroups",
        NativePodGroup,
        older=("/apis/scheduling.k8s.io/v1alpha2/podgroups",),  # of 1.36, and gone in 1.37
    ),
    Dialect.SCHEDULER_PLUGINS: WatchedKind(
        "podgroups.scheduling.x-k8s.io", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", PluginsPodGroup
    ),
    Dialect.KOORDINATOR: WatchedKind(
        "podgroups.scheduling.sigs.k8s.io", "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups", PluginsPodGroup
    ),
    Dialect.VOLCANO: WatchedKind(
        "podgroups.scheduling.volcano.sh", "/apis/scheduling.volcano.sh/v1beta1/podgroups", VolcanoPodGroup
    ),
}

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Sightings:
    """What happened since somebody last asked."""

    gangs: set[GangKey] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)  # by what they are
    tenants: set[str] = field(default_factory=set)  # nodes by who is on them
    gone: list[str] = field(default_factory=list)  # uids of pods that hold no seat any more
    worded: set[Name] = field(default_factory=set)  # pods of which rules about others may speak otherwise

    def __bool__(self) -> bool:
        return bool(self.gangs or self.nodes or self.tenants or self.gone or self.worded)


class Mirror:
    """The cluster as we were told."""

    def __init__(self, scheduler: str, on_change: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.changes = Sightings()
        self._on_change = on_change
        self.pods: KindSight[Pod] = KindSight(self._take_pod, on_change)
        self.nodes: KindSight[NodeObject] = KindSight(self._take_node, on_change)
        self.referred = Referred(on_change)
        self.groups: dict[Dialect, KindSight[NativePodGroup | PluginsPodGroup | VolcanoPodGroup]] = {
            dialect: KindSight(self._group_taker(dialect), on_change) for dialect in GROUPS
        }
        self._names_by_gang: dict[GangKey, set[Name]] = {}
        self._gang_by_name: dict[Name, GangKey] = {}
        self._readings = PodReadings(lambda pod: make_member(pod, self.surrounding))
        self._tenants: dict[str, dict[str, Name]] = {}  # by node: who is on it, by uid
        self._assumed: dict[str, str] = {}  # node by uid: bound by us, and not yet told
        self._relabelled = False  # whether nodes have other labels than when somebody last asked
        self.companies = Companies()
        self._leaving: set[str] = set()  # uids: evicted by us, and not yet told

    # ---- what is asked

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed once."""
        return all(each.is_synced for each in self.sights.values())

    @property
    def sights(self) -> dict[WatchedKind[Any], KindSight[Any]]:
        """Everything that has to be watched, and who is to be told of it."""
        return {
            PODS: self.pods,
            NODES: self.nodes,
            **self.referred.sights,
            **{kind: self.groups[dialect] for dialect, kind in GROUPS.items()},
        }

    def unsync(self) -> None:
        """What is here may be old; everything is to be listed once more."""
        for each in self.sights.values():
            each.is_synced = False

    def list_gangs(self) -> set[GangKey]:
        """Every gang of which there is something."""
        found = set(self._names_by_gang)
        for dialect, sight in self.groups.items():
            found |= {GangKey(dialect, namespace, name) for namespace, name in sight.objects}
        return found

    def hand_over(self) -> Sightings:
        """Everything since the last time."""
        changes, self.changes = self.changes, Sightings()
        # What concerns many gangs is worked out here, once, however many nodes, volumes or namespaces it was.
        is_doubtful = self.referred.hand_over()
        for pod, key in self._list_waiting() if self._relabelled or is_doubtful is not None else ():
            if is_doubtful is not None and is_doubtful(pod):
                self._readings.forget(pod.metadata.uid)
                changes.gangs.add(key)
            elif self._relabelled and pod.spec.affinity is not None and key not in changes.gangs:
                # Whoever asks for nodes in a way that only names can say has to be asked again which those are.
                shape = self.read(pod).shape
                changes.gangs |= {key} if shape is not None and names_nodes(shape) else set()
        self._relabelled = False
        return changes

    def look_at(self, key: GangKey, *, was_whole: bool = False) -> GangView | None:
        """A gang, now; None if none of its pods is ours, or there is nothing of it."""
        pods = [pod for name in self._names_by_gang.get(key, ()) if (pod := self.find_pod(name)) is not None]
        group = self.find_group(key)
        if pods and not any(pod.spec.scheduler_name == self.scheduler for pod in pods):
            return None
        if not pods and group is None:
            return None
        members = [self.read(pod) for pod in pods]
        return translate_gang(key, group, pods, members, self.referred.priority_by_class, was_whole=was_whole)

    def read(self, pod: Pod) -> PodMember:
        """A pod as a member; read once for each of its versions."""
        return self._readings.read(pod)

    def find_pod(self, name: Name) -> Pod | None:
        """One pod."""
        found = self.pods.objects.get(name)
        return found if isinstance(found, Pod) else None

    def find_group(self, key: GangKey) -> GroupObject | Unreadable | None:
        """The object of a gang."""
        sight = self.groups.get(key.dialect)
        return None if sight is None else sight.objects.get((key.namespace, key.name))

    def find_tenants(self, node: str) -> dict[str, Name]:
        """Who is on a node and has not ended, by uid."""
        return self._tenants.get(node, {})

    def sum_tenants(self, node: str, is_counted: Callable[[str], bool]) -> dict[str, int]:
        """What those on a node take of it, in the engine's units, of those that count."""
        total: dict[str, int] = {}
        for uid, name in self.find_tenants(node).items():
            pod = self.find_pod(name)
            if pod is not None and is_counted(uid):
                for kind, units in self.find_amounts(pod).items():
                    total[kind] = total.get(kind, 0) + units
        return total

    def find_amounts(self, pod: Pod) -> dict[str, int]:
        """What a pod takes of a node; read once for each of its versions."""
        return self._readings.find_amounts(pod)

    def list_nodes(self) -> dict[str, NodeObject]:
        """Nodes by name."""
        return {name: each for (_, name), each in self.nodes.objects.items() if isinstance(each, NodeObject)}

    @property
    def surrounding(self) -> Surrounding:
        """What pods refer to."""
        return self.referred.surrounding

    # ---- what we know before we are told

    def assume(self, name: Name, uid: str, node: str) -> None:
        """It is bound there: the server said so, and the watch will."""
        pod = self.find_pod(name)
        if pod is None or pod.metadata.uid != uid or pod.spec.node_name:
            return
        self._assumed[uid] = node
        there = self.pods.objects[name] = _at(pod, node)
        # What it takes and where it may go is the same as before: thousands of pods need not be read again.
        self._readings.carry_over(pod, there)
        self._take_pod(name, pod, pod)

    def assume_leaving(self, name: Name, uid: str) -> None:
        """It is being deleted: the server said so, and the watch will."""
        pod = self.find_pod(name)
        if pod is None or pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None:
            return
        self._leaving.add(uid)
        self.pods.objects[name] = _leaving(pod)
        self._take_pod(name, pod, pod)

    # ---- what reflectors tell

    def _take_pod(self, name: Name, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        if isinstance(new, Pod):
            new = self._with_assumed(name, new)
            if isinstance(old, Pod) and says_the_same(old, new):
                self._readings.carry_over(old, new)
                return
        if isinstance(old, Pod):
            is_same = isinstance(new, Pod) and new.metadata.uid == old.metadata.uid
            self._leave(old, is_same=is_same)
            if not is_same:
                self._readings.forget(old.metadata.uid)
                self._assumed.pop(old.metadata.uid, None)
                self._leaving.discard(old.metadata.uid)
        key = None
        if isinstance(new, Pod):
            # By far the most of what changes are bindings that we assume, and those say nothing new of whose it is.
            is_like = isinstance(old, Pod) and new.metadata is old.metadata
            key = self._gang_by_name.get(name) if is_like else _find_key(new, self.scheduler)
            if holds_seat(new):
                self._tenants.setdefault(new.spec.node_name, {})[new.metadata.uid] = name
                self.changes.tenants.add(new.spec.node_name)
            elif isinstance(old, Pod) and holds_seat(old):
                self.changes.gone.append(new.metadata.uid)
        self._join(name, key)
        self._note_company(name, new if isinstance(new, Pod) else None)
        self._on_change()

    def _note_company(self, name: Name, pod: Pod | None) -> None:
        """Whom its rules speak of, and who speaks of it."""
        if pod is None or has_ended(pod):
            self.companies.forget(name)
        else:
            shape = find_asking(self, pod)
            rules = [] if shape is None else shape.constraints.neighbours.list_rules()
            asked = [rule.company for rule in rules if not selects_namespaces(rule.company)]
            self.companies.note(name, pod.metadata.labels, asked, () if shape is None else shape.demand.ports)
        for other in self.companies.hand_over():
            key = self._gang_by_name.get(other)
            if key is not None:
                self.changes.gangs.add(key)
            self.changes.worded.add(other)

    def _with_assumed(self, name: Name, pod: Pod) -> Pod:
        uid = pod.metadata.uid
        node = self._assumed.get(uid)
        if node is not None and pod.spec.node_name:
            del self._assumed[uid]
        elif node is not None:
            # Older than the binding: a status that somebody wrote in between.
            pod = self.pods.objects[name] = _at(pod, node)
        if uid in self._leaving and pod.metadata.deletion_timestamp is not None:
            self._leaving.discard(uid)
        elif uid in self._leaving:
            pod = self.pods.objects[name] = _leaving(pod)
        return pod

    def _leave(self, old: Pod, *, is_same: bool) -> None:
        tenants = self._tenants.get(old.spec.node_name)
        if tenants is not None and tenants.pop(old.metadata.uid, None) is not None:
            self.changes.tenants.add(old.spec.node_name)
            if not tenants:
                del self._tenants[old.spec.node_name]
        if not is_same:
            self.changes.gone.append(old.metadata.uid)

    def _join(self, name: Name, key: GangKey | None) -> None:
        before = self._gang_by_name.get(name)
        if before is not None:
            self.changes.gangs.add(before)
            if before != key:
                names = self._names_by_gang[before]
                names.discard(name)
                if not names:
                    del self._names_by_gang[before]
                del self._gang_by_name[name]
        if key is not None:
            self._gang_by_name[name] = key
            self._names_by_gang.setdefault(key, set()).add(name)
            self.changes.gangs.add(key)

    def _take_node(self, name: Name, old: NodeObject | Unreadable | None, new: NodeObject | Unreadable | None) -> None:
        if isinstance(old, NodeObject) and isinstance(new, NodeObject) and _says(old) == _says(new):
            return  # a sign of life, of which each node gives several an hour
        self.changes.nodes.add(name[1])
        labels_old = old.metadata.labels if old is not None else None
        labels_new = new.metadata.labels if new is not None else None
        self._relabelled = self._relabelled or labels_old != labels_new
        self._on_change()

    def _list_waiting(self) -> Iterator[tuple[Pod, GangKey]]:
        """Pods that wait, with their gangs."""
        for name, key in self._gang_by_name.items():
            pod = self.find_pod(name)
            if pod is not None and not pod.spec.node_name:
                yield pod, key

    def _group_taker(
        self, dialect: Dialect
    ) -> Callable[[Name, GroupObject | Unreadable | None, GroupObject | Unreadable | None], None]:
        def take(_: Name, old: GroupObject | Unreadable | None, new: GroupObject | Unreadable | None) -> None:
            there = new if new is not None else old
            if there is not None:
                self.changes.gangs.add(group_key(dialect, there))
                self._on_change()

        return take


def find_asking(mirror: Mirror, pod: Pod) -> PodShape | None:
    """The shape of a pod that asks about others, or takes ports of its node; None of anybody else."""
    affinity = pod.spec.affinity
    about = affinity is not None and (affinity.pod_anti_affinity is not None or affinity.pod_affinity is not None)
    if not (about or pod.spec.topology_spread_constraints or takes_host_ports(pod)):
        return None
    # Of strangers only what binds whoever comes after them: that they keep others away, and their ports.
    if pod.spec.scheduler_name != mirror.scheduler and not pod.spec.node_name:
        return None
    return mirror.read(pod).shape


def _find_key(pod: Pod, scheduler: str) -> GangKey | None:
    key = choose_membership(pod).key
    # Single pods of others are none of our affair, but for the room that they take.
    if key.dialect is Dialect.PLAIN and pod.spec.scheduler_name != scheduler:
        return None
    return key


def holds_seat(pod: Pod) -> bool:
    """Whether it takes room of a node: bound, and not at its end. One that is being deleted still does."""
    return bool(pod.spec.node_name) and not has_ended(pod)


def has_ended(pod: Pod) -> bool:
    """Whether nothing of it runs any more, well or badly."""
    return pod.status.phase in _ENDED


def _says(node: NodeObject) -> tuple[object, ...]:
    """All that is read of a node, without the instants at which it was said."""
    conditions = tuple((each.type, each.status) for each in node.status.conditions or ())
    return node.metadata.labels, node.spec, node.status.allocatable, conditions


def _at(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _leaving(pod: Pod) -> Pod:
    # Since when is the server's to say; here it is only whether.
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp="assumed"))
