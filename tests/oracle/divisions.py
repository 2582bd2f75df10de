"""Tiny worlds of elastic gangs, and the best that can be made of each of them by trying everything.

A world: 4 to 8 GPUs on one node, two to four elastic gangs, all submitted at 0. Only counts matter: any free GPUs do
for any gang. A gang has allowed sizes, a run time at each of them (by its curve), a start-up, a pause and perhaps a date.

*Static division*: whoever starts at 0 is given one size for its whole run, and together they fit. All start at 0 where
all minimums fit. Else those who do are any set beside whose minimums no other minimum fits; the rest start later, in any
order, each with one size, as soon as that is free. So nobody waits by choice at 0, which is the frame of rule 16
(minimums first): whether a gang had better wait for another is a question of starts, not of how surplus is divided.

*One later change*: a static division up to the instant at which one of its gangs ends; from there on everybody left has
another size, or the same. Whoever changes pays its pause, and seats change hands at that instant. The engine's givers
leave theirs only after their own pause, so that the engine is held to a little more than it can do.

Both are searched in full: sizes depth first with room as the bound, and every end at which more dates can still be met
than by the best so far.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

from phalanx.perfmodel.speedup import Amdahl, Linear, Speedup, Table, speedup_at

#: A date is met by the oracle only with this much to spare, in seconds: the engine's ends are rounded to microseconds.
ROUNDED = 0.001


@dataclass(frozen=True)
class TinyGang:
    """One elastic gang, in seconds."""

    sizes: tuple[int, ...]
    curve: Speedup
    length: float  # at its largest
    startup: float
    pause: float
    date: float | None

    def run(self, size: int) -> float:
        """How long it runs at a size, start-up aside."""
        return self.length * speedup_at(self.curve, self.sizes[-1]) / speedup_at(self.curve, size)

    def meets(self, end: float) -> bool:
        """Whether it has a date and makes it."""
        return self.date is not None and end + ROUNDED <= self.date


@dataclass(frozen=True)
class TinyWorld:
    """So many GPUs and these gangs."""

    gpus: int
    gangs: tuple[TinyGang, ...]

    @property
    def dated(self) -> bool:
        """Whether anybody has a date."""
        return any(gang.date is not None for gang in self.gangs)

    @property
    def all_fit(self) -> bool:
        """Whether everybody's minimum fits beside everybody's."""
        return sum(gang.sizes[0] for gang in self.gangs) <= self.gpus

    def scenario(self) -> dict[str, object]:
        """As a scenario file says it."""
        return {
            "cluster": {"nodes": [{"name": "n0", "resources": {"gpu": self.gpus}}]},
            "gangs": [_written(at, gang) for at, gang in enumerate(self.gangs)],
        }


@dataclass(frozen=True, order=True)
class Outcome:
    """What came of a world: more dates are better, then a smaller mean completion."""

    met: int
    earlier: float  # mean completion, negated

    @property
    def mean(self) -> float:
        """Mean completion in seconds."""
        return -self.earlier


def judge(world: TinyWorld, ends: list[float]) -> Outcome:
    """Of the ends of its gangs."""
    met = sum(gang.meets(end) for gang, end in zip(world.gangs, ends, strict=True))
    return Outcome(met, -sum(ends) / len(ends))


def best_static(world: TinyWorld) -> Outcome:
    """Of all static divisions."""
    if world.all_fit:
        return max(judge(world, _ends(world, sizes)) for sizes in _fitting(world.gangs, world.gpus))
    return max(judge(world, ends) for ends in _lined_up(world))


def best_with_one_change(world: TinyWorld) -> int:
    """Dates met by the best of all static divisions with one later change; of a world where everybody starts at 0."""
    best = 0
    for sizes in _fitting(world.gangs, world.gpus):
        ends = _ends(world, sizes)
        for instant in sorted(set(ends)):
            left = [at for at, end in enumerate(ends) if end > instant]
            past = sum(gang.meets(end) for gang, end in zip(world.gangs, ends, strict=True) if end <= instant)
            hoped = sum(world.gangs[at].date is not None for at in left)
            if past + hoped <= best:
                continue
            for others in _fitting(tuple(world.gangs[at] for at in left), world.gpus):
                met = past
                for at, size in zip(left, others, strict=True):
                    met += world.gangs[at].meets(_changed(world.gangs[at], sizes[at], size, ends[at], instant))
                best = max(best, met)
    return best


def _changed(gang: TinyGang, before: int, after: int, end: float, instant: float) -> float:
    """Its end, if it has another size from an instant on."""
    if before == after:
        return end
    waits = max(0.0, gang.startup - instant)
    return instant + gang.pause + waits + (end - instant - waits) / gang.run(before) * gang.run(after)


def _ends(world: TinyWorld, sizes: tuple[int, ...]) -> list[float]:
    return [gang.startup + gang.run(size) for gang, size in zip(world.gangs, sizes, strict=True)]


def _fitting(gangs: tuple[TinyGang, ...], room: int) -> Iterator[tuple[int, ...]]:
    """Sizes for all of them that fit together."""
    if not gangs:
        yield ()
        return
    rest = sum(gang.sizes[0] for gang in gangs[1:])
    for size in gangs[0].sizes:
        if size + rest > room:
            break
        for others in _fitting(gangs[1:], room - size):
            yield (size, *others)


def _lined_up(world: TinyWorld) -> Iterator[list[float]]:
    """Ends under all sizes and orders in which each starts as soon as its size is free."""
    # Every schedule without a gap that somebody could close comes from some order, and closing gaps harms nobody:
    # the best of all start times is among these.
    for sizes in product(*(tuple(size for size in gang.sizes if size <= world.gpus) for gang in world.gangs)):
        lengths = _ends(world, sizes)
        if sum(sizes) <= world.gpus:
            yield lengths
            continue
        for order in permutations(range(len(sizes))):
            spans: list[tuple[float, float, int]] = []
            ends = [0.0] * len(sizes)
            for at in order:
                begin = _first_room(spans, lengths[at], sizes[at], world.gpus)
                ends[at] = begin + lengths[at]
                spans.append((begin, ends[at], sizes[at]))
            # Exact: whoever starts at 0 ends at 0.0 + its length.
            first = [at for at in order if ends[at] == lengths[at]]
            held = sum(world.gangs[at].sizes[0] for at in first)
            if all(held + world.gangs[at].sizes[0] > world.gpus for at in order if at not in first):
                yield ends


def _first_room(spans: list[tuple[float, float, int]], length: float, size: int, gpus: int) -> float:
    """When so many GPUs are free for so long, first."""
    for begin in sorted({0.0, *(end for _, end, _ in spans)}):
        marks = [begin, *(start for start, _, _ in spans if begin < start < begin + length)]
        if all(sum(taken for start, end, taken in spans if start <= mark < end) + size <= gpus for mark in marks):
            return begin
    raise AssertionError("the end of the last is always free")


def draw_world(seed: int) -> TinyWorld:
    """Of many kinds; everybody's minimum fits, and in about one of four nobody has a date."""
    rng = random.Random(f"tiny {seed}")
    gpus, count = rng.choice([4, 5, 6, 7, 8]), rng.randint(2, 4)
    return _draw(rng, gpus, count, gpus // count)


def draw_crowded(seed: int) -> TinyWorld:
    """The same with larger minimums, of which not all fit."""
    rng = random.Random(f"crowded {seed}")
    while True:
        gpus = rng.choice([4, 5, 6, 7, 8])
        world = _draw(rng, gpus, rng.randint(2, 4), gpus // 2 + 1)
        if not world.all_fit:
            return world


def _draw(rng: random.Random, gpus: int, count: int, least_most: int) -> TinyWorld:
    dated = rng.choice([0.0, 0.6, 0.8, 1.0])
    return TinyWorld(gpus, tuple(_draw_gang(rng, gpus, least_most, dated) for _ in range(count)))


def _draw_gang(rng: random.Random, gpus: int, least_most: int, dated: float) -> TinyGang:
    least = rng.choice([1, rng.randint(1, min(least_most, gpus - 1))])
    most = rng.randint(least + 1, gpus)
    if rng.random() < 0.3:
        sizes = tuple(sorted({least, most, *(size for size in (2, 4, 8) if least < size <= most)}))
    else:
        sizes = tuple(sorted({least, most, *(size for size in range(least, most) if rng.random() < 0.7)}))
    curve = _draw_curve(rng, gpus)
    alone = rng.choice([300, 1000, 3000, 10000]) * rng.uniform(0.5, 2) * speedup_at(curve, 1)
    pause = float(rng.choice([0, 1, 5, 20]))
    startup = rng.choice([0.0, pause, 30.0])
    length = round(alone / speedup_at(curve, sizes[-1]), 3)
    gang = TinyGang(sizes, curve, length, startup, pause, None)
    if rng.random() >= dated:
        return gang
    date = round(startup + gang.run(rng.choice(sizes)) * rng.uniform(1.0, 2.0) + 0.01, 3)
    return TinyGang(sizes, curve, length, startup, pause, date)


def _draw_curve(rng: random.Random, gpus: int) -> Speedup:
    kind = rng.choice(["amdahl", "amdahl", "linear", "table"])
    if kind == "linear":
        return Linear()
    if kind == "amdahl":
        return Amdahl(rng.choice([0.02, 0.1, 0.3]))
    speed, points = rng.choice([1.0, 120.0]), []
    points.append((1, round(speed, 4)))
    for members in range(2, gpus + 1):
        speed += points[0][1] * rng.uniform(0.1, 1.0)
        points.append((members, round(speed, 4)))
    return Table(tuple(points))


def _written(at: int, gang: TinyGang) -> dict[str, object]:
    match gang.curve:
        case Linear():
            curve: object = "linear"
        case Amdahl(serial):
            curve = {"amdahl": serial}
        case Table(points):
            curve = {"table": dict(points)}
    written: dict[str, object] = {
        "name": f"g{at}", "members": {"sizes": list(gang.sizes)},
        "each": {"gpu": 1}, "duration": gang.length, "walltime": gang.length, "speedup": curve,
        "startup": gang.startup, "resize_pause": gang.pause,
    }  # fmt: skip
    return written if gang.date is None else {**written, "deadline": gang.date}
