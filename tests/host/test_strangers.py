"""Who uses a device without having got it from us."""

from __future__ import annotations

import pytest

from phalanx.frontends.host.ports import DeviceReading, Use
from phalanx.frontends.host.stranger_watch import Rules, StrangerWatch, find_strangers

GIB = 1 << 30
IDLE = DeviceReading((), 0.0, 0)
GONE = DeviceReading(present=False)


def used(*uses: tuple[int, str, int, str]) -> DeviceReading:
    return DeviceReading(tuple(Use(*use) for use in uses), 0.5, sum(use[2] for use in uses))


def nobody(device, pid):
    return False


BOB = used((7, "bob", 3 * GIB, "python"))


def test_a_strangers_process_holds_the_device_and_is_named():
    watch = find_strangers({0: BOB, 1: IDLE}, range(2), nobody)
    assert list(watch.held) == [0]
    held = watch.held[0]
    assert (held.kind, held.user, held.pids, held.message) == ("process", "bob", (7,), "python (pid 7) of bob")


def test_the_largest_of_several_is_named_and_all_are_counted():
    watch = find_strangers({0: used((9, "bob", 1, "a"), (3, "eve", 2 * GIB, "b"))}, [0], nobody)
    assert (watch.held[0].user, watch.held[0].pids) == ("eve", (3, 9))
    assert watch.held[0].message == "b (pid 3) of eve and 1 more"


def test_our_own_processes_are_no_strangers_where_they_belong():
    def ours(device, pid):
        return (device, pid) == (0, 7)

    watch = find_strangers({0: BOB, 1: BOB}, range(2), ours, given=[0])
    assert list(watch.held) == [1]  # a job of ours on a device it did not get


def test_idle_once_is_not_free_idle_twice_is():
    watch = find_strangers({0: BOB}, [0], nobody)
    watch = find_strangers({0: IDLE}, [0], nobody, before=watch)
    assert (watch.held[0].kind, watch.held[0].user) == ("leaving", "bob")
    watch = find_strangers({0: IDLE}, [0], nobody, before=watch)
    assert watch.held == {}


def test_a_device_that_we_have_given_away_waits_for_nobody():
    watch = find_strangers({0: BOB}, [0], nobody)
    assert find_strangers({0: IDLE}, [0], nobody, given=[0], before=watch).held == {}


def test_a_stranger_who_comes_back_in_between_starts_the_count_anew():
    watch = StrangerWatch()
    for reading in (BOB, IDLE, BOB, IDLE):
        watch = find_strangers({0: reading}, [0], nobody, before=watch)
    assert watch.held[0].kind == "leaving"


@pytest.mark.parametrize("before", [StrangerWatch(), find_strangers({0: BOB}, [0], nobody)])
def test_what_cannot_be_read_is_busy(before):
    watch = find_strangers({}, [0], nobody, before=before)
    assert watch.held[0].kind == "unreadable"
    watch = find_strangers({0: IDLE}, [0], nobody, before=watch)
    assert watch.held[0].kind == "leaving"


def test_unreadable_devices_of_our_own_runs_accuse_nobody():
    assert find_strangers({}, [0], nobody, given=[0]).held == {}


def test_memory_without_a_process_is_somebody_in_another_container():
    reading = DeviceReading((), 0.0, 40 * GIB)
    watch = find_strangers({0: reading}, [0], nobody)
    assert (watch.held[0].kind, watch.held[0].user) == ("memory", "")
    assert "40.0 GiB" in watch.held[0].message
    assert find_strangers({0: reading}, [0], nobody, given=[0]).held == {}
    assert find_strangers({0: reading}, [0], nobody, rules=Rules(small_bytes=0)).held == {}
    assert find_strangers({0: DeviceReading((), 0.0, GIB)}, [0], nobody).held == {}
    assert find_strangers({0: DeviceReading((), None, None)}, [0], nobody).held == {}


def test_a_screen_is_no_stranger_unless_it_is_large():
    assert find_strangers({0: used((1, "root", GIB // 4, "Xorg"))}, [0], nobody).held == {}
    assert 0 in find_strangers({0: used((1, "eve", 20 * GIB, "Xorg"))}, [0], nobody).held
    assert 0 in find_strangers({0: used((1, "root", GIB // 4, "Xorg"))}, [0], nobody, rules=Rules(display=())).held


def test_a_device_off_the_bus_is_gone_and_comes_back_as_carefully_as_any():
    watch = find_strangers({0: GONE, 1: IDLE}, range(2), nobody)
    assert (watch.gone, watch.held) == ({0}, {})
    watch = find_strangers({0: IDLE, 1: IDLE}, range(2), nobody, before=watch)
    assert (watch.gone, list(watch.held)) == (frozenset(), [0])
    assert find_strangers({0: IDLE, 1: IDLE}, range(2), nobody, before=watch).held == {}
