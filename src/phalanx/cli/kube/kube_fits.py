"""`kubectl phalanx fit`: what would become of a manifest if it were created now."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from phalanx.cli.failure import CommandFailure
from phalanx.cli.host.listing import dump, output_option, print_wrapped
from phalanx.cli.host.text import clean, start_text
from phalanx.cli.host.why_text import LABEL, blocker_lines, labelled
from phalanx.cli.kube.kube_asking import WhichScheduler, asking, place_options
from phalanx.cli.kube.kube_listing import places
from phalanx.cli.kube.kube_whys import ahead_lines, funnel_lines, title

Told = dict[str, Any]
#: Of the verdicts these are failures: no cluster like this one ever starts it as it is written.
_FAILED: Final = frozenset({"never", "refused"})
_EXIT_INFEASIBLE: Final = 4
_SAID: Final = {
    "now": "fits now",
    "later": "would wait",
    "never": "can never run here",
    "refused": "would be refused",
    "incomplete": "would wait for more members",
    "unseen": "would wait, and nobody can say how long",
}


@click.command()
@click.option(
    *("-f", "--filename", "files"), required=True, multiple=True, metavar="FILE",
    help="A manifest; - for standard input. May be repeated.",
)  # fmt: skip
@place_options
@output_option("table", "json")
def fit(
    files: tuple[str, ...],
    place: WhichScheduler,
    output: str,
) -> None:
    """Say what would become of a manifest now: fits where, waits why and until when.

    Nothing is created: the scheduler tries it on a copy of what it knows. Pods, groups
    and what makes pods of a template are read. Ends with 4 if a gang could never run.

    \b
    kubectl phalanx fit -f job.yaml
    """
    # JSON is YAML too, and so are several of them with separators between.
    body = _read(files[0]) if len(files) == 1 else b"".join(b"---\n" + _read(file) + b"\n" for file in files)
    with asking(place) as asker:
        told = asker.post("/v1/fit", body, {"namespace": asker.namespace})
    if output == "json":
        dump(told)
    else:
        print_wrapped(page(told), LABEL + 2)
    if any(row["verdict"] in _FAILED for row in told["gangs"]):
        raise SystemExit(_EXIT_INFEASIBLE)


def page(told: Told) -> list[str]:
    """All gangs; pods that start one by one and fare alike are one of them."""
    lines: list[str] = []
    for _, same in groupby(told["gangs"], _alike):
        first, *others = same
        lines += [*([""] if lines else []), *lines_of(first)]
        if others:
            lines.append(labelled("ALIKE", f"{len(others)} more, up to {clean(others[-1]['name'])}"))
    return [*lines, *(f"note: {clean(each)}" for each in told["notices"])]


def _alike(row: Told) -> tuple[Any, ...]:
    if row["dialect"] != "plain":
        return (row["dialect"], row["namespace"], row["name"])
    return ("", row["verdict"], row["needs"], (row.get("reason") or {}).get("code"))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as bad:
        raise CommandFailure(f"cannot read {file}: {bad.strerror}", "-f names a file of manifests") from None


def lines_of(row: Told) -> list[str]:
    """One gang."""
    as_job = {"state": "pending", "reason": row.get("reason"), "blockers": row.get("blockers", [])}
    lines = [title({**row, "verdict": _SAID[row["verdict"]]}, row["needs"])]
    if row["verdict"] != "now":
        lines += [*blocker_lines(as_job), *ahead_lines(row), *funnel_lines(row.get("funnels", []))]
    eta = row.get("eta")
    if row["verdict"] == "later" and eta:
        hangs_on = clean(eta.get("hangs_on") or "")
        lines.append(labelled("STARTS", f"{start_text(eta)}{f'   {hangs_on}' if hangs_on else ''}"))
    if row.get("nodes"):
        lines.append(labelled("PLACES", places(row)))
    return [*lines, *(labelled("" if at else "NOTE", clean(each)) for at, each in enumerate(row.get("notices", [])))]
