"""Made-up GPUs, and what a test can plant on them."""

from __future__ import annotations

import json

import pytest

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.host.devices import open_devices
from phalanx.frontends.host.ports import DeviceReading, Use


@pytest.fixture
def plant(tmp_path, monkeypatch):
    path = tmp_path / "uses.json"
    monkeypatch.setenv("PHALANX_FAKE_USES", str(path))
    return lambda value: path.write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.mark.parametrize(
    ("count", "islands"),
    [(1, [1]), (4, [4]), (5, [3, 2]), (8, [4, 4])],
)
def test_more_than_four_come_in_two_islands(count, islands):
    found = open_devices(count)
    names = [device.island for device in found.list()]
    assert [names.count(name) for name in dict.fromkeys(names)] == islands
    assert names == sorted(names)
    assert [device.uuid for device in found.list()] == [f"GPU-fake-{n}" for n in range(count)]
    assert found.fake


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_senseless_number_is_refused(count):
    with pytest.raises(BadInput, match="1 to 1,024"):
        open_devices(count)


def test_unless_told_otherwise_all_are_idle(monkeypatch):
    monkeypatch.delenv("PHALANX_FAKE_USES", raising=False)
    assert set(open_devices(2).read().values()) == {DeviceReading((), 0.0, 0)}


def test_what_is_planted_is_read_each_time(plant):
    found = open_devices(4)
    assert all(not reading.uses for reading in found.read().values())  # no file yet
    plant({"1": [{"pid": 7, "user": "bob", "memory_bytes": 5, "name": "python"}], "gone": [3], "unreadable": [2]})
    assert found.read() == {
        0: DeviceReading((), 0.0, 0),
        1: DeviceReading((Use(7, "bob", 5, "python"),), 1.0, 5),
        3: DeviceReading(present=False),
    }
    plant({})
    assert all(reading.present and not reading.uses for reading in found.read().values())
    assert len(found.read()) == 4


@pytest.mark.parametrize("text", ['{"0": [', "[]", '{"0": [{"pid": "x"}]}'])
def test_a_file_that_makes_no_sense_makes_nothing_readable(plant, text):
    plant(text)
    assert open_devices(2).read() == {}
