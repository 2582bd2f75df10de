"""Play the worlds of some seeds and say what the judge finds, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.frontends.sim.run import simulate
from phalanx.testing.judge import Finding, judge
from phalanx.testing.twins import find_unlike
from phalanx.testing.whole_worlds import draw_run, read_tree


def find_in_worlds(seeds: Iterable[int], *, twins: bool) -> Iterator[tuple[int, Finding]]:
    """Everything that breaks a rule in the world of a seed; with its twins, in five runs more."""
    for seed in seeds:
        tree, policy, options = draw_run(seed)
        scenario = read_tree(tree)
        result = simulate(scenario, policy, options)
        findings = judge(scenario, result)
        if twins:
            findings += find_unlike(tree, result, options)
        yield from ((seed, finding) for finding in findings)


def first_by_kind(found: Iterable[tuple[int, Finding]]) -> dict[str, str]:
    """One line for each kind of finding, with the seed that shows it."""
    lines: dict[str, str] = {}
    for seed, finding in found:
        lines.setdefault(finding.kind, f"seed {seed}: {finding}")
    return lines
