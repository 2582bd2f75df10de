"""The disk of the made-up machine keeps the same promises as the real one: one script, two stores, one story."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

import msgspec
import pytest

from phalanx.frontends.host.clock import HostClock
from phalanx.frontends.host.store import (
    AddEstimate,
    AddEvents,
    CloseEstimate,
    DropRun,
    EventRecord,
    InsertJobs,
    JobRecord,
    PutMeta,
    PutRun,
    RunRecord,
    StoreBroken,
    UpdateJob,
    open_store,
)
from phalanx.testing.hosts.virtual_loop import VirtualLoop
from phalanx.testing.hosts.virtual_store import VirtualStore


def job(name: str, **columns) -> JobRecord:
    base = {"uid": 1, "gid": 1, "user": "ada", "queue": "default", "state": "pending", "gang": b"{}", "options": b"{}"}
    return JobRecord(name=name, submit_us=5, submit_wall=5.0, run=b"run", **(base | columns))


async def settle(*writes) -> list[object]:
    """What concurrent writes come to, errors by their kind."""
    told = await asyncio.gather(*writes, return_exceptions=True)
    return [type(each).__name__ if isinstance(each, Exception) else each for each in told]


async def play(store) -> list[object]:
    """Everything the core does with a store."""
    story: list[object] = []
    story += await settle(
        store.write(InsertJobs(1, "k", [job("a"), job("b")])),
        store.write(InsertJobs(1, "k", [job("a"), job("b")])),
        store.write(InsertJobs(2, "k", [job("c", uid=2)])),
        store.write(InsertJobs(1, None, [job("d")])),
    )
    run = RunRecord("1.1", 1, 1, 1, "starting", "boot", b"[]")
    story += await settle(
        store.write(UpdateJob(1, state="starting", attempt=1), PutRun(run)),
        store.write(UpdateJob(99, state="starting"), PutRun(RunRecord("99.1", 99, 1, 1, "starting", "boot", b"[]"))),
        store.write(UpdateJob(2, held=True), AddEvents([EventRecord(2, "hold", 7, 7.0, b"{}")])),
    )
    story.append([msgspec.structs.astuple(record) for record in store.runs()])
    run.state, run.intent = "running", b'{"purpose":"cancel"}'
    story += await settle(
        store.write(PutRun(run), AddEstimate(1, 1, 2, 1, 3, predicted=False)),
        store.write(CloseEstimate(1, 2), PutMeta("clock", b"1"), PutMeta("clock", b"2")),
        store.write(AddEvents([EventRecord(1, "bind", 8, 8.0, b"{}"), EventRecord(None, "up", 9, 9.0, b"{}")])),
    )
    story += await settle(
        store.write(DropRun("1.1"), DropRun("1.1"), UpdateJob(1, state="completed", end_us=20, exit_code=0)),
        store.write(UpdateJob(3, state="cancelled", end_us=21, reason=b'["a","b"]')),
    )
    story.append(ask(store))
    story.append(store.write_now(UpdateJob(4, pin=3)))
    story.append(store.prune(40, 20, 20))
    story.append(ask(store))
    return story


def ask(store) -> list[object]:
    """Everything the core reads."""
    found: list[object] = [store.find_key(1, "k"), store.find_key(2, "k"), store.find_key(1, "no"), store.meta("clock")]
    lists = [store.jobs(), store.jobs(ended=True), store.runs(), store.events(), store.events(job=1), store.ended()]
    lists += [store.ended(limit=1), store.ended(21, "ada"), store.history("ada", "a", 5), store.estimates()]
    found += [[msgspec.structs.astuple(record) for record in records] for records in lists]
    found += [store.load_run(2), store.job(77), store.run("1.1"), store.full, store.problem]
    return found


def play_real(folder) -> list[object]:
    async def on_disk() -> list[object]:
        store = open_store(folder, clock=HostClock())
        try:
            return await play(store)
        finally:
            await store.close()

    return asyncio.run(on_disk())


def play_virtual(delay_us: int) -> list[object]:
    loop = VirtualLoop()
    store = VirtualStore(loop, copy_context(), lambda: delay_us)
    try:
        return loop.run_until_complete(play(store))
    finally:
        store.close_now()
        loop.close()


@pytest.mark.parametrize("delay_us", [0, 20_000])
def test_both_stores_tell_the_same_story(tmp_path, delay_us):
    assert play_virtual(delay_us) == play_real(tmp_path / "state")


def test_a_store_whose_disk_failed_promises_nothing():
    loop = VirtualLoop()
    store = VirtualStore(loop, copy_context())
    store.break_down()
    with pytest.raises(StoreBroken):
        loop.run_until_complete(store.write(PutMeta("a", b"1")))
    assert store.meta("a") is None
    store.lose_daemon(lambda waiting: waiting)
    loop.run_until_complete(store.write(PutMeta("a", b"1")))
    assert store.meta("a") == b"1"
    store.close_now()
    loop.close()
