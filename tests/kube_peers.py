"""What the other gang schedulers did in the same tests, for a table under the live tests.

Measured on 2026-11-15 against the same 1.37.1, one machine of two cores, everything on loopback; figures of this run come
from wherever it runs. Each is a time in seconds, or what became of the gang.
"""

from __future__ import annotations

TESTS = {
    "T1": "a gang of 8 on 7 devices is absent; the 8th comes: whole after",
    "T2": "of two gangs that fit only one, the other after the first has gone: whole after",
    "T3": "the API server is killed at 3 of 8: whole, seconds after it is back",
    "T4": "the scheduler is killed at 3 of 8, and the rest no longer fits",
}
PEERS = {
    "stock native 1.37.1": ("15.5", "15.7", "0.2", "stays 3 of 8"),
    "scheduler-plugins 0.34.7": ("306", "0.1", "6", "stays 3 of 8"),
    "Volcano 1.14.1": ("0.1", "0.2", "10", "stays 3 of 8"),
    "Koordinator 1.8.0": ("0.2", "0.1", "7", "7 of 8"),
    "KAI 0.12.0": ("0.3", "0.2", "1 to 6", "8 of 8 on too few devices"),
}
_ours: dict[str, str] = {}


def note(test, ours):
    """What this run came to in one of the tests."""
    _ours[test] = ours


def list_lines():
    """The table; nothing if none of the tests ran."""
    if not _ours:
        return []
    rows = {"Phalanx": tuple(_ours.get(test, "not run") for test in TESTS), **PEERS}
    columns = list(zip(TESTS, *rows.values(), strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    first = max(map(len, rows))
    lines = [f"  {test}: {says}" for test, says in TESTS.items()]
    for name, cells in {"": tuple(TESTS), **rows}.items():
        lines.append(f"  {name:<{first}}  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(cells, widths, strict=True)))
    return ["beside the others, in seconds (theirs measured on another day; see tests/kube_peers.py):", *lines]
