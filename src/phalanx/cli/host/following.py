"""Logs as they grow: every rank of every attempt, whole lines, until the job has ended."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any, Final, NamedTuple

import click

from phalanx.cli.host.text import clean, start_text
from phalanx.client.connection import HttpReply
from phalanx.client.daemon import Daemon, job_path
from phalanx.client.daemon_errors import RefusedError

ENDED: Final = frozenset({"completed", "failed", "cancelled", "infeasible"})
#: Jobs go on while their daemon is restarted, and so does who follows them.
PATIENCE_S: Final = 30.0
PIECE: Final = 1 << 20
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 0.5
_COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "red")
#: Sequences that only change colours may stay; everything else that a terminal would obey is written out.
_COLOUR_CODE = re.compile(r"(\x1b\[[0-9;]{0,20}m)")


class Wanted(NamedTuple):
    """Which part of a job's output, and how."""

    rank: int | None = None  # None: all
    tail: int | None = None
    attempt: int | None = None  # None: the newest, and those that follow it
    raw: bool = False
    as_json: bool = False  # a line of JSON for each line


def read_whole(daemon: Daemon, ref: str, wanted_part: Wanted) -> None:
    """What is there now, rank after rank."""
    rank, tail, attempt = wanted_part.rank, wanted_part.tail, wanted_part.attempt
    wanted = 0 if rank is None else rank
    ranks = 1
    several = False
    while wanted < ranks or rank is not None:
        offset, at_end, first = 0, False, True
        printer = _Printer(wanted_part, int(ref), wanted)
        while not at_end:
            asked_tail = tail if first else None
            answer = _ask(daemon, ref, wanted, attempt, offset, asked_tail)
            ranks = int(answer.headers.get("x-phalanx-ranks", "1"))
            several = several or (ranks > 1 and rank is None)
            following = int(answer.headers.get("x-phalanx-offset", "0"))
            printer.write(answer.body, wanted if several else None)
            at_end, offset, first = not answer.body or following == offset, following, False
        printer.flush(wanted if several else None)
        if rank is not None:
            return
        wanted += 1


def print_log(text: bytes, job: int, rank: int, wanted: Wanted, *, several: bool) -> None:
    """A whole log, every line with its rank if there are several."""
    printer = _Printer(wanted, job, rank)
    printer.write(text, rank if several else None)
    printer.flush(rank if several else None)


class Follower:
    """Follows one job through its attempts."""

    def __init__(self, daemon: Daemon, ref: str, wanted: Wanted) -> None:
        """The name is looked up once: the id is what stays."""
        self._daemon = daemon
        self._wanted, self._rank, self._only = wanted, wanted.rank, wanted.attempt
        daemon.patience_s = PATIENCE_S
        job = self._look(ref)
        self.id = int(job["id"])
        self.name = str(job["name"])

    def follow(self) -> dict[str, Any]:
        """Print until the job has ended; what it came to."""
        job = self._wait_for_start(self._look(str(self.id)))
        attempt = self._only or int(job["attempt"])
        while attempt:
            self._follow_attempt(attempt)
            job = self._look(str(self.id))
            if self._only is not None or job["state"] in ENDED:
                break
            job = self._wait_for_next(attempt)
            if int(job["attempt"]) == attempt:
                break
            attempt += 1
            click.echo(f"phalanx: attempt {attempt} of {job['id']} {clean(job['name'])}", err=True)
        return job

    def _look(self, ref: str) -> dict[str, Any]:
        found = self._daemon.get(job_path(ref))["job"]
        assert isinstance(found, dict)
        return found

    def _wait_for_start(self, job: dict[str, Any]) -> dict[str, Any]:
        """A job that waits says so, once and when its reason changes; silence would look like a hang."""
        said = None
        while job["state"] == "pending" and not job["attempt"]:
            reason = job.get("reason") or {}
            if reason.get("code") != said or said is None:
                said = reason.get("code")
                starts = start_text(job.get("eta"))
                words = f"starts {starts}" if starts else clean(reason.get("message") or "")
                click.echo(f"phalanx: {job['id']} {clean(job['name'])} waits: {words}", err=True)
            job = self._wait(1.0)
        return job

    def _wait_for_next(self, attempt: int) -> dict[str, Any]:
        """After an attempt: the next one, or the end."""
        job = self._look(str(self.id))
        while job["state"] not in ENDED and int(job["attempt"]) == attempt:
            job = self._wait(1.0)
        return job

    def _wait(self, seconds: float) -> dict[str, Any]:
        self._daemon.get(job_path(str(self.id), "wait"), {"timeout_s": seconds}, timeout_s=seconds + 60)
        return self._look(str(self.id))

    def _follow_attempt(self, attempt: int) -> None:
        ranks = [self._begin(self._rank or 0)]
        pause = _PAUSE_S
        while True:
            news = False
            for each in list(ranks):
                if not each.ended:
                    count = each.read(self._daemon, self.id, attempt, several=self._rank is None)
                    news = news or each.news
                    if self._rank is None:  # an elastic job may get more while we look
                        ranks += [self._begin(number) for number in range(len(ranks), count)]
            if all(each.ended for each in ranks):
                return
            pause = _PAUSE_S if news else min(pause * 1.5, _PAUSE_S_MAX)
            if not news:
                time.sleep(pause)

    def _begin(self, rank: int) -> _Rank:
        return _Rank(rank, _Printer(self._wanted, self.id, rank), self._wanted.tail)


class _Rank:
    """How far one rank's log has been read."""

    def __init__(self, rank: int, printer: _Printer, tail: int | None) -> None:
        self._rank, self._printer, self._tail = rank, printer, tail
        self._offset = 0
        self.ended = False
        self.news = False

    def read(self, daemon: Daemon, job: int, attempt: int, *, several: bool) -> int:
        """Print what is new; how many ranks there are."""
        answer = _ask(daemon, str(job), self._rank, attempt, self._offset, self._tail)
        self._tail = None
        ranks = int(answer.headers.get("x-phalanx-ranks", "1"))
        prefix = self._rank if several and ranks > 1 else None
        self._offset = int(answer.headers.get("x-phalanx-offset", self._offset))
        self._printer.write(answer.body, prefix)
        self.news = bool(answer.body)
        if not answer.body and answer.headers.get("x-phalanx-ended") == "1":
            self.ended = True
            self._printer.flush(prefix)
        return ranks


class _Printer:
    """Whole lines with the rank before them; the rest waits for its end."""

    def __init__(self, wanted: Wanted, job: int, rank: int) -> None:
        self._rest = b""
        self._facts = {"job": job, "rank": rank} if wanted.as_json else None
        self._as_is = wanted.raw or not sys.stdout.isatty()

    def write(self, piece: bytes, rank: int | None) -> None:
        whole, newline, self._rest = (self._rest + piece).rpartition(b"\n")
        if newline:
            self._print(whole + newline, rank)

    def flush(self, rank: int | None) -> None:
        if self._rest:
            self._print(self._rest + b"\n", rank)
            self._rest = b""

    def _print(self, text: bytes, rank: int | None) -> None:
        if self._facts is not None:
            for line in text.decode("utf-8", "replace").split("\n")[:-1]:
                click.echo(json.dumps({**self._facts, "line": line}))
            return
        if self._as_is:
            mark = b"" if rank is None else f"[{rank}] ".encode()
            lines = text.splitlines(keepends=True) if mark else [text]
            click.echo(b"".join(mark + line for line in lines), nl=False)
            return
        prefix = "" if rank is None else click.style(f"[{rank}] ", fg=_COLOURS[rank % len(_COLOURS)])
        for line in text.decode("utf-8", "replace").split("\n")[:-1]:
            click.echo(prefix + tame(line))


def tame(line: str) -> str:
    """A line for a terminal: colours and tabs stay, a carriage return shows what it would have left."""
    last = line.rstrip("\r").rpartition("\r")[2]
    parts = _COLOUR_CODE.split(last)
    shown = "".join(part if at % 2 else clean(part.replace("\t", "    ")) for at, part in enumerate(parts))
    return f"{shown}\x1b[0m" if len(parts) > 1 else shown


def _ask(daemon: Daemon, ref: str, rank: int, attempt: int | None, offset: int, tail: int | None) -> HttpReply:
    query = {
        "rank": rank,
        "attempt": attempt,
        "offset": offset if tail is None else None,
        "limit": PIECE,
        "tail": tail,
    }
    return daemon.raw("GET", job_path(ref, "logs"), query)


def tell_failure(daemon: Daemon, ref: str, *, lines: bool) -> None:
    """Which rank failed first, if the job did, and its last lines."""
    try:
        detail = daemon.get(job_path(ref))
    except RefusedError:
        return
    told = failure_lines(detail)
    failure = detail.get("failure") or {}
    if not told and failure.get("why"):  # nobody's rank: its age, or its shim
        click.echo(clean(str(failure["why"])), err=True)
    for line in told if lines else [line.rstrip(":") for line in told[:1]]:
        click.echo(line, err=True)


def failure_lines(detail: dict[str, Any]) -> list[str]:
    """Which rank failed first, how, and what it said last; nothing if it was none of them."""
    failure = detail.get("failure")
    if not failure or failure.get("rank") is None:
        return []
    signal = failure.get("signal")
    how = f"signal {signal}" if signal else f"exit code {failure.get('exit_code')}"
    lines = [f"rank {failure.get('rank')} failed first ({how}):"]
    return lines + [f"  | {clean(line)}" for line in failure.get("lines") or ()]
