"""A file of gangs as jobs: the schema of scenarios, with a command in each gang.

A gang says what to run with `command:` (a list, or one line for the shell) or with `run:` (a mapping of
command, cwd, env, restarts and the rest). Options of the command line go before what the file says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from phalanx.client.daemon_errors import UsageError
from phalanx.client.environment import check_command, choose_cwd, choose_env
from phalanx.client.job_request import JobRequest, check_name, gang_of, options_of, read_umask, run_of, spread
from phalanx.client.shape import choose_shape
from phalanx.client.wrappers import name_of

#: Keys of a job that are not the gang's; the daemon reads the rest with the schema of scenarios.
_JOB_KEYS: Final = ("name", "command", "run", "env", "cwd", "begin", "array", "singleton", "allow_infeasible", "hold")
_SHAPE_KEYS: Final = ("members", "each", "roles")
#: Only the simulator asks these: a live job is submitted now, by its user, and takes as long as it takes.
_SIMULATED: Final = ("submit", "user", "duration", "speedup")
#: Below these keys words are words: a label 01 or yes is a name.
_TEXTS: Final = frozenset({"name", "queue", "select", "tolerate", "together", "after", "command", "commands", "env"})

Tree = dict[str, Any]


def prepare_file(wish: JobRequest, file: Path, notes: list[str]) -> list[Tree]:
    """The jobs of a file."""
    entries = _read_gangs(file, notes)
    if wish.name is not None and len(entries) > 1:
        raise UsageError(f"--name would call all {len(entries)} gangs of {file} the same", "name them in the file")
    found = []
    for at, entry in enumerate(entries):
        place = f"{file}: gangs[{at}]" if len(entries) > 1 else str(file)
        if not isinstance(entry, dict):
            raise UsageError(f"{place}: must be a mapping", "write {name: A, members: 4, each: {gpu: 1}, command: ...}")
        found += _make_jobs(wish, entry, place, notes)
    return found


def _read_gangs(file: Path, notes: list[str]) -> list[Any]:
    from phalanx.control.spec.errors import BadInput
    from phalanx.control.spec.reader import parse_text

    try:
        raw = parse_text(file.read_text(encoding="utf-8"), str(file), file.suffix)
        _check_keys(raw, file)
        tree = _plain(raw)
    except OSError as bad:
        raise UsageError(f"{file}: cannot be read: {bad.strerror or bad}", "name a file that is there") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: is not UTF-8 text", "save it as UTF-8") from None
    except BadInput as bad:
        raise UsageError(str(bad), "mend the file") from None
    if not isinstance(tree, dict):
        raise UsageError(
            f"{file}: must be a mapping", "write gangs: [{name: A, members: 4, each: {gpu: 1}, command: ...}]"
        )
    if "gangs" not in tree:
        return [tree]
    others = [key for key in tree if key != "gangs"]
    if others:
        notes.append(f"{file}: {', '.join(others)}: means nothing here; the machine is as it is")
    gangs = tree["gangs"]
    if not isinstance(gangs, list) or not gangs:
        raise UsageError(f"{file}: gangs must be a list with something in it", "write gangs: [{name: A, ...}]")
    return gangs


def _check_keys(raw: Any, file: Path) -> None:
    """A key that nobody knows is named with its line, which the daemon is not told."""
    from phalanx.control.spec.errors import BadInput, show, suggest
    from phalanx.control.spec.gangs import GANG_KEYS

    tree = raw.value if isinstance(raw.value, dict) else {}
    gangs = tree["gangs"].value if "gangs" in tree else [raw]
    known = {*GANG_KEYS, *_JOB_KEYS, *_SIMULATED}
    for gang in gangs if isinstance(gangs, list) else ():
        for key, inner in gang.value.items() if isinstance(gang.value, dict) else ():
            if key not in known:
                raise BadInput(
                    f"has the unknown key {show(key)}; {suggest(key, sorted(known))}", file=str(file), line=inner.line
                )


def _make_jobs(wish: JobRequest, entry: Tree, place: str, notes: list[str]) -> list[Tree]:
    run, command = _read_run(entry, place)
    cwd = choose_cwd(wish.cwd or _word(run.pop("cwd", None)))
    added = [f"{name}={value}" for name, value in run.pop("env", {}).items()]
    env = choose_env(os.environ, [*added, *wish.env], clean=wish.clean_env, notes=notes)
    for words in (command, *run.get("commands", {}).values()):
        if words:
            check_command(words, env, cwd)
    dropped = [key for key in _SIMULATED if key in entry]
    if dropped:
        notes.append(f"{place}: {', '.join(dropped)}: only the simulator asks that")
    gang = {key: value for key, value in entry.items() if key not in (*_JOB_KEYS, *_SIMULATED)}
    job: Tree = {
        "name": check_name(wish.name or _word(entry.get("name")) or name_of(command)),
        "gang": {**_shape(wish, gang, command, notes), **gang_of(wish)},
        "run": {"command": command, "cwd": cwd, "env": env, "umask": read_umask(), **run, **run_of(wish)},
        **{key: entry[key] for key in ("singleton", "allow_infeasible", "hold") if key in entry},
        **({"begin": options_of(JobRequest(begin=str(entry["begin"])))["begin"]} if "begin" in entry else {}),
        **options_of(wish),
    }
    array = wish.array if wish.array is not None else entry.get("array")
    return spread(job, None if array is None else str(array))


def _shape(wish: JobRequest, gang: Tree, command: list[str], notes: list[str]) -> Tree:
    """The gang with the shape that the command line names, if it names one."""
    if wish.gpus is None and wish.members is None and wish.cpus is None and wish.memory is None:
        return gang
    rest = {key: value for key, value in gang.items() if key not in _SHAPE_KEYS}
    shape = choose_shape(wish.gpus, wish.members, cpus=wish.cpus, memory=wish.memory, command=command, notes=notes)
    return {**rest, **shape}


def _read_run(entry: Mapping[str, Any], place: str) -> tuple[Tree, list[str]]:
    """`run` as a mapping without its command, and the command."""
    run = entry.get("run", {})
    if not isinstance(run, dict):
        run = {"command": run}
    run = {**{key: entry[key] for key in ("env", "cwd") if key in entry}, **run}
    told = run.pop("command", None)
    command = _words(entry.get("command", told), place)
    commands = run.get("commands", {})
    if not isinstance(commands, dict) or not isinstance(run.get("env", {}), dict):
        raise UsageError(f"{place}: env and commands must be mappings", "write env: {NAME: value}")
    if commands:
        run["commands"] = {role: _words(words, place) for role, words in commands.items()}
        command = command or next(iter(run["commands"].values()))
    if not command:
        raise UsageError(f"{place}: says nothing of what to run", "write command: [python, train.py]")
    return run, command


def _words(told: object, place: str) -> list[str]:
    """A list as it is; one text is a line for the shell."""
    if told is None:
        return []
    if isinstance(told, str):
        return ["/bin/sh", "-c", told]
    if isinstance(told, list) and all(isinstance(word, str) for word in told):
        return list(told)
    raise UsageError(f"{place}: command must be a text or a list of words", "write command: [python, train.py]")


def _word(value: object) -> str | None:
    return None if value is None else str(value)


def _plain(raw: Any, *, texts: bool = False) -> Any:
    """The tree without its line numbers; where words are words, scalars stay as they were written."""
    value = raw.value
    if isinstance(value, dict):
        return {key: _plain(inner, texts=texts or key in _TEXTS) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, texts=texts) for inner in value]
    if texts and value is not None and not isinstance(value, str):
        return raw.text if raw.text is not None else str(value)
    return value if isinstance(value, (str, int, float, bool)) or value is None else raw.text
