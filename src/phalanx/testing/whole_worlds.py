"""Whole worlds, drawn as the files that people would write, for the judge of results.

A world is the tree of its file, so that a failing one can be printed, read, cut down and kept. Every
world first draws which features it has: the rules that are hardest to judge are judged in worlds where
little else happens, so most worlds have few. Times are few and round; ties, exact fits and events in
the middle of somebody's pause are where schedulers go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.reader import raw_of
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.scenario import Scenario, parse_scenario

Tree = dict[str, Any]

#: Every policy whose results can be judged.
POLICIES: Final = ("fcfs", "easy", "conservative", "fair", "deadline", "rotate", "goodput")

#: A feature and how many worlds in a hundred have it.
FEATURES: Final = {
    "pins": 40,
    "elastic": 70,
    "pauses": 55,
    "soft": 50,
    "priorities": 35,
    "wide": 15,
    "exact": 35,
    "together": 20,
    "after": 8,
    "holds": 6,
    "deadlines": 20,
    "windows": 20,
    "tenants": 15,
    "limits": 8,
    "nodes": 12,
    "cancels": 8,
    "resizes": 8,
    "racks": 12,
    "cpu": 20,
    "roles": 8,
    "shares": 6,
    "snapshots": 25,
    "until": 30,
    "startup": 8,
    "curves": 20,
    "taints": 6,
    "users": 6,
}


@dataclass(frozen=True, slots=True)
class Mood:
    """A sort of world in which one thing happens often; what is not named does not occur."""

    features: Mapping[str, int]
    gangs: tuple[int, int]
    policies: tuple[str, ...] = POLICIES
    nodes: tuple[int, ...] = (1, 1, 2, 4)  # amounts of one


MOODS: Final = {
    "anything": Mood(FEATURES, (3, 14)),
    # Somebody waits for those who ran before it, and those who came later sit on its places.
    "heads": Mood(
        {"pins": 100, "pinned": 40, "elastic": 100, "exact": 100, "soft": 20, "in-line": 75, "wide": 15},
        (4, 6),
        nodes=(1, 1, 2),
    ),
    # A crowd without walltimes: promises are kept, guests come and go.
    "guests": Mood(
        {"soft": 100, "elastic": 60, "priorities": 70, "pins": 30, "until": 25, "wide": 40, "spread": 50},
        (7, 18),
        ("conservative", "conservative", "conservative", "easy", "goodput", "fair"),
    ),
    "turns": Mood({"soft": 100, "snapshots": 100, "until": 10, "priorities": 30, "wide": 50}, (4, 12), ("rotate",)),
    # Sizes change all the time, and whoever comes next comes in the middle of a pause.
    "pauses": Mood(
        {"elastic": 100, "pauses": 100, "bursts": 80, "together": 40, "windows": 20, "cpu": 30, "until": 10},
        (3, 7),
        ("fair", "deadline", "goodput"),
        (2, 4),
    ),
    "dates": Mood({"deadlines": 100, "elastic": 40, "soft": 40}, (2, 5), ("deadline", "goodput")),
}


def read_tree(tree: Tree) -> Scenario:
    """The scenario that a file with this tree would be."""
    return parse_scenario(Spot(raw_of(tree), "drawn"))


def draw_run(seed: int) -> tuple[Tree, str, dict[str, object]]:
    """The world of a seed, the policy that it is played under and its options."""
    rng = Random(f"world {seed}")
    mood = rng.choice([*MOODS.values()])
    tree, policy = draw_tree(rng, mood), rng.choice(mood.policies)
    # Turns are short, or nobody would have two.
    return tree, policy, {"quantum": rng.choice([60, 120, 300]) * 1_000_000} if policy == "rotate" else {}


def draw_tree(rng: Random, mood: Mood) -> Tree:
    """A world; what it says is what a file could say."""
    has = {name for name, odds in mood.features.items() if rng.randrange(100) < odds}
    kind = rng.choice(["gpu", "gpu", "slot"])
    if kind != "gpu":
        has -= {"cpu", "shares"}
    tree: Tree = {"cluster": {"nodes": _draw_nodes(rng, has, kind, mood.nodes)}}
    if "racks" in has:
        tree["cluster"]["topology"] = ["rack"]
    count = rng.randint(*mood.gangs)
    tree["gangs"] = [_draw_gang(rng, has, kind, tree, f"g{index}") for index in range(count)]
    if "in-line" in has:
        _line_up(rng, kind, tree)
    _tie(rng, has, tree["gangs"])
    if has & {"tenants", "limits"}:
        tree["queues"] = _draw_queues(rng, has, kind)
        for gang in tree["gangs"]:
            gang["queue"] = rng.choice(["left", "right", "inner"]) if "together" not in gang else "left"
    if "users" in has:
        tree["users"] = [{"name": "ada", "limit": {kind: rng.choice([2, 4])}}]
    if "windows" in has:
        tree["maintenance"] = [_draw_window(rng, tree) for _ in range(rng.choice([1, 1, 2]))]
    tree["events"] = [*_draw_events(rng, has, tree)]
    tree["until"] = rng.choice([50, 150, 300, 1000]) if "until" in has else None
    return {key: value for key, value in tree.items() if value}


# ---------------------------------------------------------------------- the cluster


def _draw_nodes(rng: Random, has: set[str], kind: str, amounts: tuple[int, ...]) -> list[Tree]:
    nodes: list[Tree] = []
    for group in ("a", "b", "c")[: rng.randint(1, 3)]:
        amount = rng.choice(amounts)
        for index in range(rng.randint(1, 3)):
            node: Tree = {"name": f"{group}{index}", "resources": {kind: amount}, "labels": {}}
            if "cpu" in has:
                node["resources"]["cpu"] = rng.choice([2, 4])
            if "pins" in has:
                node["labels"]["pin"] = group
            if "racks" in has:
                node["labels"]["rack"] = rng.choice(["r0", "r1"])
            if "taints" in has and rng.randrange(4) == 0:
                node["taints"] = ["spot"]
            nodes.append({key: value for key, value in node.items() if value})
    return nodes


def _draw_queues(rng: Random, has: set[str], kind: str) -> list[Tree]:
    queues: list[Tree] = [{"name": "left"}, {"name": "right"}, {"name": "inner", "parent": "right"}]
    for queue in queues[:2]:
        if "tenants" in has:
            queue["weight"] = rng.choice([1, 2])
            if rng.randrange(2):
                queue["guarantee"] = {kind: rng.choice([1, 2])}
        if "limits" in has and rng.randrange(2):
            queue["limit"] = {kind: rng.choice([2, 3, 4])}
    return queues


def _draw_window(rng: Random, tree: Tree) -> Tree:
    names = [node["name"] for node in tree["cluster"]["nodes"]]
    chosen = rng.sample(names, rng.randint(1, max(1, len(names) // 2)))
    return {"nodes": chosen, "at": rng.choice([100, 500, 1000]), "for": rng.choice([50, 500])}


# ---------------------------------------------------------------------- gangs


def _draw_gang(rng: Random, has: set[str], kind: str, tree: Tree, name: str) -> Tree:
    nodes = tree["cluster"]["nodes"]
    gang: Tree = {"name": name}
    submit = _draw_submit(rng, has, int(name[1:]))
    if submit:
        gang["submit"] = submit
    gang["duration"] = rng.choice([1, 10, 50, 100, 250, 1000, 1000, 5000, rng.randint(1, 1000)])
    total = sum(node["resources"][kind] for node in nodes)
    if "roles" in has and rng.randrange(4) == 0:
        each = [{kind: 1}, {"cpu": 1} if "cpu" in has else {kind: 1}]
        gang["roles"] = [{"name": f"r{i}", "members": rng.randint(1, 2), "each": need} for i, need in enumerate(each)]
    else:
        gang["each"] = _draw_need(rng, has, kind, max(node["resources"][kind] for node in nodes))
        gang["members"] = _draw_members(rng, has, max(1, total // max(1, int(gang["each"].get(kind, 1)))))
    if isinstance(gang.get("members"), dict):
        if "pauses" in has:
            gang["resize_pause"] = rng.choice([5, 10, 20])
        if "curves" in has:
            gang["speedup"] = rng.choice([{"amdahl": 0.05}, {"amdahl": 0.5}])
    _draw_walltime(rng, has, gang)
    return gang | _draw_wishes(rng, has)


def _line_up(rng: Random, kind: str, tree: Tree) -> None:
    """Somebody runs, somebody waits for most of that pool, and somebody who can give back comes third."""
    first, head, wide, *_ = tree["gangs"]
    pool = sum(node["resources"][kind] for node in tree["cluster"]["nodes"] if node["labels"]["pin"] == "a")
    for gang, members in ((first, rng.randint(1, max(1, pool // 2))), (head, rng.randint(max(1, pool - 1), pool))):
        gang |= {"members": members, "each": {kind: 1}, "select": {"pin": "a"}, "walltime": gang["duration"]}
    least = rng.randint(1, 3)
    wide |= {"members": {"min": least, "max": least + rng.randint(1, 4)}, "each": {kind: 1}}
    for key in ("walltime", "select"):
        wide.pop(key, None)


def _draw_submit(rng: Random, has: set[str], index: int) -> int:
    if "in-line" in has:
        return 10 * index + rng.choice([0, 0, 5, 100])
    if "bursts" in has:
        return rng.choice([0, 0, 100, 101, 103, 105, 110])
    if "spread" in has:
        return rng.choice([0, 0, 10, rng.randint(0, 3000), rng.randint(0, 3000)])
    return rng.choice([0, 0, 10, 20, 100, 101, rng.randint(0, 200)])


def _draw_walltime(rng: Random, has: set[str], gang: Tree) -> None:
    if "exact" in has:
        # Elastic gangs tell how far they are; most of them say nothing else.
        if rng.randrange(4) > 2 * isinstance(gang.get("members"), dict):
            gang["walltime"] = gang["duration"]
    elif rng.randrange(2):
        gang["walltime"] = max(1, rng.choice([1, 1, 2]) * gang["duration"] // rng.choice([1, 1, 2]))


def _draw_need(rng: Random, has: set[str], kind: str, most: int) -> Tree:
    if "shares" in has and rng.randrange(3) == 0:
        return {kind: rng.choice([0.25, 0.5, 0.7])}
    if "cpu" in has and rng.randrange(4) == 0:
        return {"cpu": 1}
    return {kind: rng.choice([1, 1, 1, min(2, most)])}


def _draw_members(rng: Random, has: set[str], total: int) -> int | Tree:
    least = rng.randint(1, max(1, total if "wide" in has else (total + 1) // 2))
    if "elastic" in has and rng.randrange(5) < 2:
        return {"min": least, "max": least + rng.randint(1, 3)}
    return least


def _draw_wishes(rng: Random, has: set[str]) -> Tree:
    wishes: Tree = {}
    if "pins" in has and rng.randrange(5) < (4 if "pinned" in has else 2):
        wishes["select"] = {"pin": rng.choice(["a", "b", ["a", "b"], ["b", "c"]])}
    if "soft" in has and rng.randrange(2):
        wishes["preemptible"] = True
    if "snapshots" in has and rng.randrange(2):
        wishes["snapshot"] = {"every": rng.choice([10, 30, 60])} | ({"restore": 2} if rng.randrange(2) else {})
    if "priorities" in has:
        wishes["priority"] = rng.choice([0, 0, 1, 5])
    if "deadlines" in has and rng.randrange(2):
        wishes["deadline"] = rng.choice([1, 50, 200, 1000, 5000])
    return wishes | _draw_rarer_wishes(rng, has)


def _draw_rarer_wishes(rng: Random, has: set[str]) -> Tree:
    wishes: Tree = {}
    if "racks" in has and rng.randrange(3) == 0:
        wishes["topology"] = {rng.choice(["require", "prefer"]): "rack"}
    if "taints" in has and rng.randrange(2):
        wishes["tolerate"] = ["spot"]
    if "startup" in has and rng.randrange(2):
        wishes["startup"] = rng.choice([1, 5])
    if "users" in has:
        wishes["user"] = rng.choice(["ada", "bob"])
    if "holds" in has and rng.randrange(5) == 0:
        wishes["hold"] = True
    return wishes


def _tie(rng: Random, has: set[str], gangs: list[Tree]) -> None:
    """Pairs of neighbours with one word, and dependencies on somebody before the pair."""
    for index in range(0, len(gangs) - 1, 2):
        if "together" in has and rng.randrange(3) == 0:
            for gang in gangs[index : index + 2]:
                gang["together"] = f"t{index}"
                gang["submit"] = gangs[index].get("submit", 0)
        elif "after" in has and index and rng.randrange(3) == 0:
            name = gangs[rng.randrange(index)]["name"]
            gangs[index]["after"] = rng.choice([[name], {"any": [name]}])


def _draw_events(rng: Random, has: set[str], tree: Tree) -> Iterator[Tree]:
    names = [node["name"] for node in tree["cluster"]["nodes"]]
    if "nodes" in has:
        for _ in range(rng.randint(1, 2)):
            verb, undo = rng.choice([("fail", "repair"), ("cordon", "uncordon"), ("drain", "uncordon")])
            name, at = rng.choice(names), rng.choice([10, 50, 100, 300])
            yield {"at": at, verb: name}
            yield {"at": at + rng.choice([5, 50, 700]), undo: name}
    for gang in tree["gangs"]:
        submit = gang.get("submit", 0)
        if gang.get("hold"):
            yield {"at": submit + rng.choice([1, 50]), "release": gang["name"]}
        if "cancels" in has and rng.randrange(5) == 0:
            yield {"at": submit + rng.choice([1, 5, 50, 100]), "cancel": gang["name"]}
        members = gang.get("members")
        if "resizes" in has and isinstance(members, dict) and rng.randrange(2):
            yield {"at": submit + rng.choice([1, 50, 100]), "resize": {gang["name"]: rng.choice([*members.values()])}}


# ---------------------------------------------------------------------- smaller worlds


def shrink(tree: Tree, still: Callable[[Scenario], bool]) -> Tree:
    """The world without whatever is not needed for `still` to hold. For people who will read it."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _cuts(tree):
            try:
                held = still(read_tree(candidate))
            except (BadInput, KeyError):
                continue
            if held:
                tree, smaller = candidate, True
                break
    return tree


def _cuts(tree: Tree) -> Iterator[Tree]:
    """The same world with one thing less."""
    for key in ("events", "maintenance", "queues", "users", "until"):
        if key in tree:
            yield {name: value for name, value in tree.items() if name != key}
    for path in (("gangs",), ("events",), ("maintenance",), ("cluster", "nodes")):
        entries = _at(tree, path)
        for index in range(len(entries) - 1, -1, -1):
            cut = deepcopy(tree)
            del _at(cut, path)[index]
            yield cut
    for path in (("gangs",), ("cluster", "nodes"), ("queues",)):
        for index, entry in enumerate(_at(tree, path)):
            for key in entry:
                cut = deepcopy(tree)
                del _at(cut, path)[index][key]
                yield cut
    yield from _rounded(tree)


def _rounded(tree: Tree) -> Iterator[Tree]:
    """The same world with one time that is easier to read."""
    for index, gang in enumerate(tree["gangs"]):
        for key in (key for key in ("duration", "submit", "walltime") if key in gang):
            for simple in (1, 10, 100, 1000):
                if simple < gang[key] and gang[key] not in (1, 10, 100, 1000):
                    cut = deepcopy(tree)
                    cut["gangs"][index][key] = simple
                    yield cut


def _at(tree: Tree, path: tuple[str, ...]) -> list[Any]:
    found: Any = tree
    for key in path:
        found = found.get(key, {})
    return found if isinstance(found, list) else []
