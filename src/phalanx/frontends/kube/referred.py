"""What pods refer to: their namespaces, classes of priority, claims of volumes and what these are bound to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from phalanx.frontends.kube.api.reflector import WatchedKind
from phalanx.frontends.kube.companies import Name
from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.objects.decode import Unreadable
from phalanx.frontends.kube.objects.node import Namespace, PriorityClass, StorageClass, Volume, VolumeClaim
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.sights import KindSight
from phalanx.frontends.kube.volume_rules import Storage

NAMESPACES: Final = WatchedKind("namespaces", "/api/v1/namespaces", Namespace)
PRIORITIES: Final = WatchedKind("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass)
CLAIMS: Final = WatchedKind("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", VolumeClaim)
VOLUMES: Final = WatchedKind("persistentvolumes", "/api/v1/persistentvolumes", Volume)
STORAGE: Final = WatchedKind("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", StorageClass)

#: Which every namespace has.
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


class Referred:
    """All of it, as we were told."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._renamed: set[str] = set()  # namespaces that say something else than when somebody last asked
        self._restocked = False  # whether anything about storage does
        self.namespaces: KindSight[Namespace] = KindSight(self._take_namespace, on_change)
        self.priorities: KindSight[PriorityClass] = KindSight(lambda *_: None, on_change)
        self.claims: KindSight[VolumeClaim] = KindSight(self._take_storage, on_change)
        self.volumes: KindSight[Volume] = KindSight(self._take_storage, on_change)
        self.storage: KindSight[StorageClass] = KindSight(self._take_storage, on_change)
        self._surrounding: Surrounding | None = None

    @property
    def sights(self) -> dict[WatchedKind[Any], KindSight[Any]]:
        """By kind."""
        return {
            NAMESPACES: self.namespaces,
            PRIORITIES: self.priorities,
            CLAIMS: self.claims,
            VOLUMES: self.volumes,
            STORAGE: self.storage,
        }

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
            self._surrounding = Surrounding(
                Storage(claims, volumes, classes), self.labels_by_namespace, self._list_going()
            )
        return self._surrounding

    @property
    def labels_by_namespace(self) -> dict[str, dict[str, str]]:
        """Labels of namespaces, for those that select by them."""
        found = self.namespaces.objects.items()
        return {name: each.metadata.labels or {} for (_, name), each in found if isinstance(each, Namespace)}

    def _list_going(self) -> frozenset[str]:
        found = self.namespaces.objects.items()
        return frozenset(name for (_, name), each in found if each.metadata.deletion_timestamp is not None)

    def hand_over(self) -> Callable[[Pod], bool] | None:
        """Of which waiting pods something that they refer to has changed since the last time; None: of nobody."""
        renamed, restocked = self._renamed, self._restocked
        self._renamed, self._restocked = set(), False
        if not renamed and not restocked:
            return None

        def is_doubtful(pod: Pod) -> bool:
            # Whoever selects namespaces by labels may mean another set of them, wherever it is itself.
            otherwise = bool(renamed) and (pod.metadata.namespace in renamed or pod.spec.affinity is not None)
            return otherwise or (restocked and bool(pod.spec.volumes))

        return is_doubtful

    # ---- what reflectors tell

    def _take_storage(self, *_: object) -> None:
        self._surrounding, self._restocked = None, True
        self._on_change()

    def _take_namespace(
        self, name: Name, old: Namespace | Unreadable | None, new: Namespace | Unreadable | None
    ) -> None:
        if _says(old) != _says(new):
            self._surrounding = None
            self._renamed.add(name[1])
            self._on_change()


def _says(namespace: Namespace | Unreadable | None) -> tuple[Mapping[str, str], bool]:
    """All that is read of one; of most that is the same as of one that nobody has seen yet."""
    if namespace is None:
        return {}, False
    labels = {key: value for key, value in (namespace.metadata.labels or {}).items() if key != _NAME_LABEL}
    return labels, namespace.metadata.deletion_timestamp is not None
