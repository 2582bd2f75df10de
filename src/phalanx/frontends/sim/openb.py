"""The openb log of a shared GPU cluster, as a question of packing.

Nodes and members come from two tables. The published study fills the cluster until a share of its
devices was asked for: all members in a shuffled order, then copies drawn at random. Nobody leaves,
and who finds no place is gone. Each member is a gang of one, decided by the engine like any other.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.policy import named

#: The label that says which device a node has; members may name several that will do.
MODEL_LABEL: Final = "gpu-model"

_MIB: Final = 1 << 20
_BATCH: Final = 500  # members submitted between two cycles; since nobody leaves, any number gives the same places


def read_fleet(path: Path) -> Fleet:
    """The nodes of a table: name, cores, memory, devices and their model."""
    return Fleet([_node(row) for row in _rows(path, ("cpu_milli", "memory_mib", "gpu"))], ())


def read_shapes(path: Path) -> list[Shape]:
    """What every member of a table asks for, in its order."""
    return [_shape(row) for row in _rows(path, ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))]


def draw_arrivals(shapes: Sequence[Shape], milli: float, seed: int) -> list[Shape]:
    """All members shuffled, then copies at random, until so many thousandths of devices were asked for."""
    rng = random.Random(seed)
    shuffled = rng.sample(shapes, len(shapes))
    arrivals: list[Shape] = []
    asked = 0
    while asked < milli:
        shape = shuffled[len(arrivals)] if len(arrivals) < len(shuffled) else rng.choice(shapes)
        arrivals.append(shape)
        asked += shape.amount(DEVICE_KIND)
    return arrivals


def fill(fleet: Fleet, arrivals: Sequence[Shape]) -> State:
    """Give every member its chance in order; the cluster as it is in the end."""
    state, policy = State(fleet), named("pod-fifo")
    for at in range(0, len(arrivals), _BATCH):
        roles = [Role(SOLE_ROLE, Sizes((1,)), shape) for shape in arrivals[at : at + _BATCH]]
        numbers = [state.submit(Gang(str(at + index), (role,))) for index, role in enumerate(roles)]
        plan = schedule(state.borrow(), policy)
        state.apply(plan)
        started = {decision.gang for decision in plan.decisions}
        for number in numbers:
            if number not in started:
                state.cancel(number)
    return state


def measure_allocated(fleet: Fleet, shapes: Sequence[Shape], arrived: float, seed: int) -> float:
    """Percent of the devices that are taken once `arrived` times as many were asked for."""
    column = fleet.device_column
    capacity = int(fleet.capacity[:, column].sum())
    state = fill(fleet, draw_arrivals(shapes, capacity * arrived, seed))
    return 100 * (1 - int(state.free[:, column].sum()) / capacity)


def _node(row: dict[str, str]) -> Node:
    labels = {MODEL_LABEL: row["model"]} if row.get("model") else {}
    return Node(row["sn"], _amounts(row, int(row["gpu"]) * MILLI), labels)


def _shape(row: dict[str, str]) -> Shape:
    need = _amounts(row, int(row["num_gpu"]) * int(row["gpu_milli"]))
    models = row.get("gpu_spec")  # some tables have no such column
    select = ((MODEL_LABEL, tuple(sorted(models.split("|")))),) if models else ()
    return Shape(tuple(sorted((kind, units) for kind, units in need.items() if units)), select)


def _amounts(row: dict[str, str], devices: int) -> dict[str, int]:
    return {DEVICE_KIND: devices, "cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * _MIB}


def _rows(path: Path, numbers: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a table that has these columns, all of whole numbers."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as bad:
        raise BadInput(f"cannot be read: {bad}", file=str(path)) from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in numbers if name not in (reader.fieldnames or ())]
    if missing:
        raise BadInput(f"has no column {', '.join(missing)}", file=str(path))
    rows = []
    for row in reader:
        if not all((row[name] or "").isdecimal() for name in numbers):
            raise BadInput(f"needs whole numbers as {', '.join(numbers)}", file=str(path), line=reader.line_num)
        rows.append(row)
    return rows
