"""Is this machine fit for the daemon? Each finding says what was found and what to do about it.

`run_checks` only looks: it takes no lock and leaves nothing behind, so it may run beside a daemon.
`write_bundle` packs the findings for a bug report, without what is nobody else's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from phalanx.frontends.host.doctor.bundle import write_bundle
from phalanx.frontends.host.doctor.cgroups import check_containment
from phalanx.frontends.host.doctor.clocks import check_clock
from phalanx.frontends.host.doctor.gpus import check_driver, check_gpus
from phalanx.frontends.host.doctor.login_session import check_limits, check_session, check_shared_memory
from phalanx.frontends.host.doctor.programs import check_python, check_schedulers
from phalanx.frontends.host.doctor.state_directory import check_ports, check_running, check_state_directory
from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings

__all__ = ["CHECKS", "Diagnosis", "Surroundings", "run_checks", "write_bundle"]

Check = Callable[[Surroundings], list[Diagnosis]]

#: In the order in which people should read them.
CHECKS: Final[Mapping[str, Check]] = {
    "driver": check_driver,
    "gpus": check_gpus,
    "containment": check_containment,
    "session": check_session,
    "state": check_state_directory,
    "daemon": check_running,
    "ports": check_ports,
    "clock": check_clock,
    "limits": check_limits,
    "shared memory": check_shared_memory,
    "python": check_python,
    "schedulers": check_schedulers,
}


def run_checks(around: Surroundings, names: Sequence[str] = ()) -> list[Diagnosis]:
    """All checks, or those named. One that breaks is a finding too."""
    found: list[Diagnosis] = []
    for name in names or CHECKS:
        try:
            found += CHECKS[name](around)
        except Exception as bad:  # noqa: BLE001 - the other checks matter all the more now
            story = f"the check itself failed: {type(bad).__name__}: {bad}"
            found.append(Diagnosis(name, "fail", story, "report it, with: phalanx doctor --bundle report.tar.gz"))
    return found
