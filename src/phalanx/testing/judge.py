"""A judge of results: a scenario and what a run made of it, and what in that breaks a rule.

It knows nothing of the engine. It reads what a user could read (histories, places, states, reasons, the
ledger) and holds it to `SEMANTICS.md`. A finding is certainly a broken rule; where something else could
explain what is seen, the judge is silent. `judge_book` rebuilds who sat where, `judge_gangs`,
`judge_sums` and `judge_waste` hold the rules, and `twins` compares a run with that of the same world in
other words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from phalanx.frontends.sim.result import SimResult
from phalanx.frontends.sim.scenario import Scenario
from phalanx.testing import judge_gangs, judge_sums, judge_waste
from phalanx.testing.judge_book import Book, Finding

__all__ = ["RULES", "Book", "Finding", "judge"]

RULES: Final[tuple[Callable[[Book], Iterator[Finding]], ...]] = (
    judge_gangs.find_unwhole,
    judge_gangs.find_misplaced,
    judge_gangs.find_untimely,
    judge_gangs.find_wrong_lengths,
    judge_gangs.find_undone_starts,
    judge_gangs.find_apart,
    judge_gangs.find_bad_reasons,
    judge_gangs.find_bad_deadlines,
    judge_gangs.find_broken_nodes,
    judge_gangs.find_in_windows,
    judge_sums.find_overfull,
    judge_sums.find_over_limits,
    judge_sums.find_ledger_lies,
    judge_waste.find_needless_evictions,
    judge_waste.find_needless_shrinks,
    judge_waste.find_late_heads,
    judge_waste.find_forgotten,
)


def judge(scenario: Scenario, result: SimResult) -> list[Finding]:
    """Everything in a result that breaks a rule. Not for `pod-fifo`, which breaks the first one on purpose."""
    book = Book(scenario, result)
    return [finding for rule in RULES for finding in rule(book)]
