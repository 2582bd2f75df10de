"""The tables of the openb log, a shared GPU cluster: its nodes, and what ran on them.

A member asks for cores, memory and whole GPUs or a share of one, and may name the models that will
do. Each is a gang of one. Those that were never scheduled have no run time and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadText, show
from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.frontends.sim.traces.believed import Estimate, believe_us
from phalanx.frontends.sim.traces.files import decode, read_bytes
from phalanx.frontends.sim.traces.table import (
    Cells,
    CsvTable,
    check_word,
    note_name,
    parse_named,
    parse_time_us,
    parse_whole,
    read_rows,
)
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.resources import DEVICE_KIND, MILLI

NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu")
SHAPES: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES: Final = ("name", "creation_time", "deletion_time", "scheduled_time")

#: The label that says which device a node has; members may name several that will do.
MODEL_LABEL: Final = "gpu-model"

_MIB: Final = 1 << 20
_ONE: Final = Sizes((1,))


def read_fleet(path: Path) -> Fleet:
    """The nodes of a table: name, cores, memory, devices and their model."""
    return Fleet(list(parse_nodes(CsvTable(decode(read_bytes(path), str(path)), str(path)))), ())


def read_shapes(path: Path) -> list[Shape]:
    """What every member of a table asks for, in its order."""
    table = CsvTable(decode(read_bytes(path), str(path)), str(path))
    columns = _with_models(table, SHAPES, "gpu_spec")
    with table.placing():
        return [_shape(row) for row in read_rows(table, columns)]


def parse_nodes(table: CsvTable) -> Iterator[Node]:
    """The nodes of a table of this log, as its rows are read."""
    with table.placing():
        for row in read_rows(table, _with_models(table, NODES, "model")):
            labels = {MODEL_LABEL: check_word(row[4], "model")} if len(row) > len(NODES) and row[4].strip() else {}
            devices = parse_named("gpu", row[3], parse_whole) * MILLI
            yield Node(check_word(row[0], "sn"), _amounts(row[1], row[2], devices), labels)


def read_openb(table: CsvTable, estimate: Estimate) -> Scenario:
    """The members with the times at which they came and went, as gangs of one."""
    found: list[tuple[Gang, TrueRun]] = []
    roles_by_shape: dict[tuple[str, ...], tuple[Role, ...]] = {}
    cells = [Cells(name, parse_time_us) for name in TIMES[1:]]
    dropped = 0
    seen: set[str] = set()
    with table.placing():
        for row in read_rows(table, _with_models(table, (*TIMES, *SHAPES), "gpu_spec")):
            name, shape = note_name(check_word(row[0], "name"), seen), row[len(TIMES) :]
            run_us = _run_us(row, cells)
            if not run_us:
                dropped += 1
                continue
            if shape not in roles_by_shape:
                roles_by_shape[shape] = (Role(SOLE_ROLE, _ONE, _shape(shape)),)
            walltime_us = believe_us(estimate, run_us, 0)
            gang = Gang(name, roles_by_shape[shape], cells[0][row[1]], walltime_us=walltime_us)
            found.append((gang, TrueRun(run_us)))
    if not found:
        raise table.fail(f"holds no job that ran ({dropped:,} left out)")
    found.sort(key=lambda pair: pair[0].submit_us)
    return Scenario((), (), tuple(gang for gang, _ in found), tuple(truth for _, truth in found), dropped=dropped)


def _run_us(row: tuple[str, ...], cells: list[Cells]) -> int:
    """From the time it was scheduled to the time it was deleted; 0 if it never was scheduled."""
    if not row[3].strip():
        return 0
    run_us = cells[1][row[2]] - cells[2][row[3]]
    if run_us < 0:
        raise BadText(f"deletion_time {show(row[2])} is before scheduled_time {show(row[3])}")
    return run_us


def _shape(row: tuple[str, ...]) -> Shape:
    cores, memory, count, share = row[:4]
    devices = parse_named("num_gpu", count, parse_whole) * parse_named("gpu_milli", share, parse_whole)
    if devices > MILLI and devices % MILLI:
        raise BadText(f"num_gpu {count} of gpu_milli {share} each cannot be held; above one device they are whole")
    need = _amounts(cores, memory, devices)
    models = check_word(row[4], "gpu_spec") if len(row) > len(SHAPES) else ""
    select = ((MODEL_LABEL, tuple(sorted(models.split("|")))),) if models else ()
    asked = tuple(sorted((kind, units) for kind, units in need.items() if units))
    if not asked:
        raise BadText("asks for nothing at all")
    return Shape(asked, select)


def _amounts(cores: str, memory: str, devices: int) -> dict[str, int]:
    return {
        DEVICE_KIND: devices,
        "cpu": parse_named("cpu_milli", cores, parse_whole),
        "memory": parse_named("memory_mib", memory, parse_whole) * _MIB,
    }


def _with_models(table: CsvTable, columns: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The columns, and that of the models where the table has one: some of the log's tables do not."""
    return (*columns, name) if name in table.columns else columns
