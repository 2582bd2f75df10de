"""Everything that is known at one instant, copied in the event loop: an answer may then take its time elsewhere.

What never changes is shared: gangs, views, node objects. The state is cloned, so that a look may use it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from phalanx.control.clone import clone_state
from phalanx.control.state import State
from phalanx.engine.policy import Policy
from phalanx.frontends.kube.constraints import Surrounding
from phalanx.frontends.kube.expressing import Terrain, find_device_kind
from phalanx.frontends.kube.gang_view import GangKey, GangView
from phalanx.frontends.kube.kube_planner import KubePlanner, Stage
from phalanx.frontends.kube.mirror import Mirror
from phalanx.words import due


@dataclass(frozen=True)
class ClusterView:
    """The cluster and all gangs, at one instant."""

    state: State
    policy: Policy
    policy_name: str
    views: Mapping[GangKey, GangView]
    parties: Mapping[int, tuple[GangKey, Stage]]  # by number of the engine
    others: Mapping[str, Mapping[str, int]]  # what pods that are nobody's party take, by node
    terrain: Terrain
    mirror: Mirror  # asked for single objects only, which is safe from another thread
    surrounding: Surrounding
    priority_by_class: Mapping[str, int]
    device_kind: str

    @property
    def now_us(self) -> int:
        """When it was taken, since the epoch."""
        return self.state.now_us

    @cached_property
    def waiting(self) -> Mapping[GangKey, int]:
        """Gangs that wait, with the first party of each."""
        # The last that is written stays, so the highest number first.
        listed = sorted(self.parties.items(), key=lambda each: -each[0])
        return {key: number for number, (key, stage) in listed if stage is Stage.WAITING}

    @cached_property
    def flying(self) -> frozenset[GangKey]:
        """Gangs of which some members are being bound."""
        return frozenset(key for key, stage in self.parties.values() if stage is Stage.FLYING)


def take_picture(
    planner: KubePlanner, policy_name: str, views: Mapping[GangKey, GangView], terrain: Terrain, mirror: Mirror
) -> ClusterView:
    """Now."""
    state = clone_state(planner.state)
    return ClusterView(
        state,
        planner.loop.policy,
        policy_name,
        dict(views),
        {number: (party.key, party.stage) for number, party in planner.parties.items()},
        dict(planner.others),
        terrain,
        mirror,
        mirror.surrounding,
        mirror.referred.priority_by_class,
        find_device_kind(state.fleet.kinds),
    )


def iso(at_us: int) -> str:
    """An instant for programs."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class GangNames:
    """What gangs are called in sentences: by namespace and name."""

    picture: ClusterView

    @property
    def word(self) -> str:
        """What one of them is."""
        return "gang"

    def call(self, number: int) -> str | None:
        """By namespace and name."""
        found = self.picture.parties.get(number)
        return None if found is None else str(found[0])

    def describe(self, number: int, *more: str) -> str | None:
        """The namespace says whose it is already."""
        name = self.call(number)
        return name if name is None or not more else f"{name} ({', '.join(more)})"

    def due(self, at_us: int) -> str:
        """The engine counts from the epoch here."""
        return due(at_us / 1e6, self.picture.now_us / 1e6)
