"""`phalanx why`: the dominant blocker with numbers, the others, who is ahead, when it starts, what would help."""

from __future__ import annotations

from typing import Any, Final

import click

from phalanx.cli.host.following import ENDED, failure_lines
from phalanx.cli.host.listing import dump, output_option
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
    start_text,
    table,
)
from phalanx.client.daemon import Daemon, job_path

_LABEL: Final = 12
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
        [*_blockers(told), *_surplus(told), *_ahead(told), *_passing(told)],
        [*_starts(told), *_sooner(told)],
        [f"  {line}" for line in failed],
        _decisions(told, most),
    )
    click.echo("\n\n".join("\n".join(part) for part in parts if part))


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


def _blockers(told: Told) -> list[str]:
    reason = told.get("reason")
    if reason is None:
        return []
    label = "BLOCKED BY" if told["state"] == "pending" else "BECAUSE"
    lines = [_row(label, click.style(clean(reason["code"]), bold=True)), f"    {clean(reason['message'])}"]
    # Gates have one code, and each is lifted by something else.
    others = [
        each
        for each in told.get("blockers") or ()
        if each["code"] != reason["code"] or (each["code"] == "Held" and each["message"] != reason["message"])
    ]
    size = max((len(each["code"]) for each in others), default=0)
    for at, each in enumerate(others):
        lines.append(_row("" if at else "ALSO", f"{clean(each['code']):<{size}}  {clean(each['message'])}"))
    return lines


def _ahead(told: Told) -> list[str]:
    ahead = told.get("ahead") or {}
    if told["state"] != "pending" or not ahead.get("gangs"):
        return []
    gangs = f"{ahead['gangs']} gang{'s' if ahead['gangs'] != 1 else ''}, {gpus(ahead['gpus'])}"
    first = [f"#{job['id']} {clean(job.get('user', ''))} {gpus(job.get('gpus'))}" for job in ahead["jobs"]]
    more = ahead["gangs"] - len(first)
    return [
        _row("AHEAD", "  ".join([gangs, ", ".join([*first, *([f"and {more} more"] if more > 0 else [])])]).rstrip())
    ]


def _surplus(told: Told) -> list[str]:
    sentences = (told.get("surplus") or {}).get("sentences") or []
    return [_row("" if at else "SURPLUS", clean(line)) for at, line in enumerate(sentences)]


def _passing(told: Told) -> list[str]:
    lines = [each["message"] for each in told.get("passed_by") or ()]
    lines += [each["message"] for each in (told.get("fills_after"),) if each]
    return [_row("" if at else "PASSING", clean(line)) for at, line in enumerate(lines)]


def _starts(told: Told) -> list[str]:
    if told["state"] != "pending":
        return []
    eta = told.get("eta")
    starts = start_text(eta)
    if not starts and (told.get("reason") or {}).get("code") == "Held":
        return []  # whoever holds it can say
    if not starts:
        return [_row("STARTS", "nobody can say: nothing that is known ahead would start it")]
    hangs_on = clean((eta or {}).get("hangs_on") or "")
    return [_row("STARTS", f"{starts}{f'   {hangs_on}' if hangs_on else ''}")]


def _sooner(told: Told) -> list[str]:
    ways = told.get("sooner_if") or []
    if told["state"] != "pending" or not ways:
        return []
    cells = [
        [clean(way["what"]), clean(way["command"]), f"-> {due(way['at'])}" if way.get("at") else ""] for way in ways
    ]
    return [_row("" if at else "SOONER IF", line) for at, line in enumerate(table([], cells))]


def _decisions(told: Told, most: int) -> list[str]:
    """The last things that were decided about it; of a waiting job the blockers say more."""
    decisions = (told.get("decisions") or [])[-most:]
    if not decisions:
        return []
    cells = [[exact(each.get("at")), clean(each["event"]), data_text(each.get("data"))] for each in decisions]
    return [_row("" if at else "DECIDED", line) for at, line in enumerate(table([], cells))]


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}".rstrip()
