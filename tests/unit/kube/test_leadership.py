"""Who leads, on a lease in memory."""

from __future__ import annotations

import asyncio
import json

import pytest

from phalanx.frontends.kube.api.api_client import ApiRefusedError
from phalanx.frontends.kube.kube_clock import KubeClock
from phalanx.frontends.kube.leadership import Leadership


class OneLease:
    """An API server with one object; a write with an old version is refused."""

    def __init__(self):
        self.tree, self.version = None, 0

    async def get(self, path):
        if self.tree is None:
            raise ApiRefusedError(f"GET {path}", 404, "NotFound", "")
        return json.dumps(self.tree).encode()

    async def call(self, method, path, tree):
        if method == "PUT" and tree["metadata"]["resourceVersion"] != str(self.version):
            raise ApiRefusedError(f"PUT {path}", 409, "Conflict", "the object has been modified")
        self.version += 1
        self.tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(self.version)}}
        return json.dumps(self.tree).encode()


def make_leadership(api, identity, tell=lambda *_, **__: None, replica=""):
    return Leadership(api, KubeClock(), tell, namespace="x", name="phalanx", identity=identity, replica=replica)


def test_a_lease_is_given_up_although_the_last_renewal_was_broken_off():
    async def script():
        api = OneLease()
        first = make_leadership(api, "one")
        assert await first.win() == 1
        # Done by the server, and its answer was never read.
        tree = json.loads(json.dumps(api.tree))
        tree["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
        await api.call("PUT", "", tree)
        await first.release()
        assert api.tree["spec"]["holderIdentity"] == ""
        assert not first.is_good()
        assert await make_leadership(api, "two").win() == 2

    asyncio.run(script())


def test_a_lease_that_somebody_else_has_taken_is_left_alone():
    async def script():
        api = OneLease()
        first = make_leadership(api, "one")
        await first.win()
        tree = json.loads(json.dumps(api.tree))
        tree["spec"] |= {"holderIdentity": "two", "leaseTransitions": 2}
        await api.call("PUT", "", tree)
        with pytest.raises(ApiRefusedError, match="409"):
            await first.release()
        assert api.tree["spec"]["holderIdentity"] == "two"

    asyncio.run(script())


async def follows(api, replica):
    told = asyncio.Event()
    waiting = asyncio.create_task(make_leadership(api, "x", lambda *_, **__: told.set(), replica).win())
    await asyncio.wait_for(told.wait(), 5)
    is_waiting = not waiting.done()
    waiting.cancel()
    return is_waiting


def test_one_that_is_started_again_in_the_same_place_does_not_wait_for_the_one_that_ended():
    async def script():
        api = OneLease()
        assert await make_leadership(api, "one", replica="pod-uid").win() == 1
        assert await make_leadership(api, "two", replica="pod-uid").win() == 2
        for replica in ("pod-uid-2", "pod", ""):
            assert await follows(api, replica), f"{replica!r} is another one"

    asyncio.run(script())
