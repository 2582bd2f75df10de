"""What the plugin makes of those who answer: the scheduler, the proxy in front of it, and strangers."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from click.testing import CliRunner

from phalanx.cli.kube.kube_asking import Asker
from phalanx.cli.kube.plugin import main
from phalanx.client.daemon_errors import ClientError


@pytest.fixture
def server():
    """Answers what `replies` says, one after the other, the last one again and again."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            status, body = replies.pop(0) if len(replies) > 1 else replies[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_):
            pass

    seen, replies = [], []
    found = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    found.seen, found.replies, found.url = seen, replies, f"http://127.0.0.1:{found.server_port}"
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


GOOD = (200, {"schema": "phalanx.kube.gangs/1", "gangs": []})
FOLLOWS = (503, {"error": {"code": "unavailable", "message": "follows", "hint": "x", "details": {"follows": True}}})
GONE = (503, {"kind": "Status", "message": "dial tcp: connection refused"})


def through_proxy(server):
    return Asker("127.0.0.1", server.server_port, None, "/p", "the cluster", None, service=("sys", "phalanx"))


def test_of_two_replicas_the_one_that_leads_is_found(server):
    server.replies += [FOLLOWS, GONE, FOLLOWS, GOOD]
    assert through_proxy(server).get("/v1/gangs", {"namespace": "a b", "none": None})["gangs"] == []
    assert server.seen == ["/p/v1/gangs?namespace=a+b"] * 4


def test_asked_directly_a_replica_that_follows_is_not_asked_again(server):
    server.replies += [FOLLOWS]
    done = CliRunner().invoke(main, ["ps", "--server", server.url])
    assert (done.exit_code, len(server.seen)) == (1, 1)
    assert "follows" in done.stderr


@pytest.mark.parametrize(
    ("status", "message", "code", "says"),
    [
        (401, "Unauthorized", "unauthorised", "kubectl auth whoami"),
        (403, 'services is forbidden: User "x"', "forbidden", "bind the role phalanx-reader of namespace sys"),
        (404, "not found", "unreachable", "kube install"),
        (404, "not found", "unreachable", "--server URL one that runs with --listen"),
        (503, 'no endpoints available for service "phalanx"', "unreachable", "get service,pods"),
        (502, "proxy error", "unreachable", "kubectl -n sys get pods"),
    ],
)
def test_what_the_proxy_says_is_said_with_a_next_step(server, status, message, code, says):
    server.replies += [(status, {"kind": "Status", "message": message})]
    with pytest.raises(ClientError) as bad:
        through_proxy(server).get("/v1/gangs")
    assert (bad.value.code, says in bad.value.hint) == (code, True)


@pytest.mark.parametrize(
    "reply",
    [
        (200, b"<html>"),
        (200, b"[]"),
        (200, {"gangs": []}),
        (200, b"\xff"),
        (404, b"nothing"),
        (500, b""),
        (418, {"error": 3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("words", [["ps"], ["why", "x"], ["gantt"]], ids=str)
def test_strangers_are_no_scheduler(server, reply, words):
    server.replies += [reply]
    done = CliRunner().invoke(main, [*words, "--server", server.url])
    assert done.exit_code == 1
    assert "is no scheduler of ours" in done.stderr
    assert "next: " in done.stderr


@pytest.mark.parametrize("server_url", ["nowhere", "http://", "ftp://a:1", "http://a:99999", "http://a"])
def test_addresses_that_are_none(server_url):
    done = CliRunner().invoke(main, ["ps", "--server", server_url, "-o", "json"])
    assert done.exit_code == 2
    assert json.loads(done.stderr)["error"]["code"] == "usage"


def test_an_empty_list_says_where_there_are_some(server):
    server.replies += [GOOD]
    done = CliRunner().invoke(main, ["ps", "-n", "team", "--server", server.url])
    assert done.exit_code == 0
    assert "no gangs in namespace team, nor in any other" in done.stderr
