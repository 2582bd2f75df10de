"""A driver made of Python, in place of the package that talks to the real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

GIB = 1 << 30


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


@dataclass
class Gpu:
    """One GPU, or one slice."""

    uuid: str
    name: str = "NVIDIA H200"
    total: int = 140 * GIB
    used: int = 0
    bus: str = "00000000:01:00.0"
    compute: list = field(default_factory=list)  # (pid, bytes)
    graphics: list = field(default_factory=list)
    utilization: int | None = 0
    slices: list | None = None  # a list, of slices and empty places: the GPU is in MIG mode
    error: int | None = None  # every call about it fails with this
    processes_error: int | None = None
    memory_error: int | None = None


class Driver:
    """The functions of NVML that we use, over GPUs that a test can change at any time."""

    NVMLError = NVMLError
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0
    NVML_TOPOLOGY_NODE = 40
    nvmlMemory_v2 = 0x02000028  # noqa: N815 - NVIDIA's name

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = list(gpus)
        self.init_error: int | None = None
        self.links: set[frozenset[str]] = set()
        self.ancestors: dict[frozenset[str], int] = {}
        self.ancestor_default: int | None = 50
        self.inits = 0
        self.open = False
        self.stale: set[int] = set()  # identities of handles that are no longer good

    def nvmlInit(self):  # noqa: N802 - and so on
        if self.init_error is not None:
            raise NVMLError(self.init_error)
        self.inits += 1
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return b"580.65.06"

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        gpu = self.gpus[index]
        if gpu.error is not None:
            raise NVMLError(gpu.error)
        return SimpleNamespace(gpu=gpu)

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        parts = [part for gpu in self.gpus for part in (gpu, *(gpu.slices or ())) if part is not None]
        found = next((part for part in parts if part.uuid == uuid), None)
        if found is None:
            raise NVMLError(6)
        return SimpleNamespace(gpu=found)

    def _gpu(self, handle) -> Gpu:
        if not self.open:
            raise NVMLError(1)
        if id(handle) in self.stale:
            raise NVMLError(2)
        if handle.gpu.error is not None:
            raise NVMLError(handle.gpu.error)
        return handle.gpu

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return self._gpu(handle).uuid

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return self._gpu(handle).name.encode()

    def nvmlDeviceGetPciInfo(self, handle):  # noqa: N802
        return SimpleNamespace(busId=self._gpu(handle).bus.encode())

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):  # noqa: N802
        gpu = self._gpu(handle)
        if gpu.memory_error is not None:
            raise NVMLError(gpu.memory_error)
        reserved = 0 if version else GIB // 2
        return SimpleNamespace(total=gpu.total, used=gpu.used + reserved)

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        gpu = self._gpu(handle)
        if gpu.utilization is None:
            raise NVMLError(3)
        return SimpleNamespace(gpu=gpu.utilization)

    def _processes(self, handle, kind):
        gpu = self._gpu(handle)
        if gpu.processes_error is not None:
            raise NVMLError(gpu.processes_error)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in getattr(gpu, kind)]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return self._processes(handle, "compute")

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle):  # noqa: N802
        return self._processes(handle, "graphics")

    def nvmlDeviceGetMigMode(self, device):  # noqa: N802
        gpu = self._gpu(device)
        if gpu.name == "NVIDIA GeForce RTX 4090":
            raise NVMLError(3)
        return [int(gpu.slices is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, device):  # noqa: N802
        return len(self._gpu(device).slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device, index):  # noqa: N802
        part = self._gpu(device).slices[index]
        if part is None:
            raise NVMLError(6)
        return SimpleNamespace(gpu=part)

    def nvmlDeviceGetP2PStatus(self, device1, device2, p2pIndex):  # noqa: N802, N803
        assert p2pIndex == self.NVML_P2P_CAPS_INDEX_NVLINK
        pair = frozenset({self._gpu(device1).uuid, self._gpu(device2).uuid})
        return 0 if pair in self.links else 5

    def nvmlDeviceGetTopologyCommonAncestor(self, device1, device2):  # noqa: N802
        pair = frozenset({self._gpu(device1).uuid, self._gpu(device2).uuid})
        level = self.ancestors.get(pair, self.ancestor_default)
        if level is None:
            raise NVMLError(3)
        return level


@pytest.fixture
def make_driver():
    """A driver over some GPUs."""
    return Driver


@pytest.fixture
def make_gpu():
    return Gpu
