"""`phalanx demo`: the deadlock that gang scheduling is for, in one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from phalanx.cli.screen import choose_glyphs, print_lines

if TYPE_CHECKING:
    from phalanx.frontends.sim.result import GangResult, SimResult

_POLICIES: Final = ("pod-fifo", "easy")

#: The same text as examples/deadlock.yaml, because an installed package has no examples beside it.
SCENARIO: Final = """\
# Two training jobs of four GPUs each arrive at the same instant, and there are four GPUs.
#
# A scheduler that places pods one by one gives two to each: both hold half, neither trains,
# and neither will ever let go. A gang scheduler starts one of them whole and then the other.
#
#     phalanx sim examples/deadlock.yaml --policy pod-fifo,easy
cluster:
  nodes:
    - {name: "n[0-1]", resources: {gpu: 2}}     # n0 and n1
gangs:
  - {name: A, submit: 0, members: 4, each: {gpu: 1}, duration: 60, walltime: 60}
  - {name: B, submit: 0, members: 4, each: {gpu: 1}, duration: 60, walltime: 60}
until: 3m                                       # or the deadlock would last for ever
"""


@click.command()
def demo() -> None:
    """Show the deadlock that gang scheduling prevents."""
    from phalanx.cli.sim import run_policy
    from phalanx.control.spec.reader import parse_text
    from phalanx.control.spec.spot import Spot
    from phalanx.frontends.sim.gantt import draw_gantt
    from phalanx.frontends.sim.metrics import find_horizon
    from phalanx.frontends.sim.scenario import parse_scenario

    scenario = parse_scenario(Spot(parse_text(SCENARIO, "demo", ".yaml"), "demo"))
    results = [run_policy(scenario, name, {}, 0) for name in _POLICIES]
    horizons = [find_horizon(result.gangs, scenario.until_us) for result in results]
    horizon = min(first for first, _ in horizons), max(last for _, last in horizons)
    print_lines(["Two jobs of 4 GPUs each arrive at once; the cluster has 4 GPUs.", ""])
    for result in results:
        print_lines([f"policy {result.policy}: {_story(result)}", ""])
        print_lines([*draw_gantt(result.gangs, horizon, choose_glyphs()), ""])
    print_lines(["Next: phalanx sim FILE --policy fcfs,easy, with a scenario of your own."])


def _story(result: SimResult) -> str:
    """What happened, as the results have it."""
    from phalanx.frontends.sim.gantt import span
    from phalanx.frontends.sim.result import COMPLETED, DEADLOCKED

    stuck = [gang for gang in result.gangs if gang.state == DEADLOCKED]
    done = [gang for gang in result.gangs if gang.state == COMPLETED]
    ends = [gang.end_us for gang in done if gang.end_us is not None]
    if stuck:
        held = " and ".join(f"{gang.name} holds {_held(gang)} GPUs" for gang in stuck)
        return f"deadlock. {held}, and each waits for what the other has; {len(done)} of {len(result.gangs)} finish."
    if len(done) == len(result.gangs) and ends:
        order = ", then ".join(gang.name for gang in sorted(done, key=lambda gang: gang.start_us or 0))
        return f"{order}, each whole; all are done after {span(max(ends))}."
    return f"{len(done)} of {len(result.gangs)} finish."


def _held(gang: GangResult) -> int:
    """Seats the gang sits on without running; each is one GPU in this scenario."""
    last = gang.history[-1] if gang.history else None
    held = last.held if last is not None and last.held else gang.placement
    return sum(held.values())
