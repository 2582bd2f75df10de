"""Clusters and gangs to measure on, the same on every run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Bind
from phalanx.model.topology import Topology
from phalanx.policy import named

GIB = 1 << 30
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
MODELS = ("a100", "h100", "h200", "b200")


def make_fleet(counts: Sequence[int], levels: Sequence[str], gpus: int = 8) -> Fleet:
    """A tree of domains: `counts` says how many of each level stand in one of the level above, nodes last."""
    nodes = []
    for path in itertools.product(*(range(count) for count in counts)):
        labels = {level: f"{level}{at}" for level, at in zip(levels, path[:-1], strict=True)}
        labels["gpu-model"] = MODELS[path[0] % len(MODELS)]
        resources = {"gpu": gpus * 1000, "cpu": gpus * 12_000, "memory": gpus * 128 * GIB}
        nodes.append(Node("-".join(f"n{at}" for at in path), resources, labels))
    return Fleet(nodes, tuple(levels))


def make_shape(gpu: int, cpu: int = 0, memory_gib: int = 0, models: tuple[str, ...] = ()) -> Shape:
    """A member that asks for whole devices, cores and memory."""
    need = {"gpu": gpu * 1000, "cpu": cpu * 1000, "memory": memory_gib * GIB}
    select = (("gpu-model", models),) if models else ()
    return Shape(tuple(sorted((kind, units) for kind, units in need.items() if units)), select)


def make_gang(name: str, shape: Shape, members: int, **rest: object) -> Gang:
    """A rigid gang of one role."""
    return Gang(name, (Role("member", Sizes((members,)), shape),), **rest)  # type: ignore[arg-type]


def start_all(state: State) -> list[Bind]:
    """Start whatever fits, in order of arrival, and let the rest go."""
    plan = schedule(state.borrow(), named("pod-fifo"))
    state.apply(plan)
    for number in state.pending.columns["gang"][state.pending.alive].tolist():
        state.cancel(number)
    return [decision for decision in plan.decisions if isinstance(decision, Bind)]


def make_partly_busy(fleet: Fleet, share: float, seed: int) -> State:
    """A cluster in which this share of the nodes has one to seven of its devices taken."""
    rng = random.Random(seed)
    state = State(fleet)
    for node in rng.sample(fleet.names, int(share * len(fleet))):
        shape = make_shape(rng.randint(1, 7), rng.randint(1, 12))
        held = Shape(shape.need, (("node", (node,)),))
        state.submit(make_gang(f"busy-{node}", held, 1, walltime_us=rng.randint(1, 48) * HOUR_US))
    start_all(state)
    return state


def draw_shapes(count: int, rng: random.Random) -> list[tuple[Shape, Topology]]:
    """So many different shapes, some bound to a model, some with a wish about the network."""
    found: dict[Shape, Topology] = {}
    wishes = (Topology(), Topology(), Topology(prefer="rack"), Topology(require="block"), Topology(require="rack"))
    while len(found) < count:
        gpu = rng.choice((1, 1, 2, 4, 8))
        models = (rng.choice(MODELS),) if rng.random() < 0.4 else ()
        shape = make_shape(gpu, gpu * rng.randint(2, 11), gpu * rng.randint(8, 120), models)
        found.setdefault(shape, rng.choice(wishes))
    return list(found.items())


def draw_gangs(
    shapes: Sequence[tuple[Shape, Topology]], queues: Sequence[str], rng: random.Random, prefix: str
) -> Iterator[Gang]:
    """An endless line of gangs; no two have the same walltime."""
    for at in itertools.count():
        shape, topology = rng.choice(shapes)
        yield make_gang(
            f"{prefix}{at}",
            shape,
            rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 16)),
            topology=topology,
            queue=rng.choice(queues),
            user=f"u{rng.randrange(200)}",
            walltime_us=rng.randrange(600, 48 * 3600) * SECOND_US + at,
        )
