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
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from phalanx.client.daemon import Daemon, job_path, open_daemon
from phalanx.client.daemon_errors import ClientError, UsageError
from phalanx.client.job_request import JobRequest, make_submissions

ENDED: Final = frozenset({"completed", "failed", "cancelled", "infeasible"})
_POLL_S: Final = 30.0
_PIECE: Final = 1 << 20
_COLOURS: Final = {"running": "#1a7f37", "completed": "#1a7f37", "pending": "#9a6700", "failed": "#cf222e"}

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

    def detail(self) -> dict[str, Any]:
        """Everything, as `phalanx show -o json` has it."""
        return dict(self._get())

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
    must be JSON. Options are those of `phalanx submit`: name, time, queue, priority, after, deadline, ...
    """
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
    unknown = next((key for key in told if key not in JobRequest.__dataclass_fields__ or key == "env"), None)
    if unknown is not None:
        raise UsageError(
            f"submit() has no option {unknown!r}", f"choose of {', '.join(JobRequest.__dataclass_fields__)}"
        )
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
        return _command_of_function(what, args, kwargs), []
    if args or kwargs:
        raise UsageError("args and kwargs go to a function, and this is a command", "write them into the command")
    return (["/bin/sh", "-c", what] if isinstance(what, str) else [str(word) for word in what]), []


def _command_of_function(function: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    module = str(getattr(function, "__module__", None) or "")
    name = str(getattr(function, "__qualname__", ""))
    _check_importable(function, module, name)
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    # The folder in which the module was found here may not be on the path there.
    folder = str(Path(file).absolute().parents[1 if Path(file).name == "__init__.py" else 0]) if file else None
    told = {"args": list(args), "kwargs": dict(kwargs), "path": [folder] if folder else []}
    try:
        text = json.dumps(told)
    except (TypeError, ValueError) as bad:
        why = f"the arguments of {name} are not JSON: {bad}"
        raise UsageError(why, "pass numbers, texts, lists and mappings; write the rest to a file") from None
    return [sys.executable, "-m", "phalanx.client.call", f"{module}:{name}", text]


def _check_importable(function: Callable[..., object], module: str, name: str) -> None:
    """A member imports the function by its name, so it must be found there: no lambdas, nothing of a notebook cell."""
    hint = "put it into a file, as train.py, and: from train import main; phalanx.submit(main)"
    if module in ("", "__main__"):
        raise UsageError(f"{name or 'the function'} lives in this script or notebook, which a job cannot import", hint)
    if "<" in name or not name:
        what = f"{module}.{name}" if name else f"a {type(function).__name__}"
        raise UsageError(f"{what} has no name by which a job could import it", hint)
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise UsageError(f"{module}.{name} is something else when it is imported", hint)
