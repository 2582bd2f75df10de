"""What requests mean to the core, what answers look like, and what is said about what is wrong."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from phalanx.frontends.host.api.replies import encode
from phalanx.frontends.host.messages import Batch, Submission
from phalanx.frontends.host.ports import Refused
from phalanx.frontends.host.service import Listing

JOB = b'{"name": "x", "gang": {"members": 1}, "run": {"command": ["true"]}}'

#: Request → the call that the core gets.
CALLS = [
    ("GET", "/v1/status", None, ("status",)),
    ("GET", "/v1/jobs", None, ("rows", Listing())),
    (
        "GET",
        "/v1/jobs?all=1&state=pending,running&queue=q&user=u&name=n%20m&limit=5&finished=1",
        None,
        ("rows", Listing(True, frozenset({"pending", "running"}), "q", "u", "n m", True, 5)),
    ),
    ("GET", "/v1/jobs/12", None, ("detail", "12")),
    ("GET", "/v1/jobs/a%2Fb%20%C3%A9", None, ("detail", "a/b é")),
    ("GET", "/v1/jobs/..", None, ("detail", "..")),
    ("GET", "/v1/jobs/%7Bref%7D", None, ("detail", "{ref}")),
    ("GET", "/v1/jobs/{ref}", None, ("detail", "{ref}")),
    ("GET", "/v1/jobs/12/why", None, ("why", "12")),
    ("GET", "/v1/jobs/12/logs", None, ("logs", "12", 0, None, 0, 65536, None)),
    ("GET", "/v1/jobs/x/logs?rank=3&attempt=2&offset=7&limit=9&tail=10", None, ("logs", "x", 3, 2, 7, 9, 10)),
    ("GET", "/v1/jobs/12/wait?timeout_s=0.5", None, ("wait", "12", 0.5)),
    ("POST", "/v1/jobs/12/cancel", None, ("cancel", "12", {})),
    ("POST", "/v1/jobs/12/hold", b"{}", ("hold", "12", {})),
    ("POST", "/v1/jobs/12/release", None, ("release", "12", {})),
    ("POST", "/v1/jobs/12/retry", None, ("retry", "12", {})),
    ("POST", "/v1/jobs/12/resize", b'{"members": 4, "min": 2}', ("resize", "12", {"members": 4, "min": 2})),
    ("POST", "/v1/jobs/12/resize", b'{"members": "auto"}', ("resize", "12", {"members": "auto"})),
    ("POST", "/v1/jobs/12/preempt", b'{"drill": true}', ("preempt", "12", {"drill": True})),
    ("POST", "/v1/jobs/12/preempt", None, ("preempt", "12", {"drill": False})),
    (
        "PATCH",
        "/v1/jobs/12",
        b'{"priority": -3, "walltime": "2h", "deadline": null, "topology": {"require": "island"}}',
        ("edit", "12", {"priority": -3, "walltime": "2h", "deadline": None, "topology": {"require": "island"}}),
    ),
    ("GET", "/v1/queues", None, ("queues",)),
    ("GET", "/v1/nodes", None, ("nodes",)),
    ("GET", "/v1/share", None, ("share",)),
    ("GET", "/v1/report", None, ("report", ["user"], None)),
    ("GET", "/v1/report?by=queue,job&since_s=60", None, ("report", ["queue", "job"], 60.0)),
    ("GET", "/v1/report/eta", None, ("report_eta",)),
    ("GET", "/v1/gantt?past_s=60", None, ("gantt", 60.0)),
    ("GET", "/v1/config", None, ("config",)),
    ("POST", "/v1/down", None, ("down",)),
]


def test_requests_reach_the_core_as_they_are_meant(play):
    async def scenario(api):
        for method, path, body, call in CALLS:
            answer = await api.ask(method, path, body=body)
            assert (path, answer.status) == (path, 200)
            assert api.service.calls.pop() == call

    play(scenario, admin=True)


def test_an_environment_is_sent_to_who_asks_for_it(play):
    async def scenario(api):
        assert (await api.ask("GET", "/v1/jobs/12")).json["env"] is None
        assert (await api.ask("GET", "/v1/jobs/12?env=0")).json["env"] is None
        assert (await api.ask("GET", "/v1/jobs/12?env=1")).json["env"] == {"A": "b"}

    play(scenario)


@pytest.mark.parametrize("since", ["inf", "1e308", "nan", "-inf", "1e10", "-1"])
@pytest.mark.parametrize("path", ["/v1/report?since_s=", "/v1/gantt?past_s="])
def test_a_past_without_end_is_refused(play, path, since):
    async def scenario(api):
        assert (await api.ask("GET", path + since)).status == 400
        assert api.service.calls == []

    play(scenario)


def test_an_answer_goes_out_in_one_piece(play, monkeypatch):
    """A client that waits is woken once, and not for a head that says nothing yet."""
    pieces = []
    write = asyncio.selector_events._SelectorSocketTransport.write

    def note(transport, data):
        if bytes(data).startswith(b"HTTP/1.1 ") or pieces:
            pieces.append(bytes(data))
        write(transport, data)

    async def scenario(api):
        async with api.line() as line:
            for _ in range(2):  # the second on the same connection
                pieces.clear()
                await line.send(api.write("GET", "/v1/jobs/12"))
                answer = await line.read()
                assert (answer.status, answer.json["job"]["id"]) == (200, 12)
                (whole,) = pieces
                assert whole.endswith(b"\r\n\r\n" + answer.body)
            pieces.clear()
            await line.send(api.write("GET", "/v1/jobs/12", Connection="close"))
            answer = await line.read()
            assert answer.headers["connection"] == "close"
            assert await line.ended() == b""

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write", note)
    play(scenario)


def test_submits(play):
    async def scenario(api):
        answer = await api.ask("POST", "/v1/jobs", body=JOB)
        assert answer.json["id"] == 1
        name, (job,), key, dry_run = api.service.calls.pop()
        assert (name, job.name, key, dry_run) == ("submit", "x", None, False)
        assert (bytes(job.gang), bytes(job.run)) == (b'{"members": 1}', b'{"command": ["true"]}')
        answer = await api.ask("POST", "/v1/jobs?dry_run=1", body=JOB, Idempotency_Key="abc-1")
        assert api.service.calls.pop()[2:] == ("abc-1", True)
        answer = await api.ask("POST", "/v1/jobs", body=b'{"jobs": [%s, %s]}' % (JOB, JOB))
        assert [job["id"] for job in answer.json["jobs"]] == [1, 2]
        assert len(api.service.calls.pop()[1]) == 2
        whole = Submission(msgspec.Raw(b"{}"), msgspec.Raw(b"{}"), begin="+10m", singleton=True)
        for body in (msgspec.json.encode(whole), msgspec.json.encode(Batch([whole]))):
            assert (await api.ask("POST", "/v1/jobs", body=body)).status == 200
            assert api.service.calls.pop()[1][0].singleton

    play(scenario)


#: Request → its answer's message. These are read by people.
WRONG = [
    ("POST", "/v1/jobs", b"", "the body is not JSON: it ends too early"),
    ("POST", "/v1/jobs", b"{", "the body is not JSON: it ends too early"),
    ("POST", "/v1/jobs", b"nope", "the body is not JSON: invalid character (byte 4)"),
    ("POST", "/v1/jobs", JOB + b"!", "the body is not JSON: trailing characters (byte 68)"),
    ("POST", "/v1/jobs", b"[]", "the body: expected object, got array"),
    ("POST", "/v1/jobs", b"{}", "the body: the field 'gang' is missing"),
    ("POST", "/v1/jobs", b'{"gang": {}, "run": {}, "nmae": "x"}', "the body: there is no field 'nmae'"),
    ("POST", "/v1/jobs", b'{"gang": {}, "run": {}, "\\u001b[31m": 1}', "the body: there is no field '\\x1b[31m'"),
    ("POST", "/v1/jobs", b'{"gang": {}, "run": {}, "name": 3}', "the body, field 'name': expected str, got int"),
    (
        "POST",
        "/v1/jobs",
        b'{"gang": {}, "run": {}, "array": {"index": 1}}',
        "the body, field 'array': the field 'of' is missing",
    ),
    ("POST", "/v1/jobs", b'{"jobs": []}', "the batch holds no job"),
    ("POST", "/v1/jobs", b'{"jobs": [{"gang": {}}]}', "the body, field 'jobs[0]': the field 'run' is missing"),
    ("POST", "/v1/jobs", b'{"jobs": 3}', "the body, field 'jobs': expected array, got int"),
    (
        "POST",
        "/v1/jobs",
        b'{"gang": {"a": "\xff"}, "run": {}}',
        "the body is not UTF-8",
    ),
    ("POST", "/v1/jobs", b'{"gang": {"a": "\xe2\x82', "the body is not UTF-8"),
    (
        "POST",
        "/v1/jobs",
        b'{"gang": {}, "run": "\\udcff"}',
        "the body holds text that is not UTF-8: invalid utf-16 surrogate pair (byte 27)",
    ),
    ("POST", "/v1/jobs", b'{"gang": ' + b"[" * 10_000, "the body is nested too deeply"),
    ("POST", "/v1/jobs/1/cancel", b'{"now": true}', "the body: there is no field 'now'"),
    ("POST", "/v1/jobs/1/resize", b"{}", "the body: the field 'members' is missing"),
    ("POST", "/v1/jobs/1/resize", None, "the body: the field 'members' is missing"),
    ("POST", "/v1/jobs/1/resize", b'{"members": 0}', "the body, field 'members': expected int >= 1"),
    (
        "POST",
        "/v1/jobs/1/resize",
        b'{"members": "many"}',
        "the body, field 'members': not one of the words that are allowed here",
    ),
    ("PATCH", "/v1/jobs/1", b"{}", "nothing to change"),
    ("PATCH", "/v1/jobs/1", b'{"user": "root"}', "the body: there is no field 'user'"),
    ("PATCH", "/v1/jobs/1", b'{"priority": 99999999999}', "the body, field 'priority': expected int <= 2147483647"),
    ("GET", "/v1/jobs?limit=x", None, "the query, field 'limit': expected int"),
    ("GET", "/v1/jobs?limit=-1", None, "the query, field 'limit': expected int >= 0"),
    ("GET", "/v1/jobs?limit=" + "9" * 40, None, "the query, field 'limit': expected int <= 9223372036854775807"),
    ("GET", "/v1/jobs?sate=pending", None, "the query: there is no field 'sate'"),
    ("GET", "/v1/jobs?all=perhaps", None, "the query, field 'all': expected bool"),
    ("GET", "/v1/jobs?limit=1&limit=2", None, "the query parameter 'limit' is given twice"),
    ("GET", "/v1/jobs?state=asleep", None, "the query parameter 'state' holds a word that is no state"),
    ("GET", "/v1/jobs?name=%ff", None, "the query is not UTF-8 in percent encoding"),
    ("GET", "/v1/jobs?" + "&".join(f"a{n}=1" for n in range(40)), None, "the query has more than 32 parameters"),
    ("GET", "/v1/jobs/%ff", None, "the job's name is not UTF-8 in percent encoding"),
    ("GET", "/v1/jobs/" + "x" * 400, None, "no job has a name of more than 300 characters"),
    ("GET", "/v1/jobs/1/logs?limit=0", None, "the query, field 'limit': expected int >= 1"),
    ("GET", "/v1/jobs/1/logs?limit=1048577", None, "the query, field 'limit': expected int <= 1048576"),
    ("GET", "/v1/jobs/1/logs?path=/etc/passwd", None, "the query: there is no field 'path'"),
    ("GET", "/v1/jobs/1/wait?timeout_s=nan", None, "the query, field 'timeout_s': expected float >= 0.0"),
    ("GET", "/v1/jobs/1/wait?timeout_s=301", None, "the query, field 'timeout_s': expected float <= 300.0"),
    ("GET", "/v1/report?by=colour", None, "the query parameter 'by' is not made of user, queue and job"),
    ("GET", "/v1/report?by=", None, "the query parameter 'by' is not made of user, queue and job"),
    ("GET", "/v1/status?x=1", None, "the query: there is no field 'x'"),
]


def test_what_is_wrong_is_a_sentence_that_names_the_field(play):
    async def scenario(api):
        for method, path, body, message in WRONG:
            answer = await api.ask(method, path, body=body)
            error = answer.json["error"]
            assert (path, body, answer.status, error["code"]) == (path, body, 400, "usage")
            assert (path, body, error["message"]) == (path, body, message)
            assert error["hint"]
            assert set(error) == {"code", "message", "hint", "details"}
        assert not api.service.calls

    play(scenario)


def test_the_field_is_in_the_details(play):
    async def scenario(api):
        answer = await api.ask("POST", "/v1/jobs", body=b'{"jobs": [{"gang": {}, "run": {}, "%s": 1}]}' % (b"x" * 500))
        assert answer.json["error"]["details"]["field"] == "jobs[0]." + "x" * 72 + "…"
        assert len(answer.json["error"]["message"]) < 200

    play(scenario)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb", "caf\xe9"])
def test_a_bad_idempotency_key_is_refused(play, key):
    async def scenario(api):
        for path, body in (("/v1/jobs", JOB), ("/v1/jobs/12/retry", None)):
            answer = await api.ask("POST", path, body=body, Idempotency_Key=key)
            assert (answer.status, answer.code) == (400, "usage")
            assert "Idempotency-Key" in answer.json["error"]["message"]
        assert not api.service.calls

    play(scenario)


def test_the_key_of_a_retry_reaches_the_core(play):
    async def scenario(api):
        await api.ask("POST", "/v1/jobs/12/retry", Idempotency_Key="abc-1")
        assert api.service.calls == [("retry", "12", {"key": "abc-1"})]

    play(scenario)


def test_unknown_paths_and_verbs_answer_in_the_same_shape(play):
    async def scenario(api):
        for method, path, status, code in [("GET", "/nope", 404, "not_found"), ("DELETE", "/v1/jobs/1", 405, "usage")]:
            answer = await api.ask(method, path)
            assert (answer.status, answer.code) == (status, code)
            assert answer.headers["content-type"] == "application/json"

    play(scenario)


@pytest.mark.parametrize(
    "said",
    [
        b"GIBBERISH\r\n\r\n",
        b"GET /v1/status HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"FETCH / HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_told_so_in_the_same_shape(play, said):
    async def scenario(api):
        async with api.line() as line:
            await line.send(said)
            answer = await line.read()
            assert answer.status in (400, 421)
            assert answer.code in ("usage", "misdirected")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert await line.ended() == b""
        assert (await api.ask("GET", "/v1/status")).status == 200

    play(scenario)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("not_found", 404),
        ("forbidden", 403),
        ("ambiguous", 409),
        ("infeasible", 422),
        ("unavailable", 503),
        ("novel", 500),
    ],
)
def test_a_refusal_of_the_core_travels_whole(play, code, status):
    async def scenario(api):
        api.service.fail = Refused(code, "what", "what next", jobs=[1, 2])
        answer = await api.ask("GET", "/v1/jobs/x")
        assert answer.status == status
        assert answer.json == {
            "error": {"code": code, "message": "what", "hint": "what next", "details": {"jobs": [1, 2]}}
        }

    play(scenario)


def test_a_failure_of_the_core_is_logged_and_not_told(play, caplog):
    async def scenario(api):
        api.service.fail = RuntimeError("secret of the core")
        answer = await api.ask("GET", "/v1/jobs/x")
        assert (answer.status, answer.code) == (500, "internal")
        assert b"secret" not in answer.body
        api.service.fail = None
        assert (await api.ask("GET", "/v1/jobs/x")).status == 200

    play(scenario)
    assert "secret of the core" in caplog.text


def test_logs_are_plain_bytes(play):
    async def scenario(api):
        answer = await api.ask("GET", "/v1/jobs/12/logs")
        assert answer.body == b"<b>step 1</b>\n\xff\x00"
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        names = ("x-phalanx-offset", "x-phalanx-ended", "x-phalanx-ranks")
        assert [answer.headers[name] for name in names] == ["16", "1", "4"]

    play(scenario)


def test_hostile_names_come_out_as_json_only(play):
    async def scenario(api):
        api.service.name = api.hostile
        for path in ("/v1/jobs", "/v1/jobs/12", "/v1/jobs/12/why"):
            answer = await api.ask("GET", path)
            assert answer.headers["content-type"] == "application/json"
            assert "content-security-policy" in answer.headers
            assert not [byte for byte in answer.body if byte < 0x20]
            assert api.hostile in list(find_texts(answer.json))
        answer = await api.ask(
            "POST", "/v1/jobs", body=json.dumps({"name": api.hostile, "gang": {}, "run": {}}).encode()
        )
        assert answer.json["name"] == api.hostile
        assert api.service.calls[-1][1][0].name == api.hostile

    play(scenario)


def find_texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from find_texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from find_texts(part)


def test_text_that_is_not_utf8_does_not_break_an_answer():
    assert encode({"cwd": "/x/\udcff", "\udcfe": ["\udcfd", 1]}) == b'{"cwd":"/x/?","?":["?",1]}'


def test_no_answer_lets_another_origin_read_it(play):
    async def scenario(api):
        origin = {"Origin": "https://evil.example", "Access_Control_Request_Method": "POST"}
        for method in ("OPTIONS", "GET", "POST"):
            answer = await api.ask(method, "/v1/jobs", body=JOB if method == "POST" else None, **origin)
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert "evil" not in str(answer.headers)
            assert "set-cookie" not in answer.headers
            assert answer.headers["cache-control"] == "no-store"

    play(scenario)
