"""Node failures that a seed decides: every node fails and comes back on its own, memoryless.

Times between failures and times to repair are exponential. Each node has a stream of its own,
seeded by its name, so that adding nodes to a cluster changes nothing about the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from phalanx.frontends.sim.events import TimedEvent
from phalanx.model.fleet import Node


def failure_events(
    nodes: Sequence[Node], mtbf_us: int, mttr_us: int, until_us: int, seed: int
) -> tuple[TimedEvent, ...]:
    """Failures before `until_us`, each with its repair, in order of time and then of nodes.

    `mtbf_us` is the mean time from a repair (or the start) to the next failure of one node,
    `mttr_us` the mean time to repair it. The repair of the last failure may come after `until_us`:
    a node that is down for ever would be a removal.
    """
    if mtbf_us <= 0 or mttr_us <= 0:
        raise ValueError("mean times between failures and to repair must be more than 0")
    events: list[TimedEvent] = []
    for node in nodes:
        rng = Random(f"failures {seed} {node.name}")
        at_us = _next_us(rng, mtbf_us)
        while at_us < until_us:
            events.append(TimedEvent(at_us, "fail", node=node.name))
            at_us += _next_us(rng, mttr_us)
            events.append(TimedEvent(at_us, "repair", node=node.name))
            at_us += _next_us(rng, mtbf_us)
    return tuple(sorted(events, key=lambda event: event.at_us))  # stable: nodes in their order at one instant


def _next_us(rng: Random, mean_us: int) -> int:
    """At least a microsecond, so that a repair is after its failure."""
    return max(1, round(rng.expovariate(1.0 / mean_us)))
