"""The second record: what was written since the last backup comes back with it, and what cannot is said."""

from __future__ import annotations

import os
import shutil
import struct

import msgspec
import pytest

from phalanx.frontends.host.store import (
    AddEvents,
    DropRun,
    EventRecord,
    InsertJobs,
    PutRun,
    RunRecord,
    StoreFull,
    UpdateJob,
)
from phalanx.frontends.host.store import redo as redo_module
from phalanx.frontends.host.store import store as store_module

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


def fail_for_room(*_args, **_options):
    raise StoreFull("No backup was made.", "Free some space.")


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
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_backup", fail_for_room)
        opened().close_now()
    spoil(home)
    again = opened()
    assert {record.name for record in again.jobs()} == {"told"}, "what comes after a gap makes no sense"
    assert "may be lost" in again.restored
    again.write_now(InsertJobs(1000, None, [job(name="since")]))
    again.close_now()
    spoil(home)
    assert {record.name for record in opened().jobs()} == {"told", "since"}


# ---------------------------------------------------------------------- under a database that is whole


def flip(record):
    data = bytearray(record.read_bytes())
    data[len(data) // 3] ^= 4
    record.write_bytes(data)


def cut_at_a_record(record):
    os.truncate(record, struct.unpack_from("<I", record.read_bytes())[0] + 8)


def garble(record):
    record.write_bytes(GARBAGE)


def empty(record):
    os.truncate(record, 0)


def unlink(record):
    record.unlink()


def remove_folder(record):
    shutil.rmtree(record.parent)


def replace_folder(record):
    shutil.rmtree(record.parent)
    record.parent.write_text("")


@pytest.mark.parametrize(
    "backed_up", [False, pytest.param(True, marks=pytest.mark.long)], ids=["no backup", "a backup"]
)
@pytest.mark.parametrize(
    "harm",
    [flip, cut_at_a_record, garble, empty, unlink, remove_folder, replace_folder],
    ids=lambda harm: harm.__name__,
)
def test_damage_of_the_record_under_a_good_database_loses_nothing_later(opened, home, job, harm, backed_up):
    store = opened()
    if backed_up:
        store.backup()
    fill_first(store, job)
    before = look(store)
    store.close_now()
    harm(home / "redo" / f"{backed_up:06d}.redo")
    store = opened()
    assert store.restored is None, "nothing is lost"
    store.write_now(InsertJobs(1000, None, [job(name="last")]))
    store.close_now()
    remove(home)
    again = opened()
    assert [record.name for record in again.jobs()] == ["before", "after", "waits", "last"]
    assert look(again)[1:] == before[1:]


@pytest.mark.parametrize("change", [PutRun(RunRecord("2.1", 2, 1, 2, "running", "boot", b"[]")), DropRun("2.1")])
def test_a_record_that_lacks_an_attempt_only_is_noticed(opened, home, job, change):
    """No number was given, and still: what a person decided about an attempt stands in its row."""
    store = opened()
    fill_first(store, job)
    size = (home / "redo" / "000000.redo").stat().st_size
    store.write_now(change)
    before = look(store)
    store.close_now()
    os.truncate(home / "redo" / "000000.redo", size)
    opened().close_now()
    remove(home)
    assert look(opened()) == before


def test_a_record_that_tells_all_costs_no_backup(opened, home, job):
    store = opened()
    store.backup()
    fill_first(store, job)
    for _ in range(3):
        store.close_now()
        store = opened()
    assert len(list((home / "backups").iterdir())) == 1


def test_without_room_for_a_backup_what_may_be_lost_is_said(opened, home, job, monkeypatch, caplog):
    store = opened()
    fill_first(store, job)
    store.close_now()
    empty(home / "redo" / "000000.redo")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_backup", fail_for_room)
        store = opened()
    assert "does not tell all until there is a backup" in caplog.text
    store.write_now(InsertJobs(1000, None, [job(name="last")]))
    store.close_now()
    remove(home)
    assert "may be lost" in opened().restored


# ---------------------------------------------------------------------- before the first backup


def fill_first(store, job):
    """As `fill` does it, and nobody has made a backup."""
    store.write_now(InsertJobs(1000, "one", [job(name="before")]), AddEvents([EventRecord(1, "submit", 1, 1.5, b"{}")]))
    store.write_now(InsertJobs(1000, "two", [job(name="after", run=b"{}"), job(name="waits")]))
    store.write_now(UpdateJob(2, state="running", attempt=1))
    store.write_now(PutRun(RunRecord("2.1", 2, 1, 1, "running", "boot", b"[]", intent=b"{}")))


def halve(home):
    path = home / "phalanx.db"
    os.truncate(path, path.stat().st_size // 2)


def garble_header(home):
    with (home / "phalanx.db").open("r+b") as file:
        file.write(b"not a database, is it?")


def garble_page(home):
    with (home / "phalanx.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096)


def remove(home):
    (home / "phalanx.db").unlink()


@pytest.mark.parametrize("harm", [remove, halve, garble_header, garble_page, spoil])
def test_without_any_backup_the_record_gives_everything_since_the_first_job(opened, home, job, harm):
    store = opened()
    fill_first(store, job)
    before = look(store)
    store.close_now()
    harm(home)
    again = opened()
    assert look(again) == before
    assert "no good backup" in again.restored
    assert "1, 2, 3" in again.restored
    assert "lost" not in again.restored
    [[number]] = again.write_now(InsertJobs(1000, None, [job(name="new")]))
    assert number > 100_000
    again.close_now()
    assert len(list((home / "backups").iterdir())) == 1, "there is one from now on"
    remove(home)
    assert {record.name for record in opened().jobs()} == {"before", "after", "waits", "new"}


@pytest.mark.parametrize("how", ["cut", "late"])
def test_what_the_record_alone_cannot_tell_is_said_by_number(opened, home, job, how):
    store = opened()
    fill_first(store, job)
    if how == "late":  # as of a daemon that knew of no such record when the first job came
        store.close_now()
        (home / "redo" / "000000.redo").unlink()
        store = opened()
        shutil.rmtree(home / "backups")  # it was made at once, since the record did not tell
        (home / "redo" / "000000.redo").unlink()
        store.write_now(UpdateJob(2, attempt=1), AddEvents([EventRecord(2, "x", 1, 1.5, b"{}")]))
    store.write_now(InsertJobs(1000, None, [job(name="last")]))
    store.close_now()
    record = home / "redo" / "000000.redo"
    if how == "cut":
        os.truncate(record, record.stat().st_size - 3)
        record.write_bytes(record.read_bytes() + b"\xa5" * 20)
    remove(home)
    again = opened()
    assert again.newest() > 100_000
    if how == "cut":
        assert "jobs accepted after job 3 and changes since may be lost" in again.restored
    else:
        assert {record.name for record in again.jobs()} == {"last"}
        assert "jobs accepted before job 4 are lost" in again.restored
        assert "Of jobs 2 too little is left" in again.restored


def test_backups_that_were_removed_are_followed_by_a_newer_number(opened, home, job):
    """What was written since goes with the number of the backup: it must not begin again at one."""
    store = opened()
    fill_first(store, job)
    for _ in range(5):
        store.backup()
    store.close_now()
    shutil.rmtree(home / "backups")
    store = opened()
    store.backup()
    store.write_now(InsertJobs(1000, None, [job(name="last")]))
    store.close_now()
    remove(home)
    assert {record.name for record in opened().jobs()} == {"before", "after", "waits", "last"}


def test_where_nothing_is_left_but_run_directories_their_numbers_are_not_given_again(opened, home, job):
    opened().close_now()
    for name in ("phalanx.db", "redo/000000.redo"):
        (home / name).unlink()
    (home / "runs" / ".live").mkdir(parents=True)
    (home / "runs" / "7.2").mkdir()
    (home / "runs" / ".live" / "9.1").touch()
    (home / "runs" / ".live" / "x.y").touch()
    again = opened()
    assert "all jobs are lost" in again.restored
    assert "of jobs 7, 9" in again.restored
    assert again.write_now(InsertJobs(1000, None, [job()])) == [[10]]
    assert opened(home.parent / "other").restored is None, "who begins has lost nothing"
