"""What a format cannot hold, counted, so that a conversion can say it in one line."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from phalanx.frontends.sim.scenario import DEFAULT_POLICY, Scenario, TrueRun
from phalanx.frontends.sim.traces.plain import KINDS
from phalanx.model.gang import After, Gang
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.topology import Topology
from phalanx.perfmodel.speedup import Amdahl, Linear

#: What a row of our own table holds besides times, sizes and users.
HELD_BY_PLAIN: Final = frozenset(
    {"elastic ranges", "priorities", "deadlines", "preemptible marks", "snapshot habits", "pauses", "speed-up curves"}
    | {"queue names", "shares of a GPU", "cores or memory"},
)

_NOWHERE: Final = Topology()
_NOTHING: Final = After()

#: Words for what a gang may say, and whether one says it. Order is the order of the message.
_PARTS: Final[tuple[tuple[str, Callable[[Gang, TrueRun], bool]], ...]] = (
    ("gangs of several roles (left out)", lambda gang, _: len(gang.roles) > 1),
    ("elastic ranges", lambda gang, _: gang.elastic),
    ("speed-up curves", lambda _, truth: isinstance(truth.speedup, Amdahl)),
    ("speed-up tables", lambda _, truth: not isinstance(truth.speedup, (Amdahl, Linear))),
    ("shares of a GPU", lambda gang, _: _any_need(gang, DEVICE_KIND, lambda units: units % MILLI != 0)),
    ("cores or memory", lambda gang, _: _any_need(gang, "cpu", bool) or _any_need(gang, "memory", bool)),
    ("other resources", lambda gang, _: any(kind not in KINDS for role in gang.roles for kind, _ in role.shape.need)),
    ("selections and tolerations", lambda gang, _: any(r.shape.select or r.shape.tolerate for r in gang.roles)),
    ("rules about others and wishes", lambda gang, _: not all(r.shape.plain for r in gang.roles)),
    ("wishes about the network", lambda gang, _: any(t != _NOWHERE for t in _topologies(gang))),
    ("queue names", lambda gang, _: gang.queue != DEFAULT_QUEUE),
    ("priorities", lambda gang, _: gang.priority != 0),
    ("deadlines", lambda gang, _: gang.deadline_us is not None),
    ("preemptible marks", lambda gang, _: gang.preemptible),
    ("snapshot habits", lambda gang, _: gang.snapshot is not None),
    ("pauses", lambda gang, _: bool(gang.resize_pause_us or gang.startup_us)),
    ("kill times", lambda gang, _: gang.kill_after_us is not None),
    ("words that tie gangs together", lambda gang, _: gang.together is not None),
    ("dependencies", lambda gang, _: gang.after != _NOTHING),
    ("holds", lambda gang, _: gang.hold),
    ("limits of restarts", lambda gang, _: gang.max_restarts != Gang("", ()).max_restarts),
)


def find_losses(scenario: Scenario, held: Collection[str]) -> list[str]:
    """Everything that is not among what the format holds, as counted words."""
    found = [f"the cluster ({len(scenario.nodes):,} nodes)"] if scenario.nodes else []
    pairs = list(zip(scenario.gangs, scenario.true_runs, strict=True))
    for words, says in _PARTS:
        count = 0 if words in held else sum(says(gang, truth) for gang, truth in pairs)
        if count:
            found.append(f"{count:,} {words}")
    described = [queue for queue in scenario.queues if queue != Queue(queue.name)]
    for what, words in (
        (described, "shares of queues"),
        (scenario.users, "limits of users"),
        (scenario.windows, "maintenance windows and reservations"),
        (scenario.events, "events"),
    ):
        if what:
            found.append(f"{len(what):,} {words}")
    if scenario.policies != ((DEFAULT_POLICY, {}),):
        found.append("the policy")
    if scenario.until_us is not None:
        found.append("the end of the simulation")
    return found


def _any_need(gang: Gang, kind: str, says: Callable[[int], bool]) -> bool:
    return any(says(role.shape.amount(kind)) for role in gang.roles)


def _topologies(gang: Gang) -> list[Topology]:
    return [gang.topology, *(role.topology for role in gang.roles)]
