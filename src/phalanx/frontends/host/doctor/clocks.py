"""The wall clock. Nothing but what people read depends on it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from phalanx.frontends.host.doctor.state_directory import read_told
from phalanx.frontends.host.doctor.surroundings import Diagnosis, Surroundings

#: 1 January 2025: a machine that believes in an earlier day has lost its clock.
_PLAUSIBLE_S: Final = 1_735_689_600
_JUMP_S: Final = 60.0


def check_clock(around: Surroundings) -> list[Diagnosis]:
    """Whether it is plausible, kept right by somebody, and was left alone since the daemon started."""
    sync = "sudo timedatectl set-ntp true"
    if around.wall_s() < _PLAUSIBLE_S:
        return [
            Diagnosis("clock", "fail", "the clock stands years in the past; certificates and times are wrong", sync)
        ]
    found = []
    synced = around.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"], 10.0)
    if synced is not None and synced.strip() == "no":
        found.append(Diagnosis("clock", "warn", "the clock is kept right by nobody", sync))
    jump_s = _find_jump_s(around)
    if jump_s is not None and abs(jump_s) > _JUMP_S:
        way = "forward" if jump_s > 0 else "back"
        message = f"the clock was set {way} by {abs(jump_s):,.0f} s since the daemon started; only shown times changed"
        found.append(Diagnosis("clock", "warn", message, "nothing is lost; times are right again after: phalanx down"))
    return found or [Diagnosis("clock", "ok", "the clock is plausible" + (" and synchronised" if synced else ""))]


def _find_jump_s(around: Surroundings) -> float | None:
    """The start of the daemon's process by the clock of now, against what the clock of then said."""
    told = read_told(around.state_dir)
    pid, then = told.get("pid"), _seconds(told.get("started"))
    if not isinstance(pid, int) or then is None:
        return None
    now = around.started_s(pid)
    return None if now is None else now - then


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None
