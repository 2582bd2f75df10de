"""Why a running gang changes its size: a word for programs and a sentence for people, by the numbers that decided it."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from phalanx.cli import main
from phalanx.control.instructions import SeatChange
from phalanx.control.resizes import say_resize, say_span
from phalanx.model.plan import Cause, Grounds, Seats
from phalanx.testing.builders import SECOND_US

MINUTE_US = 60 * SECOND_US

DATES = """
cluster: {nodes: [{name: n0, resources: {gpu: 16}}]}
gangs:
  - {name: long, members: {min: 2, max: 16}, each: {gpu: 1}, duration: 2h, walltime: 2h, resize_pause: 10s}
  - {name: paper, submit: 10m, members: {min: 2, max: 16}, each: {gpu: 1}, duration: 20m, walltime: 20m, deadline: 40m,
     resize_pause: 10s}
  - {name: short, submit: 15m, members: {min: 1, max: 16}, each: {gpu: 1}, duration: 5m, walltime: 5m, resize_pause: 10s}
policy: goodput
"""


@pytest.fixture
def dates(tmp_path: Path) -> Path:
    """Two hours that nobody waits for, a paper with a date, and something short."""
    scenario = tmp_path / "dates.yaml"
    scenario.write_text(DATES)
    return scenario


def run(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def change(before: int, after: int, cause: Cause, whom: int | None = None, **grounds: int) -> SeatChange:
    def seats(members: int) -> tuple[Seats, ...]:
        return (Seats(0, np.array([0]), np.array([members]), np.zeros((1, 1))),)

    return SeatChange(0, seats(before), seats(after), cause, whom, Grounds(**grounds) if grounds else None)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (change(8, 12, Cause.SHARE, needs=12), "gets 4 more because its date needs 12"),
        (change(8, 5, Cause.SHARE, 1, needs=12), "gives 3 back: b's date needs 12"),
        (
            change(8, 4, Cause.BALANCE, 1, saves_us=12 * MINUTE_US, costs_us=3 * MINUTE_US),
            "gives 4 to b, to which they are worth more (saves 12 min there, costs 3 min here)",
        ),
        (
            change(8, 7, Cause.BALANCE, 1, saves_us=90 * SECOND_US, costs_us=9 * SECOND_US, takers=3),
            "gives 1 to b and 2 more, to which it is worth more (saves 2 min there, costs 9 s here)",
        ),
        (change(4, 8, Cause.GROW, saves_us=65 * MINUTE_US), "gets 4 more that are idle (saves 1 h 5 min)"),
        (change(4, 5, Cause.GROW), "gets 1 more that is idle"),
        (change(8, 6, Cause.LOAN, 1), "gives 2 back so that b can start"),
        (change(8, 7, Cause.LOAN), "gives 1 back"),
        (change(8, 6, Cause.GUEST, 1), "gives 2 back to b, which had reserved where they were"),
        (change(8, 3, Cause.PIN), "goes to 3 because somebody wants that"),
        (change(3, 8, Cause.PIN), "goes to 8 because somebody wants that"),
        (change(8, 6, Cause.DRAIN), "gives 2 back: its node is emptied"),
        (change(8, 8, Cause.DRAIN), "leaves a node that is emptied"),
    ],
)
def test_every_cause_has_its_sentence(told, words):
    assert say_resize(told, "ab".__getitem__) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min"), (3570, "1 h"), (3600 * 25, "1 d 1 h"), (86_400 * 2, "2 d"), (-5, "0 s")],
)
def test_a_length_is_rounded_to_what_matters(seconds, words):
    assert say_span(seconds * SECOND_US) == words


def test_a_history_tells_cause_and_sentence_of_every_changed_size(dates):
    gangs = json.loads(run("sim", dates, "--json"))[0]["gangs"]
    told = {
        gang["name"]: [(each["cause"], each["because"]) for each in gang["history"] if "cause" in each]
        for gang in gangs
    }
    assert told["long"][:4] == [
        # Two for the start and six for the date, in one gift; the ten seconds until it begins cost one more.
        ("loan", "gives 8 back so that paper can start"),
        ("share", "gives 1 back: paper's date needs 9"),
        ("loan", "gives 1 back so that short can start"),
        ("balance", "gives 4 to short, to which they are worth more (saves 26 min there, costs 9 min here)"),
    ]
    assert told["paper"][:2] == [
        ("share", "gets 1 more because its date needs 9"),
        ("balance", "gives 1 to short, to which it is worth more (saves 40 min there, costs 4 min here)"),
    ]
    assert told["short"] == [
        ("grow", "gets 1 more that is idle (saves 40 min)"),
        ("grow", "gets 4 more that are idle (saves 26 min)"),
    ]
    # Only of sizes that a plan changed: starts and ends have no cause.
    assert all(
        "cause" not in each for gang in gangs for each in gang["history"] if each["event"] in ("bind", "complete")
    )


def test_a_forecast_lists_the_shares_and_gifts_to_come(dates):
    shown = run("what-if", "--from", dates, "--at", "15m")
    assert [line for line in shown.splitlines() if line.startswith(("+", "now:"))] == [
        "+10s: paper gives 1 to short, to which it is worth more (saves 40 min there, costs 4 min here)",
        "+1m20s: long gives 4 to short, to which they are worth more (saves 26 min there, costs 9 min here)",
    ]


def test_what_comes_with_and_without_a_change_is_not_told_as_its_doing(dates, tmp_path):
    more = tmp_path / "more.yaml"
    more.write_text("{name: huge, members: 99, each: {gpu: 1}, walltime: 1m}")  # never runs, and changes nothing
    shown = run("what-if", "--from", dates, "--at", "15m", "--add-gang", more)
    assert [line for line in shown.splitlines() if line.startswith(("+", "now:"))] == []


def test_a_change_tells_only_what_comes_of_it(dates, tmp_path):
    """Whoever comes with the change has a date; what the others would have done in any case is not told again."""
    state, more = tmp_path / "state.json", tmp_path / "more.yaml"
    run("what-if", "--from", dates, "--at", "5m", "-o", state)
    more.write_text(
        "{name: thesis, members: {min: 2, max: 16}, each: {gpu: 1}, walltime: 20m, deadline: 40m, resize_pause: 10s}"
    )
    shown = run("what-if", state, "--add-gang", more)
    assert [line for line in shown.splitlines() if line.startswith(("+", "now:"))] == [
        "now: long shrinks to 8 members: gives 8 back so that thesis can start",
        "+10s: long gives 1 back: thesis's date needs 9",
        "+20s: thesis gets 1 more because its date needs 9",
    ]
    tree = json.loads(run("what-if", state, "--add-gang", more, "--json"))
    long, thesis = tree["gangs"]
    assert long["before"]["events"] == [{"at_s": 7200, "event": "complete", "members": 0}]
    assert thesis["after"]["events"][:2] == [
        {"at_s": 310, "event": "bind", "members": 8},
        {
            "at_s": 320,
            "event": "grow",
            "members": 9,
            "cause": "share",
            "because": "gets 1 more because its date needs 9",
        },
    ]
