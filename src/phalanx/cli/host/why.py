"""`phalanx why`: the dominant blocker with numbers, the others, who is ahead, when it starts, what would help."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.following import ENDED, failure_lines
from phalanx.cli.host.listing import dump, output_option, print_wrapped
from phalanx.cli.host.talking import for_each, ref_argument, talking
from phalanx.cli.host.text import (
    clean,
    data_text,
    due,
    exact,
    gpus,
    instant,
    now,
    painted,
    span,
    table,
)
from phalanx.cli.host.why_text import LABEL, blocker_lines, labelled, passing_lines, start_lines
from phalanx.client.daemon import Daemon, job_path

_DECISIONS: Final = 5

Told = dict[str, Any]


@click.command()
@ref_argument
@click.option("-v", "--verbose", is_flag=True, help="All that was decided about it, not only the last few.")
@output_option("table", "json")
def why(ref: str, verbose: bool, output: str) -> None:
    """Say why a job is where it is: what blocks it, who is ahead, when it starts, what would help.

    Of a running job: what was decided about it; of an ended one: how it ended.

    \b
    phalanx why 12
    """
    with talking() as daemon:
        found = for_each(ref, lambda each: daemon.get(job_path(each, "why")))
        if output == "json":
            dump(found if len(found) > 1 else found[0])
            return
        for at, told in enumerate(found):
            if at:
                click.echo()
            _print(told, _failure(daemon, told) if told["state"] in ENDED else [], verbose=verbose)


def _print(told: Told, failed: list[str], *, verbose: bool) -> None:
    """One job."""
    most = len(told.get("decisions") or ()) if verbose else _DECISIONS
    parts = (
        [_title(told)],
        [*blocker_lines(told), *_surplus(told), *_ahead(told), *passing_lines(told)],
        [*start_lines(told), *_sooner(told)],
        [f"  {line}" for line in failed],
        _decisions(told, most),
    )
    lines = "\n\n".join("\n".join(part) for part in parts if part).split("\n")
    print_wrapped(lines, LABEL + 2)


def _failure(daemon: Daemon, told: Told) -> list[str]:
    return failure_lines(daemon.get(job_path(str(told["id"]))))


def _title(told: Told) -> str:
    since = instant(told.get("since"))
    age = f" {span((now() - since).total_seconds())}" if since else ""
    words = [f"{told['id']} {clean(told['name'])}", painted(told["state"], f"{told['state'].upper()}{age}")]
    if told.get("queue"):
        words.append(f"queue {clean(told['queue'])}")
    if told.get("needs"):
        words.append(f"needs {clean(told['needs'])}")
    return "  ".join(words)


def _ahead(told: Told) -> list[str]:
    ahead = told.get("ahead") or {}
    if told["state"] != "pending" or not ahead.get("gangs"):
        return []
    gangs = f"{ahead['gangs']} gang{'s' if ahead['gangs'] != 1 else ''}, {gpus(ahead['gpus'])}"
    first = [f"#{job['id']} {clean(job.get('user', ''))} {gpus(job.get('gpus'))}" for job in ahead["jobs"]]
    more = ahead["gangs"] - len(first)
    return [
        labelled("AHEAD", "  ".join([gangs, ", ".join([*first, *([f"and {more} more"] if more > 0 else [])])]).rstrip())
    ]


def _surplus(told: Told) -> list[str]:
    sentences = (told.get("surplus") or {}).get("sentences") or []
    return [labelled("" if at else "SURPLUS", clean(line)) for at, line in enumerate(sentences)]


def _sooner(told: Told) -> list[str]:
    ways = told.get("sooner_if") or []
    if told["state"] != "pending" or not ways:
        return []
    cells = [
        [clean(way["what"]), clean(way["command"]), f"-> {due(way['at'])}" if way.get("at") else ""] for way in ways
    ]
    return [labelled("" if at else "SOONER IF", line) for at, line in enumerate(table([], cells))]


def _decisions(told: Told, most: int) -> list[str]:
    """The last things that were decided about it; of a waiting job the blockers say more."""
    decisions = (told.get("decisions") or [])[-most:]
    if not decisions:
        return []
    cells = [
        [exact(each.get("at")), clean(each["event"]), data_text(each.get("data"), each.get("at"))] for each in decisions
    ]
    return [labelled("" if at else "DECIDED", line) for at, line in enumerate(table([], cells))]
