"""Every change and every question, one by one, and again after a restart."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.frontends.host import messages
from phalanx.frontends.host.store import (
    AddEstimate,
    AddEvents,
    CloseEstimate,
    DropRun,
    EstimateRecord,
    EventRecord,
    InsertJobs,
    PutMeta,
    PutRun,
    RunRecord,
    UpdateJob,
    queries,
    schema,
)
from phalanx.frontends.host.store.stored_rows import JOB_COLUMNS

EVERYTHING = {
    "attempt": 2,
    "generation": 3,
    "held": True,
    "pin": 4,
    "seats": b"[1]",
    "memory": b"{}",
    "reason": b'{"code":"Held"}',
    "start_us": 10,
    "start_wall": 2.5,
    "end_us": 20,
    "end_wall": 3.5,
    "exit_code": 9,
    "failure": b"{}",
    "progress": b"{}",
    "ledger": b"{}",
}


def without_run(record, number):
    return msgspec.structs.replace(record, id=number, run=None)


def test_jobs_come_back_as_they_were_put_in_without_what_they_run(store, job):
    plain, full = job(), job(name="other", state="failed", run=b"\x00\xff", **EVERYTHING)
    assert store.write_now(InsertJobs(1000, None, [plain])) == [[1]]
    assert store.write_now(InsertJobs(1000, None, [full, plain])) == [[2, 3]]
    assert store.job(1) == without_run(plain, 1)
    assert store.job(2) == without_run(full, 2)
    assert store.job(2).held is True
    assert store.job(3).held is False
    assert store.load_run(1) == plain.run
    assert store.load_run(2) == b"\x00\xff"
    assert store.job(4) is None
    assert [record.id for record in store.jobs()] == [1, 3]
    assert store.jobs(ended=True) == [without_run(plain, 1), without_run(full, 2), without_run(plain, 3)]


def test_a_job_that_runs_nothing_says_so(store, job):
    store.write_now(InsertJobs(1000, None, [job(run=None)]))
    with pytest.raises(LookupError, match="job 1"):
        store.load_run(1)


def test_everything_is_there_after_a_restart(opened, job):
    store = opened()
    store.write_now(
        InsertJobs(1000, "k", [job(), job(name="b")]),
        PutRun(RunRecord("1.1", 1, 1, 1, "starting", "boot", b"[]", b'{"started_us":5}', b"{}")),
        AddEvents([EventRecord(1, "submit", 5, 1.5, b"{}")]),
        PutMeta("mark", b"7"),
        AddEstimate(1, 5, 10, 8, 12, predicted=True),
    )
    store.close_now()
    again = opened()
    assert again.restored is None
    assert again.problem is None
    assert [record.name for record in again.jobs()] == ["train", "b"]
    assert again.load_run(2) == job().run
    assert again.find_key(1000, "k") == [1, 2]
    assert again.runs() == [RunRecord("1.1", 1, 1, 1, "starting", "boot", b"[]", b'{"started_us":5}', b"{}")]
    assert again.events() == [EventRecord(1, "submit", 5, 1.5, b"{}", 1)]
    assert again.meta("mark") == b"7"
    assert again.estimates() == [EstimateRecord(1, 5, 10, 8, 12, predicted=True)]
    assert again.write_now(InsertJobs(1000, None, [job()])) == [[3]]


def test_update_sets_what_it_names_and_nothing_else(store, job):
    store.write_now(InsertJobs(1000, None, [job(), job()]))
    assert store.write_now(UpdateJob(1, **EVERYTHING)) == [None]
    assert store.job(1) == without_run(job(**EVERYTHING), 1)
    assert store.job(2) == without_run(job(), 2)
    store.write_now(UpdateJob(1, seats=None, held=False))
    assert store.job(1) == without_run(job(**EVERYTHING | {"seats": None, "held": False}), 1)


def test_every_column_but_the_id_and_what_it_runs_can_be_updated(store, job):
    assert {*JOB_COLUMNS, "id", "run"} == set(msgspec.structs.asdict(job()))
    store.write_now(InsertJobs(1000, None, [job()]))
    full = job(**EVERYTHING, uid=1, gid=2, user="b", name="c", queue="d", state="failed", gang=b"e", options=b"f")
    store.write_now(UpdateJob(1, **{name: getattr(full, name) for name in JOB_COLUMNS}))
    assert store.job(1) == without_run(full, 1)


@pytest.mark.parametrize("columns", [{}, {"stat": "failed"}, {"run": b""}, {"state = 1; --": 1}])
def test_an_unknown_column_is_refused_where_it_is_asked_for(columns):
    with pytest.raises(TypeError, match="job 7"):
        UpdateJob(7, **columns)


def test_updating_a_job_that_is_not_there_fails_the_whole_write(store):
    with pytest.raises(LookupError, match="no job 5"):
        store.write_now(PutMeta("a", b"1"), UpdateJob(5, state="failed"))
    assert store.meta("a") is None


# ------------------------------------------------------------------- the key of a submit


def test_the_same_key_gives_the_same_ids_and_inserts_nothing(store, job):
    batch = [job(name=f"j{i}") for i in range(3)]
    assert store.write_now(InsertJobs(1000, "k", batch)) == [[1, 2, 3]]
    assert store.write_now(InsertJobs(1000, "k", batch)) == [[1, 2, 3]]
    assert store.write_now(InsertJobs(1000, "k", [job()]), InsertJobs(1000, "l", [job()])) == [[1, 2, 3], [4]]
    assert len(store.jobs()) == 4
    assert store.find_key(1000, "k") == [1, 2, 3]


def test_keys_are_each_users_own(store, job):
    assert store.write_now(InsertJobs(1000, "k", [job()])) == [[1]]
    assert store.write_now(InsertJobs(1001, "k", [job(uid=1001)])) == [[2]]
    assert store.find_key(1002, "k") is None


def test_a_key_twice_in_one_write(store, job):
    assert store.write_now(InsertJobs(1000, "k", [job()]), InsertJobs(1000, "k", [job()])) == [[1], [1]]


def test_a_key_of_a_submit_that_failed_is_free(store, job):
    with pytest.raises(LookupError):
        store.write_now(InsertJobs(1000, "k", [job()]), UpdateJob(99, state="failed"))
    assert store.find_key(1000, "k") is None
    assert store.write_now(InsertJobs(1000, "k", [job()])) == [[1]]


def test_an_empty_batch_is_an_empty_answer(store):
    assert store.write_now(InsertJobs(1000, "k", [])) == [[]]
    assert store.find_key(1000, "k") is None


# ------------------------------------------------------------------- the small ones


def test_runs_are_put_replaced_and_dropped(store):
    run = RunRecord("2.1", 2, 1, 1, "starting", "boot", b"[0,1]")
    store.write_now(PutRun(run), PutRun(RunRecord("10.1", 10, 1, 1, "running", "boot", b"[2]")))
    later = msgspec.structs.replace(run, state="running", generation=2, members=b"{}", intent=b"{}")
    store.write_now(PutRun(later))
    assert store.run("2.1") == later
    assert [record.run for record in store.runs()] == ["2.1", "10.1"]
    store.write_now(DropRun("2.1"), DropRun("never.there"))
    assert store.run("2.1") is None
    assert [record.run for record in store.runs()] == ["10.1"]


def test_events_are_numbered_and_found(store):
    first = [EventRecord(1, "submit", 1, 0.5, b"a"), EventRecord(2, "submit", 1, 0.5, b"b")]
    assert store.write_now(AddEvents(first)) == [[1, 2]]
    assert store.write_now(AddEvents([EventRecord(1, "start", 2, 0.6, b"c"), EventRecord(None, "up", 3, 1, b"d")])) == [
        [3, 4]
    ]
    assert store.write_now(AddEvents([])) == [[]]
    assert [event.data for event in store.events()] == [b"a", b"b", b"c", b"d"]
    assert [event.seq for event in store.events(since=2)] == [3, 4]
    assert [event.seq for event in store.events(job=1)] == [1, 3]
    assert [event.seq for event in store.events(job=1, since=1)] == [3]
    assert [event.seq for event in store.events(limit=2)] == [1, 2]
    assert store.events(since=3) == [EventRecord(None, "up", 3, 1.0, b"d", 4)]


def test_meta_is_what_was_put_last(store):
    assert store.meta("a") is None
    store.write_now(PutMeta("a", b"1"))
    store.write_now(PutMeta("a", b"2"), PutMeta("b", b""))
    assert (store.meta("a"), store.meta("b")) == (b"2", b"")


def test_an_estimate_is_closed_once(store):
    store.write_now(AddEstimate(1, 5, 10, 8, 12, predicted=False), AddEstimate(2, 6, 10, 8, 12, predicted=True))
    store.write_now(CloseEstimate(1, 11))
    store.write_now(AddEstimate(1, 20, 30, 28, 32, predicted=False))
    store.write_now(CloseEstimate(1, 31))
    assert store.estimates() == [
        EstimateRecord(1, 5, 10, 8, 12, predicted=False, actual_us=11),
        EstimateRecord(2, 6, 10, 8, 12, predicted=True, actual_us=None),
        EstimateRecord(1, 20, 30, 28, 32, predicted=False, actual_us=31),
    ]
    assert store.estimates()[1].predicted is True
    assert [estimate.made_us for estimate in store.estimates(since_us=6)] == [6, 20]


# ------------------------------------------------------------------- what has ended


def test_ended_jobs_are_found_newest_first(store, job):
    rows = [
        job(name="a", state="completed", end_us=10),
        job(name="a", state="running"),
        job(name="b", state="failed", end_us=30, queue="night"),
        job(name="a", state="cancelled", end_us=20, user="bob"),
        job(name="a", state="infeasible", submit_us=25),  # no end of its own
    ]
    store.write_now(InsertJobs(1000, None, rows))

    def ids(*arguments, **options):
        return [record.id for record in store.ended(*arguments, **options)]

    assert ids() == [3, 5, 4, 1]
    assert ids(20) == [3, 5, 4]
    assert ids(0, "ada") == [3, 5, 1]
    assert ids(0, None, 2) == [3, 5]
    assert ids(queue="night") == [3]
    assert ids(name="a") == [5, 4, 1]
    assert ids(states=["completed", "failed"]) == [3, 1]
    assert ids(user="ada", name="a", limit=1) == [5]
    assert [record.id for record in store.history("ada", "a", 10)] == [5, 1]
    assert [record.id for record in store.history("ada", "a", 1)] == [5]
    assert store.history("bob", "b", 1) == []


@pytest.mark.parametrize("state", sorted(messages.State.__args__))
def test_the_store_and_the_api_agree_on_what_has_ended(store, job, state):
    store.write_now(InsertJobs(1000, None, [job(state=state)]))
    assert bool(store.jobs()) == (state not in messages.ENDED)
    assert bool(store.ended()) == (state in messages.ENDED)


def test_questions_about_ended_jobs_are_served_by_an_index(store):
    class Explainer:
        def execute(self, sql, parameters=()):
            plans.extend(row[3] for row in store._reader.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))
            return store._reader.execute(sql, parameters)

    plans: list[str] = []
    queries.read_ended(Explainer(), 5, [], (), 10)
    queries.read_ended(Explainer(), 0, [("user", "ada"), ("name", "a")], (), 10)
    queries.read_ended(Explainer(), 5, [("user", "ada")], ["failed"], 10)
    queries.read_events(Explainer(), 1, 0, 10)
    assert [plan.split(" (")[0] for plan in plans] == [
        "SEARCH job USING INDEX job_ended",
        "SEARCH job USING INDEX job_history",
        "SEARCH job USING INDEX job_ended",
        "SEARCH event USING INDEX event_job",
    ]


# ------------------------------------------------------------------- retention


def test_prune_forgets_what_is_old_and_ended(store, job):
    old, young = {"state": "completed", "end_us": 100}, {"state": "completed", "end_us": 900}
    store.write_now(InsertJobs(1000, "both old", [job(**old), job(**old)]))  # 1, 2
    store.write_now(InsertJobs(1000, "half old", [job(**old), job(**young)]))  # 3, 4
    store.write_now(InsertJobs(1000, "alive", [job(submit_us=0)]))  # 5
    store.write_now(InsertJobs(1000, None, [job(**old)]))  # 6
    store.write_now(AddEvents([EventRecord(1, "end", at_us, 0.0, b"") for at_us in (100, 699, 700, 900)]))
    store.write_now(AddEstimate(1, 100, 1, 1, 1, predicted=False), AddEstimate(5, 900, 1, 1, 1, predicted=False))
    assert store.prune(1000, 300, 500) == 4 + 2 + 1
    assert [record.id for record in store.jobs(ended=True)] == [4, 5]
    assert [event.at_us for event in store.events()] == [700, 900]
    assert [estimate.job for estimate in store.estimates()] == [5]
    keys = {key: store.find_key(1000, key) for key in ("both old", "half old", "alive")}
    assert keys == {"both old": None, "half old": [3, 4], "alive": [5]}
    for number in (1, 2, 3, 6):
        with pytest.raises(LookupError):
            store.load_run(number)
    assert store.load_run(4)
    assert store.prune(1000, 300, 500) == 0


def test_prune_goes_on_until_nothing_old_is_left(store, job, monkeypatch):
    monkeypatch.setattr("phalanx.frontends.host.store.store.FORGET_ROWS", 3)
    store.write_now(InsertJobs(1000, None, [job(state="failed", end_us=i) for i in range(10)]))
    store.write_now(AddEvents([EventRecord(1, "end", i, 0.0, b"") for i in range(10)]))
    assert store.prune(8, 0, 0) == 16
    assert len(store.jobs(ended=True)) == len(store.events()) == 2


def test_no_number_is_given_twice_after_retention(store, job):
    store.write_now(
        InsertJobs(1000, None, [job(state="failed", end_us=1)]), AddEvents([EventRecord(1, "x", 1, 1, b"")])
    )
    store.prune(100, 0, 0)
    assert store.jobs(ended=True) == store.events() == []
    assert store.write_now(InsertJobs(1000, None, [job()]), AddEvents([EventRecord(2, "x", 2, 1, b"")])) == [[2], [2]]


def test_the_newest_schema_is_the_one_in_use(store):
    assert schema.read_version(store._reader) == len(schema.MIGRATIONS)
