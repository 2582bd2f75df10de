"""What the API server has, as far as we were told: pods, nodes, gangs' objects, and who belongs to whom.

Fed by the reflectors, asked by the controller. It decides nothing; what changed since it was last asked is gathered
here, so that a hundred events of one gang are one question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from phalanx.frontends.kube.api.reflector import WatchedKind
from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.expressing import names_nodes
from phalanx.frontends.kube.gang_view import Dialect, GangKey, GangView, PodMember
from phalanx.frontends.kube.objects.decode import Unreadable
from phalanx.frontends.kube.objects.groups import GroupObject, NativePodGroup, PluginsPodGroup, VolcanoPodGroup
from phalanx.frontends.kube.objects.metadata import Metadata, Narrow
from phalanx.frontends.kube.objects.node import NodeObject, PriorityClass, StorageClass, Volume, VolumeClaim
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.pod_members import make_member
from phalanx.frontends.kube.quantities import engine_amount
from phalanx.frontends.kube.requests import PodDemand, find_demand
from phalanx.frontends.kube.translating import choose_membership, group_key, translate_gang
from phalanx.frontends.kube.volume_rules import Storage

T = TypeVar("T", bound=Narrow)

PODS: Final = WatchedKind("pods", "/api/v1/pods", Pod)
NODES: Final = WatchedKind("nodes", "/api/v1/nodes", NodeObject)
PRIORITIES: Final = WatchedKind("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass)
CLAIMS: Final = WatchedKind("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", VolumeClaim)
VOLUMES: Final = WatchedKind("persistentvolumes", "/api/v1/persistentvolumes", Volume)
STORAGE: Final = WatchedKind("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", StorageClass)
#: The gang objects of each dialect that has any.
GROUPS: Final[Mapping[Dialect, WatchedKind[Any]]] = {
    Dialect.NATIVE: WatchedKind(
        "podgroups.scheduling.k8s.io", "/apis/scheduling.k8s.io/v1beta1/podgroups", NativePodGroup
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

Name = tuple[str, str]  # namespace and name


@dataclass(slots=True)
class Sightings:
    """What happened since somebody last asked."""

    gangs: set[GangKey] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)  # by what they are
    tenants: set[str] = field(default_factory=set)  # nodes by who is on them
    gone: list[str] = field(default_factory=list)  # uids of pods that hold no seat any more

    def __bool__(self) -> bool:
        return bool(self.gangs or self.nodes or self.tenants or self.gone)


class KindSight(Generic[T]):
    """All objects of one kind, for a reflector to tell of."""

    def __init__(
        self, take: Callable[[Name, T | Unreadable | None, T | Unreadable | None], None], on_sync: Callable[[], None]
    ) -> None:
        """`take` is called with the name, what was there and what is there now."""
        self.objects: dict[Name, T | Unreadable] = {}
        self.is_synced = self.is_absent = False
        self._take, self._on_sync = take, on_sync

    def replace_all(self, objects: list[T | Unreadable]) -> None:
        """What is not among them is gone: nobody will tell of that again."""
        there = {_name_of(each): each for each in objects}
        for name in [name for name in self.objects if name not in there]:
            self._take(name, self.objects.pop(name), None)
        for name, each in there.items():
            self._put(name, each)
        self.is_synced, self.is_absent = True, False
        self._on_sync()  # also of an empty list, which makes no change

    def note(self, object_: T | Unreadable, *, deleted: bool) -> None:
        """One change. The same may be told twice."""
        name = _name_of(object_)
        if deleted:
            self._take(name, self.objects.pop(name, None), None)
        else:
            self._put(name, object_)

    def note_absent(self) -> None:
        """Its kind is not served; if it was, all of them are gone."""
        self.replace_all([])
        self.is_absent = True

    def _put(self, name: Name, object_: T | Unreadable) -> None:
        old = self.objects.get(name)
        self.objects[name] = object_
        if old is None or _metadata_of(old).resource_version != _metadata_of(object_).resource_version:
            self._take(name, old, object_)


def _name_of(object_: Narrow | Unreadable) -> Name:
    metadata = _metadata_of(object_)
    return metadata.namespace, metadata.name


def _metadata_of(object_: Any) -> Metadata:
    found: Metadata = object_.metadata  # every kind that is watched has it
    return found


class Mirror:
    """The cluster as we were told."""

    def __init__(self, scheduler: str, on_change: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.changes = Sightings()
        self._on_change = on_change
        self.pods: KindSight[Pod] = KindSight(self._take_pod, on_change)
        self.nodes: KindSight[NodeObject] = KindSight(self._take_node, on_change)
        self.priorities: KindSight[PriorityClass] = KindSight(lambda *_: None, on_change)
        self.claims: KindSight[VolumeClaim] = KindSight(self._take_storage, on_change)
        self.volumes: KindSight[Volume] = KindSight(self._take_storage, on_change)
        self.storage: KindSight[StorageClass] = KindSight(self._take_storage, on_change)
        self.groups: dict[Dialect, KindSight[NativePodGroup | PluginsPodGroup | VolcanoPodGroup]] = {
            dialect: KindSight(self._group_taker(dialect), on_change) for dialect in GROUPS
        }
        one_each = (self.pods, self.nodes, self.priorities, self.claims, self.volumes, self.storage)
        self._sights: tuple[KindSight[Any], ...] = (*one_each, *self.groups.values())
        self._names_by_gang: dict[GangKey, set[Name]] = {}
        self._gang_by_name: dict[Name, GangKey] = {}
        self._members: dict[str, tuple[str, PodMember]] = {}  # by uid: the version that was read, and what was read
        self._tenants: dict[str, dict[str, Name]] = {}  # by node: who is on it, by uid
        self._assumed: dict[str, str] = {}  # node by uid: bound by us, and not yet told
        self._leaving: set[str] = set()  # uids: evicted by us, and not yet told
        self._amounts: dict[str, tuple[str, dict[str, int]]] = {}  # of bound pods by uid, with the version
        self._surrounding: Surrounding | None = None

    # ---- what is asked

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed once."""
        return all(each.is_synced for each in self._sights)

    def unsync(self) -> None:
        """What is here may be old; everything is to be listed once more."""
        for each in self._sights:
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
        return translate_gang(key, group, pods, members, self.priority_by_class, was_whole=was_whole)

    def read(self, pod: Pod) -> PodMember:
        """A pod as a member; read once for each of its versions."""
        known = self._members.get(pod.metadata.uid)
        if known is None or known[0] != _version(pod):
            known = self._members[pod.metadata.uid] = (_version(pod), make_member(pod, self.surrounding))
        return known[1]

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
        known = self._amounts.get(pod.metadata.uid)
        if known is None or known[0] != pod.metadata.resource_version:
            known = self._amounts[pod.metadata.uid] = (pod.metadata.resource_version, amounts_of(pod))
        return known[1]

    def list_nodes(self) -> dict[str, NodeObject]:
        """Nodes by name."""
        return {name: each for (_, name), each in self.nodes.objects.items() if isinstance(each, NodeObject)}

    @property
    def priority_by_class(self) -> dict[str, int]:
        """Priorities by the name of their class."""
        found = self.priorities.objects.items()
        return {name: each.value for (_, name), each in found if isinstance(each, PriorityClass)}

    @property
    def surrounding(self) -> Surrounding:
        """What pods refer to."""
        if self._surrounding is None:
            claims = {name: each for name, each in self.claims.objects.items() if isinstance(each, VolumeClaim)}
            volumes = {name: each for (_, name), each in self.volumes.objects.items() if isinstance(each, Volume)}
            found = self.storage.objects.items()
            classes = {name: each for (_, name), each in found if isinstance(each, StorageClass)}
            self._surrounding = Surrounding(Storage(claims, volumes, classes))
        return self._surrounding

    # ---- what we know before we are told

    def assume(self, name: Name, uid: str, node: str) -> None:
        """It is bound there: the server said so, and the watch will."""
        pod = self.find_pod(name)
        if pod is None or pod.metadata.uid != uid or pod.spec.node_name:
            return
        self._assumed[uid] = node
        self.pods.objects[name] = _at(pod, node)
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
        if isinstance(old, Pod):
            is_same = isinstance(new, Pod) and new.metadata.uid == old.metadata.uid
            self._leave(old, is_same=is_same)
            if not is_same:
                self._members.pop(old.metadata.uid, None)
                self._assumed.pop(old.metadata.uid, None)
                self._leaving.discard(old.metadata.uid)
                self._amounts.pop(old.metadata.uid, None)
        key = None
        if isinstance(new, Pod):
            key = _find_key(new, self.scheduler)
            if holds_seat(new):
                self._tenants.setdefault(new.spec.node_name, {})[new.metadata.uid] = name
                self.changes.tenants.add(new.spec.node_name)
            elif isinstance(old, Pod) and holds_seat(old):
                self.changes.gone.append(new.metadata.uid)
        self._join(name, key)
        self._on_change()

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
        if labels_old != labels_new:
            # Whoever asks for nodes in a way that only names can say has to be asked again which those are.
            self.changes.gangs |= {key for key in self._names_by_gang if self._names_nodes(key)}
        self._on_change()

    def _names_nodes(self, key: GangKey) -> bool:
        pods = (self.find_pod(name) for name in self._names_by_gang[key])
        waiting = (pod for pod in pods if pod is not None and not pod.spec.node_name and pod.spec.affinity is not None)
        shapes = (self.read(pod).shape for pod in waiting)
        return any(shape is not None and names_nodes(shape) for shape in shapes)

    def _take_storage(self, *_: object) -> None:
        self._surrounding = None
        for name, key in self._gang_by_name.items():
            pod = self.find_pod(name)
            if pod is not None and pod.spec.volumes and not pod.spec.node_name:
                self._members.pop(pod.metadata.uid, None)
                self.changes.gangs.add(key)
        self._on_change()

    def _group_taker(
        self, dialect: Dialect
    ) -> Callable[[Name, GroupObject | Unreadable | None, GroupObject | Unreadable | None], None]:
        def take(_: Name, old: GroupObject | Unreadable | None, new: GroupObject | Unreadable | None) -> None:
            there = new if new is not None else old
            if there is not None:
                self.changes.gangs.add(group_key(dialect, there))
                self._on_change()

        return take


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


def amounts_of(pod: Pod) -> dict[str, int]:
    """What a bound pod takes, in the engine's units; what cannot be read counts for nothing."""
    demand = find_demand(pod)
    if not isinstance(demand, PodDemand):
        return {}
    return {resource: engine_amount(units, resource) for resource, units in demand.amounts}


def _says(node: NodeObject) -> tuple[object, ...]:
    """All that is read of a node, without the instants at which it was said."""
    conditions = tuple((each.type, each.status) for each in node.status.conditions or ())
    return node.metadata.labels, node.spec, node.status.allocatable, conditions


def _version(pod: Pod) -> str:
    return f"{pod.metadata.resource_version}@{pod.spec.node_name}@{pod.metadata.deletion_timestamp or ''}"


def _at(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _leaving(pod: Pod) -> Pod:
    # Since when is the server's to say; here it is only whether.
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp="assumed"))
