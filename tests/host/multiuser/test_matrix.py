"""Who may do what to whose job: every route of the API × its owner, another user, an administrator, root."""

from __future__ import annotations

import pytest
from people import ADA, BOB, CAI
from realdaemon import HELD

from phalanx.frontends.host.api.routes import ROUTES

WHO = {"own": ADA, "other": BOB, "admin": CAI, "root": 0}
ALL = {"own": 200, "other": 200, "admin": 200, "root": 200}
OWN = {**ALL, "other": 403}
ADMIN = {**OWN, "own": 403}

#: Route → the kind of job of ada's that it is tried on, what is sent, and who gets which answer.
MATRIX = {
    ("GET", "/v1/jobs/{ref}"): ("waiting", None, ALL),  # of others without what is private: test_private.py
    ("GET", "/v1/jobs/{ref}/why"): ("waiting", None, ALL),
    ("GET", "/v1/jobs/{ref}/wait"): ("ended", None, ALL),
    ("GET", "/v1/jobs/{ref}/logs"): ("ended", None, OWN),
    ("PATCH", "/v1/jobs/{ref}"): ("waiting", {"name": "renamed", "priority": 3}, OWN),
    ("POST", "/v1/jobs/{ref}/cancel"): ("waiting", {}, OWN),
    ("POST", "/v1/jobs/{ref}/hold"): ("waiting", {}, OWN),
    ("POST", "/v1/jobs/{ref}/release"): ("held", {}, OWN),
    ("POST", "/v1/jobs/{ref}/retry"): ("ended", {}, OWN),
    ("POST", "/v1/jobs/{ref}/resize"): ("elastic", {"members": 2}, OWN),
    ("POST", "/v1/jobs/{ref}/preempt"): ("running", {"drill": True}, OWN),
    ("GET", "/v1/jobs"): ("", None, ALL),
    ("GET", "/v1/status"): ("", None, ALL),
    ("GET", "/v1/queues"): ("", None, ALL),
    ("GET", "/v1/nodes"): ("", None, ALL),
    ("GET", "/v1/share"): ("", None, ALL),
    ("GET", "/v1/report"): ("", None, ALL),
    ("GET", "/v1/report/eta"): ("", None, ALL),
    ("GET", "/v1/gantt"): ("", None, ALL),
    ("GET", "/v1/config"): ("", None, ALL),
    ("GET", "/v1/state"): ("", None, ALL),  # what ps -a and show tell of everybody, in the engine's words
    ("GET", "/metrics"): ("", None, ALL),
    ("GET", "/openapi.json"): ("", None, ALL),
}
#: Tried elsewhere: streams and the end of the daemon by hand below and in test_identity.py, as submits are.
APART = {("GET", "/v1/events"), ("POST", "/v1/down"), ("POST", "/v1/jobs")}
#: Verbs over several jobs, which are refused one by one: the job of ada's that each is tried on.
OVER_SEVERAL = {"cancel": "waiting", "hold": "waiting", "release": "held"}
APART |= {("POST", f"/v1/{verb}") for verb in OVER_SEVERAL}
#: What nobody else may change, whatever they try.
KEPT = ("name", "user", "state", "priority", "members_min", "members_max", "attempt", "queue")


def make_job(daemon, kind):
    """A job of ada's in that state."""
    ada = daemon.by(ADA)
    if kind == "running":
        job = ada.submit(HELD, 1, name="mine", run={"on_preempt": "requeue"})
        ada.wait_started(job, 1)
        ada.wait_state(job, "running")
        return job
    if kind == "ended":
        job = ada.submit("true", 1, name="mine")
        ada.wait(job)
        return job
    members = {"min": 1, "max": 4} if kind == "elastic" else 1
    later = {"hold": True} if kind == "held" else {"begin": "+1h"}
    reply = ada.post(ada.submission("true", members), name="mine", **later)
    assert reply.status == 200, reply
    return reply["id"]


def test_the_matrix_has_every_route():
    assert set(MATRIX) | APART == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("route", MATRIX, ids=" ".join)
def test_matrix(shared, route, who):
    method, path = route
    kind, body, expected = MATRIX[route]
    job = make_job(shared, kind) if kind else 0
    ada = shared.by(ADA)
    before = ada.row(job) if job else {}
    try:
        reply = shared.by(WHO[who]).call(method, path.replace("{ref}", str(job)), body)
        assert reply.status == expected[who], reply
        if expected[who] == 403:
            assert reply["error"]["code"] == "forbidden"
            assert "ada" in reply["error"]["message"]  # whom to ask
            after = ada.row(job)
            assert {key: after[key] for key in KEPT} == {key: before[key] for key in KEPT}
    finally:
        if job:
            ada.act(job, "cancel")


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("verb", OVER_SEVERAL)
def test_of_several_jobs_each_is_asked_for(shared, verb, who):
    job, ada = make_job(shared, OVER_SEVERAL[verb]), shared.by(ADA)
    before = ada.row(job)
    try:
        for ref in (str(job), f"{job}-{job}"):
            reply = shared.by(WHO[who]).call("POST", f"/v1/{verb}", {"jobs": [ref]})
            assert reply.status == 200, reply
            if who == "other":
                assert (reply["jobs"], reply["refused"][0]["error"]["code"]) == ([], "forbidden")
                after = ada.row(job)
                assert {key: after[key] for key in KEPT} == {key: before[key] for key in KEPT}
            elif ref == str(job):
                assert [row["id"] for row in reply["jobs"]] == [job]
    finally:
        ada.act(job, "cancel")


@pytest.mark.parametrize("who", ["own", "other"])
def test_only_administrators_stop_the_daemon(shared, who):
    reply = shared.by(WHO[who]).call("POST", "/v1/down", {})
    assert (reply.status, reply["error"]["code"]) == (403, "forbidden")
    assert shared.get("/v1/status")["pid"] == shared.process.pid


def test_names_and_prefixes_reach_no_further_than_ids(shared):
    """A name or its beginning finds another's job, and then the same rule holds."""
    ada, bob = shared.by(ADA), shared.by(BOB)
    job = ada.submit("true", 1, name="adas-only-one", hold=True)
    try:
        for ref in ("adas-only-one", "adas-only", str(job)):
            assert bob.call("GET", f"/v1/jobs/{ref}/logs").status == 403
            assert bob.act(ref, "cancel").status == 403
        assert ada.row(job)["state"] == "pending"
    finally:
        ada.act(job, "cancel")


def test_own_jobs_come_first_for_a_name(shared):
    """bob cannot make ada's commands hit his job, or hers hit his, by choosing her names."""
    ada, bob = shared.by(ADA), shared.by(BOB)
    mine = ada.submit("true", 1, name="same-name", hold=True)
    his = bob.submit("true", 1, name="same-name", hold=True)
    try:
        assert bob.act("same-name", "cancel")["id"] == his
        assert ada.row(mine)["state"] == "pending"
        assert bob.act("same-name", "cancel").status in (200, 403)  # his own ended one, or hers, which is not his
        assert ada.row(mine)["state"] == "pending"
    finally:
        ada.act(mine, "cancel")
        bob.act(his, "cancel")


def test_nobody_says_that_he_is_somebody_else(shared):
    bob = shared.by(BOB)
    plain = bob.submission("true", 1)
    for body in (
        {**plain, "user": "ada"},
        {**plain, "uid": ADA},
        {**plain, "gang": {**plain["gang"], "user": "ada"}},
        {**plain, "run": {**plain["run"], "user": "ada"}},
    ):
        assert bob.call("POST", "/v1/jobs", body).status == 400, body
    reply = bob.call(
        "POST", "/v1/jobs", plain, {"X-User": "ada", "X-Remote-User": "ada", "Authorization": "Bearer ada"}
    )
    assert bob.row(reply["id"])["user"] == "bob"
    bob.wait(reply["id"])


def test_a_key_of_one_user_is_not_the_key_of_another(shared):
    ada, bob = shared.by(ADA), shared.by(BOB)
    hers = ada.submit("true", 1, key="the-same-key")
    his = bob.submit("true", 1, key="the-same-key")
    assert his != hers
    assert (ada.row(hers)["user"], bob.row(his)["user"]) == ("ada", "bob")
    assert bob.submit("true", 1, key="the-same-key") == his


def test_edits_stay_below_the_ceiling_that_submits_have(shared):
    ada = shared.by(ADA)
    assert ada.post(ada.submission("true", 1, priority=100)).status == 403
    job = ada.submit("true", 1, hold=True)
    try:
        assert ada.call("PATCH", f"/v1/jobs/{job}", {"priority": 100}).status == 403
        assert ada.row(job)["priority"] == 0
        assert ada.call("PATCH", f"/v1/jobs/{job}", {"priority": 10}).status == 200
    finally:
        ada.act(job, "cancel")


@pytest.mark.parametrize("who", ["admin", "root"])
def test_a_retry_by_an_administrator_stays_its_owners_job(shared, who):
    """Else ada could have her command run as whoever helps her."""
    ada = shared.by(ADA)
    job = ada.submit("exit 3", 1)
    ada.wait(job)
    reply = shared.by(WHO[who]).act(job, "retry")
    assert reply.status in (200, 403), reply
    if reply.status == 200:
        assert shared.row(reply["id"])["user"] == "ada"
        assert shared.wait(reply["id"])["exit_code"] == 3


def test_gangs_of_two_users_are_never_tied_together(shared):
    """A word that ada uses is no way for bob to keep her gangs from starting."""
    ada, bob = shared.by(ADA), shared.by(BOB)
    tie = {"word": "pipeline", "gangs": 2}
    his = bob.submit("true", 1, hold=True, together=tie)
    hers = [ada.submit("true", 1, together=tie) for _ in range(2)]
    try:
        assert [ada.wait(job)["state"] for job in hers] == ["completed"] * 2
        assert bob.row(his)["state"] == "pending"
    finally:
        for job in (his, *hers):
            shared.act(job, "cancel")
