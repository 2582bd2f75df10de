"""`phalanx ps`: jobs in a table with one INFO column that changes its meaning with the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from phalanx.cli.host.completing import complete_queue, complete_states
from phalanx.cli.host.listing import Column, Row, choose_columns, columns_option, output_option, print_rows
from phalanx.cli.host.talking import failing, talking
from phalanx.cli.host.text import clean, exact, moment, number, sizes, span, start_text
from phalanx.client.daemon import Daemon
from phalanx.client.daemon_errors import UsageError

_USUAL: Final = ("id", "name", "state", "gpus", "members", "time", "info")
_ALL_USERS: Final = ("id", "name", "user", "state", "gpus", "members", "time", "info")
_WIDE: Final = (
    *("id", "name", "user", "queue", "state", "priority", "gpus", "members", "submitted", "time", "attempt"),
    *("exit_code", "devices", "reason", "info"),
)
_CSV: Final = (
    *("id", "name", "user", "queue", "state", "members", "members_min", "members_max", "placement", "reason", "eta"),
    *("gpus", "priority", "submitted", "started", "ended", "waited_s", "ran_s", "exit_code", "attempt", "array"),
)
#: Of an array's states, the liveliest one is shown.
_LIVELY: Final = ("running", "starting", "stopping", "pending", "failed", "infeasible", "cancelled", "completed")
ENDED: Final = frozenset({"completed", "failed", "cancelled", "infeasible"})
_PAUSE_S: Final = 2.0
_BAR_CELLS: Final = 10
_UUID_CHARS: Final = 12
_RUNS_MAX: Final = 4


@click.command()
@click.option("-a", "--all", "everybody", is_flag=True, help="Jobs of all users.")
@click.option("-s", "--state", help="Only jobs in these states, separated by commas.", shell_complete=complete_states)
@click.option("-q", "--queue", help="Only jobs of this queue.", shell_complete=complete_queue)
@click.option("-u", "--user", help="Only jobs of this user.")
@click.option("--name", help="Only jobs of this name.")
@click.option("--finished", is_flag=True, help="Also jobs that ended more than ten minutes ago.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@output_option()
@columns_option
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
def ps(
    everybody: bool,
    state: str | None,
    queue: str | None,
    user: str | None,
    name: str | None,
    finished: bool,
    limit: int | None,
    output: str,
    columns: str | None,
    no_headers: bool,
    watch: bool,
) -> None:
    """List jobs: yours, or everybody's with -a.

    INFO says when a job is expected to start, where it runs, or how it ended.
    What runs stands first, then what waits, then what has ended. An array is one
    line; -o wide shows its jobs. On a terminal long cells are cut to its width.

    \b
    phalanx ps -a --state pending,running
    """
    usual = {"wide": _WIDE, "csv": _CSV}.get(output, _ALL_USERS if everybody or user else _USUAL)
    with failing():
        chosen = choose_columns(columns, COLUMNS, usual)
        _check_states(state)
    query = {
        "all": 1 if everybody or user else None,
        "state": state,
        "queue": queue,
        "user": user,
        "name": name,
        "finished": 1 if finished or (state and _names_ended(state)) else None,
        "limit": limit,
    }
    with talking() as daemon:

        def once() -> None:
            rows = read_rows(daemon, query)
            if output == "table":
                rows = order_for_people(collapse(rows))
            nothing = "" if rows else say_nothing(daemon, query)
            print_rows(rows, chosen, output, headers=not no_headers, none=nothing, fits=output == "table")

        if watch:
            from phalanx.cli.host.redrawing import again

            again(once, _PAUSE_S)
        else:
            once()


def say_nothing(daemon: Daemon, query: dict[str, Any]) -> str:
    """That there are none, and where there are some."""
    whose = "no jobs" if query["all"] else "no jobs of yours"
    if not query["finished"] and read_rows(daemon, {**query, "finished": 1, "limit": 1}):
        if query["all"]:
            return "no jobs now; phalanx ps -a --finished shows those that have ended"
        return "no jobs of yours now; phalanx ps --finished shows those that have ended"
    if not query["all"] and read_rows(daemon, {**query, "all": 1, "limit": 1}):
        return f"{whose}; phalanx ps -a shows everybody's"
    return whose


def _check_states(told: str | None) -> None:
    """A word that is no state is named here, since the daemon repeats nothing of what it is asked."""
    wrong = next((word for word in (told or "").split(",") if word and word not in _LIVELY), None)
    if wrong is None:
        return
    from difflib import get_close_matches

    near = get_close_matches(wrong, _LIVELY, n=1)
    hint = f"did you mean {near[0]}?" if near else f"states: {', '.join(_LIVELY)}"
    raise UsageError(f"--state {wrong!r} is no state of a job", hint)


def read_rows(daemon: Daemon, query: dict[str, Any]) -> list[Row]:
    """Jobs as the daemon lists them."""
    found = daemon.get("/v1/jobs", query)
    return list(found["jobs"])


def collapse(rows: Sequence[Row]) -> list[Row]:
    """The same with one row for all jobs of an array; two arrays of one name are two."""
    found: list[Row] = []
    rows = _drop_replaced(rows)
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        word = str(row.get("array") or "").rpartition("[")[0]
        if not word:
            found.append(row)
            continue
        group = parts.setdefault((row["user"], row.get("array_key") or word), [])
        if not group:
            found.append({"group": group, "word": word})
        group.append(row)
    return [_sum(row["group"], row["word"]) if "group" in row else row for row in found]


def _drop_replaced(rows: Sequence[Row]) -> list[Row]:
    """Without elements that were submitted again: the last of each has its place in the array."""
    newest = {(row["user"], row.get("array_key"), row["array"]): row["id"] for row in rows if row.get("array")}
    return [
        row
        for row in rows
        if not row.get("array") or newest[row["user"], row.get("array_key"), row["array"]] == row["id"]
    ]


def order_for_people(rows: Sequence[Row]) -> list[Row]:
    """What runs, then what waits, then what has ended, the last end first; each in the order of arrival."""
    alive = [row for row in rows if row["state"] not in ENDED]
    ended = [row for row in rows if row["state"] in ENDED]
    ended.sort(key=lambda row: str(row.get("ended") or ""), reverse=True)
    return [*sorted(alive, key=lambda row: row["state"] == "pending"), *ended]


def _sum(rows: Sequence[Row], word: str) -> Row:
    """One row that stands for all jobs of an array."""
    if len(rows) == 1:
        return {**rows[0], "name": rows[0]["array"]}
    counts = {state: sum(row["state"] == state for row in rows) for state in _LIVELY}
    state = next(state for state in _LIVELY if counts[state])
    indices = [int(str(row["array"]).rpartition("[")[2].rstrip("]")) for row in rows]
    return {
        **rows[0],
        "id": _ranges([row["id"] for row in rows]),
        "name": f"{word}[{_ranges(indices)}]",
        "state": state,
        "gpus": sum(row["gpus"] for row in rows if row["state"] == state),
        "info": ", ".join(f"{count} {name}" for name, count in counts.items() if count),
        "ended": max((str(row.get("ended") or "") for row in rows), default=""),
        "array": None,
        "progress": None,
        "ran_s": max(row["ran_s"] for row in rows),
        "waited_s": max(row["waited_s"] for row in rows),
    }


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as every verb takes them back: 36-39, or 0-3,7; many gaps are left out at the end."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][1] + 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:_RUNS_MAX]]
    return ",".join([*shown, *(["…"] if len(runs) > _RUNS_MAX else [])])


def info(row: Row) -> str:
    """When it starts, where it runs, or how it ended."""
    told = clean(row.get("info") or _info(row))
    progress = _progress(row.get("progress")) if row["state"] in ("running", "stopping") else ""
    return f"{told}  {progress}".strip() if progress else told


def _info(row: Row) -> str:
    if row["state"] == "pending":
        starts = start_text(row.get("eta"))
        reason = row.get("reason") or {}
        return f"starts {starts}" if starts else str(reason.get("message", ""))
    if row.get("ended"):
        code = row.get("exit_code")
        return f"{moment(row['ended'])}{f' exit {code}' if code is not None else ''}"
    return places(row)


def places(row: Row) -> str:
    """Nodes and how many members sit there."""
    return " ".join(f"{node}:{count}" for node, count in (row.get("placement") or {}).items())


def _progress(told: dict[str, Any] | None) -> str:
    """How far it is: a bar where the end is known, the step otherwise."""
    if not told:
        return ""
    step, total, rate = told.get("step") or 0, told.get("total"), told.get("rate")
    pace = f" {rate:.3g}/s" if rate else ""
    if not total:
        return f"step {step:g}{pace}"
    share = max(0.0, min(1.0, step / total))
    done = round(share * _BAR_CELLS)
    left = f" {span((total - step) / rate)} left" if rate and total > step else ""
    return f"[{'#' * done}{'.' * (_BAR_CELLS - done)}] {share:.0%}{pace}{left}"


def _time(row: Row) -> str:
    return span(row.get("waited_s") or 0) if row["state"] == "pending" else span(row.get("ran_s") or 0)


def _devices(row: Row) -> str:
    return " ".join(clean(uuid)[:_UUID_CHARS] for uuid in row.get("devices") or ()) or "-"


def _reason(row: Row) -> str:
    return clean((row.get("reason") or {}).get("code") or "-")


def _names_ended(states: str) -> bool:
    return bool(ENDED & set(states.split(",")))


def _text(key: str) -> Column:
    return Column(key, lambda row: clean(row.get(key)) if row.get(key) is not None else "-")


def _count(key: str) -> Column:
    return Column(key, lambda row: str(row[key]) if row.get(key) is not None else "-", right=True)


def _instant(key: str) -> Column:
    return Column(key, lambda row: exact(row.get(key)), plain=lambda row: row.get(key))


COLUMNS: Final = (
    Column("id", lambda row: str(row["id"]), right=True),
    _text("name"),
    _text("user"),
    _text("queue"),
    _text("state"),
    _count("priority"),
    Column("gpus", lambda row: number(row.get("gpus")), right=True),
    Column("members", sizes, right=True),
    _count("members_min"),
    _count("members_max"),
    Column("placement", places, plain=places),
    _instant("submitted"),
    _instant("started"),
    _instant("ended"),
    Column("time", _time, right=True, plain=lambda row: row.get("ran_s") or row.get("waited_s")),
    _count("waited_s"),
    _count("ran_s"),
    _count("attempt"),
    _count("exit_code"),
    Column("devices", _devices, plain=lambda row: " ".join(row.get("devices") or ())),
    Column("reason", _reason, plain=lambda row: (row.get("reason") or {}).get("code")),
    Column("eta", lambda row: start_text(row.get("eta")) or "-", plain=lambda row: (row.get("eta") or {}).get("at")),
    _text("array"),
    Column("info", info, plain=info),
)
