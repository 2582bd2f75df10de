"""What a command runs, behind the programs that only start others: `env A=b`, `nohup`, `timeout 60`, `uv run`.

They are read as far as their options are known; where one is not, what follows it counts as what is run. A job is
called after that, and `launchers` looks into it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple


class _Wrapper(NamedTuple):
    """A program that starts what stands behind its options."""

    valued: frozenset[str] = frozenset()  # options whose value is the next word
    words: int = 0  # words of its own before the command: how long, which cores
    verb: str = ""  # only with this word behind it


def _wrapper(valued: str = "", *, words: int = 0, verb: str = "") -> _Wrapper:
    return _Wrapper(frozenset(valued.split()), words, verb)


_WRAPPERS: Final = {
    "env": _wrapper("-u --unset -C --chdir"),
    "nohup": _wrapper(),
    "setsid": _wrapper(),
    "time": _wrapper("-f --format -o --output"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c --class -n --classdata"),
    "timeout": _wrapper("-s --signal -k --kill-after", words=1),
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "taskset": _wrapper(words=1),
    "chrt": _wrapper(words=1),
    "numactl": _wrapper("-i -N -C -m -p -P -w --interleave --cpunodebind --physcpubind --membind --preferred"),
    "uv": _wrapper("--with --python -p --extra --group --package --project --directory --env-file", verb="run"),
    "conda": _wrapper("-n --name -p --prefix --cwd", verb="run"),
    "mamba": _wrapper("-n --name -p --prefix --cwd", verb="run"),
    "poetry": _wrapper(verb="run"),
    "pdm": _wrapper(verb="run"),
}
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
#: Wrappers in wrappers; nobody means more.
_DEEPEST: Final = 8

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
#: Words of the shell after which a command begins.
BEFORE: Final = frozenset({"then", "do", "else", "elif", "if", "while", "until", "!", "{", "exec"})
#: What a line does before it comes to the point, or beside it.
_ASIDE: Final = frozenset(
    {
        *("cd", "source", ".", "export", "set", "unset", "ulimit", "umask", "module"),
        *("mkdir", "echo", "printf", "trap", "[", "[[", "test", "command", "eval"),
    }
)
_ENDS = re.compile(r"[;&|()\n`]+|\$\(")
_SPECIAL = re.compile(r"['\"\\#]")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")

NAME_CHARS_MAX: Final = 128
#: Programs whose script names a job better than they do.
#: What every verb reads as something else than a name: `36-39`, `36,40`, `sweep[3]`, and `any:` of --after.
REFERENCE = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*|.*\[[^\[\]]*\]|(?:any|ok):.*", re.DOTALL)
_INTERPRETER = re.compile(r"python[0-9.]*|sh|bash|dash|zsh|ksh|torchrun|accelerate|deepspeed")
_SCRIPTS: Final = (".py", ".sh", ".bash")


def after_wrappers(command: Sequence[str]) -> list[str]:
    """The command without what only starts it: `env -i A=b`, `timeout 60`, `uv run`."""
    words = list(command)
    for _ in range(_DEEPEST):
        program = PurePosixPath(words[0]).name if words else ""
        known = _WRAPPERS.get(program)
        if known is None or (known.verb and words[1:2] != [known.verb]):
            break
        rest = _after_options(words[2 if known.verb else 1 :], known.valued)[known.words :]
        while program == "env" and rest and _ASSIGNED.fullmatch(rest[0]):
            rest = rest[1:]
        if not rest:
            break  # `time` alone is a program
        words = rest
    return words


def _after_options(words: list[str], valued: frozenset[str]) -> list[str]:
    while words and words[0].startswith("-") and words[0] != "-":
        if words[0] == "--":
            return words[1:]
        words = words[2 if words[0] in valued else 1 :]
    return words


def line_of_shell(words: Sequence[str]) -> str | None:
    """What stands behind -c of a shell: `bash -lc 'cd x && ./run.sh'`; None if it runs a script, or nothing."""
    if not words or PurePosixPath(words[0]).name not in SHELLS:
        return None
    for at, word in enumerate(words[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            return words[at + 1] if at + 1 < len(words) else ""
        if not word.startswith(("-", "+")):
            return None
    return None


def list_simple(text: str) -> Iterator[list[str]]:
    """The simple commands of lines of the shell, as words; comments are none."""
    whole = re.sub(r"\\\n", " ", text)
    for line in whole.splitlines():
        if line.lstrip().startswith("#"):
            continue
        yield from map(split_words, _split_line(line))


def _split_line(line: str) -> list[str]:
    """The simple commands of one line, as texts."""
    # Quotes are put aside first, so that a semicolon in a text ends nothing.
    quoted = iter(_QUOTED.findall(line))
    return [re.sub("\0", lambda _: next(quoted, ""), part) for part in _ENDS.split(_QUOTED.sub("\0", line))]


def split_words(text: str) -> list[str]:
    """Words of the shell, or what looks like some."""
    if not _SPECIAL.search(text):
        return text.split()  # nearly always, and twenty times as quick
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def name_of(command: Sequence[str]) -> str:
    """What a job is called that has no name: the script that is run, else the program."""
    words = [word for word in after_wrappers(command) if word]
    line = line_of_shell(words)
    point = _point_of(line) if line is not None else []
    if point:
        return name_of(point)
    names = [PurePosixPath(word).name for word in words]
    found = names[0] if names else ""
    if _INTERPRETER.fullmatch(found):
        script = next((name for name in names[1:] if name.endswith(_SCRIPTS)), "")
        found = script.rpartition(".")[0] or found
    kept = re.sub(r"[^\w.+@:-]+", "-", found).strip("-")[:NAME_CHARS_MAX]
    return f"job-{kept}" if not kept or kept.isdecimal() or REFERENCE.fullmatch(kept) else kept


def name_of_line(line: str) -> str:
    """The same for a line that is run by a shell."""
    return name_of(["/bin/sh", "-c", line])


def _point_of(line: str) -> list[str]:
    """The first command of a line that is neither about the place nor about the environment; else its first."""
    first: list[str] = []
    for simple in list_simple(line):
        words = simple
        while words and (_ASSIGNED.fullmatch(words[0]) or words[0] in BEFORE):
            words = words[1:]
        words = after_wrappers(words)
        if words and words[0] not in _ASIDE:
            return words
        first = first or words
    return first
