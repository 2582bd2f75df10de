"""Programs that start the ranks of a machine themselves: which one a command begins with, or a script calls.

Started once for each GPU, a launcher would start all ranks each time: four times four processes on four GPUs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

#: Programs that start the ranks of a machine themselves, and modules of Python that do.
LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed"})
_LAUNCHER_MODULES: Final = {
    "torch.distributed.run": "torch.distributed.run",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?")
_MODULE_WORDS: Final = 2

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_SHELL_LINE = re.compile(r"#!\s*\S*?(?:/env\s+)?(?:-\S+\s+)*\S*?\b(?:sh|bash|dash|zsh|ksh)\b")
#: Words of the shell after which a command begins.
_BEFORE: Final = frozenset({"then", "do", "else", "elif", "if", "while", "until", "!", "{", "exec", "time", "nohup"})
#: Programs that start what stands behind their options.
_STARTERS: Final = frozenset(
    {*("srun", "timeout", "nice", "numactl", "stdbuf", "nsys", "ncu", "conda", "mamba", "poetry", "pdm", "hatch")}
)
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=(.*)", re.DOTALL)
_ENDS = re.compile(r"[;&|()\n`]+|\$\(")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_FROM_PYTHON = re.compile(r"[\"'](torchrun|accelerate launch|accelerate|deepspeed)[\"' ]")
_STARTS_PROCESSES = re.compile(r"\b(?:subprocess|os\.system|os\.exec\w+|os\.spawn\w+|Popen)\b")
THE_LINE: Final = "the line"
_SCRIPT_BYTES: Final = 1 << 20
#: Without any of these in it a text calls nobody; thousands of lines are looked at one by one.
_HINTS: Final = (*sorted(LAUNCHERS), "torch.distributed")


class CalledLauncher(NamedTuple):
    """A launcher, and who calls it: nothing if the command itself does, else the script, or the line of a shell."""

    launcher: str
    within: str = ""
    sure: bool = True  # else it only looks so

    def __str__(self) -> str:
        """The beginning of a sentence about it."""
        if self.within == THE_LINE:
            return self.launcher
        return f"{self.within} calls {self.launcher}, which" if self.within else self.launcher


def find_launcher(command: Sequence[str]) -> str | None:
    """The launcher that a command begins with, if it is a known one."""
    words = after_wrappers(command)
    if not words:
        return None
    program = PurePosixPath(words[0]).name
    if program in LAUNCHERS:
        return program
    if _PYTHON.fullmatch(program):
        rest = [word for word in words[1:] if word not in ("-u", "-O", "-I", "-P", "-B")]
        if len(rest) >= _MODULE_WORDS and rest[0] == "-m":
            return _LAUNCHER_MODULES.get(rest[1])
    return None


def after_wrappers(command: Sequence[str]) -> list[str]:
    """The command without `env A=b` or `uv run` in front of it."""
    words = list(command)
    if words[:2] == ["uv", "run"]:
        return words[2:]
    if words and PurePosixPath(words[0]).name == "env":
        words = words[1:]
        while words and "=" in words[0] and not words[0].startswith("-"):
            words = words[1:]
    return words


def find_called_launcher(command: Sequence[str], cwd: str) -> CalledLauncher | None:
    """The launcher that a command is, or calls: as a line of the shell, or in the script that it runs."""
    found = find_launcher(command)
    if found is not None:
        return CalledLauncher(found)
    words = after_wrappers(command)
    if not words:
        return None
    program = PurePosixPath(words[0]).name
    if program in _SHELLS:
        return _find_in_shell(words[1:], cwd)
    if _PYTHON.fullmatch(program):
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        return _find_in_python(script, _read(script, cwd)) if script.endswith(".py") else None
    text = _read(words[0], cwd) if "/" in words[0] else ""
    if _SHELL_LINE.match(text) or (not text.startswith("#!") and program.endswith((".sh", ".bash"))):
        return _named(find_in_text(text), program)
    return _find_in_python(words[0], text) if program.endswith(".py") else None


def find_in_text(text: str) -> str | None:
    """The first launcher that lines of the shell call."""
    if not any(hint in text for hint in _HINTS):
        return None
    whole = re.sub(r"\\\n", " ", text)
    lines = [line for line in whole.splitlines() if not line.lstrip().startswith("#")]
    simple = (_split(part) for line in lines for part in _list_simple(line))
    return next((found for words in simple if (found := _find_in_simple(words)) is not None), None)


def _list_simple(line: str) -> list[str]:
    """The simple commands of a line."""
    # Quotes are put aside first, so that a semicolon in a text ends nothing.
    quoted = _QUOTED.findall(line)
    bare = _QUOTED.sub("\0", line)
    again = iter(quoted)
    return [re.sub("\0", lambda _: next(again, ""), part) for part in _ENDS.split(bare)]


def _find_in_simple(words: list[str]) -> str | None:
    """One command without pipes and such."""
    while words:
        assigned = _ASSIGNED.fullmatch(words[0])
        if assigned is not None:
            # LAUNCH="torchrun --nproc_per_node 4", which a later line begins with.
            found = _as_called(_split(assigned[1]))
            if found is not None:
                return found
        elif words[0] not in _BEFORE:
            break
        words = words[1:]
    if words and PurePosixPath(words[0]).name in _STARTERS:
        tails = (_as_called(words[at:]) for at in range(1, len(words)))
        return next((found for found in tails if found is not None), None)
    return _as_called(words)


def _as_called(words: list[str]) -> str | None:
    """A launcher that launches: `accelerate config` in a script starts nothing."""
    found = find_launcher(words)
    named = after_wrappers(words)
    if found == "accelerate" and PurePosixPath(named[0]).name == found and "launch" not in named[1:2]:
        return None
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _find_in_shell(words: Sequence[str], cwd: str) -> CalledLauncher | None:
    """What follows the name of a shell: options, then a line behind -c or the name of a script."""
    for at, word in enumerate(words):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            text = words[at + 1] if at + 1 < len(words) else ""
            return _named(find_in_text(text), THE_LINE)
        if not word.startswith(("-", "+")):
            return _named(find_in_text(_read(word, cwd)), PurePosixPath(word).name)
    return None


def _find_in_python(script: str, text: str) -> CalledLauncher | None:
    found = _FROM_PYTHON.search(text) if _STARTS_PROCESSES.search(text) else None
    if found is None:
        return None
    return CalledLauncher(found[1].partition(" ")[0], PurePosixPath(script).name, sure=False)


def _named(launcher: str | None, within: str) -> CalledLauncher | None:
    return None if launcher is None else CalledLauncher(launcher, within)


def _read(name: str, cwd: str) -> str:
    """The text of a script; empty where there is none to be read."""
    try:
        with (Path(cwd) / name).open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except (OSError, ValueError):
        return ""
    return "" if b"\0" in text[:1024] else text.decode("utf-8", "replace")
