"""This machine as a node of the engine's fleet.

Counts what the daemon may use, not what the board holds: a container, a slice of systemd or `taskset`
may have given it less, and members that the daemon starts inherit that.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.host.ports import Device, Devices
from phalanx.model.fleet import Node
from phalanx.model.resources import DEVICE_KIND, MILLI

GPU_MODEL_LABEL: Final = "gpu-model"
MIXED: Final = "mixed"

_NAME_CHARS_MAX: Final = 63
_ROOT: Final = Path("/")


def describe_node(
    devices: Devices,
    *,
    name: str | None = None,
    cpus: float | None = None,
    memory_bytes: int | None = None,
    reserve: Mapping[str, int] | None = None,
    root: Path = _ROOT,
) -> Node:
    """The machine, less what is kept for the system (`reserve`, in engine units)."""
    listed = devices.list()
    resources = {
        # Also where there are none: usage of GPUs that is remembered must find its column after a boot without driver.
        DEVICE_KIND: len(listed) * MILLI,
        "cpu": count_cpus_milli(root) if cpus is None else round(cpus * MILLI),
        "memory": read_memory_bytes(root) if memory_bytes is None else memory_bytes,
    }
    for kind, units in (reserve or {}).items():
        resources[kind] = _keep_back(kind, resources.get(kind, 0), units)
    return Node(name or find_name(), resources, _labels(listed), (), find_island_numbers(listed))


def find_name() -> str:
    """The host's name as a node may be called."""
    return clean_name(socket.gethostname())


def clean_name(text: str) -> str:
    """Brackets and commas mean something in host lists, and anything may stand in a host's name."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return short[:_NAME_CHARS_MAX] or "localhost"


def clean_model(text: str) -> str:
    """NVIDIA A100-SXM4-80GB → a100-sxm4-80gb, as people write it in `select`."""
    bare = re.sub(r"^nvidia\s+", "", text.strip(), flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9.]+", "-", bare.lower()).strip("-") or "unknown"


def find_island_numbers(devices: Sequence[Device]) -> tuple[tuple[int, ...], ...]:
    """Device numbers by island; nothing where all are in one, for then there is nothing to prefer."""
    islands: dict[str, list[int]] = {}
    for device in devices:
        islands.setdefault(device.island, []).append(device.index)
    return tuple(tuple(island) for island in islands.values()) if len(islands) > 1 else ()


def _labels(devices: Sequence[Device]) -> dict[str, str]:
    labels = {"arch": platform.machine() or "unknown"}
    if not devices:
        return labels
    models = Counter(clean_model(device.model) for device in devices)
    # A gang that selects a model must never get another one, and labels speak of the whole machine.
    labels[GPU_MODEL_LABEL] = next(iter(models)) if len(models) == 1 else MIXED
    if len(models) > 1:
        labels["gpu-models"] = ",".join(f"{model}:{count}" for model, count in sorted(models.items()))
    labels["gpu-memory"] = f"{min(device.memory_bytes for device in devices) >> 30}Gi"
    islands = find_island_numbers(devices)
    if islands:
        labels["gpu-islands"] = " ".join(f"{island[0]}-{island[-1]}" for island in islands)
    return labels


def _keep_back(kind: str, capacity: int, units: int) -> int:
    if kind == DEVICE_KIND:
        raise BadInput("reserve: GPUs cannot be kept back; give the system's share in cpu and memory", path="reserve")
    if units and units >= capacity:
        raise BadInput(f"reserve: keeps all {kind} of this machine for the system; write less", path=f"reserve.{kind}")
    return capacity - units


# ---------------------------------------------------------------------- what we may use


def count_cpus_milli(root: Path = _ROOT) -> int:
    """Thousandths of processors: those that we may run on, or what our control groups allow if that is less."""
    allowed = len(os.sched_getaffinity(0)) * MILLI
    return max(1, min([allowed, *_read_cpu_limits(root)]))


def read_memory_bytes(root: Path = _ROOT) -> int:
    """Bytes of memory: the machine's, or what our control groups allow if that is less."""
    return min([_read_total_bytes(root), *_read_memory_limits(root)])


def _read_total_bytes(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        key, _, rest = line.partition(":")
        if key == "MemTotal":
            return int(rest.split()[0]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _read_cpu_limits(root: Path) -> Iterator[int]:
    for group in find_groups("cpu", root):
        quota, _, period = _read(group / "cpu.max").strip().partition(" ")
        if not quota:
            quota = _read(group / "cpu.cfs_quota_us").strip()
            period = _read(group / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) * MILLI // int(period)


def _read_memory_limits(root: Path) -> Iterator[int]:
    for group in find_groups("memory", root):
        for file in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            text = _read(group / file).strip()
            if text.isdigit():  # version 1 writes no limit as a huge number
                yield int(text)


def find_groups(controller: str, root: Path = _ROOT) -> Iterator[Path]:
    """Our control group for a controller and all those above it, innermost first, of version 1 and 2."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, inner = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        for mount in find_mounts(names.split(",") if names else None, root):
            group = mount / inner.strip("/")
            # Without a namespace of its own a container reads the host's path, which is not there, and sees its
            # group at the top.
            yield group
            while group != mount:
                group = group.parent
                yield group


def find_mounts(controllers: Sequence[str] | None, root: Path = _ROOT) -> Iterator[Path]:
    """Where the version 2 tree (None) or the tree of these version 1 controllers is mounted."""
    for line in _read(root / "proc/self/mounts").splitlines():
        _, where, kind, options, *_ = [*line.split(" "), "", "", "", ""]
        hit = (
            kind == "cgroup2" if controllers is None else kind == "cgroup" and set(controllers) <= {*options.split(",")}
        )
        if hit:
            yield root / where.lstrip("/")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
