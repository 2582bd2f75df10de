"""50 pods a second come to 5,000 nodes where 10,000 wait: does the scheduler keep up, and how late is it?"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.host import cpu_s
from bench.kube_crowd import SMALL, Crowd, save_crowd
from bench.kube_plane import PODS, BindWatch, Program, find_hindrance, phalanx_command, program, servers_of, wall_of
from bench.measure import Measured, Skipped, nearest_rank
from phalanx.testing.controlplane.fake_nodes import make_pods
from phalanx.testing.controlplane.plane import ControlPlane

WHAT = "50 arrivals a second, 10,000 pods waiting on 5,000 nodes: created → decided, p50 / p99; → bound, p99"
RATE = 50.0
#: The last of them is bound so soon after it came, or the scheduler has fallen behind.
BEHIND_S = 0.5


def run(*, quick: bool) -> Measured | Skipped:
    """Newcomers fit, and those who wait do not: every arrival is a decision with all of them in the line."""
    if (why := find_hindrance()) is not None:
        return why
    crowd, count = (SMALL, 75) if quick else (Crowd(), 1_500)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as name:
        folder = Path(name)
        world = save_crowd(folder / "crowd", crowd)
        with ControlPlane(template=world) as plane, program(phalanx_command(plane), folder) as process:
            return measure(plane, process, count)


def measure(plane: ControlPlane, process: Program, count: int) -> Measured:
    """After those who wait have been told so."""
    process.wait_for("ready")
    told_s = wait_told(process)
    watch = BindWatch(plane)
    ours_s = cpu_s(process.pid)
    asked: dict[str, float] = {}  # by the wall clock, before the call: the server tells us of it before it answers
    with servers_of(plane) as servers:
        began_s = time.monotonic()
        for at in range(count):
            time.sleep(max(0.0, began_s + at / RATE - time.monotonic()))
            (pod,) = make_pods(f"comes-{at}", 1)
            name = pod["metadata"]["name"] = f"comes-{at}"
            asked[name] = time.time()
            plane.api.create(PODS, pod)
        took_s = time.monotonic() - began_s
        watch.wait(count, process)
        ours_s = cpu_s(process.pid) - ours_s
    watch.close()
    shift_s = time.time() - time.monotonic()
    decided = [decided_at - asked[name] for name, decided_at in list_decisions(process).items() if name in asked]
    bound = [at + shift_s - asked[name] for name, at in watch.at.items()]
    behind_s = max(watch.at.values()) - began_s - took_s
    cores = f"scheduler {ours_s / took_s:.0%}, API server {servers.api / took_s:.0%}, etcd {servers.etcd / took_s:.0%}"
    note = f"{count / took_s:.0f} arrivals a second for {took_s:.0f} s; of a core: {cores}"
    note += f"\nto tell those who wait that they do took {told_s:.0f} s before that"
    half, most = nearest_rank(decided, 50) * 1e3, nearest_rank(decided, 99) * 1e3
    value = f"{half:.0f} / {most:.0f} ms; {nearest_rank(bound, 99) * 1e3:.0f} ms"
    return Measured(value, f"all bound {BEHIND_S:g} s after", behind_s < BEHIND_S, note)


def list_decisions(process: Program) -> dict[str, float]:
    """By pod, when its binding was begun: from its line in the log, which is written when that was answered."""
    return {each["gang"].partition("/")[2]: wall_of(each) - each["took_ms"] / 1e3 for each in process.events("bound")}


def wait_told(process: Program) -> float:
    """Until it is quiet: telling thousands that they wait is work of the first minute, and not of every arrival."""
    began_s, quiet_s = time.monotonic(), 0
    while quiet_s < 3:
        before = cpu_s(process.pid)
        time.sleep(1.0)
        quiet_s = quiet_s + 1 if cpu_s(process.pid) - before < 0.05 else 0
    return time.monotonic() - began_s - quiet_s
