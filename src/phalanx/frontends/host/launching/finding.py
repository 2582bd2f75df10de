"""What an earlier daemon left: shims that live are connected to, what dead ones left is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from phalanx.frontends.host.clock import read_boot_id
from phalanx.frontends.host.launching import patience
from phalanx.frontends.host.launching.clearing import clear_run, describe, is_anybody_left, is_empty
from phalanx.frontends.host.launching.directory import RunFacts
from phalanx.frontends.host.launching.recalling import Traces, find_unlisted, recall_dead
from phalanx.frontends.host.launching.run_ends import RunEnds
from phalanx.frontends.host.launching.shim_link import ShimLink
from phalanx.frontends.host.launching.shims import Shims
from phalanx.frontends.host.ports import FoundRun
from phalanx.frontends.host.shim.bounds import read_end
from phalanx.frontends.host.shim.journal import Story

_log = logging.getLogger(__name__)
_FOUND_AT_ONCE = 32


class Finder:
    """Finds runs, many at a time, and none at the expense of the others."""

    def __init__(self, shims: Shims, ends: RunEnds, kill_stuck_s: float) -> None:
        """Nobody was looked for yet."""
        self._shims, self._ends, self._kill_stuck_s = shims, ends, kill_stuck_s
        self._slots = asyncio.Semaphore(_FOUND_AT_ONCE)

    async def find(self, listed: Iterable[RunFacts]) -> list[FoundRun]:
        """What became of these; those that live, or do not die, have a link when this returns."""
        boot_id = read_boot_id()
        found = await asyncio.gather(*(self._find_safely(facts, boot_id) for facts in listed))
        return [one for one in found if one is not None]

    async def _find_safely(self, facts: RunFacts, boot_id: str) -> FoundRun | None:
        """One run that cannot be understood must not keep the daemon from the others."""
        try:
            return await self._find_one(facts, boot_id)
        except Exception:  # noqa: BLE001
            _log.exception("run %s cannot be understood; what is left of it is ended", facts.run)
            cleared = await clear_run(facts, None, self._kill_stuck_s, lambda _: None, wait=False)
            return FoundRun(facts.run, False, True, cleared, 1, {}, {}, lost=True)  # noqa: FBT003

    async def _find_one(self, facts: RunFacts, boot_id: str) -> FoundRun | None:
        runs = self._shims.runs
        async with self._slots:
            if not runs.exists(facts.run):
                return await self._end_vanished(facts, same_boot=facts.boot_id == boot_id)
            if facts.boot_id != boot_id:
                story = runs.read_story(facts.run)
                # Of one that only its directory tells of; that of an attempt that counts is in its row as well.
                here = not facts.boot_id and (story is None or story.boot_id == boot_id)
                return describe(facts.run, story, done=True, same_boot=here)
            link = self._ends.make_link(facts)
            state = await self._shims.reach(link, patience.FOUND_AT_FIRST_S, kill=False)
            if state is not None:
                self._shims.links[facts.run] = link
                return adopt(link, state)
            if self._shims.is_alive(facts):  # nobody waits for it; it is looked after while everybody else goes on
                self._look_after(link)
                return replace(describe(facts.run, runs.read_story(facts.run), done=False), alive=True, lost=False)
            return await self._bury(link)

    async def _end_vanished(self, facts: RunFacts, *, same_boot: bool) -> FoundRun | None:
        """Somebody removed its directory. Whoever ran in it may run on, and nobody can speak with them any more."""
        if not same_boot or not await asyncio.to_thread(is_anybody_left, facts):
            self._shims.runs.strike(facts.run)
            return None
        _log.error("run %s: its directory is gone and its processes are not; they are killed", facts.run)
        link = self._ends.make_link(facts)
        cleared = await clear_run(facts, None, self._kill_stuck_s, link.tell_stuck, wait=False)
        if not cleared:
            self._look_after(link)
        return FoundRun(facts.run, False, True, cleared, 1, {}, {}, lost=True, vanished=True)  # noqa: FBT003

    async def _bury(self, link: ShimLink) -> FoundRun:
        """The shim is dead: end what is left. What does not end in time is looked after until it does."""
        story = self._shims.runs.read_story(link.run)
        cleared = await clear_run(link.facts, story, self._kill_stuck_s, link.tell_stuck, wait=False)
        found = replace(describe(link.run, story, done=cleared), contained=link.contained)
        if not cleared:
            for rank, (generation, _, _) in (story or Story()).exits.items():
                link.know_exit(rank, generation)
            self._look_after(link)
        return found

    def _look_after(self, link: ShimLink) -> None:
        """It has no line, as if that had been cut."""
        self._shims.links[link.run] = link
        self._ends.on_cut(link)


async def list_runs(traces: Traces, known: Iterable[str], named: Iterable[str] = ()) -> dict[str, RunFacts]:
    """Every run that something may be left of, by name; `known` are looked after already.

    Those `named` count as well, if only a directory is left of them: a database that came back may be older than it.
    """
    runs, boot_id = traces.runs, read_boot_id()
    listed = {facts.run: facts for facts in await asyncio.to_thread(runs.list_live)}
    # After a power loss the list may have holes, and somebody may have removed it, which is told by a note in it.
    everywhere = runs.read_boot() != boot_id
    unlisted = await asyncio.to_thread(find_unlisted, traces, {*listed, *known}, everywhere=everywhere)
    if everywhere:
        runs.write_boot(boot_id)
    unlisted += recall_dead(traces, {*named}.difference(listed, known, (facts.run for facts in unlisted)))
    for facts in unlisted:
        listed[facts.run] = facts
        if facts.boot_id:
            _log.warning("run %s lives and stood in no list; it is looked after again", facts.run)
            with contextlib.suppress(OSError):  # the next daemon finds it as this one did
                runs.write_facts(facts)
    return listed


def adopt(link: ShimLink, state: Mapping[str, Any]) -> FoundRun:
    """A run whose shim lives, by what it says; ends that it names are known here, and not told again."""
    members = link.read_state(state)
    exits = {rank: read_end(m["code"], m["signal"]) for rank, m in members.items() if m["exited"]}
    for rank in exits:
        link.know_exit(rank, int(members[rank]["generation"]))
    done = bool(state.get("empty")) and is_empty(link.facts)
    if done:
        link.know_end()
    link.tell_state(state, lambda _: "")
    return FoundRun(
        link.run,
        alive=True,
        went=link.went,
        done=done,
        generation=int(state["generation"]),
        members={rank: (int(m["pid"]), int(m["start"])) for rank, m in members.items()},
        exits=exits,
        spoke=[(said["rank"], said["message"]) for said in state.get("spoke", ())],
    )
