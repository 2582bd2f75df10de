"""What somebody wants of a job, from options, headers, files or keywords, and the submissions it becomes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from phalanx.client.daemon_errors import UsageError
from phalanx.client.environment import check_command, choose_cwd, choose_env
from phalanx.client.shape import choose_shape
from phalanx.client.times import begin_of, length_of, parse_instant, seconds_of, until_of
from phalanx.client.wrappers import NAME_CHARS_MAX, REFERENCE, name_of

ARRAY_MOST: Final = 100_000
#: Key of a job on its way: a queue that may or may not be there, which only the daemon can tell.
PARTITION: Final = "partition"
_PRIORITY_MOST: Final = 1_000_000_000
_BLOCK = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Everything that can be asked for, as it was written; None, empty and False mean: nothing was said."""

    gpus: str | None = None
    members: str | None = None
    cpus: str | None = None
    memory: str | None = None
    name: str | None = None
    time: str | None = None
    kill_after: str | None = None
    warn: str | None = None
    begin: str | None = None
    deadline: str | None = None
    queue: str | None = None
    priority: int | None = None
    after: tuple[str, ...] = ()
    array: str | None = None
    singleton: bool = False
    env: tuple[str, ...] = ()
    clean_env: bool = False
    cwd: str | None = None
    preemptible: bool = False
    restarts: int | None = None
    requeue: bool = False
    grace: str | None = None
    hold: bool = False
    allow_infeasible: bool = False
    progress_regex: str | None = None
    topology: str | None = None
    partition: str | None = None  # Slurm's: the queue of that name, if there is one


def overlay(below: JobRequest, above: JobRequest) -> JobRequest:
    """Both wishes, where what `above` says goes before what `below` says."""
    said = {field.name: getattr(above, field.name) for field in fields(JobRequest)}
    found = replace(below, **{name: value for name, value in said.items() if value not in (None, (), False)})
    return replace(found, env=(*below.env, *above.env))


def make_submissions(
    wish: JobRequest, command: Sequence[str], environ: Mapping[str, str], notes: list[str]
) -> list[dict[str, Any]]:
    """The jobs of a wish: one, or one for each index of an array."""
    cwd = choose_cwd(wish.cwd)
    env = choose_env(environ, wish.env, clean=wish.clean_env, notes=notes)
    check_command(command, env, cwd)
    _tell_of_times(wish, notes)
    shape = choose_shape(
        wish.gpus, wish.members, cpus=wish.cpus, memory=wish.memory, command=command, cwd=cwd, notes=notes
    )  # fmt: skip
    job = {
        "name": check_name(wish.name or name_of(command)),
        "gang": {**shape, **gang_of(wish)},
        "run": {"command": list(command), "cwd": cwd, "env": env, "umask": read_umask(), **run_of(wish)},
        **options_of(wish),
    }
    return spread(job, wish.array)


def check_each(wish: JobRequest) -> None:
    """Refuse what can be no part of any wish, whatever is said beside it: of a line among others."""
    if wish.name is not None:
        check_name(wish.name)
    for gpus, members in ((wish.gpus, None), (None, wish.members)):
        choose_shape(gpus, members, cpus=wish.cpus, memory=wish.memory, notes=[])
    gang_of(wish)
    options_of(wish)
    if wish.warn is not None:
        parse_warning(wish.warn)
    run_of(replace(wish, warn=None))
    if wish.array is not None:
        parse_array(wish.array)


def _tell_of_times(wish: JobRequest, notes: list[str]) -> None:
    """What can be done and cannot be meant."""
    begin = parse_instant(wish.begin.strip()) if wish.begin else None
    if begin is not None and begin < datetime.now(UTC):
        notes.append(f"--begin {wish.begin} is over already: it starts as soon as there is room")
    if wish.warn and wish.kill_after:
        before_s, after_s = parse_warning(wish.warn)["before_s"], seconds_of(wish.kill_after, "--kill-after")
        if before_s >= after_s:
            notes.append(f"--warn {wish.warn} is no shorter than --kill-after {wish.kill_after}: it comes at the start")


def spread(job: dict[str, Any], array: str | None) -> list[dict[str, Any]]:
    """The job itself, or one for each index of an array."""
    if array is None:
        return [job]
    indices, at_most = parse_array(array)
    key = os.urandom(6).hex()  # two arrays of one name are two, and one that is sent in parts is one
    # The daemon sets PHALANX_ARRAY_INDEX: all elements of an array are sent with one and the same environment.
    return [{**job, "array": {"index": index, "of": job["name"], "at_most": at_most, "key": key}} for index in indices]


def gang_of(wish: JobRequest) -> dict[str, Any]:
    """What is said of the gang beside its shape."""
    said = {
        "queue": wish.queue,
        "priority": check_priority(wish.priority),
        "walltime": length_of(wish.time, "--time") if wish.time else None,
        "kill_after": length_of(wish.kill_after, "--kill-after") if wish.kill_after else None,
        "deadline": until_of(wish.deadline) if wish.deadline else None,
        "preemptible": wish.preemptible or None,
        "after": parse_after(wish.after) if wish.after else None,
        "topology": parse_topology(wish.topology) if wish.topology else None,
    }
    return {key: value for key, value in said.items() if value is not None}


def run_of(wish: JobRequest) -> dict[str, Any]:
    """What is said of how its members run, beside the command and what surrounds it."""
    if wish.warn and not wish.kill_after:
        raise UsageError("--warn is a signal before a kill, and nothing is to be killed", "add --kill-after 2h")
    if wish.restarts is not None and wish.restarts < 0:
        raise UsageError(f"--restarts {wish.restarts} is below zero", "write --restarts 3")
    if wish.progress_regex is not None:
        check_regex(wish.progress_regex)
    said = {
        "kill_after_warning": parse_warning(wish.warn) if wish.warn else None,
        "grace_s": seconds_of(wish.grace, "--grace") if wish.grace else None,
        "restarts": wish.restarts,
        "on_preempt": "requeue" if wish.requeue else None,
        "progress_regex": wish.progress_regex,
    }
    return {key: value for key, value in said.items() if value is not None}


def options_of(wish: JobRequest) -> dict[str, Any]:
    """What is said of the submission itself."""
    said = {
        "begin": begin_of(wish.begin) if wish.begin else None,
        "singleton": wish.singleton,
        "allow_infeasible": wish.allow_infeasible,
        "hold": wish.hold,
        PARTITION: wish.partition if wish.queue is None else None,
    }
    return {key: value for key, value in said.items() if value}


def settle_partition(job: dict[str, Any], queues: Collection[str], notes: list[str]) -> dict[str, Any]:
    """A job as the daemon takes it: in the queue that is called like its partition, or in the default with a word."""
    rest = {key: value for key, value in job.items() if key != PARTITION}
    if PARTITION not in job:
        return rest
    names = [name.strip() for name in str(job[PARTITION]).split(",")]
    queue = next((name for name in names if name in queues), None)
    if queue is None:
        known = ", ".join(sorted(queues))
        notes.append(
            f"--partition={job[PARTITION]} is no queue here, so it goes to the default one; there are: {known}"
        )
        return rest
    return {**rest, "gang": {**rest["gang"], "queue": queue}}


def check_name(name: str) -> str:
    """A name that fits into one line of a listing."""
    if not name.strip():
        raise UsageError("--name is empty", "write --name train")
    bad = next((char for char in name if not char.isprintable()), None)
    if bad is not None:
        what = "a line break" if bad in "\r\n" else f"the character {bad!a}"
        raise UsageError(f"--name {ascii(name)[:80]} contains {what}", "write a name of one line that can be printed")
    if name != name.strip():
        raise UsageError(f"--name {name!r} has spaces at its ends", f"write --name {name.strip()!r}")
    if name.isdecimal() or name == "-":
        raise UsageError(f"--name {name} could be taken for a job's id", "write a name with a letter in it")
    if REFERENCE.fullmatch(name):
        hint = "write a name without brackets, commas or any: before it, and with a letter in it"
        raise UsageError(f"--name {name!r} could be taken for other jobs: ids, or elements of an array", hint)
    if len(name) > NAME_CHARS_MAX:
        raise UsageError(f"--name has {len(name)} characters, and {NAME_CHARS_MAX} is the most", "write a shorter one")
    return name


def check_priority(priority: int | None) -> int | None:
    """A priority that the engine can count with."""
    if priority is not None and abs(priority) > _PRIORITY_MOST:
        raise UsageError(f"--priority {priority} is out of bounds", f"write one between ±{_PRIORITY_MOST:,}")
    return priority


def parse_array(text: str) -> tuple[list[int], int]:
    """`0-99%8`, `1,3,5-9:2`: the indices, and how many may run at once (0: no bound)."""
    body, percent, most = text.partition("%")
    hint = "write --array 0-99, 0-99%8 or 1,3,5"
    if percent and not (most.isdigit() and int(most) > 0):
        raise UsageError(f"--array {text!r}: what follows % is how many may run at once", hint)
    found: list[int] = []
    for part in body.split(","):
        match = _BLOCK.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"--array {text!r} is no list of numbers", hint)
        first, step = int(match[1]), int(match[3] or 1)
        last = int(match[2] or first)
        if last < first or step == 0:
            raise UsageError(f"--array {text!r} has an empty part {part.strip()}", hint)
        if (last - first) // step >= ARRAY_MOST:
            raise UsageError(f"--array {text!r} has more than {ARRAY_MOST:,} jobs", "submit it in parts")
        found.extend(range(first, last + 1, step))
    if len(found) > ARRAY_MOST:
        raise UsageError(f"--array {text!r} has more than {ARRAY_MOST:,} jobs", "submit it in parts")
    if len(set(found)) != len(found):
        raise UsageError(f"--array {text!r} names an index twice", hint)
    return found, int(most) if percent else 0


def parse_after(words: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Dependencies: `12` and `ok:12` on success, `any:12` on any end."""
    found: dict[str, list[str]] = {"ok": [], "any": []}
    for part in (part.strip() for word in words for part in word.split(",")):
        kind, colon, ref = part.partition(":")
        if not colon:
            kind, ref = "ok", part
        if kind not in found or not ref:
            raise UsageError(f"--after {part!r} names no job", "write --after 12, --after ok:12 or --after any:12")
        found[kind].append(ref)
    if found["ok"] and found["any"]:
        raise UsageError(
            "--after mixes ok: and any:, and a job waits either for success or for any end of all it names",
            "write any: for all of them, or ok: for all of them",
        )
    return {"any": found["any"]} if found["any"] else found["ok"]


def parse_topology(text: str) -> dict[str, str]:
    """`require:LEVEL`, `prefer:LEVEL` or both with a comma; a bare level is required."""
    found: dict[str, str] = {}
    for part in text.split(","):
        kind, colon, level = part.strip().partition(":")
        if not colon:
            kind, level = "require", part.strip()
        if kind not in ("require", "prefer") or not level or kind in found:
            raise UsageError(f"--topology {text!r} is not understood", "write --topology require:node or prefer:node")
        found[kind] = level
    return found


def parse_warning(text: str) -> dict[str, Any]:
    """`USR1@60s`: the signal, and how long before the kill."""
    name, at, before = text.partition("@")
    found = signal_name(name)
    try:
        return {"signal": found, "before_s": seconds_of(before, "--warn") if at else 60.0}
    except UsageError as bad:
        raise UsageError(bad.message, f"write --warn {found}@60s") from None


def signal_name(text: str) -> str:
    """A signal's name without SIG, from a name or a number."""
    bare = text.strip().upper().removeprefix("SIG")
    try:
        found = signal.Signals(int(bare)) if bare.isdigit() else signal.Signals[f"SIG{bare}"]
    except (KeyError, ValueError):
        raise UsageError(f"there is no signal {text!r}", "write --warn USR1@60s") from None
    return found.name.removeprefix("SIG")


def check_regex(text: str) -> None:
    """A pattern that finds the step in a line of the log."""
    hint = r"write --progress-regex 'step (?P<step>\d+)/(?P<total>\d+)'"
    try:
        found = re.compile(text)
    except re.error as bad:
        raise UsageError(f"--progress-regex is no pattern: {bad}", hint) from None
    if "step" not in found.groupindex:
        raise UsageError("--progress-regex has no group named step", hint)


def read_umask() -> int:
    """The mask of this process, without changing it for a moment as the system call would."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return 0o022
