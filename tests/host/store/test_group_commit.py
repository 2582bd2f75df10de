"""Many writers, one thread, few commits; and nobody pays for another's mistake."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from phalanx.frontends.host.store import (
    AddEvents,
    EventRecord,
    InsertJobs,
    PutMeta,
    StoreBroken,
    UpdateJob,
    writer,
)

Answer = TypeVar("Answer")


@pytest.fixture
def groups(monkeypatch):
    """How many writes went into each commit."""
    sizes = []
    real = writer.apply_group

    def note(connection, writes):
        sizes.append(len(writes))
        return real(connection, writes)

    monkeypatch.setattr(writer, "apply_group", note)
    return sizes


@pytest.fixture
def held(store):
    """Holds the writer up inside a commit, until told to go on."""
    inside, go_on = threading.Event(), threading.Event()
    real = store._writer._commit

    def wait(writes):
        inside.set()
        assert go_on.wait(30)
        return real(writes)

    store._writer._commit = wait
    yield inside, go_on
    go_on.set()


def run(scenario: Coroutine[None, None, Answer]) -> Answer:
    """A scenario, with an end to it even if an answer is lost."""
    return asyncio.run(asyncio.wait_for(scenario, 60))


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


def test_writes_that_wait_share_the_next_commit(store, job, groups, held):
    inside, go_on = held

    async def scenario():
        first = asyncio.create_task(store.write(InsertJobs(1000, None, [job()])))
        await until(inside)
        rest = [asyncio.create_task(store.write(InsertJobs(1000, None, [job(), job()]))) for _ in range(20)]
        await asyncio.sleep(0)
        go_on.set()
        return await first, await asyncio.gather(*rest)

    first, rest = run(scenario())
    assert groups == [1, 20]
    assert first == [[1]]
    # First come, first numbered.
    assert rest == [[[2 * i, 2 * i + 1]] for i in range(1, 21)]


def test_the_loop_is_woken_once_per_commit(store, job, held):
    inside, go_on = held
    calls = []

    async def scenario():
        loop = asyncio.get_running_loop()
        first = asyncio.create_task(store.write(PutMeta("a", b"")))
        await until(inside)
        real = loop.call_soon_threadsafe

        def note(callback, *arguments, **options):
            if threading.current_thread().name == "store-writer":
                calls.append(callback)
            return real(callback, *arguments, **options)

        loop.call_soon_threadsafe = note
        rest = [store.write(PutMeta("a", bytes([i]))) for i in range(50)]
        waiting = asyncio.gather(first, *rest)
        await asyncio.sleep(0)
        go_on.set()
        await waiting

    run(scenario())
    assert len(calls) == 2


def test_a_group_is_bounded(store, groups, held, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_MAX", 8)
    inside, go_on = held

    async def scenario():
        writes = [asyncio.create_task(store.write(PutMeta("a", bytes([i])))) for i in range(20)]
        await until(inside)
        go_on.set()
        await asyncio.gather(*writes)

    run(scenario())
    assert sum(groups) == 20
    assert max(groups) <= 8
    assert store.meta("a") == bytes([19])


def test_a_write_that_fails_takes_no_neighbour_with_it(store, job, groups, held):
    inside, go_on = held
    bad = [
        [InsertJobs(1000, "bad", [job(), job(name=None)])],  # NOT NULL
        [PutMeta("half", b"1"), UpdateJob(77, state="failed")],  # no such job
        [PutMeta("odd", object())],  # not a type that SQLite knows
        [UpdateJob(1, start_us=1 << 70)],  # too large
        [AddEvents([EventRecord(1, "e", 1, 1.0, b"")]), "not a change"],
    ]

    async def scenario():
        first = asyncio.create_task(store.write(InsertJobs(1000, None, [job()])))
        await until(inside)
        good = [asyncio.create_task(store.write(InsertJobs(1000, f"k{i}", [job()]))) for i in range(3)]
        doomed = [asyncio.create_task(store.write(*changes)) for changes in bad]
        after = asyncio.create_task(store.write(InsertJobs(1000, "last", [job()]), PutMeta("last", b"1")))
        await asyncio.sleep(0)
        go_on.set()
        await first
        return await asyncio.gather(*good, after), await asyncio.gather(*doomed, return_exceptions=True)

    good, doomed = run(scenario())
    assert groups == [1, 9]
    assert good == [[[2]], [[3]], [[4]], [[5], None]]
    assert [type(error) for error in doomed[:2]] == [sqlite3.IntegrityError, LookupError]
    assert all(isinstance(error, Exception) for error in doomed)
    assert len(store.jobs()) == 5
    assert (store.meta("half"), store.find_key(1000, "bad"), store.events()) == (None, None, [])
    assert store.problem is None


def test_a_caller_that_gives_up_undoes_nothing_and_disturbs_nobody(store, held):
    inside, go_on = held

    async def scenario():
        first = asyncio.create_task(store.write(PutMeta("a", b"1")))
        await until(inside)
        second = asyncio.create_task(store.write(PutMeta("b", b"1")))
        third = asyncio.create_task(store.write(PutMeta("c", b"1")))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        go_on.set()
        return await third

    assert run(scenario()) == [None]
    assert [store.meta(key) for key in "abc"] == [b"1", b"1", b"1"]


def test_a_loop_that_is_gone_does_not_hurt_the_writer(store, held):
    inside, go_on = held

    async def scenario():
        task = asyncio.create_task(store.write(PutMeta("a", b"1")))
        await until(inside)
        task.cancel()

    run(scenario())
    go_on.set()
    assert store.write_now(PutMeta("b", b"2")) == [None]
    assert store.meta("a") == b"1"


def test_readers_see_what_was_answered_while_others_write(store, job):
    async def client(number):
        for i in range(20):
            [[mine]] = await store.write(InsertJobs(1000 + number, f"{i}", [job(name=f"{number}.{i}")]))
            assert store.job(mine).name == f"{number}.{i}"
            assert store.find_key(1000 + number, f"{i}") == [mine]

    async def scenario():
        await asyncio.gather(*(client(number) for number in range(16)))

    run(scenario())
    assert [record.id for record in store.jobs()] == list(range(1, 321))


def test_two_submits_of_one_key_at_the_same_time_are_one(store, job):
    async def scenario():
        return await asyncio.gather(*(store.write(InsertJobs(1000, "k", [job(), job()])) for _ in range(20)))

    assert run(scenario()) == [[[1, 2]]] * 20
    assert len(store.jobs()) == 2


def test_threads_may_write_too(store, job):
    def client():
        for _ in range(20):
            store.write_now(InsertJobs(1000, None, [job()]))
            assert store.jobs()

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.jobs()) == 80


def test_what_was_queued_before_the_end_is_still_written(opened, job):
    store = opened()

    async def scenario():
        writes = [asyncio.create_task(store.write(InsertJobs(1000, None, [job()]))) for _ in range(30)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*writes)
        with pytest.raises(StoreBroken, match="closed") as caught:
            await store.write(PutMeta("a", b""))
        assert caught.value.kind == "closed"
        await store.close()

    run(scenario())
    with pytest.raises(StoreBroken, match="closed"):
        store.jobs()
    assert len(opened().jobs()) == 30


def test_another_process_that_holds_the_lock_is_named_and_waited_out(store, home, monkeypatch):
    store._writer._connection.execute("PRAGMA busy_timeout = 1")
    stranger = sqlite3.connect(home / "phalanx.db", isolation_level=None)
    try:
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBroken, match="Another process") as caught:
            store.write_now(PutMeta("a", b"1"))
        assert caught.value.kind == "busy"
        assert "fuser" in caught.value.hint
        stranger.execute("ROLLBACK")
        store.write_now(PutMeta("a", b"2"))
    finally:
        stranger.close()
    assert store.meta("a") == b"2"


def test_the_log_is_kept_short(store, home, job, monkeypatch):
    monkeypatch.setattr(writer, "ROWS_PER_CHECKPOINT", 40)
    for _ in range(100):
        store.write_now(InsertJobs(1000, None, [job(run=b"x" * 3000)]))
    # A hundred commits of about four pages each: without checkpoints the log would have grown past a megabyte.
    assert (home / "phalanx.db-wal").stat().st_size < 400_000
    assert len(store.jobs()) == 100


def test_what_was_written_is_not_kept_in_memory(store, job):
    record = job()
    before = sys.getrefcount(record)
    store.write_now(InsertJobs(1000, None, [record]))
    deadline = time.monotonic() + 30
    while sys.getrefcount(record) > before and time.monotonic() < deadline:
        threading.Event().wait(0.01)  # the thread is on its way back to its queue
    assert sys.getrefcount(record) == before


def test_the_settings_on_which_durability_rests(store):
    connection = store._writer._connection
    settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert settings == {"journal_mode": "wal", "synchronous": 2}
    assert store._reader.execute("PRAGMA query_only").fetchone()[0] == 1
