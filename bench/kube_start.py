"""A scheduler begins on a cluster of 5,000 nodes: 5,000 pods that run, 10,000 that wait."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.host import cpu_s
from bench.kube_crowd import SMALL, Crowd, save_crowd
from bench.kube_plane import (
    PODS,
    SETTLE_S,
    BindWatch,
    find_hindrance,
    peak_mb,
    phalanx_command,
    program,
    wall_of,
)
from bench.measure import Measured, Skipped, median
from phalanx.testing.controlplane.fake_nodes import make_pods
from phalanx.testing.controlplane.plane import ControlPlane

WHAT = "start with 5,000 nodes, 5,000 pods that run and 10,000 that wait: until it decides, and memory at its most"
TARGET_S, TARGET_MB = 5.0, 400.0
RUNS = 3


def run(*, quick: bool) -> Measured | Skipped:
    """From the start of the process until a pod that fits is bound, with everything that was listed before."""
    if (why := find_hindrance()) is not None:
        return why
    crowd, runs = (SMALL, 1) if quick else (Crowd(), RUNS)
    ready, bound, cpu, most = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as name:
        folder = Path(name)
        world = save_crowd(folder / "crowd", crowd)
        for _ in range(runs):
            with ControlPlane(template=world) as plane:
                plane.api.create(PODS, make_pods("fits", 1)[0])
                watch = BindWatch(plane)
                time.sleep(SETTLE_S)
                with program(phalanx_command(plane), folder) as process:
                    ready.append(wall_of(process.wait_for("ready")) - process.began_wall_s)
                    cpu.append(cpu_s(process.pid))
                    watch.wait(1, process)
                    bound.append(watch.at["fits-0"] - process.began_s)
                    time.sleep(SETTLE_S)
                    most.append(peak_mb(process.pid))
                watch.close()
    value = f"{median(bound):.1f} s, {median(most):.0f} MB"
    note = f"everything listed after {median(ready):.1f} s, with {median(cpu):.1f} s of processor time"
    met = median(bound) < TARGET_S and median(most) < TARGET_MB
    return Measured(value, f"< {TARGET_S:g} s, {TARGET_MB:g} MB", met, note)
