"""The tables, and how a database of an older version becomes one of this version.

A migration is a tuple of statements and runs in one transaction together with the new version number, so a crash
leaves the old schema or the new one. Migrations are only ever appended.
"""

from __future__ import annotations

from typing import Final

from phalanx.frontends.host.store.database import SqlConnection

_ENDED = ("completed", "failed", "cancelled", "infeasible")
#: As the partial indices spell it; a query must use the same words for an index to serve it. Not as `IN`: SQLite
#: would build a table of the four words for each index and each row, which doubled the cost of an insert.
ENDED_SQL: Final = "(" + " OR ".join(f"state = '{state}'" for state in _ENDED) + ")"
#: When a job ended; one that never began may have no end of its own.
END_SQL: Final = "ifnull(end_us, submit_us)"

_VERSION_1 = (
    # AUTOINCREMENT: an id is never given twice, not even after retention has removed the newest job.
    """
    CREATE TABLE job (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uid INTEGER NOT NULL, gid INTEGER NOT NULL, user TEXT NOT NULL,
        name TEXT NOT NULL, queue TEXT NOT NULL, state TEXT NOT NULL,
        gang BLOB NOT NULL, options BLOB NOT NULL,
        submit_us INTEGER NOT NULL, submit_wall REAL NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 0, generation INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0,
        pin INTEGER,
        seats BLOB, memory BLOB, reason BLOB,
        start_us INTEGER, start_wall REAL, end_us INTEGER, end_wall REAL,
        exit_code INTEGER, failure BLOB, progress BLOB, ledger BLOB
    )
    """,
    # Partial indices: a job that has not ended is in none, which keeps submits cheap. Those are read once, at the
    # start of the daemon, by a walk over the table.
    f"CREATE INDEX job_ended ON job ({END_SQL}) WHERE {ENDED_SQL}",
    f"CREATE INDEX job_history ON job (user, name, {END_SQL}) WHERE {ENDED_SQL}",
    # Apart from `job`: SQLite rewrites a whole row on update, and an environment may have 128 KiB.
    "CREATE TABLE job_run (job INTEGER PRIMARY KEY, run BLOB NOT NULL)",
    # The ids of one submit are consecutive.
    """
    CREATE TABLE submit_key (
        uid INTEGER NOT NULL, key TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        PRIMARY KEY (uid, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX submit_key_first ON submit_key (first)",
    """
    CREATE TABLE run (
        run TEXT PRIMARY KEY, job INTEGER NOT NULL, attempt INTEGER NOT NULL, generation INTEGER NOT NULL,
        state TEXT NOT NULL, boot_id TEXT NOT NULL, devices BLOB NOT NULL, members BLOB, intent BLOB
    ) WITHOUT ROWID
    """,
    # AUTOINCREMENT: who follows the events asks for those after the last it saw.
    """
    CREATE TABLE event (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER, event TEXT NOT NULL,
        at_us INTEGER NOT NULL, wall REAL NOT NULL, data BLOB NOT NULL
    )
    """,
    "CREATE INDEX event_job ON event (job)",
    """
    CREATE TABLE estimate (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, made_us INTEGER NOT NULL, at_us INTEGER NOT NULL,
        low_us INTEGER NOT NULL, high_us INTEGER NOT NULL, predicted INTEGER NOT NULL, actual_us INTEGER
    )
    """,
    "CREATE INDEX estimate_open ON estimate (job) WHERE actual_us IS NULL",
    "CREATE INDEX estimate_made ON estimate (made_us)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)

#: The statement groups that lead from version i to version i + 1.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1,)


def read_version(connection: SqlConnection) -> int:
    """The version of a database; 0 for one that has no tables yet."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: SqlConnection) -> None:
    """Bring a database to this version, one step and one transaction at a time."""
    for version in range(read_version(connection), len(MIGRATIONS)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
