"""The Python of the user's jobs, and others who give this machine's GPUs away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any, Final

from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings

#: Importing torch from a cold disk takes its time.
_PYTHON_LIMIT_S: Final = 90.0

_ASK: Final = """
import importlib.util, json, platform
told = {"python": platform.python_version()}
if importlib.util.find_spec("torch"):
    try:
        import torch
        told["torch"], told["cuda"] = torch.__version__, torch.version.cuda
        told["nccl"] = bool(torch.distributed.is_available() and torch.distributed.is_nccl_available())
    except Exception as bad:
        told["broken"] = f"{type(bad).__name__}: {bad}"[:300]
print(json.dumps(told))
"""

SCHEDULERS: Final[Mapping[str, str]] = {
    "slurmd": "Slurm",
    "slurmctld": "Slurm",
    "pbs_mom": "PBS",
    "sge_execd": "Grid Engine",
    "sbatchd": "LSF",
    "condor_startd": "HTCondor",
    "flux-broker": "Flux",
    "kubelet": "Kubernetes",
    "k3s-server": "Kubernetes (k3s)",
    "nomad": "Nomad",
    "pueued": "pueue",
    "tsp": "task-spooler",
    "gflowd": "gflow",
    "raylet": "Ray",
    "dstack-shim": "dstack",
}


def check_python(around: Surroundings) -> list[Diagnosis]:
    """What a job that says `python train.py` would get."""
    path = around.env.get("PATH", "")
    python = shutil.which("python", path=path) or shutil.which("python3", path=path)
    if python is None:
        return [Diagnosis("python", "warn", "there is no python on the PATH", "activate your environment, then submit")]
    printed = around.run([python, "-c", _ASK], _PYTHON_LIMIT_S)
    told = _understand(printed)
    if told is None:
        message = f"{python} does not answer within {_PYTHON_LIMIT_S:.0f} s, or fails"
        return [Diagnosis("python", "warn", message, f"try: {python} -c 'import torch'")]
    named = f"{python} {told.get('python')}"
    if "broken" in told:
        fix = f"repair it: {python} -m pip install --force-reinstall torch"
        return [Diagnosis("python", "warn", f"{named}: torch is there and cannot be imported: {told['broken']}", fix)]
    if "torch" not in told:
        return [Diagnosis("python", "ok", f"{named}, without torch")]
    return [_judge_torch(around, named, told)]


def _judge_torch(around: Surroundings, named: str, told: Mapping[str, Any]) -> Diagnosis:
    named += f", torch {told['torch']}"
    if around.devices.list() and not around.devices.fake:
        if not told.get("cuda"):
            return Diagnosis("python", "warn", f"{named} is built without CUDA", "install a build of torch with CUDA")
        if not told.get("nccl"):
            return Diagnosis("python", "warn", f"{named} has no NCCL", "install a build of torch with NCCL")
    return Diagnosis("python", "ok", f"{named}, CUDA {told.get('cuda')}, NCCL {'yes' if told.get('nccl') else 'no'}")


def _understand(printed: str | None) -> dict[str, Any] | None:
    try:
        told = json.loads((printed or "").strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return told if isinstance(told, dict) else None


def check_schedulers(around: Surroundings) -> list[Diagnosis]:
    """Who else starts jobs here."""
    pids: dict[str, list[int]] = {}
    for process in around.processes():
        if process.name in SCHEDULERS:
            pids.setdefault(process.name, []).append(process.pid)
    if not pids:
        return [Diagnosis("schedulers", "ok", "nobody else gives these GPUs away")]
    fix = "GPUs that its jobs use count as busy here; better let one of the two have them: "
    return [
        Diagnosis(
            "schedulers",
            "warn",
            f"{SCHEDULERS[name]} runs here too ({name}, pid {', '.join(map(str, sorted(found)))})",
            fix + f"stop it, or run phalanx inside a job of {SCHEDULERS[name]}",
        )
        for name, found in sorted(pids.items())
    ]
