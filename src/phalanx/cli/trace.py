"""`phalanx trace`: make jobs up, look at a log, and turn one format into another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from phalanx.cli.failure import CannotWrite, CommandFailure
from phalanx.cli.screen import json_option, print_lines, print_sheet

if TYPE_CHECKING:
    from phalanx.frontends.sim.scenario import Scenario
    from phalanx.frontends.sim.traces.believed import Estimate

_MODELS = ("lublin", "lublin-all", "llm")
_ESTIMATES = ("requested", "actual", "rounded")
_SHARE = click.FloatRange(0, 1)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def share_options(command: _Command) -> _Command:
    """The options that give a share of the jobs something."""
    for option in (
        click.option("--elastic", type=_SHARE, default=0.0, help="Share of jobs of several members that may shrink."),
        click.option(
            "--preemptible", type=_SHARE, default=0.0, help="Share of jobs that may be evicted, and snapshot."
        ),
        click.option("--deadlines", type=_SHARE, default=0.0, help="Share of jobs with a deadline."),
    ):
        command = option(command)
    return command


@click.group()
def trace() -> None:
    """Make jobs up, look at a log, convert one."""


@trace.command()
@click.option("--model", type=click.Choice(_MODELS), required=True, help="What the jobs are like.")
@click.option("--jobs", type=int, required=True, help="How many.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed makes the same jobs.")
@click.option("--cluster", required=True, help="Nodes x GPUs, as 64x8, or a table of nodes (CSV).")
@click.option("--load", type=float, help="GPU time asked for over GPU time there is; llm: 0.9, lublin: as published.")
@click.option("--estimate", type=click.Choice(_ESTIMATES), default="rounded", show_default=True, help="The walltimes.")
@click.option("--mtbf", help="Nodes fail: mean time between failures of one node, as 30d.")
@click.option("--mttr", default="1h", show_default=True, help="Mean time until a failed node is back.")
@share_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; else YAML on standard output.")
def make(
    model: str,
    jobs: int,
    seed: int,
    cluster: str,
    load: float | None,
    estimate: Estimate,
    mtbf: str | None,
    mttr: str,
    elastic: float,
    preemptible: float,
    deadlines: float,
    output: Path | None,
) -> None:
    """Make jobs up from a seed, after a published model."""
    from dataclasses import replace

    from phalanx.control.spec.errors import BadInput
    from phalanx.frontends.sim.traces.making import Breakage, make_workload
    from phalanx.frontends.sim.traces.reading import find_cluster
    from phalanx.frontends.sim.traces.shares import TraitShares
    from phalanx.frontends.sim.traces.writing import check_name
    from phalanx.model.resources import DEVICE_KIND

    try:
        if output is not None:
            check_name(output)
        breakage = Breakage(_length_us("--mtbf", mtbf), _length_us("--mttr", mttr)) if mtbf else None
        found = find_cluster(cluster, DEVICE_KIND)
        shares = TraitShares(elastic, preemptible, deadlines)
        scenario = make_workload(
            model, jobs, seed, found.nodes, load=load, shares=shares, estimate=estimate, breakage=breakage
        )
    except BadInput as bad:
        raise CommandFailure(str(bad)) from None
    _write(output, replace(scenario, levels=found.levels))


@trace.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--cluster", help="Nodes x places, as 64x8, or a table of nodes (CSV), to go with the jobs of a log.")
@click.option("--estimate", type=click.Choice(_ESTIMATES), help="Run times that planning believes. Logs only.")
@click.option("--rates", type=click.Path(path_type=Path), help="Table of run times, for logs without (Sia, Gavel).")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the shares.")
@share_options
def convert(
    source: Path,
    target: Path,
    cluster: str | None,
    estimate: Estimate | None,
    rates: Path | None,
    seed: int,
    elastic: float,
    preemptible: float,
    deadlines: float,
) -> None:
    """Turn SOURCE into TARGET, whose name says the format: .yaml, .json, .csv or .swf.

    SOURCE is a scenario, an SWF log, or any log that `phalanx sim` reads.
    """
    from phalanx.control.spec.errors import BadInput
    from phalanx.frontends.sim.traces.reading import Reading, read_any
    from phalanx.frontends.sim.traces.shares import TraitShares
    from phalanx.frontends.sim.traces.writing import check_name

    try:
        check_name(target)
        reading = Reading(estimate, TraitShares(elastic, preemptible, deadlines), rates, seed)
        scenario = read_any(source, cluster, reading, bare=True)
    except BadInput as bad:
        raise CommandFailure(str(bad)) from None
    _write(target, scenario)
    if not scenario.nodes and target.name.lower().endswith((".yaml", ".yml", ".json")):
        click.echo(f"phalanx: {target}: holds no cluster, since the log has none; run it with --cluster", err=True)


@trace.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--cluster", help="Nodes x places, as 64x8, or a table of nodes (CSV): adds the load offered.")
@click.option("--estimate", type=click.Choice(_ESTIMATES), help="Run times that planning believes. Logs only.")
@click.option("--rates", type=click.Path(path_type=Path), help="Table of run times, for logs without (Sia, Gavel).")
@json_option("Print one JSON object.")
def show(file: Path, cluster: str | None, estimate: Estimate | None, rates: Path | None, as_json: bool) -> None:
    """Sum up what FILE holds: jobs, sizes, times, load."""
    from phalanx.control.spec.errors import BadInput
    from phalanx.frontends.sim.traces.reading import Reading, read_any
    from phalanx.frontends.sim.traces.summary import summarise, summary_sheets

    try:
        summary = summarise(read_any(file, cluster, Reading(estimate, rates=rates), bare=True))
    except BadInput as bad:
        raise CommandFailure(str(bad)) from None
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps(asdict(summary), indent=1))
        return
    for number, sheet in enumerate(summary_sheets(summary)):
        print_lines([""] if number else [])
        print_sheet(sheet)


def _write(target: Path | None, scenario: Scenario) -> None:
    """Write it, or print it; what the format cannot hold is one line on standard error."""
    from phalanx.frontends.sim.traces.writing import format_any, write_any

    if target is None:
        sys.stdout.write(format_any(".yaml", scenario)[0])
        return
    try:
        losses = write_any(target, scenario)
    except OSError as bad:
        raise CannotWrite(f"{target}: cannot be written: {bad.strerror or bad}") from None
    if losses:
        click.echo(f"phalanx: {target}: does not hold {', '.join(losses)}", err=True)


def _length_us(option: str, text: str) -> int:
    from phalanx.control.spec.errors import BadInput, BadText
    from phalanx.control.spec.quantity import duration_us

    try:
        found = duration_us(text)
    except BadText as bad:
        raise BadInput(f"{option} {bad}") from None
    if not found:
        raise BadInput(f"{option} must be more than 0")
    return found
