"""Our own table of jobs: a row a gang, a column a fact. What it cannot hold is told by `log_losses`.

Needed are `submit_s`, `duration_s` and `members_max`; everything else has the default of a scenario
file, and an empty cell says nothing. Unknown columns are refused, since a misspelt one would
otherwise be lost in silence.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Final

from phalanx.control.spec.errors import BadText, show, suggest
from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.spec.quantity import member_amount, number
from phalanx.control.spec.sizes import MEMBERS_MAX, sizes_between
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.frontends.sim.traces.believed import Estimate, believe_us
from phalanx.frontends.sim.traces.seconds import show_amount, show_seconds
from phalanx.frontends.sim.traces.table import Cells, CsvTable, check_word, note_name, parse_time_us, parse_truth
from phalanx.model.gang import Gang, Role, Shape, Sizes, SnapshotHabit
from phalanx.model.queue import DEFAULT_QUEUE, ROOT, Queue
from phalanx.model.resources import DEVICE_KIND, MILLI, SLOT_KIND
from phalanx.perfmodel.speedup import Amdahl, Linear

NEEDED: Final = ("submit_s", "duration_s", "members_max")
KINDS: Final = (DEVICE_KIND, "cpu", "memory", SLOT_KIND)
_ALWAYS: Final = (
    *("name", "submit_s", "duration_s", "walltime_s", "members_min", "members_max", "gpu", "user", "queue"),
    *("priority", "deadline_s", "preemptible"),
)
_TIMES: Final = (
    *("submit_s", "duration_s", "walltime_s", "deadline_s", "snapshot_every_s", "snapshot_stall_s"),
    *("snapshot_restore_s", "resize_pause_s", "startup_s"),
)
_LENGTHS: Final = frozenset({"duration_s", "walltime_s", "deadline_s", "snapshot_every_s"})
COLUMNS: Final = tuple(dict.fromkeys((*_ALWAYS, "sizes", *KINDS[1:], "amdahl", *_TIMES)))

_PRIORITY_MAX: Final = 1_000_000_000


def read_plain(table: CsvTable, estimate: Estimate) -> Scenario:
    """The jobs of a table of ours, in the order of its rows."""
    for name in table.columns:
        if name not in COLUMNS:
            raise table.fail(f"has the unknown column {show(name)}; {suggest(name, COLUMNS)}")
    table.need(NEEDED)
    reader = _Reader(table, estimate)
    gangs: list[Gang] = []
    true_runs: list[TrueRun] = []
    seen: set[str] = set()
    with table.placing():
        for number_, row in enumerate(table.rows(), start=1):
            gang, truth = reader.parse(row, number_)
            note_name(gang.name, seen)
            gangs.append(gang)
            true_runs.append(truth)
    if not gangs:
        raise table.fail("holds no job below its header")
    queues = tuple(Queue(name) for name in dict.fromkeys(gang.queue for gang in gangs))
    return Scenario((), (), tuple(gangs), tuple(true_runs), queues=queues)


class _Reader:
    """Rows into gangs. Equal roles and true_runs are one object."""

    def __init__(self, table: CsvTable, estimate: Estimate) -> None:
        self._place = {name: at for at, name in enumerate(table.columns)}
        self._estimate = estimate
        self._times: dict[str, Cells] = {
            name: Cells(name, _time_parser(name)) for name in _TIMES if name in self._place
        }
        self._kinds = [kind for kind in KINDS if kind in self._place]
        self._roles: dict[tuple[str, ...], tuple[Role, ...]] = {}
        self._truths: dict[tuple[int, str], TrueRun] = {}

    def parse(self, row: list[str], line: int) -> tuple[Gang, TrueRun]:
        """One row."""
        run_us = self._time(row, "duration_s")
        walltime_us = self._time(row, "walltime_s")
        if self._estimate != "requested":
            walltime_us = believe_us(self._estimate, run_us, 0)
        gang = Gang(
            name=self._word(row, "name") or str(line),
            roles=self._parse_roles(row),
            submit_us=self._time(row, "submit_s"),
            queue=_check_queue(self._word(row, "queue")),
            user=self._word(row, "user"),
            priority=_parse_priority(self._cell(row, "priority")),
            walltime_us=walltime_us or None,
            deadline_us=self._time(row, "deadline_s") or None,
            preemptible=parse_truth("preemptible", self._cell(row, "preemptible")),
            snapshot=self._parse_habit(row),
            resize_pause_us=self._time(row, "resize_pause_s"),
            startup_us=self._time(row, "startup_s"),
        )
        return gang, self._parse_truth_of(run_us, self._cell(row, "amdahl"))

    def _cell(self, row: list[str], name: str) -> str:
        at = self._place.get(name)
        return "" if at is None else row[at].strip()

    def _word(self, row: list[str], name: str) -> str:
        return check_word(self._cell(row, name), name)

    def _time(self, row: list[str], name: str) -> int:
        text = self._cell(row, name)
        if not text and name not in NEEDED:
            return 0
        return self._times[name][text]

    def _parse_roles(self, row: list[str]) -> tuple[Role, ...]:
        names = ("members_min", "members_max", "sizes", *self._kinds)
        key = tuple([self._cell(row, name) for name in names])
        roles = self._roles.get(key)
        if roles is None:
            need = {kind: _amount(text, kind) for kind, text in zip(self._kinds, key[3:], strict=True) if text}
            asked = tuple(sorted((kind, units) for kind, units in need.items() if units))
            shape = Shape(asked or ((DEVICE_KIND, MILLI),))
            roles = self._roles[key] = (Role(SOLE_ROLE, _parse_sizes(*key[:3]), shape),)
        return roles

    def _parse_habit(self, row: list[str]) -> SnapshotHabit | None:
        every_us = self._time(row, "snapshot_every_s")
        stall_us, restore_us = self._time(row, "snapshot_stall_s"), self._time(row, "snapshot_restore_s")
        if not every_us:
            if stall_us or restore_us:
                raise BadText("has snapshot_stall_s or snapshot_restore_s without snapshot_every_s")
            return None
        return SnapshotHabit(every_us, stall_us, restore_us)

    def _parse_truth_of(self, run_us: int, serial: str) -> TrueRun:
        key = run_us, serial
        truth = self._truths.get(key)
        if truth is None:
            truth = self._truths[key] = TrueRun(run_us, Amdahl(_parse_serial(serial)) if serial else Linear())
        return truth


def format_plain(scenario: Scenario) -> str:
    """The gangs of one role as a table; columns that nobody needs are left out."""
    rows = []
    for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True):
        if len(gang.roles) == 1:
            rows.append(_cells_of(gang, truth))
    used = [name for name in COLUMNS if name in _ALWAYS or any(row.get(name) for row in rows)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(used)
    writer.writerows([row.get(name, "") for name in used] for row in rows)
    return out.getvalue()


def _cells_of(gang: Gang, truth: TrueRun) -> dict[str, str]:
    sizes, shape = gang.roles[0].sizes, gang.roles[0].shape
    whole_range = sizes == sizes_between(sizes.least, sizes.most, 1)
    habit = gang.snapshot
    cells = {
        "name": gang.name,
        "submit_s": show_seconds(gang.submit_us),
        "duration_s": show_seconds(truth.duration_us),
        "walltime_s": _optional(gang.walltime_us),
        "members_min": str(sizes.least),
        "members_max": str(sizes.most),
        "sizes": "" if whole_range else " ".join(map(str, sizes.allowed)),
        "user": gang.user,
        "queue": "" if gang.queue == DEFAULT_QUEUE else gang.queue,
        "priority": str(gang.priority) if gang.priority else "",
        "deadline_s": _optional(gang.deadline_us),
        "preemptible": "true" if gang.preemptible else "",
        "amdahl": repr(truth.speedup.serial) if isinstance(truth.speedup, Amdahl) else "",
        "snapshot_every_s": _optional(habit.every_us if habit else 0),
        "snapshot_stall_s": _optional(habit.stall_us if habit else 0),
        "snapshot_restore_s": _optional(habit.restore_us if habit else 0),
        "resize_pause_s": _optional(gang.resize_pause_us),
        "startup_s": _optional(gang.startup_us),
    }
    cells.update({kind: show_amount(shape.amount(kind), kind) for kind in KINDS if shape.amount(kind)})
    return cells


def _optional(us: int | None) -> str:
    return show_seconds(us) if us else ""


def _time_parser(name: str) -> Callable[[str], int]:
    return _parse_length_us if name in _LENGTHS else parse_time_us


def _parse_length_us(text: str) -> int:
    us = parse_time_us(text)
    if us == 0:
        raise BadText(f"must be more than 0 (got {show(text)})")
    return us


def _amount(text: str, kind: str) -> int:
    try:
        return member_amount(text, kind)
    except BadText as bad:
        raise BadText(f"{kind} {bad}") from None


def _parse_sizes(least: str, most: str, listed: str) -> Sizes:
    found = [_parse_size("sizes", word) for word in listed.split()]
    last = _parse_size("members_max", most)
    first = _parse_size("members_min", least) if least else found[0] if found else last
    if not found:
        if first > last:
            raise BadText(f"members_min {first} is above members_max {last}")
        return sizes_between(first, last, 1)
    if found != sorted(set(found)) or (found[0], found[-1]) != (first, last):
        raise BadText(f"sizes must go up from members_min {first} to members_max {last} (got {show(listed)})")
    return Sizes(tuple(found))


def _parse_size(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MEMBERS_MAX))):
        raise BadText(f"{name} must be a whole number of at least 1 (got {show(text)})")
    if not 1 <= int(text) <= MEMBERS_MAX:
        raise BadText(f"{name} must be from 1 to {MEMBERS_MAX:,} (got {show(text)})")
    return int(text)


def _parse_priority(text: str) -> int:
    if not text:
        return 0
    try:
        value = number(text)
    except BadText as bad:
        raise BadText(f"priority {bad}") from None
    if value.denominator != 1 or abs(value) > _PRIORITY_MAX:
        raise BadText(f"priority must be a whole number of at most {_PRIORITY_MAX:,} (got {show(text)})")
    return value.numerator


def _parse_serial(text: str) -> float:
    try:
        value = number(text)
    except BadText as bad:
        raise BadText(f"amdahl {bad}") from None
    if not 0 <= value <= 1:
        raise BadText(f"amdahl must be a fraction from 0 to 1 (got {show(text)})")
    return float(value)


def _check_queue(word: str) -> str:
    if word == ROOT:
        raise BadText(f"queue must be a queue below {ROOT}")
    return word or DEFAULT_QUEUE
