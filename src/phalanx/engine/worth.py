"""What more members are worth to a gang: by how much sooner it would be done, weighed against how long it takes.

Surplus goes, a step at a time, to whoever's next step is worth most (rule 16), and comes back from whoever would miss
it least. Both ask the same question of a gang at a size, and this is the answer: a number that rises as the expected
end comes nearer, and rises less and less. Only ratios of a gang's own curve go into it, so that a curve has no unit.

    expected(n)   start-up not yet had + (the pause, if n is another size than now) + what is left, at n members
    worth(n)      (R / expected(n)) ^ 3/4  /  R ^ 1/3,   R what is left at its least

The first factor is the speed-up over running at the minimum, with the pauses in it, and concave: the second device is
worth more than the ninth, and no gang keeps most of a cluster while others crawl. The second factor puts who is nearly
done before who is not, which shortens the mean (shortest remaining time first), and softly: with a whole power of R
instead of a third, a long gang would wait for every short one. Decision 18 has how the two exponents were found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from phalanx.model.gang import Gang
from phalanx.perfmodel.speedup import Speedup, Table, speedup_at

#: Nothing is planned for shorter than this.
SHORTEST_US = 1

#: (expected, left at its least) in µs → worth. The second argument is the same for all sizes of one gang.
Weigh = Callable[[float, float], float]


def weigh_paced(expected_us: float, least_us: float) -> float:
    """The worth above."""
    return float((least_us / expected_us) ** 0.75 / least_us ** (1 / 3))


def weigh_root(expected_us: float, least_us: float) -> float:
    """One exponent instead of two, and no reference to the least size: nearly as good, and easier to explain."""
    return float(expected_us**-0.5)


#: Named, for policy files.
WEIGHTS: dict[str, Weigh] = {"paced": weigh_paced, "root": weigh_root}


@dataclass(slots=True, eq=False)
class Prospect:
    """How long one elastic gang still takes at each size, and what that is worth."""

    gang: Gang
    curve: Speedup
    weigh: Weigh
    members: int  # those it has now
    left_us: float  # run time left with them, start-up aside
    waits_us: int = 0  # start-up not yet had
    pause_us: int = 0  # what a change of size costs it now
    least_us: float = 0.0  # expected at its least, without a pause
    _work: float = 0.0
    _speed: dict[int, float] = field(default_factory=dict)
    _worth: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Work out what does not change with the size."""
        if isinstance(self.curve, Table):
            self._speed = dict(self.curve.points)  # most sizes that are asked for were measured
        self._work = self.left_us * self.speed(self.members)
        roles = self.gang.roles
        least = (
            sum(role.sizes.least for role in roles if role.sizes.elastic) if roles[1:] else roles[0].sizes.allowed[0]
        )
        self.least_us = max(float(SHORTEST_US), self.waits_us + self._work / self.speed(least))

    def speed(self, members: int) -> float:
        """By its curve, in the curve's own unit: only ratios are used."""
        found = self._speed.get(members)
        if found is None:
            found = self._speed[members] = speedup_at(self.curve, members)
        return found

    def expected_us(self, members: int) -> float:
        """Until it is done, with so many members from now on."""
        pause = self.pause_us if members != self.members else 0
        expected_us = self.waits_us + pause + self._work / self.speed(members)
        return expected_us if expected_us > SHORTEST_US else float(SHORTEST_US)

    def worth(self, members: int) -> float:
        """What so many members are worth to it."""
        found = self._worth.get(members)
        if found is None:
            found = self._worth[members] = self.weigh(self.expected_us(members), self.least_us)
        return found
