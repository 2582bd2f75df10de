"""How long jobs are expected to run, from how long earlier ones ran."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.control.forecasting import predictions
from phalanx.control.forecasting.predictions import ANYBODY, Predictions
from phalanx.frontends.host.core.predict import recall_runs
from phalanx.frontends.host.store import JobRecord


def note(told, *runs, user="ada", name="train", walltime_s=None):
    for ran_s in runs:
        told.note(user, name, ran_s, walltime_s)


def record(number, state, ran_s, gang, *, user="ada", name="train"):
    return JobRecord(
        id=number,
        uid=1,
        gid=1,
        user=user,
        name=name,
        queue="default",
        state=state,
        gang=msgspec.json.encode(gang),
        options=b"",
        submit_us=0,
        submit_wall=0.0,
        start_us=None if ran_s is None else 5_000_000,
        end_us=None if ran_s is None else 5_000_000 + round(ran_s * 1e6),
    )


def test_one_run_says_nothing_and_two_do():
    told = Predictions()
    note(told, 100)
    assert told.walltime_us("ada", "train") is None
    note(told, 200)
    # The longer of the two, with a fifth on top.
    assert told.walltime_us("ada", "train") == 240_000_000
    assert told.runs("ada", "train") == (100, 200)


def test_runs_of_another_person_or_name_do_not_count():
    told = Predictions()
    note(told, 100, 200)
    assert told.walltime_us("bob", "train") is None
    assert told.walltime_us("ada", "eval") is None


def test_only_the_last_ten_runs_count_and_one_straggler_of_ten_does_not():
    told = Predictions()
    note(told, 9999, *[100] * 10)
    assert told.walltime_us("ada", "train") == 120_000_000
    note(told, 5000)
    assert told.walltime_us("ada", "train") == 120_000_000
    note(told, 5000)
    assert told.walltime_us("ada", "train") == 6_000_000_000


def test_a_run_of_no_time_is_believed_to_take_a_second():
    told = Predictions()
    note(told, 0, 0)
    assert told.walltime_us("ada", "train") == 1_000_000


def test_the_ratio_is_the_persons_own_else_everybodys_else_that_of_anybody():
    told = Predictions()
    assert told.ratios("ada") == ANYBODY
    note(told, 10, 20, 30, 40, walltime_s=100)
    assert told.ratios("ada") == ANYBODY  # four are too few
    note(told, 50, walltime_s=100)
    learned = (0.1, 0.2, 0.3, 0.4, 0.5, *ANYBODY)
    assert told.ratios("ada") == told.ratios("bob") == learned
    note(told, *[200] * 5, user="bob", walltime_s=100)
    assert told.ratios("bob") == (*[2.0] * 5, *ANYBODY)
    assert told.ratios("ada") == learned


def test_jobs_without_a_stated_time_give_no_ratio_but_a_span():
    told = Predictions()
    note(told, 10, 20, 30, 40, 50)
    assert told.ratios("ada") == ANYBODY
    assert told.spans("ada") == told.spans("bob") == (10, 20, 30, 40, 50)  # as everybody's
    assert Predictions().spans("ada") == ()


@pytest.mark.parametrize("ran_s", [-1.0, float("nan"), float("inf")])
def test_a_clock_that_went_wrong_teaches_nothing(ran_s):
    told = Predictions()
    note(told, ran_s, ran_s, ran_s, ran_s, ran_s, walltime_s=10)
    assert told.walltime_us("ada", "train") is None
    assert told.ratios("ada") == ANYBODY
    assert told.spans("ada") == ()


def test_names_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(predictions, "NAMES_MOST", 3)
    told = Predictions()
    for name in ("a", "b", "c"):
        note(told, 10, 10, name=name)
    note(told, 10, name="a")  # used again: not the oldest any more
    note(told, 10, 10, name="d")
    assert told.walltime_us("ada", "b") is None
    assert all(told.walltime_us("ada", name) is not None for name in "acd")


def test_ended_jobs_are_loaded_newest_first_as_the_store_lists_them():
    told = Predictions()
    newest_first = [
        record(4, "cancelled", None, {"members": 1}),  # never began
        record(3, "failed", 1, {"members": 1, "walltime": "100s"}),
        record(2, "completed", 60, {"members": 1, "walltime": "2m"}),
        record(1, "completed", 30, {"members": 1, "walltime": 60}),
    ]
    recall_runs(told, newest_first)
    assert told.runs("ada", "train") == (30, 60)
    recall_runs(told, [record(n, "completed", 50, {"members": 1, "walltime": "100s"}) for n in (7, 6, 5)])
    assert told.ratios("ada") == (0.5, 0.5, 0.5, 0.5, 0.5, *ANYBODY)


def test_what_failed_or_was_cancelled_teaches_nothing():
    told = Predictions()
    stated = {"members": 1, "walltime": "4h"}
    recall_runs(told, [record(number, "failed" if number % 2 else "cancelled", 1, stated) for number in range(6)])
    assert (told.ratios("ada"), told.runs("ada", "train"), told.spans("ada")) == (ANYBODY, (), ())


def test_the_order_of_loading_keeps_the_newest(monkeypatch):
    monkeypatch.setattr(predictions, "RUNS_MOST", 2)
    told = Predictions()
    recall_runs(told, [record(3, "completed", 300, {}), record(2, "completed", 200, {}), record(1, "completed", 1, {})])
    assert told.runs("ada", "train") == (200, 300)


@pytest.mark.parametrize("gang", [{"walltime": "soon"}, {"walltime": [1]}, [], "x"])
def test_a_gang_that_cannot_be_read_states_no_time(gang):
    told = Predictions()
    recall_runs(told, [record(number, "completed", 10, gang) for number in range(6)])
    assert told.ratios("ada") == ANYBODY
    assert told.spans("ada") == (10,) * 6
