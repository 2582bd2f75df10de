"""The engine decides what it decided when this was recorded, plan by plan.

For changes that should change nothing: thousands of drawn snapshots, each planned under every policy and compared
with a digest in `plans.txt`. The file is made by running this module as a program:

    python tests/replay/test_same_plans.py --record      write plans.txt anew, with the engine as it is
    python tests/replay/test_same_plans.py --count       how often each kind of decision occurs
    python tests/replay/test_same_plans.py --show 7 easy     what is decided there, to lay beside another version's

Where a mended defect changes a plan on purpose, `mended.txt` has a line for it: seed, way, the digest it has now, and
what was mended. Such a plan must differ from the record and be the one named; every other must be as recorded.
"""

import sys
from collections import Counter
from pathlib import Path
from pprint import pformat

import pytest
from selection import rest_long

from phalanx.testing.digests import WAYS, digest_plan, digest_snapshot, list_kinds, make_plan
from phalanx.testing.drawn import draw_snapshot

RECORD = Path(__file__).with_name("plans.txt")
SEEDS = 1100
CHUNK = 50

#: What was mended since the record was made, by the word in `mended.txt`, and what of a plan it changes.
CAUSES: dict[str, str] = {}


def read_mended(text):
    """(seed, way) → the digest it has now, and the cause."""
    rows = [line.split() for line in text.splitlines()]
    return {(int(seed), way): (digest, cause) for seed, way, digest, cause in rows}


MENDED = read_mended(Path(__file__).with_name("mended.txt").read_text(encoding="utf-8"))

#: What must occur, and how often at the least. Gaps would be parts of the engine that nobody compares.
OFTEN = 30
KINDS = [
    *("bind", "bind as guest", "bind as guest with surplus", "move", "repair", "restart"),
    *(f"resize for {cause}" for cause in ("loan", "guest", "drain", "pin", "grow")),
    *(f"evict for {cause}" for cause in ("preempt", "reclaim", "guest", "drain", "turn")),
    *("reservation", "infeasible", "settled in", "wake", "ledger"),
]
#: What may occur less often: few drawn gangs have dates that can still be met by more members, and a balance needs two
#: elastic ones beside each other. `tests/property/test_dividing.py` and `tests/oracle` are about these.
RARE = ["resize for share", "resize for balance"]


# --- the record ----------------------------------------------------------------------------------


def read_record(text):
    """Counts by kind, the ways, and by seed the digest of the snapshot followed by one for each way."""
    lines = text.splitlines()
    counts = {kind: int(count) for count, kind in (line[2:].split(" ", 1) for line in lines if line.startswith("# "))}
    _, _, *ways = next(line for line in lines if line.startswith("seed ")).split()
    rows = [line.split() for line in lines if line[:1].isdigit()]
    return counts, ways, {int(seed): digests for seed, *digests in rows}


def plan_all(seeds):
    """Digests by seed, and how often each kind of decision occurs."""
    digests, counts = {}, Counter()
    for seed in seeds:
        snapshot = draw_snapshot(seed)
        plans = [make_plan(snapshot, seed, way) for way in WAYS]
        counts.update(kind for plan in plans for kind in list_kinds(plan))
        digests[seed] = [digest_snapshot(snapshot), *map(digest_plan, plans)]
    return digests, counts


def write_record(digests, counts):
    told = [f"# {count} {kind}" for kind, count in sorted(counts.items())]
    rows = [" ".join((str(seed), *row)) for seed, row in digests.items()]
    return "\n".join((*told, " ".join(("seed", "snapshot", *WAYS)), *rows)) + "\n"


def find_differences(expected, found):
    """(seed, way) of whatever is not as recorded; `snapshot` stands for the drawing itself."""
    return [
        (seed, way)
        for seed, row in found.items()
        for way, before, now in zip(("snapshot", *WAYS), expected[seed], row, strict=True)
        if before != now
    ]


def judge(differing, mended, seeds):
    """What is wrong, in sentences: plans that differ without a reason, and reasons without a difference."""
    told = [place for place in differing if place not in mended]
    stale = [place for place in mended if place[0] in seeds and place not in differing]
    findings = []
    drawn = sorted({seed for seed, way in told if way == "snapshot"})
    if drawn:
        findings.append(f"{len(drawn)} snapshots are drawn otherwise, so their plans mean nothing: seeds {drawn}")
    plans = [(seed, way) for seed, way in told if seed not in drawn]
    if plans:
        by_way = ", ".join(f"{way} {count}" for way, count in Counter(way for _, way in plans).most_common())
        named = "; ".join(f"seed {seed} under {way}" for seed, way in plans[:20])
        findings.append(f"{len(plans)} of {len(seeds) * len(WAYS)} plans differ ({by_way}): {named}")
    findings += [f"MENDED names seed {seed} under {way}, which does not differ: take it off" for seed, way in stale]
    return findings


# --- tests ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record():
    return read_record(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("first", rest_long(range(0, SEEDS, CHUNK), 8))
def test_the_plans_are_those_recorded(record, first):
    _, _, expected = record
    seeds = range(first, min(first + CHUNK, SEEDS))
    found, _ = plan_all(seeds)
    assert judge(find_differences(expected, found), MENDED, seeds) == []
    columns = {way: at for at, way in enumerate(("snapshot", *WAYS))}
    other = [
        place
        for place, (digest, _) in MENDED.items()
        if place[0] in seeds and found[place[0]][columns[place[1]]] != digest
    ]
    assert other == [], "a mended plan is not the one that was named"


def test_the_record_is_of_these_seeds_and_ways(record):
    _, ways, expected = record
    assert ways == list(WAYS)
    assert list(expected) == list(range(SEEDS))
    assert SEEDS * len(WAYS) >= 10_000


def test_every_kind_of_decision_is_among_them(record):
    counts, _, _ = record
    assert {kind: counts.get(kind, 0) for kind in KINDS if counts.get(kind, 0) < OFTEN} == {}
    unheard = [kind for kind in counts if kind not in [*KINDS, *RARE] and not kind.startswith("verdict ")]
    assert unheard == []


def test_a_mended_plan_must_exist_and_have_a_reason():
    ways = {"snapshot", *WAYS}
    assert all(seed in range(SEEDS) and way in ways and why in CAUSES for (seed, way), (_, why) in MENDED.items())


def test_a_plan_that_differs_is_named():
    first = next(iter(WAYS))
    same = {3: ["s", *"a" * len(WAYS)], 4: ["s", *"a" * len(WAYS)]}
    other = {3: ["s", "b", *"a" * (len(WAYS) - 1)], 4: ["t", "b", *"a" * (len(WAYS) - 1)]}
    assert find_differences(same, same) == []
    differing = find_differences(same, other)
    assert differing == [(3, first), (4, "snapshot"), (4, first)]
    drawn, plans = judge(differing, {}, range(3, 5))
    assert "drawn otherwise" in drawn
    assert "seeds [4]" in drawn
    assert plans == f"1 of {2 * len(WAYS)} plans differ ({first} 1): seed 3 under {first}"
    assert judge([(3, first)], {(3, first): "why"}, range(3, 5)) == []
    assert "take it off" in judge([], {(3, first): "why"}, range(3, 5))[0]
    assert judge([], {(3, first): "why"}, range(5, 9)) == []


def test_a_record_is_read_as_it_was_written():
    digests, counts = plan_all(range(2))
    assert read_record(write_record(digests, counts)) == (dict(counts), list(WAYS), digests)


def main(words):
    if words[:1] == ["--show"]:
        seed, way = int(words[1]), words[2]
        sys.stdout.write(pformat(make_plan(draw_snapshot(seed), seed, way).key(), width=110) + "\n")
        return
    digests, counts = plan_all(range(SEEDS))
    text = write_record(digests, counts)
    if words == ["--record"]:
        RECORD.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(line + "\n" for line in text.splitlines() if line.startswith("# ")))


if __name__ == "__main__":
    main(sys.argv[1:])
