"""The GPUs of this machine: NVIDIA's through NVML, or made-up ones.

A device that cannot be asked who uses it is left out of `read()`: nobody may take it for idle. One that
is gone stays in the list, so that the numbers of the others do not move, and is read as not present.
AMD's and Intel's GPUs are out of scope; `problem` says so where they are seen.
"""

from __future__ import annotations

from phalanx.frontends.host.devices.absent import NoDevices
from phalanx.frontends.host.devices.fake import FakeDevices
from phalanx.frontends.host.devices.nvml import NvmlDevices, open_nvml

__all__ = ["FakeDevices", "Inventory", "NoDevices", "NvmlDevices", "open_devices"]

#: Each is a `ports.Devices` with a `problem`: "" or what somebody should know of the GPUs.
Inventory = FakeDevices | NvmlDevices | NoDevices


def open_devices(fake: int | None) -> Inventory:
    """So many made-up GPUs, or with None the real ones; a machine without any has an empty inventory."""
    return open_nvml() if fake is None else FakeDevices(fake)
