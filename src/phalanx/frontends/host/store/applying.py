"""Changes as SQL, over any connection that can execute.

One transaction carries the changes of everybody who waits. Each has a savepoint of its own, so that one that fails
takes nobody with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import assert_never

import msgspec

from phalanx.frontends.host.store.database import SqlConnection
from phalanx.frontends.host.store.faults import Fault, find_fault
from phalanx.frontends.host.store.queries import find_key
from phalanx.frontends.host.store.schema import END_SQL, ENDED_SQL
from phalanx.frontends.host.store.stored_rows import (
    AddEstimate,
    AddEvents,
    Change,
    CloseEstimate,
    DropRun,
    Forget,
    InsertJobs,
    JobRecord,
    PutMeta,
    PutRun,
    UpdateJob,
)

#: What a write comes to: the results of its changes, or why none of them was applied.
Outcome = list[object] | Exception

# Every name below that is put into a statement comes from the records or the schema; values are always bound.
_COLUMNS = JobRecord.__struct_fields__[:-1]
assert (_COLUMNS[0], JobRecord.__struct_fields__[-1]) == ("id", "run")
#: Of a fresh job only so many columns say something, and binding the rest would be half the cost of an insert.
_FRESH = _COLUMNS.index("submit_wall") + 1
_FRESH_REST = JobRecord.__struct_defaults__[-len(_COLUMNS[_FRESH:]) - 1 : -1]


def apply_group(connection: SqlConnection, writes: Sequence[Sequence[Change]]) -> list[Outcome]:
    """Apply the writes in order, in one durable transaction; an error that is nobody's own fails all and is raised."""
    outcomes: list[Outcome] = []
    connection.execute("BEGIN IMMEDIATE")
    if len(writes) == 1:
        return [_apply_alone(connection, writes[0])]
    for changes in writes:
        connection.execute("SAVEPOINT one")
        try:
            outcomes.append([apply_change(connection, change) for change in changes])
        except Exception as error:
            if find_fault(error) is not Fault.OWN or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO one")
            outcomes.append(error)
        connection.execute("RELEASE one")
    connection.execute("COMMIT")
    return outcomes


def _apply_alone(connection: SqlConnection, changes: Sequence[Change]) -> Outcome:
    """One write inside the open transaction, which needs no savepoint: there is nobody whom it could take with it."""
    try:
        outcome: list[object] = [apply_change(connection, change) for change in changes]
    except Exception as error:
        if find_fault(error) is not Fault.OWN or not connection.in_transaction:
            raise
        connection.execute("ROLLBACK")
        return error
    connection.execute("COMMIT")
    return outcome


def apply_change(connection: SqlConnection, change: Change) -> object:
    """One change inside the open transaction."""
    match change:
        case InsertJobs():
            return _insert_jobs(connection, change)
        case AddEvents():
            return _add_events(connection, change)
        case Forget():
            return _forget(connection, change)
        case UpdateJob():
            _update_job(connection, change)
        case _:
            _apply_small(connection, change)
    return None


def _apply_small(connection: SqlConnection, change: PutRun | DropRun | PutMeta | AddEstimate | CloseEstimate) -> None:
    match change:
        case PutRun(record):
            row = msgspec.structs.astuple(record)
            connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        case DropRun(run):
            connection.execute("DELETE FROM run WHERE run = ?", (run,))
        case PutMeta(key, value):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
        case AddEstimate():
            connection.execute(
                "INSERT INTO estimate (job, made_us, at_us, low_us, high_us, predicted) VALUES (?, ?, ?, ?, ?, ?)",
                (change.job, change.made_us, change.at_us, change.low_us, change.high_us, change.predicted),
            )
        case CloseEstimate(job, actual_us):
            connection.execute(
                "UPDATE estimate SET actual_us = ? WHERE job = ? AND actual_us IS NULL", (actual_us, job)
            )
        case _:
            assert_never(change)


def _insert_jobs(connection: SqlConnection, change: InsertJobs) -> list[int]:
    if change.key is not None:
        known = find_key(connection, change.uid, change.key)
        if known is not None:
            return known
    ids = _find_next_ids(connection, "job", len(change.jobs))
    rows = [msgspec.structs.astuple(job) for job in change.jobs]
    width = _FRESH if all(row[_FRESH:-1] == _FRESH_REST for row in rows) else len(_COLUMNS)
    connection.executemany(
        f"INSERT INTO job ({', '.join(_COLUMNS[:width])}) VALUES ({', '.join('?' * width)})",  # noqa: S608
        ((number, *row[1:width]) for number, row in zip(ids, rows, strict=True)),
    )
    runs = ((number, row[-1]) for number, row in zip(ids, rows, strict=True) if row[-1] is not None)
    connection.executemany("INSERT INTO job_run VALUES (?, ?)", runs)
    if change.key is not None and ids:
        connection.execute(
            "INSERT INTO submit_key (uid, key, first, last) VALUES (?, ?, ?, ?)",
            (change.uid, change.key, ids[0], ids[-1]),
        )
    return list(ids)


def _find_next_ids(connection: SqlConnection, table: str, count: int) -> range:
    """Numbers that were never given in this table. AUTOINCREMENT notes them as soon as a row has the last of them."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    first = 1 + (row[0] if row else 0)
    return range(first, first + count)


@cache
def _update_statement(columns: tuple[str, ...]) -> str:
    return f"UPDATE job SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?"  # noqa: S608


def _update_job(connection: SqlConnection, change: UpdateJob) -> None:
    statement = _update_statement(tuple(change.columns))
    connection.execute(statement, (*change.columns.values(), change.id))
    if not connection.execute("SELECT changes()").fetchone()[0]:
        raise LookupError(f"there is no job {change.id} to update")


def _add_events(connection: SqlConnection, change: AddEvents) -> list[int]:
    numbers = _find_next_ids(connection, "event", len(change.events))
    connection.executemany(
        "INSERT INTO event (seq, job, event, at_us, wall, data) VALUES (?, ?, ?, ?, ?, ?)",
        ((seq, e.job, e.event, e.at_us, e.wall, e.data) for seq, e in zip(numbers, change.events, strict=True)),
    )
    return list(numbers)


# ------------------------------------------------------------------- retention


def _forget(connection: SqlConnection, change: Forget) -> int:
    gone = _forget_jobs(connection, change.jobs_before_us, change.limit)
    # The clock never goes back, so old events are a prefix.
    events = connection.execute(
        "SELECT seq FROM (SELECT seq, at_us FROM event ORDER BY seq LIMIT ?) WHERE at_us < ?",
        (change.limit, change.events_before_us),
    ).fetchall()
    connection.executemany("DELETE FROM event WHERE seq = ?", events)
    estimates = connection.execute(
        "SELECT id FROM estimate WHERE made_us < ? ORDER BY made_us LIMIT ?", (change.jobs_before_us, change.limit)
    ).fetchall()
    connection.executemany("DELETE FROM estimate WHERE id = ?", estimates)
    return gone + len(events) + len(estimates)


def _forget_jobs(connection: SqlConnection, before_us: int, limit: int) -> int:
    """Ended jobs; a key goes with the last job that it stands for."""
    old = f"SELECT id FROM job WHERE {ENDED_SQL} AND {END_SQL} < ? ORDER BY {END_SQL} LIMIT ?"  # noqa: S608
    ids = connection.execute(old, (before_us, limit)).fetchall()
    connection.executemany("DELETE FROM job WHERE id = ?", ids)
    connection.executemany("DELETE FROM job_run WHERE job = ?", ids)
    # Ranges of ids do not overlap, so the key of a job is the last one that begins at or before it.
    connection.executemany(
        "DELETE FROM submit_key WHERE first = (SELECT max(first) FROM submit_key WHERE first <= ?)"
        " AND NOT EXISTS (SELECT 1 FROM job WHERE id BETWEEN submit_key.first AND submit_key.last)",
        ids,
    )
    return len(ids)
