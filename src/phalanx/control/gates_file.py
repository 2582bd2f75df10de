"""Gates and beliefs of a front end in a dumped state: what a look ahead goes by beside the state itself.

Both are absent from dumps of a simulation, which has neither. What is written of a gang stands in its entry; lines and
ceilings, which are about several, stand at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from phalanx.control.belief import AS_STATED, RunTimes
from phalanx.control.gates import GATE_BEGIN, OPENED_BY_OTHERS, WORDS, GateLine, Gates
from phalanx.control.spec.spot import Fields, Spot

Tree = dict[str, Any]

TOP_KEYS: Final = ("lines", "running_max", "believed_default_us")
GANG_KEYS: Final = ("gates", "begin_us", "believed_us")
_MOST: Final = 1 << 61  # as in `restore`
_JOBS_MOST: Final = 1 << 30


def dump_gates(gates: Gates | None, runs: RunTimes) -> Tree:
    """What is about several gangs."""
    tree: Tree = {}
    # Nothing where there is nothing: the dump of a simulation reads as it did before there were gates.
    if gates is not None and gates.lines:
        tree["lines"] = [{"gate": line.gate, "most": line.most, "gangs": line.names} for line in gates.lines]
    if gates is not None and (gates.running_max is not None or gates.running_max_of):
        each = {} if gates.running_max is None else {"each": gates.running_max}
        tree["running_max"] = each | ({"users": gates.running_max_of} if gates.running_max_of else {})
    if runs.default_us is not None:
        tree["believed_default_us"] = runs.default_us
    return tree


def dump_gang_gates(gates: Gates | None, runs: RunTimes, number: int, name: str) -> Tree:
    """What is about one."""
    tree: Tree = {}
    if gates is not None and name in gates.shut:
        # In one order, so that two dumps of one state are equal.
        tree["gates"] = sorted(gates.shut[name])
    if gates is not None and name in gates.begins_us:
        tree["begin_us"] = gates.begins_us[name]
    believed_us = runs.left.get(number, runs.whole.get(number))
    return tree if believed_us is None else tree | {"believed_us": believed_us}


def read_gates(top: Fields, gangs: Mapping[str, Fields], check: Callable[[str, Fields], None]) -> Gates:
    """The gates of a file; `check` refuses a gang that has some and does not wait for them."""
    gates = Gates()
    for name, fields in gangs.items():
        words, begin = fields.get("gates"), fields.get("begin_us")
        if words is not None:
            gates.shut[name] = {word.one_of(WORDS, "gate") for word in words.items()}
            check(name, fields)
        if begin is not None:
            # A time without its gate would never be looked at, and a gate without its time never opens.
            if GATE_BEGIN not in gates.shut.get(name, ()):
                begin.refuse(f"is said of a gang whose gates lack '{GATE_BEGIN}'")
            gates.begins_us[name] = begin.integer(0, _MOST)
    lines = top.get("lines")
    gates.lines = [_read_line(item, gangs) for item in (lines.items() if lines else ())]
    ceilings = top.get("running_max")
    if ceilings is not None:
        fields = ceilings.fields(("each", "users"))
        each, users = fields.get("each"), fields.get("users")
        gates.running_max = None if each is None else each.integer(0, _JOBS_MOST)
        gates.running_max_of = {user: inner.integer(0, _JOBS_MOST) for user, inner in (users.pairs() if users else ())}
    return gates


def _read_line(item: Spot, gangs: Mapping[str, Fields]) -> GateLine:
    fields = item.fields(("gate", "most", "gangs"))
    gate = fields.need("gate", '"gate": "array"').one_of(sorted(OPENED_BY_OTHERS), "gate that others hold shut")
    most = fields.need("most", '"most": 2').integer(1, _JOBS_MOST)
    return GateLine(gate, most, [each.one_of(gangs, "gang") for each in fields.need("gangs", '"gangs": ["1"]').items()])


def read_beliefs(top: Fields, gangs: Mapping[str, Fields], is_seated: Callable[[str], bool]) -> RunTimes:
    """How long gangs are believed to run, by number: from now of those that do, else in all."""
    whole: dict[int, int] = {}
    left: dict[int, int] = {}
    for number, (name, fields) in enumerate(gangs.items()):
        spot = fields.get("believed_us")
        if spot is not None:
            # One key for both: whether it runs is said by its phase, and two could contradict each other.
            (left if is_seated(name) else whole)[number] = spot.integer(1, _MOST)
    default = top.get("believed_default_us")
    if not whole and not left and default is None:
        return AS_STATED
    return RunTimes(whole, left, None if default is None else default.integer(1, _MOST))
