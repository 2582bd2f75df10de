"""Which devices somebody uses who did not get them from us.

Pure: readings in, a `StrangerWatch` out, which goes in again with the next readings. What cannot be read counts
as busy, and a device is believed to be free only when two reads in a row show nobody on it: a training
script between two of its processes looks idle for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from phalanx.frontends.host.ports import DeviceReading, Use

#: Processes that draw a screen and live with others on a GPU, as long as they are small.
DISPLAY_PROCESSES: Final = frozenset({
    "Xorg", "Xwayland", "gnome-shell", "gnome-remote-desktop-daemon", "kwin_x11", "kwin_wayland", "plasmashell",
    "sddm-greeter", "mutter", "sway", "weston", "gdm-x-session", "xfwm4", "cinnamon",
})  # fmt: skip

#: A screen takes some hundred megabytes. Also how much memory may be in use without a process to be seen.
SMALL_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Stranger:
    """Why a device cannot be given away."""

    kind: Literal["process", "memory", "unreadable", "leaving"]
    user: str  # "" where nobody can say
    pids: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Rules:
    """Whom to put up with."""

    display: Collection[str] = DISPLAY_PROCESSES
    small_bytes: int = SMALL_BYTES  # 0: no process is small, and memory alone accuses nobody


@dataclass(frozen=True, slots=True)
class StrangerWatch:
    """What the readings so far amount to. The first one has seen nothing, and frees at once what is idle."""

    held: Mapping[int, Stranger] = field(default_factory=dict)  # by device
    gone: frozenset[int] = frozenset()  # not on the bus


def find_strangers(
    readings: Mapping[int, DeviceReading],
    devices: Collection[int],
    ours: Callable[[int, int], bool],
    given: Collection[int] = (),
    before: StrangerWatch = StrangerWatch(),  # noqa: B008 - frozen
    rules: Rules = Rules(),  # noqa: B008 - frozen
) -> StrangerWatch:
    """Judge every device of `devices`.

    `ours(device, pid)`: whether a run that holds this device owns the process; a job of ours on a device of
    somebody else's is a stranger there too. `given`: devices that a run of ours holds now; only a process that
    was seen accuses anybody there, since what is unknown is most likely the run's own.
    """
    held: dict[int, Stranger] = {}
    gone = set()
    for device in devices:
        reading = readings.get(device)
        if reading is not None and not reading.present:
            gone.add(device)
            continue
        found = _judge(device, reading, ours, rules, unknown_is_ours=device in given)
        if found is None and device not in given:
            found = _linger(before, device)
        if found is not None:
            held[device] = found
    return StrangerWatch(held, frozenset(gone))


def _judge(
    device: int,
    reading: DeviceReading | None,
    ours: Callable[[int, int], bool],
    rules: Rules,
    *,
    unknown_is_ours: bool,
) -> Stranger | None:
    if reading is None:
        return None if unknown_is_ours else Stranger("unreadable", "", (), "the driver does not say who uses it")
    others = [use for use in reading.uses if not ours(device, use.pid) and not _is_display(use, rules)]
    if others:
        return _accuse(others)
    if unknown_is_ours or reading.uses or not rules.small_bytes:
        return None
    used = reading.memory_used_bytes or 0
    if used <= rules.small_bytes:
        return None
    size = f"{used / (1 << 30):.1f} GiB"
    return Stranger("memory", "", (), f"{size} in use by a process that cannot be seen (another container?)")


def _is_display(use: Use, rules: Rules) -> bool:
    # The name is what the process says of itself; its size is not.
    return use.name in rules.display and use.memory_bytes < rules.small_bytes


def _accuse(others: list[Use]) -> Stranger:
    first = max(others, key=lambda use: (use.memory_bytes, -use.pid))
    named = f"{first.name} " if first.name else ""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    pids = tuple(sorted(use.pid for use in others))
    return Stranger("process", first.user, pids, f"{named}(pid {first.pid}) of {first.user}{more}")


def _linger(before: StrangerWatch, device: int) -> Stranger | None:
    """Idle for one read is not yet free."""
    if device in before.gone:
        return Stranger("leaving", "", (), "it came back just now")
    last = before.held.get(device)
    if last is None or last.kind == "leaving":
        return None
    return Stranger("leaving", last.user, (), f"idle since a moment ago; before: {last.message}")
