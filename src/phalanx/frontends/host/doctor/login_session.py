"""The login session: does it outlive the log-out, and what does it allow?"""

from __future__ import annotations

import resource

from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings

_FILES_MIN = 4096
_PROCESSES_MIN = 4096
_SHARED_BYTES_MIN = 1 << 30


def check_session(around: Surroundings) -> list[Diagnosis]:
    """Whether systemd ends the daemon when its user logs out."""
    if not (around.root / "run/systemd/system").is_dir():
        return [Diagnosis("session", "ok", "no systemd here; the daemon lives until it is stopped")]
    if around.system or around.uid == 0:
        return [Diagnosis("session", "ok", "systemd is here; log-outs do not concern the system's daemon")]
    linger = around.run(["loginctl", "show-user", str(around.uid), "--property=Linger", "--value"], 10.0)
    if linger is not None and linger.strip() == "yes":
        return [Diagnosis("session", "ok", f"{around.user} lingers: what runs goes on after log-out")]
    fix = f"loginctl enable-linger {around.user}"
    kills = around.run(
        ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
         "org.freedesktop.login1.Manager", "KillUserProcesses"], 10.0,
    )  # fmt: skip
    if kills is not None and kills.split() == ["b", "true"]:
        return [Diagnosis("session", "fail", "at log-out systemd kills everything of yours, jobs included", fix)]
    if kills is None:
        return [Diagnosis("session", "warn", "nobody could say whether your processes survive a log-out", fix)]
    return [Diagnosis("session", "ok", "your processes survive a log-out, though not a reboot")]


def check_limits(around: Surroundings) -> list[Diagnosis]:
    """Open files and processes."""
    found = []
    for kind, which, least, flag in (
        ("open files", resource.RLIMIT_NOFILE, _FILES_MIN, "n"),
        ("processes", resource.RLIMIT_NPROC, _PROCESSES_MIN, "u"),
    ):
        _, hard = resource.getrlimit(which)
        if hard != resource.RLIM_INFINITY and hard < least:
            fix = f"raise it in /etc/security/limits.conf and log in again; check with: ulimit -H{flag}"
            found.append(Diagnosis("limits", "warn", f"at most {hard:,} {kind}; a busy day needs {least:,}", fix))
    return found or [Diagnosis("limits", "ok", "enough open files and processes")]


def check_shared_memory(around: Surroundings) -> list[Diagnosis]:
    """Data loaders and NCCL talk through /dev/shm; containers give it 64 MiB."""
    try:
        room = around.space(around.root / "dev/shm")
    except OSError:
        return [Diagnosis("shared memory", "warn", "there is no /dev/shm", "mount -t tmpfs tmpfs /dev/shm")]
    size = room.f_blocks * room.f_frsize
    if size < _SHARED_BYTES_MIN:
        fix = "sudo mount -o remount,size=50% /dev/shm; of a container: docker run --shm-size 16g"
        return [Diagnosis("shared memory", "warn", f"only {size >> 20} MiB in /dev/shm", fix)]
    return [Diagnosis("shared memory", "ok", f"{size >> 30} GiB in /dev/shm")]
