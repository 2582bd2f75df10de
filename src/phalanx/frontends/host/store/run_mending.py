"""Rows of attempts that hold what nobody could have written, put together from whatever else tells.

A row of a job may be emptied, or the job may fail; behind a row of an attempt processes run. What is lost of one is
sought in its own name, in the history of the job and in the list of runs. Only of which rank has which device nothing
else tells: then the attempt is ended for that reason, which its history says, and the job runs again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

Row = dict[str, Any]

#: In the reason for which an attempt is to end: nobody can have told it yet.
UNTOLD: Final = "untold"
_HISTORY: Final = "SELECT event, data, at_us FROM event WHERE job = ? ORDER BY seq DESC LIMIT 200"


class _SeatedMember(msgspec.Struct):
    """A member, as the core writes it."""

    key: int
    role: str
    rank: int
    devices: list[tuple[str, int]]
    pid: int | None = None
    start: int | None = None
    leaving: bool = False
    joined: int = 1


class _Beginning(msgspec.Struct):
    started_us: int


class _Wish(msgspec.Struct):
    purpose: Literal["cancel", "evict", "time", "fail", "move"] | None = None
    by: str = ""
    failure: dict[str, Any] | None = None


def _is(value: Any, kind: Any) -> bool:
    if not isinstance(value, bytes):
        return False
    try:
        msgspec.json.decode(value, type=kind)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return False
    return True


def is_devices(value: Any) -> bool:
    """Who has which devices."""
    return _is(value, list[_SeatedMember])


def is_members(value: Any) -> bool:
    """Since when it runs."""
    return _is(value, _Beginning)


def is_intent(value: Any) -> bool:
    """Why it is to end."""
    return _is(value, _Wish)


def name_run(row: Row, runs: Path) -> str | None:
    """What an attempt is called: its name and its numbers say it twice, and a directory may say which is right."""
    told = row["run"].decode(errors="replace") if isinstance(row["run"], bytes) else ""
    numbers = f"{row['job']}.{row['attempt']}"
    names = [name for name in (told, numbers) if _split(name) is not None]
    return next((name for name in names if (runs / name).is_dir()), names[0] if names else None)


def _split(name: str) -> tuple[int, int] | None:
    job, _, attempt = name.partition(".")
    fine = all(each.isascii() and each.isdecimal() and len(each) < 16 for each in (job, attempt))
    return (int(job), int(attempt)) if fine else None


def rebuild_run(connection: sqlite3.Connection, runs: Path, name: str, row: Row, bad: Iterable[str]) -> Row:
    """The row of this attempt without what is wrong in it."""
    numbers = _split(name)
    assert numbers is not None
    job, attempt = numbers
    history = _read_history(connection, job)
    began = next((at for event, data, at in history if event == "start" and data.get("attempt") == attempt), None)
    whole = row | {"run": name, "job": job, "attempt": attempt}
    for column in bad:
        match column:
            case "generation":
                whole[column] = 1  # its shim knows of later ones
            case "state":
                whole[column] = "starting" if began is None and row["members"] is None else "running"
            case "boot_id":
                whole[column] = _read_boot(runs / ".live" / name)
            case "members":
                whole[column] = None if began is None else msgspec.json.encode({"started_us": began})
            case "intent":
                whole[column] = _recall_intent(history)
            case _:  # numbers that the name has told, and devices
                pass
    if "devices" in bad:
        whole |= _end_for_devices(history, attempt, _recall_intent(history) if "intent" in bad else row["intent"])
    return whole


def _read_history(connection: sqlite3.Connection, job: int) -> list[tuple[str, Row, int]]:
    """What happened to a job, the latest first."""
    found = []
    for event, data, at_us in connection.execute(_HISTORY, (job,)).fetchall():
        with suppress(ValueError, TypeError, AttributeError):
            told = json.loads(data)
            if isinstance(told, dict):
                found.append((event.decode(), told, int(at_us)))
    return found


def _recall_intent(history: list[tuple[str, Row, int]]) -> bytes | None:
    """Whether somebody wanted its end, and who."""
    last = next(((event, data) for event, data, _ in history if event in _TURNS), None)
    if last is None or last[0] not in ("cancelling", "evict"):
        return None
    word, by = ("cancel", last[1].get("by")) if last[0] == "cancelling" else ("evict", last[1].get("cause"))
    return msgspec.json.encode({"purpose": word, "by": str(by), "failure": None})


_TURNS: Final = ("bind", "start", "cancelling", "evict")


def _end_for_devices(history: list[tuple[str, Row, int]], attempt: int, intent: bytes | None) -> Row:
    """Until nothing of it is left, everything that it was given is one member's."""
    placed = next((data for event, data, _ in history if event == "bind" and data.get("attempt") == attempt), {})
    given = placed.get("devices", [])
    entry = {"key": 0, "role": "?", "rank": 0, "devices": [(str(device), 1000) for device in given]}
    values: Row = {"devices": msgspec.json.encode([entry] if given else [])}
    if intent is None:
        why = "its record on the disk was damaged: nobody knows which rank has which device, so it runs again"
        values["intent"] = msgspec.json.encode({"purpose": "evict", "by": why, "failure": None, UNTOLD: True})
    return values


def _read_boot(path: Path) -> str:
    """The boot in which it was started, as the list of runs has it."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return str(json.loads(path.read_text(encoding="ascii"))["boot_id"])
    return ""
