"""The trials can fail: each mistake planted here is found within a few seeds, and by a rule that it breaks.

A plant changes the running controller by `monkeypatch`. It stands for a mistake that somebody could make, most of them
one line; several were made.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from selection import rest_long

from phalanx.frontends.kube import binder, mirror, pod_readings
from phalanx.frontends.kube.api import reflector
from phalanx.frontends.kube.api.api_client import ApiClient, ApiRefusedError, ApiSilentError
from phalanx.frontends.kube.binder import Binder
from phalanx.frontends.kube.flights import BerthFate, Word, read_intent
from phalanx.frontends.kube.intents import IntentShelf
from phalanx.frontends.kube.kube_planner import KubePlanner
from phalanx.frontends.kube.leadership import Leadership
from phalanx.frontends.kube.mirror import KindSight
from phalanx.testing.hosts.machine_rules import BrokenRule
from phalanx.testing.kube.kube_trials import run_kube_trial

#: Seeds that a plant may take until it is found.
WITHIN = 60


def bind_before_it_is_written_down(patch):
    """The first round of bindings goes out while nothing is on record."""
    fly = Binder.fly

    async def hurried(self, flight):
        await self._bind_open(flight, {})
        return await fly(self, flight)

    patch.setattr(Binder, "fly", hurried)


def bind_by_name_alone(patch):
    """Neither the uid nor the version of a pod goes with its binding."""
    call = ApiClient.call

    async def careless(self, method, path, tree=None, **more):
        if path.endswith("/binding"):
            kept = {key: value for key, value in tree["metadata"].items() if key not in ("uid", "resourceVersion")}
            tree = {**tree, "metadata": kept}
        return await call(self, method, path, tree, **more)

    patch.setattr(ApiClient, "call", careless)


def take_silence_for_a_no(patch):
    """A binding that nobody answered is taken for one that was refused."""
    call = ApiClient.call

    async def gloomy(self, method, path, tree=None, **more):
        try:
            return await call(self, method, path, tree, **more)
        except ApiSilentError as silent:
            if path.endswith("/binding"):
                raise ApiRefusedError(path, 400, "BadRequest", str(silent)) from silent
            raise

    patch.setattr(ApiClient, "call", gloomy)


def take_silence_for_a_yes(patch):
    """A binding that nobody answered is taken for one that was done."""
    call = ApiClient.call

    async def hopeful(self, method, path, tree=None, **more):
        try:
            return await call(self, method, path, tree, **more)
        except ApiSilentError:
            if path.endswith("/binding"):
                return b""
            raise

    patch.setattr(ApiClient, "call", hopeful)


def fence_nobody(patch):
    """Who begins to lead puts its epoch nowhere, and who led goes on."""

    async def trusting(self, epoch):
        self.epoch = epoch
        for place in self._places.values():
            await self._look(place)
            if not place.version:
                await self._claim(place)
        found = [(place, flight) for place in self._places.values() if (flight := read_intent(place.text)) is not None]
        for place, _ in found:
            place.is_taken = True
            await self._free.acquire()
        return found

    async def peek(self, berth):
        word = await self._read_back(berth, "")
        return word if word.fate is not BerthFate.UNKNOWN else Word(BerthFate.FREE)

    async def keep(self):
        await asyncio.sleep(1e6)

    patch.setattr(IntentShelf, "take_over", trusting)
    patch.setattr(Binder, "fence", peek)
    patch.setattr(Leadership, "is_good", lambda self: True)
    patch.setattr(Leadership, "keep", keep)


def begin_without_a_look(patch):
    """Who begins to lead does not ask what somebody before it may not have finished."""
    take_over = IntentShelf.take_over

    async def blind(self, epoch):
        for place, _ in await take_over(self, epoch):
            self.leave(place)
        return []

    patch.setattr(IntentShelf, "take_over", blind)


def forget_what_was_bound_meanwhile(patch):
    """Whoever makes bindings too old does not look whether they had come before."""
    fence = Binder.fence

    async def hasty(self, berth):
        word = await fence(self, berth)
        return Word(BerthFate.FREE) if word.fate is BerthFate.BOUND else word

    patch.setattr(Binder, "fence", hasty)


def ignore_that_a_watch_is_too_old(patch):
    """A watch that has lost the thread goes on as if nothing had been."""
    decode = reflector.decode_line

    def deaf(line, kind):
        seen = decode(line, kind)
        return replace(seen, type="BOOKMARK", resource_version="") if seen.type == "ERROR" else seen

    patch.setattr(reflector, "decode_line", deaf)


def remember_who_is_gone(patch):
    """A list that was asked for anew adds to what was seen, and takes nothing away."""

    def add_all(self, objects):
        for each in objects:
            self.note(each, deleted=False)
        self.is_synced = True
        self._on_sync()

    patch.setattr(KindSight, "replace_all", add_all)


def wait_for_ever(patch):
    """A gang may be half bound for as long as it likes."""
    judge = binder.judge
    patch.setattr(binder, "judge", lambda flight, words, now_s, short="": judge(flight, words, 0.0, ""))


def give_away_what_is_being_left(patch):
    """Room counts as free as soon as a pod is asked to go."""
    holds = mirror.holds_seat
    patch.setattr(mirror, "holds_seat", lambda pod: holds(pod) and pod.metadata.deletion_timestamp is None)


def see_only_our_own(patch):
    """What pods of other schedulers hold is not counted."""
    amounts = pod_readings.amounts_of
    patch.setattr(pod_readings, "amounts_of", lambda pod: amounts(pod) if pod.spec.scheduler_name == "phalanx" else {})


def leave_plans_lying(patch):
    """What has landed stays written down."""

    async def lazy(self):
        return

    patch.setattr(IntentShelf, "clear", lazy)


def take_back_nothing(patch):
    """A gang that cannot be completed is given up, and its pods stay where they are."""
    call = ApiClient.call

    async def idle(self, method, path, tree=None, **more):
        return b"" if path.endswith("/eviction") else await call(self, method, path, tree, **more)

    patch.setattr(ApiClient, "call", idle)


def keep_seats_of_the_dead(patch):
    """Pods that end give nothing back."""
    patch.setattr(KubePlanner, "lose_pod", lambda self, uid: None)


def evict_by_name(patch):
    """An eviction says nothing of which pod of that name is meant."""
    call = ApiClient.call

    async def careless(self, method, path, tree=None, **more):
        if path.endswith("/eviction"):
            tree = {**tree, "deleteOptions": {}}
        return await call(self, method, path, tree, **more)

    patch.setattr(ApiClient, "call", careless)


def write_down_less(patch):
    """The plan has all members but the last."""
    write = IntentShelf.write

    async def short(self, flight):
        return await write(self, replace(flight, berths=flight.berths[:-1]))

    patch.setattr(IntentShelf, "write", short)


#: Plant → the rules that may report it, and the seed to begin with.
PLANTS = {
    bind_before_it_is_written_down: ({"I16"}, 0),
    fence_nobody: ({"I17", "I16", "I2", "L4", "error"}, 0),
    see_only_our_own: ({"I2"}, 0),
    begin_without_a_look: ({"I5", "L2"}, 0),
    bind_by_name_alone: ({"I3", "I16"}, 0),
    take_silence_for_a_no: ({"I5", "L1", "L2", "I2"}, 75),
    take_silence_for_a_yes: ({"L1", "L2", "I12", "I5"}, 0),
    forget_what_was_bound_meanwhile: ({"I5", "L2"}, 0),
    ignore_that_a_watch_is_too_old: ({"I12", "I23", "L1"}, 0),
    remember_who_is_gone: ({"I12", "L1"}, 0),
    wait_for_ever: ({"I5", "L2", "I2"}, 0),
    give_away_what_is_being_left: ({"I2"}, 0),
    leave_plans_lying: ({"L2"}, 0),
    take_back_nothing: ({"I5", "L1", "L2"}, 0),
    keep_seats_of_the_dead: ({"L1", "error"}, 0),
    evict_by_name: ({"I16"}, 220),
    write_down_less: ({"I16"}, 0),
}


def find_broken(seed: int) -> BrokenRule | None:
    try:
        run_kube_trial(seed)
    except BrokenRule as broken:
        return broken
    return None


@pytest.mark.parametrize("plant", rest_long(PLANTS, short=3), ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(monkeypatch, plant):
    rules, first = PLANTS[plant]
    plant(monkeypatch)
    found = next(filter(None, map(find_broken, range(first, first + WITHIN))), None)
    assert found is not None, f"{plant.__doc__} Not found by {WITHIN} seeds."
    assert found.rule in rules, f"found something else: {found}"
