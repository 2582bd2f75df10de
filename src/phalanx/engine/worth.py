"""What more members are worth to a gang: by how much sooner it would be done, weighed against how long it takes.

Surplus goes, a step at a time, to whoever's next step is worth most (rule 16), and comes back from whoever would miss
it least. Both ask the same question of a gang at a size, and this is the answer: a number that rises as the expected
end comes nearer, and rises less and less. Only ratios of a gang's own curve go into it, so that a curve has no unit.

    expected(n)   start-up not yet had + (the pause, if n is another size than now) + what is left, at n members
    worth(n)      (R / expected(n)) ^ 3/4  /  R ^ 1/3,   R what is left at its least

The first factor is the speed-up over running at the minimum, with the pauses in it, and concave: the second device is
worth more than the ninth, and no gang keeps most of a cluster while others crawl. The second factor puts who is nearly
done before who is not, which shortens the mean (shortest remaining time first), and softly: with a whole power of R
instead of a third, a long gang would wait for every short one. docs/decisions has how the two exponents were found.
"""

from __future__ import annotations

from collections.abc import Callable

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
