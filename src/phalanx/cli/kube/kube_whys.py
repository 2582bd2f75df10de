"""`kubectl phalanx why`: the dominant blocker with numbers, the others, who is ahead, when it starts, which nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

from phalanx.cli.host.listing import dump, output_option, print_wrapped
from phalanx.cli.host.text import clean, gpus, painted, span
from phalanx.cli.host.why_text import LABEL, blocker_lines, labelled, passing_lines, start_lines
from phalanx.cli.kube.kube_asking import WhichScheduler, asking, place_options
from phalanx.cli.kube.kube_listing import members, places

Told = dict[str, Any]
_MEMBERS_MOST: Final = 12
_WAITS: Final = frozenset({"pending", "degraded", "infeasible", "refused"})


@click.command()
@click.argument("gang", metavar="GANG")
@place_options
@click.option("-v", "--verbose", is_flag=True, help="All members, not only how many are where.")
@output_option("table", "json")
def why(
    gang: str,
    place: WhichScheduler,
    verbose: bool,
    output: str,
) -> None:
    """Say why a gang is where it is: what blocks it, who is ahead, when it starts.

    GANG is its name, that of one of its pods, or namespace/name.

    \b
    kubectl phalanx why train
    kubectl phalanx why team/train-0
    """
    with asking(place) as asker:
        told = asker.get("/v1/why", {"gang": gang, "namespace": asker.namespace})
    if output == "json":
        dump(told)
        return
    print_wrapped(lines_of(told, verbose=verbose), LABEL + 2)


def lines_of(told: Told, *, verbose: bool = False) -> list[str]:
    """The page."""
    row = told["gang"]
    # In the shape in which jobs are told: a gang that is refused waits as well.
    as_job = {
        "state": "pending" if row["state"] in _WAITS else row["state"],
        "reason": row.get("reason"),
        "blockers": told["blockers"],
        "passed_by": [{"message": each} for each in told["passed_by"]],
        "eta": row.get("eta"),
    }
    parts = (
        [title(row, told["needs"])],
        [*blocker_lines(as_job), *ahead_lines(row), *passing_lines(as_job), *funnel_lines(told["funnels"])],
        # Whoever has no turn waits for something else than room, which is said above.
        start_lines(as_job) if row.get("ahead") is not None and row["state"] in ("pending", "degraded") else [],
        _member_lines(told, verbose=verbose),
        [labelled("" if at else "NOTE", clean(each)) for at, each in enumerate(told["notices"])],
    )
    return "\n\n".join("\n".join(part) for part in parts if part).split("\n")


def title(row: Told, needs: str) -> str:
    """Who, how far, since when, and what it asks for."""
    state = row.get("state") or row["verdict"]
    age = f" {span(row['age_s'])}" if "age_s" in row else ""
    words = [f"{clean(row['namespace'])}/{clean(row['name'])}", painted(state, f"{state.upper()}{age}")]
    words.append(clean(row["dialect"]))
    if needs:
        words.append(f"needs {clean(needs)}")
    if row.get("priority"):
        words.append(f"priority {row['priority']}")
    return "  ".join(words)


def ahead_lines(row: Told) -> list[str]:
    """Who has its turn before."""
    ahead = row.get("ahead")
    if not ahead or not ahead["gangs"]:
        return []
    many = f"{ahead['gangs']} gang{'s' if ahead['gangs'] != 1 else ''}, {gpus(ahead['gpus'])}"
    more = ahead["gangs"] - len(ahead["first"])
    named = [*map(clean, ahead["first"]), *([f"and {more} more"] if more > 0 and ahead["first"] else [])]
    return [labelled("AHEAD", f"{many}  {', '.join(named)}".rstrip())]


def funnel_lines(funnels: list[Told]) -> list[str]:
    """Where one member could be; a line for each kind of member."""
    return [labelled("" if at else "NODES", clean(each["message"])) for at, each in enumerate(funnels)]


def _member_lines(told: Told, *, verbose: bool) -> list[str]:
    found = told["members"]
    if verbose or len(found) == 1:
        shown = [f"{clean(each['name'])}  {clean(each['state'])}  {clean(each['node'])}".rstrip() for each in found]
        return [labelled("" if at else "MEMBERS", line) for at, line in enumerate(shown)]
    counted = Counter(each["state"] for each in found)
    said = ", ".join(f"{count} {clean(state)}" for state, count in counted.items())
    where = places(told["gang"])
    return [labelled("MEMBERS", f"{members(told['gang'])}: {said}{f'   {where}' if where else ''}")] if found else []
