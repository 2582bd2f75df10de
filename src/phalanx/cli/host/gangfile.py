"""A file of gangs as jobs: the schema of scenarios, with a command in each gang.

A gang says what to run with `command:` (a list, or one line for the shell) or with `run:` (a mapping of
command, cwd, env, restarts and the rest). Options of the command line go before what the file says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from phalanx.client.daemon_errors import UsageError
from phalanx.client.environment import check_command, choose_cwd, choose_env
from phalanx.client.job_request import JobRequest, check_name, gang_of, options_of, read_umask, run_of, spread
from phalanx.client.shape import choose_shape
from phalanx.client.wrappers import name_of

if TYPE_CHECKING:
    from phalanx.control.spec.reader import Raw

#: Keys of a job that are not the gang's; the daemon reads the rest with the schema of scenarios.
_JOB_KEYS: Final = ("name", "command", "run", "env", "cwd", "begin", "array", "singleton", "allow_infeasible", "hold")
_SHAPE_KEYS: Final = ("members", "each", "roles")
#: Only the simulator asks these: a live job is submitted now, by its user, and takes as long as it takes.
_SIMULATED: Final = ("submit", "user", "duration", "speedup")
#: Rules about others that stand by domain: which domains there are, the daemon knows.
_BY_DOMAIN: Final = frozenset({"at_most", "apart", "beside", "spread"})
#: Below these keys words are words: a label 01 or yes is a name.
_TEXTS: Final = frozenset(
    (
        *("name", "queue", "select", "tolerate", "together", "after", "command", "commands", "env"),
        *("bears", "apart", "beside"),
    )
)

#: Key of a job on its way: where it was written, for what the daemon says of it.
PLACE: Final = "place"
_NAME_SHOWN: Final = 40
_FILE_BYTES: Final = 16 << 20
#: The same once aliases are written out; each value counts a little, however short it is.
_SPREAD_CHARS: Final = 16 << 20
_VALUE_CHARS: Final = 16

Tree = dict[str, Any]


class GangPlace(NamedTuple):
    """Where a gang stands, as every error about it begins: `jobs.yaml: line 3: gangs[1] 'train'`."""

    file: Path
    line: int | None
    entry: str

    def __str__(self) -> str:
        """Only what is known of it."""
        line = "" if self.line is None else f"line {self.line}"
        return ": ".join(part for part in (str(self.file), line, self.entry) if part)


def prepare_file(wish: JobRequest, file: Path, notes: list[str]) -> list[Tree]:
    """The jobs of a file."""
    entries = _read_gangs(file, notes)
    if wish.name is not None and len(entries) > 1:
        raise UsageError(f"--name would call all {len(entries)} gangs of {file} the same", "name them in the file")
    found = []
    for place, raw in entries:
        if not isinstance(raw.value, dict):
            raise UsageError(f"{place}: must be a mapping", "write {name: A, members: 4, each: {gpu: 1}, command: ...}")
        try:
            _check_gang(wish, raw, place)
            found += [{**job, PLACE: place} for job in _make_jobs(wish, _plain(raw), str(place), notes)]
        except UsageError as bad:
            raise _placed(bad, place) from None
    return found


def _placed(bad: UsageError, place: GangPlace) -> UsageError:
    """An error about a gang names where it stands, whoever found it."""
    message = bad.message if bad.message.startswith(f"{place.file}:") else f"{place}: {bad.message}"
    # Advice to type another command is none about a file.
    hint = "mend the file: docs/job-files.md" if bad.hint.startswith("phalanx submit ") else bad.hint
    return UsageError(message, hint)


def _read_gangs(file: Path, notes: list[str]) -> list[tuple[GangPlace, Raw]]:
    """The gangs of a file as they were written, each with its place."""
    from phalanx.control.spec.errors import BadInput
    from phalanx.control.spec.reader import parse_text

    try:
        if file.stat().st_size > _FILE_BYTES:
            raise UsageError(f"{file}: is longer than {_FILE_BYTES >> 20} MiB", "submit it in parts")
        text = file.read_text(encoding="utf-8")
        raw = parse_text(text, str(file), file.suffix)
        _check_size(raw, file)
        _check_keys(raw, file)
    except OSError as bad:
        raise UsageError(f"{file}: cannot be read: {bad.strerror or bad}", "name a file that is there") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: is not UTF-8 text", "save it as UTF-8") from None
    except BadInput as bad:
        raise UsageError(str(bad), "mend the file") from None
    tree = raw.value
    if not isinstance(tree, dict):
        raise UsageError(
            f"{file}: must be a mapping", "write gangs: [{name: A, members: 4, each: {gpu: 1}, command: ...}]"
        )
    if "gangs" not in tree:
        return [(_place_of(file, text, raw, "gang"), raw)]
    others = [key for key in tree if key != "gangs"]
    if others:
        notes.append(f"{file}: {', '.join(others)}: means nothing here; the machine is as it is")
    gangs = tree["gangs"].value
    if not isinstance(gangs, list) or not gangs:
        raise UsageError(f"{file}: gangs must be a list with something in it", "write gangs: [{name: A, ...}]")
    return [(_place_of(file, text, each, f"gangs[{at}]"), each) for at, each in enumerate(gangs)]


def _place_of(file: Path, text: str, raw: Raw, entry: str) -> GangPlace:
    name = raw.value.get("name") if isinstance(raw.value, dict) else None
    word = "" if name is None else str(name.text if name.text is not None else name.value)[:_NAME_SHOWN]
    line = raw.line
    if line is None and word:  # JSON and TOML are read without lines: where the name is written, then
        match = re.search(rf"""\bname["']?\s*[:=]\s*["']{re.escape(word)}["']""", text)
        line = None if match is None else text.count("\n", 0, match.start()) + 1
    said = entry if entry != "gang" or word else ""
    return GangPlace(file, line, f"{said} '{word}'" if word else said)


def _check_size(raw: Raw, file: Path) -> None:
    """Refuse a few lines that aliases make into more values than anybody means."""
    from phalanx.control.spec.errors import BadInput

    sizes: dict[int, int] = {}

    def size_of(value: Raw) -> int:
        inner = value.value
        if not isinstance(inner, (dict, list)):
            return _VALUE_CHARS + len(value.text or "")
        if id(value) not in sizes:  # whoever is there twice is one object
            parts = inner.values() if isinstance(inner, dict) else inner
            sizes[id(value)] = _VALUE_CHARS + sum(map(size_of, parts))
        return sizes[id(value)]

    if size_of(raw) > _SPREAD_CHARS:
        raise BadInput(f"is more than {_SPREAD_CHARS >> 20} MiB once its aliases are written out", file=str(file))


def _check_keys(raw: Raw, file: Path) -> None:
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


def _check_gang(wish: JobRequest, raw: Raw, place: GangPlace) -> None:
    """What the daemon would refuse without a word about the file; queues and levels only it knows."""
    from phalanx.control.spec.errors import BadInput
    from phalanx.control.spec.gangs import GANG_KEYS, Known, parse_gang
    from phalanx.control.spec.reader import raw_of
    from phalanx.control.spec.spot import Spot

    assert isinstance(raw.value, dict)
    keys = {key: value for key, value in raw.value.items() if key in GANG_KEYS and key not in _SIMULATED}
    if "name" not in keys:
        keys["name"] = raw_of("x")
    if _names_shape(wish):
        keys = {key: value for key, value in keys.items() if key not in _SHAPE_KEYS}
        keys |= {"members": raw_of(1), "each": raw_of({"gpu": 1})}
    queue = keys["queue"].text or str(keys["queue"].value) if "queue" in keys else ""
    spot = Spot(replace(raw, value=keys), str(place.file), place.entry)
    try:
        parse_gang(spot, Known([queue], tuple(_words_in(keys.get("topology"))), tuple(_list_domains(raw))))
    except BadInput as bad:
        raise UsageError(str(bad), "mend the file: docs/job-files.md") from None


def _words_in(raw: Raw | None) -> Iterator[str]:
    """Everything that may be the name of a level."""
    inner = None if raw is None else raw.value
    if isinstance(inner, dict):
        for value in inner.values():
            yield from _words_in(value)
    elif isinstance(inner, str):
        yield inner


def _list_domains(raw: Raw | None) -> Iterator[str]:
    """Everything that rules about others go by, also those of roles and of wishes."""
    inner = None if raw is None else raw.value
    if isinstance(inner, list):
        for item in inner:
            yield from _list_domains(item)
    for key, value in inner.items() if isinstance(inner, dict) else ():
        if key in ("roles", "rather"):
            yield from _list_domains(value)
        elif key in _BY_DOMAIN and isinstance(value.value, dict):
            yield from value.value


def _names_shape(wish: JobRequest) -> bool:
    return any(said is not None for said in (wish.gpus, wish.members, wish.cpus, wish.memory))


def _make_jobs(wish: JobRequest, entry: Tree, place: str, notes: list[str]) -> list[Tree]:
    run, command = _read_run(entry, place)
    cwd = choose_cwd(wish.cwd or _word(run.pop("cwd", None)))
    added = [f"{name}={value}" for name, value in run.pop("env", {}).items()]
    env = choose_env(os.environ, [*added, *wish.env], clean=wish.clean_env, notes=notes)
    _check_run(run, place)
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
    if not _names_shape(wish):
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
    wrong = next((name for name, value in run.get("env", {}).items() if isinstance(value, (dict, list))), None)
    if wrong is not None:
        raise UsageError(f"{place}: env.{wrong} must be a word", "write env: {NAME: value}")
    if commands:
        run["commands"] = {role: _words(words, place) for role, words in commands.items()}
        command = command or next(iter(run["commands"].values()))
    if not command:
        raise UsageError(f"{place}: says nothing of what to run", "write command: [python, train.py]")
    return run, command


def _check_run(run: Mapping[str, Any], place: str) -> None:
    """Keys and kinds of `run`, which the daemon would refuse in the words of its own decoder."""
    import msgspec

    from phalanx.control.spec.errors import show, suggest
    from phalanx.frontends.host.messages import Run

    known = [field.name for field in msgspec.structs.fields(Run)]
    wrong = next((key for key in run if key not in known), None)
    if wrong is not None:
        raise UsageError(f"{place}: run has the unknown key {show(wrong)}; {suggest(wrong, known)}", "mend the file")
    try:
        msgspec.convert({"command": [], **run}, Run)
    except msgspec.ValidationError as bad:
        what, _, path = str(bad).replace("`", "").partition(" - at $.")
        said = what[:1].lower() + what[1:]
        raise UsageError(f"{place}: run.{path}: {said}" if path else f"{place}: run: {said}", "mend the file") from None


def _words(told: object, place: str) -> list[str]:
    """A list as it is; one text is a line for the shell."""
    if told is None:
        return []
    if isinstance(told, str):
        return ["/bin/sh", "-c", told] if told.strip() else []  # as empty as an empty list
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
