"""The table of the elastic peers: what is wanted, who is worst, what a date needed."""

from dataclasses import replace

import pytest

from bench import elastic_peers
from bench.elastic_peers import describe, measure, tabulate, tell_verdict, tell_worst
from bench.losers import Course, find_worst, read_course, tell
from bench.measure import Skipped
from bench.peers import SETS, Figures, PeerSet, Wanted
from phalanx.perfmodel.speedup import Table

# A hundred seconds at four members, a perfect curve in a unit of its own, and ten seconds for everything else.
SAID = {
    "name": "a",
    "submit": 50,
    "members": {"sizes": [1, 2, 4]},
    "duration": 100,
    "speedup": {"table": {"1": 7.0, "4": 28.0, "2": 14.0}},
    "startup": 10,
    "resize_pause": 10,
    "deadline": 300,
}
HISTORY = [
    {"at_s": 60, "event": "bind", "members": 1},
    {"at_s": 170, "event": "grow", "members": 2},
    {"at_s": 300, "event": "shrink", "members": 2},
    {"at_s": 330, "event": "complete", "members": 0},
]
RAN = {"name": "a", "submit_s": 50, "end_s": 360, "history": HISTORY}


def test_a_course_has_its_sizes_and_not_what_changed_nothing():
    course = read_course(SAID, RAN)
    assert course.steps == ((60, 1), (170, 2))
    assert course.curve == Table(((1, 7.0), (2, 14.0), (4, 28.0)))
    assert course.late_s == 10
    assert course.stretch == pytest.approx(310 / 110)


def test_what_a_date_needs_is_worked_out_anew_at_every_step():
    course = read_course(SAID, RAN)
    # At 60 there are 280 s after the start-up for 400 of one member's. At 170 a hundred of those are done, and there
    # are 170 s after the pause for the other 300.
    assert course.needs() == [2, 2]
    assert replace(course, date_s=261).needs() == [4, 4]
    assert replace(course, date_s=254).needs() == [4, None]
    assert replace(course, date_s=169).needs() == [None, None]


def test_the_worst_missed_their_date_by_most_and_who_met_it_is_not_among_them():
    late, later = read_course(SAID, RAN), replace(read_course(SAID, RAN), name="b", end_s=400)
    met = replace(late, name="c", end_s=340)
    assert find_worst([late, met, later], 2) == [later, late]
    assert find_worst([late, met], 2) == [late]
    assert tell_worst([met])[0] == "nobody who ran missed a date"


def test_without_dates_the_worst_took_longest_beside_themselves_alone():
    short = replace(read_course(SAID, RAN), name="short", date_s=None, duration_s=10)
    long = replace(short, name="long", duration_s=1000, end_s=short.end_s + 500)
    assert find_worst([long, short], 1) == [short]
    assert tell(short) == "short took 15.5 times as long as alone at 4: 10 s 1, 120 s 2"


def test_a_line_tells_each_size_with_what_the_date_needed_then():
    course: Course = read_course(SAID, RAN)
    assert tell(course) == "a missed its date by 10 s of 300: 10 s 1 (needs 2), 120 s 2 (needs 2)"
    many = replace(course, steps=tuple((60 + at, 1 + at % 2) for at in range(12)))
    assert tell(many).count(" s ") == 6 + 2 + 1
    assert ", 4 more, " in tell(many)


def test_better_is_more_dates_or_less_time():
    wanted = (Wanted("met", 140), Wanted("makespan_s", 900))
    assert tell_verdict(wanted, Figures("goodput", met=140, makespan_s=901)) == (
        "better: met ≥ 140, WORSE: makespan ≤ 900"
    )
    assert not Wanted("completion_s", 5).is_met(Figures("goodput"))


def test_figures_are_of_those_that_ended():
    result = {"metrics": {"deadlines_met": 1, "makespan_s": 9, "resizes": 2}, "gangs": [RAN, {**RAN, "end_s": None}]}
    assert measure("easy", result, 1.5) == Figures("easy", 1, 1, 310, 310, 9, 2, 1.5)


def test_only_the_policy_of_which_something_is_wanted_has_a_verdict():
    each = PeerSet("set", "1x1", (Figures("goodputs", met=3),), (Wanted("met", 2),))
    lines = tabulate(each, [Figures("goodput", met=1), Figures("easy", met=0)])
    assert [line.split()[:2] for line in lines[1:]] == [["goodput", "1"], ["easy", "0"], ["goodputs", "3"]]
    assert [line.endswith("WORSE: met ≥ 2") for line in lines[1:]] == [True, False, False]


def test_dates_that_nobody_can_meet_are_counted():
    # One second short of its start-up and its run time at its largest.
    gangs = [SAID, {**SAID, "deadline": 109}, {**SAID, "deadline": 110}]
    assert describe({"gangs": gangs}) == "3 jobs, 2 of 3 dates can be met by a job alone"
    del (undated := dict(SAID))["deadline"]
    assert describe({"gangs": [undated]}) == "1 jobs"


def test_without_the_files_the_row_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("PHALANX_TRACES", str(tmp_path))
    found = elastic_peers.run(quick=False)
    assert isinstance(found, Skipped)
    assert f"elastic-peers/{SETS[0].name}.json.gz" in found.why
    assert "PHALANX_TRACES" in found.why


def test_every_set_names_its_own_system_first_and_wants_more_than_it_or_nearly():
    for each in SETS:
        first = each.peers[0]
        assert first.name == {"e": "ElasticFlow", "s": "Sia"}[each.name[0]]
        for wanted in each.wanted:
            # Dates: at least as many. Times: within a tenth, below which the two models cannot be told apart.
            bound = getattr(first, wanted.figure) * (1.1 if wanted.figure != "met" else 1)
            assert wanted.bound >= bound if wanted.figure == "met" else wanted.bound <= bound
