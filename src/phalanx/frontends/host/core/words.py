"""Numbers, spans, instants and devices as the daemon says them to people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from phalanx.model.gang import Gang, Role
from phalanx.model.resources import DEVICE_KIND, MILLI, units_per_whole

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
#: Nearer than this an instant is told as a length: "in 40s" says more than a time of day without seconds.
NEAR_S: Final = 600.0


def span(seconds: float) -> str:
    """A length of time in at most two units: 12s, 41m, 1h05m, 3d02h."""
    whole = int(max(0.0, seconds) + 0.5)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes}m{rest:02d}s" if minutes < 10 and rest else f"{minutes}m"
    if whole < _DAY:
        hours, rest = divmod(whole // _MINUTE, 60)
        return f"{hours}h{rest:02d}m" if rest else f"{hours}h"
    days, rest = divmod(whole // _HOUR, 24)
    return f"{days}d{rest:02d}h" if rest else f"{days}d"


def moment(wall: float, now_wall: float) -> str:
    """A time of day; with the day if that is another one."""
    at, here = _local(wall), _local(now_wall)
    days = abs((at.date() - here.date()).days)
    if not days:
        return f"{at:%H:%M}"
    return f"{at:%a %H:%M}" if days < 7 else f"{at:%d %b %H:%M}"


def _local(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC).astimezone()


def start_text(at_wall: float, low_wall: float, high_wall: float, now_wall: float) -> str:
    """An expected start with its range: "in ~40s (20s–2m)" if it is near, "~14:05 (13:50–14:40)" if it is not."""
    left_s = at_wall - now_wall
    if left_s < 1 and high_wall - now_wall < 1:
        return "any moment"
    if high_wall - now_wall <= NEAR_S:
        return f"in ~{span(left_s)} ({span(low_wall - now_wall)}–{span(high_wall - now_wall)})"
    return f"~{moment(at_wall, now_wall)} ({moment(low_wall, now_wall)}–{moment(high_wall, now_wall)})"


def number(value: float) -> str:
    """A number of GPUs: whole ones without a point, others to the thousandth."""
    return f"{round(value, 3):g}"


def gpus(value: float) -> str:
    """So many GPUs."""
    return f"{number(value)} GPU{'' if value == 1 else 's'}"


def amount(kind: str, units: float, *, bare: bool = False) -> str:
    """Engine units of a kind as people write them; `bare`: without the kind."""
    value = units / units_per_whole(kind)
    text = f"{value / (1 << 30):.4g}Gi" if units_per_whole(kind) == 1 else number(value)
    if bare:
        return text
    return f"{text} {'GPU' if value == 1 else 'GPUs'}" if kind == DEVICE_KIND else f"{text} {kind}"


def devices_text(indices: Iterable[int]) -> str:
    """Devices in order, runs of them together: "gpu 0-3,6"."""
    parts: list[list[int]] = []
    for index in sorted(set(indices)):
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    if not parts:
        return ""
    return "gpu " + ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def listing(words: Sequence[str], most: int = 4) -> str:
    """Some of them with commas, and how many more there are."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def needs_text(gang: Gang) -> str:
    """What a gang asks for: "4 GPUs as 4 x 1", "8 GPUs (min 2) as 8 x 1, in one node"."""
    most = sum(_devices(role, role.sizes.most) for role in gang.roles)
    least = sum(_devices(role, role.sizes.least) for role in gang.roles)
    shapes = " and ".join(_shape(role) for role in gang.roles)
    if most:
        fewest = f" (min {number(least)})" if least < most else ""
        text = f"{gpus(most)}{fewest} as {shapes}"
    else:
        text = shapes
    level = gang.topology.require or next((role.topology.require for role in gang.roles if role.topology.require), None)
    return f"{text}, in one {level}" if level else text


def _devices(role: Role, members: int) -> float:
    return members * role.shape.amount(DEVICE_KIND) / MILLI


def _shape(role: Role) -> str:
    each = role.shape.amount(DEVICE_KIND) / MILLI
    low, high = role.sizes.least, role.sizes.most
    if each:
        return f"{high} x {number(each)}"
    return f"{high if low == high else f'{low}:{high}'} member{'' if high == 1 else 's'} without a GPU"
