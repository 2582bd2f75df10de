"""Play a scenario under one policy.

The virtual clock and the engine are `control.forward`; `world` is what it plays in (true run times,
and where the time goes) and `scribe` writes every gang's history down. Here they are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.control.explain import explain_pending
from phalanx.control.forward import Arrival, Forward, Happens, Refusals
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.failures import failure_events
from phalanx.frontends.sim.metrics import compute_metrics, find_horizon
from phalanx.frontends.sim.podfifo import simulate_members
from phalanx.frontends.sim.result import PENDING, GangResult, SimResult
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.frontends.sim.scribe import Scribe
from phalanx.frontends.sim.world import World
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang
from phalanx.model.reason import Code
from phalanx.perfmodel.speedup import speedup_at
from phalanx.policy import named

#: Points of a speed-up curve that a gang reports at the most.
CURVE_POINTS = 1024

Progress = Callable[[int, int], None]


def simulate(
    scenario: Scenario,
    policy: str | Policy,
    options: Mapping[str, object] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    check: Callable[[State], None] | None = None,
    refusals: Refusals | None = None,
) -> SimResult:
    """Run one scenario under one policy to its end. The options are those of a policy given by its name.

    `refusals`: what the world will not carry out of a plan; it carries out everything if nobody says otherwise.
    """
    chosen = policy if isinstance(policy, Policy) else named(policy, options)
    state = make_state(scenario)
    if chosen.name == "pod-fifo":
        return simulate_members(scenario, state, chosen, seed, progress)
    arrivals = [
        Arrival(gang, curve_of(gang, truth)) for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True)
    ]
    world = World(state, {gang.name: truth for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True)})
    scribe = Scribe(state, world)
    forward = Forward(state, chosen, world, scribe, ledger=True, refusals=refusals)
    forward.check = check
    forward.run(arrivals, happenings(scenario, seed), scenario.until_us, progress)
    if scenario.until_us is not None and not state.is_empty():
        state.look_from(scenario.until_us)
    gangs = collect_results(scenario, state, scribe, explain_pending(state, chosen))
    horizon = find_horizon(gangs, scenario.until_us)
    world.close_all(horizon[1])
    counts = {"preemptions": 0, "resizes": 0, **scribe.counts, "evictions_in_vain": state.evictions_in_vain}
    metrics = compute_metrics(gangs, world.ledger.close(horizon), counts, horizon)
    result = SimResult(chosen.name, seed, gangs, metrics, scenario.dropped, forward.passes)
    result.outages = scribe.list_outages()
    return result


def make_state(scenario: Scenario) -> State:
    """The empty cluster of a scenario."""
    fleet = Fleet(scenario.nodes, scenario.levels)
    return State(fleet, scenario.queues, scenario.users, scenario.windows)


def happenings(scenario: Scenario, seed: int = 0) -> list[Happens]:
    """The scenario's events, and the failures that the seed decides, in the words of the virtual clock."""
    events = scenario.events
    if scenario.failures is not None and scenario.until_us is not None:
        events += failure_events(scenario.nodes, *scenario.failures, scenario.until_us, seed)
    return [
        Happens(event.at_us, event.verb, event.node, event.gang, event.added, event.by_us, event.members)
        for event in events
    ]


def curve_of(gang: Gang, truth: TrueRun) -> tuple[tuple[int, float], ...] | None:
    """What the in-job library of an elastic gang would report of its speed."""
    if not gang.elastic:
        return None
    elastic = [role.sizes for role in gang.roles if role.sizes.elastic]
    least, most = sum(sizes.least for sizes in elastic), sum(sizes.most for sizes in elastic)
    # Every size where there are few; of a huge range enough points that the line between them is close.
    step = max(1, (most - least) // CURVE_POINTS)
    return tuple((n, speedup_at(truth.speedup, n)) for n in [*range(least, most, step), most])


Told = tuple[Code, str, int, int]


def collect_results(scenario: Scenario, state: State, scribe: Scribe, reasons: Mapping[int, Told]) -> list[GangResult]:
    """One result per gang of the scenario, in file order."""
    results = []
    for gang, truth in zip(scenario.gangs, scenario.true_runs, strict=True):
        number = state.number_by_name.get(gang.name)
        if number is None:
            results.append(_never_arrived(gang, truth))
            continue
        phase, reason = _standing(state, scribe, number, reasons.get(number))
        members, places = scribe.last_places.get(number, (0, {}))
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
                date=state.date_of(number),
                queue=gang.queue,
            )
        )
    return results


def _standing(state: State, scribe: Scribe, number: int, reason: Told | None) -> tuple[str, Told | None]:
    """The state that is told of a gang, and why it is in it."""
    gang, phase = state.gangs[number], state.phase_of(number)
    if phase is Phase.PENDING:
        infeasible = reason is not None and reason[0] in (Code.INFEASIBLE, Code.DEADLINE_UNREACHABLE)
        return "infeasible" if infeasible else PENDING, reason
    if phase is Phase.STARTING:
        start_s = state.start_of(number) / 1e6
        message = f"has its places and starts at {start_s:g} s, when others have left them"
        return PENDING, (Code.CAPACITY, message, gang.members_min, 0)
    if phase is Phase.DEGRADED:
        held = sum(each.members for each in state.seats_of(number))
        message = f"lost members with a node and runs none; it holds {held} places and waits for the rest"
        return PENDING, (Code.CAPACITY, message, gang.members_min, held)
    doomed_by = state.doom_of(number) if phase is Phase.CANCELLED else None
    if doomed_by is not None and number not in scribe.starts:
        message = f"cancelled, since {doomed_by} did not succeed"
        reason = (Code.DEPENDENCY_FAILED, message, len(gang.after.names), 0)
    return phase.value, reason


def _never_arrived(gang: Gang, truth: TrueRun) -> GangResult:
    why = ("Held", f"it is submitted at {gang.submit_us / 1e6:g} s, after the end of the simulation", 0, 0)
    return GangResult(
        name=gang.name,
        user=gang.user,
        state=PENDING,
        submit_us=gang.submit_us,
        eligible_us=None,
        start_us=None,
        end_us=None,
        members=0,
        placement={},
        reason=why,
        duration_us=truth.duration_us,
        deadline_us=gang.deadline_us,
        queue=gang.queue,
    )
