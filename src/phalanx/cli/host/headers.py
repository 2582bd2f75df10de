"""Header lines of a script as a wish: `#PHALANX` lines are our options, `#SBATCH` lines are translated.

What a Slurm line asks for is either done, or a word says that it means nothing here, or, where leaving it
out would start the job too early or in the wrong place, it is an error.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from phalanx.cli.host.options import parse_words
from phalanx.cli.host.sbatch import Translation
from phalanx.client.daemon_errors import UsageError
from phalanx.client.job_request import JobRequest, check_each, overlay
from phalanx.client.launchers import LauncherSearch

_LINE_CHARS_MAX: Final = 16_384


def wish_of_headers(script: str, headers: Sequence[tuple[str, str, int]], notes: list[str]) -> JobRequest:
    """All header lines together; ours go before those of Slurm."""
    ours = JobRequest()
    slurm = Translation(notes)
    for kind, rest, number in headers:
        place = f"{script}: line {number}"
        words = _split(rest, place)
        if kind == "PHALANX":
            ours = overlay(ours, _parse_ours(words, place))
        else:
            slurm.take(words, place)
    if all(kind == "PHALANX" for kind, _, _ in headers):
        return ours
    body = _read_body(Path(script))
    _tell_of_variables(script, body, notes)
    called = None if "srun " in body else LauncherSearch().look(["sh", script], str(Path.cwd()))
    return overlay(slurm.finish(script, called.launcher if called and called.sure else None), ours)


def _split(rest: str, place: str) -> list[str]:
    if len(rest) > _LINE_CHARS_MAX:  # words are split one character at a time, and nobody means so many
        why = f"{place}: a header line of more than {_LINE_CHARS_MAX:,} characters"
        raise UsageError(why, "write its options on several lines")
    try:
        return shlex.split(rest, comments=True)
    except ValueError as bad:
        raise UsageError(f"{place}: cannot be read: {bad}", "mend the quotes") from None


def _parse_ours(words: list[str], place: str) -> JobRequest:
    try:
        found = parse_words(words)
        check_each(found)
    except UsageError as bad:
        raise UsageError(f"{place}: #PHALANX: {bad.message}", bad.hint) from None
    except click.UsageError as bad:
        raise UsageError(
            f"{place}: #PHALANX: {bad.format_message()}", "phalanx submit --help lists the options"
        ) from None
    return found


#: What a script reads of Slurm, and who says the same here.
_VARIABLES = {
    "SLURM_PROCID": "RANK",
    "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_JOB_ID": "PHALANX_JOB",
    "SLURM_JOBID": "PHALANX_JOB",
    "SLURM_ARRAY_TASK_ID": "PHALANX_ARRAY_INDEX",
    "SLURM_RESTART_COUNT": "PHALANX_ATTEMPT",
}


def _read_body(script: Path) -> str:
    """The script without its comments."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _tell_of_variables(script: str, body: str, notes: list[str]) -> None:
    for foreign, here in _VARIABLES.items():
        if f"${foreign}" in body or f"${{{foreign}" in body:
            notes.append(f"{script} reads {foreign}, which is not set here; {here} is")
    if "srun " in body:
        notes.append(f"{script} calls srun, which is Slurm's; here every member runs the script itself")
