"""Runs that the list of those that live does not name, known again by what they leave elsewhere.

Somebody removed the list, or a part of it, or a disk lost it. What runs is found by its lock, its control group and
the mark in the environment of its processes: none of the three outlives a boot, so whoever has one is of this boot,
whatever any file says. Whose a run is tells the owner of its directory, which only the daemon could have changed.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from phalanx.frontends.host import containment
from phalanx.frontends.host.clock import read_boot_id
from phalanx.frontends.host.containment import WEAK, Cgroup, CgroupRoot, open_group
from phalanx.frontends.host.launching.directory import RunFacts, Runs

_SHIM = b"shim/__main__.py"


@dataclass(frozen=True, slots=True)
class Traces:
    """Where to look for the runs of one daemon."""

    runs: Runs
    ground: CgroupRoot | None
    prefix: str  # what the marks of all of its runs begin with


def find_unlisted(traces: Traces, known: Container[str], *, everywhere: bool) -> list[RunFacts]:
    """Runs that live and are not known.

    `everywhere`: the list is not to be trusted, so every directory is looked at; of those that nobody lives in there
    are facts as well, without a boot.
    """
    owners = traces.runs.list_owners() if everywhere or traces.ground is None else {}
    living = set[str]()
    for run in traces.ground.list_runs() if traces.ground is not None else ():
        group = _open_group(traces, run)
        if group is not None and not group.is_empty():
            living.add(run)
    if everywhere or traces.ground is None:  # by the marks of processes, as far as they are ours to read
        for uid in {os.geteuid(), *owners.values()}:
            marked = containment.list_marks(traces.prefix, uid)
            living |= {run for run in marked if owners.get(run, os.geteuid()) == uid}
    if everywhere:
        living |= {run for run in owners if run not in known and traces.runs.is_locked(run)}
    unlisted = sorted(run for run in living if run not in known)
    shims = _find_shims(traces.runs.path) if unlisted else {}
    found = [_recall(traces, run, shims.get(run, (0, 0))) for run in unlisted]
    if everywhere:
        found += recall_dead(traces, (run for run in owners if run not in living and run not in known))
    return found


def recall_dead(traces: Traces, runs: Iterable[str]) -> list[RunFacts]:
    """Facts without a boot of those that have a directory."""
    owners = {run: traces.runs.read_owner(run) for run in sorted(runs)}
    return [RunFacts(run, uid, "", f"{traces.prefix}{run}:", WEAK) for run, uid in owners.items() if uid is not None]


def _recall(traces: Traces, run: str, shim: tuple[int, int]) -> RunFacts:
    owner = traces.runs.read_owner(run)
    uid = os.geteuid() if owner is None else owner
    group = _open_group(traces, run)
    kind, path = (group.kind, group.path) if group is not None else (WEAK, None)
    return RunFacts(run, uid, read_boot_id(), f"{traces.prefix}{run}:", kind, path, *shim)


def _open_group(traces: Traces, run: str) -> Cgroup | None:
    group = open_group(traces.ground.kind, f"{traces.ground.base}/{run}") if traces.ground is not None else None
    return group if group is not None and Path(group.path).is_dir() else None


def _find_shims(path: Path) -> dict[str, tuple[int, int]]:
    """Pid and start time of those who have the lock of a run open, which a shim has and hands to no member."""
    holders: dict[str, dict[int, containment.ProcEntry]] = {}
    folder = os.path.realpath(path)
    for pid in containment.list_pids():
        process = containment.read_process(pid) if _SHIM in containment.read_file(f"/proc/{pid}/cmdline") else None
        if process is not None and not process.is_gone:
            for run in _list_held(pid, folder):
                holders.setdefault(run, {})[pid] = process
    # Members that wait at the gate are forks of their shim, and have it open as well.
    shims = {run: [each for each in found.values() if each.parent not in found] for run, found in holders.items()}
    return {run: (found[0].pid, found[0].start) for run, found in shims.items() if len(found) == 1}


def _list_held(pid: int, folder: str) -> set[str]:
    held = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            where, _, name = os.readlink(entry.path).removesuffix(" (deleted)").rpartition("/")  # noqa: PTH115
            above, _, run = where.rpartition("/")
            if name == "lock" and above == folder:
                held.add(run)
    except OSError:
        return held  # it has ended, or is not ours to look at
    return held
