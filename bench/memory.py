"""Bytes that one pending gang costs, everything counted: the gang itself, its record, its row."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc

from bench.measure import Measured
from bench.worlds import make_fleet
from phalanx.control.spec.gangs import Known, parse_gang
from phalanx.control.spec.reader import parse_text
from phalanx.control.spec.spot import Spot
from phalanx.control.state import State
from phalanx.model.queue import Queue

NAME = "memory"
WHAT = "memory per pending gang, as parsed from what a user sent"
TARGET_BYTES = 2_000
QUEUES = tuple(f"q{at:02}" for at in range(50))


def run(*, quick: bool) -> Measured:
    """Every gang is parsed from its own text, so nothing is shared that a parser would not share."""
    count = 20_000 if quick else 100_000
    state = State(make_fleet((20, 50), ("rack",)), [Queue(name) for name in QUEUES])
    known = Known(QUEUES, ("rack",))
    rng = random.Random(5)
    texts = [describe(rng, at) for at in range(count)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for text in texts:
        state.submit(parse_gang(Spot(parse_text(text, "bench", ".json"), "bench"), known))
    gc.collect()
    used = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    return Measured(f"{used:,.0f} B", f"≤ {TARGET_BYTES:,} B", used <= TARGET_BYTES, f"{count:,} gangs")


def describe(rng: random.Random, at: int) -> str:
    """A gang as JSON."""
    gpu = rng.choice((1, 2, 4, 8))
    return json.dumps(
        {
            "name": f"train-{at}",
            "queue": rng.choice(QUEUES),
            "user": f"user{rng.randrange(500)}",
            "members": rng.choice((1, 2, 4, 8, 16)),
            "each": {"gpu": gpu, "cpu": gpu * rng.randint(2, 12), "memory": f"{gpu * rng.randint(8, 120)}Gi"},
            "topology": {"prefer": "rack"},
            "walltime": f"{rng.randint(600, 172_800)}s",
        }
    )
