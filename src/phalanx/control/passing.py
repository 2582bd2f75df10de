"""Who will pass a waiting gang, and by which rule: those who fill the room beside a reservation (rule 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from phalanx.control.queue_view import Filler, list_fillers
from phalanx.control.sentences import Scene
from phalanx.model.reason import Code
from phalanx.words import listing

Rule = Literal["shortest", "arrival", "tier"]
_NAMED_MOST: Final = 4
#: With many reservations, or in another pool of nodes.
_OWN_START: Final = "at a reservation of its own, which delays nobody before it"
#: Of one that a person gave a time to begin.
_OPENS: Final = "its time to begin comes before this {word} fits, and it fits then"
#: Of one that others keep behind a gate: a ceiling, an array, a name.
_COMES_UP: Final = "it has its turn before this {word} fits, and it fits then"
#: Of those who wait for nothing but room.
_FILLING: Final = (Code.NONE, Code.CAPACITY, Code.FRAGMENTATION, Code.TOPOLOGY, Code.BEHIND, Code.RESERVED)


@dataclass(frozen=True, slots=True)
class PassedBy:
    """Gangs that start before one that came first, and by which rule of filling."""

    gangs: tuple[int, ...]
    rule: Rule
    message: str


class Overtaking:
    """Says who passes whom, by what is foreseen and what the engine orders by."""

    def __init__(self, here: Scene) -> None:
        """Of one instant."""
        self.here = here
        self._fillers = list_fillers(here.state, here.policy)
        self._reserved = {gang: each.start_us for each in here.reservations for gang in each.gangs}

    def find(
        self, gang: int, starts: Mapping[int, int], ahead: Iterable[int], gated: Mapping[int, bool]
    ) -> tuple[list[PassedBy], PassedBy | None]:
        """Who will pass a gang, and who fills before it by right.

        `starts`: those expected before its own, with when; `ahead`: those whose turn comes before its turn; `gated`:
        those behind a gate, and whether others hold it shut.
        """
        fillers, names, fill = self._fillers, self.here.names, self.here.policy.fill
        mine = fillers.get(gang)
        if mine is None:  # behind a gate: it has no turn that anybody could pass
            return [], None
        before = set(ahead)
        groups: dict[tuple[Rule, str], list[int]] = {}
        for number, at_us in starts.items():
            filler = fillers.get(number)
            if names.call(number) is None or (filler is None and number not in gated):
                continue
            if filler is None:  # its turn comes when its gate opens, and that is foreseen
                words = (_COMES_UP if gated[number] else _OPENS).format(word=names.word)
                groups.setdefault((fill, words), []).append(number)
                continue
            by_tier = self._fills_by_tier(filler, mine)
            if number in self._reserved:
                # Whoever is ahead has its reservation in its turn; of one behind, it was found to delay nobody.
                if number not in before:
                    groups.setdefault((fill, _OWN_START), []).append(number)
            # By number and not by place among those of a queue that fills first: it came later, and starts sooner.
            elif number not in before or (by_tier and number > gang):
                why = self._rule(filler, mine, at_us, self._reserved.get(gang), by_tier=by_tier)
                groups.setdefault(why, []).append(number)
        passing = [self._tell(rule, words, some) for (rule, words), some in groups.items()]
        told = {each for found in passing if found.rule == "tier" for each in found.gangs}
        return passing, self._fills_after(gang, mine, told)

    def _fills_by_tier(self, other: Filler, mine: Filler) -> bool:
        return self.here.policy.fill == "shortest" and other.tiers < mine.tiers

    def _rule(
        self, other: Filler, mine: Filler, at_us: int, reserved_us: int | None, *, by_tier: bool
    ) -> tuple[Rule, str]:
        """The rule, and the words behind "will pass"."""
        fill, word = self.here.policy.fill, self.here.names.word
        if by_tier:
            return "tier", f"queue '{other.queue}' is below its guarantee, and '{mine.queue}' is not (fill by tier)"
        shorter = "shorter" if fill == "shortest" and other.length_us < mine.length_us else ""
        if reserved_us is None:
            where = "" if shorter else f"fits where this {word} does not"
        else:
            at = self.here.names.due(reserved_us)
            ends = at_us + other.length_us <= reserved_us
            place = f"this {word}'s reservation {at}"
            where = f"done before {place}" if ends else f"beside {place}"
        return fill, f"{', and '.join(part for part in (shorter, where) if part)} (fill: {fill})"

    def _fills_after(self, gang: int, mine: Filler, told: set[int]) -> PassedBy | None:
        """Of one that could only fill: who fills before it, whatever their lengths."""
        if not self._reserved or gang in self._reserved:
            return None
        reasons, names = self.here.told, self.here.names
        rivals = [
            (number, filler)
            for number, filler in self._fillers.items()
            if names.call(number) is not None
            and number not in self._reserved
            and number not in told
            and self._fills_by_tier(filler, mine)
            # One that a limit keeps, or a rest, fills nothing.
            and number in reasons
            and reasons[number][0] in _FILLING
        ]
        if not rivals:
            return None
        named = [f"{names.call(number)} of queue '{filler.queue}'" for number, filler in rivals]
        verb = "fills" if len(rivals) == 1 else "fill"
        listed = listing(named, _NAMED_MOST)
        words = f"queue '{mine.queue}' is not below its guarantee; {listed}, below its own, {verb} first"
        return PassedBy(tuple(number for number, _ in rivals), "tier", words)

    def _tell(self, rule: Rule, words: str, gangs: list[int]) -> PassedBy:
        names = listing([str(self.here.names.call(each)) for each in gangs], _NAMED_MOST)
        return PassedBy(tuple(gangs), rule, f"{names} will pass: {words}")
