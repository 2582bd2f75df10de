"""`python -m bench [--quick] [ROW...]`: one table of measured numbers beside what is aimed at.

Nothing here fails because a machine is slow. The exit code is 1 only if a row crashes or a fast
path disagrees with its reference.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import platform
import subprocess
import sys
import traceback
from types import ModuleType

import numpy as np

import phalanx
from bench.measure import Measured, Skipped, cpu_times, median

ROWS = (
    "decide",
    "members",
    "cycle",
    "conservative",
    "snapshots",
    "memory",
    "kth",
    "placement",
    "openb",
    "philly",
    "elastic-peers",
    "elastic-passes",
    "promises",
    "llm",
    "submits",
    "waiting",
    "cancels",
    "why",
)
#: These start real control planes, one after the other, for minutes: only if they are named.
KUBE_ROWS = ("kube-gangs", "kube-wake", "kube-start", "kube-arrivals")


def main() -> int:
    """Measure the rows asked for and print the table as it grows."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the engine and the simulator.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller worlds")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    rows = f"of {', '.join(ROWS)}, which are all done if none is named; or of {', '.join(KUBE_ROWS)}"
    parser.add_argument("rows", nargs="*", metavar="ROW", help=rows)
    asked = parser.parse_args()
    known = (*ROWS, *KUBE_ROWS)
    unknown = [row for row in asked.rows if row not in known]
    if unknown:
        parser.error(f"there is no row {', '.join(unknown)}; rows: {', '.join(known)}")
    if asked.bare:
        return 0 if print_row(asked.rows[0], quick=asked.quick) else 1
    # As an installed package is: rows that run whole commands would else pay for compiling every module each time,
    # wherever bytecode is not written by the way.
    compileall.compile_dir(phalanx.__path__[0], quiet=2)
    print_machine()
    crashed = [row for row in asked.rows or ROWS if not run_apart(row, quick=asked.quick)]
    return 1 if crashed else 0


def run_apart(row: str, *, quick: bool) -> bool:
    """A row in a process of its own: memory that another row has warmed up would flatter it."""
    command = [sys.executable, "-m", "bench", "--bare", row, *(["--quick"] if quick else [])]
    return subprocess.run(command, check=False).returncode == 0


def print_machine() -> None:
    """Where the numbers come from: without that they say nothing."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    loop_ms = median(cpu_times(lambda: sum(range(2_000_000)), 5)) * 1e3
    print(f"{os.cpu_count()} cores ({platform.machine()}), load {load}, {versions}; CPU time, medians")
    print(f"a sum of 2,000,000 integers takes {loop_ms:.0f} ms here and now: compare rows between runs by that")
    print(f"{'row':<13} {'measured':<28} {'target':<22} {'verdict':<8} what", flush=True)


def print_row(row: str, *, quick: bool) -> bool:
    """One line of the table; whether nothing crashed, for a row without its log is no failure."""
    module: ModuleType | None = None
    try:
        module = importlib.import_module(f"bench.{row.replace('-', '_')}")
        found: Measured | Skipped = module.run(quick=quick)
    except Exception:  # noqa: BLE001 - the other rows are still worth measuring
        print(f"{row:<13} {'crashed':<28} {'':<22} {'ERROR':<8} {getattr(module, 'WHAT', '')}", flush=True)
        traceback.print_exc()
        return False
    if isinstance(found, Skipped):
        print(f"{row:<13} {'skipped':<28} {found.why}", flush=True)
        return True
    verdict = "ok" if found.met else "MISSED"
    print(f"{row:<13} {found.value:<28} {found.target:<22} {verdict:<8} {module.WHAT}", flush=True)
    for line in found.note.splitlines():
        print(f"{'':<13} {line}".rstrip(), flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
