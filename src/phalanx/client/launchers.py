"""Programs that start the ranks of a machine themselves: which one a command begins with, or a script calls.

Started once for each GPU, a launcher would start all ranks each time: four times four processes on four GPUs.
Looked into are lines of the shell, scripts that are run or sourced by a command or by such a line, and those that
these run in turn, within bounds: what is not found is started once per GPU, and the output says how often that is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from phalanx.client.wrappers import BEFORE, SHELLS, after_wrappers, line_of_shell, list_simple, split_words

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

_SHELL_LINE = re.compile(r"#!\s*\S*?(?:/env\s+)?(?:-\S+\s+)*\S*?\b(?:sh|bash|dash|zsh|ksh)\b")
#: Programs that start what stands somewhere behind their options, and have too many of those to know them all.
_STARTERS: Final = frozenset({"srun", "numactl", "nsys", "ncu", "conda", "mamba", "hatch", "xargs"})
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=(.*)", re.DOTALL)
_FROM_PYTHON = re.compile(r"[\"'](torchrun|accelerate launch|accelerate|deepspeed)[\"' ]")
_STARTS_PROCESSES = re.compile(r"\b(?:subprocess|os\.system|os\.exec\w+|os\.spawn\w+|Popen)\b")
THE_LINE: Final = "the line"
_SCRIPT_BYTES: Final = 1 << 20
#: Scripts that are read for one command, how much of them in all, and how deep they may call each other.
_FILES_MOST: Final = 16
_BYTES_MOST: Final = 4 << 20
_DEEPEST: Final = 3
#: Without any of these in it a text calls nobody and runs no script; thousands of lines are looked at one by one.
_MAY_CALL = re.compile(
    r"torchrun|accelerate|deepspeed|torch\.distributed|(?<![\w.-])(?:\.{0,2}/|\.\s)|sh\b|source\s", re.DOTALL
)
#: How scripts name the folder that they lie in.
_OWN_FOLDER = re.compile(r"""\$\(\s*dirname\s+(?:--\s+)?"?\$(?:0|\{?BASH_SOURCE(?:\[0\])?\}?)"?\s*\)""")


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


def find_called_launcher(command: Sequence[str], cwd: str) -> CalledLauncher | None:
    """The launcher that a command is, or calls: as a line of the shell, or in a script that it runs."""
    found = find_launcher(command)
    return CalledLauncher(found) if found is not None else LauncherSearch().look(command, cwd)


class LauncherSearch:
    """A look into what a command runs; what was read once is not read again."""

    def __init__(self) -> None:
        """Nothing has been read."""
        self._texts: dict[Path, str] = {}
        self._left = _BYTES_MOST
        self._open: set[Path] = set()  # scripts that are being looked into: two may call each other

    def look(self, command: Sequence[str], cwd: str, *, within: str = "") -> CalledLauncher | None:
        """Whom a command calls that is no launcher itself; `within`: the script in which it stands."""
        words = after_wrappers(command)
        if not words:
            return None
        line = line_of_shell(words)
        if line is not None:
            return self.look_in_line(line, cwd, within=within or THE_LINE)
        program = PurePosixPath(words[0]).name
        script = next((word for word in words[1:] if not word.startswith(("-", "+"))), "")
        if program in SHELLS or program in ("source", "."):
            return self._look_in_script(script, cwd)
        if _PYTHON.fullmatch(program):
            return self._look_in_python(script, cwd) if script.endswith(".py") else None
        return self._look_in_program(words[0], cwd) if "/" in words[0] else None

    def _look_in_program(self, name: str, cwd: str) -> CalledLauncher | None:
        """What is run by its path: a script of the shell, one of Python, or something else."""
        text = self._read(Path(cwd) / name)
        if _SHELL_LINE.match(text) or (not text.startswith("#!") and name.endswith((".sh", ".bash"))):
            return self._look_in_script(name, cwd)
        return self._look_in_python(name, cwd) if name.endswith(".py") else None

    def look_in_line(self, text: str, cwd: str, *, within: str = THE_LINE) -> CalledLauncher | None:
        """Whom lines of the shell call, also through scripts that they run; who surely does goes before who may."""
        if not _MAY_CALL.search(text):
            return None
        unsure: CalledLauncher | None = None
        for words in list_simple(text):
            launcher, rest = _find_in_simple(words)
            if launcher is not None:
                return CalledLauncher(launcher, within)
            if rest[:1] == ["cd"] and len(rest) > 1:
                cwd = os.path.join(cwd, os.path.expanduser(rest[1]))  # noqa: PTH111, PTH118 - raises for no user
                continue
            found = self._look_behind(rest, cwd, within)
            if found is not None and found.sure:
                return found
            unsure = unsure or found
        return unsure

    def _look_behind(self, words: list[str], cwd: str, within: str) -> CalledLauncher | None:
        """One command of a script; of what only starts another one wherever it stands, all that could be meant."""
        starts = range(1, len(words)) if words and PurePosixPath(words[0]).name in _STARTERS else range(1)
        for at in starts:
            found = self.look(words[at:], cwd, within=within)
            if found is not None:
                return found
        return None

    def _look_in_script(self, name: str, cwd: str) -> CalledLauncher | None:
        path = Path(cwd) / name
        if not name or path in self._open or len(self._open) >= _DEEPEST:
            return None
        text = _OWN_FOLDER.sub(lambda _: shlex.quote(str(path.parent)), self._read(path))
        self._open.add(path)
        try:
            return self.look_in_line(text, cwd, within=PurePosixPath(name).name)
        finally:
            self._open.discard(path)

    def _look_in_python(self, name: str, cwd: str) -> CalledLauncher | None:
        text = self._read(Path(cwd) / name)
        found = _FROM_PYTHON.search(text) if _STARTS_PROCESSES.search(text) else None
        if found is None:
            return None
        return CalledLauncher(found[1].partition(" ")[0], PurePosixPath(name).name, sure=False)

    def _read(self, path: Path) -> str:
        """The text of a script; empty where there is none to be read, or enough has been read."""
        if path in self._texts:
            return self._texts[path]
        text = b""
        if len(self._texts) < _FILES_MOST and self._left > 0:
            try:
                if path.is_file():  # and no pipe, which would be emptied, or waited for
                    with path.open("rb") as file:
                        text = file.read(min(_SCRIPT_BYTES, self._left))
            except (OSError, ValueError):
                text = b""
            self._left -= len(text)
            self._texts[path] = "" if b"\0" in text[:1024] else text.decode("utf-8", "replace")
        return self._texts.get(path, "")


def _find_in_simple(words: list[str]) -> tuple[str | None, list[str]]:
    """The launcher that one command without pipes and such calls; what is left behind its assignments."""
    while words:
        assigned = _ASSIGNED.fullmatch(words[0])
        if assigned is not None:
            # LAUNCH="torchrun --nproc_per_node 4", which a later line begins with.
            found = _as_called(split_words(assigned[1]))
            if found is not None:
                return found, words
        elif words[0] not in BEFORE:
            break
        words = words[1:]
    if words and PurePosixPath(words[0]).name in _STARTERS:
        tails = (_as_called(words[at:]) for at in range(1, len(words)))
        return next((found for found in tails if found is not None), None), words
    return _as_called(words), words


def _as_called(words: list[str]) -> str | None:
    """A launcher that launches: `accelerate config` in a script starts nothing."""
    found = find_launcher(words)
    named = after_wrappers(words)
    if found == "accelerate" and PurePosixPath(named[0]).name == found and "launch" not in named[1:2]:
        return None
    return found
