"""`logs` and `report` while the daemon is down: what its state directory tells, read and never written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.host.following import Wanted, print_log
from phalanx.cli.host.talking import HostFailure, note
from phalanx.cli.host.text import clean
from phalanx.client.daemon_errors import ClientError
from phalanx.client.daemon_places import answers, find_place

if TYPE_CHECKING:
    from phalanx.frontends.host.at_rest import AtRest
    from phalanx.frontends.host.store import JobRecord


def is_at_rest() -> bool:
    """Whether there is a state directory of this user and no daemon that answers for it."""
    try:
        place = find_place()
    except ClientError:
        return False
    return not place.system and (place.state / "phalanx.db").is_file() and not answers(place.socket)


def is_untouched() -> bool:
    """Whether this user has never had a daemon here: what there is to report is nothing, which is an answer."""
    try:
        place = find_place()
    except ClientError:
        return False
    return not place.system and not (place.state / "phalanx.db").exists() and not answers(place.socket)


@contextmanager
def at_rest(notes: list[str] | None = None) -> Iterator[AtRest]:
    """The state directory; what it refuses ends the command as the daemon's refusals do.

    That the daemon is down goes to the notes if what is printed has a place for them.
    """
    from phalanx.frontends.host.at_rest import read_at_rest
    from phalanx.frontends.host.ports import Refused

    place = find_place()
    found = read_at_rest(place.state)
    if found is None:
        raise HostFailure(ClientError(f"the state in {place.state} cannot be read", "phalanx up; phalanx doctor"))
    word = f"the daemon is down; this is what {place.state} says (phalanx up starts it)"
    if notes is None:
        note(word)
    else:
        notes.append(word)
    with closing(found):
        try:
            yield found
        except Refused as no:
            said = no.refusal
            raise HostFailure(ClientError(said.message, said.hint, code=said.code, details=said.details)) from None


def report_at_rest(ask: Callable[[AtRest], dict[str, Any]], *, as_object: bool = False) -> dict[str, Any]:
    """One answer; `as_object`: it is printed as it is, so it says itself that the daemon is down."""
    notes: list[str] | None = [] if as_object else None
    if is_untouched():
        word = f"no daemon has run here yet, so {find_place().state} tells nothing (phalanx up starts one)"
        if not as_object:
            note(word)
        return {"rows": [], "count": 0, **({"warnings": [word]} if as_object else {})}
    with at_rest(notes) as found:
        return {**ask(found), **({"warnings": notes} if notes else {})}


def logs_at_rest(ref: str, wanted: Wanted) -> None:
    """What is in the logs of the jobs that a word means."""
    with at_rest() as found:
        jobs = found.find(ref)
        for at, job in enumerate(jobs):
            if len(jobs) > 1 and not wanted.as_json:
                click.echo(f"{chr(10) if at else ''}==> {job.id} {clean(job.name)} <==")
            _print(found, job, wanted)


def _print(found: AtRest, job: JobRecord, wanted: Wanted) -> None:
    attempt = wanted.attempt or job.attempt
    ranks = found.list_ranks(job, attempt) if attempt else []
    chosen = ranks if wanted.rank is None else [rank for rank in ranks if rank == wanted.rank]
    if not chosen:
        of_rank = "" if wanted.rank is None else f" of rank {wanted.rank}"
        why = f"job {job.id} has no log{of_rank} of attempt {attempt}" if attempt else f"job {job.id} has not started"
        raise HostFailure(ClientError(why, f"phalanx up && phalanx show {job.id}", code="not_found"))
    for rank in chosen:
        text = found.read_log(job, attempt, rank, wanted.tail)
        print_log(text, job.id, rank, wanted, several=len(chosen) > 1)
