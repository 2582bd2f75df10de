"""Gangs, nodes, queues and policies back into the mappings that they could have been read from.

The other direction of `gangs`, `cluster` and `queues`: whatever is the default is left out, times are seconds,
amounts are what people write. Reading the result gives the same value; tests hold that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.spec.quantity import SECOND_US
from phalanx.control.spec.rule_keys import rules_tree
from phalanx.control.spec.sizes import sizes_between
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, Sizes
from phalanx.model.queue import DEFAULT_QUEUE, ROOT, Queue
from phalanx.model.resources import units_per_whole
from phalanx.model.topology import Topology
from phalanx.policy import LENGTHS

Tree = dict[str, Any]

_RESTARTS: Final = Gang("", ()).max_restarts


def seconds(us: int) -> int | float:
    """Microseconds as seconds, exactly: reading them gives the same microseconds."""
    # A float with six decimals is exact up to 2^53 µs, which is 285 years; the longest time that can be written is 100.
    return us / SECOND_US if us % SECOND_US else us // SECOND_US


def amounts_tree(amounts: Mapping[str, int]) -> Tree:
    """Engine units as people write them."""
    return {kind: _whole(units, units_per_whole(kind)) for kind, units in amounts.items()}


def gang_tree(gang: Gang) -> Tree:
    """An entry of `gangs:`."""
    tree: Tree = {"name": gang.name, "submit": seconds(gang.submit_us)}
    queue = gang.queue if gang.queue != DEFAULT_QUEUE else ""
    tree |= _said(queue=queue, user=gang.user, priority=gang.priority)
    # Only what the short form can say: a sole role's own topology would come back as the gang's.
    if len(gang.roles) == 1 and gang.roles[0].name == SOLE_ROLE and gang.roles[0].topology == Topology():
        tree |= _shape_tree(gang.roles[0])
    else:
        tree["roles"] = [
            {"name": role.name, **_shape_tree(role), **_said(topology=_topology_tree(role.topology))}
            for role in gang.roles
        ]
    tree |= _said(topology=_topology_tree(gang.topology))
    if gang.together is not None:
        # With the count: a bare word means all of the file, and a dump may have only some of them left.
        tree["together"] = {"word": gang.together.word, "gangs": gang.together.gangs}
    times = {
        "walltime": gang.walltime_us,
        "kill_after": gang.kill_after_us,
        "deadline": gang.deadline_us,
        "resize_pause": gang.resize_pause_us,
        "startup": gang.startup_us,
    }
    # None and 0 alike: of those that may be 0 it is the default, of the others 0 is refused.
    tree |= {key: seconds(us) for key, us in times.items() if us}
    tree |= _said(preemptible=gang.preemptible, hold=gang.hold)
    if gang.snapshot is not None:
        habit = {"every": gang.snapshot.every_us, "stall": gang.snapshot.stall_us, "restore": gang.snapshot.restore_us}
        # `every` is never 0, so that the key that the reader needs is always there.
        tree["snapshot"] = {key: seconds(us) for key, us in habit.items() if us}
    if gang.after.names:
        tree["after"] = {"any": list(gang.after.names)} if gang.after.any_end else list(gang.after.names)
    if gang.max_restarts != _RESTARTS:
        tree["max_restarts"] = gang.max_restarts
    return tree


def node_tree(node: Node) -> Tree:
    """An entry of `nodes:`."""
    islands = [list(island) for island in node.islands]
    said = _said(labels=dict(node.labels), taints=list(node.taints), islands=islands, spare=node.spare)
    return {"name": node.name, "resources": amounts_tree(node.resources), **said}


def queue_tree(queue: Queue) -> Tree:
    """An entry of `queues:`."""
    tree: Tree = {"name": queue.name}
    if queue.parent != ROOT:
        tree["parent"] = queue.parent
    # By hand: its default is 1, which `_said` would write.
    if queue.weight != 1:
        tree["weight"] = queue.weight
    return tree | _said(guarantee=amounts_tree(queue.guarantee), limit=amounts_tree(queue.limit))


def policy_tree(name: str, options: Mapping[str, object]) -> Tree:
    """`policy:` as a mapping of options with the name among them."""
    # `type` and not isinstance: `rotate: true` is an option too, and True an int.
    return {"name": name} | {
        key: seconds(value) if key in LENGTHS and type(value) is int else value for key, value in options.items()
    }


def _shape_tree(role: Role) -> Tree:
    select = {label: list(values) for label, values in role.shape.select}
    tree: Tree = {"members": _sizes_tree(role.sizes), "each": amounts_tree(dict(role.shape.need))}
    return tree | _said(select=select, tolerate=list(role.shape.tolerate)) | rules_tree(role.shape)


def _sizes_tree(sizes: Sizes) -> int | Tree:
    if not sizes.elastic:
        return sizes.least
    step = sizes.allowed[1] - sizes.allowed[0]
    # Tried out rather than worked out: whatever the reader would make of the range
    # is compared with the sizes themselves.
    if sizes == sizes_between(sizes.least, sizes.most, step):
        return {"min": sizes.least, "max": sizes.most, **({"step": step} if step > 1 else {})}
    return {"sizes": list(sizes.allowed)}


def _topology_tree(wish: Topology) -> Tree:
    tree = _said(require=wish.require, prefer=wish.prefer)
    if wish.segment is not None:
        tree["segment"] = {"size": wish.segment.size, "level": wish.segment.level}
    return tree


def _said(**keys: object) -> Tree:
    """What differs from its default; everything here is empty, 0 or false by default."""
    return {key: value for key, value in keys.items() if value}


def _whole(units: int, scale: int) -> int | float:
    return units / scale if units % scale else units // scale
