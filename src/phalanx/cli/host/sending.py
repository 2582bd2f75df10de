"""Jobs on their way to the daemon, and what people are told when they are there."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from phalanx.cli.host.batches import HandedIn, Request, make_requests
from phalanx.cli.host.gangfile import PLACE
from phalanx.cli.host.listing import dump
from phalanx.cli.host.talking import note
from phalanx.cli.host.text import can_show, clean, painted, start_text
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import ClientError, RefusedError, UsageError
from phalanx.client.job_request import PARTITION, settle_partition
from phalanx.client.shape import shape_text

_NAMED_MAX: Final = 20
_MEND: Final = "mend the file: docs/job-files.md"
_NAMES_SHOWN: Final = 3

Job = dict[str, Any]


def send(daemon: Daemon, jobs: Sequence[Job], notes: list[str], *, dry_run: bool = False) -> list[Job]:
    """Hand the jobs in. Each request has a key, so that asking again after a lost connection makes no second job."""
    places = [job.get(PLACE) for job in jobs]
    jobs = [{key: value for key, value in job.items() if key != PLACE} for job in jobs] if any(places) else jobs
    jobs = _settle_partitions(daemon, jobs, notes)
    handed = HandedIn(daemon, secrets.token_urlsafe(18), dry_run=dry_run)
    try:
        if len(jobs) > 1 and _own_names(jobs):
            _send_in_order(handed, jobs, places, dry_run=dry_run)
        else:
            for request in make_requests(jobs):
                handed.hand_in(request)
    except RefusedError as bad:
        place = _find_refused(daemon, jobs, places, bad)
        if place is not None:
            bad.message = f"{place}: {bad.message}"
            bad.hint = _MEND if bad.hint.startswith("phalanx submit --help") else bad.hint
        if bad.code == "infeasible" and "deadline" in bad.message:
            bad.hint = "write a later --deadline, or a shorter --time if it needs less"
        raise
    return handed.jobs


def _find_refused(daemon: Daemon, jobs: Sequence[Job], places: Sequence[object], bad: RefusedError) -> object | None:
    """Where in a file the gang stands that was refused: of several, the first that is refused alone as well."""
    first = {place: job for place, job in reversed(list(zip(places, jobs, strict=True))) if place is not None}
    if len(first) == 1:
        return next(iter(first))
    if bad.code not in ("usage", "infeasible", "too_large"):
        return None  # about all of them
    for place, job in reversed(first.items()):
        try:
            daemon.submit([job], secrets.token_urlsafe(18), dry_run=True)
        except RefusedError as alone:
            if bad.message.startswith(alone.message):
                return place
    return None


def _settle_partitions(daemon: Daemon, jobs: Sequence[Job], notes: list[str]) -> Sequence[Job]:
    if not any(PARTITION in job for job in jobs):
        return jobs
    queues = {str(row["name"]) for row in daemon.get("/v1/queues")["queues"]}
    return [settle_partition(job, queues, notes) for job in jobs]


def look_again(daemon: Daemon, accepted: Sequence[Job]) -> list[Job]:
    """The same with what became of a single job since: accepted is said at once, planned a moment later."""
    if len(accepted) != 1 or accepted[0]["state"] != "pending" or accepted[0].get("eta"):
        return list(accepted)
    try:
        row = daemon.get(job_path(str(accepted[0]["id"])))["job"]
    except ClientError:
        return list(accepted)  # it is on disk, which is what counts
    return [{**accepted[0], **{key: row[key] for key in ("state", "eta", "reason", "date") if key in row}}]


def tell_accepted(
    accepted: Sequence[Job],
    output: str,
    *,
    many: bool,
    dry_run: bool,
    jobs: Sequence[Job] = (),
    notes: Sequence[str] = (),
) -> None:
    """What became of the jobs, and what one may want to type next; `jobs`: what was handed in, `notes`: about that."""
    if output != "table":
        _dump_accepted(accepted, output, many=many, notes=notes)
        return
    tell_notes([*notes, *(text for job in accepted for text in job.get("warnings") or ())])
    click.echo("\n".join(_lines(accepted, _shapes(accepted, jobs))))
    if dry_run:
        click.echo("(dry run: nothing was submitted)")
        return
    for line in _tree(accepted):
        click.echo(line)


def _dump_accepted(accepted: Sequence[Job], output: str, *, many: bool, notes: Sequence[str]) -> None:
    """For programs. What was noted about the command line as a whole stands with the first job."""
    said = [*dict.fromkeys([*notes, *(accepted[0].get("warnings") or ())])]
    found = [{**accepted[0], "warnings": said}, *accepted[1:]]
    if output == "json":
        dump(found if many else found[0])
        return
    for job in found:
        dump(job)


def tell_notes(notes: Sequence[str]) -> None:
    """Each once."""
    for text in dict.fromkeys(notes):
        note(text)


def tell_shape(job: Job) -> str:
    """What is started how often: "4 ranks × 1 GPU". Whoever meant something else sees it here first."""
    return clean(shape_text(job["gang"], times="×" if can_show("×") else "x"))


def _shapes(accepted: Sequence[Job], jobs: Sequence[Job]) -> list[str]:
    """What each of them starts; by name, since jobs that wait for each other are sent in another order."""
    if len(jobs) == 1:
        return [tell_shape(jobs[0])] * len(accepted)
    by_name = {job["name"]: tell_shape(job) for job in jobs}
    return [by_name.get(job["name"], "") for job in accepted]


def _lines(accepted: Sequence[Job], shapes: Sequence[str]) -> list[str]:
    """A line for each job, or one for all where they are many or have one name."""
    names = {job["name"] for job in accepted}
    if len(accepted) == 1 or (len(names) > 1 and len(accepted) <= _NAMED_MAX):
        return [_line(job, shape) for job, shape in zip(accepted, shapes, strict=True)]
    ids = [job["id"] for job in accepted]
    states = {str(job["state"]) for job in accepted}
    shown = sorted(clean(name) for name in names)[:_NAMES_SHOWN] + ["…"] * (len(names) > _NAMES_SHOWN)
    state = painted(states.pop()) if len(states) == 1 else ""
    each = f"{shapes[0]} each" if len(set(shapes)) == 1 and shapes[0] else ""
    which = f": {min(ids)}-{max(ids)}" if any(ids) else ""  # a dry run gives nobody an id
    parts = [f"{len(ids):,} job{'s' if len(ids) != 1 else ''}{which}", ", ".join(shown), state, each]
    return ["  ".join(part for part in parts if part)]


def _line(job: Job, shape: str = "") -> str:
    words = [f"{job['id']} {clean(job['name'])}" if job.get("id") else clean(job["name"]), painted(str(job["state"]))]
    words += [shape] if shape else []
    starts = start_text(job.get("eta"))
    reason = job.get("reason")
    if job["state"] == "pending" and starts:
        hangs_on = clean((job.get("eta") or {}).get("hangs_on") or "")
        words.append(f"starts {starts}{f', {hangs_on}' if hangs_on else ''}")
    elif reason:
        words.append(clean(reason["message"]))
    if job.get("date"):
        words.append(clean(job["date"]))
    return "  ".join(words)


def _tree(accepted: Sequence[Job]) -> list[str]:
    """Next commands, as a small tree."""
    last = accepted[-1]["id"]
    if is_doomed(accepted):  # nothing of it can be followed or stopped
        return _draw(
            [
                (f"phalanx why {last}", "what it waited for, and how that ended"),
                (f"phalanx retry {last}", "submit it again, without what failed"),
            ]
        )
    waits = accepted[-1]["state"] == "pending"
    rows = [
        (f"phalanx why {last}", "why it waits, and when it starts")
        if waits
        else (f"phalanx show {last}", "where it is"),
        (f"phalanx logs -f {last}", "follow its output"),
        (f"phalanx cancel {last}", "stop it"),
    ]
    if len(accepted) > 1:
        rows = [("phalanx ps", "how they are"), (f"phalanx why {last}", "why one of them waits")]
    return _draw(rows)


def is_doomed(accepted: Sequence[Job]) -> bool:
    """Whether the one job was cancelled at once, since what it was to wait for has failed already."""
    reason = accepted[0].get("reason") or {}
    return len(accepted) == 1 and accepted[0]["state"] == "cancelled" and reason.get("code") == "DependencyFailed"


def _draw(rows: Sequence[tuple[str, str]]) -> list[str]:
    size = max(len(command) for command, _ in rows)
    fork, end = ("├─", "└─") if can_show("├─└") else ("|-", "`-")
    marks = [fork] * (len(rows) - 1) + [end]
    return [f"{mark} {command:<{size}}   {does}" for mark, (command, does) in zip(marks, rows, strict=True)]


# ---- gangs of one file that wait for each other


def _own_names(jobs: Sequence[Job]) -> set[str]:
    """Names of these jobs that others of them wait for."""
    names = {job["name"] for job in jobs}
    return {ref for job in jobs for ref in _refs(job) if ref in names}


def _refs(job: Job) -> list[str]:
    after = job["gang"].get("after") or []
    found = after.get("any", []) if isinstance(after, dict) else after
    return [str(ref) for ref in (found if isinstance(found, list) else [found])]


def _send_in_order(handed: HandedIn, jobs: Sequence[Job], places: Sequence[object], *, dry_run: bool) -> None:
    """One after the other, since a job is waited for by its id and has one only when it is there."""
    ids: dict[str, str] = {}
    for job in _in_order(jobs, dict(zip((job["name"] for job in jobs), places, strict=True))):
        (accepted,) = handed.hand_in(Request([_by_id(job, ids)]))
        ids[job["name"]] = "" if dry_run else str(accepted["id"])  # nobody has been given an id, and nobody waits


def _in_order(jobs: Sequence[Job], place_by_name: Mapping[str, object]) -> list[Job]:
    """Such that whoever is waited for comes first."""
    done: set[str] = set()
    left, found = list(jobs), []
    names = {job["name"] for job in jobs}
    while left:
        ready = next((job for job in left if all(ref in done or ref not in names for ref in _refs(job))), None)
        if ready is None:
            cycle = ", ".join(clean(job["name"]) for job in left)
            place = place_by_name[left[0]["name"]]
            raise UsageError(f"{place}: {cycle} wait for each other", "mend their after: docs/job-files.md")
        left.remove(ready)
        done.add(ready["name"])
        found.append(ready)
    return found


def _by_id(job: Job, ids: dict[str, str]) -> Job:
    if not _refs(job):
        return job
    refs = [found for ref in _refs(job) if (found := ids.get(ref, ref))]
    if not refs:
        return {**job, "gang": {key: value for key, value in job["gang"].items() if key != "after"}}
    after = {"any": refs} if isinstance(job["gang"]["after"], dict) else refs
    return {**job, "gang": {**job["gang"], "after": after}}
