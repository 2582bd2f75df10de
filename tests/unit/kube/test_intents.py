"""The shelf of plans, on objects in memory."""

from __future__ import annotations

import asyncio
import json

import pytest

from phalanx.frontends.kube.api.api_client import ApiRefusedError
from phalanx.frontends.kube.flights import Berth, Flight
from phalanx.frontends.kube.gang_view import Dialect, GangKey
from phalanx.frontends.kube.intents import PLACES, FencedError, IntentShelf

KEY = GangKey(Dialect.NATIVE, "team", "a")
FLIGHT = Flight((KEY,), (Berth("team", "a-0", "uid", "n0", KEY.unique),), 100.0, {})


class OneFolder:
    """ConfigMaps by path; a write with an old version is refused. Writes wait while the gate is shut."""

    def __init__(self):
        self.trees, self.gate = {}, asyncio.Event()
        self.gate.set()

    async def get(self, path):
        if path not in self.trees:
            raise ApiRefusedError(f"GET {path}", 404, "NotFound", "")
        return json.dumps(self.trees[path]).encode()

    async def call(self, method, path, tree):
        await self.gate.wait()
        where = f"{path}/{tree['metadata']['name']}" if method == "POST" else path
        version = int(self.trees[where]["metadata"]["resourceVersion"]) if where in self.trees else 0
        if version and tree["metadata"].get("resourceVersion") != str(version):
            raise ApiRefusedError(f"{method} {path}", 409, "Conflict", "the object has been modified")
        self.trees[where] = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(version + 1)}}
        return json.dumps(self.trees[where]).encode()


def on_a_shelf(script):
    async def main():
        api = OneFolder()
        shelf = IntentShelf(api, "x", "phalanx")
        assert await shelf.take_over(1) == []
        await script(api, shelf)

    asyncio.run(main())


def test_the_last_place_may_be_cleared_just_when_somebody_needs_it():
    async def script(api, shelf):
        places = [await shelf.write(FLIGHT) for _ in range(PLACES)]
        shelf.leave(places[-1])
        api.gate.clear()
        clearing = asyncio.create_task(shelf.clear())
        await asyncio.sleep(0)
        writing = asyncio.create_task(shelf.write(FLIGHT))
        await asyncio.sleep(0)
        api.gate.set()
        await clearing
        assert (await asyncio.wait_for(writing, 5)).name == places[-1].name

    on_a_shelf(script)


def test_nothing_is_cleared_while_somebody_waits_for_a_place():
    async def script(_, shelf):
        places = [await shelf.write(FLIGHT) for _ in range(PLACES)]
        writing = asyncio.create_task(shelf.write(FLIGHT))
        await asyncio.sleep(0)
        await shelf.clear()
        shelf.leave(places[0])
        assert (await asyncio.wait_for(writing, 5)).name == places[0].name
        shelf.leave(places[1])
        await shelf.clear()
        assert not shelf.is_littered

    on_a_shelf(script)


def test_what_a_leader_before_left_is_found_and_it_cannot_write_any_more():
    async def script(api, shelf):
        await shelf.write(FLIGHT)
        second = IntentShelf(api, "x", "phalanx")
        ((place, flight),) = await second.take_over(2)
        assert (flight.keys, flight.berths) == (FLIGHT.keys, FLIGHT.berths)
        assert api.trees[f"/api/v1/namespaces/x/configmaps/{place.name}"]["data"]["epoch"] == "2"
        with pytest.raises(FencedError):
            await shelf.write(FLIGHT)

    on_a_shelf(script)
