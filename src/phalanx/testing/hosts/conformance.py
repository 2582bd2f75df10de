"""One scenario through the simulator and through the daemon's core, and what both decided.

The engine is one; what is compared is everything around it: what it is shown, when it is asked, and what
becomes of its plans. Both tell their decisions in the same words, gang by gang name, seats and all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any
from unittest.mock import patch

import numpy as np

from phalanx.control import loop
from phalanx.engine import cycle
from phalanx.engine.policy import Policy
from phalanx.frontends.host.core import housekeeping, pacing
from phalanx.frontends.host.core.core import Core
from phalanx.frontends.host.messages import Accepted
from phalanx.frontends.host.ports import Order, Refused
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.result import Entry
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario
from phalanx.model.fleet import Node
from phalanx.model.gang import After, Shape
from phalanx.model.plan import Bind, Evict, Plan, Resize
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import Topology
from phalanx.perfmodel.speedup import Linear
from phalanx.policy import named
from phalanx.testing.hosts.host_world import HostWorld, Setup, caller_of, make_submission
from phalanx.testing.hosts.made_up_machine import Script
from phalanx.testing.hosts.scripts import WorkScript
from phalanx.testing.hosts.virtual_loop import SUBMITS, WORDS

#: What people can do to a job on one machine.
HOST_WORDS = ("cancel", "release", "resize")

_LONG_S = 1e7

Line = tuple[int, str, str, Any]  # when, what, who, and how it sits


@dataclass(slots=True)
class RunStory:
    """What happened in a run."""

    lines: list[Line] = field(default_factory=list)  # decisions, in order
    starts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


def squeeze(scenario: Scenario) -> Scenario:
    """The same gangs on one machine that has everything the nodes had together, without what one machine cannot do."""
    amounts: dict[str, int] = {}
    for node in scenario.nodes:
        for kind, units in node.resources.items():
            amounts[kind] = amounts.get(kind, 0) + units
    before, owners = _arrived_before(scenario), _group_owners(scenario)
    gangs = [
        replace(
            gang,
            user=gang.user if gang.together is None else owners[gang.together.word],
            after=After(tuple(name for name in gang.after.names if name in before[gang.name]), gang.after.any_end),
            topology=Topology(),
            roles=tuple(
                replace(role, topology=Topology(), shape=Shape(role.shape.need, (), ())) for role in gang.roles
            ),
        )
        for gang in scenario.gangs
    ]
    true_runs = [
        replace(truth, speedup=Linear()) if gang.elastic else truth
        for gang, truth in zip(gangs, scenario.true_runs, strict=True)
    ]
    return replace(
        scenario,
        nodes=(Node("host", amounts),),
        levels=(),
        gangs=tuple(gangs),
        true_runs=tuple(true_runs),
        windows=(),
        failures=None,
        events=tuple(event for event in scenario.events if event.verb in HOST_WORDS),
    )


def _arrived_before(scenario: Scenario) -> dict[str, frozenset[str]]:
    """By gang, who is there when it arrives."""
    found: dict[str, frozenset[str]] = {}
    for gang in sorted(scenario.gangs, key=lambda gang: gang.submit_us):  # stable, as arrivals are
        found[gang.name] = frozenset(found)
    return found


def _group_owners(scenario: Scenario) -> dict[str, str]:
    """By word, who said it first: on a live machine a word ties the gangs of one person only."""
    found: dict[str, str] = {}
    for gang in scenario.gangs:
        if gang.together is not None:
            found.setdefault(gang.together.word, gang.user)
    return found


def why_not_here(scenario: Scenario) -> str | None:  # noqa: PLR0911 - a list of reasons
    """Why one machine cannot play a scenario; None if it can."""
    if len(scenario.nodes) != 1:
        return "several nodes"
    if scenario.windows:
        return "windows"
    if scenario.failures is not None or any(event.verb not in HOST_WORDS for event in scenario.events):
        return "nodes that fail, drain or come"
    before = _arrived_before(scenario)
    if any(not before[gang.name].issuperset(gang.after.names) for gang in scenario.gangs):
        return "a dependency on a job that does not exist yet"
    owners = _group_owners(scenario)
    if any(gang.together is not None and gang.user != owners[gang.together.word] for gang in scenario.gangs):
        return "gangs of several people that start together"
    for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True):
        if gang.elastic and not isinstance(truth.speedup, Linear):
            return "a curve that only the simulator is told of"
    return None


# ---------------------------------------------------------------------- the simulator


def play_in_sim(scenario: Scenario, policy: Policy) -> RunStory:
    """What the simulator decides and sees."""
    story = RunStory()
    names: list[str] = []

    def listen(snapshot: Snapshot, chosen: Policy, **options: Any) -> Plan:
        names[:] = [gang.name for gang in snapshot.gangs]
        plan = cycle.schedule(snapshot, chosen, **options)
        story.lines += _tell(snapshot.now_us, plan, names)
        return plan

    with patch.object(loop, "schedule", listen):
        result = simulate(scenario, policy)
    for gang in result.gangs:
        start_us = _first_stay(gang.history)
        if start_us is not None:
            story.starts[gang.name] = start_us
        if gang.end_us is not None:
            story.ends[gang.name] = gang.end_us
        story.states[gang.name] = gang.state
    return story


def _first_stay(history: Sequence[Entry]) -> int | None:
    """When a gang began; seats that it lost again at the same instant were never sat on."""
    for entry, after in zip_longest(history, history[1:]):
        gone = after is not None and after.at_us == entry.at_us and after.event in ("evict", "yield")
        if entry.event == "bind" and not gone:
            return int(entry.at_us)
    return None


def _tell(now_us: int, plan: Plan, names: Sequence[str]) -> list[Line]:
    lines: list[Line] = []
    for decision in plan.decisions:
        who = names[decision.gang]
        if isinstance(decision, Evict):
            lines.append((now_us, "evict", who, decision.cause.value))
        else:
            seats = tuple((each.role, each.members, _bytes(each.devices)) for each in decision.seats)
            how = decision.cause.value if isinstance(decision, Resize) else ""
            lines.append((now_us, type(decision).__name__.lower() + how, who, seats))
    lines += [(now_us, "infeasible", names[number], None) for number in plan.infeasible]
    return lines


def _bytes(devices: Any) -> tuple[int, ...]:
    return tuple(np.asarray(devices).ravel().tolist())


# ---------------------------------------------------------------------- the daemon


def play_on_host(scenario: Scenario, policy: Policy, until_us: int) -> RunStory:
    """What the daemon's core decides and sees, with programs that fare as in the simulator."""
    # A pause is the gang's affair there; here the machine loses its patience with those that are to leave.
    patience = Settings(resize_s=_LONG_S, notice_s=_LONG_S)
    setup = Setup(scenario.nodes[0], scenario.levels, policy, scenario.queues, scenario.users, patience, patient=True)
    story = RunStory()
    with HostWorld(setup) as world:
        player = _Player(world, scenario, story)
        with (
            # Nobody is there to be looked for, and days pass.
            patch.object(pacing, "NAP_S", _LONG_S),
            patch.object(housekeeping, "MEMORY_EVERY_US", round(_LONG_S * 1e6)),
        ):
            world.clock.laziness = _LONG_S
            world.on_boot.append(player.watch)
            world.boot()
            player.schedule_all()
            world.run_until(until_us)
        player.close()
    return story


class _Player:
    """Plays the people and the programs of a scenario."""

    def __init__(self, world: HostWorld, scenario: Scenario, story: RunStory) -> None:
        self.world, self.scenario, self.story = world, scenario, story
        self.ids: dict[str, int] = {}
        self.scripts = {
            gang.name: WorkScript(world.machine, gang, truth)
            for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True)
        }
        self._names: dict[str, str] = {}
        self._bound: dict[int, int] = {}
        world.machine.scripts = self._script
        world.loop.hush = self._hush
        world.machine.on_exec.append(lambda process: self._note_start(process.job))

    def _script(self, order: Order) -> Script:
        return self.scripts[self._names[str(order.job)]]

    def _hush(self) -> bool:
        """Before a pass everybody says what they have to say; of an instant that is over nobody speaks."""
        return sum(script.speak() for script in self.scripts.values()) > 0

    def _note_start(self, job: int) -> None:
        self.story.starts.setdefault(self._names[str(job)], self.world.now_us)

    def watch(self, core: Core) -> None:
        """Listen to the plans of a daemon, and not to those of its looks ahead."""
        core.known.planner.loop.engine = self.listen

    def listen(self, snapshot: Snapshot, policy: Policy, **options: Any) -> Plan:
        """In the place of the engine's."""
        plan = cycle.schedule(snapshot, policy, **options)
        names = [self._names.get(gang.name, gang.name) for gang in snapshot.gangs]
        self.story.lines += _tell(snapshot.now_us, plan, names)
        for decision in plan.decisions:
            if isinstance(decision, Bind):
                self._bound[decision.gang] = snapshot.now_us
            elif isinstance(decision, Resize) and self._bound.get(decision.gang) == snapshot.now_us:
                self.scripts[names[decision.gang]].resized = True
        return plan

    # ------------------------------------------------------------------ people

    def schedule_all(self) -> None:
        """Submits in order of arrival, words when they are said."""
        for gang in sorted(self.scenario.gangs, key=lambda gang: gang.submit_us):
            self.world.at(gang.submit_us, lambda name=gang.name: self._submit(name), SUBMITS)  # type: ignore[misc]
        for event in self.scenario.events:
            self.world.at(event.at_us, lambda event=event: self._say(event), WORDS)  # type: ignore[misc]

    def _submit(self, name: str) -> None:
        gang = next(gang for gang in self.scenario.gangs if gang.name == name)
        submission = make_submission(gang, self.ids, allow_infeasible=True)
        who = caller_of(gang.user)
        expected = len(self.ids) + 1
        self.ids[name] = expected  # the store counts up; whoever depends on it may be submitted in the same instant
        self._names[str(expected)] = name
        self.world.ask(lambda core: core.submit(who, [submission], None, dry_run=False), self._on_submitted, _lost)

    def _on_submitted(self, reply: list[Accepted] | Refused) -> None:
        assert not isinstance(reply, Refused), f"refused: {reply}"
        assert reply[0].id in self.ids.values()

    def _say(self, event: TimedEvent) -> None:
        number = self.ids.get(str(event.gang))
        if number is None:
            return
        gang = next(gang for gang in self.scenario.gangs if gang.name == event.gang)
        body: Mapping[str, Any] = {}
        if event.verb == "resize":
            body = {"members": "auto" if event.members is None else event.members}
        self.world.ask(lambda core: core.act(caller_of(gang.user), str(number), event.verb, body))

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Read the ends off the disk."""
        if self.world.errors:
            raise self.world.errors[0]
        core = self.world.core
        for name, number in self.ids.items():
            record = self.world.store.job(number)
            assert record is not None
            self.story.states[name] = record.state
            if record.end_us is not None:
                self.story.ends[name] = record.end_us
            job = None if core is None else core.known.register.by_id.get(number)
            if job is not None and job.infeasible and not job.ended:
                self.story.states[name] = "infeasible"


def _lost() -> None:
    raise AssertionError("the daemon was not there")


# ---------------------------------------------------------------------- both


def compare(scenario: Scenario, policy: str | Policy, options: Mapping[str, object] | None = None) -> list[str]:
    """Every difference between what the simulator and the daemon made of a scenario."""
    chosen = policy if isinstance(policy, Policy) else named(policy, options)
    told = play_in_sim(scenario, chosen)
    last_us = max([*told.ends.values(), *(line[0] for line in told.lines), *_instants(scenario)], default=0)
    until_us = last_us + 1_000_000 if scenario.until_us is None else scenario.until_us
    seen = play_on_host(scenario, chosen, until_us)
    found = _compare_lines(told.lines, seen.lines)
    for what, ours, theirs in (("start", told.starts, seen.starts), ("end", told.ends, seen.ends)):
        for gang in scenario.gangs:
            if ours.get(gang.name) != theirs.get(gang.name):
                found.append(f"{what} of {gang.name}: {ours.get(gang.name)} simulated, {theirs.get(gang.name)} seen")
    for name, state in told.states.items():
        if seen.states.get(name, "pending") != state:
            found.append(f"state of {name}: {state} simulated, {seen.states.get(name)} seen")
    return found


def _instants(scenario: Scenario) -> list[int]:
    return [*(gang.submit_us for gang in scenario.gangs), *(event.at_us for event in scenario.events)]


def _compare_lines(told: Sequence[Line], seen: Sequence[Line]) -> list[str]:
    for number, (ours, theirs) in enumerate(zip(told, seen, strict=False)):
        if ours != theirs:
            return [f"decision {number}: {ours} simulated, {theirs} seen"]
    if len(told) != len(seen):
        longer, who = (told, "simulated") if len(told) > len(seen) else (seen, "seen")
        return [f"decision {min(len(told), len(seen))}: {longer[min(len(told), len(seen))]} only {who}"]
    return []


__all__ = ["RunStory", "compare", "play_in_sim", "play_on_host", "squeeze", "why_not_here"]
