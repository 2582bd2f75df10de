"""The daemon's clock: no step of the wall clock moves it, and a reboot does not set it back."""

from __future__ import annotations

import time

import pytest

from phalanx.frontends.host import clock as module
from phalanx.frontends.host.clock import ClockMark, HostClock

DAY_US = 86_400_000_000


@pytest.fixture
def machine(monkeypatch):
    """A machine whose clocks are set by hand: boottime and wall, in microseconds, and the boot."""

    class Machine:
        boottime_us, wall_us = 5_000_000, 1_700_000_000_000_000

        def boot(self, name: str) -> None:
            monkeypatch.setenv("PHALANX_BOOT_ID", name)

    made = Machine()
    monkeypatch.setattr(module, "read_boottime_us", lambda: made.boottime_us)
    monkeypatch.setattr(time, "time_ns", lambda: made.wall_us * 1000)
    made.boot("first")
    return made


def test_it_begins_at_nothing_and_counts_what_the_machine_counts(machine):
    clock = HostClock()
    assert clock.now_us() == 0
    machine.boottime_us += 7
    assert clock.now_us() == 7


@pytest.mark.parametrize("step_us", [DAY_US, -DAY_US])
def test_a_step_of_the_wall_clock_moves_nothing(machine, step_us):
    clock = HostClock()
    machine.boottime_us += 1000
    machine.wall_us += step_us
    assert clock.now_us() == 1000
    assert HostClock(clock.mark()).now_us() == 1000, "nor a daemon that starts after it"


def test_a_later_daemon_of_the_same_boot_goes_on_exactly(machine):
    mark = HostClock().mark()
    machine.boottime_us += 3_000_000
    machine.wall_us -= DAY_US
    assert HostClock(mark).now_us() == 3_000_000


def test_after_a_reboot_it_goes_on_by_the_time_that_the_machine_was_off(machine):
    first = HostClock()
    machine.boottime_us += 10_000_000
    mark = first.mark()
    machine.boot("second")
    machine.boottime_us = 1_000_000
    machine.wall_us += 60_000_000
    assert HostClock(mark).now_us() == 10_000_000 + 60_000_000


def test_a_wall_clock_that_went_back_over_a_reboot_does_not_take_it_back(machine):
    first = HostClock()
    machine.boottime_us += 10_000_000
    mark = first.mark()
    machine.boot("second")
    machine.boottime_us = 1_000_000
    machine.wall_us -= DAY_US
    assert HostClock(mark).now_us() == 10_000_000


def test_a_mark_says_all_that_the_next_one_needs(machine):
    machine.boottime_us += 4
    assert HostClock(ClockMark(100, "first", machine.boottime_us, 0)).mark() == ClockMark(
        100, "first", machine.boottime_us, machine.wall_us
    )
