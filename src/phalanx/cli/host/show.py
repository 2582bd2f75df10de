"""`phalanx show`: everything about one job."""

from __future__ import annotations

import shlex
from typing import Any, Final

import click

from phalanx.cli.host.following import failure_lines
from phalanx.cli.host.listing import dump, output_option
from phalanx.cli.host.ps import info, places
from phalanx.cli.host.talking import for_each, ref_argument, talking
from phalanx.cli.host.text import amounts, clean, data_text, exact, number, painted, sizes, span, start_text, table
from phalanx.client.daemon import job_path

_LABEL: Final = 12
_EVENTS: Final = 12
_RANKS: Final = 32
_COMMAND_CHARS: Final = 400
_GRACE_S: Final = 10.0  # what everybody has who says nothing
_TOLD: Final = 0.005  # smaller shares round to nothing

Told = dict[str, Any]


@click.command()
@ref_argument
@click.option("--env", "with_env", is_flag=True, help="Also its environment.")
@output_option("table", "json")
def show(ref: str, with_env: bool, output: str) -> None:
    """Show everything about one job: what it asked for, its members, what happened to it.

    \b
    phalanx show 12
    """
    with talking() as daemon:
        found = for_each(ref, lambda each: daemon.get(job_path(each), {"env": "1"} if with_env else None))
    for told in () if with_env else found:
        told["env"] = None  # a daemon of an earlier version sends it unasked
    if output == "json":
        dump(found if len(found) > 1 else found[0])
        return
    for at, told in enumerate(found):
        if at:
            click.echo()
        _print(told, with_env=with_env)


def _print(told: Told, *, with_env: bool) -> None:
    """One job."""
    job = told["job"]
    lines = [f"{job['id']} {clean(job['name'])}  {painted(job['state'], job['state'].upper())}  {info(job)}".rstrip()]
    lines += [f"  {label:<{_LABEL}}{text}".rstrip() for label, text in _facts(told) if text]
    lines += _members(told)
    lines += [f"  {line}" for line in failure_lines(told)]
    lines += _history(told)
    if with_env:
        lines += ["", *(f"  {clean(name)}={clean(value)}" for name, value in sorted((told.get("env") or {}).items()))]
    for line in lines:
        click.echo(line)


def _facts(told: Told) -> list[tuple[str, str]]:
    job, gang = told["job"], told.get("gang") or {}
    reason = job.get("reason")
    return [
        ("user", clean(job["user"])),
        ("queue", f"{clean(job['queue'])}, priority {job.get('priority', 0)}"),
        ("members", f"{sizes(job)}{_each(gang)}"),
        ("GPUs", number(job.get("gpus"))),
        ("places", clean(places(job))),
        *_asked(told.get("asked") or {}),
        ("command", _command(told.get("command"))),
        ("directory", clean(told.get("cwd") or "")),
        ("submitted", exact(job.get("submitted"))),
        ("waited", span(job.get("waited_s") or 0)),
        ("started", exact(job["started"]) if job.get("started") else ""),
        ("ran", span(job["ran_s"]) if job.get("started") else ""),
        ("ended", exact(job["ended"]) if job.get("ended") else ""),
        ("exit code", str(job["exit_code"]) if job.get("exit_code") is not None else ""),
        ("attempts", str(told["attempts"]) if told.get("attempts", 0) > 1 else ""),
        ("reason", f"{clean(reason['code'])}: {clean(reason['message'])}" if reason else ""),
        # Said in the first line if the daemon said it: two roundings of one range read like two forecasts.
        ("starts", "" if "starts" in info(job) or job["state"] != "pending" else start_text(job.get("eta"))),
        ("goodput", _goodput(told.get("ledger_gpu_s") or {})),
        ("run dir", clean(told.get("run_dir") or "")),
    ]


def _asked(asked: Told) -> list[tuple[str, str]]:
    """What it asked for beside its shape."""
    guessed = asked.get("time_guessed_s")
    time = span(asked["time_s"]) if asked.get("time_s") else ""
    warn = f", {clean(asked['warn'])}" if asked.get("warn") else ""
    restarts = f"{asked['restarts']}, {asked.get('restarts_left', 0)} left" if asked.get("restarts") else ""
    after = ", ".join(map(str, asked.get("after") or ()))
    topology = (f"{clean(kind)} {clean(level)}" for kind, level in (asked.get("topology") or {}).items())
    return [
        ("time", time or (f"{span(guessed)}, guessed from earlier runs" if guessed else "not stated")),
        ("kill after", f"{span(asked['kill_after_s'])}{warn}" if asked.get("kill_after_s") else ""),
        ("deadline", exact(asked["deadline"]) if asked.get("deadline") else ""),
        ("begin", exact(asked["begin"]) if asked.get("begin") else ""),
        ("after", f"{after}{', however they end' if asked.get('after_any') else ''}" if after else ""),
        ("restarts", restarts),
        ("grace", span(asked["grace_s"]) if asked.get("grace_s", _GRACE_S) != _GRACE_S else ""),
        ("progress", clean(asked.get("progress_regex", ""))),
        ("preemptible", "yes, and waits again" if asked.get("requeue") else "yes" if asked.get("preemptible") else ""),
        ("singleton", "yes" if asked.get("singleton") else ""),
        ("topology", ", ".join(topology)),
    ]


def _each(gang: Told) -> str:
    each = gang.get("each")
    return f", each {amounts(each)}" if isinstance(each, dict) else ""


def _command(command: list[str] | None) -> str:
    if command is None:
        return ""
    text = clean(shlex.join(command))
    return text if len(text) <= _COMMAND_CHARS else f"{text[:_COMMAND_CHARS]}…"


def _goodput(ledger: dict[str, float]) -> str:
    """The share of device time that was progress, and where the rest went."""
    held = {part: value for part, value in ledger.items() if part not in ("capacity", "free", "queue_wait")}
    total = sum(held.values())
    if total <= 0:
        return ""
    parts = [(part, value / total) for part, value in held.items() if part != "productive"]
    rest = ", ".join(f"{clean(part).replace('_', ' ')} {share:.0%}" for part, share in parts if share >= _TOLD)
    share = f"{held.get('productive', 0.0) / total:.0%} of {span(total)} GPU time"
    return f"{share} ({rest})" if rest else share


def _members(told: Told) -> list[str]:
    members = told.get("members") or []
    if not members:
        return []
    cells = [
        [
            str(each["rank"]),
            clean(each.get("role") or "-"),
            " ".join(clean(uuid) for uuid in each.get("devices") or ()) or "-",
            str(each["pid"]) if each.get("pid") else "-",
            _ended(each),
        ]
        for each in members[:_RANKS]
    ]
    lines = ["", *(f"  {line}" for line in table(["RANK", "ROLE", "DEVICES", "PID", "ENDED"], cells, {0, 3}))]
    more = len(members) - len(cells)
    return [*lines, *([f"  and {more} more; -o json shows them"] if more > 0 else [])]


def _ended(member: Told) -> str:
    if member.get("signal"):
        return f"signal {member['signal']}"
    return "-" if member.get("exit_code") is None else f"exit {member['exit_code']}"


def _history(told: Told) -> list[str]:
    history = told.get("history") or []
    if not history:
        return []
    cells = [
        [exact(each["at"]), clean(each["event"]), data_text(each.get("data"), each["at"])]
        for each in history[-_EVENTS:]
    ]
    earlier = len(history) - len(cells)
    told_of = [f"  {earlier} earlier; -o json shows them"] if earlier > 0 else []
    return ["", *told_of, *(f"  {line}" for line in table([], cells))]
