"""A submission on its way in: read, bounded, and refused if it can never run.

Thousands of submissions say the same of their gang, so what was read once is looked up by its
bytes; only names, times and dependencies are a job's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from signal import Signals
from typing import Final

import msgspec

from phalanx.control.explain import Told, explain_pending
from phalanx.control.spec.errors import BadInput, BadText, show, suggest
from phalanx.control.spec.gangs import GANG_KEYS, Known, parse_gang
from phalanx.control.spec.quantity import duration_us
from phalanx.control.spec.reader import raw_of
from phalanx.control.spec.spot import Spot
from phalanx.control.state import State
from phalanx.engine.policy import Policy
from phalanx.frontends.host.core.refs import is_reference
from phalanx.frontends.host.messages import ArrayPart, Run, Submission
from phalanx.frontends.host.ports import Refused
from phalanx.model.fleet import Fleet
from phalanx.model.gang import After, Gang
from phalanx.model.queue import DEFAULT_QUEUE, Queue, UserLimit
from phalanx.model.reason import Code
from phalanx.model.resources import DEVICE_KIND

ARGV_MOST: Final = 256 * 1024
ENV_MOST: Final = 128 * 1024
MEMBERS_MOST: Final = 4096
GANG_MOST: Final = 64 * 1024
NAME_MOST: Final = 128
GRACE_MOST_S: Final = 3600.0
RESTARTS_MOST: Final = 1000
REGEX_MOST: Final = 1000
#: Nine digits, which is what names of elements and `--array` read.
ARRAY_NUMBER_MOST: Final = 999_999_999
LOG_CAP_LEAST: Final = 4096
WARN_MOST_S: Final = 30 * 86_400.0

#: Of the gang schema, what a live job does not say itself: the daemon knows who and when, and nobody the true length.
NOT_HERE: Final = ("name", "submit", "user", "duration", "speedup")
_REMEMBERED: Final = 2000
_REMEMBERED_BYTES: Final = 2048

_RUN = msgspec.json.Decoder(Run)
_TREE = msgspec.json.Decoder()
_STARTS_OTHERS = re.compile(r"python[0-9.]*|sh|bash|zsh|torchrun|accelerate|deepspeed")
_NO_NAME = re.compile(r"[^\w.+@:-]+")
_ENV_KEY = re.compile(r"[^=\x00]+")


@dataclass(frozen=True, slots=True)
class CheckedSubmission:
    """A submission that may come in. The gang has no name and no dependencies by id yet."""

    name: str
    gang: Gang
    run: Run
    begin_us: int | None
    infeasible: str  # why it can never run, where the submitter wants it to wait all the same


class Intake:
    """Reads submissions for one machine."""

    def __init__(
        self, fleet: Fleet, queues: Sequence[Queue], users: Sequence[UserLimit], policy: Policy, levels: tuple[str, ...]
    ) -> None:
        """The cluster as it is when it is empty."""
        self._empty: Callable[[], State] = lambda: State(fleet, queues, users)
        self._policy = policy
        self._has_devices = any(node.resources.get(DEVICE_KIND) for node in fleet.nodes)
        self._queues = dict.fromkeys([*(queue.name for queue in queues), DEFAULT_QUEUE])
        self._known = Known([queue.name for queue in queues], levels)
        self._gangs: dict[bytes, Gang] = {}
        self._verdicts: dict[tuple[bytes, str], str] = {}
        self._too_late: dict[Gang, bool] = {}

    def take(self, submission: Submission, user: str, now_us: int, wall_s: float) -> CheckedSubmission:
        """Everything that can be said of it without knowing the other jobs."""
        run = read_run(bytes(submission.run))
        text = bytes(submission.gang)
        gang = self.read_gang(text)
        name = submission.name or _name_of(run.command)
        check_name(name)
        if submission.array is not None:
            check_name(submission.array.of)
            _check_array(submission.array)
        begin_us = None if submission.begin is None else read_begin(submission.begin, now_us, wall_s)
        never = self._judge(text, gang, user)
        if never and not submission.allow_infeasible:
            raise Refused(
                "infeasible",
                f"{name}: {never}",
                self._what_helps(gang),
                reason={"code": Code.INFEASIBLE.word, "message": never},
            )
        if gang.together is not None and gang.together.gangs < 1:
            word = gang.together.word
            raise Refused(
                "usage",
                f"together {show(word)} does not say how many gangs it ties",
                f"write together: {{word: {word}, gangs: 2}}",
            )
        if gang.members_max > MEMBERS_MOST:
            raise Refused("usage", f"{name}: more than {MEMBERS_MOST} members", "ask for fewer members")
        if run.on_preempt == "requeue" and not gang.preemptible:
            gang = replace(gang, preemptible=True)
        return CheckedSubmission(name, gang, run, begin_us, never)

    def read_gang(self, text: bytes) -> Gang:
        """The gang of a submission, without a name."""
        if len(text) > GANG_MOST:
            raise Refused("too_large", f"the gang is longer than {GANG_MOST // 1024} KiB", "say it in fewer words")
        found = self._gangs.get(text)
        if found is None:
            found = self._parse_gang(text)
            if len(self._gangs) >= _REMEMBERED:
                self._gangs.clear()
            if len(text) <= _REMEMBERED_BYTES:
                self._gangs[text] = found
        return found

    def _parse_gang(self, text: bytes) -> Gang:
        try:
            tree = _TREE.decode(text)
        except msgspec.DecodeError as bad:
            raise Refused("usage", f"gang is not JSON: {bad}", "see docs/one-machine.md for the shape") from None
        if not isinstance(tree, dict):
            raise Refused(
                "usage", f"gang must be a mapping (got {show(tree)})", "see docs/one-machine.md for the shape"
            )
        wrong = next((key for key in NOT_HERE if key in tree), None)
        if wrong is not None:
            raise Refused("usage", f"gang: {wrong} is not said of a live job", "leave it out")
        queue = tree.get("queue", DEFAULT_QUEUE)
        if queue not in self._queues:
            raise Refused(
                "usage", f"there is no queue {show(queue)}; {suggest(str(queue), self._queues)}", "phalanx queues"
            )
        valid = [key for key in GANG_KEYS if key not in NOT_HERE]
        try:
            Spot(raw_of(tree), "", "gang", "", "gang").fields(valid)
            return parse_gang(Spot(raw_of({"name": "x", **tree}), "", "gang", "", "gang"), self._known)
        except (BadInput, BadText) as bad:
            # Of a live job nothing is in a file: levels are those of the machine that it runs on.
            raise Refused(
                "usage", str(bad).replace(" of this file", " of this machine"), "phalanx submit --help"
            ) from None

    def believe(self, gang: Gang, guess_us: int | None) -> Gang:
        """The gang with a length from earlier runs, if it states none."""
        if gang.walltime_us is not None or not guess_us:
            return gang
        believed = replace(gang, walltime_us=guess_us)
        # Whose stated time is longer than their deadline are refused; a guess is no promise, and nobody may be kept
        # waiting for ever by one. Then nobody knows how long it runs, as of a new name.
        return gang if self._is_too_late(believed) else believed

    def _is_too_late(self, gang: Gang) -> bool:
        if gang.deadline_us is None:
            return False
        # Alone it is at most as large as beside those that it starts together with.
        bare = replace(gang, name="", user="", submit_us=0, after=After(), together=None)
        found = self._too_late.get(bare)
        if found is None:  # thousands of elements say the same
            told = self._ask_empty(bare)
            found = told is not None and told[0] is Code.DEADLINE_UNREACHABLE
            if len(self._too_late) >= _REMEMBERED:
                self._too_late.clear()
            self._too_late[bare] = found
        return found

    def judge(self, text: bytes, user: str) -> None:
        """Refuse a gang that could not even run alone."""
        never = self._judge(text, self.read_gang(text), user)
        if never:
            raise Refused("infeasible", never, self._what_helps(self.read_gang(text)))

    def _what_helps(self, gang: Gang) -> str:
        """The next step of somebody whose gang can never run."""
        wants = any(role.shape.amount(DEVICE_KIND) for role in gang.roles)
        if wants and not self._has_devices:
            return "this machine has no GPUs; to try it with made-up ones: phalanx down && phalanx up --fake-gpus 8"
        return "ask for less, or look at what there is: phalanx nodes; phalanx queues"

    def _judge(self, text: bytes, gang: Gang, user: str) -> str:
        """Why such a gang could not even run alone; empty if it could."""
        found = self._verdicts.get((text, user))
        if found is None:
            told = self._ask_empty(replace(gang, user=user))
            never = told is not None and told[0] in (Code.INFEASIBLE, Code.DEADLINE_UNREACHABLE)
            found = told[1] if told is not None and never else ""
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            if len(text) <= _REMEMBERED_BYTES:
                self._verdicts[text, user] = found
        return found

    def _ask_empty(self, gang: Gang) -> Told | None:
        """What keeps such a gang from an empty machine, and in words; None: nothing."""
        state = self._empty()
        number = state.submit(replace(gang, name="x", hold=False, after=After()))
        return explain_pending(state, self._policy).get(number)


def read_run(text: bytes) -> Run:
    """How the members are started, within bounds."""
    try:
        run = _RUN.decode(text)
    except msgspec.ValidationError as bad:
        raise Refused("usage", f"run: {bad}", "see docs/one-machine.md for the shape") from None
    except msgspec.DecodeError as bad:
        raise Refused("usage", f"run is not JSON: {bad}", "see docs/one-machine.md for the shape") from None
    _check_run(run)
    # JSON has no other way to say NUL, and what is short in all has no part that is too long.
    if len(text) > ENV_MOST or b"\\u0000" in text or "=" in "".join(run.env) or "" in run.env:
        _check_words(run)
    return run


def _check_words(run: Run) -> None:
    """Bounds of the command and the environment, one by one."""
    commands = [run.command, *run.commands.values()]
    if sum(len(word) + 1 for command in commands for word in command) > ARGV_MOST:
        raise Refused("too_large", f"the command is longer than {ARGV_MOST // 1024} KiB", "put it into a script")
    if any("\0" in word for command in commands for word in command):
        raise Refused("usage", "the command holds a NUL byte", "remove it")
    size = sum(len(key) + len(value) + 2 for key, value in run.env.items())
    if size > ENV_MOST:
        raise Refused(
            "too_large",
            f"the environment has {size // 1024} KiB, the most is {ENV_MOST // 1024} KiB",
            "submit with --clean-env, and name what the job needs with --env",
        )
    if any(not _ENV_KEY.fullmatch(key) or "\0" in value for key, value in run.env.items()):
        raise Refused("usage", "the environment holds a name or a value that no process can have", "use --clean-env")


def _check_run(run: Run) -> None:
    if not run.command or not run.command[0] or not all(command and command[0] for command in run.commands.values()):
        raise Refused("usage", "there is no command to run", "phalanx submit -g 1 -- python train.py")
    if run.cwd and not run.cwd.startswith("/"):
        raise Refused("usage", f"the working directory {show(run.cwd)} is not absolute", "give a whole path")
    if not 0 <= run.grace_s <= GRACE_MOST_S:
        raise Refused("usage", f"grace must be 0 to {GRACE_MOST_S:g} s (got {run.grace_s:g})", "use --grace 30s")
    if run.log_cap_bytes and run.log_cap_bytes < LOG_CAP_LEAST:
        raise Refused("usage", f"the cap of a log must be {LOG_CAP_LEAST} bytes or more", "leave it out")
    if not 0 <= run.umask <= 0o777 or "\0" in run.cwd:
        raise Refused("usage", "the umask or the working directory is none", "leave it out")
    _check_warning(run)
    if not 0 <= run.restarts <= RESTARTS_MOST:
        raise Refused("usage", f"restarts must be 0 to {RESTARTS_MOST} (got {run.restarts})", "use --restarts 3")
    if run.progress_regex:
        _check_regex(run.progress_regex)


def _check_warning(run: Run) -> None:
    warning = run.kill_after_warning
    if warning is None:
        return
    if f"SIG{warning.signal}" not in Signals.__members__:
        raise Refused("usage", f"there is no signal {show(warning.signal)}", "try --warn USR1@60s")
    if not 0 <= warning.before_s <= WARN_MOST_S:
        raise Refused("usage", f"a warning may come 0 s to {WARN_MOST_S:g} s before", "try --warn USR1@60s")


def _check_regex(text: str) -> None:
    if len(text) > REGEX_MOST:
        raise Refused("too_large", f"the progress regex is longer than {REGEX_MOST} characters", "use a shorter one")
    try:
        groups = re.compile(text).groupindex
    except (re.error, RecursionError, OverflowError, MemoryError) as bad:
        raise Refused("usage", f"the progress regex cannot be read: {bad}", r"try 'step (?P<step>\d+)'") from None
    if "step" not in groups:
        raise Refused("usage", "the progress regex has no group named step", r"try 'step (?P<step>\d+)'")


def check_name(name: str) -> None:
    """A name that fits on a line of a table and cannot be taken for an id."""
    if not name.isprintable() or name != name.strip():
        raise Refused("usage", f"the name {show(name)} has control characters or spaces at its ends", "choose another")
    if len(name) > NAME_MOST:
        raise Refused("usage", f"the name has {len(name)} characters, the most is {NAME_MOST}", "choose a shorter one")
    if is_reference(name):
        what = "a job's id" if name.isdecimal() or name == "-" else "other jobs: ids, or elements of an array"
        hint = "choose one with a letter in it, without brackets and any: before it"
        raise Refused("usage", f"the name {show(name)} could be taken for {what}", hint)


def _check_array(part: ArrayPart) -> None:
    """An element that can be named, as `sweep[3]`, of an array that runs at all."""
    for what, value in (("index", part.index), ("at_most", part.at_most)):
        if not 0 <= value <= ARRAY_NUMBER_MOST:
            said = f"{what} of an array must be 0 to {ARRAY_NUMBER_MOST:,} (got {show(value)})"
            raise Refused("usage", said, "write --array 0-99, or 0-99%8 for at most 8 at once")


def read_begin(text: str, now_us: int, wall_s: float) -> int:
    """When a job may start at the earliest, on the cluster's clock: "+10m", or a time of day with a date."""
    if text.startswith("+"):
        try:
            return now_us + duration_us(text[1:])
        except BadText as bad:
            raise Refused("usage", f"begin {bad}", "write --begin +10m or --begin 2026-11-16T09:00") from None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            "usage", f"begin {show(text)} is no time", "write --begin +10m or --begin 2026-11-16T09:00"
        ) from None
    return now_us + round((at.astimezone().timestamp() - wall_s) * 1e6)


def _name_of(command: Sequence[str]) -> str:
    """What a job without a name is called: its script, or its program."""
    program = command[0].rsplit("/", 1)[-1]
    if _STARTS_OTHERS.fullmatch(program):
        script = next((word for word in command[1:] if word.endswith((".py", ".sh"))), "")
        program = script.rsplit("/", 1)[-1].rsplit(".", 1)[0] or program
    if program.isidentifier():  # most are
        return program
    kept = _NO_NAME.sub("-", program).strip("-")[:NAME_MOST]
    return f"job-{kept}" if not kept or is_reference(kept) else kept
