"""A store in a folder of its own, a job to put into it, and a clock that stands still."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.frontends.host.store import JobRecord, Store, open_store


class StillClock:
    """Time as a test sets it."""

    now = 0
    wall = 1_800_000_000.0

    def now_us(self) -> int:
        return self.now

    def wall_s(self) -> float:
        return self.wall

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the store does not wait")


def make_job(**columns) -> JobRecord:
    plain = {
        "uid": 1000,
        "gid": 1000,
        "user": "ada",
        "name": "train",
        "queue": "default",
        "state": "pending",
        "gang": b'{"members":4}',
        "options": b"{}",
        "submit_us": 5,
        "submit_wall": 1.5,
        "run": b'{"command":["true"]}',
    }
    return JobRecord(**plain | columns)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def job() -> Callable[..., JobRecord]:
    return make_job


@pytest.fixture
def home(tmp_path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def opened(home, clock) -> Iterator[Callable[..., Store]]:
    """Opens the store of this test, as often as it likes; all are closed in the end."""
    stores: list[Store] = []

    def open_one(directory: Path = home, **options) -> Store:
        stores.append(open_store(directory, clock=clock, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close_now()


@pytest.fixture
def store(opened) -> Store:
    return opened()


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small disk, or becomes another user")
