"""`phalanx report`: where the GPU time went; `phalanx report eta`: how good the estimates were."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from phalanx.cli.host.completing import complete_report_keys
from phalanx.cli.host.listing import (
    FORMATS,
    Column,
    Row,
    choose_columns,
    columns_option,
    dump,
    output_option,
    print_rows,
)
from phalanx.cli.host.resting import is_at_rest, is_untouched, report_at_rest
from phalanx.cli.host.talking import HostFailure, failing, talking
from phalanx.cli.host.text import clean, exact, span
from phalanx.client.daemon_errors import UsageError
from phalanx.client.times import seconds_of

_HOUR_S: Final = 3600
_KEYS: Final = ("user", "queue", "job")
#: Parts of the ledger that a job can do something about, in the order of a job's life.
_PARTS: Final = ("startup", "snapshot", "restore", "resize", "lost", "idle_allocated")
_TOLD: Final = 0.0005


@click.group(invoke_without_command=True)
@click.option(
    "--by",
    default="user",
    show_default=True,
    help="user, queue, job; several with commas.",
    shell_complete=complete_report_keys,
)
@click.option("--since", metavar="LENGTH", help="Only the last 7d, 12h, ...")
@output_option(*FORMATS)
@columns_option
@click.pass_context
def report(
    context: click.Context, by: str, since: str | None, output: str, columns: str | None, no_headers: bool
) -> None:
    """Report where the GPU time went: progress, starting, saving, lost work, idle.

    \b
    phalanx report --by user,queue --since 7d
    phalanx report eta                 # how good our estimates were
    """
    if context.invoked_subcommand is not None:
        return
    keys = [key.strip() for key in by.split(",")]
    unknown = next((key for key in keys if key not in _KEYS), None)
    if unknown is not None:
        raise HostFailure(UsageError(f"--by {unknown!r} is nothing to report by", f"choose of {', '.join(_KEYS)}"))
    with failing():
        since_s = seconds_of(since, "--since") if since is not None else None
        if is_at_rest() or is_untouched():
            told = report_at_rest(lambda found: found.report(keys, since_s, time.time()))
        else:
            with talking() as daemon:
                told = daemon.get("/v1/report", {"by": ",".join(keys), "since_s": since_s})
        rows: list[Row] = told["rows"]
        known = _plain_columns(keys, rows) if output == "csv" else _columns(keys, rows)
        chosen = choose_columns(columns, known, [column.name for column in known])
    print_rows(rows, chosen, output, headers=not no_headers, none="nothing has run yet")
    if output in ("table", "wide") and len(rows) > 1:
        click.echo(_total(rows))


def _columns(keys: list[str], rows: list[Row]) -> list[Column]:
    """What the rows are about, and where the time went as far as anybody spent any there."""
    # Parts that nobody spent time on would only make the table wide.
    parts = [part for part in _PARTS if any(_share(row, part) >= _TOLD for row in rows)]
    cost = [Column("cost", lambda row: f"{row.get('cost') or 0:,.2f}", right=True)]
    return [
        *map(_key_column, keys),
        Column("jobs", lambda row: f"{row.get('jobs', 0):,}", right=True),
        Column("gpu_h", lambda row: f"{row.get('gpu_s', 0) / _HOUR_S:.2f}", right=True, plain=_gpu_hours),
        Column("goodput", lambda row: _percent(row.get("goodput")), right=True),
        *map(_part_column, parts),
        *(cost if any(row.get("cost") is not None for row in rows) else []),
    ]


def _plain_columns(keys: list[str], rows: list[Row]) -> list[Column]:
    """For programs: every part, whoever spent time on it, under a name that says in what it is counted."""
    usual = [column for column in _columns(keys, rows) if column.name not in _PARTS]
    return [
        *usual,
        *(Column(f"{part}_gpu_s", lambda row: "", plain=_spent_on(part)) for part in ("productive", *_PARTS)),
    ]


def _spent_on(part: str) -> Callable[[Row], object]:
    return lambda row: (row.get("ledger_gpu_s") or {}).get(part, 0.0)


def _key_column(key: str) -> Column:
    return Column(key, lambda row: clean(row.get(key, "-")))


def _part_column(part: str) -> Column:
    return Column(part, lambda row: _percent(_share(row, part)), right=True)


def _gpu_hours(row: Row) -> object:
    return round(float(row.get("gpu_s", 0)) / _HOUR_S, 4)


def _share(row: Row, part: str) -> float:
    spent = float((row.get("ledger_gpu_s") or {}).get(part) or 0.0)
    return spent / float(row["gpu_s"]) if row.get("gpu_s") else 0.0


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _total(rows: list[Row]) -> str:
    gpu_s = sum(float(row.get("gpu_s", 0)) for row in rows)
    useful = sum(float(row.get("gpu_s", 0)) * float(row.get("goodput") or 0) for row in rows)
    share = f", goodput {useful / gpu_s:.1%}" if gpu_s else ""
    return f"in all {sum(int(row.get('jobs', 0)) for row in rows):,} jobs, {gpu_s / _HOUR_S:.2f} GPU hours{share}"


@report.command()
@click.option("-v", "--verbose", is_flag=True, help="Also the single estimates.")
@output_option("table", "json", "csv")
def eta(verbose: bool, output: str) -> None:
    """Say how good the expected starts were: every estimate is kept and compared.

    \b
    phalanx report eta
    """
    if is_at_rest() or is_untouched():
        told = report_at_rest(lambda found: found.report_eta(), as_object=output == "json")
    else:
        with talking() as daemon:
            told = daemon.get("/v1/report/eta")
    if output == "json":
        dump(told)
        return
    if output == "csv":
        print_rows(told["rows"], _ESTIMATE, "csv")
        return
    for line in _eta_lines(told):
        click.echo(line)
    if verbose and told["rows"]:
        click.echo()
        print_rows(told["rows"], _ESTIMATE, "table")


def _eta_lines(told: dict[str, Any]) -> list[str]:
    if not told.get("count"):
        return ["no estimate has been put to the test yet: jobs must wait, and then start"]
    count = told["count"]
    lines = [f"{count:,} estimate{'s' if count != 1 else ''} of jobs that have started since"]
    if told.get("within_range") is not None:
        lines.append(f"  {'in the range that was given':<29} {told['within_range']:.0%}   (80% would be honest)")
    error = told.get("error_s") or {}
    for key, words in (("p50", "half of them off by at most"), ("p90", "nine in ten off by at most")):
        if error.get(key) is not None:
            lines.append(f"  {words:<29} {span(error[key])}")
    bias = told.get("bias_s")
    if bias is not None:
        words = f"on average too {'early' if bias > 0 else 'late'} by"
        lines.append(f"  {words:<29} {span(abs(bias))}")
    return lines


def _seconds(key: str) -> Column:
    return Column(key, lambda row: span(abs(row[key])) if row.get(key) is not None else "-", right=True)


_ESTIMATE: Final = (
    Column("job", lambda row: str(row.get("job", "-")), right=True),
    Column("made", lambda row: exact(row.get("made"))),
    Column("expected", lambda row: exact(row.get("expected") or row.get("at"))),
    Column("actual", lambda row: exact(row.get("actual"))),
    _seconds("error_s"),
    Column("predicted", lambda row: "yes" if row.get("predicted") else "no"),
)
