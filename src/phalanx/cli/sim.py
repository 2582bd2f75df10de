"""`phalanx sim`: run a scenario or a log under one or several policies and compare them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.failure import Failure
from phalanx.cli.screen import choose_glyphs, print_lines, print_sheet, progress_bar

if TYPE_CHECKING:
    from phalanx.frontends.sim.result import SimResult
    from phalanx.frontends.sim.scenario import Scenario
    from phalanx.frontends.sim.swf import Estimate

_ESTIMATES = ("requested", "actual", "rounded")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", "policies", help="Policies to run, separated by commas; else what the file says.")
@click.option("--cluster", help="Nodes x places, as 16x8. A log needs it; of a scenario it replaces the cluster.")
@click.option("--estimate", type=click.Choice(_ESTIMATES), help="Run times that planning believes. Logs only.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one list with an element per policy.")
@click.option("--gantt/--no-gantt", default=True, help="Draw small runs.", show_default=True)
def sim(
    file: Path,
    policies: str | None,
    cluster: str | None,
    estimate: Estimate | None,
    seed: int,
    as_json: bool,
    gantt: bool,
) -> None:
    """Run a scenario or a log under policies and compare them.

    FILE is a scenario (.yaml, .json, .toml) or an SWF log (.swf, .swf.gz).
    The same engine decides here as on a real cluster, on a virtual clock.
    """
    from phalanx.control.spec.errors import BadInput

    try:
        scenario = _read(file, cluster, estimate)
        # All names are checked before the first run: nobody wants to hear of a typo after a minute.
        chosen = [check_policy(name, options) for name, options in _chosen(scenario, policies)]
        results = [run_policy(scenario, name, options, seed) for name, options in chosen]
    except BadInput as bad:
        raise Failure(str(bad)) from None
    if as_json:
        from phalanx.frontends.sim.jsonout import encode_results

        click.echo(encode_results(results), nl=False)
    else:
        _print(scenario, results, gantt=gantt)


def check_policy(name: str, options: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """The same policy and options, or a failure that names the known ones."""
    from phalanx.control.spec.errors import list_words, suggest
    from phalanx.policy import BadOption, UnknownPolicy, named

    try:
        named(name, options)
    except UnknownPolicy as bad:
        near = suggest(name, bad.known)
        known = "" if near.startswith("valid") else f" Valid: {list_words(bad.known)}"
        raise Failure(f"there is no policy {name!r}; {near}{known}") from None
    except BadOption as bad:
        raise Failure(str(bad)) from None
    return name, options


def run_policy(scenario: Scenario, name: str, options: Mapping[str, object], seed: int) -> SimResult:
    """One run, with a bar where it takes long and somebody watches."""
    import gc

    from phalanx.frontends.sim.run import simulate

    # A run keeps what it makes until it is printed: looking for garbage every 700 objects finds none.
    gc.set_threshold(100_000, 50, 100)
    with progress_bar(name, len(scenario.gangs)) as progress:
        return simulate(scenario, name, options, seed, progress)


def _read(file: Path, cluster: str | None, estimate: Estimate | None) -> Scenario:
    from phalanx.frontends.sim.scenario import read_cluster, read_scenario
    from phalanx.model.resources import DEVICE_KIND, SLOT_KIND

    if not file.name.lower().endswith((".swf", ".swf.gz")):
        if estimate is not None:
            raise Failure("--estimate is about logs; a scenario states walltime and duration itself")
        nodes = read_cluster(cluster, DEVICE_KIND) if cluster else None
        return read_scenario(file, nodes)
    from phalanx.frontends.sim.swf import read_swf

    if cluster is None:
        raise Failure(f"{file}: a log does not say what it ran on; add --cluster NODESxSLOTS, as --cluster 1x100")
    return read_swf(file, estimate or "requested", read_cluster(cluster, SLOT_KIND))


def _chosen(scenario: Scenario, policies: str | None) -> list[tuple[str, Mapping[str, object]]]:
    """The policies to run. Options of the file hold for the policy it names, also when it is asked for by name."""
    if policies is None:
        return list(scenario.policies)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise Failure("--policy names none; write --policy fcfs,easy")
    options = dict(scenario.policies)
    return [(name, options.get(name, {})) for name in dict.fromkeys(names)]


def _print(scenario: Scenario, results: list[SimResult], *, gantt: bool) -> None:
    from phalanx.frontends.sim.gantt import draw_gantt
    from phalanx.frontends.sim.metrics import find_horizon
    from phalanx.frontends.sim.printing import comparison_sheet, gang_sheet, reason_lines

    if scenario.dropped:
        print_lines([f"{scenario.dropped:,} jobs of the log never ran and are left out", ""])
    # One time axis for all policies: pictures that are to be compared must have the same scale.
    horizons = [find_horizon(result.gangs, scenario.until_us) for result in results]
    horizon = min(first for first, _ in horizons), max(last for _, last in horizons)
    for result in results:
        sheet = gang_sheet(result)
        if sheet is not None:
            print_sheet(sheet)
            picture = draw_gantt(result.gangs, horizon, choose_glyphs()) if gantt else []
            print_lines(["", *picture] if picture else [])
        why = reason_lines(result)
        if why:
            heading = [] if sheet is not None else [f"policy {result.policy}"]
            print_lines([*([""] if sheet is not None else []), *heading, *why])
        print_lines([""] if sheet is not None or why else [])
    print_sheet(comparison_sheet(results))
