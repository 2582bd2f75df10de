"""Scenario files: a cluster, gangs, what happens to them, and the truth about their run times.

The parts that every front end shares are read by `control.spec`; here is what only the simulator
has: durations, timed events, policies to run and the horizon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phalanx.control.spec.cluster import DEVICES_PER_NODE_MAX, NODES_MAX, parse_cluster
from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.gangs import Known, parse_gangs
from phalanx.control.spec.queues import parse_queues, parse_users, with_default
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.speedup import parse_speedup
from phalanx.control.spec.spot import Fields, Spot
from phalanx.control.spec.windows import parse_maintenance, parse_reservations
from phalanx.frontends.sim.events import TimedEvent, parse_events
from phalanx.model.fleet import Node, list_labels
from phalanx.model.gang import Gang
from phalanx.model.queue import DEFAULT_QUEUE, Queue, UserLimit
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.window import Window
from phalanx.perfmodel.speedup import Linear, Speedup
from phalanx.policy import LENGTHS

TOP_KEYS: Final = (
    *("cluster", "maintenance", "reservations", "queues", "users", "gangs", "events", "failures", "policy", "until"),
)
FAILURES_KEYS: Final = ("mtbf", "mttr")
DEFAULT_POLICY: Final = "goodput"

#: Slots are counted, not laid out as columns, so one node may have far more of them than devices.
_SLOTS_PER_NODE_MAX: Final = 100_000_000


_LINEAR: Final = Linear()


@dataclass(frozen=True, slots=True)
class TrueRun:
    """What only the simulator knows of a gang."""

    duration_us: int  # at members_max
    speedup: Speedup = _LINEAR


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a run needs. Gangs stand in file order; `true_runs` goes with them."""

    nodes: tuple[Node, ...]
    levels: tuple[str, ...]
    gangs: tuple[Gang, ...]
    true_runs: tuple[TrueRun, ...]
    queues: tuple[Queue, ...] = (Queue(DEFAULT_QUEUE),)
    users: tuple[UserLimit, ...] = ()
    windows: tuple[Window, ...] = ()  # maintenance and reservations
    events: tuple[TimedEvent, ...] = ()
    policies: tuple[tuple[str, Mapping[str, object]], ...] = ((DEFAULT_POLICY, {}),)
    until_us: int | None = None
    dropped: int = 0  # jobs of a log that have no run time
    failures: tuple[int, int] | None = None  # mean times of one node between failures and to repair


def read_scenario(path: Path, nodes: tuple[Node, ...] | None = None) -> Scenario:
    """Read a scenario file; `nodes`, if given, stand in for its cluster."""
    text = read_text(path)
    return parse_scenario(Spot(parse_text(text, str(path), path.suffix), str(path)), nodes)


def read_text(path: Path) -> str:
    """The text of a file, or a refusal that says why it cannot be had."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as bad:
        raise BadInput(f"cannot be read: {bad.strerror or bad}", file=str(path)) from None
    except (UnicodeDecodeError, ValueError):
        raise BadInput("is not UTF-8 text; is it a scenario at all?", file=str(path)) from None


def read_cluster(text: str, kind: str) -> tuple[Node, ...]:
    """The nodes of a cluster given as NxM: N nodes n0, n1, … with M of the kind each."""
    match = re.fullmatch(r"\s*([0-9]{1,20})\s*[x×]\s*([0-9]{1,20})\s*", text)
    most = DEVICES_PER_NODE_MAX if kind == DEVICE_KIND else _SLOTS_PER_NODE_MAX
    if match is None:
        raise BadInput(f"--cluster: {text!r} is no cluster; write nodes x {kind}s per node, as 16x8")
    count, each = int(match[1]), int(match[2])
    if not 1 <= count <= NODES_MAX or not 1 <= each <= most:
        raise BadInput(f"--cluster: {text!r} is out of bounds; 1 to {NODES_MAX:,} nodes of 1 to {most:,} {kind}s")
    resources = {kind: each * MILLI}
    return tuple(Node(f"n{index}", resources) for index in range(count))


def parse_scenario(spot: Spot, nodes: tuple[Node, ...] | None = None) -> Scenario:
    """A whole scenario from the tree of its file."""
    if spot.value is None:
        spot.refuse("is empty; a scenario has cluster and gangs")
    fields = spot.fields(TOP_KEYS)
    levels: tuple[str, ...] = ()
    if nodes is None:
        nodes, levels = parse_cluster(fields.need("cluster", "cluster: {nodes: [{name: a0, resources: {gpu: 8}}]}"))
    names = {node.name for node in nodes}
    queues = parse_queues(fields.get("queues"))
    where = fields.need("gangs", "gangs: [{name: A, members: 4, each: {gpu: 1}, duration: 60}]")
    gangs, entries = parse_gangs(where, Known([queue.name for queue in queues], levels, list_labels(nodes)))
    if not gangs:
        where.refuse("must not be empty; there is nothing to simulate")
    queues = with_default(queues, not queues or any(gang.queue == DEFAULT_QUEUE for gang in gangs))
    reserved = parse_reservations(fields.get("reservations"), names, [queue.name for queue in queues])
    until = fields.get("until")
    return Scenario(
        nodes=nodes,
        levels=levels,
        gangs=gangs,
        true_runs=tuple(_parse_truth(entry) for entry in entries),
        queues=queues,
        users=parse_users(fields.get("users")),
        windows=(*parse_maintenance(fields.get("maintenance"), names), *reserved),
        events=parse_events(fields.get("events"), names, {gang.name for gang in gangs}),
        policies=_parse_policies(fields),
        until_us=until.length_us() if until else None,
        failures=_parse_failures(fields),
    )


def _parse_failures(fields: Fields) -> tuple[int, int] | None:
    spot = fields.get("failures")
    if spot is None:
        return None
    if fields.get("until") is None:
        spot.refuse("go on for ever; say until when to play, as until: 30d")
    inner = spot.fields(FAILURES_KEYS)
    means = [inner.need(key, f"{key}: {example}") for key, example in (("mtbf", "30d"), ("mttr", "4h"))]
    for mean in means:
        if mean.length_us() <= 0:
            mean.refuse("must be more than 0")
    return means[0].length_us(), means[1].length_us()


def _parse_truth(entry: Spot) -> TrueRun:
    fields = Fields(entry, entry.value if isinstance(entry.value, dict) else {})
    duration = fields.need("duration", "duration: 1h, the true run time at the largest size")
    return TrueRun(duration.length_us(), parse_speedup(fields.get("speedup")))


def _parse_policies(fields: Fields) -> tuple[tuple[str, Mapping[str, object]], ...]:
    spot = fields.get("policy")
    if spot is None:
        return ((DEFAULT_POLICY, {}),)
    found = tuple(_parse_policy(item) for item in spot.items_or_one())
    if not found:
        spot.refuse("must not be empty; write a name, such as easy")
    return found


def _parse_policy(spot: Spot) -> tuple[str, Mapping[str, object]]:
    """A name, or a mapping of options with the name among them. What the options mean is the policy's affair."""
    if not isinstance(spot.value, dict):
        return spot.text(), {}
    options: dict[str, object] = {}
    name = DEFAULT_POLICY
    for key, inner in spot.pairs():
        if key == "name":
            name = inner.text()
        elif inner.value is not None:
            options[key] = inner.length_us() if key in LENGTHS and not isinstance(inner.value, bool) else _plain(inner)
    return name, options


def _plain(spot: Spot) -> object:
    if isinstance(spot.value, (dict, list)):
        spot.refuse("must be a single value")
    return spot.value
