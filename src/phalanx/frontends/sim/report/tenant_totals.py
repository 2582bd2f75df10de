"""Who got what: queues and users of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from phalanx.control.spec.quantity import SECOND_US
from phalanx.frontends.sim.result import COMPLETED, GangResult
from phalanx.model.queue import ROOT, Queue

#: As in the metrics: a job shorter than this counts as this long.
_SHORT_US: Final = 10 * SECOND_US


@dataclass(slots=True)
class TenantTotals:
    """What one queue, or one user, asked for and got."""

    name: str
    gangs: int = 0
    completed: int = 0
    started: int = 0
    device_s: float = 0.0
    _wait_us: int = 0
    _slowdown: float = 0.0

    @property
    def wait_s_mean(self) -> float:
        """Of the gangs that started."""
        return self._wait_us / SECOND_US / self.started if self.started else 0.0

    @property
    def slowdown_mean(self) -> float:
        """Bounded slowdown of the gangs that completed."""
        return self._slowdown / self.completed if self.completed else 0.0

    def add(self, gang: GangResult, device_s: float) -> None:
        """Count one gang in."""
        self.gangs += 1
        self.device_s += device_s
        wait = gang.wait_us
        if wait is not None:
            self.started += 1
            self._wait_us += wait
        if gang.state == COMPLETED and gang.end_us is not None:
            self.completed += 1
            self._slowdown += max(1.0, (gang.end_us - gang.submit_us) / max(gang.duration_us, _SHORT_US))


@dataclass(slots=True)
class Tree:
    """The queues with what they are entitled to, in units of one kind. Amounts hold for queues and what is below."""

    above: dict[str, tuple[str, ...]] = field(default_factory=dict)  # a queue and its ancestors, root left out
    guarantees: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    entitlements: dict[str, float] = field(default_factory=dict)


def read_tree(queues: Iterable[Queue], kind: str, capacity: int) -> Tree:
    """Entitlements here are those of the moment when every queue wants more than it gets."""
    named = {queue.name: queue for queue in queues}
    tree = Tree()
    for name, queue in named.items():
        chain = [name]
        while chain[-1] in named and named[chain[-1]].parent != ROOT:
            chain.append(named[chain[-1]].parent)
        tree.above[name] = tuple(chain)
        if queue.guarantee.get(kind):
            tree.guarantees[name] = queue.guarantee[kind]
        if kind in queue.limit:
            tree.limits[name] = queue.limit[kind]
    _entitle(tree, list(named.values()), ROOT, float(capacity))
    return tree


def _entitle(tree: Tree, queues: Sequence[Queue], parent: str, amount: float) -> None:
    """Divide what a queue has among those below it, and so on down."""
    children = [queue for queue in queues if queue.parent == parent]
    if not children:
        return
    floors = {queue.name: float(tree.guarantees.get(queue.name, 0)) for queue in children}
    ceilings = {queue.name: float(tree.limits.get(queue.name, amount)) for queue in children}
    shares = divide(max(0.0, amount - sum(floors.values())), {queue.name: queue.weight for queue in children},
                    {name: ceilings[name] - floors[name] for name in floors})  # fmt: skip
    for queue in children:
        tree.entitlements[queue.name] = floors[queue.name] + shares[queue.name]
        _entitle(tree, queues, queue.name, tree.entitlements[queue.name])


def divide(amount: float, weights: Mapping[str, int], ceilings: Mapping[str, float]) -> dict[str, float]:
    """By weight; what a ceiling keeps from one goes to the others."""
    shares = dict.fromkeys(weights, 0.0)
    hungry = dict(weights)
    while hungry:
        each = amount / sum(hungry.values())
        full = [name for name, weight in hungry.items() if each * weight >= ceilings[name]]
        if not full:
            return shares | {name: each * weight for name, weight in hungry.items()}
        for name in full:
            shares[name] = max(0.0, ceilings[name])
            amount = max(0.0, amount - shares[name])
            del hungry[name]
    return shares
