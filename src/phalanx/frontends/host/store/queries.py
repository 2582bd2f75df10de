"""What can be asked of the store, as SQL, over any connection that can execute.

Every answer is read to its end at once: a reader that lingers keeps the log from being begun anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.frontends.host.store.database import SqlConnection
from phalanx.frontends.host.store.schema import END_SQL, ENDED_SQL
from phalanx.frontends.host.store.stored_rows import EstimateRecord, EventRecord, JobRecord, RunRecord

# Every name below that is put into a statement comes from the records or the schema; values are always bound.
_COLUMNS = JobRecord.__struct_fields__[:-1]
_JOB = f"SELECT {', '.join(_COLUMNS)} FROM job"  # noqa: S608
_RUN = f"SELECT {', '.join(RunRecord.__struct_fields__)} FROM run"  # noqa: S608


def read_jobs(connection: SqlConnection, *, ended: bool) -> list[JobRecord]:
    """Jobs that have not ended, or all of them, by id."""
    alive = "" if ended else f" WHERE NOT {ENDED_SQL}"
    return _make_jobs(connection.execute(f"{_JOB}{alive} ORDER BY id").fetchall())


def read_job(connection: SqlConnection, job: int) -> JobRecord | None:
    """One job."""
    found = _make_jobs(connection.execute(f"{_JOB} WHERE id = ?", (job,)).fetchall())
    return found[0] if found else None


def read_newest(connection: SqlConnection) -> int:
    """The highest id that was ever given to a job, also if that job is forgotten; 0 if none was."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'job'").fetchone()
    return int(row[0]) if row else 0


def read_ended(
    connection: SqlConnection, since_us: int, equal: Sequence[tuple[str, str]], states: Sequence[str], limit: int
) -> list[JobRecord]:
    """Jobs that ended since then, the newest end first; `equal` names columns and what they hold."""
    # With both a user and a name `job_history` is exact. With the user alone it would have to sort all their jobs to
    # find the newest few; the plus keeps SQLite from trying, and it walks back in `job_ended`.
    plain = "" if {"user", "name"} <= {column for column, _ in equal} else "+"
    where = [ENDED_SQL, f"{END_SQL} >= ?", *(f"{plain}{column} = ?" for column, _ in equal)]
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
    sql = f"{_JOB} WHERE {' AND '.join(where)} ORDER BY {END_SQL} DESC, id DESC LIMIT ?"
    return _make_jobs(connection.execute(sql, (since_us, *(value for _, value in equal), *states, limit)).fetchall())


def read_run_blob(connection: SqlConnection, job: int) -> bytes:
    """What the members of a job run."""
    row = connection.execute("SELECT run FROM job_run WHERE job = ?", (job,)).fetchone()
    if row is None:
        raise LookupError(f"nothing is known of what job {job} runs")
    blob: bytes = row[0]
    return blob


def find_key(connection: SqlConnection, uid: int, key: str) -> list[int] | None:
    """The ids that this key of this user stands for."""
    row = connection.execute("SELECT first, last FROM submit_key WHERE uid = ? AND key = ?", (uid, key)).fetchone()
    return list(range(row[0], row[1] + 1)) if row else None


def read_runs(connection: SqlConnection) -> list[RunRecord]:
    """All runs that were not dropped."""
    return [RunRecord(*row) for row in connection.execute(f"{_RUN} ORDER BY job, attempt").fetchall()]


def read_run(connection: SqlConnection, run: str) -> RunRecord | None:
    """One run."""
    row = connection.execute(f"{_RUN} WHERE run = ?", (run,)).fetchone()
    return RunRecord(*row) if row else None


def read_events(connection: SqlConnection, job: int | None, since: int, limit: int) -> list[EventRecord]:
    """Events after this sequence number, in order, of one job or of all."""
    of_job = "job = ? AND " if job is not None else ""
    sql = f"SELECT job, event, at_us, wall, data, seq FROM event WHERE {of_job}seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
    rows = connection.execute(sql, (since, limit) if job is None else (job, since, limit)).fetchall()
    return [EventRecord(*row) for row in rows]


def read_meta(connection: SqlConnection, key: str) -> bytes | None:
    """Something remembered about the daemon itself."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def read_estimates(connection: SqlConnection, since_us: int) -> list[EstimateRecord]:
    """Estimates made since then, in the order in which they were made."""
    rows = connection.execute(
        "SELECT job, made_us, at_us, low_us, high_us, predicted, actual_us FROM estimate WHERE made_us >= ?"
        " ORDER BY made_us, id",
        (since_us,),
    ).fetchall()
    estimates = [EstimateRecord(*row) for row in rows]
    for estimate in estimates:
        estimate.predicted = bool(estimate.predicted)
    return estimates


def _make_jobs(rows: Iterable[Sequence[Any]]) -> list[JobRecord]:
    jobs = [JobRecord(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]
    for job in jobs:
        job.held = bool(job.held)
    return jobs
