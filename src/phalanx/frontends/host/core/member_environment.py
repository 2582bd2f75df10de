"""The environment of a member: what its owner had, and what says who it is.

As torchrun does it, every member of a gang sees all devices of the gang in order of rank, so
that device number LOCAL_RANK is its own; a member with several devices sees only those, and is a
node of its own to whatever it launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.frontends.host.core.jobs import Job, Live, Member
from phalanx.model.resources import MILLI

#: Said by us alone, whatever the submitter's environment says.
_OURS = ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_PREFIXES = ("PHALANX_", "PET_", "TORCHELASTIC_")


@dataclass(frozen=True, slots=True)
class SharedEnvironment:
    """What all members of an attempt share."""

    uuids: Sequence[str]  # by device index
    port: int
    run_dir: str


def clean(env: Mapping[str, str]) -> dict[str, str]:
    """A submitter's environment without what would tell a member that it is somebody else."""
    return {key: value for key, value in env.items() if key not in _OURS and not key.startswith(_PREFIXES)}


def environment(
    base: Mapping[str, str], job: Job, live: Live, member: Member, setting: SharedEnvironment
) -> dict[str, str]:
    """Everything a member finds in its environment."""
    present = [each for each in live.present() if not each.leaving]
    world = len(present)
    alone = len(member.devices) > 1 or any(_is_part(setting.uuids[at], milli) for at, milli in member.devices)
    seen = [member] if alone else present
    visible = ",".join(setting.uuids[device] for each in seen for device, _ in each.devices)
    local, group = (0, member.rank) if alone else (member.rank, 0)
    # Python keeps what it prints to a file back until it has a few KiB: logs of a running job would stay empty.
    env = {"PYTHONUNBUFFERED": "1", **clean(base)}
    env |= {
        "RANK": str(member.rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(1 if alone else world),
        "GROUP_RANK": str(group),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(setting.port),
        "CUDA_VISIBLE_DEVICES": visible,
        "PHALANX_JOB": str(job.id),
        "PHALANX_NAME": job.name,
        "PHALANX_ATTEMPT": str(live.attempt),
        "PHALANX_GENERATION": str(live.generation),
        "PHALANX_RANK": str(member.key),  # its name for life; RANK is its place when it started
        "PHALANX_ROLE": member.role,
        "PHALANX_DEVICES": ",".join(setting.uuids[device] for device, _ in member.devices),
        "PHALANX_SOCKET": f"{setting.run_dir}/job.sock",
        "PHALANX_KEY_FILE": f"{setting.run_dir}/key",
    }
    env |= _torchrun(job, live, member, world, setting.port)
    if job.array is not None:
        env["PHALANX_ARRAY_INDEX"] = str(job.array[1])
    return env


def _is_part(uuid: str, milli: int) -> bool:
    """A share of a device, or a slice of one, of which CUDA sees no more than one at a time."""
    return milli < MILLI or uuid.startswith("MIG-")


def _torchrun(job: Job, live: Live, member: Member, world: int, port: int) -> dict[str, str]:
    """What torchrun reads in place of its options: a member is a node of its rendezvous."""
    return {
        "PET_NNODES": str(world),
        "PET_NODE_RANK": str(member.rank),
        "PET_NPROC_PER_NODE": str(max(1, len(member.devices))),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}",
        "PET_RDZV_ID": f"phalanx-{job.id}-{live.attempt}-{live.generation}",
        "PET_MAX_RESTARTS": "0",
    }
