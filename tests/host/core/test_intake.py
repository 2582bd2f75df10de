"""Submissions that come in, and those that do not."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.frontends.host.core.intake import Intake, read_begin, read_run
from phalanx.frontends.host.messages import Submission
from phalanx.frontends.host.ports import Refused
from phalanx.model.fleet import Fleet, Node
from phalanx.model.queue import Queue
from phalanx.policy import named

FLEET = Fleet([Node("host", {"gpu": 4000, "cpu": 8000})], ())
QUEUES = [Queue("research", limit={"gpu": 2000})]


@pytest.fixture
def intake() -> Intake:
    return Intake(FLEET, QUEUES, [], named("goodput", {}), ())


def submission(gang: dict | None = None, run: dict | None = None, **rest) -> Submission:
    body = {
        "gang": {"members": 1, "each": {"gpu": 1}} | (gang or {}),
        "run": {"command": ["python", "train.py"], "cwd": "/"} | (run or {}),
    } | rest
    return msgspec.json.decode(msgspec.json.encode(body), type=Submission)


def refused(call) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        call()
    refusal = caught.value.refusal
    assert refusal.hint, "an error says what to do next"
    return refusal.code, refusal.message


def test_a_job_without_a_name_is_called_after_its_script(intake):
    assert intake.take(submission(), "ada", 0, 0.0).name == "train"
    assert intake.take(submission(run={"command": ["/bin/sleep", "5"]}), "ada", 0, 0.0).name == "sleep"
    assert intake.take(submission(run={"command": ["./42"]}), "ada", 0, 0.0).name == "job-42"


def test_what_can_never_run_is_refused_with_the_number(intake):
    code, message = refused(lambda: intake.take(submission({"members": 5}), "ada", 0, 0.0))
    assert code == "infeasible"
    assert "4 of 5" in message


def test_a_limit_of_the_queue_counts(intake):
    code, message = refused(lambda: intake.take(submission({"members": 3, "queue": "research"}), "ada", 0, 0.0))
    assert code == "infeasible"
    assert "research" in message


def test_it_may_wait_all_the_same_if_its_owner_wants_that(intake):
    taken = intake.take(submission({"members": 5}, allow_infeasible=True), "ada", 0, 0.0)
    assert "4 of 5" in taken.infeasible


@pytest.mark.parametrize(
    ("gang", "word"),
    [
        ({"queue": "reserch"}, "did you mean research?"),
        ({"membrs": 4}, "membrs"),
        ({"duration": 5}, "duration"),
        ({"user": "root"}, "user"),
        ({"members": {"min": 8, "max": 2}}, "min"),
    ],
)
def test_mistakes_in_the_gang_are_named(intake, gang, word):
    code, message = refused(lambda: intake.take(submission(gang), "ada", 0, 0.0))
    assert code == "usage"
    assert word in message


@pytest.mark.parametrize(
    ("run", "code"),
    [
        ({"command": []}, "usage"),
        ({"command": ["a\0b"]}, "usage"),
        ({"command": ["x" * 300_000]}, "too_large"),
        ({"env": {"A": "x" * 200_000}}, "too_large"),
        ({"env": {"A=B": "x"}}, "usage"),
        ({"env": {"": "x"}}, "usage"),
        ({"env": {"A": "x\0"}}, "usage"),
        ({"cwd": "here"}, "usage"),
        ({"grace_s": -1}, "usage"),
        ({"restarts": -1}, "usage"),
        ({"progress_regex": "("}, "usage"),
        ({"progress_regex": "step"}, "usage"),
        ({"surprise": 1}, "usage"),
    ],
)
def test_bounds_of_what_is_run(run, code):
    text = msgspec.json.encode({"command": ["true"], "cwd": "/"} | run)
    assert refused(lambda: read_run(text))[0] == code


@pytest.mark.parametrize(
    "name", ["a\nb", " a", "12", "-", "x" * 200, "\x1b[31m", "1-3", "1,4-5", "arr[1]", "a[0-3]", "a[]", "any:3", "ok:x"]
)
def test_names_fit_on_a_line_and_mean_no_other_jobs(intake, name):
    assert refused(lambda: intake.take(submission(name=name), "ada", 0, 0.0))[0] == "usage"


@pytest.mark.parametrize("part", [{"index": -1}, {"index": 10**9}, {"index": 10**30}, {"index": 0, "at_most": -3}])
def test_an_element_has_a_number_that_can_be_typed_and_its_array_may_run(intake, part):
    # With at_most -3 all of them waited for ever.
    code, message = refused(lambda: intake.take(submission(array={"of": "x", **part}), "ada", 0, 0.0))
    assert code == "usage"
    assert "of an array must be 0 to 999,999,999" in message
    assert intake.take(submission(array={"of": "x", "index": 999_999_999}), "ada", 0, 0.0).name == "train"


def test_requeue_makes_a_gang_preemptible(intake):
    assert intake.take(submission(run={"on_preempt": "requeue"}), "ada", 0, 0.0).gang.preemptible
    assert not intake.take(submission(), "ada", 0, 0.0).gang.preemptible


def test_begin_is_a_while_from_now_or_an_instant():
    assert read_begin("+10m", 5, 0.0) == 5 + 600_000_000
    assert read_begin("1970-01-01T01:00:00+00:00", 7, 1800.0) == 7 + 1_800_000_000
    assert refused(lambda: read_begin("tomorrow", 0, 0.0))[0] == "usage"


@pytest.mark.parametrize("resources", [{"cpu": 8000}, {"gpu": 0, "cpu": 8000}])
def test_where_there_are_no_gpus_made_up_ones_are_named(resources):
    bare = Intake(Fleet([Node("host", resources)], ()), QUEUES, [], named("goodput", {}), ())
    with pytest.raises(Refused) as caught:
        bare.take(submission(), "ada", 0, 0.0)
    assert caught.value.refusal.code == "infeasible"
    assert caught.value.refusal.hint.endswith("phalanx down && phalanx up --fake-gpus 8")
    with pytest.raises(Refused) as caught:
        bare.take(submission({"each": {"cpu": 100}}), "ada", 0, 0.0)
    assert "fake" not in caught.value.refusal.hint
