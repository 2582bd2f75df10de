"""Times as people write them: lengths such as 90s, 1h30m or 1-12:00:00, and instants such as 09:00 or +10m."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from phalanx.client.daemon_errors import UsageError

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d|w)\s*")
_PLAIN = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_COLONS = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d{2}):(\d{2})")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_DATE: Final = "2026-11-16T09:00"
_LONGEST_S: Final = 100 * 365 * 86400


def seconds_of(text: str, option: str) -> float:
    """A length in seconds; `option` is who asked, for the message."""
    bare = text.strip()
    found = _length(bare)
    if found is None:
        raise UsageError(f"{option} {text!r} is no length of time", f"write {option} 90, 5m, 1h30m, 2d or 01:30:00")
    if not found <= _LONGEST_S:
        raise UsageError(f"{option} {text!r} is more than 100 years", f"write {option} 2d")
    return found


def length_of(text: str, option: str) -> str:
    """A length as the daemon reads it; it must not be zero."""
    found = seconds_of(text, option)
    if found <= 0:
        raise UsageError(f"{option} {text!r} is no time at all", f"write {option} 5m")
    return f"{found:.10g}s"


def begin_of(text: str, option: str = "--begin") -> str:
    """A beginning as the daemon reads it: `+10m`, or an instant with its offset."""
    bare = text.strip()
    if bare.startswith("+"):
        return f"+{length_of(bare[1:], option)}"
    instant = parse_instant(bare)
    if instant is None:
        raise UsageError(f"{option} {text!r} is no instant", f"write {option} +10m, 18:30 or 2026-11-16T09:00")
    return instant.isoformat(timespec="seconds")


def until_of(text: str, option: str = "--deadline") -> str:
    """A deadline as a length from now, given as one or as an instant."""
    instant = parse_instant(text.strip())
    if instant is None:
        bare = text.strip().removeprefix("+")
        if _length(bare) is None:
            raise UsageError(
                f"{option} {text!r} is neither a length nor an instant", f"write {option} 6h, 18:30 or {_DATE}"
            )
        return length_of(bare, option)
    left = (instant - datetime.now(UTC)).total_seconds()
    if left <= 0:
        raise UsageError(f"{option} {text!r} is over already", f"write {option} 6h, or an instant to come: 18:30")
    return f"{left:.3f}s"


def parse_instant(text: str) -> datetime | None:
    """A date and time, or the next time that the clock shows this; None if it is neither."""
    if match := _CLOCK.fullmatch(text):
        return _next(int(match[1]), int(match[2]), int(match[3] or 0))
    if "-" not in text[1:]:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone()  # one without offset is in the zone of this machine


def _next(hour: int, minute: int, second: int) -> datetime | None:
    now = datetime.now(UTC).astimezone()
    try:
        found = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    return found if found > now else found + timedelta(days=1)


def _length(text: str) -> float | None:
    if _PLAIN.fullmatch(text):
        return float(text)
    if match := _COLONS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return days * 86400.0 + hours * 3600 + minutes * 60 + seconds
    total, at = 0.0, 0
    while match := _PART.match(text, at):
        total += float(match[1]) * _SECONDS[match[2]]
        at = match.end()
    return total if text and at == len(text) else None
