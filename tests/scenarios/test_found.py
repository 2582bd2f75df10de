"""Small worlds in which a rule was broken once: what should happen, and whether the judge of results would see it.

Each was drawn at random and cut down (`phalanx.testing.whole_worlds`); its first lines say what should happen. A world
that still turns out wrong is expected to fail, strictly: whoever mends it takes its line off `BROKEN`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import read_scenario
from phalanx.testing.judge import Book, judge
from phalanx.testing.twins import find_unlike

FOUND = Path(__file__).resolve().parent / "found"
SECOND = 1_000_000
TAKERS = ("fair", "deadline", "goodput")


def starts(**wanted):
    """These gangs start at these seconds."""

    def holds(book):
        told = {gang.name: gang.start_us for gang in book.told}
        return all(told[name] == at * SECOND for name, at in wanted.items())

    return holds


def empty(node, since, until, *, leaving=True):
    """Nobody sits on a node between two instants, and nobody is still leaving it."""

    def holds(book):
        return not any(
            stay.places.get(node)
            and stay.start_us < until * SECOND
            and stay.end_us > since * SECOND
            and (leaving or stay.how != "leaving")
            for stay in book.stays
        )

    return holds


def never(*pair):
    """No gang has these two entries one after the other in one instant."""

    def holds(book):
        return not any(
            (entry.event, later.event) == pair and entry.at_us == later.at_us
            for told in book.told
            for entry, later in zip(told.history, told.history[1:], strict=False)
        )

    return holds


def without(name, event):
    """This never happens to a gang."""

    def holds(book):
        return all(entry.event != event for told in book.told if told.name == name for entry in told.history)

    return holds


def reason(name, code, needed):
    """A gang waits for this."""

    def holds(book):
        told = next(gang for gang in book.told if gang.name == name)
        return told.reason is not None and (told.reason[0], told.reason[2]) == (code, needed)

    return holds


def refused(name):
    """A gang is told at once that it asks for too much."""

    def holds(book):
        told = next(gang for gang in book.told if gang.name == name)
        return told.state == "infeasible" and told.reason[0] == "DeadlineUnreachable"

    return holds


#: file → (policies, what should happen, what the judge calls it otherwise)
WANTED = {
    "01-vacated-seat-given-away": (TAKERS, starts(taker=120, thief=120), "seat-in-pause"),
    "02-together-starts-apart": (TAKERS, starts(left=110, right=110), "together"),
    "03-reservation-moved-by-taking-from-a-guest": ((*TAKERS, "rotate"), starts(head=1000), "head-late"),
    "04-minimum-left-in-a-window": ((*TAKERS, "rotate"), empty("a0", 1000, 1500), "in-window"),
    "05-no-guests-on-slots": (("easy",), starts(guest=200), "twin-kind"),
    "queues-take-no-turns-on-slots": (("fair", "goodput"), starts(other=100, more=150), "twin-kind"),
    "a-surplus-beside-the-one-that-is-counted-on": (("fair",), starts(late=200, head=300), "needless-evict"),
    "06-hopeless-deadline-on-slots": (("deadline", "goodput"), refused("dream"), "hopeless"),
    "07-pause-inside-a-window": (
        (*TAKERS, "rotate"),
        lambda book: empty("n1", 980, 1500, leaving=False)(book) and empty("n1", 1000, 1500)(book),
        "pause-in-window",
    ),
    "08-reason-none": (("conservative",), reason("g3", "Capacity", 4), "reason"),
    "guest-evicted-beside-free-places": (("conservative",), never("evict", "bind"), "needless-evict"),
    "started-and-evicted-at-once-conservative": (("conservative",), never("bind", "evict"), "undone-start"),
    "started-and-evicted-at-once-rotate": (("rotate",), never("bind", "evict"), "undone-start"),
    "two-shrink-where-one-is-enough": (("fair",), starts(g8=20), "needless-shrink"),
    "a-giver-of-what-nobody-needs": (TAKERS, without("g1", "shrink"), "needless-shrink"),
    "a-taker-on-the-places-of-the-head": (("fair",), starts(g1=250), "head-late"),
    "a-promise-kept-late": (("conservative",), starts(g7=50), "head-late"),
    "started-and-evicted-at-the-first-instant": (("conservative",), never("bind", "evict"), "undone-start"),
    # Two runs that should be alike: which of them is right is for the rules of taking room to say.
    "turns-counted-in-gpus-only": (("rotate",), None, "twin-kind"),
    "another-giver-for-another-kind": (("goodput",), None, "twin-kind"),
    "a-dream-lets-another-start": (("goodput",), None, "twin-dream"),
}

#: What still turns out wrong, by file: under these policies.
BROKEN: dict[str, tuple[str, ...]] = {}

RUNS = [(name, policy) for name, (policies, _, _) in WANTED.items() for policy in policies]


def play(name, policy):
    path = FOUND / f"{name}.yaml"
    scenario = read_scenario(path)
    options = dict(scenario.policies).get(policy, {})
    result = simulate(scenario, policy, options)
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    findings = [*judge(scenario, result), *find_unlike(tree, result, options, ("kind", "dream"))]
    return Book(scenario, result), findings


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(name, policy, marks=[pytest.mark.xfail(strict=True)] if policy in BROKEN.get(name, ()) else [])
        for name, policy in RUNS
    ],
)
def test_the_world_turns_out_as_the_rules_say(name, policy):
    book, findings = play(name, policy)
    _, holds, kind = WANTED[name]
    assert holds(book) if holds else kind not in {finding.kind for finding in findings}


@pytest.mark.parametrize(("name", "policy"), [run for run in RUNS if WANTED[run[0]][1]])
def test_the_judge_sees_it_exactly_when_it_does_not(name, policy):
    book, findings = play(name, policy)
    _, holds, kind = WANTED[name]
    assert (kind in {finding.kind for finding in findings}) == (not holds(book)), findings


def test_every_file_has_an_expectation_and_the_other_way_round():
    assert {path.stem for path in FOUND.glob("*.yaml")} == set(WANTED)
