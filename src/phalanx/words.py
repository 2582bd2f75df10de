"""Numbers, lengths of time, instants and expected starts as people are told them, by the daemon and by commands.

Standard library only and light, since `ps` is put under `watch`. Instants are seconds of the wall clock; whoever has
them as text or on another clock turns them into those first. Pure: the time of day comes from the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_WEEK_DAYS: Final = 6
#: Nearer than this an instant is told as a length: "in 40s" says more than a time of day without seconds.
NEAR_S: Final = 600.0
_BYTES: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


# ---- time


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
    """A time of day; with the weekday if it is near, else with the date."""
    at, here = _local(wall), _local(now_wall)
    days = abs((at.date() - here.date()).days)
    if not days:
        return f"{at:%H:%M}"
    if days <= _WEEK_DAYS:
        return f"{at:%a %H:%M}"
    return f"{at:%d %b %H:%M}" if at.year == here.year else f"{at:%Y-%m-%d %H:%M}"


def due(wall: float, now_wall: float) -> str:
    """When something will be: "in 40s" if that is soon, else "at 14:05"."""
    left_s = wall - now_wall
    return f"in {span(left_s)}" if 0 <= left_s <= NEAR_S else f"at {moment(wall, now_wall)}"


def exact(wall: float, now_wall: float) -> str:
    """An instant to the second, with its date if that is not today's."""
    at = _local(wall)
    return f"{at:%H:%M:%S}" if at.date() == _local(now_wall).date() else f"{at:%Y-%m-%d %H:%M:%S}"


def stamp(wall: float) -> str:
    """An instant for programs: ISO 8601, to the second, with the machine's offset."""
    return _local(wall).isoformat(timespec="seconds")


def _local(wall: float) -> datetime:
    # To the nearest second: what somebody asked for at 18:30 comes back through two clocks as 18:29:59.9997.
    return datetime.fromtimestamp(int(wall + 0.5), UTC).astimezone()


def start_text(at: float, low: float | None, high: float | None, now_wall: float, *, predicted: bool = False) -> str:
    """An expected start with its range: "in about 40s (80%: 20s - 2m)", or "about 14:05 (80%: 13:50 - 14:40)"."""
    left_s = at - now_wall
    near = left_s <= NEAR_S
    found = "any moment" if left_s < 1 else f"in about {span(left_s)}" if near else f"about {moment(at, now_wall)}"
    ends = []
    if low is not None and high is not None:
        ends = [span(end - now_wall) if near else moment(end, now_wall) for end in (low, high)]
    around = f" (80%: {ends[0]} - {ends[1]})" if len(set(ends)) > 1 else ""
    return f"{found}{around}{', from earlier runs' if predicted else ''}"


# ---- amounts


def number(value: float) -> str:
    """A number of GPUs: whole ones without a point, others to the thousandth."""
    return f"{round(value, 3):g}"


def gpus(value: float) -> str:
    """So many GPUs."""
    return f"{number(value)} GPU{'' if value == 1 else 's'}"


def size_text(value: float) -> str:
    """An amount of memory: 80Gi."""
    for unit, size in _BYTES:
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:g}"


def count_members(count: int) -> str:
    """So many members."""
    return f"{count} member{'' if count == 1 else 's'}"


def say_one(sentence: str) -> str:
    """A sentence about one member that was written for several."""
    return sentence.replace(" 1 members fit,", " 1 member fits,").replace(" 1 members", " 1 member")


# ---- lists


def listing(words: Sequence[str], most: int = 4) -> str:
    """Some of them with commas, and how many more there are."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


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
