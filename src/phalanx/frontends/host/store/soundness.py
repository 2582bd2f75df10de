"""Rows that hold what nobody could have written, found and mended when the store is opened.

SQLite checks the structure of its file and not what is in it: a damaged sector may leave a table in order and half a
sentence in a row. Whoever reads that later would fall over it again at every start. So every row is looked at once:
types, words that are one of a few, JSON that can be read. What is wrong is taken from the second record, or from the
newest backup where it cannot have changed since; what may be missing is emptied; a job of which none of this can be
said has failed, and an attempt is put together by `run_mending`. The rows as they were are kept in a file beside the
database.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from phalanx.frontends.host.messages import State
from phalanx.frontends.host.store.backups import create_private, list_backups, recall
from phalanx.frontends.host.store.database import connect_reader
from phalanx.frontends.host.store.run_mending import Row, is_devices, is_intent, is_members, name_run, rebuild_run
from phalanx.frontends.host.store.schema import ENDED_SQL


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What a column may hold.

    Said twice, because looking at a row in Python costs ten times as much as in SQL, and there may be hundreds of
    thousands: `surely` is a condition that is true of good values and of no others that are UTF-8 without zeroes
    (SQLite's functions take anything for text, up to the first zero); `check` decides where that is not so.
    """

    surely: str  # `{c}` stands for the column
    check: Callable[[Any], bool]

    def or_none(self) -> ColumnKind:
        """The same, or nothing."""
        return ColumnKind(f"({{c}} IS NULL OR {self.surely})", lambda value: value is None or self.check(value))


def _is_text(value: Any) -> bool:
    if not isinstance(value, bytes):
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


_INT: Final = ColumnKind("typeof({c}) = 'integer'", lambda value: type(value) is int)
_REAL: Final = ColumnKind("typeof({c}) IN ('real', 'integer')", lambda value: type(value) in (int, float))
_TEXT: Final = ColumnKind("typeof({c}) = 'text'", _is_text)


def _json(*kinds: type) -> ColumnKind:
    def check(value: Any) -> bool:
        if not isinstance(value, bytes):
            return False
        try:
            found = msgspec.json.decode(value)
        except (ValueError, msgspec.DecodeError, RecursionError):
            return False
        return not kinds or isinstance(found, kinds)

    words: dict[object, str] = {dict: "'object'", list: "'array'"}
    kind = f" AND json_type(CAST({{c}} AS TEXT)) IN ({', '.join(words[kind] for kind in kinds)})" if kinds else ""
    valid = "iif(json_valid(CAST({c} AS TEXT)), 1" + kind + ", 0)"
    return ColumnKind(f"(typeof({{c}}) IN ('blob', 'text') AND {valid})", check)


def _word(words: frozenset[str]) -> ColumnKind:
    listed = ", ".join(f"'{word}'" for word in sorted(words))
    return ColumnKind(f"{{c}} IN ({listed})", lambda value: _is_text(value) and value.decode() in words)


_STATES: Final = frozenset(get_args(State))
_ENDED: Final = frozenset({"completed", "failed", "cancelled", "infeasible"})
_RUN_STATES: Final = frozenset({"starting", "running", "stopping", "done"})
_OBJECT: Final = _json(dict)
_ANY: Final = _json()

#: Columns of a job that are as they were when it was submitted; an old copy of them is as good as a new one.
_LASTING: Final[Mapping[str, ColumnKind]] = {
    "uid": _INT,
    "gid": _INT,
    "user": _TEXT,
    "name": _TEXT,
    "queue": _TEXT,
    "gang": _OBJECT,
    "options": _OBJECT,
    "submit_us": _INT,
    "submit_wall": _REAL,
}
_GROWING: Final[Mapping[str, ColumnKind]] = {
    "state": _word(_STATES),
    "attempt": _INT,
    "generation": _INT,
    "held": _INT,
}
#: What may be missing.
_SPARE: Final[Mapping[str, ColumnKind]] = {
    "pin": _INT.or_none(),
    "seats": _ANY.or_none(),
    "memory": _ANY.or_none(),
    "reason": _json(list).or_none(),
    "start_us": _INT.or_none(),
    "start_wall": _REAL.or_none(),
    "end_us": _INT.or_none(),
    "end_wall": _REAL.or_none(),
    "exit_code": _INT.or_none(),
    "failure": _OBJECT.or_none(),
    "progress": _ANY.or_none(),
    "ledger": _OBJECT.or_none(),
}
#: In place of what nobody knows any more, in the row of a job that has ended.
_BLANK: Final[Row] = {
    "uid": -1, "gid": -1, "user": "?", "name": "?", "queue": "default", "options": b"{}",
    "gang": b'{"members":1,"each":{"gpu":1}}',
    "submit_us": 0, "submit_wall": 0.0, "attempt": 0, "generation": 0, "held": 0,
}  # fmt: skip
_RUN: Final[Mapping[str, ColumnKind]] = {
    "job": _INT,
    "attempt": _INT,
    "generation": _INT,
    "state": _word(_RUN_STATES),
    "boot_id": _TEXT,
    # There are few of them, and the core relies on every word.
    "devices": ColumnKind("0", is_devices),
    "members": ColumnKind("0", is_members).or_none(),
    "intent": ColumnKind("0", is_intent).or_none(),
}
#: Tables of which a row that cannot be read is worth nothing, by key.
_LOOSE: Final[Mapping[tuple[str, str], Mapping[str, ColumnKind]]] = {
    ("event", "seq"): {
        "job": _INT.or_none(), "event": _TEXT, "at_us": _INT, "wall": _REAL, "data": _OBJECT,
    },
    ("estimate", "id"): {
        "job": _INT, "made_us": _INT, "at_us": _INT, "low_us": _INT, "high_us": _INT,
        "predicted": _INT, "actual_us": _INT.or_none(),
    },
}  # fmt: skip


_ROWS_AT_ONCE: Final = 2000
#: Older ones are read by people who ask for one job; looking at a year of them would hold up every start.
_LOOSE_ROWS: Final = 20_000


@dataclass(slots=True)
class Mending:
    """One look at all rows, and what came of it."""

    connection: sqlite3.Connection
    database: Path
    folder: Path  # of the backups
    said: list[str] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)  # rows as they were found
    _recalled: list[sqlite3.Connection | None] = field(default_factory=list)  # as the second record has it, made once

    def run(self) -> None:
        """Look at everything, and mend what is wrong in the open transaction."""
        try:
            self._run()
        finally:
            for recalled in filter(None, self._recalled):
                recalled.close()

    def _run(self) -> None:
        self._mend_meta()
        self._mend_jobs()
        self._mend_runs()
        for (table, key), checks in _LOOSE.items():
            bad = [row[key] for row in self._find_bad(table, key, checks)]
            if bad:
                self.connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", ((number,) for number in bad))  # noqa: S608
                self.said.append(f"{len(bad)} rows of the table {table} could not be read and were left out.")

    def _find_bad(self, table: str, key: str, checks: Mapping[str, ColumnKind]) -> Iterator[Row]:
        names = [key, *checks]
        newest = f" ORDER BY {key} DESC LIMIT {_LOOSE_ROWS}" if (table, key) in _LOOSE else ""
        sql = f"SELECT {', '.join(names)}, ({_say_sound(checks)}) FROM {table}{newest}"  # noqa: S608
        for values in self._find_doubtful(sql):
            row = dict(zip(names, values[:-1], strict=True))
            bad = [name for name, kind in checks.items() if not kind.check(row[name])]
            if bad:
                self.kept.append({"table": table, "bad": bad, "row": row})
                yield row

    def _find_doubtful(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of which the last column is not true, and those that stand near text that is none."""
        cursor, doubtful = self.connection.execute(sql), []
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            text = b"\n".join([value for row in rows for value in row if type(value) is bytes])
            doubtful += rows if not _is_text(text) or b"\0" in text else [row for row in rows if row[-1] != 1]
        return doubtful

    # ------------------------------------------------------------------ jobs

    def _mend_jobs(self) -> None:
        checks = {**_LASTING, **_GROWING, **_SPARE}
        for row in self._find_bad("job", "id", checks):
            bad = {name for name, kind in checks.items() if not kind.check(row[name])}
            self._mend_job(row["id"], row, bad)
        alive = (
            f"SELECT j.id, r.run, ({_say_sound({'r.run': _OBJECT})}) FROM job j LEFT JOIN job_run r ON r.job = j.id"  # noqa: S608
            f" WHERE NOT {ENDED_SQL}"
        )
        for number, run, _ in self._find_doubtful(alive):
            if not _OBJECT.check(run):
                self.kept.append({"table": "job_run", "bad": ["run"], "row": {"job": number, "run": run}})
                self._mend_command(number)

    def _mend_job(self, number: int, row: Row, bad: set[str]) -> None:
        checks, words = {**_LASTING, **_GROWING, **_SPARE}, ", ".join(sorted(bad))
        latest = self._find_latest("job", "id", number, row, checks, {*_LASTING, *_GROWING} - bad)
        if latest is not None:
            self._update(number, {name: latest[name] for name in bad})
            self.said.append(f"Job {number}: its record was damaged ({words}); it was taken from the second record.")
            return
        lost = bad & _LASTING.keys()
        older = self._find_older("job", "id", number, tuple(_LASTING)) if lost else None
        # Ids are never given twice, so it is the same job; what is still whole in both rows says so as well.
        same = older is not None and all(older[name] == row[name] for name in _LASTING.keys() - lost)
        values: Row = dict.fromkeys(bad & _SPARE.keys())
        if older is not None and same:
            values |= {name: older[name] for name in lost if _LASTING[name].check(older[name])}
        broken = sorted(bad - values.keys())
        if broken:
            values |= self._give_up(row, broken)
        self._update(number, values)
        what = "it has failed, submit it again" if broken else "what was whole in a backup was taken from there"
        what = what if lost or broken else "that was emptied"
        self.said.append(f"Job {number}: its record was damaged ({words}); {what}.")

    def _mend_command(self, number: int) -> None:
        older = self._find_older("job_run", "job", number, ("run",))
        if older is not None and _OBJECT.check(older["run"]):
            self.connection.execute("INSERT OR REPLACE INTO job_run VALUES (?, ?)", (number, older["run"]))
            self.said.append(f"Job {number}: what it runs was damaged; it was taken from a copy.")
            return
        self._update(number, self._give_up({}, ["command"]))
        self.said.append(f"Job {number}: what it runs was damaged; it has failed, submit it again.")

    def _give_up(self, row: Row, broken: Sequence[str]) -> Row:
        """A job that cannot be run as it was meant must not be run as anything else."""
        why = f"its record on the disk was damaged ({', '.join(broken)})"
        state = row.get("state")
        ended = state.decode() if isinstance(state, bytes) and state.decode(errors="replace") in _ENDED else "failed"
        (now_us,) = self.connection.execute("SELECT max(at_us) FROM event WHERE typeof(at_us) = 'integer'").fetchone()
        return {name: _BLANK[name] for name in broken if name in _BLANK} | {
            "state": ended,
            "failure": msgspec.json.encode({"rank": None, "why": why}),
            "reason": msgspec.json.encode(("Failed", why)),
            "end_us": now_us or 0,
            "end_wall": None,
        }

    def _update(self, number: int, values: Row) -> None:
        if values:
            said = ", ".join(f"{name} = ?" for name in values)
            texts = [
                value.decode() if name in _TEXTS and isinstance(value, bytes) else value
                for name, value in values.items()
            ]
            self.connection.execute(f"UPDATE job SET {said} WHERE id = ?", (*texts, number))  # noqa: S608

    # ------------------------------------------------------------------ the rest

    def _mend_runs(self) -> None:
        runs = self.database.parent / "runs"
        for row in [*self._find_bad("run", "run", _RUN), *self._find_misnamed()]:
            bad = {column for column, kind in _RUN.items() if not kind.check(row[column])}
            name, words = name_run(row, runs), ", ".join(sorted(bad)) or "name"
            self.connection.execute("DELETE FROM run WHERE run = CAST(? AS TEXT)", (row["run"],))
            if name is None:  # its directory and its control group still tell what is there
                self.said.append(f"The record of run {row['run']!r} was damaged and left out; what is left is ended.")
                continue
            latest = self._find_latest("run", "run", name, row, _RUN, _RUN.keys() - bad) if bad else None
            whole = {"run": name} | (latest or rebuild_run(self.connection, runs, name, row, bad))
            self._put_run(whole)
            what = "it is ended, since nobody knows which rank has which device, and runs again"
            if latest is not None:
                what = "it was taken from the second record"
            elif "devices" not in bad:
                what = "it was put together from what else is known of it"
            self.said.append(f"Job {whole['job']}: the record of its attempt {name} was damaged ({words}); {what}.")

    def _find_misnamed(self) -> list[Row]:
        """Attempts whose name and numbers say two things."""
        names = ["run", *_RUN]
        sql = f"SELECT {', '.join(names)} FROM run WHERE run != job || '.' || attempt"  # noqa: S608
        rows = [dict(zip(names, values, strict=True)) for values in self.connection.execute(sql).fetchall()]
        sound = [row for row in rows if all(kind.check(row[name]) for name, kind in _RUN.items())]
        self.kept += [{"table": "run", "bad": ["run"], "row": row} for row in sound]
        return sound

    def _put_run(self, row: Row) -> None:
        texts = {
            key: value.decode() if key in _TEXTS and isinstance(value, bytes) else value for key, value in row.items()
        }
        names, marks = ", ".join(texts), ", ".join("?" * len(texts))
        self.connection.execute(f"INSERT OR REPLACE INTO run ({names}) VALUES ({marks})", tuple(texts.values()))  # noqa: S608

    def _mend_meta(self) -> None:
        for row in self._find_bad("meta", "key", {"value": _ANY}):
            key = row["key"].decode(errors="replace") if isinstance(row["key"], bytes) else row["key"]
            older = self._find_older("meta", "key", key, ("value",))
            self.connection.execute("DELETE FROM meta WHERE key = CAST(? AS TEXT)", (row["key"],))
            if older is not None and _ANY.check(older["value"]):
                self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, older["value"]))
            self.said.append(
                f"What was remembered of '{key}' was damaged; an older copy is in its place, if there is one."
            )

    def _find_latest(
        self, table: str, key: str, value: Any, row: Row, checks: Mapping[str, ColumnKind], same: Set[str]
    ) -> Row | None:
        """The same row as the second record has it; None unless it is sound and no older than what is whole in ours."""
        recalled = self._recall()
        found = None if recalled is None else _look_up(recalled, table, key, value, tuple(checks))
        if found is None or not all(kind.check(found[name]) for name, kind in checks.items()):
            return None
        return found if all(found[name] == row[name] for name in same) else None

    def _find_older(self, table: str, key: str, value: Any, names: Sequence[str]) -> Row | None:
        """The same row in the second record, or in the newest backup that has it."""
        recalled = self._recall()
        found = None if recalled is None else _look_up(recalled, table, key, value, names)
        if found is not None:
            return found
        for path in list_backups(self.folder):
            with suppress(sqlite3.Error), closing(connect_reader(path)) as backup:
                found = _look_up(backup, table, key, value, names)
                if found is not None:
                    return found
        return None

    def _recall(self) -> sqlite3.Connection | None:
        if not self._recalled:
            self._recalled.append(recall(self.database, self.folder))
        return self._recalled[0]


def _look_up(connection: sqlite3.Connection, table: str, key: str, value: Any, names: Sequence[str]) -> Row | None:
    connection.text_factory = bytes
    found = connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {key} = ?", (value,)).fetchone()  # noqa: S608
    return None if found is None else dict(zip(names, found, strict=True))


def _say_sound(checks: Mapping[str, ColumnKind]) -> str:
    """A condition that is true of rows that need no look."""
    return " AND ".join(kind.surely.replace("{c}", name) for name, kind in checks.items())


_TEXTS: Final = frozenset({"user", "name", "queue", "state", "run", "boot_id"})


def mend(connection: sqlite3.Connection, database: Path, folder: Path, wall_s: float) -> list[str]:
    """Find and mend rows that make no sense; the story, one sentence each. Raises sqlite3.Error as reading does."""
    with _raw(connection):
        connection.execute("BEGIN IMMEDIATE")
        try:
            mending = Mending(connection, database, folder)
            mending.run()
            if mending.kept:
                path = _keep(database, mending.kept, wall_s)
                mending.said.append(f"The rows as they were are kept in {path}.")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    return mending.said


@contextmanager
def _raw(connection: sqlite3.Connection) -> Iterator[None]:
    """Text as it lies on the disk, whether it is UTF-8 or not."""
    before, connection.text_factory = connection.text_factory, bytes
    try:
        yield
    finally:
        connection.text_factory = before


def _keep(database: Path, rows: Sequence[Row], wall_s: float) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_s))
    path = database.with_name(f"{database.name}.damaged-rows-{stamp}")
    path.unlink(missing_ok=True)
    create_private(path)
    path.write_text("".join(f"{row!r}\n" for row in rows), encoding="utf-8")
    return path
