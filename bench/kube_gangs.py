"""2,000 pods in gangs on 1,000 nodes: Phalanx, the stock scheduler with Kubernetes' own groups, and a bare binder.

All pods are there before a scheduler starts. Each run begins from a copy of one state, speaks as one user and is
watched alike; runs of the three take turns, so that whatever else the machine does is shared out.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kube_plane import (
    SETTLE_S,
    BindWatch,
    binder_command,
    count_writes,
    find_hindrance,
    make_gang,
    peak_mb,
    phalanx_command,
    program,
    save_world,
    servers_of,
    stock_command,
)
from bench.measure import Measured, Skipped, median
from phalanx.testing.controlplane.fake_nodes import make_nodes
from phalanx.testing.controlplane.plane import ControlPlane

WHAT = "pods a second in gangs of 8 and of 64: times the stock scheduler's native gangs, share of a bare binder"
#: Members, and which part of a bare binder's rate is wanted.
SIZES = {8: 0.5, 64: 0.7}
RUNS = 5
TIMES_STOCK, WRITES_MOST, FIRST_S = 3.0, 1.3, 0.6
WHO: dict[str, Callable[[ControlPlane], list[str]]] = {
    "phalanx": phalanx_command,
    "stock": stock_command,
    "binder": binder_command,
}


@dataclass(frozen=True, slots=True)
class GangRun:
    """One scheduler, once."""

    pods: int
    first_s: float  # both from the start of its process
    last_s: float
    scheduler_s: float  # of processor time, until everything is told
    api_s: float
    etcd_s: float
    peak_mb: float
    writes: Counter[str]

    @property
    def rate(self) -> float:
        """Pods a second, from the start of the process."""
        return self.pods / self.last_s

    @property
    def cpu_ms(self) -> float:
        """Processor time a pod, of all three."""
        return (self.scheduler_s + self.api_s + self.etcd_s) * 1e3 / self.pods

    @property
    def pace(self) -> float:
        """Pods a second, from the first bind on: of a scheduler that has been running."""
        return self.pods / max(self.last_s - self.first_s, 1e-3)


Runs = dict[str, list[GangRun]]


def run(*, quick: bool) -> Measured | Skipped:
    """Medians; a ratio is of medians of one row."""
    if (why := find_hindrance()) is not None:
        return why
    nodes, pods, runs = (100, 192, 1) if quick else (1_000, 2_000, RUNS)
    found: dict[int, Runs] = {}
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as name:
        folder = Path(name)
        for size in SIZES:
            gangs = pods // size
            world = save_gangs(folder / f"gangs-of-{size}", nodes, gangs, size)
            done: Runs = {who: [] for who in WHO}
            for _ in range(runs):
                for who, command in WHO.items():
                    done[who].append(run_one(world, folder, command, gangs * size))
            found[size] = done
    values, met = [], True
    for size, part in SIZES.items():
        times, share = compare(found[size], "rate")
        values.append(f"{times:.1f}x {share:.0%}")
        few_writes = median([each.writes.total() / each.pods for each in found[size]["phalanx"]]) <= WRITES_MOST
        at_once = figure(found[size]["phalanx"], "first_s") < FIRST_S
        met = met and times >= TIMES_STOCK and share >= part and few_writes and at_once
    target = " / ".join(f"{TIMES_STOCK:g}x {part:.0%}" for part in SIZES.values())
    note = "\n".join(line for size, done in found.items() for line in (*tabulate(size, done), tell_ratios(done)))
    return Measured(" / ".join(values), f"≥ {target}", met, note)


def save_gangs(folder: Path, nodes: int, gangs: int, size: int) -> Path:
    """A world in which all of them fit."""
    made = [make_gang(f"gang-{at:04}", size) for at in range(gangs)]
    pods = [pod for _, some in made for pod in some]
    return save_world(folder, make_nodes(f"{nodes}x8"), [group for group, _ in made], pods)


def run_one(world: Path, folder: Path, command: Callable[[ControlPlane], list[str]], pods: int) -> GangRun:
    """From the start of one scheduler until everything is bound, and told."""
    with ControlPlane(template=world) as plane:
        watch = BindWatch(plane)
        time.sleep(SETTLE_S)
        before = count_writes(plane)
        with servers_of(plane) as servers, program(command(plane), folder) as process:
            watch.wait(pods, process)
            time.sleep(SETTLE_S)
            most_mb = peak_mb(process.pid)
        writes = count_writes(plane) - before
        watch.close()
    first_s, last_s = min(watch.at.values()) - process.began_s, max(watch.at.values()) - process.began_s
    return GangRun(pods, first_s, last_s, process.cpu_s, servers.api, servers.etcd, most_mb, writes)


def figure(runs: Sequence[GangRun], name: str) -> float:
    """The median of one figure."""
    return median([getattr(each, name) for each in runs])


def tabulate(size: int, done: Runs) -> list[str]:
    """A line for each scheduler, with what it writes at the end."""
    lines = [
        f"gangs of {size:<6} {'first s':>8} {'last s':>7} {'pods/s':>16} {'pace':>16}"
        f" {'CPU-ms/pod':>11} {'API':>5} {'etcd':>5} {'sum':>5} {'MB':>5}  writes/pod"
    ]
    for who, runs in done.items():
        ms = [figure(runs, name) * 1e3 / runs[0].pods for name in ("scheduler_s", "api_s", "etcd_s")]
        lines.append(
            f"  {who:<12} {figure(runs, 'first_s'):>8.2f} {figure(runs, 'last_s'):>7.2f}"
            f" {_spread([each.rate for each in runs]):>16} {_spread([each.pace for each in runs]):>16}"
            f" {ms[0]:>11.2f} {ms[1]:>5.2f} {ms[2]:>5.2f} {figure(runs, 'cpu_ms'):>5.2f}"
            f" {figure(runs, 'peak_mb'):>5.0f}  {_tell_writes(runs[-1])}"
        )
    return lines


def compare(done: Runs, name: str) -> tuple[float, float]:
    """How many times the stock scheduler ours is by one figure, and which part of the bare binder."""
    ours, stock, binder = (figure(done[who], name) for who in WHO)
    return ours / stock, ours / binder


def tell_ratios(done: Runs) -> str:
    """By rate, by pace, and by processor time, which a machine that does something else as well disturbs least."""
    said = [f"{name} {times:.1f}x {share:.0%}" for name in ("rate", "pace") for times, share in [compare(done, name)]]
    times, share = compare(done, "cpu_ms")
    return f"  times stock, part of the binder: {', '.join(said)}, processor time {1 / times:.1f}x {1 / share:.0%}"


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def _tell_writes(run: GangRun) -> str:
    parts = [f"{name} {count / run.pods:.2f}" for name, count in run.writes.most_common() if count * 200 > run.pods]
    return f"{run.writes.total() / run.pods:.2f} ({', '.join(parts)})"
