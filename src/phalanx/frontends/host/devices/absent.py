"""A machine without GPUs that we can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.frontends.host.ports import Device, DeviceReading


class NoDevices:
    """An empty inventory that says why it is empty."""

    fake: Final = False
    driver: Final = ""

    def __init__(self, problem: str) -> None:
        """`problem` is a sentence for people."""
        self.problem: Final = problem

    def list(self) -> Sequence[Device]:
        """Nothing."""
        return ()

    def read(self) -> Mapping[int, DeviceReading]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing to let go of."""
