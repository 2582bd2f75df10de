"""Policies by name, and those that users write themselves: `path/to/file.py:NAME`.

The file is Python and is run to get the value; the core stays without IO, so this is done here. What a user's
order returns is checked whenever it is used: a row that it drops would be a gang that never has a turn. So is what a
user's worth of more members returns: a worth that is no number has no place in any order.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np

from phalanx.control.spec.errors import BadInput, show, suggest
from phalanx.engine.policy import Order, Policy
from phalanx.engine.worth import WEIGHTS, Weigh
from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Snapshot
from phalanx.policy import POLICIES, named, with_options

#: Ways of getting room that the engine knows.
TAKES: Final = ("shrink", "preempt", "reclaim", "move")

_HERE: Final = (Path(),)
#: Larger integers are no numbers to a float.
_INT_MOST = 10**300
#: Orders that need no checking.
_OURS: Final = tuple(policy.order for policy in POLICIES.values())


def find_policy(
    name: str,
    options: Mapping[str, object] | None = None,
    places: Sequence[Path] = _HERE,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> Policy:
    """A named policy or one of a file, with options laid over it. A relative path is looked for in the places.

    What `read` gives is what is run, so that it may refuse a file that somebody else could have written.
    """
    place = _parse_place(name)
    if place is None:
        # A bare word is ours and needs no looking at the disk: a file of that name must not change what `easy` means.
        return named(name, options)
    path = _find_file(place[0], places)
    return with_options(_checked(path, place[1], read), options or {})


def settle_name(name: str, places: Sequence[Path] = _HERE) -> str:
    """The same name with the path of its file found, so that it means the same wherever it is read next."""
    place = _parse_place(name)
    return name if place is None else f"{_find_file(place[0], places)}:{place[1]}"


def _parse_place(name: str) -> tuple[str, str] | None:
    """Path and NAME; None of a word that is no file at all."""
    # The last colon: on Windows a path has one of its own.
    path, colon, word = name.rpartition(":")
    if colon and path.endswith(".py"):
        if not word:
            raise BadInput(f"policy {show(name)} ends with a colon; write {path}:NAME, NAME being the policy in it")
        return path, word
    # A slip and not an unknown policy: it says what is missing instead of listing names.
    if name.endswith(".py") or (colon and "/" in path):
        said = name if name.endswith(".py") else "path/to/file.py"
        raise BadInput(f"policy {show(name)} does not say which policy of the file; write {said}:NAME")
    return None


def _find_file(text: str, places: Sequence[Path]) -> Path:
    path = Path(text).expanduser()
    # Beside the file that names it first, as whoever calls says: a scenario and its policy travel together.
    tried = [path] if path.is_absolute() else [place / path for place in places]
    found = next((each for each in tried if each.is_file()), None)
    if found is not None:
        return found
    folder = next((each for each in tried if each.is_dir()), None)
    if folder is not None:
        raise BadInput("is a folder, not a Python file", file=str(folder))
    looked = " and ".join(dict.fromkeys(str(each) for each in tried))
    raise BadInput(f"there is no policy file {show(text)} (looked for {looked}); check the path")


def _checked(path: Path, word: str, read: Callable[[Path], bytes]) -> Policy:
    """The policy of this name in a file, with an order that is checked."""
    label = f"{path.name}:{word}"
    try:
        code = read(path)
    except OSError as bad:
        raise BadInput(f"cannot be read: {bad.strerror or bad}", file=str(path)) from None
    module = _run_file(str(path.resolve()), str(path), code)
    value = vars(module).get(word)
    policies = [key for key, each in vars(module).items() if isinstance(each, Policy)]
    if value is None:
        nothing = "nor any policy; make one with dataclasses.replace(POLICIES['easy'], name=…, order=…)"
        raise BadInput(f"has no {word}{'; ' + suggest(word, policies) if policies else ', ' + nothing}", file=str(path))
    if not isinstance(value, Policy):
        what = (
            "an order, not a policy; write"
            if callable(value)
            else f"of type {type(value).__name__}, not a policy; write"
        )
        raise BadInput(f"{word} is {what} replace(POLICIES['easy'], name='mine', order=…)", file=str(path))
    _check_fields(value, word, str(path))
    # A copy that kept its model's name would stand beside it in every table, and one called pod-fifo would be
    # taken for the baseline.
    own = label if value.name in POLICIES else value.name
    # Ours are held to it by tests, and need not be sorted again in every pass.
    order = value.order if value.order in _OURS else CheckedOrder(value.order, str(path), word)
    return replace(value, name=own, order=order, weigh=_checked_weigh(value.weigh, str(path), word))


def _checked_weigh(weigh: Weigh | str, file: str, word: str) -> Weigh:
    """A named key, by its name too: as an option says it, so a file may."""
    if isinstance(weigh, str):
        return WEIGHTS[weigh]
    return weigh if weigh in WEIGHTS.values() else CheckedWeigh(weigh, file, word)


def _check_fields(policy: Policy, word: str, file: str) -> None:
    """What a dataclass does not check: a slip here would do nothing, in silence."""
    # As plain objects: the file is Python, so that the annotations of `Policy` promise nothing.
    said: dict[str, object] = {field.name: getattr(policy, field.name) for field in fields(policy)}
    # A plain string is iterable too: `takes="shrink"` would be six ways named by a letter.
    takes = said["takes"]
    ways = [str(way) for way in takes] if isinstance(takes, set | frozenset | tuple | list) else []
    unknown = next((way for way in ways if way not in TAKES), None)
    length = "must be a whole number of microseconds above 0, or None"
    checks = {
        "name": (isinstance(said["name"], str) and bool(said["name"].strip()), "must be a word"),
        "order": (callable(said["order"]), "must be a function of a snapshot and rows"),
        "reservations": (_is_count(said["reservations"]), "must be a whole number from 0"),
        "fill": (said["fill"] in ("arrival", "shortest"), "must be 'arrival' or 'shortest'"),
        "takes": (bool(ways) or takes == frozenset(), "must be a set of words, as frozenset({'shrink'})"),
        "min_runtime_us": (_is_count(said["min_runtime_us"]), "must be a whole number of microseconds from 0"),
        "max_evictions": (_is_count(said["max_evictions"]), "must be a whole number from 0"),
        "quantum_us": (_is_length(said["quantum_us"]), length),
        "half_life_us": (_is_length(said["half_life_us"]), length),
        "admit": (said["admit"] in ("any", "promised", "refuse"), "must be 'any', 'promised' or 'refuse'"),
        "mold_efficiency": (_is_part(said["mold_efficiency"]), "must be a number from 0 to 1"),
        "weigh": (
            said["weigh"] in WEIGHTS if isinstance(said["weigh"], str) else callable(said["weigh"]),
            f"must be a function of two lengths of time, or one of {', '.join(WEIGHTS)}",
        ),
    }
    for key, (fine, rule) in checks.items():
        if not fine:
            raise BadInput(f"{word}: {key} {rule} (got {show(said[key])})", file=file)
    if unknown is not None:
        raise BadInput(f"{word}: takes names {show(unknown)}; {suggest(unknown, TAKES)}", file=file)


def _is_length(value: object) -> bool:
    # Zero is no length: a quantum of nothing would end every turn at once.
    return value is None or (_is_count(value) and value != 0)


def _is_count(value: object) -> bool:
    # True is an int to Python, and a slip to a person.
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_part(value: object) -> bool:
    # True is a number to Python, and to nobody who writes a policy. NaN fails both comparisons.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


@lru_cache(maxsize=64)
def _run_file(path: str, shown: str, code: bytes) -> ModuleType:
    """Run a user's file once per version of it, without leaving compiled files beside it."""
    try:
        text = code.decode("utf-8-sig")
    except ValueError:
        raise BadInput("is not UTF-8 text; is it Python at all?", file=shown) from None
    # Not imported: the folder of the file would have to be on the path, and two files of one name would be one module.
    module = ModuleType(f"phalanx_policy_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look their module up by name
    try:
        exec(compile(text, path, "exec"), vars(module))  # noqa: S102 - the user's own code, named by the user
    except SyntaxError as bad:
        raise BadInput(f"is not Python: {bad.msg}", file=shown, line=bad.lineno) from None
    # `exit()` in a script is common, and would end the daemon; an interrupt by the person passes through.
    except (Exception, SystemExit) as bad:  # noqa: BLE001 - whatever a user's file raises is one message
        raise BadInput(f"failed when it was run: {_tell(bad)}", file=shown, line=_line_in(bad, path)) from None
    return module


def _tell(bad: BaseException) -> str:
    return f"{type(bad).__name__}: {bad}" if str(bad) else type(bad).__name__


def _line_in(bad: BaseException, path: str) -> int | None:
    """The innermost line of the user's file on the way to a failure."""
    lines = [frame.lineno for frame in traceback.extract_tb(bad.__traceback__) if frame.filename == path]
    return lines[-1] if lines else None


@dataclass(frozen=True, slots=True)
class CheckedOrder:
    """A user's order that is held to its word: the rows it got, each once, in the order of their turn."""

    order: Order
    file: str
    word: str

    def __call__(self, snapshot: Snapshot, rows: IntArray) -> IntArray:
        """The rows in the user's order, or a refusal that says what is wrong with it."""
        given = rows.copy()  # an order may sort in place
        try:
            answer: object = self.order(snapshot, rows)
            found = np.asarray(answer)
        except Exception as bad:  # noqa: BLE001 - whatever a user's order raises is one message
            line = _line_in(bad, str(Path(self.file).resolve()))
            raise BadInput(f"the order of {self.word} failed: {_tell(bad)}", file=self.file, line=line) from None
        # An empty list comes out as floats, and is a fine order of nobody.
        if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
            self._refuse(f"returned {_kind(answer)}, which is no list of rows")
        # The one check that every pass pays for; what exactly is wrong is found out only when something is.
        if np.array_equal(np.sort(found), np.sort(given)):
            return found.astype(np.int64, copy=False)
        if len(np.setdiff1d(found, given)):
            self._refuse("returned rows that it was not given")
        lost = len(np.setdiff1d(given, found))
        if lost:
            self._refuse(f"dropped {lost} of {len(given)} rows")
        return self._refuse(f"returned {len(found)} rows for {len(given)}, some of them twice")

    def _refuse(self, what: str) -> IntArray:
        rule = "it must return every row it was given, each once, in the order of their turn: rows[np.lexsort(…)]"
        raise BadInput(f"the order of {self.word} {what}; {rule}", file=self.file)


@dataclass(frozen=True, slots=True)
class CheckedWeigh:
    """A user's worth of more members that is held to its word: a number for every length of time."""

    weigh: Weigh
    file: str
    word: str

    def __call__(self, expected_us: float, least_us: float) -> float:
        """What the user's function says, or a refusal that says what is wrong with it."""
        try:
            answer: object = self.weigh(expected_us, least_us)
        except Exception as bad:  # noqa: BLE001 - whatever a user's function raises is one message
            line = _line_in(bad, str(Path(self.file).resolve()))
            raise BadInput(f"weigh of {self.word} failed: {_tell(bad)}", file=self.file, line=line) from None
        # Not a number is neither more nor less than anything: steps would come in whatever order the heap holds them.
        if isinstance(answer, int) and abs(answer) > _INT_MOST:
            answer = math.inf
        if isinstance(answer, bool) or not isinstance(answer, int | float | np.number) or not math.isfinite(answer):
            said = show(answer) if isinstance(answer, int | float | np.number) else _kind(answer)
            rule = "it must return a finite number, the larger the sooner the gang is done"
            raise BadInput(f"weigh of {self.word} returned {said}; {rule}", file=self.file)
        return float(answer)


def _kind(answer: object) -> str:
    if isinstance(answer, np.ndarray):
        return f"an array of {answer.dtype} with {answer.ndim} dimensions"
    return "nothing" if answer is None else f"a {type(answer).__name__}"
