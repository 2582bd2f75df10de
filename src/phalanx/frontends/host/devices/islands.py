"""Which GPUs are close to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def find_islands(members: Sequence[int], near: Callable[[int, int], bool]) -> list[list[int]]:
    """Groups in which everybody is near everybody, in the order given.

    Not what hangs together over several steps: in a hybrid cube mesh every GPU reaches every other over links,
    and yet the two halves are the groups that a job wants.
    """
    islands: list[list[int]] = []
    for member in members:
        home = next((island for island in islands if all(near(other, member) for other in island)), None)
        if home is None:
            islands.append([member])
        else:
            home.append(member)
    return islands
