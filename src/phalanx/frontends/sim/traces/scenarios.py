"""A scenario back into the file it could have been read from: a tree of plain values, as YAML or JSON.

Whatever is the default is left out, times are seconds, and equal nodes with running numbers become
one host list. Reading the result gives the same scenario; a test holds that for random ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.spec.sizes import sizes_between
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import DEFAULT_POLICY, Scenario, TrueRun
from phalanx.frontends.sim.traces.seconds import show_amount, show_seconds
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, Sizes, SnapshotHabit
from phalanx.model.queue import DEFAULT_QUEUE, ROOT, Queue
from phalanx.model.topology import Topology
from phalanx.model.window import Window
from phalanx.perfmodel.speedup import Amdahl, Linear, Speedup
from phalanx.policy import LENGTHS

Tree = dict[str, Any]

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]*)")
_RESTARTS: Final = Gang("", ()).max_restarts


def tree_of(scenario: Scenario) -> Tree:
    """The scenario as nested mappings and lists, ready for any encoder."""
    tree: Tree = {}
    if scenario.nodes:
        tree["cluster"] = cluster_tree(scenario.nodes, scenario.levels)
    windows = [_window(window) for window in scenario.windows]
    tree["maintenance"] = [entry for entry in windows if not {"users", "queues"} & entry.keys()]
    tree["reservations"] = [entry for entry in windows if {"users", "queues"} & entry.keys()]
    tree["queues"] = [_queue(queue) for queue in _described(scenario)]
    tree["users"] = [{"name": user.name, "limit": _amounts(user.limit)} for user in scenario.users]
    pairs = zip(scenario.gangs, scenario.true_runs, strict=True)
    tree["gangs"] = [_gang(gang, truth) for gang, truth in pairs]
    tree["events"] = [_event(event) for event in scenario.events]
    if scenario.policies != ((DEFAULT_POLICY, {}),):
        tree["policy"] = [_policy(name, options) for name, options in scenario.policies]
    if scenario.failures is not None:
        tree["failures"] = {"mtbf": _seconds(scenario.failures[0]), "mttr": _seconds(scenario.failures[1])}
    if scenario.until_us is not None:
        tree["until"] = _seconds(scenario.until_us)
    return {key: value for key, value in tree.items() if value}


def _described(scenario: Scenario) -> tuple[Queue, ...]:
    """The queues that a file must name: a plain default one at the end comes back without being named."""
    *others, last = scenario.queues
    used = any(gang.queue == DEFAULT_QUEUE for gang in scenario.gangs)
    return tuple(others) if last == Queue(DEFAULT_QUEUE) and (used or not others) else scenario.queues


def format_json(scenario: Scenario) -> str:
    """One JSON object."""
    return json.dumps(tree_of(scenario), ensure_ascii=False, indent=1) + "\n"


def format_yaml(scenario: Scenario) -> str:
    """YAML with a line for every node entry, gang and event, as people write it."""
    return "\n".join(_yaml_lines(tree_of(scenario), "")) + "\n"


def cluster_tree(nodes: Sequence[Node], levels: Sequence[str]) -> Tree:
    """The `cluster:` part."""
    tree: Tree = {"topology": list(levels)} if levels else {}
    tree["nodes"] = [_node_entry(list(alike)) for _, alike in groupby(nodes, key=_Likeness())]
    return tree


class _Likeness:
    """A key by which neighbours that can share one entry are equal: alike, same stem, numbers one apart."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] | None = None
        self._next = ""
        self._run = 0

    def __call__(self, node: Node) -> int:
        match = _NUMBERED.fullmatch(node.name)
        alike = (node.resources, node.labels, node.taints, node.islands, node.spare)
        if match is None or node.name != self._next or alike != self._last:
            self._run += 1
        self._last = alike
        self._next = f"{match[1]}{int(match[2]) + 1}" if match is not None else ""
        return self._run


def _node_entry(alike: list[Node]) -> Tree:
    first = alike[0]
    entry: Tree = {"name": first.name}
    if len(alike) > 1:
        stem, start = _NUMBERED.fullmatch(first.name).groups()  # type: ignore[union-attr]  # a run has numbers
        entry["name"] = f"{stem}[{start}-{int(start) + len(alike) - 1}]"
    entry["resources"] = _amounts(first.resources)
    islands = [list(island) for island in first.islands]
    tree = {"labels": dict(first.labels), "taints": list(first.taints), "islands": islands, "spare": first.spare}
    return entry | _said(tree)


def _gang(gang: Gang, truth: TrueRun) -> Tree:
    tree: Tree = {"name": gang.name, "submit": _seconds(gang.submit_us)}
    queue = gang.queue if gang.queue != DEFAULT_QUEUE else ""
    tree |= _said({"queue": queue, "user": gang.user, "priority": gang.priority})
    if len(gang.roles) == 1 and gang.roles[0].name == SOLE_ROLE and gang.roles[0].topology == Topology():
        tree |= _role(gang.roles[0])
        del tree["role"]
    else:
        tree["roles"] = [_named_role(role) for role in gang.roles]
    tree |= _said({"topology": _topology(gang.topology)})
    if gang.together is not None:
        tree["together"] = {"word": gang.together.word, "gangs": gang.together.gangs}
    tree |= _gang_times(gang, truth)
    habit = _habit(gang.snapshot) if gang.snapshot is not None else None
    tree |= _said({"preemptible": gang.preemptible, "hold": gang.hold, "snapshot": habit})
    if gang.after.names:
        tree["after"] = {"any": list(gang.after.names)} if gang.after.any_end else list(gang.after.names)
    if gang.max_restarts != _RESTARTS:
        tree["max_restarts"] = gang.max_restarts
    return tree


def _gang_times(gang: Gang, truth: TrueRun) -> Tree:
    times = {
        "duration": truth.duration_us,
        "walltime": gang.walltime_us,
        "kill_after": gang.kill_after_us,
        "deadline": gang.deadline_us,
        "resize_pause": gang.resize_pause_us,
        "startup": gang.startup_us,
    }
    return {key: _seconds(us) for key, us in times.items() if us} | _said({"speedup": _speedup(truth.speedup)})


def _role(role: Role) -> Tree:
    tree: Tree = {"role": role.name, "members": _sizes(role.sizes), "each": _amounts(dict(role.shape.need))}
    select = {label: list(values) for label, values in role.shape.select}
    return tree | _said({"select": select, "tolerate": list(role.shape.tolerate)})


def _named_role(role: Role) -> Tree:
    tree = _role(role)
    named: Tree = {"name": tree.pop("role"), **tree}
    return named | _said({"topology": _topology(role.topology)})


def _sizes(sizes: Sizes) -> int | Tree:
    if not sizes.elastic:
        return sizes.least
    step = sizes.allowed[1] - sizes.allowed[0]
    if sizes == sizes_between(sizes.least, sizes.most, step):
        return {"min": sizes.least, "max": sizes.most, **({"step": step} if step > 1 else {})}
    return {"sizes": list(sizes.allowed)}


def _topology(wish: Topology) -> Tree:
    tree: Tree = {key: level for key, level in (("require", wish.require), ("prefer", wish.prefer)) if level}
    if wish.segment is not None:
        tree["segment"] = {"size": wish.segment.size, "level": wish.segment.level}
    return tree


def _habit(habit: SnapshotHabit) -> Tree:
    times = {"every": habit.every_us, "stall": habit.stall_us, "restore": habit.restore_us}
    return {key: _seconds(us) for key, us in times.items() if us}


def _speedup(curve: Speedup) -> Tree:
    if isinstance(curve, Amdahl):
        return {"amdahl": curve.serial}
    return {"table": [list(point) for point in curve.points]} if not isinstance(curve, Linear) else {}


def _queue(queue: Queue) -> Tree:
    tree: Tree = {"name": queue.name}
    if queue.parent != ROOT:
        tree["parent"] = queue.parent
    if queue.weight != 1:
        tree["weight"] = queue.weight
    return tree | _said({"guarantee": _amounts(queue.guarantee), "limit": _amounts(queue.limit)})


def _policy(name: str, options: Mapping[str, object]) -> str | Tree:
    """A name, or a mapping of options; those that are lengths of time are kept in microseconds."""
    tree: Tree = {"name": name}
    for key, value in options.items():
        tree[key] = _seconds(value) if key in LENGTHS and type(value) is int else value
    return tree if options else name


def _window(window: Window) -> Tree:
    length = _seconds(window.end_us - window.start_us)
    tree: Tree = {"name": window.name, "nodes": list(window.nodes), "at": _seconds(window.start_us), "for": length}
    return tree | _said({"users": list(window.users), "queues": list(window.queues)})


def _event(event: TimedEvent) -> Tree:
    tree: Tree = {"at": _seconds(event.at_us)}
    if event.added is not None:
        tree[event.verb] = _node_entry([event.added])
    elif event.verb == "resize":
        tree[event.verb] = {event.gang: "auto" if event.members is None else event.members}
    else:
        tree[event.verb] = event.node or event.gang
    if event.by_us is not None:
        tree["by"] = _seconds(event.by_us)
    return tree


def _said(tree: Tree) -> Tree:
    """What differs from its default; everything here is empty or 0 by default."""
    return {key: value for key, value in tree.items() if value}


def _amounts(amounts: Mapping[str, int]) -> Tree:
    return {kind: _number(show_amount(units, kind)) for kind, units in amounts.items()}


def _seconds(us: int) -> float:
    return _number(show_seconds(us))


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


# ---- YAML


def _yaml_lines(tree: Tree, indent: str) -> Iterator[str]:
    """Lists of entries a line each; what is inside an entry stays on its line."""
    for key, value in tree.items():
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            yield f"{indent}{_key(key)}:"
            yield from (f"{indent}  - {_flow(item)}" for item in value)
        elif isinstance(value, dict) and not indent:
            yield f"{key}:"
            yield from _yaml_lines(value, "  ")
        else:
            yield f"{indent}{_key(key)}: {_flow(value)}"


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    # JSON's scalars are YAML's: quoted, so that a name such as 01 or yes stays a name.
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
