"""From what stands behind `phalanx submit` to the jobs that are sent: a command, lines, a script, a file of gangs."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from phalanx.cli.host.talking import note
from phalanx.client.daemon_errors import UsageError
from phalanx.client.environment import choose_cwd
from phalanx.client.job_request import JobRequest, make_submissions
from phalanx.client.launchers import CalledLauncher, LauncherSearch
from phalanx.client.shape import choose_shape
from phalanx.client.wrappers import SHELLS, after_wrappers, line_of_shell, name_of, name_of_line

_GANG_FILES: Final = (".yaml", ".yml", ".json", ".toml")
_HEADER = re.compile(r"#\s?(PHALANX|SBATCH)\b(.*)")
_LINES_MAX: Final = 100_000
_SCRIPT_BYTES: Final = 1 << 20

Job = dict[str, Any]


def prepare(wish: JobRequest, command: Sequence[str], *, each: bool, notes: list[str]) -> list[Job]:
    """The jobs that were asked for, checked as far as that is possible without the daemon."""
    if each:
        return prepare_lines(wish, command, sys.stdin, notes)
    if not command:
        raise UsageError(
            "there is no command to run",
            "phalanx submit -g 1 -- python train.py, phalanx submit job.yaml, or phalanx submit --each < commands.txt",
        )
    first = Path(command[0])
    if len(command) > 1 and first.suffix in _GANG_FILES and not os.access(first, os.X_OK) and first.is_file():
        raise UsageError(
            f"{first} is a file of gangs, and what stands behind it is for nobody: {' '.join(command[1:])}",
            f"write options before it: phalanx submit {shlex.join([*command[1:], command[0]])}",
        )
    if len(command) == 1 and first.suffix in _GANG_FILES:
        from phalanx.cli.host.gangfile import prepare_file

        return prepare_file(wish, first, notes)
    headers = read_headers(first)
    if headers:
        return prepare_script(wish, command, headers, notes)
    _tell_of_headers(command, notes)
    return make_submissions(wish, command, os.environ, notes)


def _tell_of_headers(command: Sequence[str], notes: list[str]) -> None:
    """`bash job.sh` runs a script whose header lines nobody reads, as in Slurm; whoever wrote them wants to know."""
    words = after_wrappers(command)
    if not words or Path(words[0]).name not in SHELLS or line_of_shell(words) is not None:
        return
    script = next((word for word in words[1:] if not word.startswith(("-", "+"))), "")
    kinds = dict.fromkeys(f"#{kind}" for kind, _, _ in read_headers(Path(script))) if script else {}
    if kinds:
        told = shlex.join(words[words.index(script) :])
        notes.append(f"the {' and '.join(kinds)} lines of {script} are not read: phalanx submit {told} reads them")


def prepare_lines(wish: JobRequest, command: Sequence[str], source: Any, notes: list[str]) -> list[Job]:
    """One job for each line that is neither blank nor a comment; each is run by the shell."""
    if command:
        raise UsageError(
            "--each reads commands from standard input, and there is one on the line too", "keep one of them"
        )
    if wish.array is not None:
        raise UsageError("--each and --array both make many jobs", "keep one of them")
    if source.isatty():
        note("reading commands from the terminal, one a line; Ctrl-D ends")
    try:
        lines = [line.strip() for line in source]
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text", "phalanx submit --each < commands.txt") from None
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise UsageError("standard input has no commands", "phalanx submit --each < commands.txt")
    if len(lines) > _LINES_MAX:
        raise UsageError(f"{len(lines):,} commands at once are too many", f"split them into files of {_LINES_MAX:,}")
    return list(_jobs_of_lines(wish, lines, notes))


def _jobs_of_lines(wish: JobRequest, lines: Sequence[str], notes: list[str]) -> Iterator[Job]:
    # Everything but the command and the name is the same for all lines (or for all that begin with a launcher),
    # and so is made and checked once.
    bases: dict[CalledLauncher | None, Job] = {}
    search, cwd = LauncherSearch(), choose_cwd(wish.cwd)
    for line in lines:
        called = search.look_in_line(line, cwd)
        if called not in bases:
            bases[called] = _make_base(wish, ["/bin/sh", "-c", line] if called else [], cwd, notes)
        base = bases[called]
        name = wish.name or name_of_line(line)
        yield {**base, "name": name, "run": {**base["run"], "command": ["/bin/sh", "-c", line]}}


def _make_base(wish: JobRequest, line: list[str], cwd: str, notes: list[str]) -> Job:
    named = replace(wish, name=wish.name or "line")
    if line:
        shape = choose_shape(
            wish.gpus, wish.members, cpus=wish.cpus, memory=wish.memory, command=line, cwd=cwd, notes=notes
        )  # fmt: skip
        if shape["members"] == 1:
            named = replace(named, members="1")
    (base,) = make_submissions(named, ["/bin/sh"], os.environ, notes)
    return base


# ---- scripts with header lines


def read_headers(file: Path) -> list[tuple[str, str, int]]:
    """(PHALANX or SBATCH, the rest of the line, its number) of the comment lines that a script begins with."""
    try:
        if not file.is_file():
            return []
        with file.open("rb") as source:
            text = source.read(_SCRIPT_BYTES)
    except OSError:
        return []
    if b"\0" in text[:1024]:
        return []  # a program, not a script
    found = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            break  # as with sbatch, headers end where the script begins
        if match := _HEADER.match(bare):
            found.append((match[1], match[2].strip(), number))
    return found


def prepare_script(
    wish: JobRequest, command: Sequence[str], headers: Sequence[tuple[str, str, int]], notes: list[str]
) -> list[Job]:
    """A script that says itself what it needs; the command line goes before it."""
    from phalanx.cli.host.headers import wish_of_headers
    from phalanx.client.job_request import overlay

    told = wish_of_headers(command[0], headers, notes)
    if wish.gpus and ":" in wish.gpus and wish.members is None:
        told = replace(told, members=None)  # a range on the command line is about other members than the script's
    whole = replace(overlay(told, wish), name=wish.name or told.name or name_of(["sh", f"{Path(command[0]).stem}.sh"]))
    return make_submissions(whole, [*_how_to_run(Path(command[0])), *command[1:]], os.environ, notes)


def _how_to_run(script: Path) -> list[str]:
    """The script's path if it can be run, else the interpreter that it names."""
    path = str(script.absolute())
    if os.access(script, os.X_OK):
        return [path]
    with script.open("rb") as file:
        first = file.readline(4096).decode("utf-8", "replace").strip()
    return [*first[2:].split(None, 1), path] if first.startswith("#!") and first[2:].strip() else ["/bin/sh", path]
