"""Made-up GPUs, for machines without any and for tests.

`PHALANX_FAKE_USES` names a JSON file that is read anew each time, so that a test can plant what happens
on real machines:

    {"0": [{"pid": 4711, "user": "bob", "memory_bytes": 1073741824, "name": "python"}],
     "gone": [3], "unreadable": [2]}

A file that is there and cannot be understood makes every device unreadable, as a sick driver would.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from phalanx.control.spec.errors import BadInput
from phalanx.frontends.host.ports import Device, DeviceReading, Use

USES_VARIABLE: Final = "PHALANX_FAKE_USES"
MODEL: Final = "Fake GPU"

_COUNT_MAX: Final = 1024
_MEMORY_BYTES: Final = 80 << 30
#: The usual box of eight has two halves; a box of four is one.
_ISLAND_MAX: Final = 4


class FakeDevices:
    """So many GPUs that exist in name only."""

    fake: Final = True
    problem: Final = ""
    driver: Final = "none"

    def __init__(self, count: int) -> None:
        """Two islands where there are more than four."""
        if not 1 <= count <= _COUNT_MAX:
            raise BadInput(f"there can be 1 to {_COUNT_MAX:,} fake GPUs (got {count}); write --fake-gpus 8")
        half = -(-count // 2) if count > _ISLAND_MAX else count
        self._devices: Final = tuple(
            Device(index, f"GPU-fake-{index}", MODEL, _MEMORY_BYTES, f"fake{index // half}") for index in range(count)
        )

    def list(self) -> Sequence[Device]:
        """All of them."""
        return self._devices

    def read(self) -> Mapping[int, DeviceReading]:
        """Idle, but for what the file says."""
        path = os.environ.get(USES_VARIABLE)
        try:
            planted = _read_planted(Path(path)) if path else {}
        except (OSError, msgspec.MsgspecError):
            return {}
        unreadable = set(planted.get("unreadable", ()))
        gone = set(planted.get("gone", ()))
        return {
            device.index: _reading(planted.get(str(device.index), ()), present=device.index not in gone)
            for device in self._devices
            if device.index not in unreadable
        }

    def close(self) -> None:
        """Nothing to let go of."""


def _read_planted(path: Path) -> dict[str, list[Any]]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    planted = msgspec.json.decode(text, type=dict[str, list[Any]])
    return {
        key: value if key in ("gone", "unreadable") else msgspec.convert(value, list[Use])
        for key, value in planted.items()
    }


def _reading(uses: Sequence[Use], *, present: bool) -> DeviceReading:
    if not present:
        return DeviceReading(present=False)
    return DeviceReading(tuple(uses), 1.0 if uses else 0.0, sum(use.memory_bytes for use in uses))
