"""A full disk refuses submits and still takes exits; an I/O error ends all promises."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.frontends.host.store import (
    AddEvents,
    EventRecord,
    InsertJobs,
    PutMeta,
    PutRun,
    RunRecord,
    StoreBroken,
    StoreFull,
    UpdateJob,
    ballast,
    writer,
)
from phalanx.frontends.host.store.faults import Fault, find_fault


@pytest.fixture
def small_disk(tmp_path, as_root):
    """A disk of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting is not permitted here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def repeat_until(error: type[Exception], action: Callable[[int], object]) -> int:
    """How often something could be done."""
    for count in range(10_000):
        try:
            action(count)
        except error:
            return count
    raise AssertionError("there is always room")


def fill(disk: Path) -> Path:
    """Somebody else's file takes all the room there is."""
    hog = disk / "hog"
    with hog.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            repeat_until(OSError, lambda _, size=size: file.write(b"x" * size))
    return hog


def submit_until_full(store, job) -> int:
    """Submit until one is refused; how many were taken."""
    return repeat_until(
        StoreFull,
        lambda count: store.write_now(InsertJobs(1000, f"k{count}", [job(run=b'{"x":"%s"}' % (b"x" * 2000))])),
    )


def test_a_full_disk_refuses_submits_and_takes_exits(small_disk, opened, job):
    home = small_disk / "state"
    store = opened(home)
    store.write_now(InsertJobs(1000, None, [job(state="running") for _ in range(300)]))
    assert (home / "ballast").stat().st_blocks * 512 >= ballast.BALLAST_BYTES
    hog = fill(small_disk)
    taken = submit_until_full(store, job)
    assert store.full
    assert "is full" in store.problem
    assert not (home / "ballast").exists()
    # Three hundred exits, each a commit of its own with all that belongs to it.
    for number in range(1, 301):
        store.write_now(
            UpdateJob(number, state="failed", end_us=number, exit_code=1, failure=b'{"lines":["' + b"x" * 500 + b'"]}'),
            PutRun(RunRecord(f"{number}.1", number, 1, 1, "done", "boot", b"[0]")),
            AddEvents([EventRecord(number, "end", number, 1.0, b"{}")]),
        )
    assert store.full
    with pytest.raises(StoreFull, match="nothing was accepted") as caught:
        store.write_now(InsertJobs(1000, None, [job()]), PutMeta("half", b"1"))
    assert "df -h" in caught.value.hint
    assert store.meta("half") is None
    hog.unlink()
    # There is room again, and the first who asks finds it.
    assert store.write_now(InsertJobs(1000, "again", [job()])) == [[301 + taken]]
    assert not store.full
    assert store.problem is None
    assert (home / "ballast").exists()
    store.close_now()
    again = opened(home)
    assert len(again.ended()) == 300
    assert len(again.jobs()) == taken + 1
    assert again.find_key(1000, f"k{taken}") is None


def test_a_submit_that_meets_the_end_of_the_disk_fails_alone(small_disk, opened, job):
    store = opened(small_disk / "state")
    store.write_now(InsertJobs(1000, None, [job(state="running")]))

    async def scenario():
        return await asyncio.gather(
            store.write(UpdateJob(1, state="completed", end_us=1)),
            store.write(InsertJobs(1000, "huge", [job(run=bytes(30 << 20))])),
            store.write(PutMeta("a", b"1")),
            return_exceptions=True,
        )

    first, huge, last = asyncio.run(scenario())
    assert (first, last) == ([None], [None])
    assert isinstance(huge, StoreFull)
    assert store.find_key(1000, "huge") is None
    # What did not fit is not left lying in the log, so there is room for others.
    assert store.write_now(InsertJobs(1000, None, [job()])) == [[2]]
    assert not store.full


def test_even_without_ballast_nothing_that_was_promised_is_lost(small_disk, opened, job):
    home = small_disk / "state"
    store = opened(home)
    (home / "ballast").unlink()
    hog = fill(small_disk)
    taken = submit_until_full(store, job)
    repeat_until(
        StoreFull, lambda _: store.write_now(AddEvents([EventRecord(1, "x", 1, 1.0, b'{"x":"%s"}' % (b"x" * 3000))]))
    )
    promised = len(store.events(limit=10_000))
    hog.unlink()
    store.write_now(AddEvents([EventRecord(1, "x", 1, 1.0, b"{}")]))
    assert not store.full
    store.close_now()
    again = opened(home)
    assert (len(again.jobs()), len(again.events(limit=10_000))) == (taken, promised + 1)


def test_the_daemon_starts_on_a_full_disk_and_records_exits(small_disk, opened, job):
    home = small_disk / "state"
    store = opened(home)
    store.write_now(InsertJobs(1000, None, [job(state="running")]))
    store.close_now()
    fill(small_disk)
    again = opened(home)
    assert again.full
    again.write_now(UpdateJob(1, state="completed", end_us=1))
    assert again.ended()[0].id == 1
    with pytest.raises(StoreFull):
        again.write_now(InsertJobs(1000, None, [job()]))


def test_a_start_without_any_room_says_so(small_disk, opened):
    home = small_disk / "state"
    opened(home).close_now()
    (home / "ballast").unlink()
    fill(small_disk)
    with pytest.raises(StoreBroken, match="is full") as caught:
        opened(home)
    assert caught.value.kind == "full"


def test_a_backup_on_a_full_disk_is_refused(small_disk, opened):
    store = opened(small_disk / "state")
    fill(small_disk)
    with pytest.raises(StoreFull, match="No backup was made"):
        store.backup()


# ------------------------------------------------------------------- ballast


def test_ballast_is_taken_and_given_back(tmp_path):
    weight = ballast.Ballast(tmp_path / "ballast", 1 << 20)
    assert not weight.held
    assert weight.make()
    assert weight.make()
    assert weight.held
    assert (tmp_path / "ballast").stat().st_size == 1 << 20
    assert weight.release()
    assert not weight.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "room"), [("ENOSPC", False), ("EDQUOT", False), ("EOPNOTSUPP", True)])
def test_only_a_lack_of_room_is_a_lack_of_room(tmp_path, monkeypatch, code, room):
    def refuse(descriptor, offset, length):
        raise OSError(getattr(errno, code), "no")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    weight = ballast.Ballast(tmp_path / "ballast")
    assert weight.make() is room
    assert ballast.has_room(tmp_path) is room
    assert list(tmp_path.iterdir()) == []


def test_the_room_that_the_ballast_leaves_does_not_count_as_room(small_disk):
    weight = ballast.Ballast(small_disk / "ballast")
    assert weight.make()
    hog = fill(small_disk)
    weight.release()
    assert not weight.make()
    assert [path.name for path in small_disk.iterdir()] == ["hog"]
    os.truncate(hog, hog.stat().st_size - ballast.BALLAST_BYTES)
    assert weight.make()


# ------------------------------------------------------------------- errors of the disk


def make_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


class Breaking:
    """A connection whose next commit fails, as SQLite reports it."""

    def __init__(self, connection, code):
        self._connection = connection
        self._code = code

    def execute(self, sql, *parameters):
        if sql == "COMMIT" and self._code is not None:
            code, self._code = self._code, None
            raise make_error(code)
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def break_next_commit(store, code) -> None:
    store._writer._connection = Breaking(store._writer._connection, code)


def test_a_failed_fsync_ends_all_promises(opened, job):
    store = opened()
    store.write_now(InsertJobs(1000, "kept", [job()]))
    break_next_commit(store, sqlite3.SQLITE_IOERR_FSYNC)

    async def scenario():
        return await asyncio.gather(
            *(store.write(InsertJobs(1000, f"lost{i}", [job()])) for i in range(3)), return_exceptions=True
        )

    errors = asyncio.run(scenario())
    assert [(type(error), error.kind) for error in errors] == [(StoreBroken, "io")] * 3
    assert len({id(error) for error in errors}) == 3
    # The next commit would work, but nobody may be told so.
    with pytest.raises(StoreBroken, match="Nothing is accepted any more"):
        store.write_now(PutMeta("a", b""))
    assert "dmesg" in store.problem
    assert not store.full
    assert len(store.jobs()) == 1  # what was promised can still be read
    store.close_now()
    assert [record.id for record in opened().jobs()] == [1]


def test_a_limit_of_the_user_is_a_full_disk_though_sqlite_calls_it_an_error(store, job, monkeypatch):
    store.write_now(InsertJobs(1000, None, [job()]))
    break_next_commit(store, sqlite3.SQLITE_IOERR_WRITE)
    monkeypatch.setattr(writer, "has_room", lambda directory: False)
    with pytest.raises(StoreFull):
        store.write_now(InsertJobs(1000, None, [job()]))
    store.write_now(UpdateJob(1, state="completed", end_us=1))
    assert store.problem is None


def test_a_thread_that_stumbles_tells_everybody_who_waits(store, monkeypatch):
    def stumble(connection, writes):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(writer, "apply_group", stumble)
    for _ in range(2):
        with pytest.raises(StoreBroken, match="a mistake of ours") as caught:
            store.write_now(PutMeta("a", b""))
    assert caught.value.kind == "io"


def test_a_checkpoint_that_fails_is_not_overlooked(store, monkeypatch):
    def fail(connection, mode="PASSIVE"):
        raise make_error(sqlite3.SQLITE_IOERR_FSYNC)

    monkeypatch.setattr(writer, "ROWS_PER_CHECKPOINT", 1)
    monkeypatch.setattr(writer, "write_checkpoint", fail)
    assert store.write_now(PutMeta("a", b"")) == [None]
    with pytest.raises(StoreBroken, match="disk I/O error"):
        store.write_now(PutMeta("b", b""))


def test_an_error_of_the_disk_behind_a_full_one_is_not_overlooked(store, job, monkeypatch):
    def fail(connection, mode="PASSIVE"):
        raise make_error(sqlite3.SQLITE_IOERR_FSYNC)

    break_next_commit(store, sqlite3.SQLITE_FULL)
    monkeypatch.setattr(writer, "write_checkpoint", fail)
    with pytest.raises(StoreBroken) as caught:
        store.write_now(PutMeta("a", b""))
    assert caught.value.kind == "io"


def test_a_disk_that_has_become_readonly(store, monkeypatch):
    """As ext4 does after an error: even removing the ballast fails."""

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    break_next_commit(store, sqlite3.SQLITE_IOERR_WRITE)
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreBroken) as caught:
        store.write_now(PutMeta("a", b""))
    assert caught.value.kind == "io"
    assert not store.full


def test_a_real_io_error(home):
    """The kernel refuses to let the file grow, which is neither a full disk nor a limit on the user's share of it."""
    code = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from phalanx.frontends.host.store import AddEvents, EventRecord, PutMeta, StoreBroken, open_store
        class Clock:
            wall_s = staticmethod(lambda: 0.0)
        store = open_store(Path(sys.argv[1]), clock=Clock())
        store.write_now(PutMeta("a", b"1"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        for attempt in range(2):
            try:
                for _ in range(100):
                    store.write_now(AddEvents([EventRecord(1, "x", 1, 1.0, bytes(9000))]))
            except StoreBroken as broken:
                print(broken.kind, store.full, store.meta("a"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    """)
    done = subprocess.run([sys.executable, "-c", code, home], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["io False b'1'"] * 2, done.stderr


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (make_error(sqlite3.SQLITE_FULL), Fault.FULL),
        (make_error(sqlite3.SQLITE_IOERR_FSYNC), Fault.IO),
        (make_error(sqlite3.SQLITE_IOERR_WRITE), Fault.UNSURE),
        (make_error(sqlite3.SQLITE_CORRUPT_INDEX), Fault.CORRUPT),
        (make_error(sqlite3.SQLITE_NOTADB), Fault.CORRUPT),
        (make_error(sqlite3.SQLITE_BUSY_SNAPSHOT), Fault.BUSY),
        (make_error(sqlite3.SQLITE_READONLY_DBMOVED), Fault.READONLY),
        (make_error(sqlite3.SQLITE_CONSTRAINT_NOTNULL), Fault.OWN),
        (make_error(sqlite3.SQLITE_TOOBIG), Fault.OWN),
        (sqlite3.ProgrammingError("closed"), Fault.OWN),
        (LookupError("no job 5"), Fault.OWN),
    ],
)
def test_whose_problem_an_error_is(error, fault):
    assert find_fault(error) is fault
