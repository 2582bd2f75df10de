"""The shelf on which flights are written down: as many at a time as there are places, whoever clears up meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.frontends.kube.api.kubeconfig import ApiAccess
from phalanx.frontends.kube.flights import Berth, Flight
from phalanx.frontends.kube.gang_view import Dialect, GangKey
from phalanx.frontends.kube.intents import PLACES, IntentShelf


class SlowApi:
    """Has an object of every name; a write is answered when the test says so."""

    access = ApiAccess("nowhere", 0, None)

    def __init__(self):
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def get(self, path):
        return b'{"metadata":{"resourceVersion":"1"}}'

    async def call(self, method, path, tree):
        self.asked += 1
        await self.answers.wait()
        return b'{"metadata":{"resourceVersion":"2"}}'


def flight(number):
    berths = tuple(Berth("team", f"g{number}-{at}", f"u{number}-{at}", "n0", f"g{number}") for at in range(2))
    return Flight((GangKey(Dialect.NATIVE, "team", f"g{number}"),), berths, 1.0, {})


async def make_littered():
    api = SlowApi()
    shelf = IntentShelf(api, "team", "phalanx")
    await shelf.take_over(1)
    for place in [await shelf.write(flight(number)) for number in range(PLACES)]:
        shelf.leave(place)
    return api, shelf


@pytest.mark.parametrize("clears_first", [True, False])
def test_flights_that_come_while_it_is_cleared_wait_for_a_place_and_find_one(clears_first):
    async def go():
        api, shelf = await make_littered()
        assert shelf.is_littered
        api.answers.clear()
        flights = [shelf.write(flight(number)) for number in range(PLACES)]
        work = [shelf.clear(), *flights] if clears_first else [*flights, shelf.clear()]
        tasks = [asyncio.create_task(each) for each in work]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert api.asked == 2 * PLACES + PLACES, "as many under way as there are places"
        api.answers.set()
        done = await asyncio.gather(*tasks)
        places = [each for each in done if each is not None]
        assert len({place.name for place in places}) == PLACES
        assert all("g" in place.text for place in places), "none was cleared under a flight"

    asyncio.run(go())


def test_nothing_is_cleared_while_somebody_flies_who_may_write_over_it():
    async def go():
        _, shelf = await make_littered()
        place = await shelf.write(flight(0))
        assert not shelf.is_littered
        shelf.leave(place)
        assert shelf.is_littered
        await shelf.clear()
        assert not shelf.is_littered

    asyncio.run(go())
