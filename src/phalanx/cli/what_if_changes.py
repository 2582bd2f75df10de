"""The changes of `phalanx what-if`, from what was typed to values; each is checked against the state."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.control.forward import Arrival
from phalanx.control.spec.cluster import parse_nodes
from phalanx.control.spec.errors import BadInput, BadText, show, suggest
from phalanx.control.spec.gangs import Known, parse_gang
from phalanx.control.spec.hostlist import expand_hosts
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.speedup import parse_speedup
from phalanx.control.spec.spot import Fields, Spot
from phalanx.control.spec.ties import complete_groups
from phalanx.control.state import State
from phalanx.control.what_if import Changes
from phalanx.frontends.sim.run import curve_of
from phalanx.frontends.sim.scenario import TrueRun, read_cluster, read_text
from phalanx.model.fleet import Node, list_labels
from phalanx.model.resources import DEVICE_KIND, units_per_whole

if TYPE_CHECKING:
    from phalanx.cli.what_if_asked import AskedChange

_GRID = re.compile(r"\s*[0-9]+\s*[x×]\s*[0-9]+\s*")


def find_changes(state: State, asked: AskedChange, notes: list[str]) -> Changes:
    """The change that was asked for; what it silently implies is told in the notes."""
    return Changes(
        add_nodes=() if asked.add is None else _parse_added(state, asked.add, notes),
        remove_nodes=() if asked.remove is None else _parse_removed(state, asked.remove),
        cancel=tuple(_find_gang(state, name, asked.typed.get(name, name)) for name in asked.cancel),
        add_gangs=(*_read_file(state, asked), *_read_submits(state, asked)),
    )


def _parse_added(state: State, text: str, notes: list[str]) -> tuple[Node, ...]:
    """Nodes of a file, or as many as NxM says, like those of the cluster that have as many devices."""
    if not _GRID.fullmatch(text):
        return _read_nodes(state, text)
    fleet = state.fleet
    kind = DEVICE_KIND if fleet.device_column >= 0 or not fleet.kinds else fleet.kinds[0]
    try:
        made = read_cluster(text, kind)
    except BadInput as bad:
        raise BadInput(str(bad).replace("--cluster", "--add-nodes")) from None
    each = made[0].resources[kind]
    like = next((node for node in fleet.nodes if node.resources.get(kind) == each and not node.spare), None)
    names = [name for name in (f"new{index}" for index in range(len(made) + len(fleet))) if name not in fleet.names]
    if like is None:
        if len(fleet.kinds) > 1:
            count = each // units_per_whole(kind)
            notes.append(f"the new nodes have {count} {kind} and nothing else, since no node has as many to go by")
        return tuple(replace(node, name=name) for node, name in zip(made, names, strict=False))
    # But for the place in the network: nobody said which rack they go to.
    labels = {key: value for key, value in like.labels.items() if key not in fleet.levels}
    return tuple(replace(like, name=name, labels=labels) for name in names[: len(made)])


def _read_nodes(state: State, text: str) -> tuple[Node, ...]:
    path = Path(text)
    if not path.exists() and not path.suffix:
        raise BadInput(f"--add-nodes: {show(text)} is neither nodes x devices, as 2x8, nor a file of node entries")
    found: list[Node] = []
    for item in _read_entries(path, "nodes").items_or_one():
        for node in parse_nodes(item.titled()):
            if node.name in state.fleet.index_by_name or any(node.name == other.name for other in found):
                item.titled().refuse(f"there is already a node {show(node.name)}; names are unique")
            found.append(node)
    return tuple(found)


def _parse_removed(state: State, text: str) -> tuple[str, ...]:
    try:
        names = expand_hosts(text)
    except BadText as bad:
        raise BadInput(f"--remove-nodes {bad}") from None
    for name in names:
        if name not in state.fleet.index_by_name:
            raise BadInput(f"--remove-nodes: there is no node {show(name)}; {suggest(name, state.fleet.names)}")
    return tuple(dict.fromkeys(names))


def _find_gang(state: State, name: str, typed: str) -> str:
    number = state.number_by_name.get(name)
    if number is not None and not state.phase_of(number).ended:
        return name
    ended = state.how_ended(name)
    if typed != name:  # the daemon knows it, and so it has ended
        raise BadInput(f"--cancel: {show(typed)} (job {name}) has {ended.value if ended else 'ended'} already")
    if ended is not None:
        raise BadInput(f"--cancel: {show(name)} has {ended.value} already")
    alive = [gang.name for number, gang in enumerate(state.gangs) if not state.phase_of(number).ended]
    raise BadInput(f"--cancel: there is no gang {show(name)}; {suggest(name, alive)}")


def _read_file(state: State, asked: AskedChange) -> tuple[Arrival, ...]:
    """Gangs of a file: one entry, a list of them, or a file with `gangs:`."""
    return () if asked.gangs is None else _read_gangs(state, _read_entries(asked.gangs, "gangs"))


def _read_submits(state: State, asked: AskedChange) -> tuple[Arrival, ...]:
    """Gangs that were described on the command line."""
    text = json.dumps(list(asked.submits))
    return _read_gangs(state, Spot(parse_text(text, "--submit", ".json"), "--submit")) if asked.submits else ()


def _read_gangs(state: State, spot: Spot) -> tuple[Arrival, ...]:
    """Their submits count from now."""
    entries = [item.titled() for item in spot.items_or_one()]
    known = Known(list(state.show_queues().names), state.fleet.levels[:-1], list_labels(state.fleet.nodes))
    gangs = [parse_gang(entry, known) for entry in entries]
    names = state.list_names()
    for entry, gang in zip(entries, gangs, strict=True):
        if gang.name in names:
            entry.refuse(f"there is already a gang {show(gang.name)}; names are unique")
        names.add(gang.name)
    found = []
    for entry, gang in zip(entries, complete_groups(gangs, entries), strict=True):
        for other in gang.after.names:
            if other not in names:
                entry.refuse(f"after names no gang: {show(other)}; {suggest(other, names)}")
        later = replace(gang, submit_us=state.now_us + gang.submit_us)
        fields = Fields(entry, entry.value if isinstance(entry.value, dict) else {})
        # Of the truth that a scenario states only the curve is something a gang reports.
        found.append(Arrival(later, curve_of(later, TrueRun(1, parse_speedup(fields.get("speedup"))))))
    return tuple(found)


def _read_entries(path: Path, key: str) -> Spot:
    """The entries of a file, with or without the key that they stand under in a scenario."""
    spot = Spot(parse_text(read_text(path), str(path), path.suffix), str(path))
    if spot.value is None:
        spot.refuse(f"is empty; it should hold {key}")
    tree = spot.value
    for outer in ("cluster", key) if key == "nodes" else (key,):
        if isinstance(tree, dict) and outer in tree:
            spot = Fields(spot, tree).need(outer, f"{outer}: …")
            tree = spot.value
    return spot
