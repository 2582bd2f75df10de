"""Vectorised placement next to a plain one that must agree with it, node by node."""

from __future__ import annotations

import random

import numpy as np

from bench.measure import Disagreement, Measured, cpu_times, median
from bench.reference import Ask, Plain, place_plainly
from bench.worlds import MODELS, make_fleet, make_partly_busy, make_shape
from phalanx.engine.room.placement import NoPlace, Wish, place
from phalanx.engine.room.view import View
from phalanx.model.fleet import Fleet
from phalanx.model.form import Form, form_of_gang
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.snapshot import NodeColumns
from phalanx.model.topology import Topology

NAME = "placement"
WHAT = "vectorised placement next to a pure-Python reference that agrees with it (ratio)"
TARGET = 20
LEVELS = ("zone", "block", "rack")


def run(*, quick: bool) -> Measured:
    """Agreement on many small random clusters, then both timed on one large question."""
    worlds = 100 if quick else 600
    rng = random.Random(6)
    placed = sum(check_agreement(rng) for _ in range(worlds))
    fleet = make_fleet((4, 10, 10, 25), LEVELS)
    nodes = make_partly_busy(fleet, 0.30, seed=1).borrow().nodes
    ask = Ask(make_shape(1), 1000, require=0, prefer=2)
    if place_fast(fleet, nodes, ask) != place_slow(fleet, nodes, ask):
        raise Disagreement("the large question")
    fast = median(cpu_times(lambda: place_fast(fleet, nodes, ask), 10 if quick else 50))
    slow = median(cpu_times(lambda: place_slow(fleet, nodes, ask), 1 if quick else 5))
    note = f"{fast * 1e3:.2f} ms against {slow * 1e3:.0f} ms on 10,000 nodes; "
    note += f"equal on {worlds} small worlds, {placed} with a place"
    return Measured(f"{slow / fast:.0f} x", f"equal; ≥ {TARGET} x", slow / fast >= TARGET, note)


def place_fast(fleet: Fleet, nodes: NodeColumns, ask: Ask) -> list[tuple[int, int]] | None:
    """The engine's answer from given columns."""
    view = View(fleet, nodes.free.copy(), nodes.device_free.copy(), shared=nodes.shared, usable=nodes.up)
    places = place(view, Wish(make_form(fleet, ask), ask.size))
    if isinstance(places, NoPlace):
        return None
    seats = places[0][0]
    return list(zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True))


def place_slow(fleet: Fleet, nodes: NodeColumns, ask: Ask) -> list[tuple[int, int]] | None:
    """The same question to the reference."""
    return place_plainly(Plain(fleet, nodes.free.tolist(), nodes.device_free.tolist(), ask.shape), ask)


def make_form(fleet: Fleet, ask: Ask) -> Form:
    """The question in the engine's words."""
    require, prefer = (fleet.levels[level] if level >= 0 else None for level in (ask.require, ask.prefer))
    role = Role("member", Sizes((ask.size,)), ask.shape)
    return form_of_gang(fleet, Gang("g", (role,), topology=Topology(require, prefer)))


def check_agreement(rng: random.Random) -> bool:
    """One small random cluster and one question; whether there was a place at all."""
    depth = rng.randint(0, 3)
    fleet = make_fleet([rng.randint(1, 5) for _ in range(depth + 1)], LEVELS[:depth], gpus=4)
    nodes = draw_columns(fleet, rng)
    require = rng.randint(-1, depth)
    size = rng.choice((1, 1, 2, 3, 5, 8, 13, 21))
    ask = Ask(draw_shape(rng), size, require, rng.choice((-1, rng.randint(max(require, 0), depth))))
    fast, slow = place_fast(fleet, nodes, ask), place_slow(fleet, nodes, ask)
    if fast != slow:
        raise Disagreement(f"{ask} on {fleet.names}: vectorised {fast}, reference {slow}")
    return fast is not None


def draw_columns(fleet: Fleet, rng: random.Random) -> NodeColumns:
    """Room at random: devices whole, gone or split, the rest cut short."""
    free, devices = fleet.capacity.copy(), fleet.device_capacity.copy()
    for node in range(len(fleet)):
        for device in range(devices.shape[1]):
            devices[node, device] = rng.choice((0, 1000, 1000, 1000, 300, 500, 700))
        free[node, fleet.device_column] = int(devices[node].sum())
        for kind in range(1, free.shape[1]):
            free[node, kind] = int(free[node, kind]) * rng.choice((1, 2, 3, 4, 8, 8)) // 8
    everywhere, nowhere = np.ones(len(fleet), dtype=np.bool_), np.zeros(len(fleet), dtype=np.bool_)
    # Of all a node may be, the reference knows room alone: every other column says "in service".
    return NodeColumns(
        free,
        devices,
        shared=True,
        up=everywhere,
        open=everywhere,
        in_service=everywhere,
        repairable=everywhere,
        draining=nowhere,
    )


def draw_shape(rng: random.Random) -> Shape:
    """Whole devices, a share of one, or none; cores and memory or neither."""
    need = {"gpu": rng.choice((0, 250, 400, 1000, 1000, 2000)), "cpu": rng.choice((0, 2000, 6000, 10_000))}
    need["memory"] = 1 << 34 if not any(need.values()) or rng.random() < 0.3 else 0
    select = (("gpu-model", tuple(rng.sample(MODELS, 2))),) if rng.random() < 0.3 else ()
    return Shape(tuple(sorted((kind, units) for kind, units in need.items() if units)), select)
