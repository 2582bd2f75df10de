"""How tightly the engine packs a real GPU cluster, next to the published results for the same cluster.

The study (FGD, ATC'23) fills 1,213 nodes with 6,212 GPUs to 130 %; its numbers come with the log.

PHALANX_OPENB_SEEDS  how many orders to average over (default 3; the study took 10)
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest
from selection import rest_long

from bench.filling import draw_arrivals, fill, measure_allocated
from phalanx.control.spec.errors import BadInput
from phalanx.frontends.sim.traces.openb import read_fleet, read_shapes
from phalanx.model.fleet import Fleet

ARRIVED = 1.30


@pytest.fixture(scope="module")
def openb(traces_dir) -> Path:
    folder = traces_dir / "openb"
    if not folder.is_dir():
        pytest.skip("no openb log in the folder of traces")
    return folder


@pytest.fixture(scope="module")
def fleet(openb) -> Fleet:
    return read_fleet(openb / "openb_node_list_gpu_node.csv.gz")


def read_mix(folder: Path, mix: str):
    return read_shapes(folder / f"openb_pod_list_{mix}.csv.gz")


def read_published(folder: Path, mix: str) -> dict[str, float]:
    """Mean percent of GPUs allocated at 130 % by rule, over the study's ten orders."""
    found: dict[str, list[float]] = {}
    with gzip.open(folder / "fgd_expected_allo.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["workload"] == f"openb_pod_list_{mix}":
                found.setdefault(row["sc_policy"], []).append(float(row["130"]))
    return {rule: sum(values) / len(values) for rule, values in found.items()}


def test_the_cluster_is_the_published_one(openb, fleet):
    assert len(fleet) == 1213
    assert fleet.capacity[:, fleet.device_column].sum() == 6_212_000
    shapes = read_mix(openb, "default")
    assert len(shapes) == 8152
    assert sum(shape.amount("gpu") for shape in shapes) == 6_086_800


@pytest.mark.long
def test_packs_tighter_than_best_fit_and_than_fgd(openb, fleet):
    published = read_published(openb, "default")
    assert published["05-BestFit"] == pytest.approx(93.08, abs=0.005)
    assert published["06-FGD"] == pytest.approx(95.39, abs=0.005)
    seeds = range(42, 42 + int(os.environ.get("PHALANX_OPENB_SEEDS", "3")))
    shapes = read_mix(openb, "default")
    allocated = [measure_allocated(fleet, shapes, ARRIVED, seed) for seed in seeds]
    assert sum(allocated) / len(allocated) >= published["06-FGD"]


@pytest.mark.parametrize("mix", rest_long(["multigpu50", "gpuspec33", "gpushare100"], short=1))
def test_packs_other_mixes_tighter_than_best_fit(openb, fleet, mix):
    """Many devices at once, members that name their model, and shares only."""
    assert measure_allocated(fleet, read_mix(openb, mix), ARRIVED, 42) >= read_published(openb, mix)["05-BestFit"]


@pytest.mark.long
def test_devices_and_amounts_agree_on_a_full_cluster(openb, fleet):
    state = fill(fleet, draw_arrivals(read_mix(openb, "gpushare100"), 6_212_000, 7))
    assert (state.nodes.free >= 0).all()
    assert (state.nodes.device_free >= 0).all()
    assert (state.nodes.free[:, fleet.device_column] == state.nodes.device_free.sum(axis=1)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sn,cpu_milli\nn0,1000\n", "has no column memory_mib, gpu"),
        ("sn,cpu_milli,memory_mib,gpu\nn0,1000,512,2\nn1,much,512,2\n", "line 3: cpu_milli must be a whole number"),
        ("sn,cpu_milli,memory_mib,gpu\nn0,1000\n", "line 2: has 2 fields, and the header has 4"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text, message):
    table = tmp_path / "nodes.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        read_fleet(table)
