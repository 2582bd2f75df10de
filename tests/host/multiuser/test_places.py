"""Where the daemon lives: it starts where nobody else can change what it relies on, and nowhere else."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from people import ADA, BOB
from realdaemon import LIMIT_S

pytestmark = pytest.mark.usefixtures("_able")


@pytest.fixture
def base():
    """A folder that everybody can reach, and nobody but root can change."""
    with tempfile.TemporaryDirectory(prefix="phalanx-places-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


#: Starts daemons as forks of one process that has everything loaded, each with a state directory of its own.
STARTER = """
import json, os, signal, sys, time
from phalanx.frontends.host.__main__ import main
for line in sys.stdin:
    case = json.loads(line)
    said, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 2)
        os.environ.update(case["env"])
        os._exit(main(["--state", case["state"], "--fake-gpus", "1", "--foreground", "--system"]))
    os.close(write)
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if os.path.exists(case["state"] + "/daemon.json"):
            os.kill(pid, signal.SIGTERM)
            ended = os.waitpid(pid, 0)
            break
        time.sleep(0.01)
    with os.fdopen(said, encoding="utf-8", errors="replace") as file:
        answer = [os.waitstatus_to_exitcode(ended[1]), file.read()]
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def start():
    """Starts a daemon that is expected to refuse: exit status and what it said; one that does not is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        env={"PATH": os.environ["PATH"], "HOME": "/root", "PHALANX_CONFIG": "none"},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )

    def ask(state, **env):
        process.stdin.write(json.dumps({"state": str(state), "env": env}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    try:
        yield ask
    finally:
        process.stdin.close()
        process.wait(LIMIT_S)
        process.stdout.close()


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_state_directory_that_others_write_to(base, start, mode):
    """Not put right but refused: whoever could write there may have left something."""
    state = base / "state"
    state.mkdir()
    state.chmod(mode)
    os.chown(state, 0, ADA)
    status, said = start(state)
    assert status == 2, said
    assert str(state) in said
    assert "chmod" in said
    assert mode_of(state) == mode, "it was changed all the same"
    assert list(state.iterdir()) == []


def test_a_state_directory_of_somebody_else(base, start):
    state = base / "state"
    state.mkdir()
    os.chown(state, ADA, ADA)
    status, said = start(state)
    assert (status, list(state.iterdir())) == (2, [])
    assert f"uid {ADA}" in said


@pytest.mark.parametrize("name", ["state", "state/runs", "state/lock", "state/daemon.new", "state/phalanx.db"])
def test_links_in_place_of_what_is_ours(base, start, name):
    """Somebody who once could write there left a link; what it points to keeps its content and its mode."""
    victim = base / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("precious", encoding="ascii")
    (victim / "file").chmod(0o640)
    (base / "state").mkdir(mode=0o755)
    to_folder = name in ("state", "state/runs")
    if name == "state":
        (base / "state").rmdir()
    (base / name).symlink_to(victim if to_folder else victim / "file")
    status, said = start(base / "state")
    assert (victim / "file").read_text(encoding="ascii") == "precious", said
    assert (mode_of(victim), mode_of(victim / "file")) == (0o700, 0o640)
    assert [path.name for path in victim.iterdir()] == ["file"]
    if to_folder:
        assert status == 2, said


def test_an_ancestor_that_somebody_else_can_move(base, start):
    """ada's folder with root's directory in it: she renames it, and puts her own in its place."""
    home = base / "home"
    home.mkdir()
    os.chown(home, ADA, ADA)
    (home / "state").mkdir(mode=0o711)
    status, said = start(home / "state")
    assert status == 2, said
    assert str(home) in said


PLANTS = {
    "a link": lambda path: path.symlink_to(path.parent / "elsewhere"),
    "a folder": lambda path: path.mkdir(),
    "a file": lambda path: path.touch(),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("what", PLANTS)
def test_something_else_in_place_of_the_socket(base, start, what):
    state = base / "state"
    state.mkdir()
    path = state / "phalanx.sock"
    PLANTS[what](path)
    before = path.lstat()
    status, said = start(state)
    assert status == 2, said
    assert str(path) in said
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("owner", [ADA, 0])
def test_a_socket_in_place_of_the_socket(base, start, owner):
    """Of somebody else, or of a daemon that answers."""
    state = base / "state"
    state.mkdir()
    path = state / "phalanx.sock"
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(str(path))
        squatter.listen()
        os.chown(path, owner, owner)
        status, said = start(state)
    assert status == 2, said
    assert str(path) in said
    assert path.lstat().st_uid == owner


@pytest.mark.parametrize(("owner", "mode"), [(0, 0o777), (ADA, 0o755)])
def test_a_socket_where_others_could_replace_it(base, start, owner, mode):
    folder = base / "sockets"
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, owner, owner)
    status, said = start(base / "state", PHALANX_SOCKET_PATH=str(folder / "phalanx.sock"))
    assert status == 2, said
    assert str(folder) in said
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------------- a daemon of one's own


@pytest.fixture
def own(make_shared):
    """ada's own daemon, in user mode."""
    return make_shared(gpus=1, owner=ADA).start()


def test_a_daemon_of_ones_own_is_nobody_elses(own):
    bob, ada = own.by(BOB), own.by(ADA)
    assert (mode_of(own.state), mode_of(Path(own.socket))) == (0o700, 0o600)
    with pytest.raises(PermissionError):
        bob.call("GET", "/v1/status")
    # Its owner lets everybody at the socket: the kernel still says who they are.
    own.state.chmod(0o755)
    Path(own.socket).chmod(0o666)
    for method, path, body in (
        ("GET", "/v1/status", None),
        ("GET", "/v1/jobs", None),
        ("POST", "/v1/jobs", bob.submission("true", 1)),
        ("POST", "/v1/down", {}),
    ):
        reply = bob.call(method, path, body)
        assert (reply.status, reply["error"]["code"]) == (403, "forbidden"), path
    job = ada.submit("id -u", 1)
    assert ada.wait(job)["state"] == "completed"
    assert ada.call("GET", f"/v1/jobs/{job}/logs").body == f"{ADA}\n"
    assert own.call("GET", f"/v1/jobs/{job}/logs").body == f"{ADA}\n", "root may look"


def test_the_command_line_says_whose_daemon_it_is(own):
    cli = str(Path(sys.executable).with_name("phalanx"))
    done = own.by(BOB).run(cli, "ps", PHALANX_HOME=str(own.state))
    assert done.returncode != 0, done
    assert f"{own.state} is not yours" in done.stderr
    assert "Traceback" not in done.stderr
