"""What a dead shim left behind: killed until nothing is there.

The cgroup is the truth where there is one. Besides, and alone where there is none, the members that the
journal names are killed if they are still who they were, and so is every process of the run's user that
carries the run's mark in its environment. Nothing that was recorded in another boot is ever signalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from phalanx.frontends.host import containment
from phalanx.frontends.host.launching.directory import RunFacts
from phalanx.frontends.host.ports import FoundRun
from phalanx.frontends.host.shim.journal import Story

_LOOK_S_FIRST = 0.02
_LOOK_S_MAX = 1.0
_EMPTY_LOOKS = 2


def is_empty(facts: RunFacts) -> bool:
    """Whether the cgroup of a run, if it has one, says that nothing is left of it."""
    group = containment.open_group(facts.containment, facts.cgroup)
    return group is None or group.is_empty()


def is_anybody_left(facts: RunFacts) -> bool:
    """Whether processes of a run are there, by its cgroup or by its mark; for one that nothing else is known of."""
    return not is_empty(facts) or bool(containment.find_marked(facts.mark, facts.uid))


async def clear_run(
    facts: RunFacts,
    story: Story | None,
    stuck_s: float,
    on_stuck: Callable[[Sequence[int]], None],
    *,
    wait: bool = True,
) -> bool:
    """Kill what is left of a run; True when nothing is. With `wait` it goes on after `stuck_s` until that is so."""
    clock = asyncio.get_running_loop().time
    began_s, look_s, empty, told = clock(), _LOOK_S_FIRST, 0, False
    while empty < _EMPTY_LOOKS:
        # In a thread: a look goes through all of /proc, and a frozen cgroup takes its time.
        left = await asyncio.to_thread(_kill_left, facts, story)
        empty = 0 if left else empty + 1
        if left and not told and clock() - began_s >= stuck_s:
            told = True
            on_stuck(sorted(left))
            if not wait:
                return False
        await asyncio.sleep(look_s if left else _LOOK_S_FIRST)
        look_s = min(_LOOK_S_MAX, look_s * 2)
    return True


def _kill_left(facts: RunFacts, story: Story | None) -> set[int]:
    """One pass; who was there to be killed."""
    left: set[int] = set()
    group = containment.open_group(facts.containment, facts.cgroup)
    if group is not None and not group.is_empty():
        left |= group.list_pids()
        group.kill()
    story = story or Story()
    for members in (story.members, *story.waiting.values()):
        left |= {pid for pid, start in members.values() if containment.kill_identified(pid, start, facts.uid)}
    return left | containment.kill_marked(facts.mark, facts.uid)


async def clear_overdue(
    facts: RunFacts, ranks: Sequence[int] | None, within_s: float, is_settled: Callable[[], bool]
) -> bool:
    """Kill members whose grace is over (None: all) beside their shim, which lives; True once nothing is left of them.

    False if that takes too long, or somebody else has settled it.
    """
    clock = asyncio.get_running_loop().time
    until_s, look_s = clock() + within_s, _LOOK_S_FIRST
    while clock() < until_s and not is_settled():
        if not await asyncio.to_thread(_kill_overdue, facts, ranks):
            return True
        await asyncio.sleep(look_s)
        look_s = min(_LOOK_S_MAX, look_s * 2)
    return False


def _kill_overdue(facts: RunFacts, ranks: Sequence[int] | None) -> bool:
    """One pass; whether anybody was there to be killed."""
    run = containment.open_group(facts.containment, facts.cgroup)
    if run is None and ranks is not None:
        return True  # nobody but the shim knows who came from which member, so that it has its time
    groups = [run] if run is not None else []
    if ranks is not None:
        groups = [part for name, part in (run.list_parts() if run is not None else ()) if _rank_of(name) in ranks]
    left = [group for group in groups if not group.is_empty()]
    for group in left:
        group.kill()
    if run is not None:
        return bool(left)
    return bool(
        containment.kill_descendants(facts.shim_pid, (facts.shim_start, facts.uid))
        | containment.kill_marked(facts.mark, facts.uid)
    )


def _rank_of(part: str) -> int:
    rank = part.rpartition(".")[2]  # see `part_name`
    return int(rank) if rank.isdecimal() else -1


def describe(run: str, story: Story | None, *, done: bool, same_boot: bool = True) -> FoundRun:
    """A run without a living shim, by its journal."""
    story = story or Story()
    return FoundRun(
        run,
        alive=False,
        went=story.went,
        done=done,
        generation=story.generation,
        members=story.members,
        exits={rank: (code, number) for rank, (_, code, number) in story.exits.items()},
        lost=story.went and not story.done,
        same_boot=same_boot,
        silent=not story.generation,
    )
