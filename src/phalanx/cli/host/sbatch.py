"""`#SBATCH` lines as our options.

Slurm runs a script once, with everything that was asked for, and `srun` inside it starts the tasks. Here the
members are the tasks. So `--ntasks=4` becomes four members that each run the script, and a script without it
becomes one member with all GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from phalanx.cli.host.text import now
from phalanx.client.daemon_errors import UsageError
from phalanx.client.job_request import JobRequest, parse_array, parse_warning

#: Short letters of sbatch, for options that take a value.
_SHORT: Final = {
    "a": "array", "A": "account", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name",
    "L": "licenses", "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output",
    "p": "partition", "q": "qos", "S": "core-spec", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_SHORT_FLAGS: Final = {
    "H": "hold", "I": "immediate", "k": "no-kill", "O": "overcommit", "Q": "quiet", "s": "oversubscribe",
    "v": "verbose", "W": "wait",
}  # fmt: skip
_FLAGS: Final = frozenset(
    {*_SHORT_FLAGS.values(), "requeue", "no-requeue", "parsable", "reboot", "spread-job", "use-min-nodes", "ignore-pbs"}
)
#: May stand with or without a value, which then follows an equals sign.
_MAYBE: Final = frozenset({"exclusive", "nice", "get-user-env", "propagate"})

#: Why lines mean nothing here; everything that is not listed gets a word of its own.
WORDS: Final = {
    "output": "phalanx keeps the output of every rank: phalanx logs JOB",
    "error": "phalanx keeps the output of every rank: phalanx logs JOB",
    "open-mode": "phalanx keeps the output of every rank: phalanx logs JOB",
    "priority": "Slurm's priorities are not ours; write #PHALANX --priority N",
    "nice": "Slurm's priorities are not ours; write #PHALANX --priority -N",
    "account": "there are queues; write #PHALANX --queue NAME",
    "qos": "there are queues and priorities; write #PHALANX --queue NAME --priority N",
    "constraint": "there is one machine",
    "exclusive": "GPUs are never shared unless a job asks for part of one",
    "mail-type": "no mail is sent; phalanx wait JOB && mail ...",
    "mail-user": "no mail is sent; phalanx wait JOB && mail ...",
    "wait": "phalanx run waits",
}

_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
_LATER = re.compile(r"now\+(\d{1,9})(second|minute|hour|day|week)?s?")
_UNITS: Final = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w", None: "s"}
_COUNT = re.compile(r"[0-9]{1,9}")
_GRES = re.compile(r"(?:gres[:/])?gpu(?:[:/]([A-Za-z][\w.-]*))?(?:[:=](\d{1,9}))?")
_SIZE = re.compile(r"(\d{1,18})\s*([KMGT]?)B?", re.IGNORECASE)
_WORDS_OF_DAY: Final = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}


class Translation:
    """The lines of one script, taken one by one; `finish` says what they come to."""

    def __init__(self, notes: list[str]) -> None:
        """What means nothing here goes to the notes."""
        self._notes = notes
        self._said: dict[str, tuple[str, str]] = {}  # option → value, place

    def take(self, words: Sequence[str], place: str) -> None:
        """One line."""
        rest = list(words)
        while rest:
            name, value = _next_option(rest, place)
            if name in HANDLED:
                self._said[name] = (value, place)
            elif name not in ("no-requeue", "parsable", "quiet", "verbose"):
                why = WORDS.get(name, "phalanx knows no such thing")
                self._notes.append(f"{place}: --{name} means nothing here: {why}")

    def finish(self, script: str, launcher: str | None = None) -> JobRequest:
        """Everything together; `launcher`: what the script calls without srun, and so starts once in Slurm too."""
        self._check_nodes()
        tasks = self._tasks()
        if launcher is not None and tasks > 1:
            self._notes.append(
                f"{script} calls {launcher}, which starts its own ranks: started once with all GPUs, not {tasks} times"
            )
            tasks = 1
        gpus = self._gpus(tasks)
        cpus = self._cpus(gpus, tasks)
        warn, kill_after = self._signal()
        if tasks > 1:
            self._notes.append(f"{script}: the script is started {tasks} times, once per task; srun is not needed")
        if "time" in self._said and kill_after is None:
            self._notes.append(
                f"{self._place('time')}: --time plans and does not kill here; #PHALANX --kill-after does"
            )
        after, singleton = self._dependency()
        exported = self._export()
        return JobRequest(
            gpus=None if gpus is None else str(gpus),
            members=str(tasks),
            cpus=None if cpus is None else str(cpus),
            memory=self._memory(cpus, gpus, tasks),
            name=self._text("job-name"),
            time=self._read("time", _slurm_time),
            kill_after=kill_after,
            warn=warn,
            begin=self._read("begin", _slurm_begin),
            deadline=self._read("deadline", _slurm_begin),
            partition=self._text("partition"),
            after=after,
            singleton=singleton,
            array=self._array(),
            env=tuple(word for word in exported if word not in ("ALL", "NONE")),
            clean_env="NONE" in exported or (bool(exported) and "ALL" not in exported),
            cwd=self._text("chdir"),
            requeue="requeue" in self._said,
            hold="hold" in self._said,
        )

    # ---- parts

    def _text(self, name: str) -> str | None:
        return self._said[name][0] if name in self._said else None

    def _place(self, name: str) -> str:
        return self._said[name][1]

    def _read(self, name: str, parse: Callable[[str], str | None]) -> str | None:
        if name not in self._said:
            return None
        value, place = self._said[name]
        found = parse(value)
        if found is None:
            raise UsageError(f"{place}: --{name}={value} is not understood", f"write #PHALANX --{name} instead")
        return found or None

    def _number(self, name: str) -> int | None:
        if name not in self._said:
            return None
        value, place = self._said[name]
        if not _COUNT.fullmatch(value) or int(value) == 0:
            raise UsageError(f"{place}: --{name}={value} is no number above zero", f"write --{name}=1")
        return int(value)

    def _check_nodes(self) -> None:
        value = self._text("nodes")
        if value is not None and value.partition("-")[0] != "1":
            why = f"{self._place('nodes')}: --nodes={value}, and this is one machine"
            raise UsageError(why, "write --nodes=1 and ask for the GPUs of one machine")

    def _tasks(self) -> int:
        return self._number("ntasks") or self._number("ntasks-per-node") or 1

    def _gpus(self, tasks: int) -> int | None:
        """GPUs of the whole job; Slurm has five ways to say it, and one node."""
        each = self._number_of_gpus("gpus-per-task")
        if each is not None:
            return each * tasks
        for name in ("gpus", "gpus-per-node", "gres"):
            found = self._number_of_gpus(name)
            if found is not None:
                return found
        return None

    def _number_of_gpus(self, name: str) -> int | None:
        if name not in self._said:
            return None
        value, place = self._said[name]
        if name == "gres":
            parts = [part for part in value.split(",") if "gpu" in part]
            for part in value.split(","):
                if part not in parts:
                    self._notes.append(f"{place}: --gres={part} means nothing here: only GPUs are counted")
            if not parts:
                return None
            value = parts[0]
        elif not value.startswith("gpu"):
            value = f"gpu:{value}"
        match = _GRES.fullmatch(value)
        if match is None or match[2] == "0":
            raise UsageError(f"{place}: --{name}={self._said[name][0]} is no number of GPUs", f"write --{name}=4")
        if match[1]:
            self._notes.append(f"{place}: the kind {match[1]} means nothing here: the machine has the GPUs it has")
        return int(match[2] or 1)

    def _cpus(self, gpus: int | None, tasks: int) -> int | None:
        each = self._number("cpus-per-task")
        by_gpu = self._number("cpus-per-gpu")
        if each is None and by_gpu is not None and gpus:
            each = by_gpu * max(1, gpus // tasks)
        # A job that asks for nothing at all is, in Slurm, a job of one core.
        return each if each is not None or gpus is not None else 1

    def _memory(self, cpus: int | None, gpus: int | None, tasks: int) -> str | None:
        for name, share in (
            ("mem-per-cpu", cpus or 1),
            ("mem-per-gpu", max(1, (gpus or 1) // tasks)),
        ):
            if name in self._said:
                return f"{self._mebibytes(name) * share}Mi"
        if "mem" in self._said:
            whole = self._mebibytes("mem")
            if whole:
                return f"{max(1, whole // tasks)}Mi"
            self._notes.append(f"{self._place('mem')}: --mem=0 means nothing here: no bound is the default")
        return None

    def _mebibytes(self, name: str) -> int:
        value, place = self._said[name]
        match = _SIZE.fullmatch(value)
        if match is None:
            raise UsageError(f"{place}: --{name}={value} is no amount of memory", f"write --{name}=16G")
        size = int(match[1])
        power = "KMGT".index((match[2] or "M").upper())
        return max(1, size >> 10) if power == 0 and size else size << (10 * (power - 1))

    def _signal(self) -> tuple[str | None, str | None]:
        """A warning needs an end to warn of, and Slurm's end is --time."""
        if "signal" not in self._said:
            return None, None
        value, place = self._said["signal"]
        if "time" not in self._said:
            self._notes.append(f"{place}: --signal means nothing without --time")
            return None, None
        name, _, before = value.rpartition(":")[2].partition("@")
        warn = f"{name}@{before or 60}s"
        self._refuse_unless(parse_warning, warn, "signal", "is no signal with seconds before the end", "USR1@60")
        return warn, self._read("time", _slurm_time)

    def _array(self) -> str | None:
        text = self._text("array")
        if text is not None:
            self._refuse_unless(parse_array, text, "array", "is no list of numbers that can be used", "0-99%8")
        return text

    def _refuse_unless(self, parse: Callable[[str], object], text: str, name: str, what: str, example: str) -> None:
        """What would be refused later is refused with its line."""
        try:
            parse(text)
        except UsageError:
            value, place = self._said[name]
            raise UsageError(f"{place}: --{name}={value} {what}", f"write --{name}={example}") from None

    def _dependency(self) -> tuple[tuple[str, ...], bool]:
        if "dependency" not in self._said:
            return (), False
        value, place = self._said["dependency"]
        found, singleton = [], False
        for part in value.split(","):
            kind, *refs = part.split(":")
            if kind == "singleton":
                singleton = True
            elif kind in ("afterok", "afterany") and refs:
                found += [f"{'ok' if kind == 'afterok' else 'any'}:{ref}" for ref in refs]
            else:
                # Left out, the job would start too early.
                raise UsageError(
                    f"{place}: --dependency={part} cannot be kept here", "use afterok:ID, afterany:ID or singleton"
                )
        return tuple(found), singleton

    def _export(self) -> list[str]:
        return [word.strip() for word in (self._text("export") or "").split(",") if word.strip()]


HANDLED: Final = frozenset(
    {
        *("nodes", "ntasks", "ntasks-per-node", "gpus", "gpus-per-node", "gpus-per-task", "gres", "cpus-per-task"),
        *("cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu", "time", "begin", "deadline", "dependency", "array"),
        *("job-name", "partition", "chdir", "export", "signal", "requeue", "hold"),
    }
)


def _next_option(rest: list[str], place: str) -> tuple[str, str]:
    """Take one option and its value off the front."""
    word = rest.pop(0)
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if not equals and name not in _FLAGS | _MAYBE and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        return name, value
    if not word.startswith("-") or word == "-":
        raise UsageError(f"{place}: {word!r} is no option", "write #SBATCH --option=value")
    letter = word[1]
    if letter in _SHORT_FLAGS:
        return _SHORT_FLAGS[letter], ""
    value = word[2:].removeprefix("=")
    if not value and rest:
        value = rest.pop(0)
    return _SHORT.get(letter, letter), value


def _slurm_time(text: str) -> str | None:
    """Minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S as seconds; empty where there is no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return ""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    assert first is not None
    if days is not None:
        parts = (first, second or 0, third or 0)
    elif third is not None:
        parts = (first, second or 0, third)
    else:
        parts = (0, first, second or 0)
    hours, minutes, seconds = parts
    return f"{(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds}s"


def _slurm_begin(text: str) -> str | None:
    """`now+1hour`, a word for a time of day, or an instant, as `--begin` reads it."""
    if match := _LATER.fullmatch(text):
        return f"+{match[1]}{_UNITS[match[2]]}"
    if text in ("now", "today"):
        return ""
    if text == "tomorrow":
        tomorrow = now().astimezone() + timedelta(days=1)
        return tomorrow.replace(hour=0, minute=0, second=0, microsecond=0).isoformat()
    return _WORDS_OF_DAY.get(text, text)
