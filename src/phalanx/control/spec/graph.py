"""Circles in what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def find_cycle(waits_for: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Some circle as a path that ends where it began, or () if there is none. Unknown names end a path."""
    # Shared by all walks: what was found to lead nowhere need not be walked again, which keeps this linear.
    settled: set[str] = set()
    for start in waits_for:
        found = _walk_from(start, waits_for, settled)
        if found:
            return found
    return ()


def _walk_from(start: str, waits_for: Mapping[str, Sequence[str]], settled: set[str]) -> tuple[str, ...]:
    # An explicit stack: chains of 10,000 dependencies are legal, and deeper than Python's own.
    path: list[str] = []
    place: dict[str, int] = {}
    stack = [(start, False)]
    while stack:
        name, leaving = stack.pop()
        if leaving:
            settled.add(path.pop())
            del place[name]
        # On the path that is being walked, not merely seen before: two ways to one gang are no circle.
        elif name in place:
            return (*path[place[name] :], name)
        elif name not in settled:
            place[name] = len(path)
            path.append(name)
            stack.append((name, True))
            # Reversed, so that the first written is walked first and the same file names the same circle.
            stack += [(other, False) for other in reversed(waits_for.get(name, ()))]
    return ()
