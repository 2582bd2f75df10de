"""Any file that holds jobs, as a scenario: what it is shows in what it holds, not in its name.

A scenario file says everything itself. A log says nothing about the machines, so it needs a cluster,
and may be given beliefs about run times and shares of gangs that are elastic or preemptible.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from phalanx.control.spec.errors import BadInput, list_words, show
from phalanx.control.spec.reader import Raw, parse_text, raw_of
from phalanx.control.spec.spot import Spot
from phalanx.frontends.sim.scenario import Scenario, parse_scenario, read_cluster, read_text
from phalanx.frontends.sim.traces import gpulogs, openb, plain, rates
from phalanx.frontends.sim.traces.believed import Estimate
from phalanx.frontends.sim.traces.files import decode, read_bytes
from phalanx.frontends.sim.traces.nodes import Cluster, is_table_of_nodes, read_nodes
from phalanx.frontends.sim.traces.scenarios import cluster_tree
from phalanx.frontends.sim.traces.shares import SHRINK, TraitShares, apply_shares
from phalanx.frontends.sim.traces.swf import is_swf, parse_swf
from phalanx.frontends.sim.traces.table import CsvTable
from phalanx.model.resources import DEVICE_KIND, SLOT_KIND

_SCENARIO_NAMES: Final = (".yaml", ".yml", ".json", ".toml")
_SWF_NAMES: Final = (".swf", ".swf.gz")
_TABLE_NAMES: Final = (".csv", ".tsv", ".trace", ".txt", ".gz")
_GRID: Final = re.compile(r"\s*[0-9]+\s*[x×]\s*[0-9]+\s*")

Reader = Callable[[CsvTable, Estimate], Scenario]

#: Name, the columns that make it one, and who reads it. Of several that fit, the one with most columns is meant.
_TABLES: Final[tuple[tuple[str, tuple[str, ...], Reader], ...]] = (
    ("a table of ours", plain.NEEDED, plain.read_plain),
    ("Philly", gpulogs.PHILLY, gpulogs.read_philly),
    ("Chronus", gpulogs.CHRONUS, gpulogs.read_chronus),
    ("ElasticFlow", gpulogs.ELASTICFLOW, gpulogs.read_elasticflow),
    ("Tiresias", gpulogs.TIRESIAS, gpulogs.read_tiresias),
    ("openb", (*openb.TIMES, *openb.SHAPES), openb.read_openb),
)
_SWF, _GAVEL, _SIA, _UNKNOWN = "SWF", "Gavel", "Sia", "unknown"
_LIKE_MIN: Final = 2  # columns that a header must share with a format to be called a broken one of it


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log is to be read. A scenario file says all that itself, and refuses it."""

    estimate: Estimate | None = None
    shares: TraitShares = TraitShares()  # noqa: RUF009 - frozen
    rates: Path | None = None
    seed: int = 0


def read_any(path: Path, cluster: str | None, reading: Reading = Reading(), *, bare: bool = False) -> Scenario:  # noqa: B008 - frozen
    """The jobs of any known file; `bare` allows a log without a cluster, for those who only look at the jobs."""
    name = path.name.lower()
    if name.endswith(_SCENARIO_NAMES):
        return _read_scenario(path, cluster, reading, bare=bare)
    if name.endswith(_SWF_NAMES) and cluster is None and not bare:
        raise _no_cluster(path, SLOT_KIND)  # before the file is opened: the answer is the same whatever is in it
    data = read_bytes(path)
    first = _first_line(data)
    if name.endswith(_SWF_NAMES) or is_swf(first):
        found = _SWF
    elif rates.is_gavel(first):
        found = _GAVEL
    else:
        found = _find_format(_columns(first)) or (_UNKNOWN if name.endswith(_TABLE_NAMES) else "")
    if not found:
        return _read_scenario(path, cluster, reading, bare=bare)
    scenario = _read_log(found, data, str(path), reading)
    # Sia's jobs say that any number of replicas up to theirs will do; others are not known to go so low.
    scenario = apply_shares(scenario, reading.shares, reading.seed, None if found == _SIA else SHRINK)
    return _on_cluster(scenario, cluster, path, bare=bare)


def find_cluster(text: str, kind: str) -> Cluster:
    """The nodes that `--cluster` names: NxM, or a table of nodes."""
    path = Path(text)
    if _GRID.fullmatch(text) or not (text.lower().endswith((".csv", ".csv.gz")) or path.is_file()):
        return Cluster(read_cluster(text, kind))
    return read_nodes(path)


def _read_scenario(path: Path, cluster: str | None, reading: Reading, *, bare: bool) -> Scenario:
    if reading.estimate is not None:
        raise BadInput("--estimate is about logs; a scenario states walltime and duration itself")
    if reading.shares.any or reading.rates is not None:
        raise BadInput("--elastic, --preemptible, --deadlines and --rates are about logs; a scenario says it itself")
    raw = parse_text(read_text(path), str(path), path.suffix)
    if cluster is None:
        without = bare and isinstance(raw.value, dict) and "cluster" not in raw.value
        return parse_scenario(Spot(raw, str(path)), () if without else None)
    found = find_cluster(cluster, DEVICE_KIND)
    if isinstance(raw.value, dict):
        # Put in place of the file's own, so that levels, events and windows are checked against it.
        raw = Raw({**raw.value, "cluster": raw_of(cluster_tree(found.nodes, found.levels))}, raw.line)
    scenario = parse_scenario(Spot(raw, str(path)))
    if _GRID.fullmatch(cluster) and _asked_kinds(scenario) == {SLOT_KIND}:
        return replace(scenario, nodes=read_cluster(cluster, SLOT_KIND))
    return scenario


def _read_log(found: str, data: bytes, file: str, reading: Reading) -> Scenario:
    estimate = reading.estimate or "requested"
    if found in (_SIA, _GAVEL):
        beside = rates.read_rates(reading.rates) if reading.rates is not None else None
        text = decode(data, file)
        if found == _SIA:
            return rates.read_sia(CsvTable(text, file), estimate, beside)
        return rates.read_gavel(text, file, estimate, beside)
    if reading.rates is not None and found != _UNKNOWN:
        raise BadInput("says itself how long its jobs run; leave --rates away", file=file)
    if found == _SWF:
        return parse_swf(data, file, estimate)
    table = CsvTable(decode(data, file), file)
    for name, _, read in _TABLES:
        if name == found:
            return read(table, estimate)
    raise _unknown(table)


def _find_format(columns: tuple[str, ...]) -> str | None:
    have = set(columns)
    known = [(name, needed) for name, needed, _ in _TABLES] + [(_SIA, rates.SIA)]
    fitting = [(len(needed), name) for name, needed in known if set(needed) <= have]
    return max(fitting)[1] if fitting else None


def _unknown(table: CsvTable) -> BadInput:
    """Why a table cannot be read: the nearest format lacks a column, or none is near."""
    if not table.columns:
        return BadInput("is empty; a log has a header and a row for every job", file=table.file)
    if is_table_of_nodes(table.columns):
        return BadInput("is a table of nodes; give it as --cluster, beside a log of jobs", file=table.file)
    have = set(table.columns)
    known = [(name, needed) for name, needed, _ in _TABLES] + [(_SIA, rates.SIA)]
    name, needed = max(known, key=lambda pair: len(have & set(pair[1])) / len(pair[1]))
    if len(have & set(needed)) >= _LIKE_MIN:
        missing = ", ".join(column for column in needed if column not in have)
        return table.fail(f"looks like {name}, and has no column {missing}")
    heads = "; ".join(f"{name}: {','.join(needed)}" for name, needed in known)
    have_words = list_words([show(column) for column in table.columns])
    return table.fail(f"is no log that is known here (columns {have_words}). Known are SWF, Gavel, and {heads}")


def _on_cluster(scenario: Scenario, cluster: str | None, path: Path, *, bare: bool) -> Scenario:
    kinds = _asked_kinds(scenario)
    kind = SLOT_KIND if kinds == {SLOT_KIND} else DEVICE_KIND
    if cluster is None:
        if bare:
            return scenario
        raise _no_cluster(path, kind)
    found = find_cluster(cluster, kind)
    missing = sorted(kinds - {name for node in found.nodes for name, units in node.resources.items() if units})
    if missing:
        what = " and ".join(missing)
        help_ = f"add a column {missing[0]}" if not _GRID.fullmatch(cluster) else "give a table of nodes that have it"
        raise BadInput(f"--cluster: the jobs of {path} ask for {what}, and no node of {cluster} has any; {help_}")
    return replace(scenario, nodes=found.nodes, levels=found.levels)


def _asked_kinds(scenario: Scenario) -> set[str]:
    shapes = {role.shape for gang in scenario.gangs for role in gang.roles}
    return {kind for shape in shapes for kind, _ in shape.need}


def _no_cluster(path: Path, kind: str) -> BadInput:
    if kind == SLOT_KIND:
        how = "add --cluster NODESxSLOTS, as --cluster 1x100"
    else:
        how = "add --cluster NODESxGPUS, as --cluster 64x8, or a table of nodes"
    return BadInput(f"a log does not say what it ran on; {how}", file=str(path))


def _first_line(data: bytes) -> str:
    head = data[:100_000].decode("utf-8-sig", errors="replace")
    return next((line for line in head.splitlines() if line.strip()), "")


def _columns(first: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in first.split(","))
