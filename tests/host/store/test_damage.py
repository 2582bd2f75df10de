"""Damage at random places: the store opens and says what is lost, or says what to do. Nothing is lost in silence."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from selection import rest_long

from phalanx.frontends.host.store import (
    AddEstimate,
    AddEvents,
    EventRecord,
    InsertJobs,
    PutMeta,
    PutRun,
    RunRecord,
    StoreBroken,
    UpdateJob,
    open_store,
)

JOBS = 60
SEAT = b'[{"key":0,"role":"member","rank":0,"devices":[["GPU-0",1000]],"pid":7,"start":8,"leaving":false,"joined":1}]'
TRIALS = 200


def fill(store, make_job):
    """As many rows of every table as a daemon leaves in a morning: half in the file and a backup, half in the log."""
    for number in range(1, JOBS + 1):
        gang = msgspec.json.encode({"members": 4, "walltime": f"{number}h", "each": {"gpu": 1}})
        run = msgspec.json.encode({"command": ["python", "train.py"], "env": {"A": "x" * 10 * number}})
        store.write_now(InsertJobs(1000, f"key-{number}", [make_job(name=f"job-{number}", gang=gang, run=run)]))
        store.write_now(
            UpdateJob(number, state="running" if number % 3 else "completed", attempt=1, start_us=number),
            AddEvents([EventRecord(number, "start", number, 1.0, b'{"members":4}')]),
            AddEstimate(number, 1, 2, 1, 3, predicted=True),
            PutMeta("clock", msgspec.json.encode({"at_us": number})),
        )
        if number % 3:
            store.write_now(
                PutRun(RunRecord(f"{number}.1", number, 1, 1, "running", "boot", SEAT, b'{"started_us":5}'))
            )
        if number == JOBS // 2:
            store.backup()


_made: list[Path] = []  # filled once; every trial has a copy


@pytest.fixture
def killed(tmp_path_factory, job, clock):
    """What a daemon leaves that is killed: the database, its log and the index of that, and a backup."""
    if not _made:
        folder = tmp_path_factory.mktemp("killed")
        store = open_store(folder / "alive", clock=clock)
        fill(store, job)
        shutil.copytree(folder / "alive", folder / "state")
        store.close_now()
        _made.append(folder / "state")
    return _made[0]


def read_all(store):
    """Everything that a daemon reads when it starts and when it is asked."""
    jobs = {record.id: record for record in store.jobs(ended=True)}
    alive = [job.id for job in jobs.values() if job.state in ("pending", "running")]
    for job in jobs.values():
        assert isinstance(msgspec.json.decode(job.gang), dict)
        assert isinstance(msgspec.json.decode(job.options), dict)
    for number in alive:
        msgspec.json.decode(store.load_run(number))
    for run in store.runs():
        msgspec.json.decode(run.devices)
    for event in store.events(limit=10_000):
        msgspec.json.decode(event.data)
    store.estimates()
    store.newest()
    told = store.meta("clock")
    assert told is None or msgspec.json.decode(told)["at_us"] > 0
    for job in jobs.values():
        store.history(job.user, job.name, 5)
    assert len(store.ended(limit=1000)) == len(jobs) - len(store.jobs())
    return jobs


def spoil(state, dice):
    """Flips, a page of zeroes, or an end too early; in the database, its log, or both."""
    names = dice.choice([["phalanx.db"], ["phalanx.db-wal"], ["phalanx.db", "phalanx.db-wal"]])
    for name in names:
        path = state / name
        data = bytearray(path.read_bytes())
        how = dice.choice(["flip", "flips", "zeroes", "cut"])
        if how == "cut":
            del data[dice.randrange(len(data)) :]
        elif how == "zeroes":
            page = dice.randrange(len(data) // 4096) * 4096
            data[page : page + 4096] = bytes(4096)
        else:
            for _ in range(1 if how == "flip" else 40):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)


def find_missing(jobs):
    """Jobs that were acknowledged and are not there as they were."""
    expected = {number: f"job-{number}" for number in range(1, JOBS + 1)}
    return sorted(number for number, name in expected.items() if number not in jobs or jobs[number].name != name)


@pytest.mark.parametrize("seed", rest_long(range(TRIALS), 20))
def test_damage_anywhere_is_survived_and_told(killed, tmp_path, clock, job, seed):
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    spoil(state, random.Random(seed))
    for _ in range(2):  # what was mended stays mended
        try:
            store = open_store(state, clock=clock)
        except StoreBroken as broken:
            assert broken.hint, broken  # noqa: PT017 - one of two good ends
            return
        try:
            told = store.problem
            jobs = read_all(store)
            missing = find_missing(jobs)
            fresh = store.write_now(InsertJobs(1000, None, [job(name="fresh")]))[0][0]
            assert fresh > JOBS, "an id was given twice"
        finally:
            store.close_now()
        if _ == 0 and missing and (JOBS in missing or len(missing) > 2):
            # A flipped letter in a name is nobody's to find; whole jobs are.
            assert told, f"jobs {missing} are gone, and nobody said so"


# ---------------------------------------------------------------------- one row


def spoil_row(state, table, key, number, column, value):
    with closing(sqlite3.connect(state / "phalanx.db")) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, number))  # noqa: S608
        connection.commit()


@pytest.mark.parametrize(
    ("column", "value"),
    [("gang", b'{"members":4'), ("options", b"\xff\xfe"), ("options", b"5"), ("user", b"\xff"), ("uid", "nobody")],
)
def test_what_cannot_change_is_taken_from_a_backup(opened, home, job, column, value):
    store = opened()
    store.write_now(InsertJobs(1000, None, [job(name="whole"), job(name="hurt", options=b'{"grace_s":3}')]))
    before = {record.id: record for record in store.jobs()}
    store.backup()
    store.close_now()
    shutil.rmtree(home / "redo")
    spoil_row(home, "job", "id", 2, column, value)
    again = opened()
    assert {record.id: record for record in again.jobs()} == before
    assert f"Job 2: its record was damaged ({column})" in again.problem
    assert "taken from there" in again.problem
    again.close_now()
    assert opened().problem is None


def test_a_job_of_which_nobody_knows_what_it_was_has_failed(opened, home, job):
    """It must not run as anything else, and the daemon must start for the others."""
    store = opened()
    store.write_now(InsertJobs(1000, None, [job(name="whole"), job(name="hurt")]))
    store.close_now()
    shutil.rmtree(home / "redo")
    spoil_row(home, "job", "id", 2, "options", b'{"begin_us":')
    again = opened()
    assert [record.name for record in again.jobs()] == ["whole"]
    hurt = again.job(2)
    assert (hurt.name, hurt.state) == ("hurt", "failed")
    assert "damaged (options)" in msgspec.json.decode(hurt.failure)["why"]
    assert "Job 2: its record was damaged (options); it has failed, submit it again." in again.problem
    (kept,) = home.glob("phalanx.db.damaged-rows-*")
    assert "begin_us" in kept.read_text(encoding="utf-8")


def test_what_may_be_missing_is_emptied(opened, home, job):
    store = opened()
    store.write_now(InsertJobs(1000, None, [job(ledger=b"{}")]), PutMeta("decayed", b"{}"))
    store.close_now()
    shutil.rmtree(home / "redo")
    spoil_row(home, "job", "id", 1, "ledger", b"{")
    spoil_row(home, "meta", "key", "decayed", "value", b"\xff")
    again = opened()
    assert [(record.state, record.ledger) for record in again.jobs()] == [("pending", None)]
    assert again.meta("decayed") is None
    assert "(ledger); that was emptied" in again.problem
    assert "'decayed' was damaged" in again.problem


@pytest.mark.parametrize("backup", [False, True])
@pytest.mark.parametrize(("column", "value"), [("gang", b"{"), ("state", "runing"), ("attempt", "x"), ("ledger", b"{")])
def test_any_column_of_a_job_is_in_the_second_record(opened, home, job, column, value, backup):
    """Not only what cannot have changed since the backup: it has every change."""
    store = opened()
    store.write_now(InsertJobs(1000, None, [job(name="whole"), job(name="hurt")]))
    if backup:
        store.backup()
    store.write_now(UpdateJob(2, state="running", attempt=3, ledger=b'{"lost":5}', gang=b'{"members":7}'))
    before = {record.id: record for record in store.jobs()}
    store.close_now()
    spoil_row(home, "job", "id", 2, column, value)
    again = opened()
    assert {record.id: record for record in again.jobs()} == before
    assert f"Job 2: its record was damaged ({column}); it was taken from the second record." in again.problem


HISTORY = [
    EventRecord(5, "bind", 40, 1.0, b'{"attempt":2,"members":1,"devices":["GPU-3","GPU-1"]}'),
    EventRecord(5, "start", 50, 1.0, b'{"attempt":2,"members":1}'),
    EventRecord(5, "cancelling", 60, 1.0, b'{"by":"ada"}'),
]
HURT = [
    ("intent", 'cast(\'{"broken\' as text)'), ("intent", '\'{"purpose":"cancfl"}\''), ("members", "x'00'"),
    ("devices", '\'[{"key":0}]\''), ("state", "'runnimg'"), ("boot_id", "x'ff'"), ("job", "'five'"), ("job", "6"),
    ("attempt", "3"), ("generation", "null"), ("run", "'5.x'"), ("run", "'5.7'"),
]  # fmt: skip


def spoil_attempt(opened, home, job, column, value, *, recorded):
    """A store with an attempt whose end somebody wants, before and after a column of it is spoilt."""
    store = opened()
    store.write_now(InsertJobs(1000, None, [job() for _ in range(5)]), AddEvents(HISTORY))
    intent = b'{"purpose":"cancel","by":"ada","failure":null}'
    store.write_now(PutRun(RunRecord("5.2", 5, 2, 1, "stopping", "boot", SEAT, b'{"started_us":50}', intent)))
    runs = store.runs()
    store.close_now()
    (home / "runs" / "5.2").mkdir(parents=True)
    (home / "runs" / ".live").mkdir(parents=True)
    (home / "runs" / ".live" / "5.2").write_text('{"boot_id":"boot"}', encoding="ascii")
    if not recorded:
        shutil.rmtree(home / "redo")
    with closing(sqlite3.connect(home / "phalanx.db")) as connection:
        if value == "null":
            value = "1.5"
        connection.execute(f"UPDATE run SET {column} = {value}")  # noqa: S608
        connection.commit()
    return runs, opened()


@pytest.mark.parametrize(("column", "value"), HURT)
def test_a_damaged_attempt_is_taken_from_the_second_record(opened, home, job, column, value):
    before, again = spoil_attempt(opened, home, job, column, value, recorded=True)
    assert again.runs() == before
    assert "Job 5: the record of its attempt 5.2 was damaged" in again.problem
    assert list(home.glob("phalanx.db.damaged-rows-*"))
    again.close_now()
    assert opened().problem is None


@pytest.mark.parametrize(("column", "value"), HURT)
def test_a_damaged_attempt_is_put_together_from_what_else_tells(opened, home, job, column, value):
    (before,), again = spoil_attempt(opened, home, job, column, value, recorded=False)
    (after,) = again.runs()
    assert "Job 5: the record of its attempt 5.2 was damaged" in again.problem
    if column == "devices":
        (entry,) = msgspec.json.decode(after.devices)
        assert [name for name, _ in entry["devices"]] == ["GPU-3", "GPU-1"], "until it is gone they are nobody else's"
        after.devices = before.devices
    if column == "state":
        after.state = before.state if after.state == "running" else after.state
    assert after == before


def test_an_attempt_that_must_be_ended_for_its_row_says_so(opened, home, job):
    store = opened()
    store.write_now(InsertJobs(1000, None, [job()]))
    store.write_now(PutRun(RunRecord("1.1", 1, 1, 1, "running", "boot", SEAT, b'{"started_us":50}')))
    store.close_now()
    shutil.rmtree(home / "redo")
    spoil_row(home, "run", "job", 1, "devices", b"[")
    again = opened()
    (run,) = again.runs()
    intent = msgspec.json.decode(run.intent)
    assert (intent["purpose"], run.devices) == ("evict", b"[]")
    assert "record on the disk was damaged" in intent["by"]
    assert "runs again" in again.problem


def test_text_that_is_not_utf8_in_what_sqlite_says_leads_to_the_backup(opened, home, job, monkeypatch):
    """`quick_check` quotes names out of a damaged schema, and an error of SQLite's does as well."""
    store = opened()
    store.write_now(InsertJobs(1000, None, [job(name="a")]))
    store.backup()
    store.close_now()
    path = home / "phalanx.db"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE INDEX job_ended", b"CREATE INDEX job_\xce\xffded"))
    again = opened()
    assert "was damaged" in again.problem
    assert {record.name for record in again.jobs()} == {"a"}


# ---------------------------------------------------------------------- the log


def copy_alive(home, tmp_path):
    shutil.copytree(home, tmp_path / "killed")
    return tmp_path / "killed"


def spoil_log(opened, home, job, tmp_path, how):
    """A store with twenty jobs whose daemon was killed, and whose log is damaged where the last of them stands."""
    store = opened()
    for number in range(20):
        store.write_now(InsertJobs(1000, None, [job(name=f"job-{number}")]))
    log = copy_alive(home, tmp_path) / "phalanx.db-wal"
    data = bytearray(log.read_bytes())
    last = store._reader.execute("PRAGMA page_size").fetchone()[0] + 24
    if how == "flip":
        data[-last // 2] ^= 1
    elif how == "cut":
        del data[-last:]
    elif how == "header":
        data[20] ^= 1
    log.write_bytes(data)
    if how == "removed":
        log.unlink()
    return log


@pytest.mark.parametrize("how", ["flip", "cut", "removed", "header"])
def test_what_a_log_has_lost_comes_back_from_the_second_record(opened, home, job, tmp_path, how):
    log = spoil_log(opened, home, job, tmp_path, how)
    again = opened(log.parent)
    assert {record.name for record in again.jobs()} == {f"job-{number}" for number in range(20)}
    assert "was damaged" in again.problem
    assert "back: " in again.problem
    assert "submit what is missing" not in again.problem
    assert again.write_now(InsertJobs(1000, None, [job()]))[0][0] > 100_000, "run directories go by these"
    again.close_now()
    assert opened(log.parent).problem is None


@pytest.mark.parametrize("how", ["flip", "cut", "removed", "header"])
def test_a_log_that_has_lost_what_was_acknowledged_is_no_secret(opened, home, job, tmp_path, how):
    log = spoil_log(opened, home, job, tmp_path, how)
    shutil.rmtree(log.parent / "redo")
    again = opened(log.parent)
    assert "job-19" not in {record.name for record in again.jobs()}
    assert "were acknowledged last are lost" in again.problem
    assert "phalanx ps -a" in again.problem
    assert again.write_now(InsertJobs(1000, None, [job()]))[0][0] > 100_000, "run directories go by these"
    again.close_now()
    assert opened(log.parent).problem is None


def test_a_log_that_is_whole_is_no_loss(opened, home, job, tmp_path):
    store = opened()
    store.write_now(InsertJobs(1000, None, [job(name="a")]))
    assert opened(copy_alive(home, tmp_path)).problem is None


def test_a_log_that_is_older_than_the_database_is_put_away(opened, home, job, tmp_path):
    """Half of it was copied into the database and then spoilt: what is left would undo some pages and not others."""
    store = opened()
    for number in range(30):
        store.write_now(InsertJobs(1000, None, [job(name=f"job-{number}")]))
    with closing(sqlite3.connect(home / "phalanx.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        state = copy_alive(home, tmp_path)
    log = state / "phalanx.db-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    again = opened(state)
    assert {record.name for record in again.jobs()} == {f"job-{number}" for number in range(30)}
    assert "nothing that was acknowledged is missing" in again.problem
