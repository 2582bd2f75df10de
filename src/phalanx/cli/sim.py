"""`phalanx sim`: run a scenario or a log under one or several policies and compare them."""

from __future__ import annotations

import gc
import io
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from phalanx.cli.failure import CannotWrite, CommandFailure
from phalanx.cli.host.completing import complete_policies
from phalanx.cli.screen import FORMAT, choose_glyphs, json_option, print_lines, print_sheet, share_bar
from phalanx.cli.trace import share_options

if TYPE_CHECKING:
    from phalanx.engine.policy import Policy
    from phalanx.frontends.sim.report.facts import ReportFacts
    from phalanx.frontends.sim.result import SimResult
    from phalanx.frontends.sim.scenario import Scenario
    from phalanx.frontends.sim.sweep import Share, Task
    from phalanx.frontends.sim.traces.believed import Estimate

_ESTIMATES = ("requested", "actual", "rounded")

#: Fewer gangs than this in all runs together are done before a second process has started.
_APART_GANGS_MIN: Final = 4_000

#: Values made before the collector looks for garbage among them; Python's own 700 suits programs that make fewer.
_YOUNG_MOST: Final = 400_000

#: Boxes that all Gantt charts of a report have together at the most; more would make the page slow to open.
_BOXES_MOST: Final = 36_000


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    help="Policies to run, separated by commas; else what the file says.",
    shell_complete=complete_policies,
)
@click.option("--cluster", help="Nodes x places, as 16x8, or a table of nodes (CSV). A log needs it.")
@click.option("--estimate", type=click.Choice(_ESTIMATES), help="Run times that planning believes. Logs only.")
@click.option("--rates", type=click.Path(path_type=Path), help="Table of run times, for logs without (Sia, Gavel).")
@share_options
@click.option("--seed", type=int, help="Seed of everything random.  [default: 0]")
@click.option("--seeds", "many", help="Several seeds, as 0-9 or 1,3,5; the table then shows means.")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time; else as many as there are cores.")
@json_option("Print JSON, one list with an element per policy and seed; -o csv: a row per gang.", "csv")
@click.option("--report", type=click.Path(path_type=Path), help="Write a report: .html, or a figure: .svg, .png.")
@click.option("--gantt/--no-gantt", default=True, help="Draw small runs.", show_default=True)
@click.pass_context
def sim(
    context: click.Context,
    file: Path,
    policies: str | None,
    cluster: str | None,
    estimate: Estimate | None,
    rates: Path | None,
    elastic: float,
    preemptible: float,
    deadlines: float,
    seed: int | None,
    many: str | None,
    jobs: int | None,
    as_json: bool,
    report: Path | None,
    gantt: bool,
) -> None:
    """Run a scenario or a log under policies and compare them.

    FILE is a scenario (.yaml, .json, .toml), an SWF log (.swf, .swf.gz) or a log
    in CSV (Philly, Chronus, ElasticFlow, Tiresias, openb, Sia, Gavel, or ours).
    The same engine decides here as on a real cluster, on a virtual clock.
    """
    from phalanx.control.spec.errors import BadInput
    from phalanx.frontends.sim.sweep import RunLost, make_tasks, run_sweep
    from phalanx.frontends.sim.traces.reading import Reading, read_any
    from phalanx.frontends.sim.traces.shares import TraitShares

    @lru_cache(maxsize=4)
    def read(chosen_seed: int) -> Scenario:
        traits = TraitShares(elastic, preemptible, deadlines)
        return read_any(file, cluster, Reading(estimate, traits, rates, chosen_seed))

    try:
        collect_seldom()
        seeds = _seeds(seed, many)
        _check_report(report)
        scenario = read(seeds[0])
        # All names are checked before the first run: nobody wants to hear of a typo after a minute.
        places = [Path()] if policies is not None else [file.parent, Path()]
        tasks = make_tasks([check_policy(*each, places) for each in _chosen(scenario, policies)], seeds)
        as_csv = context.meta.get(FORMAT) == "csv"
        runner = Runner(read, seeds, as_json=as_json or as_csv, boxes=_boxes_each(report, len(tasks) // len(seeds)))
        gangs = len(scenario.gangs) * len(tasks)
        title = tasks[0].label if len(tasks) == 1 else f"{len(tasks)} runs"
        with share_bar(title, gangs) as progress:
            products = run_sweep(tasks, runner, _choose_jobs(jobs, gangs), progress)
    except (BadInput, RunLost) as bad:
        raise CommandFailure(str(bad)) from None
    # Before anything is printed, since the reader of a pipe may leave; but the numbers are printed in any case.
    problem = _write_report(context, report, scenario, products, seeds)
    if as_json:
        click.echo(b"[" + b",".join(product.encoded for product in products) + b"]\n", nl=False)
    elif as_csv:
        _print_rows(products)
    elif len(seeds) > 1:
        _print_means(scenario, products, seeds)
    else:
        _print(scenario, [product.result for product in products], gantt=gantt)
    if problem is not None:
        raise problem
    if report is not None and not (as_json or as_csv):
        print_lines(["", f"report: {report}"])


def collect_seldom() -> None:
    """Let the collector of garbage look less often, for the rest of this process.

    A run makes hundreds of thousands of values that live to its end and hardly a cycle. Looking through all of
    them again and again took half of the time of writing the JSON of a log (KTH-SP2: 0.33 s, without it 0.14 s).
    What is not looked at in between is bounded: as many young values as the number says.
    """
    gc.set_threshold(_YOUNG_MOST, *gc.get_threshold()[1:])


@dataclass(frozen=True, slots=True)
class Product:
    """What is kept of a run, in the process that asked for it."""

    result: SimResult  # with more gangs than a table shows: without their histories
    encoded: bytes  # as JSON, if that is wanted
    facts: ReportFacts


class Runner:
    """Runs one task and keeps of it what will be shown."""

    def __init__(
        self, read: Callable[[int], Scenario], seeds: Sequence[int], *, as_json: bool, boxes: int | None
    ) -> None:
        """`read` gives the scenario of a seed; `boxes` bounds the Gantt chart, None if there is no report."""
        self._read, self._seeds, self._as_json, self._boxes = read, seeds, as_json, boxes

    def __call__(self, task: Task, tell: Share) -> Product:
        """Run it. Pictures are made of the first seed only: ten Gantt charts of one policy tell no more than one."""
        from phalanx.frontends.sim.jsonout import encode_results
        from phalanx.frontends.sim.report.facts import collect_facts
        from phalanx.frontends.sim.report.waiting_reasons import make_listener
        from phalanx.frontends.sim.sweep import play
        from phalanx.frontends.sim.text_gantt import ROWS_MAX

        scenario, policy = self._read(task.seed), find_policy(task)
        # A policy of a file is called what it calls itself, not what its path is.
        task = replace(task, policy=policy, label=policy.name if task.label == task.policy else task.label)
        boxes = self._boxes if task.seed == self._seeds[0] else None
        listener = None if boxes is None else make_listener(policy, len(scenario.gangs))
        result = play(scenario, task, tell, listener)
        if listener is not None:
            listener.write_into(result)
        facts = collect_facts(scenario, result, task.label, boxes)
        # One element of the list: the brackets and the line's end are put around all of them.
        encoded = encode_results([result])[1:-2] if self._as_json else b""
        if len(result.gangs) > ROWS_MAX:
            for gang in result.gangs:
                gang.history, gang.placement = [], {}
        return Product(result, encoded, facts)


def find_policy(task: Task) -> Policy:
    """The policy of a task, made if it is given by its name or by the place of a file."""
    from phalanx.control.policies import find_policy as find

    return find(task.policy, task.options) if isinstance(task.policy, str) else task.policy


def _seeds(seed: int | None, many: str | None) -> list[int]:
    from phalanx.frontends.sim.sweep import parse_seeds

    if many is None:
        return [seed or 0]
    if seed is not None:
        raise CommandFailure("--seed and --seeds say the same thing twice; keep one of them")
    return parse_seeds(many)


def _choose_jobs(jobs: int | None, gangs: int) -> int:
    from phalanx.frontends.sim.sweep import count_cores

    if jobs is not None:
        return jobs
    return count_cores() if gangs >= _APART_GANGS_MIN else 1


def _check_report(report: Path | None) -> None:
    """Nobody wants to hear after an hour that there is no place for the report."""
    if report is not None:
        from phalanx.frontends.sim.report.destination import check_place

        check_place(report)


def _boxes_each(report: Path | None, policies: int) -> int | None:
    return None if report is None else max(2_000, min(12_000, _BOXES_MOST // policies))


def _write_report(
    context: click.Context, report: Path | None, scenario: Scenario, products: Sequence[Product], seeds: Sequence[int]
) -> CannotWrite | None:
    """Write it, or say why not."""
    if report is None:
        return None
    from phalanx.control.spec.errors import BadInput
    from phalanx.frontends.sim.report.heading import make_heading
    from phalanx.frontends.sim.report.write import write_report

    heading = make_heading(scenario, context.params["file"].name, _command(context), seeds)
    try:
        write_report(report, heading, [product.facts for product in products])
    except BadInput as bad:
        return CannotWrite(str(bad))
    return None


def _command(context: click.Context) -> str:
    """What was typed, without the folders of this machine."""
    words = ["phalanx", "sim", context.params["file"].name]
    for option in context.command.params:
        name = option.name or ""
        if (
            not isinstance(option, click.Option)
            or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE
        ):
            continue
        value = context.params[name]
        if option.is_flag:
            words.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            words += [option.opts[0], value.name if isinstance(value, Path) else str(value)]
    return shlex.join(words)


def check_policy(
    name: str, options: Mapping[str, object], places: Sequence[Path] = (Path(),)
) -> tuple[str, Mapping[str, object]]:
    """The same policy and options, or a failure that says why not. The file of a user's own is looked for in places."""
    from phalanx.control.policies import find_policy, settle_name
    from phalanx.control.spec.errors import list_words, suggest
    from phalanx.policy import BadOption, UnknownPolicy

    try:
        find_policy(name, options, places)
    except UnknownPolicy as bad:
        near = suggest(name, bad.known)
        known = "" if near.startswith("valid") else f" Valid: {list_words(bad.known)}"
        raise CommandFailure(f"there is no policy {name!r}; {near}{known}") from None
    except BadOption as bad:
        raise CommandFailure(str(bad)) from None
    return settle_name(name, places), options


def _chosen(scenario: Scenario, policies: str | None) -> list[tuple[str, Mapping[str, object]]]:
    """The policies to run. Options of the file hold for the policy it names, also when it is asked for by name."""
    if policies is None:
        return list(scenario.policies)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise CommandFailure("--policy names none; write --policy fcfs,easy")
    options = dict(scenario.policies)
    return [(name, options.get(name, {})) for name in dict.fromkeys(names)]


def _print(scenario: Scenario, results: list[SimResult], *, gantt: bool) -> None:
    from phalanx.frontends.sim.metrics import find_horizon
    from phalanx.frontends.sim.printing import comparison_sheet, gang_sheet, reason_lines
    from phalanx.frontends.sim.text_gantt import draw_gantt

    if scenario.dropped:
        print_lines([f"{scenario.dropped:,} jobs of the log never ran, or asked for nothing, and are left out", ""])
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


def _print_rows(products: Sequence[Product]) -> None:
    from phalanx.frontends.sim.library import write_rows

    text = io.StringIO()
    write_rows((json.loads(product.encoded) for product in products), text)
    click.echo(text.getvalue(), nl=False)


def _print_means(scenario: Scenario, products: Sequence[Product], seeds: Sequence[int]) -> None:
    from phalanx.frontends.sim.report.comparison import seeds_sheet
    from phalanx.frontends.sim.report.heading import describe_seeds, make_heading

    unit = make_heading(scenario, "", "", seeds).unit
    print_lines([f"means over seeds {describe_seeds(seeds)}, ± standard deviation"])
    by_policy: dict[str, list[Mapping[str, object]]] = {}
    for product in products:
        by_policy.setdefault(product.result.policy, []).append(product.result.metrics)
    if all(each == metrics[0] for metrics in by_policy.values() for each in metrics):
        # A deviation of nothing looks like a finding; it says that the seeds decided nothing.
        print_lines(["every seed gave the same: nothing here is drawn, as --elastic and failures: would be"])
    print_lines([""])
    print_sheet(seeds_sheet([product.facts for product in products], unit))
