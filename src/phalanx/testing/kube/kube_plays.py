"""One scenario through the simulator and through the Kubernetes controller, and when each of them started whom.

The engine is one; what is compared is everything around it. Here a start is when the last pod of a gang was bound.
Calls take no time worth a name, and kubelets none at all, so that both clocks agree to a few milliseconds; scenarios
keep what happens further apart than that. What this front end has no word for is said in `why_not_here`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from phalanx.frontends.kube.kube_settings import KubeSettings
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.gang import Gang
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.testing.controlplane.fake_nodes import make_nodes
from phalanx.testing.hosts.conformance import play_in_sim
from phalanx.testing.kube.cluster_people import ClusterPeople, WantedGang, name_gang
from phalanx.testing.kube.fake_etcd import StoredChange
from phalanx.testing.kube.fake_server import CallFate
from phalanx.testing.kube.kube_world import HOME, NODES, KubeWorld
from phalanx.testing.kube.kubelets import Kubelets, has_node

#: How far the clocks of the two may be apart: a pod whose status is written while it is bound is bound 50 ms later.
SLACK_US: Final = 60_000
#: What a kubelet here takes to start a pod, which is part of its run.
KUBELET_US: Final = 10_000
_DIALECTS: Final = ("native", "plugins", "volcano", "koordinator")


class _Quick(Random):
    """Of several delays always the shortest."""

    def choice(self, seq: Any) -> Any:
        """That one."""
        return min(seq)


def why_not_on_kube(scenario: Scenario) -> str | None:  # noqa: PLR0911 - a list of reasons
    """Why this front end cannot play a scenario; None if it can."""
    if scenario.windows or scenario.failures is not None or scenario.events:
        return "windows, failures and words of people"
    if scenario.levels:
        return "topology"
    if any(kind != DEVICE_KIND for node in scenario.nodes for kind in node.resources):
        return "other resources than devices"
    if len({gang.submit_us // 1_000_000 for gang in scenario.gangs}) < len(scenario.gangs):
        return "gangs that come in one second"  # which is all that the stamp of a pod says
    for gang in scenario.gangs:
        if gang.elastic or len(gang.roles) > 1:
            return "elastic gangs and roles"
        if gang.walltime_us is not None or gang.kill_after_us is not None or gang.after.names or gang.priority:
            return "walltimes, dependencies and priorities"
        if gang.together is not None or gang.roles[0].shape.select or gang.roles[0].shape.need[0][1] % MILLI:
            return "groups, labels and shares of devices"
    return None


def play_on_kube(scenario: Scenario, policy: str, until_us: int) -> dict[str, int]:
    """When the last pod of each gang was bound."""
    assert why_not_on_kube(scenario) is None
    starts: dict[str, int] = {}
    settings = KubeSettings(policy=policy, leader_election=False, namespace=HOME)
    with KubeWorld(settings) as world:
        world.server.fate = lambda call: CallFate(there_us=10, back_us=10)
        world.server.lag_us = lambda user: 10
        for node in scenario.nodes:
            (tree,) = make_nodes(f"1x{node.resources[DEVICE_KIND] // MILLI}", prefix=node.name)
            world.create(NODES, [tree])
        people = ClusterPeople(world, _Quick())
        Kubelets(world, _Quick())

        def note(change: StoredChange) -> None:
            is_there = change.key[0] == "pods" and change.new is not None and has_node(change.new.tree)
            if is_there and change.new is not None and (change.old is None or not has_node(change.old.tree)):
                starts[name_gang(change.new.tree)] = world.now_us

        world.listen(note)
        world.boot("a")
        for at, (gang, truth) in enumerate(zip(scenario.gangs, scenario.true_runs, strict=True)):
            wanted = _want(gang, _DIALECTS[at % len(_DIALECTS)], truth.duration_us - KUBELET_US)
            world.later(gang.submit_us, people.submit, wanted)
        world.run_until(until_us)
        if world.errors:
            raise world.errors[0]
    return starts


def _want(gang: Gang, dialect: str, run_us: int) -> WantedGang:
    (role,) = gang.roles
    return WantedGang(
        gang.name, dialect, role.sizes.least, role.sizes.least, role.shape.need[0][1] // MILLI, run_us / 1e6
    )


def compare_starts(scenario: Scenario, policy: str, engine_policy: Any) -> Sequence[str]:
    """Every gang that the two did not start at one instant."""
    told = play_in_sim(scenario, engine_policy)
    until_us = max([*told.ends.values(), *(gang.submit_us for gang in scenario.gangs)]) + 1_000_000
    seen = play_on_kube(scenario, policy, until_us)
    return [
        f"{gang.name}: {told.starts.get(gang.name)} simulated, {seen.get(gang.name)} seen"
        for gang in scenario.gangs
        if abs(told.starts.get(gang.name, -1 << 40) - seen.get(gang.name, -1 << 40)) > SLACK_US
    ]
