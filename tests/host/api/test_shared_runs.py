"""Batches whose jobs have most of `run` in common: what the core is given, and what is refused before it is asked."""

import json

import pytest

from phalanx.frontends.host.api import shared_runs
from phalanx.frontends.host.api.decoding import Decoder
from phalanx.frontends.host.messages import Batch, Submission
from phalanx.frontends.host.ports import Refused


def batch(*runs, **more):
    jobs = [{"gang": {"members": 1}, "run": run} for run in runs]
    return Decoder((Submission, Batch)).decode(json.dumps({"jobs": jobs, **more}).encode())


def runs_of(jobs):
    return [json.loads(bytes(job.run)) for job in jobs]


def test_what_a_job_says_itself_goes_before_what_is_shared():
    jobs = shared_runs.list_jobs(batch({}, {"cwd": "/b"}, {"env": {}}, run={"cwd": "/a", "env": {"A": "b"}}))
    assert runs_of(jobs) == [
        {"cwd": "/a", "env": {"A": "b"}},
        {"cwd": "/b", "env": {"A": "b"}},
        {"cwd": "/a", "env": {}},
    ]
    assert (len(jobs), runs_of([jobs[1]]), runs_of(jobs[2:])) == (3, runs_of(jobs)[1:2], runs_of(jobs)[2:])


def test_without_anything_shared_jobs_are_as_they_came():
    found = batch({"command": ["true"]})
    assert shared_runs.list_jobs(found) is found.jobs


def test_elements_of_an_array_are_one_text_in_memory():
    jobs = list(shared_runs.list_jobs(batch(*[{}] * 1000, run={"env": {"BIG": "x" * 100_000}})))
    assert len({id(bytes(job.run)) for job in jobs}) == 1


def test_so_much_is_spread_and_no_more(monkeypatch):
    """A small request must not become any number of gigabytes."""
    monkeypatch.setattr(shared_runs, "SPREAD_BYTES_MAX", 10_000)
    assert len(shared_runs.list_jobs(batch(*[{}] * 9, run={"env": {"A": "x" * 1000}}))) == 9
    with pytest.raises(Refused, match="the most is") as no:
        shared_runs.list_jobs(batch(*[{}] * 10, run={"env": {"A": "x" * 1000}}))
    assert no.value.refusal.code == "too_large"


@pytest.mark.parametrize(("runs", "shared"), [([{}], []), ([{}], "x"), ([[]], {"env": {}}), ([{}], None)])
def test_what_is_no_mapping_is_a_usage_error(runs, shared):
    with pytest.raises(Refused, match="expected object") as no:
        list(shared_runs.list_jobs(batch(*runs, run=shared)))
    assert no.value.refusal.code == "usage"
