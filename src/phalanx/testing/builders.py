"""Nodes and gangs in one line each.

    make_nodes("2 gpu=4 cpu=16 rack:r0", "1 gpu=8 rack:r1 !spot")
    make_gang("A", "4 gpu=1 ~rack", walltime=60)
    make_gang("B", "2 gpu=2 >node", "1 cpu=4 !spot", topology=">rack", after=("A",))

A line is a count and then words: `kind=amount`, `label:value` (of a gang: any of `a|b`), `!taint`
(of a gang: tolerated). Of a gang also `>level` (require), `~level` (prefer), `/size:level` (segment).
The count of a gang may be a range `2-8` or a list `2|4|8`. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from phalanx.control.state import State
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import After, Gang, Role, Shape, Sizes, Together
from phalanx.model.plan import Bind, Plan, Seats
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.resources import DEVICE_KIND, MILLI, units_per_whole
from phalanx.model.rules import Rule
from phalanx.model.topology import Segment, Topology
from phalanx.model.window import Window

SECOND_US = 1_000_000


def make_nodes(*lines: str, islands: tuple[tuple[int, ...], ...] = ()) -> tuple[Node, ...]:
    """Nodes n0, n1, … from lines such as `2 gpu=4 rack:r0 !spot`."""
    nodes: list[Node] = []
    for line in lines:
        count, *words = line.split()
        amounts = dict(_amount(word) for word in words if "=" in word)
        labels = dict(word.split(":") for word in words if ":" in word)
        taints = tuple(word[1:] for word in words if word.startswith("!"))
        nodes += [Node(f"n{len(nodes) + i}", amounts, labels, taints, islands) for i in range(int(count))]
    return tuple(nodes)


def _amount(word: str) -> tuple[str, int]:
    kind, _, amount = word.partition("=")
    units = Fraction(amount) * units_per_whole(kind)
    if units.denominator != 1:
        raise ValueError(f"{word} is no whole number of engine units")
    return kind, int(units)


def make_role(line: str, name: str = "member") -> Role:
    """One role from a line such as `4 gpu=1 ~rack`."""
    count, *words = line.split()
    plain = [word for word in words if word[0] not in ">~/!"]
    select = {word.partition(":")[0]: tuple(word.partition(":")[2].split("|")) for word in plain if ":" in word}
    shape = Shape(
        need=tuple(sorted(_amount(word) for word in plain if "=" in word)),
        select=tuple(sorted(select.items())),
        tolerate=tuple(sorted(word[1:] for word in words if word.startswith("!"))),
    )
    return Role(name, Sizes(_sizes(count)), shape, _topology(words))


def _topology(words: Sequence[str]) -> Topology:
    marked = {word[0]: word[1:] for word in words if word[0] in ">~/"}
    size, _, level = marked.get("/", "").partition(":")
    return Topology(marked.get(">"), marked.get("~"), Segment(int(size), level) if size else None)


def _sizes(text: str) -> tuple[int, ...]:
    if "-" in text:
        least, _, most = text.partition("-")
        return tuple(range(int(least), int(most) + 1))
    return tuple(int(size) for size in text.split("|"))


def make_gang(
    name: str,
    *lines: str | Role,
    topology: str = "",
    submit: float = 0,
    walltime: float | None = None,
    together: tuple[str, int] | None = None,
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    **rest: object,
) -> Gang:
    """A gang of one role per line; `topology` holds for all of them; `rest` goes to `Gang` as it is."""
    roles = tuple(make_role(line, f"r{i}") if isinstance(line, str) else line for i, line in enumerate(lines))
    return Gang(
        name=name,
        roles=roles,
        submit_us=round(submit * SECOND_US),
        topology=_topology(topology.split()),
        together=None if together is None else Together(*together),
        walltime_us=None if walltime is None else round(walltime * SECOND_US),
        after=After(tuple(after_any), any_end=True) if after_any else After(tuple(after)),
        **rest,  # type: ignore[arg-type]
    )


def asking(gang: Gang, *rules: Rule, bears: Sequence[str] = ()) -> Gang:
    """The same gang, each member of which bears words and asks about others."""
    roles = (replace(role, shape=replace(role.shape, bears=tuple(bears), rules=rules)) for role in gang.roles)
    return replace(gang, roles=tuple(roles))


def make_state(
    *lines: str,
    levels: Sequence[str] = (),
    gangs: Sequence[Gang] = (),
    queues: Sequence[Queue] = (),
    users: Sequence[UserLimit] = (),
    windows: Sequence[Window] = (),
) -> State:
    """A cluster of such nodes with these gangs waiting."""
    state = State(Fleet(make_nodes(*lines), levels), queues, users, windows)
    for gang in gangs:
        state.submit(gang)
    return state


def seat(
    state: State, number: int, *places: Mapping[int, int], devices: Sequence[Mapping[int, Sequence[int]]] = ()
) -> None:
    """Start a waiting gang by hand: per role, members by node, and thousandths by device where they matter.

    Devices not given are the first that are free; shares must be given.
    """
    gang = state.gangs[number]
    free = state.nodes.device_free.copy()
    seats = []
    for role, counts in enumerate(places):
        table = np.zeros((len(counts), free.shape[1]), dtype=np.int16)
        for row, (node, count) in enumerate(counts.items()):
            if role < len(devices):
                table[row] = devices[role][node]
            else:
                whole = count * gang.roles[role].shape.amount(DEVICE_KIND) // MILLI
                table[row, np.flatnonzero(free[node] == MILLI)[:whole]] = MILLI
            free[node] -= table[row]
        nodes, members = np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64)
        seats.append(Seats(role, nodes, members, table))
    length = gang.walltime_us if gang.walltime_us is not None else state.default_walltime_us
    state.apply(Plan(decisions=(Bind(number, tuple(seats), length),)))


def occupy(state: State, node: int, devices: Sequence[int] = (), walltime: float | None = None, **amounts: int) -> None:
    """Take thousandths of single devices of a node, and amounts of other kinds, by gangs of one member each."""
    for device, milli in enumerate(devices):
        if milli:
            _occupy(state, node, {DEVICE_KIND: milli}, {device: milli}, walltime)
    for kind, amount in amounts.items():
        if amount:
            _occupy(state, node, {kind: amount * units_per_whole(kind)}, {}, walltime)


def _occupy(state: State, node: int, need: Mapping[str, int], used: Mapping[int, int], walltime: float | None) -> None:
    role = Role("filler", Sizes((1,)), Shape(tuple(sorted(need.items())), tolerate=state.fleet.nodes[node].taints))
    number = state.submit(
        make_gang(f"filler-{len(state.gangs)}", role, walltime=walltime, submit=state.now_us / SECOND_US)
    )
    table = [used.get(device, 0) for device in range(state.nodes.device_free.shape[1])]
    seat(state, number, {node: 1}, devices=({node: table},))
