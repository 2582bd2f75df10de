"""The same world in other words: other names, another kind, other units, one more gang that can never run.

No rule speaks of these, so the two runs must be each other's image. A twin is made of the tree of a
file; where something in a world does have a meaning that the twin would change (a day's default length,
the GPU's first place in packing), that world has no such twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from phalanx.frontends.sim.result import Entry, GangResult, SimResult
from phalanx.frontends.sim.run import simulate
from phalanx.model.resources import DEVICE_KIND
from phalanx.testing.judge_book import Finding
from phalanx.testing.whole_worlds import Tree, read_tree

#: How many times as long everything takes in the slower twin.
SLOWER: Final = 10
_USERS: Final = {"ada": "zoe", "bob": "amy"}
_DREAM: Final = "never-to-run"


@dataclass(frozen=True, slots=True)
class Twin:
    """Another tree, and how what is told of it reads in the words of the first."""

    tree: Tree
    nodes: Mapping[str, str]  # its names by the first's
    times: int = 1
    extra: str | None = None


def rename(tree: Tree) -> Twin | None:
    """Gangs, nodes and users whose names sort the other way round."""
    twin = deepcopy(tree)
    gangs = {gang["name"]: f"z{90 - index}" for index, gang in enumerate(twin["gangs"])}
    nodes = {node["name"]: f"y{90 - index}" for index, node in enumerate(twin["cluster"]["nodes"])}
    for gang in twin["gangs"]:
        _rename_gang(gang, gangs)
    for node in twin["cluster"]["nodes"]:
        node["name"] = nodes[node["name"]]
    for user in twin.get("users", ()):
        user["name"] = _USERS[user["name"]]
    for window in twin.get("maintenance", ()):
        window["nodes"] = [nodes[name] for name in window["nodes"]]
    for event in twin.get("events", ()):
        for verb, what in event.items():
            if isinstance(what, dict):
                event[verb] = {gangs[name]: size for name, size in what.items()}
            elif isinstance(what, str):
                event[verb] = gangs.get(what) or nodes[what]
    return Twin(twin, nodes)


def _rename_gang(gang: Tree, gangs: Mapping[str, str]) -> None:
    gang["name"] = gangs[gang["name"]]
    after = gang.get("after")
    if isinstance(after, dict):
        gang["after"] = {"any": [gangs[name] for name in after["any"]]}
    elif after is not None:
        gang["after"] = [gangs[name] for name in after]
    if "user" in gang:
        gang["user"] = _USERS[gang["user"]]
    if "together" in gang:
        gang["together"] = f"word{90 - int(gang['together'][1:])}"


def other_kind(tree: Tree) -> Twin | None:
    """Slots for GPUs or the other way round, where there is one kind and nobody asks for a part of one."""
    kinds = {kind for each in _amounts(tree) for kind in each}
    if len(kinds) != 1 or any(isinstance(amount, float) for each in _amounts(tree) for amount in each.values()):
        return None
    (kind,) = kinds
    twin = deepcopy(tree)
    for each in _amounts(twin):
        each["slot" if kind == DEVICE_KIND else DEVICE_KIND] = each.pop(kind)
    return Twin(twin, _same(tree))


def doubled(tree: Tree) -> Twin | None:
    """Twice as much of everything, of which everybody asks for twice as much."""
    if any(isinstance(amount, float) for each in _amounts(tree) for amount in each.values()):
        return None
    twin = deepcopy(tree)
    for each in _amounts(twin):
        each.update({kind: 2 * amount for kind, amount in each.items()})
    return Twin(twin, _same(tree))


def slower(tree: Tree) -> Twin | None:
    """Everything takes ten times as long: where nobody overruns, is unknown, changes its size or is hurt."""
    gangs = tree["gangs"]
    lengths = all("walltime" in gang and gang["walltime"] >= gang["duration"] for gang in gangs)
    # Lengths that a rule states in seconds: cool-downs of sizes, holds of the hurt, turns.
    fixed = any(isinstance(gang.get("members"), dict) or "snapshot" in gang for gang in gangs)
    if not lengths or fixed or any(verb in event for event in tree.get("events", ()) for verb in ("fail", "drain")):
        return None
    twin = deepcopy(tree)
    for entry in (*twin["gangs"], *twin.get("maintenance", ()), *twin.get("events", ())):
        for key in ("submit", "duration", "walltime", "deadline", "startup", "at", "for"):
            if key in entry:
                entry[key] *= SLOWER
    if "until" in twin:
        twin["until"] *= SLOWER
    return Twin(twin, _same(tree), SLOWER)


def with_a_dream(tree: Tree) -> Twin | None:
    """One more gang, the last of the file, that asks for what no node has."""
    if tree.get("queues"):
        return None  # a queue more, or a demand more, is another world
    twin = deepcopy(tree)
    first = min(gang.get("submit", 0) for gang in twin["gangs"])
    each = {next(iter(twin["cluster"]["nodes"][0]["resources"])): 100_000}
    twin["gangs"].append({"name": _DREAM, "submit": first, "duration": 1, "members": 1, "each": each})
    return Twin(twin, _same(tree), extra=_DREAM)


TWINS: Final[Mapping[str, Callable[[Tree], Twin | None]]] = {
    "names": rename,
    "kind": other_kind,
    "amounts": doubled,
    "slower": slower,
    "dream": with_a_dream,
}


def _same(tree: Tree) -> dict[str, str]:
    return {node["name"]: node["name"] for node in tree["cluster"]["nodes"]}


def _amounts(tree: Tree) -> Iterator[dict[str, int]]:
    """Every mapping from kinds to amounts."""
    for node in tree["cluster"]["nodes"]:
        yield node["resources"]
    for gang in tree["gangs"]:
        for role in gang.get("roles", [gang]):
            yield role["each"]
    for entry in (*tree.get("queues", ()), *tree.get("users", ())):
        for key in ("limit", "guarantee"):
            if key in entry:
                yield entry[key]


# ---------------------------------------------------------------------- comparing


def find_unlike(
    tree: Tree, result: SimResult, options: Mapping[str, object], names: tuple[str, ...] = tuple(TWINS)
) -> Iterator[Finding]:
    """Runs each twin that the world has, and tells where the two first differ."""
    for name in names:
        twin = TWINS[name](tree)
        if twin is None or (twin.times > 1 and result.policy == "rotate"):
            continue
        other = simulate(read_tree(twin.tree), result.policy, options)
        finding = compare(result, other, twin, f"twin-{name}")
        if finding is not None:
            yield finding


def compare(result: SimResult, other: SimResult, twin: Twin, kind: str) -> Finding | None:
    """The first gang that fares otherwise, if any does."""
    told = [gang for gang in other.gangs if gang.name != twin.extra]
    for mine, yours in zip(result.gangs, told, strict=True):
        if _image(mine, twin) != _plain(yours):
            at_us = next(
                (
                    a.at_us
                    for a, b in zip(mine.history, yours.history, strict=False)
                    if _entry(a, twin.nodes, twin.times) != _entry(b, {}, 1)
                ),
                0,
            )
            story = f"{_tell(mine)} here, {_tell(yours)} in the twin"
            return Finding(kind, mine.name, at_us, story)
    return None


def _image(gang: GangResult, twin: Twin) -> tuple[object, ...]:
    code = gang.reason[0] if gang.reason is not None else None
    return gang.state, code, [_entry(entry, twin.nodes, twin.times) for entry in gang.history]


def _plain(gang: GangResult) -> tuple[object, ...]:
    code = gang.reason[0] if gang.reason is not None else None
    return gang.state, code, [_entry(entry, {}, 1) for entry in gang.history]


def _entry(entry: Entry, nodes: Mapping[str, str], times: int) -> tuple[object, ...]:
    places = tuple(sorted((nodes.get(name, name), members) for name, members in entry.placement.items()))
    return entry.at_us * times, entry.event, entry.members, places


def _tell(gang: GangResult) -> str:
    return gang.state + "".join(f" {entry.event}@{entry.at_us / 1e6:g}:{entry.members}" for entry in gang.history)
