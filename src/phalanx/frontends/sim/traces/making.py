"""Make jobs up: a model, a number of them, a seed. The same arguments give the same scenario everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, NamedTuple

from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.quantity import SECOND_US, TIME_US_MAX
from phalanx.frontends.sim.failures import failure_events
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.frontends.sim.traces import llm, lublin
from phalanx.frontends.sim.traces.arrivals import lay_over_days
from phalanx.frontends.sim.traces.believed import Estimate, round_up_us
from phalanx.frontends.sim.traces.log_jobs import rigid_roles
from phalanx.frontends.sim.traces.shares import TraitShares, apply_shares
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, SnapshotHabit
from phalanx.model.resources import DEVICE_KIND, MILLI

MODELS: Final = ("lublin", "lublin-all", "llm")
JOBS_MAX: Final = 10_000_000
_LLM_LOAD: Final = 0.9  # where nothing is said; the published summary has no rate that fits another cluster
_USERS: Final = 24
_HALVINGS: Final = 60
_FAILURES_MAX: Final = 1_000_000

#: What trains a language model saves its work, or no cluster would ever finish one; what evaluates it does not.
_LLM_HABIT: Final = SnapshotHabit(every_us=1_800 * SECOND_US, stall_us=5 * SECOND_US, restore_us=60 * SECOND_US)
_LLM_STARTUP_US: Final = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class Breakage:
    """Nodes fail and are repaired: mean times of one node."""

    mtbf_us: int
    mttr_us: int


class _Draft(NamedTuple):
    """A job before it has a time of arrival."""

    size: int
    run_us: int
    believed_us: int
    habit: SnapshotHabit | None = None
    startup_us: int = 0


def make_workload(
    model: str,
    jobs: int,
    seed: int,
    nodes: Sequence[Node],
    *,
    load: float | None = None,
    shares: TraitShares = TraitShares(),  # noqa: B008 - frozen
    estimate: Estimate = "rounded",
    breakage: Breakage | None = None,
) -> Scenario:
    """A scenario on these nodes.

    `load` is the GPU time asked for over the GPU time there is while jobs arrive; without it the
    arrivals of the lublin models are those of the publication. Members need one GPU each.
    """
    per_node = Counter(node.resources.get(DEVICE_KIND, 0) // MILLI for node in nodes)
    machine = sum(gpus * count for gpus, count in per_node.items())
    _check(model, jobs, load, machine)
    rng = Random(f"{model} {seed}")
    usual = max((gpus for gpus in per_node if gpus), key=lambda gpus: (per_node[gpus], gpus))
    drafts, even_s, weights = _draw(model, jobs, rng, machine, usual)
    if load is None and model == "llm":
        load = _LLM_LOAD
    if load is not None:
        work_us = sum(draft.size * draft.run_us for draft in drafts)
        even_s = _scaled(even_s, weights, work_us / SECOND_US / machine / load)
    submits_us = [round(at_s) * SECOND_US for at_s in lay_over_days(even_s, weights)]
    if submits_us[-1] > TIME_US_MAX // 4:
        raise BadInput("the jobs would arrive over more than 25 years; ask for fewer jobs or a higher load")
    ranks = range(1, _USERS + 1)
    users = rng.choices([f"u{rank}" for rank in ranks], [1 / rank for rank in ranks], k=jobs)
    scenario = _assemble(nodes, drafts, submits_us, users, estimate)
    scenario = apply_shares(scenario, shares, seed)
    return _with_failures(scenario, breakage, seed) if breakage is not None else scenario


def _draw(
    model: str, jobs: int, rng: Random, machine: int, per_node: int
) -> tuple[list[_Draft], list[float], tuple[float, ...]]:
    """Jobs, their arrivals in even time, and the daily cycle."""
    drafts: list[_Draft] = []
    if model == "llm":
        for _ in range(jobs):
            drawn = llm.draw_job(rng, machine, per_node)
            times = round(drawn.run_s * SECOND_US), round(drawn.believed_s * SECOND_US)
            trains = drawn.kind is not llm.EVALUATION
            drafts.append(_Draft(drawn.size, *times, *((_LLM_HABIT, _LLM_STARTUP_US) if trains else (None, 0))))
        return drafts, _accumulate(rng, jobs, llm.draw_gap_s), lublin.ALL.weights()
    numbers = lublin.BATCH if model == "lublin" else lublin.ALL
    for _ in range(jobs):
        size = numbers.draw_size(rng, machine)
        run_us = round(numbers.draw_run_s(rng, size) * SECOND_US)
        drafts.append(_Draft(size, run_us, run_us))
    return drafts, _accumulate(rng, jobs, numbers.draw_gap_s), numbers.weights()


def _accumulate(rng: Random, jobs: int, draw_gap_s: Callable[[Random], float]) -> list[float]:
    found, at_s = [], 0.0
    for _ in range(jobs):
        at_s += draw_gap_s(rng)
        found.append(at_s)
    return found


def _scaled(even_s: list[float], weights: Sequence[float], span_s: float) -> list[float]:
    """Even time stretched so that on the clock the last job comes `span_s` after the first."""
    if len(even_s) == 1:
        return even_s
    low, high = 0.0, 2 * (span_s + 86_400.0) / (even_s[-1] - even_s[0])
    for _ in range(_HALVINGS):
        factor = (low + high) / 2
        first_s, last_s = lay_over_days([even_s[0] * factor, even_s[-1] * factor], weights)
        low, high = (factor, high) if last_s - first_s < span_s else (low, factor)
    return [at_s * high for at_s in even_s]


def _assemble(
    nodes: Sequence[Node], drafts: Sequence[_Draft], submits_us: Sequence[int], users: Sequence[str], estimate: Estimate
) -> Scenario:
    gangs: list[Gang] = []
    true_runs: list[TrueRun] = []
    roles_by_size: dict[int, tuple[Role, ...]] = {}
    for number, (draft, submit_us, user) in enumerate(zip(drafts, submits_us, users, strict=True), start=1):
        if draft.size not in roles_by_size:
            roles_by_size[draft.size] = rigid_roles(draft.size, DEVICE_KIND)
        believed_us = draft.run_us if estimate == "actual" else draft.believed_us
        gang = Gang(
            str(number),
            roles_by_size[draft.size],
            submit_us,
            user=user,
            walltime_us=round_up_us(believed_us) if estimate == "rounded" else believed_us,
            snapshot=draft.habit,
            startup_us=draft.startup_us,
        )
        gangs.append(gang)
        true_runs.append(TrueRun(draft.run_us))
    return Scenario(tuple(nodes), (), tuple(gangs), tuple(true_runs))


def _with_failures(scenario: Scenario, breakage: Breakage, seed: int) -> Scenario:
    """Failures for twice as long as jobs arrive and the longest runs: a late job meets them too."""
    longest_us = max(truth.duration_us for truth in scenario.true_runs)
    until_us = min(TIME_US_MAX // 2, 2 * (scenario.gangs[-1].submit_us + longest_us))
    expected = len(scenario.nodes) * until_us // (breakage.mtbf_us + breakage.mttr_us)
    if expected > _FAILURES_MAX:
        raise BadInput(
            f"--mtbf is so short that some {expected:,} failures would follow; the most is {_FAILURES_MAX:,}"
        )
    events = failure_events(scenario.nodes, breakage.mtbf_us, breakage.mttr_us, until_us, seed)
    return replace(scenario, events=events)


def _check(model: str, jobs: int, load: float | None, machine: int) -> None:
    if model not in MODELS:
        raise BadInput(f"there is no model {model!r}; valid: {', '.join(MODELS)}")
    if not 1 <= jobs <= JOBS_MAX:
        raise BadInput(f"--jobs must be from 1 to {JOBS_MAX:,} (got {jobs})")
    if load is not None and not 0.01 <= load <= 100:
        raise BadInput(f"--load must be from 0.01 to 100 (got {load:g}); 1 asks for as much as there is")
    if machine < 1:
        raise BadInput("--cluster has no GPU; jobs are made for GPUs")
