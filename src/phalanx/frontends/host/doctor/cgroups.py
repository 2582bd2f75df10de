"""Whether runs can be held together by control groups."""

from __future__ import annotations

from typing import Final

from phalanx.frontends.host.containment import CGROUP1, CGROUP2
from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings
from phalanx.frontends.host.machine import find_mounts

_NAME: Final = "containment"


def check_containment(around: Surroundings) -> list[Diagnosis]:
    """How well a daemon that is started from here could hold its runs together."""
    kind = around.contains()
    if kind == CGROUP2:
        return [Diagnosis(_NAME, "ok", "control groups of version 2, and ours to divide: a run is killed as a whole")]
    if kind == CGROUP1:
        return [Diagnosis(_NAME, "ok", "control groups of version 1: a run is frozen and killed as a whole")]
    if any(find_mounts(None, around.root)):
        message = "weak: control groups are there and not ours to divide; a member that hides well may outlive its job"
        return [Diagnosis(_NAME, "warn", message, _advise(around))]
    message = "weak: there are no control groups; a member that hides well may outlive its job"
    return [Diagnosis(_NAME, "warn", message, "in a container: start it with --cgroupns=private and a writable cgroup")]


def _advise(around: Surroundings) -> str:
    if around.uid == 0:
        return "run it as a service: phalanx install --system"
    return "run it as your service: phalanx install; or for all users: sudo phalanx install --system"
