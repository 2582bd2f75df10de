"""Who may ask what: every path × every verb × every kind of caller, against a table written by hand."""

from __future__ import annotations

import pytest

from phalanx.frontends.host.api.routes import ROUTES

JOB = b'{"name": "x", "gang": {"members": 1}, "run": {"command": ["true"]}}'

#: What is served, and what a caller needs for it. A new route does not pass until it stands here.
NEEDS = {
    ("GET", "/v1/status"): "read",
    ("GET", "/v1/jobs"): "read",
    ("POST", "/v1/jobs"): "submit",
    ("GET", "/v1/jobs/{ref}"): "read",
    ("PATCH", "/v1/jobs/{ref}"): "submit",
    ("GET", "/v1/jobs/{ref}/why"): "read",
    ("GET", "/v1/jobs/{ref}/logs"): "read",
    ("GET", "/v1/jobs/{ref}/wait"): "read",
    ("POST", "/v1/jobs/{ref}/cancel"): "submit",
    ("POST", "/v1/jobs/{ref}/hold"): "submit",
    ("POST", "/v1/jobs/{ref}/release"): "submit",
    ("POST", "/v1/jobs/{ref}/retry"): "submit",
    ("POST", "/v1/jobs/{ref}/resize"): "submit",
    ("POST", "/v1/jobs/{ref}/preempt"): "submit",
    ("POST", "/v1/cancel"): "submit",
    ("POST", "/v1/hold"): "submit",
    ("POST", "/v1/release"): "submit",
    ("GET", "/v1/queues"): "read",
    ("GET", "/v1/nodes"): "read",
    ("GET", "/v1/share"): "read",
    ("GET", "/v1/report"): "read",
    ("GET", "/v1/report/eta"): "read",
    ("GET", "/v1/gantt"): "read",
    ("GET", "/v1/config"): "read",
    ("GET", "/v1/state"): "read",
    ("GET", "/v1/events"): "read",
    ("POST", "/v1/down"): "admin",
    ("GET", "/metrics"): "read",
    ("GET", "/openapi.json"): "read",
}
VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
PATHS = [*sorted({path for _, path in NEEDS}), "/", "/v1", "/v1/jobs/", "/v1/jobs/{ref}/shell", "/v2/status", "/../etc"]
BODIES = {
    ("POST", "/v1/jobs"): JOB,
    ("PATCH", "/v1/jobs/{ref}"): b'{"priority": 3}',
    ("POST", "/v1/jobs/{ref}/resize"): b'{"members": "auto"}',
    ("POST", "/v1/cancel"): b'{"jobs": ["1"]}',
    ("POST", "/v1/hold"): b'{"jobs": ["1"]}',
    ("POST", "/v1/release"): b'{"jobs": ["1"]}',
}
#: Caller → how it speaks, and what it has of read, submit and admin; None: who is that?
CALLERS = {
    "no identity": ({"tcp": True}, None),
    "bad token": ({"tcp": True, "token": "phx_guess"}, None),
    "read token": ({"tcp": True, "scope": "read"}, {"read"}),
    "submit token": ({"tcp": True, "scope": "submit"}, {"read", "submit"}),
    "admin token": ({"tcp": True, "scope": "admin"}, {"read", "submit", "admin"}),
    "unix peer": ({}, {"read", "submit", "admin"}),
}
SILENT = {"/metrics", "/openapi.json"}  # the core is not told who asks for these


async def ask(api, caller, method, path, **more):
    """Status and headers; an event stream is hung up on as soon as it begins."""
    how = dict(CALLERS[caller][0])
    if "scope" in how:
        how["token"] = api.token[how.pop("scope")]
    tcp, token = how.get("tcp", False), how.get("token")
    if token is not None:
        more["Authorization"] = f"Bearer {token}"
    more.setdefault("body", BODIES.get((method, path)))
    async with api.line(tcp=tcp) as line:
        at_once = "?timeout_s=0" if path.endswith("/wait") else ""
        await line.send(api.write(method, path.replace("{ref}", "12") + at_once, **more))
        return await line.read_head()


def expect(caller, method, path, *, admin):
    """The status that a request has to get."""
    has = CALLERS[caller][1]
    if has is None:
        return 401
    needs = NEEDS.get((method, path))
    if needs is None:
        return 405 if path in {known for _, known in NEEDS} else 404
    # A token is never more than its owner; and a peer on the unix socket is an administrator or not.
    return 200 if needs in has and (needs != "admin" or admin) else 403


def test_the_table_written_by_hand_is_what_is_served():
    assert {(route.method, route.path): route.scope for route in ROUTES} == NEEDS


@pytest.mark.parametrize("admin", [False, True])
@pytest.mark.parametrize("caller", CALLERS)
def test_every_path_and_verb(play, caller, admin):
    async def scenario(api):
        for path in PATHS:
            for method in VERBS:
                api.service.calls.clear()
                status, headers = await ask(api, caller, method, path)
                expected = expect(caller, method, path, admin=admin)
                assert (method, path, status) == (method, path, expected)
                heard = bool(api.service.calls) or (expected == 200 and path in SILENT)
                assert heard == (expected == 200), "refused, but the core was asked"
                if status == 405:
                    assert headers["allow"].split(", ") == sorted(m for m, p in NEEDS if p == path)
                assert not [name for name in headers if name.startswith("access-control")]
                assert headers["x-content-type-options"] == "nosniff"

    play(scenario, admin=admin)


def test_a_uid_that_the_machine_does_not_know_has_no_access(play):
    async def scenario(api):
        for path in PATHS:
            for method in VERBS:
                assert (await ask(api, "unix peer", method, path))[0] == 403
        assert not api.service.calls

    play(scenario, known=False)


@pytest.mark.parametrize("caller", ["no identity", "admin token", "unix peer"])
def test_another_host_is_misdirected_on_every_path_and_verb(play, caller):
    async def scenario(api):
        for path in PATHS:
            for method in VERBS:
                status, _ = await ask(api, caller, method, path, host="evil.example")
                assert (method, path, status) == (method, path, 421)
        assert not api.service.calls

    play(scenario, admin=True)


def test_hosts_are_compared_whole(play):
    async def scenario(api):
        port = api.server.tcp_address[1]
        token = api.token["read"]
        for host, status in {
            "localhost": 200,
            f"localhost:{port}": 200,
            f"127.0.0.1:{port}": 200,
            "LOCALHOST": 200,
            "[::1]": 200,
            "gpu.example": 200,
            f"localhost:{port + 1}": 421,
            "localhost.evil.example": 421,
            "evil.example:80@localhost": 421,
            "127.0.0.1.nip.io": 421,
            "localhost, evil.example": 421,
            "": 421,
            None: 421,
        }.items():
            assert (host, (await api.ask("GET", "/v1/status", tcp=True, token=token, host=host)).status) == (
                host,
                status,
            )
        for host, status in {"": 200, None: 200, "localhost": 200, "127.0.0.1": 421, "gpu.example": 421}.items():
            assert (host, (await api.ask("GET", "/v1/status", host=host)).status) == (host, status)

    play(scenario, hosts=("gpu.example",))


def test_a_second_host_header_or_an_absolute_target_do_not_get_by(play):
    async def scenario(api):
        async with api.line() as line:
            await line.send(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
            assert (await line.read()).status == 421
        async with api.line() as line:
            await line.send(b"GET http://evil.example/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await line.read()
            assert (answer.status, answer.code) == (421, "misdirected")
            assert await line.ended() == b""
        assert not api.service.calls

    play(scenario)


def test_the_core_is_told_who_the_kernel_or_the_token_says_it_is(play):
    async def scenario(api):
        await api.ask("GET", "/v1/status", Authorization=f"Bearer {api.token['read']}", X_User="root")
        await api.ask("GET", "/v1/status", tcp=True, token=api.token["read"])
        await api.ask("GET", "/v1/status", tcp=True, token=api.token["admin"])
        peer, reader, admin = api.service.callers
        # A token on the unix socket neither adds to nor takes from what the kernel says.
        assert (peer.scope, peer.admin) == ("admin", True)
        assert (reader.scope, reader.admin) == ("read", False)
        assert (admin.scope, admin.admin) == ("admin", True)
        assert peer.uid == reader.uid == admin.uid

    play(scenario, admin=True)


def test_only_the_authorization_header_carries_a_token(play):
    async def scenario(api):
        token = api.token["admin"]
        for headers in ({"Cookie": f"token={token}"}, {"X_Token": token}, {"Authorization": f"Basic {token}"}):
            assert (await api.ask("GET", "/v1/status", tcp=True, **headers)).status == 401
        assert (await api.ask("GET", f"/v1/status?token={token}", tcp=True)).status == 401
        assert (await api.ask("GET", "/v1/status", tcp=True, Authorization=f"bearer  {token} ")).status == 200

    play(scenario)
