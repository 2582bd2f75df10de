"""Room becomes free on a full cluster: how long until the gang that waits for it is bound."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.kube_plane import PODS, BindWatch, find_hindrance, make_gang, phalanx_command, program, save_world
from bench.measure import Measured, Skipped, median
from phalanx.testing.controlplane.fake_nodes import make_nodes
from phalanx.testing.controlplane.kubelet import STRATEGIC_PATCH
from phalanx.testing.controlplane.plane import ControlPlane

WHAT = "room becomes free on a full cluster → the gang of 8 that waits for it is bound: median / worst"
TARGET_S = 0.3
GANG = 8
#: Longer than reasons are told after, so that a gang waits as it would.
_PAUSE_S = 1.5


def run(*, quick: bool) -> Measured | Skipped:
    """One gang after the other ends, and the next of those that wait takes its place."""
    if (why := find_hindrance()) is not None:
        return why
    nodes, turns = (16, 5) if quick else (1_000, 20)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as name:
        times = measure(Path(name), nodes, turns)
    value = f"{median(times) * 1e3:.0f} / {max(times) * 1e3:.0f} ms"
    return Measured(value, f"< {TARGET_S * 1e3:g} ms", max(times) < TARGET_S, f"{turns} times, {nodes} nodes")


def measure(folder: Path, nodes: int, turns: int) -> list[float]:
    """Seconds from the answer to the last status that ends a gang, to the last bind of the one that waited."""
    running, waiting = nodes * 8 // GANG, turns
    made = [make_gang(f"gang-{at:04}", GANG) for at in range(running + waiting)]
    for at, (_, pods) in enumerate(made[:running]):
        for pod in pods:
            pod["spec"]["nodeName"] = f"node-{at:0{len(str(nodes - 1))}d}"
    everybody = [pod for _, pods in made for pod in pods]
    world = save_world(folder / "full", make_nodes(f"{nodes}x8"), [group for group, _ in made], everybody)
    found = []
    with ControlPlane(template=world) as plane, program(phalanx_command(plane), folder) as process:
        process.wait_for("ready")
        watch = BindWatch(plane)
        for turn in range(turns):
            time.sleep(_PAUSE_S)
            end_gang(plane, [pod["metadata"]["name"] for pod in made[turn][1]])
            freed_s = time.monotonic()
            watch.wait((turn + 1) * GANG, process)
            found.append(max(watch.at.values()) - freed_s)
        watch.close()
    return found


def end_gang(plane: ControlPlane, pods: Sequence[str]) -> None:
    """As kubelets say it."""
    for pod in pods:
        plane.api.patch(f"{PODS}/{pod}/status", {"status": {"phase": "Succeeded"}}, STRATEGIC_PATCH)
