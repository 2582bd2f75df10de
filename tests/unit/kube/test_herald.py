"""Who is told when: those for whom somebody waits first, a few beside each other, each once."""

from __future__ import annotations

import asyncio

import pytest
from kube_objects import pod

from phalanx.frontends.kube.gang_view import Dialect, GangKey
from phalanx.frontends.kube.herald import PATIENCE_US, Herald
from phalanx.frontends.kube.mirror import Mirror
from phalanx.model.reason import Code


class Clock:
    now = 0

    def now_us(self):
        return self.now

    def stamp(self):
        return "2026-11-19T21:00:00Z"

    stamp_micro = stamp


class CountingApi:
    def __init__(self):
        self.paths, self.under_way, self.most = [], 0, 0

    async def call(self, method, path, tree=None, **_):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self.paths.append(path)


NAMES = [f"p{at:02}" for at in range(12)]


def key_of(name):
    return GangKey(Dialect.PLAIN, "team", name)


@pytest.fixture
def herald():
    mirror = Mirror("phalanx", lambda: None)
    for name in NAMES:
        mirror.pods.note(pod(name), deleted=False)
    return Herald(CountingApi(), mirror, Clock(), lambda *_, **__: None, "phalanx")


def test_whoever_is_waited_for_is_told_first_and_nobody_before_a_second_has_gone_by(herald):
    for name in reversed(NAMES):
        herald.mark([key_of(name)])
        herald._clock.now += 1
    assert herald.list_due() == []
    herald.hasten([key_of("p03")])
    assert herald.list_due() == [key_of("p03")]
    herald._clock.now = PATIENCE_US + len(NAMES)
    came = [name for name in reversed(NAMES) if name != "p03"]
    assert herald.list_due() == [key_of(name) for name in ("p03", *came)]


def test_thousands_are_told_a_few_beside_each_other_and_each_once(herald):
    keys = [key_of(name) for name in NAMES]
    herald.mark(keys)
    views = {key: herald._mirror.look_at(key) for key in keys}
    why = dict.fromkeys(keys, (Code.CAPACITY, "needs room for 1 members, free resources hold 0", 1, 0))
    asyncio.run(herald.tell_some(keys, views, why))
    told = [path for path in herald._api.paths if path.endswith("/status")]
    assert sorted(told) == [f"/api/v1/namespaces/team/pods/{name}/status" for name in NAMES]
    assert 1 < herald._api.most <= 4
    assert herald.next_due_us() is None
