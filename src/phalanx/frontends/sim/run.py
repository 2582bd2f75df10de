"""Play a scenario under one policy.

The virtual clock and the engine are `control.forward`; here are the world it plays in (true run
times) and the scribe that writes every gang's history down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from phalanx.control.explain import explain_pending
from phalanx.control.forward import Arrival, End, Forward, Happens
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.sim.ledger import LOSSES, Attempt, fresh_ledger, placement_of
from phalanx.frontends.sim.metrics import compute_metrics, find_horizon
from phalanx.frontends.sim.podfifo import simulate_members
from phalanx.frontends.sim.result import Entry, GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario, Truth
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind
from phalanx.model.reason import Code
from phalanx.perfmodel.speedup import scaled_us, speedup_at
from phalanx.policy import named

#: Points of a speed-up curve that a gang reports at the most.
CURVE_POINTS = 1024

Progress = Callable[[int, int], None]


def simulate(
    scenario: Scenario,
    policy: str,
    options: Mapping[str, object] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    check: Callable[[State], None] | None = None,
) -> SimResult:
    """Run one scenario under one policy to its end."""
    chosen = named(policy, options)
    state = make_state(scenario)
    if policy == "pod-fifo":
        return simulate_members(scenario, state, chosen, seed, progress)
    scribe = Scribe(state)
    arrivals = [
        Arrival(gang, curve_of(gang, truth)) for gang, truth in zip(scenario.gangs, scenario.truths, strict=True)
    ]
    world = World(scribe, {gang.name: truth for gang, truth in zip(scenario.gangs, scenario.truths, strict=True)})
    forward = Forward(state, chosen, world, scribe)
    forward.check = check
    forward.run(arrivals, happenings(scenario), scenario.until_us, progress)
    if scenario.until_us is not None:
        state.now_us = max(state.now_us, scenario.until_us) if len(state.running) else state.now_us
    gangs = collect_results(scenario, state, scribe, explain_pending(state, chosen))
    horizon = find_horizon(gangs, scenario.until_us)
    metrics = compute_metrics(gangs, scribe.ledger.close(horizon), {}, horizon)
    return SimResult(policy, seed, gangs, metrics, scenario.dropped, forward.passes)


def make_state(scenario: Scenario) -> State:
    """The empty cluster of a scenario."""
    fleet = Fleet(scenario.nodes, scenario.levels)
    return State(fleet, scenario.queues, scenario.users, scenario.windows)


def happenings(scenario: Scenario) -> list[Happens]:
    """The scenario's events in the words of the virtual clock. Sizes are pinned by a later policy."""
    return [
        Happens(event.at_us, event.verb, event.node, event.gang, event.added, event.by_us)
        for event in scenario.events
        if event.verb != "resize"
    ]


def curve_of(gang: Gang, truth: Truth) -> tuple[tuple[int, float], ...] | None:
    """What the in-job library of an elastic gang would report of its speed."""
    if not gang.elastic:
        return None
    elastic = [role.sizes for role in gang.roles if role.sizes.elastic]
    least, most = sum(sizes.least for sizes in elastic), sum(sizes.most for sizes in elastic)
    # Every size where there are few; of a huge range enough points that the line between them is close.
    step = max(1, (most - least) // CURVE_POINTS)
    return tuple((n, speedup_at(truth.speedup, n)) for n in [*range(least, most, step), most])


class World:
    """True run times."""

    def __init__(self, scribe: Scribe, truths: Mapping[str, Truth]) -> None:
        """`truths` by gang name."""
        self._scribe, self._truths = scribe, truths

    def ends_after(self, bind: Bind, now_us: int) -> Iterable[End]:
        """A gang runs its start-up and its true length at this size, unless it is killed before."""
        gang = self._scribe.state.gangs[bind.gang]
        length = gang.startup_us + self._true_length(gang, bind)
        if gang.kill_after_us is not None and gang.kill_after_us < length:
            return (End(now_us + gang.kill_after_us, bind.gang, ok=False),)
        return (End(now_us + length, bind.gang, ok=True),)

    def stands(self, end: End) -> bool:
        """Nothing changes a true run time so far."""
        return True

    def _true_length(self, gang: Gang, bind: Bind) -> int:
        truth = self._truths[gang.name]
        if not gang.elastic:
            return truth.duration_us
        most = sum(role.sizes.most for role in gang.roles if role.sizes.elastic)
        members = sum(seats.members for seats in bind.seats if gang.roles[seats.role].sizes.elastic)
        return scaled_us(truth.duration_us, truth.speedup, most, members)


class Scribe:
    """Writes down what happens to every gang."""

    def __init__(self, state: State) -> None:
        """Nothing yet."""
        self.state = state
        self.ledger = fresh_ledger(state)
        self.histories: dict[int, list[Entry]] = {}
        self.eligible: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.last_places: dict[int, tuple[int, dict[str, int]]] = {}
        self._open: dict[int, Attempt] = {}

    def on_submit(self, number: int, at_us: int) -> None:
        """A gang arrived."""
        self.histories[number] = []

    def on_bind(self, bind: Bind, at_us: int) -> None:
        """A gang started."""
        number = bind.gang
        places = placement_of(self.state.fleet.names, bind.seats)
        self.histories[number].append(Entry(at_us, "bind", bind.members, places))
        if number not in self.starts:
            self.starts[number] = at_us
            self.eligible[number] = self.state.records[number].eligible_us
        self.last_places[number] = (bind.members, places)
        self._open[number] = self.ledger.open_attempt(self.state.gangs[number], bind.seats, at_us)
        self._note_closed_nodes()

    def on_end(self, number: int, at_us: int, how: str) -> None:
        """A gang ended, or lost its seats."""
        self.histories[number].append(Entry(at_us, how, 0, {}))
        attempt = self._open.pop(number, None)
        if attempt is not None:
            attempt.end_us, attempt.lost = at_us, how in LOSSES
        if how not in LOSSES:
            self.ends[number] = at_us
        self._note_closed_nodes()

    def on_capacity(self, at_us: int) -> None:
        """Nodes came or went."""
        self.ledger.note_capacity(self.state)

    def _note_closed_nodes(self) -> None:
        """What is idle on a cordoned node counts as down, and that changes with every start and end."""
        if self.state.closed:
            self.ledger.note_capacity(self.state)


def collect_results(
    scenario: Scenario, state: State, scribe: Scribe, reasons: Mapping[int, tuple[Code, str, int, int]]
) -> list[GangResult]:
    """One result per gang of the scenario, in file order."""
    results = []
    for gang, truth in zip(scenario.gangs, scenario.truths, strict=True):
        number = state.number_by_name.get(gang.name)
        if number is None:
            results.append(_never_arrived(gang, truth))
            continue
        record = state.records[number]
        members, places = scribe.last_places.get(number, (0, {}))
        reason = reasons.get(number)
        phase = record.phase.value
        if record.phase is Phase.CANCELLED and record.doomed_by is not None and number not in scribe.starts:
            message = f"cancelled, since {record.doomed_by} did not succeed"
            reason = (Code.DEPENDENCY_FAILED, message, len(gang.after.names), 0)
        if record.phase is Phase.PENDING and reason is not None and reason[0] is Code.INFEASIBLE:
            phase = "infeasible"
        results.append(
            GangResult(
                name=gang.name,
                user=gang.user,
                state=phase,
                submit_us=gang.submit_us,
                eligible_us=scribe.eligible.get(number),
                start_us=scribe.starts.get(number),
                end_us=scribe.ends.get(number),
                members=members,
                placement=places,
                reason=None if reason is None else (reason[0].word, reason[1], reason[2], reason[3]),
                history=scribe.histories[number],
                duration_us=truth.duration_us,
                deadline_us=gang.deadline_us,
            )
        )
    return results


def _never_arrived(gang: Gang, truth: Truth) -> GangResult:
    why = ("Held", f"it is submitted at {gang.submit_us / 1e6:g} s, after the end of the simulation", 0, 0)
    return GangResult(
        gang.name,
        gang.user,
        "pending",
        gang.submit_us,
        None,
        None,
        None,
        0,
        {},
        why,
        [],
        truth.duration_us,
        gang.deadline_us,
    )
