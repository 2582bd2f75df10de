"""The doors themselves: where they are, who can reach them, and who stands at the other end."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import tempfile
from pathlib import Path

import psutil
import pytest

from phalanx.frontends.host.api import CannotListen, Tokens, serve
from phalanx.frontends.host.api import peers as peers_module
from phalanx.frontends.host.api.peers import find_shared_uids, read_peer_uid
from phalanx.frontends.host.api.sockets import open_loopback, open_unix
from phalanx.frontends.host.ports import Caller

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as other users")


def test_the_socket_has_the_mode_that_was_asked_for(tmp_path):
    for mode in (0o600, 0o666):
        door = open_unix(tmp_path / "s", mode)
        found = (tmp_path / "s").lstat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == mode
        door.sock.close()
        door.remove()
        assert not (tmp_path / "s").exists()


def test_the_mask_of_the_process_is_as_before(tmp_path):
    before = os.umask(0o027)
    try:
        open_unix(tmp_path / "s", 0o600).sock.close()
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_a_long_path_can_be_bound(tmp_path):
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    door = open_unix(folder / "s", 0o600)
    assert (folder / "s").is_socket()
    door.sock.close()


def test_a_socket_that_nobody_answers_on_is_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    door = open_unix(tmp_path / "s", 0o600)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(tmp_path / "s"))
    door.sock.close()


def test_a_socket_that_somebody_answers_on_is_not(tmp_path):
    with open_unix(tmp_path / "s", 0o600).sock:
        before = (tmp_path / "s").lstat().st_ino
        with pytest.raises(CannotListen, match="answers on") as refused:
            open_unix(tmp_path / "s", 0o600)
        assert "phalanx down" in refused.value.hint
        assert (tmp_path / "s").lstat().st_ino == before


def test_a_full_backlog_is_somebody_too(tmp_path):
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(tmp_path / "s"))
        busy.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "s"))
            with pytest.raises(CannotListen, match="answers on"):
                open_unix(tmp_path / "s", 0o600)


def plant_file(path, precious):
    path.write_text("precious")


def plant_folder(path, precious):
    path.mkdir()


def plant_link(path, precious):
    path.symlink_to(precious)


def plant_dangling_link(path, precious):
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize("plant", [plant_file, plant_folder, plant_link, plant_dangling_link])
def test_what_is_not_a_socket_is_left_alone(tmp_path, plant):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    plant(tmp_path / "s", precious)
    before = (tmp_path / "s").lstat()
    with pytest.raises(CannotListen, match="not a socket"):
        open_unix(tmp_path / "s", 0o600)
    assert (tmp_path / "s").lstat().st_ino == before.st_ino
    assert precious.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("mode", "opens"), [(0o700, True), (0o755, True), (0o777, False), (0o1777, True), (0o702, False)]
)
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode, opens):
    folder = tmp_path / "f"
    folder.mkdir()
    folder.chmod(mode)
    if opens:
        open_unix(folder / "s", 0o600).sock.close()
    else:
        with pytest.raises(CannotListen, match="other users can write") as refused:
            open_unix(folder / "s", 0o600)
        assert refused.value.hint.startswith("chmod")
        assert not list(folder.iterdir())


@ROOT_ONLY
def test_a_folder_or_a_socket_of_somebody_else_is_refused(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(CannotListen, match="belongs to uid 12345"):
        open_unix(folder / "s", 0o600)
    os.chown(folder, 0, 0)
    folder.chmod(0o1777)
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(str(folder / "s"))
    os.chown(folder / "s", 12345, 12345)
    with pytest.raises(CannotListen, match="belongs to uid 12345"):
        open_unix(folder / "s", 0o600)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CannotListen, match="gone"):
        open_unix(tmp_path / "gone" / "s", 0o600)


def test_the_file_is_not_removed_when_it_is_another_one(tmp_path):
    door = open_unix(tmp_path / "s", 0o600)
    (tmp_path / "s").rename(tmp_path / "old")
    (tmp_path / "s").write_text("another")
    door.sock.close()
    door.remove()
    assert (tmp_path / "s").read_text() == "another"


# ---------------------------------------------------------------------- TCP


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "", "10.0.0.1", "::ffff:127.0.0.1"])  # noqa: S104
def test_an_address_that_others_can_reach_is_refused(tmp_path, host):
    tokens = Tokens(tmp_path / "tokens", wall_s=lambda: 0.0)
    with pytest.raises(CannotListen):
        serve(
            None,
            socket_path=tmp_path / "s",
            socket_mode=0o600,
            identify=lambda uid: Caller(uid, "x"),
            tcp=(host, 0),
            tokens=tokens,
        )
    assert not (tmp_path / "s").exists()


def test_a_port_without_tokens_is_refused(tmp_path):
    with pytest.raises(CannotListen, match="tokens"):
        serve(
            None,
            socket_path=tmp_path / "s",
            socket_mode=0o600,
            identify=lambda uid: Caller(uid, "x"),
            tcp=("127.0.0.1", 0),
        )
    assert not (tmp_path / "s").exists()


def test_a_port_in_use_is_named():
    with open_loopback("localhost", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotListen, match=str(port)):
            open_loopback("127.0.0.1", port)


def test_a_failed_unix_socket_gives_the_port_back(tmp_path):
    (tmp_path / "s").mkdir()
    with open_loopback("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    tokens = Tokens(tmp_path / "tokens", wall_s=lambda: 0.0)
    with pytest.raises(CannotListen):
        serve(
            None,
            socket_path=tmp_path / "s",
            socket_mode=0o600,
            identify=lambda uid: Caller(uid, "x"),
            tcp=("127.0.0.1", port),
            tokens=tokens,
        )
    listening = [c.laddr.port for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert port not in listening


def test_the_process_listens_on_loopback_only_and_leaves_signals_alone(play):
    async def scenario(api):
        await api.ask("GET", "/v1/status")
        listening = [c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert tuple(api.server.tcp_address) in [tuple(address) for address in listening]
        assert {address.ip for address in listening} == {"127.0.0.1"}
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    play(scenario)


# ---------------------------------------------------------------------- who is there

REQUEST = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-User: root\r\nConnection: close\r\n\r\n"


def ask_as(uid, path):
    """In a process that is nothing but that user; the interpreter may not be readable for it, so no exec."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(30)
        line.connect(str(path))
        line.sendall(REQUEST)
        return line.recv(65536).split()[1]


async def status_as(api, uid):
    """The status that this user gets, or the name of what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, ask_as(uid, api.server.socket_path))
        except BaseException as wrong:  # noqa: BLE001 - told to the parent
            os.write(writer, type(wrong).__name__.encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        await api.until(lambda: psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    finally:
        end(child)
    with os.fdopen(reader, "rb") as file:
        return file.read().decode()


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.fixture
def open_folder():
    """A folder that every user can get into; those of pytest are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


@ROOT_ONLY
def test_real_users_are_who_they_are(play, open_folder):
    async def scenario(api):
        for uid in (12345, 23456):
            assert await status_as(api, uid) == "200"
        assert [(caller.uid, caller.admin) for caller in api.service.callers] == [(12345, False), (23456, False)]
        api.admins.add(23456)
        assert await status_as(api, 23456) == "200"
        assert api.service.callers[-1].admin

    play(scenario, folder=open_folder, socket_mode=0o666)


@ROOT_ONLY
def test_a_private_socket_is_private(play, open_folder):
    async def scenario(api):
        assert await status_as(api, 12345) == "PermissionError"
        assert not api.service.calls

    play(scenario, folder=open_folder, socket_mode=0o600)


def test_a_peer_without_credentials_is_nobody(monkeypatch):
    class NoUid:
        def getsockopt(self, level, option, size, /):
            return b"\0" * 4 + b"\xff" * 8

    class Broken:
        def getsockopt(self, level, option, size, /):
            raise OSError(92, "no such option")

    assert read_peer_uid(NoUid()) is None
    assert read_peer_uid(Broken()) is None
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert read_peer_uid(ours) == os.geteuid()
        # Inside a user namespace, the uid that stands for everybody it does not map is nobody in particular.
        monkeypatch.setattr(peers_module, "find_shared_uids", lambda: frozenset({os.geteuid()}))
        assert read_peer_uid(ours) is None


def test_shared_uids_are_those_of_a_namespace(monkeypatch):
    texts = {"/proc/self/uid_map": "0 0 4294967295\n", "/proc/sys/kernel/overflowuid": "65534\n"}
    monkeypatch.setattr(Path, "read_text", lambda path, **_: texts[str(path)])
    find_shared_uids.cache_clear()
    try:
        assert find_shared_uids() == {2**32 - 1}
        texts["/proc/self/uid_map"] = "0 1000 1\n1 100000 65536\n"
        find_shared_uids.cache_clear()
        assert find_shared_uids() == {2**32 - 1, 65534}
    finally:
        find_shared_uids.cache_clear()


def test_a_nobody_on_the_unix_socket_has_no_access(play, monkeypatch):
    monkeypatch.setattr("phalanx.frontends.host.api.http_protocol.read_peer_uid", lambda _: None)

    async def scenario(api):
        answer = await api.ask("GET", "/v1/status")
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "forbidden")
        assert not api.service.calls

    play(scenario)
