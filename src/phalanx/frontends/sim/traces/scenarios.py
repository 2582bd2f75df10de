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

from phalanx.control.spec.writing import amounts_tree, gang_tree, node_tree, policy_tree, queue_tree, seconds
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import DEFAULT_POLICY, Scenario, TrueRun
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.model.window import Window
from phalanx.perfmodel.speedup import Amdahl, Linear, Speedup

Tree = dict[str, Any]

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]*)")
#: Times in the order in which a gang is written, and what comes after them.
_TIMES: Final = ("duration", "walltime", "kill_after", "deadline", "resize_pause", "startup", "speedup")
_AFTER_TIMES: Final = ("preemptible", "hold", "snapshot", "after", "max_restarts")


def tree_of(scenario: Scenario) -> Tree:
    """The scenario as nested mappings and lists, ready for any encoder."""
    tree: Tree = {}
    if scenario.nodes:
        tree["cluster"] = cluster_tree(scenario.nodes, scenario.levels)
    windows = [_window(window) for window in scenario.windows]
    tree["maintenance"] = [entry for entry in windows if not {"users", "queues"} & entry.keys()]
    tree["reservations"] = [entry for entry in windows if {"users", "queues"} & entry.keys()]
    tree["queues"] = [queue_tree(queue) for queue in _described(scenario)]
    tree["users"] = [{"name": user.name, "limit": amounts_tree(user.limit)} for user in scenario.users]
    pairs = zip(scenario.gangs, scenario.true_runs, strict=True)
    tree["gangs"] = [_gang(gang, truth) for gang, truth in pairs]
    tree["events"] = [_event(event) for event in scenario.events]
    if scenario.policies != ((DEFAULT_POLICY, {}),):
        tree["policy"] = [_policy(name, options) for name, options in scenario.policies]
    if scenario.failures is not None:
        tree["failures"] = {"mtbf": seconds(scenario.failures[0]), "mttr": seconds(scenario.failures[1])}
    if scenario.until_us is not None:
        tree["until"] = seconds(scenario.until_us)
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
    entry = node_tree(first)
    if len(alike) > 1:
        stem, start = _NUMBERED.fullmatch(first.name).groups()  # type: ignore[union-attr]  # a run has numbers
        entry["name"] = f"{stem}[{start}-{int(start) + len(alike) - 1}]"
    return entry


def _gang(gang: Gang, truth: TrueRun) -> Tree:
    """An entry of `gangs:` with what only a scenario knows, at the place where people write it."""
    told = {"duration": seconds(truth.duration_us) if truth.duration_us else None, "speedup": _speedup(truth.speedup)}
    tree = gang_tree(gang) | _said(told)
    late = [key for key in _AFTER_TIMES if key in tree]
    first = [key for key in tree if key not in (*_TIMES, *late)]
    return {key: tree[key] for key in (*first, *_TIMES, *late) if key in tree}


def _speedup(curve: Speedup) -> Tree:
    if isinstance(curve, Amdahl):
        return {"amdahl": curve.serial}
    return {"table": [list(point) for point in curve.points]} if not isinstance(curve, Linear) else {}


def _policy(name: str, options: Mapping[str, object]) -> str | Tree:
    """A name, or a mapping of options; those that are lengths of time are kept in microseconds."""
    return policy_tree(name, options) if options else name


def _window(window: Window) -> Tree:
    length = seconds(window.end_us - window.start_us)
    tree: Tree = {"name": window.name, "nodes": list(window.nodes), "at": seconds(window.start_us), "for": length}
    return tree | _said({"users": list(window.users), "queues": list(window.queues)})


def _event(event: TimedEvent) -> Tree:
    tree: Tree = {"at": seconds(event.at_us)}
    if event.added is not None:
        tree[event.verb] = _node_entry([event.added])
    elif event.verb == "resize":
        tree[event.verb] = {event.gang: "auto" if event.members is None else event.members}
    else:
        tree[event.verb] = event.node or event.gang
    if event.by_us is not None:
        tree["by"] = seconds(event.by_us)
    return tree


def _said(tree: Tree) -> Tree:
    """What differs from its default; everything here is empty or 0 by default."""
    return {key: value for key, value in tree.items() if value}


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
