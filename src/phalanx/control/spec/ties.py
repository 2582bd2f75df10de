"""What ties gangs of one file to each other: `after` and `together`.

Checked when the whole file is known, because a gang may name one that comes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from phalanx.control.spec.errors import show, suggest
from phalanx.control.spec.graph import find_cycle
from phalanx.control.spec.spot import Spot
from phalanx.model.gang import Gang, Together

TOGETHER_KEYS: Final = ("word", "gangs")

#: `gangs` of a bare word until the file has been read to its end.
_COUNT_UNKNOWN: Final = 0
_GROUP_MAX: Final = 10_000


def parse_together(spot: Spot | None) -> Together | None:
    """A bare word, to be counted later, or {word, gangs} where they arrive one by one."""
    if spot is None:
        return None
    # Counted later: how many of a bare word there are is known at the end of the file.
    if not isinstance(spot.value, dict):
        return Together(spot.text(), _COUNT_UNKNOWN)
    fields = spot.fields(TOGETHER_KEYS)
    word = fields.need("word", "{word: pipeline-1, gangs: 2}").text()
    return Together(word, fields.need("gangs", "{word: pipeline-1, gangs: 2}").integer(1, _GROUP_MAX))


def complete_groups(gangs: Sequence[Gang], entries: Sequence[Spot]) -> list[Gang]:
    """The gangs with every group counted; a group is in one queue and agrees on its size."""
    groups: dict[str, list[int]] = {}
    for index, gang in enumerate(gangs):
        if gang.together is not None:
            groups.setdefault(gang.together.word, []).append(index)
    whole = list(gangs)
    for word, members in groups.items():
        # One object for all of them, and the refusal at the last: that is the entry by which it became wrong.
        together = Together(word, _count_group(word, [gangs[index] for index in members], entries[members[-1]]))
        first = gangs[members[0]]
        for index in members:
            # One queue (rule 15, together): a turn has one standing and is charged in one place of the tree.
            if gangs[index].queue != first.queue:
                here, there = f"in queue {show(gangs[index].queue)}", f"{show(first.name)} in {show(first.queue)}"
                entries[index].refuse(f"together {show(word)} is {here}, and {there}; they must share one queue")
            whole[index] = replace(gangs[index], together=together)
    return whole


def _count_group(word: str, members: Sequence[Gang], last: Spot) -> int:
    stated = {gang.together.gangs for gang in members if gang.together and gang.together.gangs != _COUNT_UNKNOWN}
    if len(stated) > 1:
        last.refuse(f"together {show(word)} is said to have {' and '.join(map(str, sorted(stated)))} gangs; which?")
    count = stated.pop() if stated else len(members)
    # More announced than are here is fine: the others may be submitted later, one by one.
    if count < len(members):
        last.refuse(f"together {show(word)} is said to have {count} gangs, and this is number {len(members)}")
    return count


def check_after(gangs: Sequence[Gang], entries: Sequence[Spot]) -> None:
    """Every dependency exists, none waits for itself, however indirectly."""
    entry_by_name = {gang.name: entry for gang, entry in zip(gangs, entries, strict=True)}
    for gang, entry in zip(gangs, entries, strict=True):
        for name in gang.after.names:
            # Within one file nobody is yet to come, so that an unknown name is a slip and would wait for ever.
            if name not in entry_by_name:
                entry.refuse(f"after names no gang of this file: {show(name)}; {suggest(name, entry_by_name)}")
    cycle = find_cycle({gang.name: gang.after.names for gang in gangs})
    if cycle:
        entry_by_name[cycle[0]].refuse(f"after goes round in a circle: {' → '.join(cycle)}")
    _check_groups_wait_outwards(gangs, entry_by_name)


def _check_groups_wait_outwards(gangs: Sequence[Gang], entry_by_name: dict[str, Spot]) -> None:
    """A group starts at one instant, so no gang of it may wait for the end of another of it."""
    # "\0" cannot stand in a name, so a group meets no gang that is called like it.
    unit = {gang.name: f"\0{gang.together.word}" if gang.together else gang.name for gang in gangs}
    waits: dict[str, list[str]] = {}
    for gang in gangs:
        waits.setdefault(unit[gang.name], []).extend(unit[name] for name in gang.after.names)
    cycle = find_cycle(waits)
    if cycle:
        # There is one: a circle without groups was found above.
        group = next(name for name in cycle if name.startswith("\0"))
        entry = next(entry_by_name[gang.name] for gang in gangs if unit[gang.name] == group and gang.after.names)
        path = " → ".join(name.removeprefix("\0") for name in cycle)
        entry.refuse(f"together {show(group[1:])} can never start: by after, it waits for itself ({path})")
