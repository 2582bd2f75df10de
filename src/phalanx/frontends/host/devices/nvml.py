"""NVIDIA's GPUs through NVML.

Each device is asked on its own, so that one that fell off the bus takes nobody with it. Calls into the
driver can take long when a GPU is sick; call `read` from a thread.

A GPU that was cut into slices (MIG) is not listed, its slices are. Slices of one GPU cannot talk to each
other directly; they are an island because they hang on one bus.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from phalanx.frontends.host.devices.absent import NoDevices
from phalanx.frontends.host.devices.islands import find_islands
from phalanx.frontends.host.devices.owners import read_owner
from phalanx.frontends.host.ports import Device, DeviceReading, Use

Who = Callable[[int], tuple[str, str]]  # user and name of a process

# Codes of NVML, by number: they are part of its interface, and old versions of the package lack some names.
_UNINITIALIZED, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND = 1, 2, 3, 4, 6
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND, _GPU_IS_LOST, _RESET_REQUIRED = 9, 12, 13, 15, 16
_MISMATCH, _VERSION_MISMATCH, _GPU_NOT_FOUND = 18, 25, 28

#: The device is not there, or useless until somebody resets it.
_GONE: Final = frozenset({_NOT_FOUND, _GPU_IS_LOST, _RESET_REQUIRED, _GPU_NOT_FOUND})
#: This driver does not tell, now or ever: no reason to think ill of the device.
_UNTOLD: Final = frozenset({_NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND, _VERSION_MISMATCH})
#: The driver was taken out from under us, as an update does.
_DOWN: Final = frozenset({_UNINITIALIZED, _DRIVER_NOT_LOADED})

_PROBLEMS: Final[Mapping[int, str]] = {
    _LIBRARY_NOT_FOUND: "there is no NVIDIA driver here (libnvidia-ml.so.1 was not found)",
    _DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded; try: sudo modprobe nvidia",
    _MISMATCH: "the NVIDIA driver was updated and the old one is still loaded; restart the machine",
    _NO_PERMISSION: "this user may not use the NVIDIA driver; look at: ls -l /dev/nvidiactl",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """A GPU, or a slice of one, as the driver shows it."""

    handle: Any
    uuid: str
    model: str
    memory_bytes: int
    numa: int
    slice_of: int | None = None  # the number of the GPU that it was cut from


class NvmlDevices:
    """The GPUs that were there at the start; later ones come with the next start of the daemon."""

    fake: Final = False

    def __init__(self, nvml: Any, found: Sequence[tuple[_Found, str]], problem: str, who: Who) -> None:
        """`found`: GPUs and their islands, in the order of their numbers."""
        self.problem: Final = problem
        self.driver: Final = _text(_ask(nvml, nvml.nvmlSystemGetDriverVersion) or "")
        self._nvml, self._who = nvml, who
        self._down = False
        self._handles = [one.handle for one, _ in found]
        self._devices: Final = tuple(
            Device(index, one.uuid, one.model, one.memory_bytes, island) for index, (one, island) in enumerate(found)
        )

    def list(self) -> Sequence[Device]:
        """All of them, also those that are gone by now."""
        return self._devices

    def read(self) -> Mapping[int, DeviceReading]:
        """Who uses what; who cannot be asked is left out."""
        if self._down:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlInit()
                self._down = False
        readings = {device.index: self._read_one(device) for device in self._devices}
        return {index: reading for index, reading in readings.items() if reading is not None}

    def close(self) -> None:
        """Let go of the driver."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _read_one(self, device: Device) -> DeviceReading | None:
        try:
            return self._reading(device.index)
        except self._nvml.NVMLError as bad:
            code = bad.value
        if code in _DOWN:
            self._down = True
            return None
        if code not in _GONE and code != _INVALID_ARGUMENT:
            return None
        # A handle is stale after a reset, or when slices were cut anew; the name of the device is not.
        try:
            self._handles[device.index] = self._nvml.nvmlDeviceGetHandleByUUID(device.uuid)
            return self._reading(device.index)
        except self._nvml.NVMLError as bad:
            return DeviceReading(present=False) if bad.value in _GONE else None

    def _reading(self, index: int) -> DeviceReading | None:
        nvml, handle = self._nvml, self._handles[index]
        memory = _read_memory(nvml, handle)
        uses = self._uses(handle)
        if uses is None and memory is None:
            return None
        rates = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
        # Where the driver lists no processes (some virtual machines), memory in use is the only recorder left.
        return DeviceReading(
            uses=uses or (),
            utilization=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
        )

    def _uses(self, handle: Any) -> tuple[Use, ...] | None:
        """The processes, each once; None where the driver does not tell."""
        nvml = self._nvml
        computing = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        drawing = _ask(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses, handle)
        if computing is None and drawing is None:
            return None
        bytes_by_pid: dict[int, int] = {}
        for process in (*(computing or ()), *(drawing or ())):
            known = bytes_by_pid.get(process.pid, 0)
            bytes_by_pid[process.pid] = max(known, process.usedGpuMemory or 0)
        return tuple(self._use(pid, used) for pid, used in sorted(bytes_by_pid.items()))

    def _use(self, pid: int, used: int) -> Use:
        user, name = self._who(pid)
        return Use(pid, user, used, name)


def open_nvml(nvml: Any = None, *, sysfs: Path = Path("/sys"), who: Who = read_owner) -> NvmlDevices | NoDevices:
    """The GPUs of the driver, or none and why."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return NoDevices("the Python package nvidia-ml-py is missing; install it to use NVIDIA's GPUs")
    try:
        nvml.nvmlInit()
        found, problems = _find_all(nvml, sysfs)
    except nvml.NVMLError as bad:
        return NoDevices(_PROBLEMS.get(bad.value, f"the NVIDIA driver does not answer: {bad}") + _others())
    if not found:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        return NoDevices(("; ".join(problems) or "the NVIDIA driver is loaded and knows no GPU") + _others())
    return NvmlDevices(nvml, _in_islands(nvml, found), "; ".join(problems), who)


def _others() -> str:
    return "; AMD GPUs are here and not supported" if Path("/dev/kfd").exists() else ""


# ---------------------------------------------------------------------- what there is


def _find_all(nvml: Any, sysfs: Path) -> tuple[list[_Found], list[str]]:
    found: list[_Found] = []
    problems: list[str] = []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            parts = list(_find_parts(nvml, handle, number, sysfs))
        except nvml.NVMLError as bad:
            problems.append(f"GPU {number} does not answer and is left out ({bad}); nvidia-smi -q -i {number}")
            continue
        if not parts:
            problems.append(f"GPU {number} is in MIG mode and has no slices; cut some with: sudo nvidia-smi mig")
        found += parts
    return found, problems


def _find_parts(nvml: Any, handle: Any, number: int, sysfs: Path) -> Iterator[_Found]:
    """The GPU itself, or its slices."""
    numa = _read_numa(nvml, handle, sysfs)
    mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        yield _describe(nvml, handle, numa, None)
        return
    for at in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at)
        except nvml.NVMLError as bad:
            if bad.value not in (_NOT_FOUND, _INVALID_ARGUMENT):
                raise
            continue  # places for slices are numbered, and not all are taken
        yield _describe(nvml, part, numa, number)


def _describe(nvml: Any, handle: Any, numa: int, slice_of: int | None) -> _Found:
    memory = _read_memory(nvml, handle)
    return _Found(
        handle=handle,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=0 if memory is None else int(memory.total),
        numa=numa,
        slice_of=slice_of,
    )


def _read_memory(nvml: Any, handle: Any) -> Any:
    """Version 2 does not count what the driver keeps for itself as used."""
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None))
    return memory if memory is not None else _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)


def _read_numa(nvml: Any, handle: Any, sysfs: Path) -> int:
    """The NUMA node of the GPU's place on the bus; -1 where nobody knows."""
    place = _ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    if place is None:
        return -1
    # NVML writes eight digits of domain in capitals, the kernel four in small letters.
    bus = _text(place.busId).lower()[-12:]
    try:
        return int((sysfs / "bus/pci/devices" / bus / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1


# ---------------------------------------------------------------------- what is close to what


def _in_islands(nvml: Any, found: Sequence[_Found]) -> list[tuple[_Found, str]]:
    """Islands together, near ones near, so that neighbours in number are neighbours on the bus."""

    def linked(one: int, other: int) -> bool:
        # Also where both hang on switches: the driver knows what can reach what over NVLink.
        ask, index = nvml.nvmlDeviceGetP2PStatus, nvml.NVML_P2P_CAPS_INDEX_NVLINK
        return bool(_quietly(nvml, ask, found[one].handle, found[other].handle, index) == nvml.NVML_P2P_STATUS_OK)

    def beside(one: int, other: int) -> bool:
        ask = nvml.nvmlDeviceGetTopologyCommonAncestor
        level = _quietly(nvml, ask, found[one].handle, found[other].handle)
        return found[one].numa == found[other].numa if level is None else bool(level <= nvml.NVML_TOPOLOGY_NODE)

    whole = [at for at, one in enumerate(found) if one.slice_of is None]
    cut = [at for at, one in enumerate(found) if one.slice_of is not None]
    by_link = [island for island in find_islands(whole, linked) if len(island) > 1]
    alone = [at for at in whole if all(at not in island for island in by_link)]
    groups = [
        *(("nvlink", island) for island in by_link),
        *(("numa", island) for island in find_islands(alone, beside)),
        *(("mig", island) for island in find_islands(cut, lambda a, b: found[a].slice_of == found[b].slice_of)),
    ]
    groups.sort(key=lambda group: (found[group[1][0]].numa, group[1]))
    counts: dict[str, int] = {}
    ordered = []
    for kind, island in groups:
        name = f"{kind}{counts.setdefault(kind, 0)}"
        counts[kind] += 1
        ordered += [(found[at], name) for at in island]
    return ordered


# ---------------------------------------------------------------------- asking


def _ask(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where this driver does not tell."""
    try:
        return call(*arguments)
    except nvml.NVMLError as bad:
        if bad.value in _UNTOLD:
            return None
        raise


def _quietly(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None for whatever reason: closeness is a preference, nothing hangs on it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
