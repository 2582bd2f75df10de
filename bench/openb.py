"""Devices allocated on the openb cluster at 130 % asked for, next to the published rules."""

from __future__ import annotations

import csv
import gzip
import time
from pathlib import Path

from bench.filling import measure_allocated
from bench.measure import Measured, Skipped, find_log
from phalanx.frontends.sim.traces.openb import read_fleet, read_shapes

NAME = "openb"
WHAT = "openb cluster filled to 130 %: devices allocated, mean over seeds"
BEST_FIT, FGD = "05-BestFit", "06-FGD"


def run(*, quick: bool) -> Measured | Skipped:
    """Seeds from 42 on, as the study has them."""
    folder = find_log("openb")
    if isinstance(folder, Skipped):
        return folder
    published = read_published(folder)
    fleet = read_fleet(folder / "openb_node_list_gpu_node.csv.gz")
    shapes = read_shapes(folder / "openb_pod_list_default.csv.gz")
    seeds = 1 if quick else 10
    before = time.process_time()
    mean = sum(measure_allocated(fleet, shapes, 1.30, 42 + seed) for seed in range(seeds)) / seeds
    each = (time.process_time() - before) / seeds
    note = f"{seeds} seeds, {each:.1f} CPU-s each; FGD {published[FGD]:.2f} %"
    return Measured(f"{mean:.2f} %", f"≥ {published[BEST_FIT]:.2f} % (BestFit)", mean >= published[BEST_FIT], note)


def read_published(folder: Path) -> dict[str, float]:
    """Mean percent allocated at 130 % by rule."""
    found: dict[str, list[float]] = {}
    with gzip.open(folder / "fgd_expected_allo.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["workload"] == "openb_pod_list_default":
                found.setdefault(row["sc_policy"], []).append(float(row["130"]))
    return {rule: sum(values) / len(values) for rule, values in found.items()}
