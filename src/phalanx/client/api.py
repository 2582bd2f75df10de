"""`phalanx.submit` and `Job`: the same verbs for scripts and notebooks.

import phalanx
job = phalanx.submit(train, gpus=(2, 8), kwargs={"lr": 3e-4})
job.why(); job.wait(); print(job.logs())
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any, Final

from phalanx.client.call import RESULT
from phalanx.client.daemon import Daemon, job_path, open_daemon
from phalanx.client.daemon_errors import ClientError, UsageError
from phalanx.client.functions import IMPORTING, command_of_function
from phalanx.client.job_request import JobRequest, make_submissions

ENDED: Final = frozenset({"completed", "failed", "cancelled", "infeasible"})
_POLL_S: Final = 30.0
_PIECE: Final = 1 << 20
_COLOURS: Final = {"running": "#1a7f37", "completed": "#1a7f37", "pending": "#9a6700", "failed": "#cf222e"}

#: Keywords of `submit` beside its own: the options of `phalanx submit`.
_NO_OPTIONS: Final = ("gpus", "members", "env", "partition")
OPTIONS: Final = tuple(name for name in JobRequest.__dataclass_fields__ if name not in _NO_OPTIONS)

Gpus = int | float | str | tuple[int, int]
What = Callable[..., object] | Sequence[str] | str


class Job:
    """A job that was submitted; it lives in the daemon, this only knows its id."""

    def __init__(self, number: int, name: str = "") -> None:
        """`number` is the job's id."""
        self.id = number
        self.name = name

    def state(self) -> str:
        """pending, starting, running, stopping, completed, failed, cancelled or infeasible."""
        return str(self.row()["state"])

    def row(self) -> dict[str, Any]:
        """The job as `phalanx ps -o json` has it."""
        return dict(self.detail()["job"])

    def detail(self, *, env: bool = False) -> dict[str, Any]:
        """Everything, as `phalanx show -o json` has it; its environment as well only if you ask for that."""
        return dict(self._get(query={"env": "1"} if env else None))

    def why(self) -> dict[str, Any]:
        """Why it is where it is, as `phalanx why -o json` has it."""
        return dict(self._get("why"))

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Until it has ended; its exit code, or None if it has none. Raises TimeoutError."""
        import time

        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _POLL_S if until is None else max(0.0, min(_POLL_S, until - time.monotonic()))
            told = self._get("wait", {"timeout_s": f"{left:.3f}"}, timeout_s=left + 60)
            if told["ended"]:
                code = told.get("exit_code")
                return None if code is None else int(code)
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {self.id} is {told['state']} after {timeout_s:g} s")

    def cancel(self) -> None:
        """Stop it."""
        with closing(open_daemon()) as daemon:
            daemon.post(job_path(str(self.id), "cancel"))

    def logs(self, rank: int = 0, *, tail: int | None = None) -> str:
        """What one rank printed so far."""
        pieces: list[bytes] = []
        offset: int | None = 0 if tail is None else None
        with closing(open_daemon()) as daemon:
            while True:
                query = {"rank": rank, "offset": offset, "limit": _PIECE, "tail": tail if offset is None else None}
                answer = daemon.raw("GET", job_path(str(self.id), "logs"), query)
                following = int(answer.headers.get("x-phalanx-offset", "0"))
                pieces.append(answer.body)
                if not answer.body or following == offset:
                    return b"".join(pieces).decode("utf-8", "replace")
                offset = following

    def result(self, timeout_s: float | None = None, *, rank: int = 0) -> Any:
        """Wait, and give what the function returned in one rank. Raises ClientError if it did not, TimeoutError."""
        self.wait(timeout_s)
        detail = self.detail()
        row = detail["job"]
        if row["state"] != "completed":
            raise ClientError(_how_it_ended(detail), f"phalanx why {self.id}; phalanx logs {self.id}")
        file = Path(str(detail.get("run_dir"))) / RESULT.format(rank=rank)
        try:
            told = json.loads(file.read_bytes())
        except (OSError, ValueError):
            ranks = int(row.get("members_max") or 0)
            if not 0 <= rank < ranks:
                many = f"ranks 0 to {ranks - 1}" if ranks > 1 else "rank 0 only"
                raise ClientError(f"job {self.id} has {many} (got {rank})", "name one of them", code="usage") from None
            why = f"job {self.id} left no result of rank {rank}: it is a command, or its run directory is gone"
            raise ClientError(why, f"phalanx logs {self.id}", code="not_found") from None
        if "error" in told:
            raise ClientError(str(told["error"]), "return numbers, texts, lists and mappings; write the rest to a file")
        return told["value"]

    def _get(self, verb: str = "", query: Mapping[str, object] | None = None, timeout_s: float = 60.0) -> Any:
        with closing(open_daemon()) as daemon:
            daemon.patience_s = _POLL_S
            return daemon.get(job_path(str(self.id), verb), query, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"<phalanx.Job {self.id} {self.name}>"

    def _repr_html_(self) -> str:
        """A small card for notebooks."""
        try:
            row = self.row()
        except ClientError as bad:
            return f"<b>{self.id} {escape(self.name)}</b> {escape(bad.message)}"
        colour = _COLOURS.get(row["state"], "#57606a")
        reason = (row.get("reason") or {}).get("message") or ""
        cells = [
            ("state", f'<span style="color:{colour}">{escape(row["state"])}</span>'),
            ("members", _sizes(row)),
            ("info", escape(row.get("info") or reason)),
        ]
        body = "".join(f"<tr><th style='text-align:left'>{name}</th><td>{text}</td></tr>" for name, text in cells)
        return f"<table><caption><b>{row['id']} {escape(row['name'])}</b></caption>{body}</table>"


def _how_it_ended(detail: Mapping[str, Any]) -> str:
    """The state, why, and the last lines of who failed first."""
    row = detail["job"]
    reason = (row.get("reason") or {}).get("message")
    lines = (detail.get("failure") or {}).get("lines") or ()
    told = "".join(f"\n  | {line}" for line in lines)
    return f"job {row['id']} {row['state']}{f': {reason}' if reason else ''}{told}"


def _sizes(row: Mapping[str, Any]) -> str:
    low, high = row["members_min"], row["members_max"]
    return str(high) if low == high else f"{row['members']} of {low} to {high}"


def submit(
    what: What,
    *,
    gpus: Gpus | None = None,
    members: int | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> Job:
    """Submit a command (a list of words, or one line for the shell) or a function; a daemon is started if needed.

    `gpus` is a number, a share of one, or a pair for an elastic job. `args` and `kwargs` go to a function and
    must be JSON, and so must what it returns (`Job.result`). Options are those of `phalanx submit`: name, time,
    queue, priority, after, deadline, ...
    """
    importing = getattr(sys.modules.get("__main__"), IMPORTING, None)
    if importing is not None:
        why = f"{importing} submits a job whenever it is imported, and a job of it imports it for its function"
        raise UsageError(why, "put what submits under: if __name__ == '__main__':")
    command, settings = _command_of(what, args, kwargs or {})
    settings += [f"{name}={value}" for name, value in (env or {}).items()]
    notes: list[str] = []
    wish = _wish_of(gpus, members, settings, options)
    if wish.array is not None:
        raise UsageError("phalanx.submit makes one job", "call it in a loop, or use phalanx submit --array")
    if callable(what) and wish.name is None:
        wish = _named(wish, str(getattr(what, "__name__", "job")))
    (job,) = make_submissions(wish, command, os.environ, notes)
    daemon: Daemon
    with closing(open_daemon(start=True)) as daemon:
        (accepted,) = daemon.submit([job], secrets.token_urlsafe(18))
    for text in [*notes, *(accepted.get("warnings") or ())]:
        warnings.warn(text, stacklevel=2)
    return Job(int(accepted["id"]), str(accepted["name"]))


def _wish_of(gpus: Gpus | None, members: int | None, env: Sequence[str], options: Mapping[str, Any]) -> JobRequest:
    told = {key: _as_written(key, value) for key, value in options.items() if value is not None}
    unknown = next((key for key in told if key not in OPTIONS), None)
    if unknown is not None:
        raise UsageError(f"submit() has no option {unknown!r}", f"choose of {', '.join(OPTIONS)}")
    shape = ":".join(map(str, gpus)) if isinstance(gpus, tuple) else None if gpus is None else str(gpus)
    return JobRequest(
        **{**told, "gpus": shape, "members": None if members is None else str(members), "env": tuple(env)}
    )


def _as_written(key: str, value: Any) -> Any:
    """A value as it would stand on the command line, where all options are read."""
    if key == "after":
        several = value if isinstance(value, (list, tuple)) else [value]
        return tuple(str(each.id) if isinstance(each, Job) else str(each) for each in several)
    return value if isinstance(value, (bool, str)) or key in ("priority", "restarts") else str(value)


def _named(wish: JobRequest, name: str) -> JobRequest:
    from dataclasses import replace

    return replace(wish, name=name)


# ---- functions


def _command_of(what: What, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The words to run, and variables they need."""
    if callable(what):
        return command_of_function(what, args, kwargs), []
    if args or kwargs:
        raise UsageError("args and kwargs go to a function, and this is a command", "write them into the command")
    return (["/bin/sh", "-c", what] if isinstance(what, str) else [str(word) for word in what]), []
