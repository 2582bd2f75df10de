"""Driver and GPUs, and who is on them."""

from __future__ import annotations

import re
from collections import Counter

from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings
from phalanx.frontends.host.stranger_watch import Rules, StrangerWatch, find_strangers


def check_driver(around: Surroundings) -> list[Diagnosis]:
    """Whether the driver answers, and which it is."""
    devices = around.devices
    if devices.fake:
        return [Diagnosis("driver", "ok", f"{len(devices.list())} fake GPUs; no driver is needed")]
    kernel = re.search(r"Kernel Module(?: for \S+)?\s+(\S+)", around.text("proc/driver/nvidia/version"))
    if devices.list():
        found = [Diagnosis("driver", "ok", f"NVIDIA driver {devices.driver or 'of unknown version'}")]
        if devices.problem:
            found.append(Diagnosis("driver", "warn", devices.problem, "see: nvidia-smi; dmesg | grep -i xid"))
        return found
    if kernel:
        message = f"the kernel has NVIDIA driver {kernel[1]}, but: {devices.problem}"
        return [Diagnosis("driver", "fail", message, "see: nvidia-smi; after a driver update restart the machine")]
    return [Diagnosis("driver", "warn", devices.problem, "to try without GPUs: phalanx up --fake-gpus 8")]


def check_gpus(around: Surroundings) -> list[Diagnosis]:
    """Which GPUs there are, and which of them somebody else uses."""
    listed = around.devices.list()
    if not listed:
        return []
    models = Counter(device.model for device in listed)
    names = ", ".join(f"{count} × {model}" for model, count in models.items())
    islands = len({device.island for device in listed})
    found = [Diagnosis("gpus", "ok", f"{names} in {islands} island{'s' if islands > 1 else ''}")]
    rules = Rules(around.settings.display_processes, around.settings.small_use_bytes)
    watch = find_strangers(
        around.devices.read(),
        range(len(listed)),
        lambda _, pid: _is_ours(around, pid),
        before=StrangerWatch(),
        rules=rules,
    )
    for index, stranger in sorted(watch.held.items()):
        fix = "it counts as busy until that has ended"
        if stranger.pids:
            fix += f": ps -fp {','.join(str(pid) for pid in stranger.pids)}"
        found.append(Diagnosis("gpus", "warn", f"GPU {index}: {stranger.message}", fix))
    for index in sorted(watch.gone):
        fix = f"sudo nvidia-smi -r -i {listed[index].uuid}; if that fails restart the machine"
        found.append(Diagnosis("gpus", "fail", f"GPU {index} ({listed[index].uuid}) is off the bus", fix))
    return found


def _is_ours(around: Surroundings, pid: int) -> bool:
    """Members carry the number of their job; of other people's processes only root can see that."""
    return "\0PHALANX_JOB=" in "\0" + around.text(f"proc/{pid}/environ")
