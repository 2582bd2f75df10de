"""Who sits where until when, and who will: present and forecast on one axis. Of what has ended nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phalanx.control.look_ahead import Stay
from phalanx.frontends.kube.answers.cluster_view import iso
from phalanx.frontends.kube.answers.kube_replies import GANTT_SCHEMA
from phalanx.frontends.kube.answers.looking import Looked
from phalanx.model.resources import MILLI

_BARS_MOST = 10_000


def draw_gantt(found: Looked) -> dict[str, Any]:
    """One bar for each gang and stay."""
    bars = sorted(_list_bars(found), key=lambda bar: (bar["start"], bar["gang"]))
    return {"schema": GANTT_SCHEMA, "now": iso(found.picture.now_us), "bars": bars[:_BARS_MOST]}


def _list_bars(found: Looked) -> Iterator[dict[str, Any]]:
    parties, now_us = found.picture.parties, found.picture.now_us
    for stay in found.seen.stays:
        # Whoever comes in a look ahead and is nobody's party is none that people know.
        if stay.gang not in parties or (stay.end_us is not None and stay.end_us <= now_us):
            continue
        key, _ = parties[stay.gang]
        yield {
            "gang": str(key),
            "dialect": key.dialect.value,
            "members": sum(int(each.counts.sum()) for each in stay.seats),
            "gpus": _count_devices(found, stay),
            "nodes": _list_nodes(found, stay),
            "start": iso(max(stay.start_us, now_us) if stay.fresh else stay.start_us),
            "end": None if stay.end_us is None else iso(stay.end_us),
            "kind": "forecast" if stay.fresh else "running",
        }


def _count_devices(found: Looked, stay: Stay) -> float:
    roles, kind = found.picture.state.gangs[stay.gang].roles, found.picture.device_kind
    return sum(int(each.counts.sum()) * roles[each.role].shape.amount(kind) for each in stay.seats) / MILLI


def _list_nodes(found: Looked, stay: Stay) -> dict[str, int]:
    names, places = found.picture.state.fleet.names, dict[str, int]()
    for each in stay.seats:
        for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
            places[names[node]] = places.get(names[node], 0) + count
    return places
