"""Who is bound to whom: gangs that start together, and gangs that wait for the end of others.

Groups are found by their word, dependencies by name: a gang may name others that have ended long ago, or that are yet
to come. What follows for anybody (gates, cancels) is in `waiting` and `leaving`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from phalanx.engine.lifecycle import Phase


@dataclass(slots=True)
class Group:
    """Gangs that start together."""

    word: str
    wanted: int
    gangs: list[int]
    form: int = -1  # known once complete


#: In the place of every group of which nothing is left; never full, and never found.
DROPPED: Final = Group("", 0, [])


@dataclass(slots=True)
class Groups:
    """Every group there was, by the number that its gangs know it by."""

    listed: list[Group] = field(default_factory=list)
    number_by_word: dict[str, int] = field(default_factory=dict)  # the newest of each word
    forms: dict[int, int] = field(default_factory=dict)  # of those that are complete

    def open(self, word: str, wanted: int, gangs: list[int]) -> int:
        """A new group; whoever says the word from now on means this one."""
        number = self.number_by_word[word] = len(self.listed)
        self.listed.append(Group(word, wanted, gangs))
        return number

    def find_open(self, word: str, wanted: int) -> int:
        """The group of a word that is not full, else a new one: a word may be used again once its group is full."""
        number = self.number_by_word.get(word, -1)
        if number < 0 or len(self.listed[number].gangs) >= self.listed[number].wanted:
            return self.open(word, wanted, [])
        return number

    def complete(self, number: int, form: int) -> None:
        """All are here, and what they need together is known."""
        # Twice, for two readers: gates ask the group, and a snapshot shows the engine the forms alone.
        self.listed[number].form = self.forms[number] = form

    def give_place(self, number: int, gang: int) -> None:
        """One of its gangs is not part of it any more, and another one may come in its place."""
        group = self.listed[number]
        group.gangs.remove(gang)
        # What they need together is known again when another one has come; by the word it finds this group, unless a
        # later one of that word is still open.
        group.form = -1
        self.forms.pop(number, None)
        latest = self.number_by_word.get(group.word, number)
        if len(self.listed[latest].gangs) >= self.listed[latest].wanted:
            self.number_by_word[group.word] = number
        if not group.gangs:
            self.drop(number)

    def drop(self, number: int) -> None:
        """Nobody will ask for it again; its number stays."""
        word = self.listed[number].word
        if self.number_by_word.get(word) == number:
            del self.number_by_word[word]
        self.forms.pop(number, None)
        self.listed[number] = DROPPED

    def clone(self) -> Groups:
        """The same for a copy of the state."""
        listed = [replace(group, gangs=list(group.gangs)) for group in self.listed]
        return Groups(listed, dict(self.number_by_word), dict(self.forms))


@dataclass(slots=True)
class Dependencies:
    """Whose end somebody waits for, and how everybody ended who has."""

    # Who waits for a name, which may be one that has not come yet.
    waiting: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, Phase] = field(default_factory=dict)

    def wait(self, number: int, name: str) -> None:
        """A gang waits for somebody's end."""
        self.waiting.setdefault(name, []).append(number)

    def clone(self) -> Dependencies:
        """The same for a copy of the state."""
        return Dependencies({name: list(numbers) for name, numbers in self.waiting.items()}, dict(self.ended))
