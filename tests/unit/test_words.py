"""Lengths of time, instants, expected starts and amounts: the words of the daemon and of its commands."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from phalanx import words
from phalanx.cli.host import text

#: 10 November 2026, 09:00 UTC.
WALL = 1_794_301_200.0


@pytest.fixture(autouse=True)
def at_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (90, "1m30s"),
        (600, "10m"),
        (2490, "41m"),
        (3600, "1h"),
        (3900, "1h05m"),
        (86_400, "1d"),
        (266_400, "3d02h"),
        (-5, "0s"),
    ],
)
def test_lengths_of_time(seconds, text):
    assert words.span(seconds) == text


@pytest.mark.parametrize(
    ("indices", "text"),
    [([], ""), ([3], "gpu 3"), ([0, 1, 2, 3], "gpu 0-3"), ([6, 0, 1, 3], "gpu 0-1,3,6"), ([2, 2], "gpu 2")],
)
def test_devices(indices, text):
    assert words.devices_text(indices) == text


@pytest.mark.parametrize(
    ("now_wall", "shown"),
    [
        (WALL - 60, "09:00"),
        (WALL - 86_400, "Tue 09:00"),
        (WALL - 30 * 86_400, "10 Nov 09:00"),
        (WALL - 400 * 86_400, "2026-11-10 09:00"),
    ],
)
def test_instants_have_their_day_unless_it_is_today(now_wall, shown):
    assert words.moment(WALL, now_wall) == shown


def test_an_instant_that_came_through_two_clocks_is_the_one_that_was_asked_for():
    # 18:30 asked for, and a thousandth lost on the way to the cluster's clock and back.
    assert words.moment(WALL - 0.001, WALL) == "09:00"
    assert words.exact(WALL - 0.001, WALL) == "09:00:00"
    assert words.stamp(WALL - 0.001) == "2026-11-10T09:00:00+00:00"


@pytest.mark.parametrize(
    ("at_s", "low_s", "high_s", "shown"),
    [
        (0, 0, 0, "any moment"),
        (0, 0, 40, "any moment (80%: 0s - 40s)"),
        (40, 20, 120, "in about 40s (80%: 20s - 2m)"),
        (40, 40, 40, "in about 40s"),
        (40, None, None, "in about 40s"),
        (540, 60, 7200, "in about 9m (80%: 1m - 2h)"),
        (3600, 1800, 7200, "about 10:00 (80%: 09:30 - 11:00)"),
        (86_400, 1800, 8 * 86_400, "about Wed 09:00 (80%: 09:30 - 18 Nov 09:00)"),
    ],
)
def test_expected_starts(at_s, low_s, high_s, shown):
    low, high = (None if end is None else WALL + end for end in (low_s, high_s))
    assert words.start_text(WALL + at_s, low, high, WALL) == shown
    assert words.start_text(WALL + at_s, low, high, WALL, predicted=True) == f"{shown}, from earlier runs"


@pytest.mark.parametrize(
    ("value", "shown"), [(1 << 40, "1Ti"), (3 << 29, "1.5Gi"), (512 << 20, "512Mi"), (2048, "2Ki"), (12, "12")]
)
def test_memory(value, shown):
    assert words.size_text(value) == text.gibibytes(value) == shown


def test_the_daemon_and_its_commands_say_the_same(monkeypatch):
    monkeypatch.setattr(text, "now", lambda: datetime.fromtimestamp(WALL, UTC))
    for at_s, low_s, high_s in ((40, 20, 700), (5000, 100, 90_000), (0, 0, 0)):
        eta = {"at": words.stamp(WALL + at_s), "low": words.stamp(WALL + low_s), "high": words.stamp(WALL + high_s)}
        assert text.start_text(eta) == words.start_text(WALL + at_s, WALL + low_s, WALL + high_s, WALL)
        assert text.moment(eta["high"]) == words.moment(WALL + high_s, WALL)
    assert text.span is words.span
