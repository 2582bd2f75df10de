"""The second record: what was written since the last backup comes back with it, and what cannot is said."""

from __future__ import annotations

import os

import msgspec
import pytest

from phalanx.frontends.host.store import AddEvents, DropRun, EventRecord, InsertJobs, PutRun, RunRecord, UpdateJob
from phalanx.frontends.host.store import redo as redo_module

#: Where nothing of the database is left that anybody could read.
GARBAGE = b"\x5a" * 50_000


def fill(store, job):
    """Something of every kind, before and after a backup."""
    store.write_now(InsertJobs(1000, "one", [job(name="before")]))
    store.backup()
    store.write_now(InsertJobs(1000, "two", [job(name="after", run=b"{}"), job(name="waits")]))
    store.write_now(UpdateJob(1, state="completed", exit_code=0), UpdateJob(2, state="running", attempt=1))
    store.write_now(PutRun(RunRecord("1.1", 1, 1, 1, "running", "boot", b"[]")))
    store.write_now(PutRun(RunRecord("2.1", 2, 1, 1, "running", "boot", b"[]", intent=b"{}")), DropRun("1.1"))
    store.write_now(AddEvents([EventRecord(2, "start", 5, 1.5, b"{}")]))


def look(store):
    """All that a daemon reads when it starts."""
    jobs = [msgspec.structs.astuple(record) for record in store.jobs(ended=True)]
    events = [msgspec.structs.astuple(event) for event in store.events()]
    return jobs, store.runs(), events, store.load_run(2), [store.find_key(1000, key) for key in ("one", "two")]


def spoil(home):
    (home / "phalanx.db").write_bytes(GARBAGE)
    for name in ("phalanx.db-wal", "phalanx.db-shm"):
        (home / name).unlink(missing_ok=True)


def test_a_backup_and_what_was_written_since_are_the_database_as_it_was(opened, home, job):
    store = opened()
    fill(store, job)
    before = look(store)
    store.close_now()
    spoil(home)
    again = opened()
    assert look(again) == before
    assert "2, 3" in again.restored
    assert "put back from the second record" in again.restored
    again.close_now()
    spoil(home)
    assert look(opened()) == before, "and once more"


def test_a_log_that_lost_its_end_is_made_up_for_and_told(opened, home, job, tmp_path):
    store = opened()
    kept = (home / "phalanx.db-wal").read_bytes()
    fill(store, job)
    before = look(store)
    crashed = tmp_path / "crashed"
    crashed.mkdir(mode=0o700)
    (crashed / "phalanx.db").write_bytes((home / "phalanx.db").read_bytes())
    (crashed / "phalanx.db-wal").write_bytes(kept)  # the pages behind it are lost
    for folder in ("redo", "backups"):
        (home / folder).rename(crashed / folder)
    again = opened(crashed)
    assert look(again) == before
    assert "log is damaged" in again.restored
    assert "1, 2, 3" in again.restored


@pytest.mark.parametrize("how", ["gone", "cut", "spoilt"])
def test_what_is_lost_all_the_same_is_said(opened, home, job, how):
    store = opened()
    fill(store, job)
    store.close_now()
    (record,) = [path for path in (home / "redo").iterdir() if path.stat().st_size and path.stem == "000001"]
    data = record.read_bytes()
    spoil(home)
    if how == "gone":
        record.unlink()
    elif how == "cut":
        record.write_bytes(data[: len(data) // 2])
    else:
        record.write_bytes(data[:40] + b"\xa5" * 8 + data[48:])
    again = opened()
    assert "may be lost" in again.restored
    assert again.job(1).name == "before"


def test_a_full_disk_ends_the_record_until_the_next_backup(opened, home, job, monkeypatch):
    store = opened()
    store.backup()
    store.write_now(InsertJobs(1000, None, [job(name="told")]))
    with monkeypatch.context() as patch:
        write = os.write
        patch.setattr(redo_module.os, "write", lambda fd, data: write(fd, data) if len(data) < 20 else 0)
        store.write_now(InsertJobs(1000, None, [job(name="untold")]))
    store.write_now(InsertJobs(1000, None, [job(name="after a gap")]))
    store.close_now()
    opened().close_now()
    spoil(home)
    again = opened()
    assert {record.name for record in again.jobs()} == {"told"}, "what comes after a gap makes no sense"
    assert "may be lost" in again.restored
    again.write_now(InsertJobs(1000, None, [job(name="since")]))
    again.close_now()
    spoil(home)
    assert {record.name for record in opened().jobs()} == {"told", "since"}
