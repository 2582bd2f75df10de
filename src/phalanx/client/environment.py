"""What a job takes with it from where it is submitted: environment, working directory, a command that exists.

Looked at before anything is sent: a typo should not wait in a queue for an hour before it fails.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from phalanx.client.daemon_errors import UsageError

ENV_BYTES_MAX: Final = 128 * 1024
COMMAND_BYTES_MAX: Final = 256 * 1024
_NAMED: Final = 3
_LINE_BYTES: Final = 4096
#: What a clean environment keeps: without these most programs do not even start.
_BASICS: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG")
_NAME = re.compile(r"[^=\0]+")
_KIB: Final = 1024
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
#: Spaces, pipes and the like in what should be the name of a program.
#: What only a shell obeys, in a line that is one word.
_OF_A_SHELL = re.compile(r"[;&|<>`$*?(){}~\n]")
_SHELL_WORDS = re.compile(r"[\s;&|<>`]|\$\(")


def choose_env(environ: Mapping[str, str], settings: Iterable[str], *, clean: bool, notes: list[str]) -> dict[str, str]:
    """The environment of a job: the submitter's, or the basics, and what was set for it; bounded in size."""
    kept = {name: environ[name] for name in _BASICS if name in environ} if clean else dict(environ)
    found = {name: value for name, value in kept.items() if not is_ours(name)}
    settings = list(settings)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(f"--env {setting!r} names no variable", "write --env NAME=value")
        if not equals and name not in environ:
            raise UsageError(f"--env {name}: there is no such variable here", f"write --env {name}=value")
        found[name] = value if equals else environ[name]
    foreign = [name for name, value in found.items() if not _is_utf8(name) or not _is_utf8(value)]
    for name in foreign:
        del found[name]
        notes.append(f"the variable {ascii(name)[1:-1]} is not UTF-8 and is left out")
    _check_size(found, {setting.partition("=")[0] for setting in settings if "=" in setting})
    return found


def is_ours(name: str) -> bool:
    """Whether a variable is the scheduler's to set, so that a job of a job does not inherit it."""
    return name == "CUDA_VISIBLE_DEVICES" or name.startswith("PHALANX_")


def choose_cwd(named: str | None) -> str:
    """The directory a job starts in; it must be there."""
    try:
        here = Path.cwd()
    except OSError:
        if named is None or not named.startswith("/"):
            raise UsageError(
                "the working directory is gone: somebody removed it", "cd somewhere else, or write --cwd DIRECTORY"
            ) from None
        here = Path("/")
    found = here if named is None else here / Path(named).expanduser()
    if not found.is_dir():
        what = "is no directory" if found.exists() else "does not exist"
        raise UsageError(f"--cwd {named}: {what}", "name a directory that is there")
    return os.path.abspath(found)  # noqa: PTH100 - `..` goes, symbolic links stay as they were written


def check_command(command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """Refuse a command that could not start: nothing, too long, or a program that is not there."""
    if not command or not command[0]:
        raise UsageError("there is no command to run", "phalanx submit -g 1 -- python train.py")
    if any("\0" in word for word in command):
        raise UsageError("a word of the command contains a zero byte", "write the word without it")
    size = sum(len(os.fsencode(word)) + 1 for word in command)
    if size > COMMAND_BYTES_MAX:
        raise UsageError(
            f"the command has {size // _KIB:,} KiB, and {COMMAND_BYTES_MAX // _KIB} KiB is the most",
            "put its words into a file and give the file's name",
        )
    if not all(_is_utf8(word) for word in command):
        raise UsageError("a word of the command is not UTF-8", "rename the file, or start it through a script")
    program = command[0]
    _check_shell_words(command, env, cwd)
    if "/" in program:
        _check_file(Path(cwd) / program, command, cwd)
    elif find_program(program, env, cwd) is None:
        _refuse_missing(command, cwd)


def _check_shell_words(command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """Refuse what only a shell would understand: several commands in one word, or variables before one."""
    program = command[0]
    if len(command) == 1 and _SHELL_WORDS.search(program) and not (Path(cwd) / program).exists():
        _refuse_line(program)
    if _ASSIGNMENT.fullmatch(program) and find_program(program, env, cwd) is None:
        rest = [word for word in command if not _ASSIGNMENT.fullmatch(word)]
        settings = [word for word in command[: len(command) - len(rest)] if _ASSIGNMENT.fullmatch(word)]
        raise UsageError(f"{program} sets a variable, which only a shell does", _with_env(settings, rest))
    if not _SHELL_WORDS.search(program) or (Path(cwd) / program).exists():
        return
    raise UsageError(
        f"there is no command {program!r}: it looks like several words", f"phalanx submit -- {' '.join(command)}"
    )


def _refuse_line(line: str) -> None:
    """A whole line in one word: without anything of the shell's in it, words and variables as we take them."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = []
    plain = bool(words) and not _OF_A_SHELL.search(line)
    count = next((at for at, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    if plain and 0 < count < len(words):
        raise UsageError(f"{line!r} sets a variable, which only a shell does", _with_env(words[:count], words[count:]))
    why = f"{line!r} is a line for a shell, and is not run by one"
    raise UsageError(why, f"phalanx submit -- bash -c {shlex.quote(line)}")


def _with_env(settings: Sequence[str], rest: Sequence[str]) -> str:
    options = " ".join(f"--env {shlex.quote(word)}" for word in settings)
    return f"phalanx submit {options} -- {shlex.join(rest) if rest else 'COMMAND'}"


def find_program(program: str, env: Mapping[str, str], cwd: str) -> Path | None:
    """Where a word is found on the path of an environment."""
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        file = Path(cwd) / (folder or ".") / program
        # Not by `Path.is_file`, which raises where a folder may not be searched; a shell passes such a folder over.
        if os.path.isfile(file) and os.access(file, os.X_OK):  # noqa: PTH113
            return file
    return None


def _check_file(file: Path, command: Sequence[str], cwd: str) -> None:
    program = command[0]
    if not os.path.exists(file):  # noqa: PTH110 - also where a folder on the way may not be searched
        raise UsageError(f"there is no file {program}", "write the path of a program, or its name if it is on the PATH")
    if file.is_dir():
        raise UsageError(f"{program} is a directory, not a program", "name a program in it")
    if not os.access(file, os.X_OK):
        raise UsageError(f"{program} is not executable", _how_to_start(command, cwd))


def _refuse_missing(command: Sequence[str], cwd: str) -> None:
    program = command[0]
    if os.path.isfile(Path(cwd) / program):  # noqa: PTH113 - as above
        raise UsageError(
            f"there is no command {program!r} on the PATH, but a file of that name", _how_to_start(command, cwd)
        )
    raise UsageError(
        f"there is no command {program!r} on the PATH of this job",
        f"check the spelling, or write its path; command -v {program}" if program.isalnum() else "check the spelling",
    )


def _how_to_start(command: Sequence[str], cwd: str) -> str:
    """By its path if it can be run, else by the interpreter that it names, else by what its name ends in."""
    program, file = command[0], Path(cwd) / command[0]
    if os.access(file, os.X_OK):
        return f"phalanx submit -- {shlex.join([f'./{program}', *command[1:]])}"
    try:
        with file.open("rb") as script:
            first = script.readline(_LINE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        first = ""
    words = first[2:].split(None, 1) if first.startswith("#!") else []
    if words and PurePosixPath(words[0]).name == "env" and words[1:]:
        words = words[1].removeprefix("-S ").split()
    known = {".py": "python", ".bash": "bash", ".zsh": "zsh"}
    starter = words or [known.get(file.suffix, "sh")]
    # As people type it: what is first on the path is nearly always the same.
    if starter[0] == f"/bin/{PurePosixPath(starter[0]).name}" or starter[0].startswith("/usr/bin/"):
        starter = [PurePosixPath(starter[0]).name, *starter[1:]]
    if program.startswith("-"):  # an interpreter would take it for an option
        command = [f"./{program}", *command[1:]]
    return f"phalanx submit -- {shlex.join([*starter, *command])}"


def _check_size(env: Mapping[str, str], set_here: Collection[str]) -> None:
    """Refuse an environment that is too large; `set_here`: what was set for this job alone."""
    sizes = {name: len(name.encode()) + len(value.encode()) + 2 for name, value in env.items()}
    total = sum(sizes.values())
    if total <= ENV_BYTES_MAX:
        return
    biggest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_NAMED]
    named = ", ".join(f"{name} ({-(-sizes[name] // _KIB):,} KiB)" for name in biggest)
    hint = f"unset {biggest[0]}, or write --clean-env and --env NAME for what the job needs"
    if biggest[0] in set_here:  # neither unset nor --clean-env would take it away
        hint = f"put what {biggest[0]} holds into a file, and the path of the file into {biggest[0]}"
    raise UsageError(
        f"the environment has {-(-total // _KIB):,} KiB, and {ENV_BYTES_MAX // _KIB} KiB is the most; "
        f"the biggest: {named}",
        hint,
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
