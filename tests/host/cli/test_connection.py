"""The small HTTP client: keep-alive, chunks, events, and connections that break."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from phalanx.client import daemon_places
from phalanx.client.connection import BadStreamError, Connection
from phalanx.client.daemon import Daemon, decode, open_daemon
from phalanx.client.daemon_errors import ClientError, LostError, UnreachableError
from phalanx.client.daemon_places import Place, find_place, find_state
from phalanx.frontends.host import places


@pytest.fixture
def connection(daemon):
    found = Connection(str(daemon.path))
    yield found
    found.close()


def test_one_connection_serves_many_requests(daemon, connection):
    daemon.answer("GET", "/a", {"x": 1})
    for _ in range(5):
        assert decode(connection.request("GET", "/a")) == {"x": 1}
    assert daemon.connections == 1
    (request, *_) = daemon.requests
    assert request.headers["host"] == "localhost"


def test_bodies_in_chunks(daemon, connection):
    daemon.answer("GET", "/a", b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", **{"Transfer-Encoding": "chunked"})
    assert connection.request("GET", "/a").body == b"abcde"
    assert connection.request("GET", "/a").body == b"abcde"


def test_large_bodies_both_ways(daemon, connection):
    daemon.answer("POST", "/a", lambda request: _reply({"got": len(request.body["x"]), "pad": "y" * 3_000_000}))
    sent = b'{"x": "' + b"z" * 5_000_000 + b'"}'
    found = decode(connection.request("POST", "/a", sent))
    assert (found["got"], len(found["pad"])) == (5_000_000, 3_000_000)


def _reply(body):
    from types import SimpleNamespace

    return SimpleNamespace(body=body, status=200, headers={})


def test_a_connection_that_the_daemon_closed_while_idle_is_opened_again(daemon, connection):
    daemon.answer("POST", "/a", {})
    connection.request("POST", "/a", b"{}")
    for each in daemon._open:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    connection.request("POST", "/a", b"{}")  # not safe to repeat, and so must not be lost on a dead connection
    assert (daemon.connections, len(daemon.requests)) == (2, 2)


def test_what_only_looks_is_asked_again_and_the_rest_is_not(daemon, connection):
    daemon.answer("GET", "/a", {})
    daemon.lose = 1
    connection.request("GET", "/a")
    daemon.lose = 1
    with pytest.raises(LostError):
        connection.request("POST", "/a", b"{}")
    daemon.lose = 2
    with pytest.raises(LostError):
        connection.request("GET", "/a")


def test_a_daemon_that_does_not_answer_in_time(tmp_path, home):
    path = home / "silent.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen(1)
        connection = Connection(str(path))
        with contextlib.closing(connection), pytest.raises(UnreachableError, match="does not answer"):
            connection.request("GET", "/v1/status", timeout_s=0.05)


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"x" * 100_000])
def test_somebody_else_on_the_socket(home, said):
    import threading

    path = home / "other.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def speak():
            other, _ = listener.accept()
            with other, contextlib.suppress(OSError):
                other.sendall(said)
                other.recv(1000)

        thread = threading.Thread(target=speak)
        thread.start()
        connection = Connection(str(path))
        with contextlib.closing(connection), pytest.raises(UnreachableError, match="is not phalanx"):
            connection.request("GET", "/v1/status")
        thread.join(30)


def test_events_are_put_together_from_lines(daemon, connection):
    text = b': hello\n\nid: 7\nevent: job\ndata: {"a":\ndata: 1}\n\nid: 8\r\nevent: job\r\ndata: {}\r\n\r\nevent: x\n\n'
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (text[:25], text[25:26], text[26:]))
    daemon.answer("GET", "/e", chunks + b"0\r\n\r\n", **{"Transfer-Encoding": "chunked"})
    assert list(connection.events("/e")) == [("7", "job", '{"a":\n1}'), ("8", "job", "{}")]


def test_a_refused_stream(daemon, connection):
    daemon.answer("GET", "/e", {"error": {"code": "forbidden", "message": "no", "hint": ""}}, 403)
    with pytest.raises(BadStreamError):
        list(connection.events("/e"))
    found = Daemon(Place(Path("/x"), str(daemon.path)), connection)
    daemon.answer("GET", "/v1/events", {"error": {"code": "forbidden", "message": "no", "hint": ""}}, 403)
    with pytest.raises(ClientError, match="no"):
        list(found.events(0))


def test_a_socket_path_that_is_longer_than_the_kernel_allows(daemon, home):
    deep = home
    while len(str(deep)) < 120:
        deep = deep / ("d" * 40)
    deep.mkdir(parents=True)
    (deep / "phalanx.sock").symlink_to(daemon.path)
    daemon.answer("GET", "/a", {})
    connection = Connection(str(deep / "phalanx.sock"))
    with contextlib.closing(connection):
        assert connection.request("GET", "/a").status == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two people")
def test_nothing_is_sent_to_a_stranger_s_socket(home, phalanx, monkeypatch):
    """A daemon of another user, who is not root, could read the environment of a submit."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(home / "phalanx.sock"))
        os.seteuid(65534)  # the kernel tells who called listen
        try:
            listener.listen(1)
        finally:
            os.seteuid(0)
        monkeypatch.setattr("phalanx.client.connection.os.geteuid", lambda: 12345)
        done = phalanx("ps")
    assert done.exit_code == 5
    assert "is answered by user 65534, who is neither you nor root; nothing was sent" in done.stderr


def test_places(monkeypatch, home, tmp_path):
    assert find_state() == home
    monkeypatch.setenv("PHALANX_HOME", "rel")
    monkeypatch.chdir(tmp_path)
    assert find_state() == tmp_path / "rel"
    monkeypatch.delenv("PHALANX_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/x/state")
    assert find_state() == Path("/x/state/phalanx")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/h")
    assert find_state() == Path("/h/.local/state/phalanx")
    monkeypatch.setenv("PHALANX_SOCKET_PATH", "/s/p.sock")
    assert find_place().socket == "/s/p.sock"


def test_the_machine_s_daemon_serves_who_has_none(monkeypatch, daemon, home, tmp_path):
    monkeypatch.setattr("phalanx.client.daemon_places.SYSTEM_SOCKET", daemon.path)
    monkeypatch.setattr("phalanx.client.daemon_places.SYSTEM_STATE", home)
    monkeypatch.delenv("PHALANX_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert find_place().system
    (tmp_path / "phalanx").mkdir()
    (tmp_path / "phalanx" / "phalanx.sock").symlink_to(daemon.path)
    assert not find_place().system, "one's own daemon goes before the machine's"
    (tmp_path / "phalanx" / "phalanx.sock").unlink()
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "named"))
    assert not find_place().system, "and a named one before both"


def test_what_only_looks_is_patient_while_the_daemon_is_restarted(daemon, home):
    replies = iter([_stopping(), _stopping(), _reply({"pid": 1})])
    daemon.answer("GET", "/v1/status", lambda _: next(replies))
    found = open_daemon()
    with contextlib.closing(found):
        with pytest.raises(ClientError, match="stopping"):
            found.get("/v1/status")
        found.patience_s = 30.0
        assert found.get("/v1/status") == {"pid": 1}


def _stopping():
    from types import SimpleNamespace

    error = {"code": "unavailable", "message": "the daemon is stopping", "hint": "ask again"}
    return SimpleNamespace(body={"error": error}, status=503, headers={})


def test_clients_look_for_the_machines_daemon_where_it_puts_itself():
    # Two copies on purpose: a client imports nothing of the daemon, so only a test can hold them together.
    assert (daemon_places.SYSTEM_STATE, daemon_places.SYSTEM_SOCKET) == (places.SYSTEM_STATE, places.SYSTEM_SOCKET)
