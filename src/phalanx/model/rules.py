"""What a member may ask about others: rules over words, and over the domains that nodes with one value make up.

A member *bears* words, by which rules speak of it. A rule names a word and `by`: a topology level, or any label of
nodes. Nodes without that label are in no domain. What a role may ask of its own members needs no word (`AtMost`).

Rules hold where members are placed, not for ever after: who sits already is never moved because of one. `Apart` binds
both ways: whoever bears the word does not come to where a holder of the rule is either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AtMost:
    """No more than so many of the role's own members in one domain."""

    by: str
    members: int


@dataclass(frozen=True, slots=True)
class Apart:
    """In no domain where anybody else bears the word; of members that bear it themselves, one in each."""

    by: str
    word: str


@dataclass(frozen=True, slots=True)
class Beside:
    """Only in domains where somebody bears the word; while nobody does, those that bear it themselves go to any one."""

    by: str
    word: str


@dataclass(frozen=True, slots=True)
class Evenly:
    """A member goes where those who bear the word are, with it, at most `max_skew` more than where they are fewest."""

    by: str
    word: str
    max_skew: int
    min_domains: int = 1  # with fewer domains than that, the fewest counts as none
    heeds_select: bool = True  # only domains of nodes that the member selects count
    heeds_taints: bool = False  # ... and only of those whose taints it tolerates


Rule = AtMost | Apart | Beside | Evenly
Select = tuple[tuple[str, tuple[str, ...]], ...]  # (label, any of these values), sorted


@dataclass(frozen=True, slots=True)
class Rather:
    """A wish: some nodes before others, or a rule about others that is kept as far as it can be; never a condition."""

    weight: int
    wish: Select | Rule


#: What others have to know of a member wherever it sits: a word that it bears, or whom it keeps away (word, by).
Mark = str | tuple[str, str]


@dataclass(slots=True, eq=False)
class Presence:
    """Who is where: how many members bear a word on each node, and how many there keep others away by a rule.

    Arrays are replaced and never written to, so that copies may share them.
    """

    nodes: int
    words: dict[str, IntArray] = field(default_factory=dict)
    away: dict[str, dict[str, IntArray]] = field(default_factory=dict)  # by word, then by what makes its domains
    sought: bool = False  # whether anybody ever asked to be where others are: only then a start may let somebody in

    def copy(self) -> Presence:
        """Another that goes its own way."""
        return Presence(self.nodes, dict(self.words), dict(self.away), self.sought)

    def add(self, marks: Iterable[Mark], nodes: IntArray, counts: IntArray) -> None:
        """So many more with these marks on these nodes, each of which is named once; negative: fewer."""
        for mark in marks:
            if isinstance(mark, str):
                self.words[mark] = self._with(self.words.get(mark), nodes, counts)
            else:
                word, by = mark
                held = self.away.get(word, {})
                self.away[word] = {**held, by: self._with(held.get(by), nodes, counts)}

    def bearing(self, word: str) -> IntArray:
        """How many bear a word on each node."""
        found = self.words.get(word)
        return np.zeros(self.nodes, dtype=np.int64) if found is None else found

    def merge(self, other: Presence) -> Presence:
        """The more of both, mark by mark: what whoever stays from one instant to another has to heed."""
        merged = self.copy()
        for word, counts in other.words.items():
            merged.words[word] = np.maximum(self.bearing(word), counts)
        for word, held in other.away.items():
            mine = self.away.get(word, {})
            both = {by: np.maximum(mine[by], counts) if by in mine else counts for by, counts in held.items()}
            merged.away[word] = {**mine, **both}
        return merged

    def _with(self, found: IntArray | None, nodes: IntArray, counts: IntArray) -> IntArray:
        changed = np.zeros(self.nodes, dtype=np.int64) if found is None else found.copy()
        changed[nodes] += counts
        return changed
